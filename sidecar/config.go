package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/sidecar/scrape"
	"inferencecache.io/lookuptier/sidecar/writer"
)

// maxNameBytes is what lookup pods accept of a name.
const maxNameBytes = 512

// Config of a Sidecar. Scope, Replica, Scheme and Endpoints are required.
type Config struct {
	ranking.Scope
	// Replica is the engine's replica id. With several data-parallel ranks each gets
	// <Replica>@dp<rank>.
	Replica string
	Scheme  string
	// Endpoints publish events, one for each data-parallel rank, from rank 0 on.
	Endpoints []string
	// Replays answer replays, one for each endpoint, or none at all.
	Replays []string

	// Follow, Mirror, Writer and Scrape go to the parts; what this struct has is filled in.
	// An empty Scrape.URL turns stats off.
	Follow follow.Options
	Mirror mirror.Options
	Writer writer.Options
	Scrape scrape.Options
	// StatsInterval is the time between two scrapes; 0 = 5 s.
	StatsInterval time.Duration
	// Keep leaves the replica in the index at the end, for a new sidecar to take over, and takes
	// over what is there at the start if the engine's past cannot be read whole.
	Keep bool
	// ExitTimeout bounds the retirement at the end; 0 = 5 s.
	ExitTimeout time.Duration
	Logger      *slog.Logger
}

func (c *Config) check() error {
	var missing []string
	for _, f := range []struct{ flag, value string }{
		{"--replica-id", c.Replica}, {"--model-id", c.Model}, {"--tenant-id", c.Tenant}, {"--hash-scheme", c.Scheme},
		{"--engine-endpoint", strings.Join(c.Endpoints, "")},
	} {
		if f.value == "" {
			missing = append(missing, f.flag)
		}
		if len(f.value) > maxNameBytes && f.flag != "--engine-endpoint" {
			return fmt.Errorf("%s is %d bytes long: lookup pods accept %d", f.flag, len(f.value), maxNameBytes)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing identity: give %s", strings.Join(missing, ", "))
	}
	if c.Tenant == "inferencecache.io/probe" {
		return errors.New("--tenant-id inferencecache.io/probe is reserved: nothing reported for it is kept")
	}
	if n := len(c.Replays); n != 0 && n != len(c.Endpoints) {
		return fmt.Errorf("%d replay endpoints for %d engine endpoints: give one for each, or none", n, len(c.Endpoints))
	}
	if c.Writer.Refresh < 0 || c.StatsInterval < 0 || c.Writer.Window < 0 {
		return errors.New("a time must not be negative")
	}
	if c.StatsInterval == 0 {
		c.StatsInterval = 5 * time.Second
	}
	if c.ExitTimeout == 0 {
		c.ExitTimeout = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}
