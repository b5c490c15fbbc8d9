package main

import (
	"fmt"
	"log/slog"
	"time"

	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
)

// policySource is where the tenants' policies come from.
type policySource struct {
	watcher *policies.Watcher // nil = default policies for everyone
}

// For returns a tenant's policy; never nil.
func (p policySource) For(tenant string) *ranking.Policy {
	if p.watcher == nil {
		return (*policies.Set)(nil).For(tenant)
	}
	return p.watcher.For(tenant)
}

func (p policySource) close() {
	if p.watcher != nil {
		p.watcher.Close()
	}
}

// watchPolicies loads --policy-dir and follows it. What is wrong at the start is
// an error of the command line; later it is logged and counted, and the last good
// policies stay in force.
func watchPolicies(c *config, m *podMetrics, log *slog.Logger) (policySource, error) {
	keyTTL := time.Duration(c.KeyTTL)
	if err := checkTTL(keyTTL, (*policies.Set)(nil).MaxTTL()); err != nil {
		return policySource{}, &usageError{err} // tenants without a policy have the default's
	}
	if c.PolicyDir == "" {
		return policySource{}, nil
	}
	bad := false // the last reload failed
	w, err := policies.Watch(c.PolicyDir, policies.Options{
		KeyTTL: keyTTL,
		OnReload: func(r policies.Reload) {
			reloaded(r, bad, m, log)
			bad = r.Err != nil
		},
		OnNoticesLost: func(err error) { log.Warn("policies are found by polling", "error", err) },
	})
	if err != nil {
		return policySource{}, &usageError{fmt.Errorf("--policy-dir: %w", err)}
	}
	inForce(w.Current(), m)
	log.Info("policies loaded", "dir", c.PolicyDir, "tenants", w.Current().Len())
	return policySource{watcher: w}, nil
}

func reloaded(r policies.Reload, afterBad bool, m *podMetrics, log *slog.Logger) {
	if r.Err != nil {
		m.badReloads.Inc()
		log.Error("policies not reloaded: the last good ones stay in force", "error", r.Err)
		return
	}
	m.reloads.Inc()
	inForce(r.Set, m)
	if afterBad {
		log.Info("policies reloaded: they are good again", "tenants", r.Set.Len())
		return
	}
	log.Info("policies reloaded", "tenants", r.Set.Len())
}

func inForce(s *policies.Set, m *podMetrics) {
	m.loaded.Set(float64(s.Len()))
	m.lastReload.SetToCurrentTime()
}
