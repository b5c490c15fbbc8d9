package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// check compares the ends of the logs with where the members stand, and sets their
// clocks. Reading a log does not tell that it was emptied, or that Redis is another
// one by now, until something new is written.
func (n *node) check(ctx context.Context, conn *redis.Conn, members []*followed) error {
	wait, cancel := context.WithTimeout(ctx, hungAfter)
	defer cancel()
	sent := n.c.elapsed()
	ends := make([]*redis.StringCmd, len(members))
	var clock *redis.TimeCmd
	_, err := conn.Pipelined(wait, func(p redis.Pipeliner) error {
		clock = p.Time(wait)
		for i, m := range members {
			ends[i] = p.HGet(wait, m.keys.Head(), headLogField)
		}
		return nil
	})
	if err != nil && !isNil(err) && !isReply(err) {
		return err
	}
	got := n.c.elapsed()
	for i, m := range members {
		if now, err := clock.Result(); err == nil {
			m.setClock(now.UnixMilli(), sent, got)
		}
		end, err := ends[i].Result()
		if err != nil && !isNil(err) {
			if !isReply(err) {
				return err
			}
			n.refused(m, err)
			continue
		}
		if m.lost(end) {
			n.c.drop(m, dropLost)
		}
	}
	return nil
}

// lost tells whether a log that ends at end is another than the one followed. An end
// that was not reached yet is given time until the next look.
func (p *followed) lost(end string) bool {
	at, err := parsePosition(end)
	pos := p.memory.Position()
	switch {
	case err != nil || at.Compare(pos) < 0:
		return true
	case at == pos:
		p.ends = ""
		return false
	}
	// Not reached. The last look's end must be by now.
	if p.ends != "" {
		if old, err := parsePosition(p.ends); err == nil && pos.Compare(old) < 0 {
			return true
		}
	}
	p.ends = end
	return false
}
