package secrets

import (
	"context"
	"time"
)

// DefaultEvery is how often files are looked at. Notices of changes would come sooner,
// but not from every file system, and not for a link that is swung round elsewhere.
const DefaultEvery = time.Second

// Checked is a Value of any type.
type Checked interface {
	Name() string
	Check() (changed bool, err error)
}

// Follow looks at values until ctx ends and tells of each change, and of what could not
// be put in force.
func Follow(ctx context.Context, every time.Duration, changed func(name string), failed func(name string, err error), values ...Checked) {
	if len(values) == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, v := range values {
			switch was, err := v.Check(); {
			case err != nil:
				failed(v.Name(), err)
			case was:
				changed(v.Name())
			}
		}
	}
}
