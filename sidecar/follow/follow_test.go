package follow

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/publisher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a Sink that writes down what it is told. A batch is named by the hash in it.
type journal struct {
	mu      sync.Mutex
	lines   []string
	orphans map[string]bool
}

func (j *journal) write(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) Apply(b *events.Batch) int {
	name := strconv.FormatUint(b.Events[0].Hashes[0].Lo, 10)
	j.write("%s", name)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.orphans[name] {
		return 1
	}
	return 0
}
func (j *journal) Joined(complete bool) { j.write("joined %v", complete) }
func (j *journal) Lost()                { j.write("lost") }
func (j *journal) Restarted()           { j.write("restarted") }
func (j *journal) Replaying(on bool)    { j.write("replaying %v", on) }
func (j *journal) Live(on bool)         { j.write("live %v", on) }

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

// cut returns what was written since, and forgets it.
func (j *journal) cut() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = nil
}

func payload(name int, ts float64) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.Encode([]any{ts, []any{[]any{"BlockRemoved", []any{name}}}})
	return buf.Bytes()
}

func eventually(t *testing.T, j *journal, want string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if j.text() == want {
			return
		}
	}
	got := j.text()
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	t.Fatalf("after %d equal bytes got %.80q, want %.80q", same, got[same:], want[same:])
}

func listen(t *testing.T, o publisher.Options) *publisher.Publisher {
	t.Helper()
	if o.Endpoint == "" {
		o.Endpoint = "tcp://127.0.0.1:0"
	}
	var p *publisher.Publisher
	require.Eventually(t, func() (ok bool) {
		var err error
		p, err = publisher.Listen(t.Context(), o)
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func follow(t *testing.T, o Options) (*Follower, *journal) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Probe == 0 {
		o.Probe = time.Hour
	}
	j := &journal{orphans: map[string]bool{}}
	f, err := New(o, j)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f, j
}

// engine is a publisher with a replay socket, and a follower that has joined it.
func engine(t *testing.T, past ...int) (*publisher.Publisher, *Follower, *journal) {
	t.Helper()
	p := listen(t, publisher.Options{Replay: "tcp://127.0.0.1:0", Buffer: 8})
	for _, n := range past {
		p.Publish(payload(n, 100+float64(n)))
	}
	ep, rp := p.Endpoints()
	f, j := follow(t, Options{Endpoint: ep, Replay: rp})
	subscribed(t, p)
	return p, f, j
}

func subscribed(t *testing.T, p *publisher.Publisher) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Subscribers() == 1 }, 10*time.Second, time.Millisecond)
}

func TestJoiningReadsThePastFirst(t *testing.T) {
	p, _, j := engine(t, 1, 2)
	eventually(t, j, "1 2 joined true live true")
	j.cut()
	p.Publish(payload(3, 103))
	eventually(t, j, "3")
}

func TestJoiningLateIsNoLoss(t *testing.T) {
	p, f, j := engine(t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	eventually(t, j, "3 4 5 6 7 8 9 10 joined false live true")
	p.Publish(payload(11, 111))
	eventually(t, j, "3 4 5 6 7 8 9 10 joined false live true 11")
	require.Zero(t, f.Counts().Losses.Load())
}

func TestWithoutAReplaySocketTheFirstBatchIsTheBeginning(t *testing.T) {
	p := listen(t, publisher.Options{})
	p.Publish(payload(1, 1))
	ep, _ := p.Endpoints()
	_, j := follow(t, Options{Endpoint: ep})
	subscribed(t, p)
	p.Publish(payload(2, 2))
	eventually(t, j, "joined false live true 2")
	p.Swallow(payload(3, 3))
	p.Publish(payload(4, 4))
	eventually(t, j, "joined false live true 2 lost 4")
}

func TestAGapIsFilledBeforeAnythingNewer(t *testing.T) {
	p, f, j := engine(t)
	eventually(t, j, "joined true live true")
	j.cut()
	p.Publish(payload(1, 1))
	p.Swallow(payload(2, 2))
	p.Swallow(payload(3, 3))
	p.Publish(payload(4, 4))
	p.Publish(payload(5, 5))
	eventually(t, j, "1 2 3 4 5")
	require.EqualValues(t, 1, f.Counts().Gaps.Load())
	require.EqualValues(t, 2, f.Counts().MissedBatches.Load())
	require.Zero(t, f.Counts().Losses.Load())
}

func TestAGapBeyondTheBufferIsALoss(t *testing.T) {
	p, f, j := engine(t)
	eventually(t, j, "joined true live true")
	p.Publish(payload(1, 1))
	eventually(t, j, "joined true live true 1")
	j.cut()
	for n := 2; n <= 11; n++ {
		p.Swallow(payload(n, float64(n)))
	}
	p.Publish(payload(12, 12))
	eventually(t, j, "lost 5 6 7 8 9 10 11 12")
	require.EqualValues(t, 3, f.Counts().LostBatches.Load())
}

func TestASilentStreamIsProbed(t *testing.T) {
	p := listen(t, publisher.Options{Replay: "tcp://127.0.0.1:0"})
	ep, rp := p.Endpoints()
	_, j := follow(t, Options{Endpoint: ep, Replay: rp, Probe: 50 * time.Millisecond})
	eventually(t, j, "joined true live true")
	subscribed(t, p)
	p.Swallow(payload(1, 1))
	eventually(t, j, "joined true live true 1")
}

func TestACutConnectionIsPickedUpWhereItEnded(t *testing.T) {
	p, f, j := engine(t, 1, 2)
	eventually(t, j, "1 2 joined true live true")
	j.cut()
	p.Disconnect()
	p.Publish(payload(3, 103))
	eventually(t, j, "live false live true 3")
	require.Zero(t, f.Counts().Restarts.Load())
}

func TestAnEngineThatCameBackIsNewEvenIfItSaysNothing(t *testing.T) {
	for name, past := range map[string][]int{"empty": nil, "another past": {7, 8, 9}} {
		t.Run(name, func(t *testing.T) {
			p, f, j := engine(t, 1, 2)
			eventually(t, j, "1 2 joined true live true")
			j.cut()
			ep, rp := p.Endpoints()
			require.NoError(t, p.Close())
			eventually(t, j, "live false")
			p = listen(t, publisher.Options{Endpoint: ep, Replay: rp})
			want := strings.TrimSpace("live false restarted " + strings.Trim(fmt.Sprint(past), "[]"))
			for _, n := range past {
				p.Publish(payload(n, 200))
			}
			require.Eventually(t, func() bool { return f.Counts().Restarts.Load() == 1 && f.Counts().Live.Load() == 1 }, 20*time.Second, time.Millisecond)
			require.Contains(t, []string{want + " live true", strings.Replace(want, " restarted", " restarted live true", 1)}, j.text())
		})
	}
}

func TestWithoutAReplaySocketTheNumbersTellARestart(t *testing.T) {
	p := listen(t, publisher.Options{})
	ep, _ := p.Endpoints()
	_, j := follow(t, Options{Endpoint: ep})
	subscribed(t, p)
	for n := 1; n <= 3; n++ {
		p.Publish(payload(n, 100))
	}
	eventually(t, j, "joined false live true 1 2 3")
	j.cut()
	// Cut without a restart: live again only when the next number fits.
	p.Disconnect()
	eventually(t, j, "live false")
	subscribed(t, p)
	time.Sleep(20 * time.Millisecond)
	require.Equal(t, "live false", j.text())
	p.Publish(payload(4, 101))
	eventually(t, j, "live false 4 live true")
	j.cut()
	require.NoError(t, p.Close())
	p = listen(t, publisher.Options{Endpoint: ep})
	subscribed(t, p)
	p.Publish(payload(9, 200))
	eventually(t, j, "live false restarted 9 live true")
}

func TestAClockThatGoesBackIsARestart(t *testing.T) {
	p, _, j := engine(t, 1, 2)
	eventually(t, j, "1 2 joined true live true")
	j.cut()
	p.Publish(payload(3, 50))
	eventually(t, j, "restarted 1 2 3")
}

func TestAMalformedBatchIsAskedForAgainAndThenLost(t *testing.T) {
	p, f, j := engine(t, 1)
	eventually(t, j, "1 joined true live true")
	j.cut()
	p.Publish([]byte{0xc1})
	p.Publish(payload(3, 103))
	eventually(t, j, "lost 3")
	require.EqualValues(t, 2, f.Counts().Malformed.Load())
}

func TestOrphansAskForEverythingOnceInAWhile(t *testing.T) {
	p, f, j := engine(t, 1, 2)
	eventually(t, j, "1 2 joined true live true")
	j.mu.Lock()
	j.orphans["3"], j.orphans["4"] = true, true
	j.mu.Unlock()
	j.cut()
	p.Publish(payload(3, 103))
	eventually(t, j, "3 replaying true 1 2 3 replaying false")
	p.Publish(payload(4, 104))
	eventually(t, j, "3 replaying true 1 2 3 replaying false 4")
	require.EqualValues(t, 2, f.Counts().Replays.Load())
}

func TestAReplayInTheNewerFormIsUnderstood(t *testing.T) {
	p := listen(t, publisher.Options{Replay: "tcp://127.0.0.1:0", Topic: "kv-events", TopicInReplay: true})
	p.Publish(payload(1, 1))
	ep, rp := p.Endpoints()
	_, j := follow(t, Options{Endpoint: ep, Replay: rp, Topic: "kv"})
	subscribed(t, p)
	eventually(t, j, "1 joined true live true")
	p.Publish(payload(2, 2))
	eventually(t, j, "1 joined true live true 2")
}

func TestTheTopicFilters(t *testing.T) {
	p := listen(t, publisher.Options{Topic: "other"})
	ep, _ := p.Endpoints()
	_, j := follow(t, Options{Endpoint: ep, Topic: "kv"})
	subscribed(t, p)
	p.Publish(payload(1, 1))
	require.Eventually(t, p.Drained, 10*time.Second, time.Millisecond)
	eventually(t, j, "joined false live true")
}

func TestASilentPeerIsNotTakenForALivingOne(t *testing.T) {
	p := listen(t, publisher.Options{})
	ep, _ := p.Endpoints()
	cut := newMiddle(t, strings.TrimPrefix(ep, "tcp://"))
	_, j := follow(t, Options{Endpoint: "tcp://" + cut.addr(), Heartbeat: 200 * time.Millisecond})
	eventually(t, j, "joined false live true")
	cut.freeze()
	eventually(t, j, "joined false live true live false")
}

// middle forwards bytes until it freezes, as a network that was cut: nothing is closed.
type middle struct {
	l      net.Listener
	frozen chan struct{}
}

func newMiddle(t *testing.T, to string) *middle {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &middle{l: l, frozen: make(chan struct{})}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	pipe := func(dst, src net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := src.Read(buf)
			select {
			case <-m.frozen:
				return
			default:
			}
			if err != nil {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				_ = a.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, a, b)
			mu.Unlock()
			wg.Go(func() { pipe(a, b) })
			wg.Go(func() { pipe(b, a) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return m
}

func (m *middle) addr() string { return m.l.Addr().String() }

func (m *middle) freeze() {
	close(m.frozen)
	_ = m.l.Close()
}

func TestASlowFollowerLosesNothingThatTheBufferHas(t *testing.T) {
	p := listen(t, publisher.Options{Replay: "tcp://127.0.0.1:0", HighWater: 10})
	ep, rp := p.Endpoints()
	f, j := follow(t, Options{Endpoint: ep, Replay: rp, Queue: 4, Probe: 300 * time.Millisecond})
	subscribed(t, p)
	eventually(t, j, "joined true live true") // or the join would bring the first ones
	var want strings.Builder
	want.WriteString("joined true live true")
	for n := 1; n <= 3000; n++ {
		p.Publish(payload(n, float64(n)))
		fmt.Fprint(&want, " ", n)
	}
	eventually(t, j, want.String())
	t.Logf("%d gaps, %d batches were missed", f.Counts().Gaps.Load(), f.Counts().MissedBatches.Load())
}

func TestEndpointsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, e := range []string{"", "localhost:5557", "udp://x:1", "tcp://x", "tcp://x:port"} {
		_, err := New(Options{Endpoint: e}, nil)
		require.ErrorContains(t, err, "endpoint", e)
	}
}
