package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/sidecar/scrape"
	"inferencecache.io/lookuptier/sidecar/writer"
)

// Sidecar follows one engine. Run runs it, once.
type Sidecar struct {
	cfg     Config
	log     *slog.Logger
	store   writer.Store
	feeds   []*feed
	scraper *scrape.Scraper
	scrapes [scrapeResults]atomic.Int64

	mu    sync.Mutex
	ranks []*rank
	// start runs a rank's writer; nil before Run.
	start func(*rank)
}

// rank is one data-parallel rank.
type rank struct {
	number atomic.Int64
	mirror *mirror.Mirror
	writer *writer.Writer
}

// New checks the configuration and makes a Sidecar.
func New(store writer.Store, cfg Config) (*Sidecar, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Sidecar{cfg: cfg, log: cfg.Logger, store: store}
	if cfg.Scrape.URL != "" {
		o := cfg.Scrape
		o.Served = cfg.Model
		var err error
		if s.scraper, err = scrape.New(o); err != nil {
			return nil, err
		}
	}
	for i, endpoint := range cfg.Endpoints {
		f := &feed{side: s, guessed: true, ranks: map[int]*rank{}}
		o := cfg.Follow
		o.Endpoint, o.Logger = endpoint, cfg.Logger
		if len(cfg.Replays) > 0 {
			o.Replay = cfg.Replays[i]
		}
		var err error
		if f.follow, err = follow.New(o, f); err != nil {
			return nil, err
		}
		f.own = s.addRank(i)
		f.ranks[i] = f.own
		s.feeds = append(s.feeds, f)
	}
	return s, nil
}

// addRank makes the rank, or finds it if another feed speaks of it too. From the second one on
// each rank's replica is named after its number.
func (s *Sidecar) addRank(n int) *rank {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.ranks {
		if r.number.Load() == int64(n) {
			s.log.Warn("two endpoints speak of one data-parallel rank", "rank", n)
			return r
		}
	}
	mo := s.cfg.Mirror
	mo.Paused = true
	mo.KeptOut = (&warner{log: s.log, rank: n, said: map[string]bool{}}).keptOut
	r := &rank{mirror: mirror.New(mo, time.Now())}
	r.number.Store(int64(n))
	wo := s.cfg.Writer
	wo.Scope, wo.Scheme, wo.Replica, wo.Logger = s.cfg.Scope, s.cfg.Scheme, s.cfg.Replica, s.log
	if len(s.ranks) > 0 || len(s.cfg.Endpoints) > 1 {
		wo.Replica = s.nameOf(n)
	}
	r.writer = writer.New(s.store, r.mirror, wo)
	s.ranks = append(s.ranks, r)
	if len(s.ranks) == 2 {
		s.ranks[0].writer.Rename(s.nameOf(int(s.ranks[0].number.Load())))
	}
	if s.start != nil {
		s.start(r)
	}
	return r
}

func (s *Sidecar) nameOf(rank int) string { return fmt.Sprintf("%s@dp%d", s.cfg.Replica, rank) }

// renumber corrects a guessed number.
func (s *Sidecar) renumber(r *rank, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.number.Store(int64(n))
	if len(s.ranks) > 1 {
		r.writer.Rename(s.nameOf(n))
	}
}

func (s *Sidecar) all() []*rank {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*rank(nil), s.ranks...)
}

// Run follows, writes and scrapes until ctx ends, and then retires the replicas, or keeps them.
// The order at the end: no more events, then no more writes, then the retirement, so that
// nothing is written after it. An error is that of the retirement.
func (s *Sidecar) Run(ctx context.Context) error {
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	var writers, sources sync.WaitGroup
	s.mu.Lock()
	s.start = func(r *rank) { writers.Go(func() { r.writer.Run(writing) }) }
	for _, r := range s.ranks {
		s.start(r)
	}
	s.mu.Unlock()
	for _, f := range s.feeds {
		sources.Go(func() { f.follow.Run(ctx) })
	}
	if s.scraper != nil {
		sources.Go(func() { s.scrape(ctx) })
	}
	<-ctx.Done()
	sources.Wait()
	stopWriting()
	writers.Wait()
	if s.cfg.Keep {
		s.log.Info("the replica is kept in the index: it serves until its lease runs out")
		return nil
	}
	return s.retire(context.WithoutCancel(ctx))
}

func (s *Sidecar) retire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ExitTimeout)
	defer cancel()
	var failed error
	for _, r := range s.all() {
		if err := r.writer.Retire(ctx); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.log.Info("retired", "replica", r.writer.Replica())
	}
	return failed
}

// ErrNotReady is wrapped by what Ready returns.
var ErrNotReady = errors.New("not ready")

// Ready tells whether every feed's engine is followed and every rank's changes reach Redis.
func (s *Sidecar) Ready() error {
	for _, f := range s.feeds {
		if f.follow.Counts().Live.Load() == 0 {
			return fmt.Errorf("%w: the engine's events do not come from %s", ErrNotReady, f.follow.Endpoint())
		}
	}
	for _, r := range s.all() {
		c := r.writer.Counts()
		if c.Away.Load() != 0 || c.Agreed.Load() == 0 {
			return fmt.Errorf("%w: Redis takes no writes for %s", ErrNotReady, r.writer.Replica())
		}
	}
	return nil
}

const (
	scrapeOK = iota
	scrapeMissing
	scrapeError
	scrapeResults
)

// scrape reports stats until ctx ends. A failure reports nothing: what was reported before
// grows old, and ranking stops to read it.
func (s *Sidecar) scrape(ctx context.Context) {
	defer s.scraper.Close()
	tick := time.NewTicker(s.cfg.StatsInterval)
	defer tick.Stop()
	said := ""
	for {
		stats, err := s.scraper.Scrape(ctx)
		if ctx.Err() != nil {
			return
		}
		result := scrapeOK
		if err != nil {
			result = scrapeError
			if errors.Is(err, scrape.ErrMissing) {
				result = scrapeMissing
			}
			if said != err.Error() {
				said = err.Error()
				s.log.Warn("no stats of the engine", "error", err)
			}
		} else {
			said = ""
		}
		s.scrapes[result].Add(1)
		for _, r := range s.all() {
			r.writer.Stats(statsOf(stats, int(r.number.Load())))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// statsOf picks a rank's stats. An engine that tells no ranks apart speaks for all of them.
func statsOf(stats map[int]*ranking.Stats, rank int) *ranking.Stats {
	if st := stats[rank]; st != nil {
		return st
	}
	if len(stats) == 1 {
		for _, only := range stats {
			return only
		}
	}
	return nil
}

// Replicas are the replica ids under which the engine is known, sorted.
func (s *Sidecar) Replicas() []string {
	var names []string
	for _, r := range s.all() {
		names = append(names, r.writer.Replica())
	}
	sort.Strings(names)
	return names
}

// Settled tells whether at least so many batches were applied and Redis has taken all that came of them.
func (s *Sidecar) Settled(batches uint64) bool {
	applied := int64(0)
	for _, f := range s.feeds {
		applied += f.follow.Counts().Batches.Load()
	}
	for _, r := range s.all() {
		if !r.writer.Settled() {
			return false
		}
	}
	return applied >= int64(batches)
}
