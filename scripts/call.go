package scripts

import (
	"context"
	"crypto/sha1" // names a script in Redis' protocol; nothing is secured by it
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Piper sends commands in one round trip; redis.UniversalClient is one.
type Piper interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// script is a text and the name that Redis knows it by.
type script struct{ text, sha string }

func newScript(text string) *script {
	return &script{text: text, sha: fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
}

// Call is one script call. Run fills its reply.
type Call struct {
	script *script
	keys   []string
	args   []any
	cmd    *redis.Cmd
}

// Run sends the calls in one round trip, and in order, to Redis. It returns the first
// error of the connection or of a call; each call keeps its own too. Calls that were
// refused leave those before them done: all scripts may run again.
//
// Redis runs a pipeline's commands one by one even if one is unknown, so when a script
// was missing, everything from that call on is sent again with the texts, which also
// loads them on the node that needs them: a report and the eviction after it end in
// their order.
func Run(ctx context.Context, rdb Piper, calls ...*Call) error {
	err := send(ctx, rdb, calls, func(p redis.Pipeliner, c *Call) *redis.Cmd {
		return p.EvalSha(ctx, c.script.sha, c.keys, c.args...)
	})
	if err == nil {
		return nil
	}
	for i, c := range calls {
		if c.cmd != nil && redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			return send(ctx, rdb, calls[i:], func(p redis.Pipeliner, c *Call) *redis.Cmd {
				return p.Eval(ctx, c.script.text, c.keys, c.args...)
			})
		}
		if c.cmd != nil && c.cmd.Err() != nil && !errors.Is(c.cmd.Err(), redis.Nil) {
			break
		}
	}
	return err
}

func send(ctx context.Context, rdb Piper, calls []*Call, add func(redis.Pipeliner, *Call) *redis.Cmd) error {
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range calls {
			c.cmd = add(p, c)
		}
		return nil
	})
	return err
}

// Load makes Redis know every script, on each node of a Cluster. It is an
// optimisation and a check that scripts are allowed: Run does without.
func Load(ctx context.Context, rdb redis.Scripter) error {
	for _, s := range all {
		if err := rdb.ScriptLoad(ctx, s.text).Err(); err != nil {
			return fmt.Errorf("load scripts: %w", err)
		}
	}
	return nil
}

// reply is the call's reply as an array of at least n elements.
func (c *Call) reply(n int) ([]any, error) {
	if c.cmd == nil {
		return nil, errors.New("script call was not run")
	}
	r, err := c.cmd.Slice()
	if err != nil {
		return nil, err
	}
	if len(r) < n {
		return nil, fmt.Errorf("script reply has %d elements, want %d", len(r), n)
	}
	return r, nil
}

// ints reads a reply that consists of numbers.
func (c *Call) ints(dst ...*int64) error {
	r, err := c.reply(len(dst))
	if err != nil {
		return err
	}
	for i, d := range dst {
		n, ok := r[i].(int64)
		if !ok {
			return fmt.Errorf("script reply: element %d is %T, want an integer", i, r[i])
		}
		*d = n
	}
	return nil
}
