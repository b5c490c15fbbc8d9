package secrets

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// maxFile bounds one file: a path that names something else by mistake must not fill memory.
const maxFile = 8 << 20

// Value is what was last read from some files that belong together, such as a
// certificate and its key. It is safe for concurrent use.
type Value[T any] struct {
	name    string
	paths   []string
	parse   func(files [][]byte) (T, error)
	current atomic.Pointer[T]

	mu sync.Mutex
	// good and bad are the digests of what is in force and of what was refused last;
	// suspect is one that was refused once and may be half written.
	good, bad, suspect [sha256.Size]byte
}

// Load reads the files for the first time; what is wrong then is an error. name is for
// logs and metrics. parse gets the contents in the order of paths.
func Load[T any](name string, parse func(files [][]byte) (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{name: name, paths: paths, parse: parse}
	digest, files, err := v.read()
	if err != nil {
		return nil, err
	}
	parsed, err := parse(files)
	if err != nil {
		return nil, err
	}
	v.good = digest
	v.current.Store(&parsed)
	return v, nil
}

// Name is the one given to Load.
func (v *Value[T]) Name() string { return v.name }

// Get is the last good value.
func (v *Value[T]) Get() T { return *v.current.Load() }

// Fresh is Get after a look at the files, for those who need a secret rarely and then
// the newest: before a connection is made. What is wrong with the files is left to Check.
func (v *Value[T]) Fresh() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if digest, files, err := v.read(); err == nil && digest != v.good {
		if parsed, err := v.parse(files); err == nil {
			v.put(digest, parsed)
		}
	}
	return v.Get()
}

// Check reads the files again and tells whether they changed what is in force since the
// last Check. An error is told once for each new state of the files, and only when it
// was met twice: files that are written one after another do not fit in between.
func (v *Value[T]) Check() (changed bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	digest, files, err := v.read()
	if err == nil && digest == v.good {
		v.bad, v.suspect = [sha256.Size]byte{}, [sha256.Size]byte{}
		return false, nil
	}
	var parsed T
	if err == nil {
		parsed, err = v.parse(files)
	} else {
		digest = sha256.Sum256([]byte(err.Error()))
	}
	switch {
	case err == nil:
		v.put(digest, parsed)
		return true, nil
	case digest == v.bad:
		return false, nil
	case digest != v.suspect:
		v.suspect = digest
		return false, nil
	}
	v.bad = digest
	return false, fmt.Errorf("the last good one stays in force: %w", err)
}

func (v *Value[T]) put(digest [sha256.Size]byte, parsed T) {
	v.good, v.bad, v.suspect = digest, [sha256.Size]byte{}, [sha256.Size]byte{}
	v.current.Store(&parsed)
}

// read returns the files' contents and one digest of them all.
func (v *Value[T]) read() (digest [sha256.Size]byte, files [][]byte, err error) {
	sum := sha256.New()
	for _, path := range v.paths {
		content, err := readFile(path)
		if err != nil {
			return digest, nil, err
		}
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(content))))
		sum.Write(content)
		files = append(files, content)
	}
	return [sha256.Size]byte(sum.Sum(nil)), files, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB: that is no secret", path, maxFile>>20)
	}
	return content, nil
}
