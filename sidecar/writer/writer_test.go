package writer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet = slog.New(slog.DiscardHandler)
	scope = ranking.Scope{Tenant: "t", Model: "m"}
)

const patience = 30 * time.Second

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	client, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, err := store.New(store.Options{Redis: client, Logger: quiet})
	require.NoError(t, err)
	return s
}

// start runs a writer of an empty mirror.
func start(t *testing.T, s *store.Store, o Options) (*Writer, func()) {
	t.Helper()
	o.Scope, o.Replica, o.Scheme, o.Logger = scope, "r", "s", quiet
	w := New(s, mirror.New(mirror.Options{}, time.Now()), o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	stop := func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return w, stop
}

func event(kind events.Kind, n int) events.Event {
	return events.Event{Kind: kind, Hashes: []events.Hash{{Lo: uint64(n)}}, Tokens: []uint32{uint32(n), 1}, BlockSize: 2, Group: events.NoGroup}
}

func store1(w *Writer, n int) {
	w.mirror.Apply(&events.Batch{Events: []events.Event{event(events.Stored, n)}})
}
func remove(w *Writer, n int) {
	w.mirror.Apply(&events.Batch{Events: []events.Event{event(events.Removed, n)}})
}

// holder is "T<tier>" if a lookup finds the block of the replica, and with it when it was last seen.
func holder(t *testing.T, s *store.Store, n int) (tier string, seenMS int64) {
	t.Helper()
	q := &ranking.Query{Scope: scope, Space: ranking.Space{Scheme: "s"}, TTLMS: 1_800_000, Exact: true,
		Hashes: [][]byte{ranking.AppendFingerprints(nil, nil, []uint32{uint32(n), 1}, 2)}}
	var ev ranking.Evidence
	require.NoError(t, s.Match(t.Context(), q, &ev))
	if len(ev.Runs) == 0 {
		return "", 0
	}
	return fmt.Sprintf("T%d", ev.Runs[0].Tier), ev.Runs[0].SeenMS
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	require.Eventually(t, f, patience, 2*time.Millisecond)
}

func TestNothingIsWrittenBeforeTheEngineIsLiveAndTheLeaseEndsWithIt(t *testing.T) {
	s := openStore(t, rig.Standalone(t).URL())
	w, _ := start(t, s, Options{Lease: time.Second})
	store1(w, 1)
	time.Sleep(50 * time.Millisecond)
	require.Zero(t, w.Counts().Writes.Load())
	w.Live(true)
	eventually(t, func() bool { tier, _ := holder(t, s, 1); return tier == "T1" })
	eventually(t, func() bool { return w.Counts().Leases.Load() > 4 }) // longer than one lease
	eventually(t, func() bool { tier, _ := holder(t, s, 1); return tier == "T1" })
	w.Live(false)
	eventually(t, func() bool { tier, _ := holder(t, s, 1); return tier == "" })
	w.Live(true)
	eventually(t, func() bool { tier, _ := holder(t, s, 1); return tier == "T1" })
	require.EqualValues(t, 1, w.Counts().Stored.Load(), "nothing had to be written again")
}

func TestAStoreAndThenARemovalEndAbsentWhateverTheTiming(t *testing.T) {
	s := openStore(t, rig.Standalone(t).URL())
	w, _ := start(t, s, Options{BatchSize: 3, Window: time.Microsecond})
	w.Live(true)
	for n := 1; n <= 300; n++ {
		store1(w, n)
		if n%2 == 0 {
			time.Sleep(time.Duration(n%7) * 100 * time.Microsecond)
		}
		remove(w, n)
	}
	store1(w, 1000)
	eventually(t, w.Settled)
	state, err := s.State(t.Context(), scope)
	require.NoError(t, err)
	require.EqualValues(t, 1, state.Prefixes)
}

func TestWhatStaysIsSeenAgain(t *testing.T) {
	s := openStore(t, rig.Standalone(t).URL())
	w, _ := start(t, s, Options{Refresh: 2 * time.Second})
	w.Live(true)
	store1(w, 1)
	var first int64
	eventually(t, func() (ok bool) { _, first = holder(t, s, 1); return first > 0 })
	eventually(t, func() bool { _, seen := holder(t, s, 1); return seen >= first+900 })
	require.NotZero(t, w.Counts().Refreshed.Load())
}

func TestSomebodyElsesWritesAreToldAndNotTakenForALoss(t *testing.T) {
	s := openStore(t, rig.Standalone(t).URL())
	w, _ := start(t, s, Options{})
	w.Live(true)
	store1(w, 1)
	eventually(t, w.Settled)
	require.NoError(t, s.Report(t.Context(), &ranking.Report{Scope: scope, Replica: "r", Scheme: "s", Entries: []ranking.Entry{{Hash: []byte("x"), Tokens: 1, Tier: 1}}}))
	store1(w, 2)
	eventually(t, w.Settled)
	require.EqualValues(t, 1, w.Counts().Foreign.Load())
	require.Zero(t, w.Counts().Lost.Load())
}

func TestOwnWritesThatRedisRunsLateAreNotSomebodyElses(t *testing.T) {
	w := New(nil, mirror.New(mirror.Options{}, time.Now()), Options{Logger: quiet})
	w.number, w.writes, w.unanswered, w.lostReply = 7, 10, 3, time.Now()
	foreign := func(writes int64) int64 {
		w.compare(store.Receipt{Number: 7, Writes: writes}, 1)
		return w.Counts().Foreign.Load()
	}
	require.Zero(t, foreign(12), "one of the three was run before this call")
	require.Zero(t, foreign(13), "none")
	require.Zero(t, foreign(16), "the other two, after a call that was sent later")
	require.EqualValues(t, 1, foreign(18), "there is no fourth")
	w.unanswered, w.lostReply = 3, time.Now().Add(-2*lateCall)
	require.EqualValues(t, 1, foreign(19))
	require.EqualValues(t, 2, foreign(21), "what was not run by now never was")
	require.Zero(t, w.Counts().Lost.Load())
}

func TestAPauseOfRedisIsNotTakenForAnotherProducer(t *testing.T) {
	r := rig.Standalone(t)
	client, err := store.Dial(store.DialOptions{URL: r.URL(), ReadTimeout: 50 * time.Millisecond, MaxRetries: new(int)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, err := store.New(store.Options{Redis: client, Logger: quiet})
	require.NoError(t, err)
	w, _ := start(t, s, Options{Timeout: time.Second})
	w.Live(true)
	for n := 1; n <= 3; n++ {
		store1(w, n)
		eventually(t, w.Settled)
		r.Pause()
		store1(w, 100+n)
		errors := w.Counts().Errors.Load()
		eventually(t, func() bool { return w.Counts().Errors.Load() > errors+2 })
		r.Resume()
		eventually(t, w.Settled)
	}
	require.Zero(t, w.Counts().Foreign.Load())
	require.Zero(t, w.Counts().Lost.Load())
}

func TestARetirementThatFailsSaysWhatIsLeft(t *testing.T) {
	r := rig.Standalone(t)
	s := openStore(t, r.URL())
	idle, stopIdle := start(t, s, Options{})
	stopIdle()
	busy, stopBusy := start(t, s, Options{})
	busy.Live(true)
	store1(busy, 1)
	eventually(t, busy.Settled)
	stopBusy()
	r.Kill()
	require.ErrorIs(t, idle.Retire(t.Context()), ErrNothingWritten)
	err := busy.Retire(t.Context())
	require.NotErrorIs(t, err, ErrNothingWritten)
	require.ErrorContains(t, err, "until its lease runs out")
}

func TestAnEmptiedRedisIsToldEverythingWithoutANewEvent(t *testing.T) {
	r := rig.Standalone(t)
	s := openStore(t, r.URL())
	w, _ := start(t, s, Options{Lease: time.Second})
	w.Live(true)
	store1(w, 1)
	eventually(t, w.Settled)
	require.NoError(t, r.Client().FlushAll(t.Context()).Err())
	eventually(t, func() bool { tier, _ := holder(t, s, 1); return tier == "T1" })
	require.EqualValues(t, 1, w.Counts().Lost.Load())
}

func TestPendingChangesCollapseWhileRedisIsAway(t *testing.T) {
	r := rig.Standalone(t)
	s := openStore(t, r.URL())
	w, _ := start(t, s, Options{Timeout: 300 * time.Millisecond})
	w.Live(true)
	store1(w, 1)
	eventually(t, w.Settled)
	r.Pause()
	store1(w, 2)
	eventually(t, func() bool { return w.Counts().Away.Load() == 1 })
	for n := 10; n < 5000; n++ {
		store1(w, n)
		remove(w, n)
	}
	remove(w, 1)
	before := w.Counts().Stored.Load() + w.Counts().Removed.Load()
	r.Resume()
	eventually(t, w.Settled)
	require.LessOrEqual(t, w.Counts().Stored.Load()+w.Counts().Removed.Load()-before, int64(3))
	tier, _ := holder(t, s, 1)
	require.Empty(t, tier)
	tier, _ = holder(t, s, 2)
	require.Equal(t, "T1", tier)
}

func TestAnotherNameTakesEverythingAlong(t *testing.T) {
	s := openStore(t, rig.Standalone(t).URL())
	w, stop := start(t, s, Options{})
	w.Live(true)
	w.Stats(&ranking.Stats{Pressure: 0.5})
	store1(w, 1)
	eventually(t, w.Settled)
	w.Rename("r@dp0")
	eventually(t, func() bool {
		state, err := s.State(t.Context(), scope)
		return err == nil && len(state.Replicas) == 1 && state.Replicas[0].ID == "r@dp0" && state.Prefixes == 1
	})
	stop()
	require.NoError(t, w.Retire(t.Context()))
	tier, _ := holder(t, s, 1)
	require.Empty(t, tier)
}

func TestAForeignLayoutIsNotWrittenInto(t *testing.T) {
	r := rig.Standalone(t)
	require.NoError(t, r.Client().HSet(t.Context(), store.LayoutKey, "version", "99", "shards", "1").Err())
	s := openStore(t, r.URL())
	w, _ := start(t, s, Options{})
	w.Live(true)
	store1(w, 1)
	eventually(t, func() bool { return w.Counts().Errors.Load() > 1 })
	require.Zero(t, w.Counts().Writes.Load())
}
