package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/store/chaincache"
)

var errNotFollowable = errors.New("store: this Redis client's log cannot be followed")

// run reads the members' logs until the cache is closed or the node retired.
func (n *node) run() {
	ctx := n.c.ctx
	var conn *redis.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	retry := retryMin
	var checked time.Time
	for ctx.Err() == nil {
		n.mu.Lock()
		retired := n.retired
		n.mu.Unlock()
		if retired {
			return
		}
		members := n.present()
		if len(members) == 0 {
			if conn != nil {
				_ = conn.Close()
				conn = nil
			}
			select {
			case <-n.wake:
			case <-ctx.Done():
			}
			continue
		}
		fresh := conn == nil
		if fresh {
			conn = n.client.EphemeralConn()
		}
		began := time.Now()
		// On a new connection nobody knows what happened meanwhile: nothing is taken for
		// heard before the ends of the logs were looked at.
		heard, err := n.read(ctx, conn, members, fresh)
		if err == nil && (fresh || time.Since(checked) >= blockFor) {
			checked = time.Now()
			err = n.check(ctx, conn, members)
		}
		if err != nil {
			_ = conn.Close()
			conn = nil
			if ctx.Err() == nil {
				n.away(members, err)
				pause(ctx, retry)
				retry = min(2*retry, retryMax)
			}
			continue
		}
		if retry = retryMin; n.out {
			n.out = false
			n.c.log.Info("the change log is followed again", "partitions", len(members))
		}
		now := n.c.elapsed()
		for _, p := range heard {
			p.heard.Store(now)
		}
		n.rest(ctx, began, len(members))
	}
}

// rest keeps the node from being asked more often than it is good for.
func (n *node) rest(ctx context.Context, began time.Time, members int) {
	least := pace
	if n.cluster && members > 1 {
		least = pollEach
	}
	least = min(least+time.Duration(members)*pacePer, maxPace)
	if left := least - time.Since(began); left > 0 {
		pause(ctx, left)
	}
}

// away takes note of an error of the node as a whole. Memory is good for a while yet.
func (n *node) away(members []*followed, err error) {
	n.c.count.lost.Inc()
	if !n.out {
		n.out = true
		n.c.log.Warn("the change log is out of reach: lookups make do with what is remembered, and soon with nothing", "partitions", len(members), "error", err)
	}
	now := n.c.elapsed()
	for _, p := range members {
		if p.heard.Load() == 0 || !p.recent(now) || n.moved(p) {
			n.c.drop(p, dropAway)
		}
	}
}

// moved tells whether another node has the partition by now.
func (n *node) moved(p *followed) bool {
	cluster, ok := n.c.rdb.(*redis.ClusterClient)
	if !ok {
		return false
	}
	cluster.ReloadState(n.c.ctx)
	ctx, cancel := context.WithTimeout(n.c.ctx, readFor)
	defer cancel()
	client, err := cluster.MasterForKey(ctx, p.keys.Log())
	return err == nil && client != n.client
}

// read takes in what is new in the members' logs and returns those whose end it has
// seen. Unless at once is set it waits for news.
func (n *node) read(ctx context.Context, conn *redis.Conn, members []*followed, atOnce bool) ([]*followed, error) {
	if n.cluster && len(members) > 1 {
		return n.readEach(ctx, conn, members)
	}
	args := &redis.XReadArgs{Count: readCount, Block: blockFor}
	if atOnce {
		args.Block = -1
	}
	ids := make([]string, 0, len(members))
	byLog := make(map[string]*followed, len(members))
	for _, p := range members {
		log := p.keys.Log()
		args.Streams = append(args.Streams, log)
		ids = append(ids, p.memory.Position().String())
		byLog[log] = p
	}
	args.Streams = append(args.Streams, ids...)
	wait, cancel := context.WithTimeout(ctx, blockFor+hungAfter)
	streams, err := conn.XRead(wait, args).Result()
	cancel()
	if err != nil && !isNil(err) {
		if isReply(err) {
			return n.readEach(ctx, conn, members) // one of them is at fault: which?
		}
		return nil, err
	}
	more := map[*followed]bool{}
	for _, s := range streams {
		if p := byLog[s.Stream]; p != nil {
			n.c.take(p, s.Messages)
			more[p] = len(s.Messages) == readCount
		}
	}
	heard := members[:0:0]
	for _, p := range members {
		if !more[p] {
			heard = append(heard, p)
		}
	}
	return heard, nil
}

// readEach asks for each log by itself, in one round trip, and does not wait for news.
func (n *node) readEach(ctx context.Context, conn *redis.Conn, members []*followed) ([]*followed, error) {
	wait, cancel := context.WithTimeout(ctx, hungAfter)
	defer cancel()
	cmds := make([]*redis.XStreamSliceCmd, len(members))
	_, err := conn.Pipelined(wait, func(p redis.Pipeliner) error {
		for i, m := range members {
			cmds[i] = p.XRead(wait, &redis.XReadArgs{
				Streams: []string{m.keys.Log(), m.memory.Position().String()}, Count: readCount, Block: -1,
			})
		}
		return nil
	})
	if err != nil && !isNil(err) && !isReply(err) {
		return nil, err
	}
	heard := members[:0:0]
	for i, m := range members {
		streams, err := cmds[i].Result()
		switch {
		case isNil(err):
			heard = append(heard, m)
		case err == nil:
			n.c.take(m, streams[0].Messages)
			if len(streams[0].Messages) < readCount {
				heard = append(heard, m)
			}
		case !isReply(err):
			return nil, err
		default:
			n.refused(m, err)
		}
	}
	return heard, nil
}

// refused deals with a log that Redis would not read.
func (n *node) refused(p *followed, err error) {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "MOVED"), strings.HasPrefix(text, "ASK"), strings.HasPrefix(text, "TRYAGAIN"):
		if cluster, ok := n.c.rdb.(*redis.ClusterClient); ok {
			cluster.ReloadState(n.c.ctx)
		}
		// Until the client knows the new node, it would only be led to the old one again.
		n.c.ban(p, movedFor, dropMoved)
	case strings.HasPrefix(text, "WRONGTYPE"):
		n.c.observe.Garbage("log", fmt.Errorf("%w: %v: key %s: %w", ErrGarbage, p.p, p.keys.Log(), err))
		n.c.ban(p, banFor, dropGarbage)
	default: // LOADING, CLUSTERDOWN, MASTERDOWN, NOPERM…: it will be there again, or not
		n.c.count.lost.Inc()
		if !p.recent(n.c.elapsed()) {
			n.c.ban(p, time.Second, dropGarbage)
		}
	}
}

// isReply tells a refusal by Redis from a connection that broke.
func isReply(err error) bool {
	var reply redis.Error
	var network net.Error
	return errors.As(err, &reply) && !errors.As(err, &network)
}

// take applies log entries that were read from where the memory stands or stood: what
// it has by now is passed over. The follower and own writes read side by side, so one
// may bring what the other has brought. Whatever does not follow drops the partition.
func (c *Cached) take(p *followed, entries []redis.XMessage) {
	p.taking.Lock()
	defer p.taking.Unlock()
	at := p.memory.Position()
	n := 0
	for i := range entries {
		pos, err := parsePosition(entries[i].ID)
		if err == nil && pos.Compare(at) <= 0 {
			continue
		}
		if err == nil {
			err = p.apply(&entries[i])
		}
		if err != nil {
			if errors.Is(err, chaincache.ErrGap) {
				c.drop(p, dropGap)
			} else {
				c.observe.Garbage("log", fmt.Errorf("%v entry %s: %w", p.p, entries[i].ID, err))
				c.drop(p, dropGarbage)
			}
			return
		}
		at = pos
		n++
	}
	if n == 0 {
		return
	}
	c.count.applied.Add(float64(n))
	lag := p.nowMS(c.elapsed()) - int64(at.MS)
	c.count.lag.Observe(float64(max(lag, 0)) / 1000)
}

func (p *followed) apply(m *redis.XMessage) error {
	blob, ok := m.Values[LogField].(string)
	if !ok {
		return fmt.Errorf("%w: no field %q", ErrGarbage, LogField)
	}
	e, err := DecodeLog([]byte(blob))
	if err != nil {
		return err
	}
	ch, err := e.change(m.ID, headOf(p.memory.Head()))
	if err != nil {
		return err
	}
	if next := headOf(ch.Head); next != nil {
		p.c.heads.put(p.keys.base, next) // so that the next walk need not bring it
	}
	return p.memory.Apply(ch)
}
