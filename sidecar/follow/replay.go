package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/zmtp"
)

// endOfReplay is the number of the message that ends a replay.
const endOfReplay = 1<<64 - 1

const (
	wholeWaitMin = time.Second
	wholeWaitMax = 5 * time.Minute
)

// errTooMuch ends a replay that would not fit into memory.
var errTooMuch = errors.New("the replay is larger than it may be")

// ask runs one replay from a number on and calls each for every batch in it, in order. It
// returns nil when the engine said that it was all.
func (f *Follower) ask(ctx context.Context, from uint64, each func(seq uint64, payload []byte) error) error {
	f.counts.Replays.Add(1)
	err := f.dialogue(ctx, from, each)
	if err != nil {
		f.counts.ReplayFailures.Add(1)
	}
	return err
}

func (f *Follower) dialogue(ctx context.Context, from uint64, each func(seq uint64, payload []byte) error) error {
	dialing, cancel := context.WithTimeout(ctx, f.opts.Silence)
	defer cancel()
	c, err := zmtp.Dial(dialing, f.opts.Replay, zmtp.Config{Socket: zmtp.DEALER, Heartbeat: -1})
	if err != nil {
		return fmt.Errorf("replay socket %s: %w", f.opts.Replay, err)
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	silent := time.AfterFunc(f.opts.Silence, func() { _ = c.Close() })
	defer silent.Stop()
	if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return fmt.Errorf("ask for a replay from %d: %w", from, err)
	}
	for {
		frames, err := c.Recv()
		if err != nil {
			return fmt.Errorf("replay from %d: %w", from, err)
		}
		silent.Reset(f.opts.Silence)
		// An empty delimiter, perhaps the topic, the number, the payload.
		n := len(frames)
		if n < 2 || len(frames[n-2]) != 8 {
			return fmt.Errorf("replay from %d: %w: a reply of %d frames", from, zmtp.ErrProtocol, n)
		}
		seq := binary.BigEndian.Uint64(frames[n-2])
		if seq == endOfReplay {
			return nil
		}
		if seq < from {
			continue
		}
		if err := each(seq, frames[n-1]); err != nil {
			return err
		}
		silent.Reset(f.opts.Silence) // applying it took time too
	}
}

// errStop ends a replay whose rest is not wanted.
var errStop = errors.New("enough")

// fetch brings everything from next on, if there is a replay socket. On an unproved connection it
// begins one earlier: only the engine that sent the last batch can send it again.
func (f *Follower) fetch(ctx context.Context) error {
	if f.opts.Replay == "" {
		return nil
	}
	from := f.next
	anchored := f.unproved && f.last.known && f.next > 0
	if anchored {
		from--
	}
	first, another := true, false
	err := f.ask(ctx, from, func(seq uint64, payload []byte) error {
		if first && anchored {
			first = false
			if !f.same(seq == from, payload) {
				another = true
				return errStop
			}
			f.proved()
		}
		first = false
		if seq >= f.next {
			f.replayOne(seq, payload)
		}
		return nil
	})
	switch {
	case another:
		f.restart(ctx, "its replay buffer holds another past")
	case err != nil:
		return err
	case anchored && first:
		f.restart(ctx, "its replay buffer does not hold the last batch")
	}
	return nil
}

// same tells whether the first batch of an anchored replay can be of the engine known: it is
// the last one again, or the buffer begins later, and then its time has to go on. (If that
// deceives, no harm is done: what came before is lost and in doubt either way.)
func (f *Follower) same(anchor bool, payload []byte) bool {
	if anchor {
		return xxh3.Hash(payload) == f.last.sum
	}
	b, err := f.decode(payload)
	return err != nil || !f.turnedBack(b)
}

// replayOne applies one batch of a replay, not below next.
func (f *Follower) replayOne(seq uint64, payload []byte) {
	f.counts.ReplayedBatches.Add(1)
	if seq > f.next {
		f.lose(seq)
	}
	if b, err := f.decode(payload); err != nil {
		f.refuse(seq, err)
		f.lose(seq + 1)
	} else {
		f.apply(seq, payload, b)
	}
	f.replayed = f.next
}

// probe asks whether something was missed while the stream is silent.
func (f *Follower) probe(ctx context.Context) {
	if err := f.fetch(ctx); err != nil {
		f.log.Debug("probe failed", "error", err)
	}
	f.setLive(f.up && !f.unproved)
}

// malformed: the copy in the replay buffer may be better. If it is not, what the batch
// said is lost.
func (f *Follower) malformed(ctx context.Context, m *message, err error) {
	f.refuse(m.seq, err)
	if err := f.fetch(ctx); err != nil {
		f.log.Warn("replay failed", "error", err)
	}
	if f.next <= m.seq {
		f.lose(m.seq + 1)
	}
}

func (f *Follower) refuse(seq uint64, err error) {
	if errors.Is(err, events.ErrTooLarge) {
		f.counts.TooLarge.Add(1)
	} else {
		f.counts.Malformed.Add(1)
	}
	f.log.Warn("a batch was dropped", "sequence", seq, "error", err)
}

// replayAll applies the whole buffer again for the sake of blocks whose parents are
// unknown. It is collected first: half of an old story, applied over the present, would
// bring back what is gone. What did not help once can hardly help again soon, so the
// pauses grow.
func (f *Follower) replayAll(ctx context.Context, orphans int) {
	now := time.Now()
	if f.opts.Replay == "" || now.Before(f.whole.after) {
		return
	}
	f.whole.wait = min(max(2*f.whole.wait, wholeWaitMin), wholeWaitMax)
	f.whole.after = now.Add(f.whole.wait)
	f.log.Info("blocks continue unknown ones: asking for a replay of everything", "blocks", orphans)
	var seqs []uint64
	var payloads [][]byte
	size := 0
	err := f.ask(ctx, 0, func(seq uint64, payload []byte) error {
		if size += len(payload); size > f.opts.ReplayBytes {
			return errTooMuch
		}
		if n := len(seqs); n > 0 && seq != seqs[n-1]+1 {
			return fmt.Errorf("%w: batch %d after %d", zmtp.ErrProtocol, seq, seqs[n-1])
		}
		seqs, payloads = append(seqs, seq), append(payloads, payload)
		return nil
	})
	if n := len(seqs); err != nil || n == 0 || seqs[n-1]+1 < f.next {
		f.log.Warn("the replay did not help", "error", err, "batches", n, "expected", f.next)
		return
	}
	f.sink.Replaying(true)
	defer f.sink.Replaying(false)
	for i, seq := range seqs {
		if seq >= f.next {
			f.replayOne(seq, payloads[i])
			continue
		}
		f.counts.ReplayedBatches.Add(1)
		if b, err := f.decode(payloads[i]); err == nil {
			f.sink.Apply(b)
		}
	}
}
