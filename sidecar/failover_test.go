package sidecar_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/publisher"
	"inferencecache.io/lookuptier/sidecar/writer"
)

func TestASentinelFailoverInTheMiddleOfTraffic(t *testing.T) {
	set := rig.Sentinel(t)
	x := newTier(t, set.URL())
	s := newSimulator(t, rand.New(rand.NewPCG(11, 1)), publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"})
	side, _ := run(t, x, sidecar.Config{Scope: x.scope, Replica: "r", Scheme: scheme, Endpoints: []string{s.opts.Endpoint}, Replays: []string{s.opts.Replay},
		Writer: writer.Options{Lease: 3 * time.Second, Timeout: time.Second}, Logger: quiet})
	ready(t, side)
	traffic := func() {
		for range 60 {
			if events := s.request(); len(events) > 0 {
				s.pub.Publish(s.payload(events))
			}
		}
	}
	traffic()
	s.settles(x, "before the failover")
	traffic() // some of it is lost with the master, perhaps
	set.Failover()
	traffic()
	s.settles(x, "after the failover")
}

func TestACutNetworkToTheEngineCostsItsHintsAndNothingElse(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	s := newSimulator(t, rand.New(rand.NewPCG(12, 1)), publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"})
	events := rig.NewProxy(t, strings.TrimPrefix(s.opts.Endpoint, "tcp://"))
	replay := rig.NewProxy(t, strings.TrimPrefix(s.opts.Replay, "tcp://"))
	side, _ := run(t, x, sidecar.Config{Scope: x.scope, Replica: "r", Scheme: scheme, Endpoints: []string{"tcp://" + events.Addr()}, Replays: []string{"tcp://" + replay.Addr()},
		Follow: follow.Options{Heartbeat: 300 * time.Millisecond, Silence: time.Second},
		Writer: writer.Options{Lease: time.Second}, Logger: quiet})
	ready(t, side)
	traffic := func() {
		for range 60 {
			if events := s.request(); len(events) > 0 {
				s.pub.Publish(s.payload(events))
			}
		}
	}
	traffic()
	s.settles(x, "before the cut")
	events.Blackhole() // nothing is closed: bytes vanish
	replay.Blackhole()
	traffic()
	first := s.all[0]
	x.eventually("", first.tokens, 4, "") // its lease ran out
	events.Resume()
	replay.Resume()
	events.Cut()
	replay.Cut()
	s.settles(x, "after the cut")
}
