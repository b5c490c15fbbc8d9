package sidecar_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/publisher"
	"inferencecache.io/lookuptier/sidecar/writer"
	"inferencecache.io/lookuptier/store"
)

// envSeed repeats a chaos run.
const envSeed = "LOOKUPTIER_CHAOS_SEED"

// seeded is the random numbers of a run, by a seed that is logged.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv(envSeed); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%s=%d", envSeed, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// chaos is one engine, its sidecar, and what can go wrong between them and Redis.
type chaos struct {
	t    *testing.T
	rng  *rand.Rand
	sim  *simulator
	tier *tier // looks, past every proxy
	via  *tier // writes
	conf sidecar.Config
	stop func()
	// events is the network between the engine and the sidecar.
	events *rig.Proxy
	// node is the Redis that has the model.
	node *rig.Server
}

func newChaos(t *testing.T, direct, via string, node func(x *tier) *rig.Server) *chaos {
	c := &chaos{t: t, rng: seeded(t), tier: newTier(t, direct), via: newTier(t, via)}
	c.node = node(c.tier)
	c.sim = newSimulator(t, c.rng, publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Buffer: 32, HighWater: 16})
	c.events = rig.NewProxy(t, strings.TrimPrefix(c.sim.opts.Endpoint, "tcp://"))
	c.conf = sidecar.Config{
		Scope: c.tier.scope, Replica: "r", Scheme: scheme, Endpoints: []string{"tcp://" + c.events.Addr()}, Replays: []string{c.sim.opts.Replay},
		Follow: follow.Options{Heartbeat: 300 * time.Millisecond, Probe: 300 * time.Millisecond, Queue: 8},
		Writer: writer.Options{Lease: 1500 * time.Millisecond, Timeout: 500 * time.Millisecond, BatchSize: 7},
		Logger: c.sim.losses.logger(), Keep: true,
	}
	_, c.stop = run(t, c.via, c.conf)
	return c
}

// traffic runs n prompts through the engine.
func (c *chaos) traffic(n int, send func([]byte) uint64) {
	for range n {
		if events := c.sim.request(); len(events) > 0 {
			send(c.sim.payload(events))
		}
		if c.rng.IntN(4) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

func (c *chaos) publish(p []byte) uint64 { return c.sim.pub.Publish(p) }
func (c *chaos) swallow(p []byte) uint64 { return c.sim.pub.Swallow(p) }
func (c *chaos) clear()                  { c.publish(c.sim.payload(c.sim.reset())) }

// faults are those that need no more than a Redis server.
func (c *chaos) faults() map[string]func() {
	dump := filepath.Join(c.node.Dir(), "dump.rdb")
	return map[string]func(){
		"a gap within the buffer": func() { c.traffic(5, c.swallow) },
		"a gap beyond the buffer": func() { c.traffic(200, c.swallow) },
		"a burst":                 func() { c.traffic(300, c.publish) },
		"a subscriber slower than the high-water mark": func() {
			// More than the buffers on the way and the publisher's queue can take while nobody reads.
			c.sim.padding = 400 << 10
			c.events.Pause()
			c.traffic(200, c.publish)
			c.events.Resume()
			c.sim.padding = 0
		},
		"a network that swallows the events": func() {
			c.events.Blackhole()
			c.traffic(20, c.publish)
			time.Sleep(700 * time.Millisecond)
			c.events.Resume()
		},
		"a cut connection":  func() { c.sim.pub.Disconnect() },
		"an engine restart": func() { c.sim.restart() },
		"a cleared cache":   func() { c.clear() },
		"a malformed batch": func() {
			c.sim.steps = append(c.sim.steps, step{bad: true})
			c.publish([]byte{0x92, 0x01, 0x91, 0x91, 0x07})
		},
		"Redis killed, empty": func() { c.node.Kill(); _ = os.Remove(dump); c.traffic(10, c.publish); c.node.Restart() },
		"Redis restored from an old dump": func() {
			client := redis.NewClient(c.node.Options())
			require.NoError(c.t, client.Save(c.t.Context()).Err())
			require.NoError(c.t, client.Close())
			c.traffic(20, c.publish)
			time.Sleep(100 * time.Millisecond)
			c.node.Kill()
			c.traffic(10, c.publish)
			c.node.Restart()
		},
		"Redis paused": func() {
			c.node.Pause()
			c.traffic(20, c.publish)
			time.Sleep(700 * time.Millisecond)
			c.node.Resume()
		},
		"the sidecar replaced": func() {
			c.clear() // so that the replay buffer reaches back to an empty cache
			c.traffic(5, c.publish)
			c.stop()
			c.traffic(5, c.publish)
			_, c.stop = run(c.t, c.via, c.conf)
		},
	}
}

// throw throws the faults in a random order, each in the middle of traffic. After each it waits until the index
// is what can be known of the engine's cache, and compares block by block.
func (c *chaos) throw(faults map[string]func()) {
	names := make([]string, 0, len(faults))
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	c.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		// An empty cache, so that what cannot be known is this fault's doing.
		c.clear()
		c.traffic(20, c.publish)
		require.Zero(c.t, c.sim.settles(c.tier, "before "+name))
		lost := len(c.sim.losses.sofar())
		faults[name]()
		c.traffic(10, c.publish)
		unprovable := c.sim.settles(c.tier, "after "+name)
		if after := len(c.sim.losses.sofar()); after > lost {
			c.t.Logf("%s: %d losses; the index has all that can be known: %d blocks of the engine's %d", name, after-lost, c.sim.cached-unprovable, c.sim.cached)
		} else {
			require.Zero(c.t, unprovable, name)
			c.t.Logf("%s: the index equals the engine's cache", name)
		}
	}
	c.clear()
	c.traffic(30, c.publish)
	require.Zero(c.t, c.sim.settles(c.tier, "at the end"))
}

func TestAfterAnyFaultTheIndexEqualsTheEnginesCache(t *testing.T) {
	server := rig.Standalone(t)
	proxy := rig.NewProxy(t, server.Addr())
	c := newChaos(t, server.URL()+"?dial_timeout=500ms", "redis://"+proxy.Addr()+"/0", func(*tier) *rig.Server { return server })
	faults := c.faults()
	faults["a network cut to Redis"] = func() {
		proxy.Down()
		c.traffic(25, c.publish)
		time.Sleep(300 * time.Millisecond)
		proxy.Up()
	}
	faults["a network that swallows what goes to Redis"] = func() {
		proxy.Blackhole()
		c.traffic(25, c.publish)
		time.Sleep(700 * time.Millisecond)
		proxy.Resume()
	}
	c.throw(faults)
}

// TestAfterAnyFaultTheIndexEqualsTheEnginesCacheOnAClusterToo throws the faults at the node that has the model.
func TestAfterAnyFaultTheIndexEqualsTheEnginesCacheOnAClusterToo(t *testing.T) {
	set := rig.Cluster(t, 3)
	c := newChaos(t, set.URL(), set.URL(), func(x *tier) *rig.Server { return set.Owner(store.KeysOf(x.scope, 0).Head()) })
	c.throw(c.faults())
}
