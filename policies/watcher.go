package policies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"inferencecache.io/lookuptier/ranking"
)

const (
	// DefaultDebounce is how long a directory must be quiet before it is read.
	DefaultDebounce = 100 * time.Millisecond
	// DefaultPoll is how often a directory is read without any notice.
	DefaultPoll = 30 * time.Second
	// retryEvery is how often a directory that cannot be read is looked at again: one
	// that was moved away or made anew sends no notice when it is there.
	retryEvery = time.Second
)

// maxDebounces bounds how many debounce times a busy directory can put a reload off.
const maxDebounces = 10

// Options tune a Watcher; the zero value is fine.
type Options struct {
	// Debounce is how long the directory must be quiet before it is read, so that
	// several files written together are read together; 0 = DefaultDebounce.
	Debounce time.Duration
	// Poll is how often the directory is read even if no notice of a change came:
	// network file systems send none, nor do links to files elsewhere; 0 = DefaultPoll.
	Poll time.Duration
	// KeyTTL is how long the index keeps what is not reported again: a set with an
	// evictionTTL that is not shorter is as bad as one with a typing error; 0 = any is good.
	KeyTTL time.Duration
	// OnReload hears of every reload after the first load, successful or not,
	// from the Watcher's goroutine; it must not call Close. A reading that finds
	// the same as the one before is no reload.
	OnReload func(Reload)
	// OnNoticesLost hears that the operating system's notices do not work; from
	// then on changes are found by polling. The same goroutine, or that of Watch.
	OnNoticesLost func(error)
}

// Reload is the outcome of one reload.
type Reload struct {
	// Set is in force from now on: the new one, or after an error the last good one.
	Set *Set
	// Err says why the directory could not be used; a Problems if its files are wrong.
	Err error
}

// Watcher keeps the set of a directory up to date until Close. For and Current
// are safe for concurrent use and allocate nothing.
type Watcher struct {
	dir     string
	opts    Options
	current atomic.Pointer[Set]
	good    atomic.Uint64
	bad     atomic.Uint64

	// Of the goroutine alone, once started.
	notices *fsnotify.Watcher // nil without notices
	watched os.FileInfo       // the directory that the notices come from; nil = none
	lastRaw []Source          // the last reading, whether it was good or not
	lastErr string            // why the last reading failed; "" if it did not

	stop    chan struct{}
	stopped chan struct{}
	once    sync.Once
}

// Watch loads a directory and follows its changes. The directory must exist and
// all of its policies must be good: a pod does not start with half its policies.
func Watch(dir string, opts Options) (*Watcher, error) {
	if opts.Debounce <= 0 {
		opts.Debounce = DefaultDebounce
	}
	if opts.Poll <= 0 {
		opts.Poll = DefaultPoll
	}
	w := &Watcher{dir: filepath.Clean(dir), opts: opts, stop: make(chan struct{}), stopped: make(chan struct{})}
	notices, err := fsnotify.NewWatcher()
	if err != nil {
		w.noticesLost(err)
	} else {
		w.notices = notices
	}
	// Watch first, read second: a change between the two is noticed.
	w.follow()
	sources, err := read(w.dir)
	if err == nil {
		var set *Set
		if set, err = w.parse(sources); err == nil {
			w.current.Store(set)
		}
	}
	if err != nil {
		w.closeNotices()
		return nil, err
	}
	w.lastRaw = sources
	go w.run()
	return w, nil
}

// Current is the set in force; never nil.
func (w *Watcher) Current() *Set { return w.current.Load() }

// For returns the tenant's policy under the set in force; never nil. Do not change it.
func (w *Watcher) For(tenant string) *ranking.Policy { return w.current.Load().For(tenant) }

// Reloads counts the successful and the failed reloads since Watch.
func (w *Watcher) Reloads() (good, bad uint64) { return w.good.Load(), w.bad.Load() }

// Close stops following and waits for a reload under way. The last set stays in
// force. It may be called more than once.
func (w *Watcher) Close() {
	w.once.Do(func() { close(w.stop) })
	<-w.stopped
}

func (w *Watcher) run() {
	defer close(w.stopped)
	defer w.closeNotices()
	poll := time.NewTicker(w.opts.Poll)
	defer poll.Stop()
	quiet := time.NewTimer(w.opts.Debounce)
	quiet.Stop()
	defer quiet.Stop()
	var deadline time.Time // of the reload that notices have put off; zero = none is due

	for {
		// Both are nil, and so never ready, without notices.
		var events chan fsnotify.Event
		var errs chan error
		if w.notices != nil {
			events, errs = w.notices.Events, w.notices.Errors
		}
		select {
		case <-w.stop:
			return
		case <-events:
			// What changed does not matter: a ConfigMap's update touches only a
			// hidden link, through which every file changes.
			now := time.Now()
			if deadline.IsZero() {
				deadline = now.Add(maxDebounces * w.opts.Debounce)
			}
			quiet.Reset(min(w.opts.Debounce, deadline.Sub(now)))
		case err := <-errs:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				quiet.Reset(w.opts.Debounce) // something changed, whatever it was
				continue
			}
			w.closeNotices()
			w.noticesLost(err)
		case <-quiet.C:
			deadline = time.Time{}
			w.reload()
		case <-poll.C:
			w.reload()
		}
		if w.lastErr != "" && deadline.IsZero() {
			quiet.Reset(min(retryEvery, w.opts.Poll))
		}
	}
}

// reload reads the directory and, if it says anything new, uses it or reports
// why not.
func (w *Watcher) reload() {
	w.follow()
	sources, err := read(w.dir)
	if err != nil {
		if err.Error() == w.lastErr {
			return
		}
		w.lastRaw, w.lastErr = nil, err.Error()
		w.failed(err)
		return
	}
	if w.lastErr == "" && same(sources, w.lastRaw) {
		return
	}
	w.lastRaw, w.lastErr = sources, ""
	set, err := w.parse(sources)
	if err != nil {
		w.failed(err)
		return
	}
	w.current.Store(set)
	w.good.Add(1)
	w.report(Reload{Set: set})
}

func (w *Watcher) parse(sources []Source) (*Set, error) {
	set, err := Parse(sources...)
	if err == nil && w.opts.KeyTTL > 0 {
		err = set.Within(w.opts.KeyTTL)
	}
	if err != nil {
		return nil, err
	}
	return set, nil
}

func (w *Watcher) failed(err error) {
	w.bad.Add(1)
	w.report(Reload{Set: w.current.Load(), Err: err})
}

func (w *Watcher) report(r Reload) {
	if w.opts.OnReload != nil {
		w.opts.OnReload(r)
	}
}

// follow makes the notices come from the directory that stands at the path now:
// a directory that was replaced takes the old one's notices with it.
func (w *Watcher) follow() {
	if w.notices == nil {
		return
	}
	info, err := os.Stat(w.dir)
	if err != nil {
		w.watched = nil // reading it says so too
		return
	}
	// A new directory can have the old one's inode; the list knows that the old
	// watch ended with its directory.
	if w.watched != nil && os.SameFile(info, w.watched) && slices.Contains(w.notices.WatchList(), w.dir) {
		return
	}
	_ = w.notices.Remove(w.dir) // fails if the old one is gone, which is as good
	switch err := w.notices.Add(w.dir); {
	case err == nil:
		w.watched = info
	case errors.Is(err, os.ErrNotExist):
		w.watched = nil // gone since the look at it
	default:
		w.closeNotices()
		w.noticesLost(err)
	}
}

func (w *Watcher) closeNotices() {
	if w.notices != nil {
		_ = w.notices.Close() // nothing is left to do with it
		w.notices = nil
	}
}

func (w *Watcher) noticesLost(err error) {
	if w.opts.OnNoticesLost != nil {
		w.opts.OnNoticesLost(fmt.Errorf("policy directory %s: no notices of changes, polling every %s: %w", w.dir, w.opts.Poll, err))
	}
}
