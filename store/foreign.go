package store

import (
	"fmt"
	"strings"
)

// garbageKey is the kind of garbage that is a whole key of a foreign type.
const garbageKey = "key"

// foreign tells whether err is Redis' word that key has not the type that the layout
// gives it. Then another program wrote it: upkeep leaves it alone, tells the Observer,
// and goes on with the other keys, so that one of them does not stop all.
func (s *Store) foreign(key string, err error) bool {
	if !wrongType(err) {
		return false
	}
	s.observe.Garbage(garbageKey, fmt.Errorf("%w: key %s has a foreign type and was left out: delete it, and find out who writes to it", ErrGarbage, key))
	return true
}

// wrongType: in a script's error, which names the key, the code need not stand in front.
func wrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }
