package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/scripts"
)

// CheckLayout agrees with Redis on the layout: the first component writes it, the
// others must find their own version and number of shards, or get ErrLayout with
// what to do about it. It renews the key's TTL; components call it at start, and
// a sweeper and writers do so again from time to time, which also writes it anew
// after a flush.
func (s *Store) CheckLayout(ctx context.Context) error {
	return agreeLayout(ctx, s.rdb, s.shards, s.dataTTL())
}

func agreeLayout(ctx context.Context, rdb redis.Scripter, shards int, ttl time.Duration) error {
	version, found, err := scripts.Layout(ctx, rdb, LayoutKey, LayoutVersion, shards, ttl)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("%w: key %s is not a hash, so another program wrote it: "+
			"delete that key, or give this component another database or server", ErrLayout, LayoutKey)
	case err != nil:
		return fmt.Errorf("reading %s: %w", LayoutKey, err)
	case version == strconv.Itoa(LayoutVersion) && found == strconv.Itoa(shards):
		return nil
	}
	if _, err := strconv.Atoi(version); err != nil {
		return fmt.Errorf("%w: key %s has no version, so another program wrote it: "+
			"delete that key, or give this component another database or server", ErrLayout, LayoutKey)
	}
	if version != strconv.Itoa(LayoutVersion) {
		return fmt.Errorf("%w: Redis holds layout version %s, this component writes version %d: "+
			"run components of one version, or give the new ones an empty database and let producers report again",
			ErrLayout, version, LayoutVersion)
	}
	return fmt.Errorf("%w: Redis holds %s shards, this component was started with %d: "+
		"start it with --shards %s; to change the number, start all components with the new one on an empty database and let producers report again",
		ErrLayout, orUnknown(found), shards, orUnknown(found))
}

func orUnknown(s string) string {
	if s == "" {
		return "an unknown number of"
	}
	return s
}
