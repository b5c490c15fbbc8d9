package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

const (
	// readFor bounds a read that lookups share: it must not end with one of them, nor never.
	readFor = time.Second
	// catchUp is how long a walk waits until the memory has got to where it was read.
	catchUp = 20 * time.Millisecond
	// headLogField of Keys.Head is the id of the last log entry.
	headLogField = "l"
)

func isNil(err error) bool { return errors.Is(err, redis.Nil) }

// reading is what a shared read brought.
type reading struct {
	view View
	// filled: the memory has it, so look there again.
	filled bool
}

// readThrough reads the blocks of q from the from-th on, or the head alone, and puts
// them into memory. Lookups that want the same at the same time share one read,
// which no caller's context ends.
func (c *Cached) readThrough(ctx context.Context, p Partition, q *ranking.Query, from int, headOnly bool) (*reading, error) {
	c.count.reads.Inc()
	space, hashes := q.Space, hashesOf(q, headOnly)
	ch := c.reads.DoChan(readKey(p, c.absent.mark(p), q, from, headOnly), func() (any, error) {
		if err := c.ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %v: %w", p, errClosed)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readFor)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // the cache's end is not the caller's
		return c.read(ctx, p, space, hashes, from)
	})
	select {
	case r := <-ch:
		if r.Shared {
			c.count.shared.Inc()
		}
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*reading), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errClosed = errors.New("the cache is closed")

// hashesOf copies the chain: a read may outlive the lookup that started it, whose
// buffers are used again.
func hashesOf(q *ranking.Query, headOnly bool) [][]byte {
	if headOnly {
		return nil
	}
	n := 0
	for _, h := range q.Hashes {
		n += len(h)
	}
	all := make([]byte, 0, n)
	hashes := make([][]byte, len(q.Hashes))
	for i, h := range q.Hashes {
		at := len(all)
		all = append(all, h...)
		hashes[i] = all[at:len(all):len(all)]
	}
	return hashes
}

// readKey is equal for reads that can be shared. writes counts this pod's to the
// partition: a read that began before one of them must not answer a lookup after it.
func readKey(p Partition, writes uint64, q *ranking.Query, from int, headOnly bool) string {
	tag := p.Keys().Tag() + strconv.FormatUint(writes, 10) + " "
	if headOnly {
		return tag
	}
	d := sha256.New()
	var n [8]byte
	write := func(b []byte) {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		d.Write(n[:])
		d.Write(b)
	}
	write([]byte(q.Scheme))
	write([]byte(q.Adapter))
	for _, h := range q.Hashes {
		write(h)
	}
	binary.LittleEndian.PutUint64(n[:], uint64(from))
	d.Write(n[:])
	return tag + string(d.Sum(nil))
}

// read asks Redis and fills the memory, adopting the partition if need be.
func (c *Cached) read(ctx context.Context, p Partition, sp ranking.Space, hashes [][]byte, from int) (*reading, error) {
	mark := c.absent.mark(p)
	f := c.find(p)
	var r *chaincache.Reading
	var before chaincache.Position
	if f != nil {
		r = f.memory.Read()
		before = f.memory.Position()
	}
	sent := c.elapsed()
	var ask [][]byte
	if len(hashes) > 0 {
		ask = hashes[from:]
	}
	v, err := c.readSince(ctx, p, sp, ask, f, before)
	got := c.elapsed()
	c.count.readTime.Observe(float64(got-sent) / 1000)
	if err != nil {
		c.count.failed.Inc()
		if r != nil {
			r.End()
		}
		return nil, err
	}
	res := &reading{view: v}
	pos, err := parsePosition(v.LogID)
	if err != nil {
		c.observe.Garbage("log", fmt.Errorf("%v: %w", p, err))
	}
	if err != nil || v.LogID == "" {
		if v.LogID == "" {
			c.absent.note(p, mark, v, sent)
		}
		if r != nil {
			r.End()
			if before != (chaincache.Position{}) {
				c.drop(f, dropLost) // there was a log, and now there is none
			}
		}
		return res, nil
	}
	if f == nil {
		if f = c.adopt(p, pos); f == nil {
			return res, nil
		}
		r = f.memory.Read()
		f.setClock(v.NowMS, sent, got)
	} else {
		if !v.replica {
			f.setClock(v.NowMS, sent, got)
		}
		if pos.Compare(before) < 0 {
			// Redis knows less than it did: it failed over, or was restored.
			r.End()
			c.drop(f, dropLost)
			return res, nil
		}
	}
	defer r.End()
	w := &chaincache.Walked{Space: sp, Key: SpaceSuffix(sp), Hashes: hashes, From: from, Pos: pos, Head: f.headFor(v.Head)}
	if len(hashes) > 0 {
		w.Holds = c.decoded(p, v, ask)
	}
	res.filled = c.fill(ctx, f, r, w)
	if v.replica && !res.filled {
		// By itself it may be older than what this lookup must see.
		res.view, err = c.Read(ctx, p, sp, ask)
	}
	return res, err
}

// fill puts a walk into memory, and waits a little if it is ahead of it.
func (c *Cached) fill(ctx context.Context, f *followed, r *chaincache.Reading, w *chaincache.Walked) bool {
	err := r.Fill(w)
	if errors.Is(err, chaincache.ErrAhead) && f.heard.Load() != 0 {
		wait := time.NewTimer(catchUp)
		defer wait.Stop()
		select {
		case <-f.memory.Reached(w.Pos):
			err = r.Fill(w)
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	return err == nil
}

// decoded are the holds of the blocks that a walk of ask read, with the first that
// nobody holds. What cannot be read is held by nobody.
func (c *Cached) decoded(p Partition, v View, ask [][]byte) [][]ranking.Hold {
	holds := make([][]ranking.Hold, 0, len(v.Records)+1)
	for i, rec := range v.Records {
		h, err := DecodeHolds(nil, rec)
		if err != nil {
			c.observe.Garbage("hold", fmt.Errorf("%v block %x: %w", p, ask[i], err))
		}
		holds = append(holds, h)
	}
	if len(holds) < len(ask) {
		holds = append(holds, nil)
	}
	return holds
}
