package scripts

import (
	"fmt"
	"time"
)

// Layout makes the call of layout.lua: version and shards are written unless a
// layout stands there, and its TTL is extended if it is this one.
func Layout(key string, version, shards int, ttl time.Duration) *Call {
	return &Call{script: layoutScript, keys: []string{key}, args: []any{version, shards, ttl.Milliseconds()}}
}

// LaidOut reads the reply of Layout: what stands there now, "" for what a foreign key lacks.
func (c *Call) LaidOut() (version, shards string, err error) {
	raw, err := c.reply(2)
	if err != nil {
		return "", "", err
	}
	found, ok := texts(raw)
	if !ok {
		return "", "", fmt.Errorf("layout: reply is %v, want two strings", raw)
	}
	return found[0], found[1], nil
}
