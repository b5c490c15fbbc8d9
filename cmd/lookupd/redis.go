package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/cmd/internal/redisfiles"
	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/store/embedded"
)

// backend is the Redis of the pod: a client, and the server if it is embedded.
type backend struct {
	client   redis.UniversalClient
	replicas *store.Replicas  // nil = lookups read from the masters
	server   *embedded.Server // nil = somebody else's
}

func openBackend(c *config, files *redisfiles.Files, log *slog.Logger) (*backend, error) {
	b := &backend{}
	url := c.Redis
	if url == "" {
		server, err := embedded.Start(embedded.Options{Addr: c.EmbeddedBind})
		if err != nil {
			err = fmt.Errorf("--embedded-redis-bind-address: %w", err)
			if network := (*net.OpError)(nil); !errors.As(err, &network) {
				err = &usageError{err} // the address, not the machine
			}
			return nil, err
		}
		b.server, url = server, server.URL()
		log.Warn("EMBEDDED STORE: nothing in the index outlives this process, and no other pod shares it; "+
			"give --redis for a store that lasts. Sidecars can write to redis_url", "redis_url", url)
	}
	o := store.DialOptions{URL: url, ClientName: "lookupd"}
	files.Apply(&o)
	client, err := store.Dial(o)
	if err != nil {
		b.close(log)
		return nil, &usageError{fmt.Errorf("--redis: %w", err)}
	}
	b.client = client
	if c.ReadFrom == "replica" {
		if b.replicas, err = store.DialReplicas(o); err != nil {
			b.close(log)
			return nil, &usageError{fmt.Errorf("--read-from replica needs a Redis with some: give a Sentinel group or a Cluster, or leave it out: %w", err)}
		}
	}
	log.Info("index", "redis", store.Redacted(url), "embedded", b.server != nil, "shards", c.Shards, "read_from", c.ReadFrom)
	return b, nil
}

func (b *backend) close(log *slog.Logger) {
	if b.client != nil {
		if err := b.client.Close(); err != nil {
			log.Warn("closing the Redis client", "error", err)
		}
	}
	if b.replicas != nil {
		if err := b.replicas.Close(); err != nil {
			log.Warn("closing the client of the replicas", "error", err)
		}
	}
	if b.server != nil {
		if err := b.server.Close(); err != nil {
			log.Warn("closing the embedded store", "error", err)
		}
	}
}
