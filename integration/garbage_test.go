package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// TestGarbageInRedisCostsHintsAndNothingElse puts foreign and damaged values
// where the tier's own should be. Whatever they are, lookups answer, writes are
// taken or refused with UNAVAILABLE, and once the garbage is removed all is well.
func TestGarbageInRedisCostsHintsAndNothingElse(t *testing.T) {
	t.Parallel()
	s, p, hashes := onStandalone(t)
	c := s.Client()
	scope := ranking.Scope{Tenant: "tenant", Model: model}
	k := store.KeysOf(scope, 0)
	blocks := k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: scheme}))

	foreign := func(key string) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := c.Del(ctx, key).Err(); err != nil {
				return err
			}
			return c.SetBit(ctx, key, 7, 1).Err()
		}
	}
	spoiled := func(key, junk string) func(context.Context) error {
		return func(ctx context.Context) error {
			fields, err := c.HKeys(ctx, key).Result()
			if err != nil {
				return err
			}
			for _, f := range fields {
				if err := c.HSet(ctx, key, f, junk).Err(); err != nil {
					return err
				}
			}
			return c.HSet(ctx, key, "\xff\x00odd", junk).Err()
		}
	}
	for name, put := range map[string]func(context.Context) error{
		"head is a string":          foreign(k.Head()),
		"replicas is a string":      foreign(k.Replicas()),
		"serving is a string":       foreign(k.Serving()),
		"spaces is a string":        foreign(k.Spaces()),
		"blocks is a string":        foreign(blocks),
		"log is a string":           foreign(k.Log()),
		"lock is a bitmap":          foreign(k.Lock()),
		"tenants is a string":       foreign(store.CatalogTenantsKey),
		"partitions is a string":    foreign(store.CatalogPartitionsKey),
		"tenant's models, a string": foreign(store.CatalogTenantKey("tenant")),
		"truncated holds":           spoiled(blocks, "12345678901"),
		"empty holds":               spoiled(blocks, ""),
		"holds of nobody":           spoiled(blocks, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		"truncated replicas":        spoiled(k.Replicas(), "\x00"),
		"counts that are no number": spoiled(k.Serving(), "many"),
		"negative counts":           spoiled(k.Serving(), "-5"),
		"spaces that are no number": spoiled(k.Spaces(), "x"),
		"head that is no number":    spoiled(k.Head(), "not a number"),
		"junk in the catalog": func(ctx context.Context) error {
			for _, key := range []string{store.CatalogTenantsKey, store.CatalogPartitionsKey, store.CatalogTenantKey("tenant")} {
				if err := c.ZAdd(ctx, key, redis.Z{Score: 1e18, Member: "\x00\x00\xff\xffjunk"}, redis.Z{Score: 1e18, Member: ""}).Err(); err != nil {
					return err
				}
			}
			return nil
		},
		"entries of another log": func(ctx context.Context) error {
			return c.XAdd(ctx, &redis.XAddArgs{Stream: k.Log(), Values: map[string]any{"x": "y"}}).Err()
		},
		"log at the end of time": func(ctx context.Context) error {
			if err := c.Del(ctx, k.Log()).Err(); err != nil {
				return err
			}
			return c.XAdd(ctx, &redis.XAddArgs{Stream: k.Log(), ID: "18446744073709551615-18446744073709551615", Values: map[string]any{"x": "y"}}).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			require.NoError(t, report(ctx, p.Client, "tenant", "r1", hashes))
			require.NoError(t, put(ctx))

			for range 3 {
				r, err := lookup(ctx, p.Client, "tenant", hashes)
				require.NoError(t, err)
				require.NotEmpty(t, r.GetReasonCode())
				_, err = lookup(ctx, p.Client, "stranger", hashes)
				require.NoError(t, err)
			}
			taken := func(what string, err error) {
				t.Helper()
				if err != nil {
					require.Equal(t, codes.Unavailable, status.Code(err), "%s: %v", what, err)
				}
			}
			_, err := p.Client.GetCacheState(ctx, &pb.GetCacheStateRequest{TenantId: "tenant", ModelId: model})
			taken("state", err)
			taken("report", report(ctx, p.Client, "tenant", "r2", hashes[:5]))
			taken("eviction", conformance.Publish(ctx, p.Client, &pb.CacheEvent{
				Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: "tenant", ModelId: model, ReplicaId: "r2", PrefixHash: hashes[0],
			}))
			taken("clear", conformance.Publish(ctx, p.Client, &pb.CacheEvent{
				Type: pb.CacheEvent_ALL_CLEARED, TenantId: "tenant", ModelId: model, ReplicaId: "r2",
			}))
			time.Sleep(250 * time.Millisecond) // lets a sweep or two meet it; nothing is asserted about when
			require.True(t, p.Process().Running())

			require.NoError(t, c.FlushAll(ctx).Err())
			comesBack(t, p.Client, "tenant")
			swept := p.Metric("inferencecache_sweep_pass_seconds_count")
			rig.Eventually(t, settleLimit, "sweeps going on", func() error {
				if n := p.Metric("inferencecache_sweep_pass_seconds_count"); n <= swept {
					return fmt.Errorf("%v sweeps, as before", n)
				}
				return nil
			})
		})
	}
	require.NoError(t, c.FlushAll(t.Context()).Err())
	live(t, p.Client, "another")
}
