package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/store/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o embedded.Options) (*embedded.Server, redis.UniversalClient) {
	t.Helper()
	s, err := embedded.Start(o)
	require.NoError(t, err)
	c, err := store.Dial(store.DialOptions{URL: s.URL()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "Close twice")
	})
	return s, c
}

func TestAKeyReallyExpires(t *testing.T) {
	_, c := start(t, embedded.Options{Tick: 10 * time.Millisecond})
	ctx := context.Background()
	require.NoError(t, c.Set(ctx, "short", "1", 300*time.Millisecond).Err())
	require.NoError(t, c.Set(ctx, "long", "1", time.Hour).Err())
	require.NoError(t, c.Get(ctx, "short").Err())
	require.Eventually(t, func() bool { return errors.Is(c.Get(ctx, "short").Err(), redis.Nil) }, 30*time.Second, 10*time.Millisecond)
	ttl, err := c.PTTL(ctx, "long").Result()
	require.NoError(t, err)
	require.Less(t, ttl, time.Hour, "the clock moves")
	require.Greater(t, ttl, 50*time.Minute, "and not faster than real time")
}

func TestConcurrentClientsWhileTheClockRuns(t *testing.T) {
	s, _ := start(t, embedded.Options{Tick: time.Millisecond})
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, err := store.Dial(store.DialOptions{URL: s.URL()})
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			for n := range 200 {
				key := fmt.Sprintf("k%d-%d", i, n%7)
				if err := c.Set(ctx, key, n, 5*time.Millisecond).Err(); err != nil {
					t.Error(err)
				}
				err := c.Eval(ctx, `return redis.call('HINCRBY', KEYS[1], 'n', 1)`, []string{"shared"}).Err()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	_, c := start(t, embedded.Options{})
	require.Equal(t, redis.Nil, c.HGet(ctx, "shared", "n").Err(), "each server has its own keys")
}

func TestCloseEndsBlockedReaders(t *testing.T) {
	s, err := embedded.Start(embedded.Options{})
	require.NoError(t, err)
	c, err := store.Dial(store.DialOptions{URL: s.URL()})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	done := make(chan error, 1)
	go func() {
		done <- c.XRead(context.Background(), &redis.XReadArgs{Streams: []string{"s", "$"}, Block: time.Hour}).Err()
	}()
	time.Sleep(20 * time.Millisecond) // lets the reader block; the outcome is the same if it has not
	require.NoError(t, s.Close())
	require.Error(t, <-done)
}

func TestAddressesThatMakeNoSenseAreRefused(t *testing.T) {
	for addr, want := range map[string]string{
		"6379":           "write host:port",
		"0.0.0.0:0":      "not on the loopback",
		":6379":          "not on the loopback",
		"192.0.2.1:6379": "not on the loopback",
	} {
		_, err := embedded.Start(embedded.Options{Addr: addr})
		require.ErrorContains(t, err, want, addr)
	}
	s, _ := start(t, embedded.Options{})
	_, err := embedded.Start(embedded.Options{Addr: s.Addr()})
	require.ErrorContains(t, err, s.Addr(), "a taken port is named")
	open, _ := start(t, embedded.Options{Addr: "0.0.0.0:0", AllowRemote: true})
	require.NotEmpty(t, open.Addr())
}
