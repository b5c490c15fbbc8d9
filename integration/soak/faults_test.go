package soak

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fault breaks something and, after a while, mends it.
type fault struct {
	name string
	// target keeps two faults of one thing from overlapping.
	target        string
	longest       time.Duration // between breaks and mends
	breaks, mends func()
}

// saboteur draws faults, one or two at a time.
type saboteur struct {
	s      *tier
	rng    *rand.Rand
	faults []fault
	counts map[string]int
	broken []fault
}

func newSaboteur(s *tier, seed uint64) *saboteur {
	b := &saboteur{s: s, rng: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}}
	b.faults = slices.Concat(b.redisFaults(), b.networkFaults(), b.podFaults(), b.producerFaults(), b.policyFaults())
	return b
}

// round breaks one thing, or two, for a while, mends them, and leaves the tier alone for a moment.
func (b *saboteur) round(end time.Time) {
	first := b.faults[b.rng.IntN(len(b.faults))]
	b.broken = append(b.broken, first)
	if b.rng.IntN(3) == 0 {
		if second := b.faults[b.rng.IntN(len(b.faults))]; second.target != first.target {
			b.broken = append(b.broken, second)
		}
	}
	longest := time.Duration(0)
	names := []string{}
	for _, f := range b.broken {
		names = append(names, f.name)
		b.counts[f.name]++
		b.s.doing("fault: " + strings.Join(names, " and "))
		f.breaks()
		longest = max(longest, f.longest)
	}
	b.pause(longest, end)
	b.mendAll()
	b.s.doing("mended: " + strings.Join(names, " and "))
	b.pause(4*time.Second, end)
}

func (b *saboteur) mendAll() {
	for _, f := range b.broken {
		f.mends()
	}
	b.broken = nil
}

func (b *saboteur) pause(longest time.Duration, end time.Time) {
	if longest > 0 {
		time.Sleep(min(time.Duration(b.rng.Int64N(int64(longest))), max(time.Until(end), 0)))
	}
}

func (b *saboteur) done() (n int) {
	for _, c := range b.counts {
		n += c
	}
	return n
}

func (b *saboteur) summary() []string {
	out := []string{fmt.Sprintf("faults: %d", b.done())}
	for _, name := range slices.Sorted(maps.Keys(b.counts)) {
		out = append(out, fmt.Sprintf("  %-34s %d", name, b.counts[name]))
	}
	return out
}

func nothing() {}

func (b *saboteur) redisFaults() (out []fault) {
	for i, r := range b.s.redises {
		// Straight to the server, which may be out of reach: then there is nothing to do.
		command := func(args ...any) func() {
			c := r.Client()
			return func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				if err := c.Do(ctx, args...).Err(); err != nil {
					b.s.t.Logf("%v: %v", args, err)
				}
			}
		}
		target := fmt.Sprint("redis ", i)
		out = append(out,
			fault{"Redis paused", target, 9 * time.Second, r.Pause, r.Resume},
			fault{"Redis killed and started empty", target, 4 * time.Second, r.Kill, r.Restart},
			fault{"CLIENT KILL", target, 0, command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), nothing},
			fault{"FLUSHALL", target, 0, command("FLUSHALL"), nothing},
			fault{"SCRIPT FLUSH", target, 0, command("SCRIPT", "FLUSH", "SYNC"), nothing},
		)
	}
	return out
}

func (b *saboteur) networkFaults() (out []fault) {
	for _, who := range slices.Sorted(maps.Keys(b.s.proxies)) {
		p := b.s.proxies[who]
		target := "network of " + who
		out = append(out,
			fault{"connections cut, " + who, target, 0, p.Cut, nothing},
			fault{"Redis out of reach, " + who, target, 6 * time.Second, p.Down, p.Up},
			fault{"packets swallowed, " + who, target, 9 * time.Second, p.Blackhole, p.Resume},
			fault{"20 ms each way, " + who, target, 5 * time.Second, func() { p.Delay(20 * time.Millisecond) }, func() { p.Delay(0) }},
		)
	}
	return out
}

// podFaults spare pod 0, whose memory is watched from beginning to end.
func (b *saboteur) podFaults() (out []fault) {
	for i, p := range b.s.pods {
		target := fmt.Sprint("pod ", i)
		if i > 0 {
			out = append(out,
				fault{"pod stopped (SIGTERM), started", target, 3 * time.Second, func() {
					if !p.proc.Stop(30*time.Second) || p.proc.ExitCode() != 0 {
						b.s.t.Errorf("pod %d did not leave in order after SIGTERM: status %d", i, p.proc.ExitCode())
					}
				}, p.start},
				fault{"pod killed, started", target, 3 * time.Second, func() { b.s.gateways.podKilled(); p.proc.Kill() }, p.start},
			)
		}
		if i < 2 {
			out = append(out, fault{"pod paused", target, 3 * time.Second,
				func() { b.signal(p.proc.Signal(syscall.SIGSTOP)) }, func() { b.signal(p.proc.Signal(syscall.SIGCONT)) }})
		}
	}
	return out
}

func (b *saboteur) producerFaults() (out []fault) {
	for i, e := range b.s.engines {
		out = append(out,
			fault{"sidecar killed, started", fmt.Sprint("sidecar ", i), 8 * time.Second, func() { e.side.Kill() }, e.startSidecar},
			fault{"sidecar stopped, started", fmt.Sprint("sidecar ", i), 3 * time.Second, func() {
				if !e.side.Stop(30 * time.Second) {
					b.s.t.Errorf("the sidecar of %s did not leave after SIGTERM", e.replica)
				}
			}, e.startSidecar},
			fault{"engine restarted", fmt.Sprint("engine ", i), 3 * time.Second, e.kill, e.start},
		)
	}
	return out
}

func (b *saboteur) policyFaults() []fault {
	write := func(spec string) func() { return func() { writePolicy(b.s.t, b.s.policies, spec) } }
	return []fault{
		{"another policy", "policy", 4 * time.Second, write(`{evictionTTL: 10m, minimumMatchedTokens: 128, affinityRouting: Disabled}`), write(goodPolicy)},
		{"a policy that is wrong", "policy", 4 * time.Second, write(`{evictionTTL: never, minimumMatchedTokens: [}`), write(goodPolicy)},
	}
}

func (b *saboteur) signal(err error) {
	if err != nil {
		b.s.t.Errorf("a signal: %v", err)
	}
}
