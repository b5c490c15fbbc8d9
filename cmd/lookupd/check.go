package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/store"
)

const (
	maxShards = 1024
	// leastSweep keeps a typing error from scanning Redis without a pause.
	leastSweep = 100 * time.Millisecond
	// leastCache holds a few thousand blocks; less only costs.
	leastCache = size(1 << 20)
	// leastStaleness is somewhat more than the log is silent in peace.
	leastStaleness = span(time.Second)
)

// check returns the first thing that makes no sense, and what to write instead.
func (c *config) check() error {
	for _, f := range []func() error{c.checkAddresses, c.checkSecurity, c.checkIndex, c.checkCache, c.checkLookups, c.checkKnobs} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) checkAddresses() error {
	if err := checkAddress("grpc-bind-address", c.GRPCBindAddress); err != nil {
		return err
	}
	if err := checkAddress("http-bind-address", c.HTTPBindAddress); err != nil {
		return err
	}
	if c.MaxConnAge != 0 && c.MaxConnAge < span(time.Second) {
		return fmt.Errorf("--grpc-max-connection-age is %v: write at least 1s, such as 5m, or 0 for never", c.MaxConnAge)
	}
	if _, port, _ := net.SplitHostPort(c.GRPCBindAddress); c.GRPCBindAddress == c.HTTPBindAddress && port != "0" {
		return fmt.Errorf("--grpc-bind-address and --http-bind-address are both %s: give each a port of its own", c.GRPCBindAddress)
	}
	return nil
}

// checkAddress wants what net.Listen takes, with a port that is a number.
func checkAddress(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--%s is %q: write host:port or :port, the port a number up to 65535", flag, addr)
	}
	return nil
}

func (c *config) checkIndex() error {
	if c.Redis != "" {
		if _, err := store.ParseURL(c.Redis); err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		if c.EmbeddedBind != defaultEmbeddedBind {
			return errors.New("--embedded-redis-bind-address has no effect beside --redis: leave one of them out")
		}
	} else if err := checkAddress("embedded-redis-bind-address", c.EmbeddedBind); err != nil {
		return err
	}
	if c.Shards < 1 || c.Shards > maxShards {
		return fmt.Errorf("--shards is %d: write 1 to %d, the same for all components", c.Shards, maxShards)
	}
	if c.KeyTTL < span(time.Second) {
		return fmt.Errorf("--key-ttl is %v: write at least 1s, and more than every policy's evictionTTL", c.KeyTTL)
	}
	if c.Sweep < span(leastSweep) {
		return fmt.Errorf("--sweep-interval is %v: write at least %v, such as 1m", c.Sweep, leastSweep)
	}
	if c.Sweep >= c.KeyTTL {
		return fmt.Errorf("--sweep-interval is %v and --key-ttl %v: sweep more often than keys expire", c.Sweep, c.KeyTTL)
	}
	return nil
}

func (c *config) checkCache() error {
	if c.CacheBytes < leastCache {
		return fmt.Errorf("--cache-bytes is %v: write at least %v, or --cache off to do without", c.CacheBytes, leastCache)
	}
	if c.MaxStaleness < leastStaleness {
		return fmt.Errorf("--max-staleness is %v: write at least %v, or --cache off to ask Redis for everything", c.MaxStaleness, leastStaleness)
	}
	return nil
}

func (c *config) checkLookups() error {
	if c.LookupTimeout <= 0 {
		return errors.New("--lookup-timeout is 0s: write more, such as 100ms; no lookup may wait for ever")
	}
	if c.EngineBlockSize < 1 || c.EngineBlockSize > lookupsvc.MaxTokenIDs {
		return fmt.Errorf("--engine-block-size is %d: write the engines' own, 1 to %d", c.EngineBlockSize, lookupsvc.MaxTokenIDs)
	}
	if c.PolicyDir != "" {
		switch info, err := os.Stat(c.PolicyDir); {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("--policy-dir %s does not exist: create it, or leave the flag out for default policies", c.PolicyDir)
		case err != nil:
			return fmt.Errorf("--policy-dir: %w: let this process read it, or leave the flag out for default policies", err)
		case !info.IsDir():
			return fmt.Errorf("--policy-dir %s is no directory: give the one that the policy files are in", c.PolicyDir)
		}
	}
	return nil
}

func (c *config) checkKnobs() error {
	for _, f := range []struct {
		flag  string
		value float32
		most  float64
	}{
		{"pressure-weight", c.PressureWeight, math.MaxFloat32},
		{"slo-tight-bias", c.SLOTightBias, math.MaxFloat32},
		{"tenant-hot-min-hit-rate", c.HotMinHitRate, 1},
	} {
		// Written so that NaN fails too.
		if v := float64(f.value); !(v >= 0 && v <= f.most) {
			limit := "a number of 0 or more"
			if f.most == 1 {
				limit = "a number from 0 to 1"
			}
			return fmt.Errorf("--%s is %v: write %s", f.flag, f.value, limit)
		}
	}
	if c.SLOTightTTFT < 0 {
		return fmt.Errorf("--slo-tight-ttft-ms is %d: write milliseconds, 0 = off", c.SLOTightTTFT)
	}
	return nil
}

// checkTTL holds the index's TTL against the default policy's: what Redis forgets
// earlier is never swept, so it is never counted as gone.
func checkTTL(keyTTL, longest time.Duration) error {
	if keyTTL <= longest {
		return fmt.Errorf("--key-ttl is %v, but the default evictionTTL is %v: write a longer --key-ttl, such as %v", keyTTL, longest, 2*longest)
	}
	return nil
}
