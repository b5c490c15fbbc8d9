package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"inferencecache.io/lookuptier/scripts"
)

// CheckLayout agrees with Redis on the layout: the first component writes it, the
// others must find their own version and number of shards, or get ErrLayout with
// what to do about it. It renews the key's TTL. Components call it at start; a
// sweeper and the writers do so again from time to time, which also writes it anew
// after a flush.
func (s *Store) CheckLayout(ctx context.Context) error {
	call := scripts.Layout(LayoutKey, LayoutVersion, s.shards, s.dataTTL())
	err := scripts.Run(ctx, s.rdb, call)
	version, shards, replyErr := call.LaidOut()
	switch {
	case err == nil && replyErr == nil:
		return sameLayout(version, shards, s.shards)
	case err == nil:
		return fmt.Errorf("reading %s: %w", LayoutKey, replyErr)
	case strings.Contains(err.Error(), "WRONGTYPE"):
		return foreignLayout("is no hash")
	}
	return fmt.Errorf("reading %s: %w", LayoutKey, err)
}

func sameLayout(version, shards string, want int) error {
	if version == strconv.Itoa(LayoutVersion) && shards == strconv.Itoa(want) {
		return nil
	}
	_, err := strconv.Atoi(version)
	n, shardsErr := strconv.Atoi(shards)
	switch {
	case err != nil:
		return foreignLayout("has no version")
	case version != strconv.Itoa(LayoutVersion):
		return fmt.Errorf("%w: Redis holds version %s, this component writes version %d: run components of one version, "+
			"or give the new ones an empty database and let producers report again", ErrLayout, version, LayoutVersion)
	case shardsErr != nil || n < 1:
		return foreignLayout("has no number of shards")
	}
	return fmt.Errorf("%w: Redis is laid out for --shards %d, this component was started with --shards %d: start it with --shards %d; "+
		"to change the number, start all components with the new one on an empty database and let producers report again",
		ErrLayout, n, want, n)
}

func foreignLayout(what string) error {
	return fmt.Errorf("%w: key %s %s, so another program wrote it: delete that key, or give this component another database or server",
		ErrLayout, LayoutKey, what)
}
