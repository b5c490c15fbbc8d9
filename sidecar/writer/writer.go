// Package writer keeps the index equal to a mirror: it writes what differs, in batches
// of one round trip, renews the replica's lease, and notices when Redis has forgotten.
package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/store"
)

// Defaults of Options.
const (
	DefaultWindow    = 5 * time.Millisecond
	DefaultBatchSize = 1000
	DefaultLease     = 15 * time.Second
	DefaultRefresh   = 5 * time.Minute
	DefaultTimeout   = 5 * time.Second

	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second

	// lateCall is how long after its reply was given up a call may still be run: a server
	// that was stopped finds it in its socket.
	lateCall = 30 * time.Second
)

// Store is what the writer needs of the index; *store.Store is one.
type Store interface {
	// Ready agrees with Redis on the layout; nothing may be written before.
	Ready(ctx context.Context) error
	Batch(scope ranking.Scope, replica string) *store.Batch
	Retire(ctx context.Context, scope ranking.Scope, replica string) error
}

// Options of a Writer. Scope, Replica and Scheme are required.
type Options struct {
	ranking.Scope
	Replica string
	Scheme  string
	// Window is how much time lies between two writes at least, so that changes gather; the
	// first change after a quiet time does not wait. 0 = DefaultWindow.
	Window time.Duration
	// BatchSize bounds the changes of one write; 0 = DefaultBatchSize.
	BatchSize int
	// Lease is how long lookups may trust the replica without a sign of life; it is renewed
	// at a third of it. 0 = DefaultLease, negative = the replica has none and lives by TTL.
	Lease time.Duration
	// Refresh is how often a block that stays is written again; 0 = DefaultRefresh. With what
	// a round takes, no hold grows older than one and a half of it.
	Refresh time.Duration
	// Timeout bounds one write; 0 = DefaultTimeout.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Writer writes one mirror to one replica. Run owns all state but what is atomic or locked.
type Writer struct {
	opts   Options
	log    *slog.Logger
	store  Store
	mirror *mirror.Mirror
	counts Counts
	poke   chan struct{}

	mu    sync.Mutex
	live  bool
	name  string // wanted; replica is the one in use
	stats *ranking.Stats
	fresh bool // stats were not written yet

	replica string
	// agreed: Ready succeeded since Redis was last away or had lost something.
	agreed bool
	// number and writes are what Redis said last; number 0 = not known.
	number uint32
	writes int64
	// unanswered counts calls whose replies were lost, the last at lostReply, and that Redis
	// was not seen to have run. It may run them later than calls that were sent after them,
	// on another connection.
	unanswered int64
	lostReply  time.Time
	leased     time.Time // when the lease was last renewed
	wrote      time.Time // when the last write began
	awaySince  time.Time // zero while Redis answers
	retryAt    time.Time
	retryWait  time.Duration
	warned     bool
	behind     bool // the last write took as much as one may: the next does not wait
	delta      mirror.Delta
}

// Counts are cumulative, but for Away and Number.
type Counts struct {
	Writes, Errors, Stored, Removed, Refreshed atomic.Int64
	Retired, Leases, Lost, Foreign             atomic.Int64
	// Agreed is 1 once Redis answered and agreed on the layout.
	Agreed atomic.Int64
	// Away is 1 while Redis does not take writes.
	Away atomic.Int64
	// Number is the replica's present number, 0 if it has none.
	Number atomic.Int64
}

// New makes a Writer; Run runs it.
func New(s Store, m *mirror.Mirror, o Options) *Writer {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Window, DefaultWindow)
	def(&o.Lease, DefaultLease)
	def(&o.Refresh, DefaultRefresh)
	def(&o.Timeout, DefaultTimeout)
	if o.BatchSize == 0 {
		o.BatchSize = DefaultBatchSize
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Writer{opts: o, log: o.Logger.With("replica", o.Replica), store: s, mirror: m,
		poke: make(chan struct{}, 1), name: o.Replica, replica: o.Replica, retryWait: retryMin}
}

// Counts are live: read them at any time.
func (w *Writer) Counts() *Counts { return &w.counts }

// Mirror is what the writer writes.
func (w *Writer) Mirror() *mirror.Mirror { return w.mirror }

// Live says whether the mirror is what the engine holds now. While it is not, the lease is
// not renewed and nothing is written but a retirement: lookups stop to trust the replica
// when the lease runs out, and nothing is lost if the engine comes back.
func (w *Writer) Live(live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = live
	w.wake()
}

// Stats replaces the replica's stats with the next write.
func (w *Writer) Stats(st *ranking.Stats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats, w.fresh = st, true
	w.wake()
}

// Rename moves the replica to another name: the old one is retired.
func (w *Writer) Rename(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.name = name
	w.wake()
}

// Replica is the name that is or will be written.
func (w *Writer) Replica() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.name
}

func (w *Writer) wake() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	round := time.NewTicker(max(min(time.Second, w.opts.Refresh/16), 10*time.Millisecond))
	defer round.Stop()
	last := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.mirror.Changed():
		case <-w.poke:
		case <-timer.C:
		case now := <-round.C:
			if w.awaySince.IsZero() && w.isLive() {
				w.refresh(float64(now.Sub(last))/float64(w.opts.Refresh), now)
			}
			last = now
		}
		timer.Reset(w.turn(ctx))
	}
}

func (w *Writer) refresh(share float64, now time.Time) {
	w.counts.Refreshed.Add(int64(w.mirror.Refresh(share, w.opts.Refresh/2, now)))
}

func (w *Writer) isLive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

// turn writes what is due and returns after how long something else is.
func (w *Writer) turn(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		now := time.Now()
		if wait := w.retryAt.Sub(now); wait > 0 {
			return wait
		}
		if wait := w.wrote.Add(w.opts.Window).Sub(now); wait > 0 && !w.behind {
			return wait
		}
		more, err := w.write(ctx, now)
		if err != nil {
			w.failed(ctx, err)
			continue
		}
		if !more {
			break
		}
	}
	if w.opts.Lease < 0 || !w.isLive() {
		return time.Hour
	}
	return max(time.Until(w.leased.Add(w.opts.Lease/3)), time.Millisecond)
}

// failed backs off. It says so once, and once when it is over.
func (w *Writer) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.counts.Errors.Add(1)
	if w.awaySince.IsZero() {
		w.awaySince = time.Now()
		w.agreed = false
		w.counts.Away.Store(1)
		w.log.Warn("Redis does not take writes: changes gather until it does", "error", err)
	}
	w.retryAt = time.Now().Add(w.retryWait/2 + rand.N(w.retryWait))
	w.retryWait = min(2*w.retryWait, retryMax)
}

// back follows up the first write that succeeded after failures.
func (w *Writer) back(now time.Time) {
	w.retryWait = retryMin
	if w.awaySince.IsZero() {
		return
	}
	away := now.Sub(w.awaySince)
	w.awaySince = time.Time{}
	w.counts.Away.Store(0)
	w.log.Info("Redis takes writes again", "after", away.Round(time.Millisecond), "pending", w.mirror.State().Pending)
	if away > w.opts.Refresh/2 {
		w.refresh(1, now) // what was due meanwhile may age out before its turn comes
	}
}

// Settled tells whether Redis has taken all that the mirror wants it to know.
func (w *Writer) Settled() bool { return w.mirror.State().Pending == 0 }

// ErrNothingWritten is wrapped by what Retire returns if Redis was sent nothing before.
var ErrNothingWritten = errors.New("this sidecar has written nothing for it")

// Retire takes the replica out of the index, for good: Run must have ended. The error says
// what is left in Redis.
func (w *Writer) Retire(ctx context.Context) error {
	w.counts.Retired.Add(1)
	err := w.store.Retire(ctx, w.opts.Scope, w.replica)
	switch {
	case err == nil:
		return nil
	case w.wrote.IsZero():
		return fmt.Errorf("replica %q was not retired, but %w: %w", w.replica, ErrNothingWritten, err)
	case w.opts.Lease < 0:
		return fmt.Errorf("replica %q was not retired, it serves until its blocks age out: %w", w.replica, err)
	}
	return fmt.Errorf("replica %q was not retired, it serves until its lease runs out: %w", w.replica, err)
}
