package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
)

// newReporter makes one that is closed, in order unless the test did it, at the end.
func newReporter(t *testing.T, c *Client, o ReporterOptions) *Reporter {
	t.Helper()
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 50 * time.Millisecond
	}
	r, err := c.NewReporter(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = r.Close(ended)
	})
	return r
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(ctx, limit)
	t.Cleanup(cancel)
	return ctx
}

func evicted(replica, hash string) *pb.CacheEvent {
	return &pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: "t", ModelId: "m", ReplicaId: replica, PrefixHash: []byte(hash)}
}

func TestReportsArriveInTheirOrderWithEventsBetween(t *testing.T) {
	p := newPod(t)
	r := newReporter(t, dialPod(t, p.Addr()), ReporterOptions{Batch: 3, Queue: 1000})
	var want []string
	for i := range 100 {
		h := fmt.Sprintf("h%03d", i)
		if i%7 == 3 {
			require.NoError(t, r.Publish(patient(t), evicted("r1", h)))
			want = append(want, "r1 lost "+h)
			continue
		}
		require.NoError(t, r.Report(patient(t), update("r1", h)))
		want = append(want, "r1 holds "+h)
	}
	require.NoError(t, r.Flush(patient(t)))
	require.Equal(t, want, p.history())
	require.Equal(t, ReporterStats{Acknowledged: 100}, r.Stats())
	require.NoError(t, r.Close(patient(t)))
	require.ErrorIs(t, r.Report(ctx, update("r1", "x")), ErrClosed)
	require.NoError(t, r.Close(patient(t)))
}

func TestWhatIsReportedIsFound(t *testing.T) {
	p := newPod(t)
	c := dialPod(t, p.Addr())
	r := newReporter(t, c, ReporterOptions{})
	for range 2 { // plain, and packed once the first Ack has said so
		require.NoError(t, r.Report(patient(t), update("r1", "aa", "bb")))
		require.NoError(t, r.Flush(patient(t)))
		requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
		require.True(t, c.packing.on())
		require.NoError(t, r.Publish(patient(t), &pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: "t", ModelId: "m", ReplicaId: "r1"}))
		require.NoError(t, r.Flush(patient(t)))
		require.Empty(t, c.LookupRoute(ctx, request("aa", "bb")).Replicas)
	}
}

func TestADowngradeLosesNoReport(t *testing.T) {
	p := newPod(t)
	c := dialPod(t, p.Addr())
	r := newReporter(t, c, ReporterOptions{})
	require.NoError(t, r.Report(patient(t), update("r1", "aa")))
	require.NoError(t, r.Flush(patient(t)))
	require.True(t, c.packing.on())
	p.old.Store(true)
	require.NoError(t, r.Report(patient(t), update("r1", "aa", "bb")))
	require.NoError(t, r.Flush(patient(t)))
	require.False(t, c.packing.on())
	hint := c.LookupRoute(ctx, request("aa", "bb"))
	requireHint(t, "r1", hint)
	require.EqualValues(t, 128, hint.Replicas[0].GetMatchedTokens())
}

func TestReportsWaitForAPodAndItsRedis(t *testing.T) {
	p := newPod(t)
	p.down.Store(true)
	var mu sync.Mutex
	var failures []error
	r := newReporter(t, dialPod(t, p.Addr()), ReporterOptions{OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, err)
	}})
	failed := func(n int64) {
		t.Helper()
		before := r.Stats().Failed
		rig.Eventually(t, limit, "attempts that fail", func() error {
			if s := r.Stats(); s.Failed-before < n {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	before := time.Now()
	require.NoError(t, r.Report(patient(t), update("r1", "aa")))
	require.NoError(t, r.Publish(patient(t), evicted("r1", "bb")))
	failed(2) // Redis is down
	p.Down()
	failed(2) // the pod is gone
	p.Up()
	p.down.Store(false)
	require.NoError(t, r.Flush(patient(t)))
	require.Equal(t, []string{"r1 holds aa", "r1 lost bb"}, p.history())
	require.Zero(t, r.Stats().Waiting)
	mu.Lock()
	defer mu.Unlock()
	requireCode(t, codes.Unavailable, failures[0])
	require.GreaterOrEqual(t, time.Since(before), firstBackoff/2)
}

func TestAReportThatWaitedKeepsItsDate(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	own := update("r1", "a")
	own.TimestampUs = 5
	batch := []item{{at: at, update: update("r1", "a")}, {at: at, update: own}, {at: at, event: evicted("r1", "a")}}
	date(batch)
	require.Equal(t, at.UnixMicro(), batch[0].update.GetTimestampUs())
	require.EqualValues(t, 5, batch[1].update.GetTimestampUs())
	require.Equal(t, at.UnixMicro(), batch[2].event.GetTimestampUs())
}

func TestAFullQueueBlocksOrDropsTheOldest(t *testing.T) {
	p := newPod(t)
	p.down.Store(true)
	c := dialPod(t, p.Addr())

	r := newReporter(t, c, ReporterOptions{Queue: 2, Batch: 1})
	fill := func(r *Reporter) { // one on its way, two waiting
		require.NoError(t, r.Report(patient(t), update("r1", "h0")))
		rig.Eventually(t, limit, "the first on its way", func() error {
			if r.Stats().Failed == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		require.NoError(t, r.Report(patient(t), update("r1", "h1")))
		require.NoError(t, r.Report(patient(t), update("r1", "h2")))
	}
	fill(r)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Report(short, update("r1", "h3")), context.DeadlineExceeded)
	blocked := make(chan error, 1)
	go func() { blocked <- r.Report(patient(t), update("r1", "h4")) }()

	var mu sync.Mutex
	var told []error
	drops := newReporter(t, c, ReporterOptions{Queue: 2, Batch: 1, WhenFull: DropOldest, OnError: func(err error) {
		if errors.Is(err, ErrDropped) {
			mu.Lock()
			told = append(told, err)
			mu.Unlock()
		}
	}})
	fill(drops)
	require.NoError(t, drops.Report(ctx, update("r2", "h3")))
	require.NoError(t, drops.Report(ctx, update("r2", "h4")))
	require.EqualValues(t, 2, drops.Stats().Dropped)
	require.Equal(t, 3, drops.Stats().Waiting)

	p.down.Store(false)
	require.NoError(t, <-blocked)
	require.NoError(t, r.Close(patient(t)))
	require.NoError(t, drops.Close(patient(t)))
	require.EqualValues(t, 4, r.Stats().Acknowledged)
	require.EqualValues(t, 3, drops.Stats().Acknowledged)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, told, 2)
	require.Contains(t, strings.Join(p.history(), ","), "r2 holds h4")
}

func TestOnlyThePieceAtFaultIsRejected(t *testing.T) {
	p := newPod(t)
	p.refuse = func(replica string) error {
		if replica == "poison" {
			return status.Error(codes.InvalidArgument, "never")
		}
		return nil
	}
	rejected := make(chan error, 10)
	r := newReporter(t, dialPod(t, p.Addr()), ReporterOptions{Linger: time.Minute, OnError: func(err error) { rejected <- err }})
	require.NoError(t, r.Report(patient(t), update("r1", "a")))
	require.NoError(t, r.Report(patient(t), update("poison", "b")))
	require.NoError(t, r.Report(patient(t), update("r1", "c")))
	require.NoError(t, r.Report(patient(t), update("\xff", "d"))) // not UTF-8: it cannot even be sent
	require.NoError(t, r.Report(patient(t), update("r1", "e")))
	require.NoError(t, r.Flush(patient(t)))
	require.Equal(t, ReporterStats{Acknowledged: 3, Rejected: 2}, r.Stats())
	require.ErrorIs(t, <-rejected, ErrRejected)
	require.ErrorIs(t, <-rejected, ErrRejected)
	arrived := map[string]bool{}
	for _, h := range p.history() {
		arrived[h] = true
	}
	require.Equal(t, map[string]bool{"r1 holds a": true, "r1 holds c": true, "r1 holds e": true}, arrived)
}

func TestCloseGivesUpAtItsDeadlineAndSaysWhatIsLost(t *testing.T) {
	p := newPod(t)
	p.down.Store(true)
	r := newReporter(t, dialPod(t, p.Addr()), ReporterOptions{})
	for i := range 5 {
		require.NoError(t, r.Report(patient(t), update("r1", strconv.Itoa(i))))
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := r.Close(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "5 updates and events")
	require.Equal(t, 5, r.Stats().Waiting)
	require.ErrorIs(t, r.Flush(ctx), ErrClosed)
}

func TestBatchesAreBoundedByNumberBytesAndTime(t *testing.T) {
	r := &Reporter{o: ReporterOptions{Batch: 4, BatchBytes: 100}}
	u, e := func(bytes int) item { return item{update: &pb.CacheStateUpdate{}, bytes: bytes} }, item{event: &pb.CacheEvent{}}
	for _, c := range []struct {
		queue []item
		n     int
		full  bool
	}{
		{[]item{u(1)}, 1, false},
		{[]item{u(1), u(1), u(1), u(1)}, 4, true},
		{[]item{u(1), u(1), u(1), u(1), u(1)}, 4, true},
		{[]item{u(60), u(60)}, 1, true},
		{[]item{u(100)}, 1, true},
		{[]item{u(500), u(1)}, 1, true},
		{[]item{u(1), e, u(1)}, 1, true},
		{[]item{e, e}, 1, true},
	} {
		r.queue = c.queue
		n, full := r.batch()
		require.Equal(t, c.n, n, c.queue)
		require.Equal(t, c.full, full, c.queue)
	}
}

func TestAReporterThatLingersSendsAtLast(t *testing.T) {
	p := newPod(t)
	r := newReporter(t, dialPod(t, p.Addr()), ReporterOptions{Linger: 30 * time.Millisecond})
	require.NoError(t, r.Report(patient(t), update("r1", "a")))
	rig.Eventually(t, limit, "an Ack without a Flush", func() error {
		if s := r.Stats(); s.Acknowledged != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestManyProducersShareAReporter(t *testing.T) {
	p := newPod(t)
	r := newReporter(t, dialPod(t, p.Addr()), ReporterOptions{Queue: 8, Batch: 4})
	var producers sync.WaitGroup
	for n := range 8 {
		producers.Go(func() {
			for i := range 50 {
				if err := r.Report(ctx, update(fmt.Sprint("r", n), strconv.Itoa(i))); err != nil {
					t.Error(err)
				}
				if i%10 == 0 {
					_ = r.Flush(ctx)
				}
			}
		})
	}
	producers.Wait()
	require.NoError(t, r.Close(patient(t)))
	require.Equal(t, ReporterStats{Acknowledged: 400}, r.Stats())
	require.Len(t, p.history(), 400)
}

func TestWhatAReporterDoesNotTake(t *testing.T) {
	p := newPod(t)
	c := dialPod(t, p.Addr())
	r := newReporter(t, c, ReporterOptions{})
	require.ErrorIs(t, r.Report(ctx, nil), ErrRequest)
	require.ErrorIs(t, r.Publish(ctx, nil), ErrRequest)
	for _, e := range []*pb.PrefixEntry{
		{PackedBlockHashes: []byte("abc"), PackedHashBytes: 2, BlockTokenCounts: []int32{1}},
		{PackedBlockHashes: []byte("abc"), PackedHashBytes: 1, BlockTokenCounts: []int32{1}, BlockHashes: [][]byte{{1}}},
		{PackedBlockHashes: []byte("abc"), PackedHashBytes: 1},
	} {
		require.ErrorIs(t, r.Report(ctx, &pb.CacheStateUpdate{Prefixes: []*pb.PrefixEntry{e}}), ErrRequest)
	}
	huge := update("r1", strings.Repeat("x", mostUpdateBytes))
	require.ErrorIs(t, r.Report(ctx, huge), ErrRequest)
	for _, o := range []ReporterOptions{{Batch: -1}, {BatchBytes: -1}, {Queue: -1}, {Timeout: -1}, {MaxBackoff: -1}} {
		_, err := c.NewReporter(o)
		require.ErrorContains(t, err, "give more than 0")
	}
}
