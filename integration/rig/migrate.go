package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// MoveSlot moves the slot of key, with all keys in it, from its owner to another master,
// as redis-cli --cluster reshard does, and returns the new owner. In between, the old
// owner answers for what it still has and sends callers on (ASK) for the rest.
func (s *ClusterSet) MoveSlot(key string) *Server {
	s.t.Helper()
	from := s.Owner(key)
	to := s.Nodes[0]
	if to == from {
		to = s.Nodes[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.moveSlot(ctx, key, from, to); err != nil {
		s.t.Fatalf("moving the slot of %q: %v", key, err)
	}
	if now := s.Owner(key); now != to {
		s.t.Fatalf("the slot of %q is at %s, not at %s", key, now.Addr(), to.Addr())
	}
	return to
}

func (s *ClusterSet) moveSlot(ctx context.Context, key string, from, to *Server) error {
	source, target := from.Client(), to.Client()
	slot, err := source.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return err
	}
	ids := map[*Server]string{}
	for _, n := range []*Server{from, to} {
		if ids[n], err = n.Client().Do(ctx, "CLUSTER", "MYID").Text(); err != nil {
			return err
		}
	}
	if err := target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from]).Err(); err != nil {
		return fmt.Errorf("importing: %w", err)
	}
	if err := source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to]).Err(); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := migrate(ctx, source, to, keys); err != nil {
			return err
		}
	}
	// The target first, so that the slot is never nobody's; then everybody else.
	for _, n := range append([]*Server{to, from}, s.Nodes...) {
		if err := n.Client().Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", ids[to]).Err(); err != nil {
			return fmt.Errorf("assigning: %w", err)
		}
	}
	return nil
}

func migrate(ctx context.Context, source *redis.Client, to *Server, keys []string) error {
	args := []any{"MIGRATE", "127.0.0.1", to.Port(), "", 0, 5000, "KEYS"}
	for _, k := range keys {
		args = append(args, k)
	}
	return source.Do(ctx, args...).Err()
}
