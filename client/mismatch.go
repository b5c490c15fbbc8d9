package client

import (
	"log/slog"
	"sync"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Mismatch is a name that a gateway asks with and that no producer reports under:
// mostly a setting of one of them that is wrong. Asking again does not help.
type Mismatch struct {
	// Reason is UnknownTenant, UnknownModel or UnknownHashScheme.
	Reason Reason
	Tenant string
	// Model is empty with UnknownTenant.
	Model string
	// Scheme is set with UnknownHashScheme.
	Scheme string
}

func (m Mismatch) warn(log *slog.Logger) {
	what := map[Reason]string{
		UnknownTenant:     "no producer reports for this tenant: compare tenant_id of gateway and sidecars",
		UnknownModel:      "no producer reports this model for the tenant: compare model_id of gateway and sidecars",
		UnknownHashScheme: "no producer reports this hash scheme for the model: compare hash_scheme of gateway and sidecars",
	}[m.Reason]
	log.Warn("lookup tier: "+what, "reason", string(m.Reason), "tenant", m.Tenant, "model", m.Model, "hash_scheme", m.Scheme)
}

// mostMismatches bounds the ones that are remembered, and so told.
const mostMismatches = 10_000

// mismatches tells of each one once.
type mismatches struct {
	tell func(Mismatch)

	mu   sync.Mutex
	told map[Mismatch]bool
}

func (s *mismatches) saw(r Reason, req *pb.LookupRouteRequest) {
	m := Mismatch{Reason: r, Tenant: req.GetTenantId()}
	switch r {
	case UnknownTenant:
	case UnknownModel:
		m.Model = req.GetModelId()
	case UnknownHashScheme:
		m.Model, m.Scheme = req.GetModelId(), req.GetHashScheme()
	default:
		return
	}
	if s.first(m) {
		s.tell(m)
	}
}

func (s *mismatches) first(m Mismatch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[m] || len(s.told) >= mostMismatches {
		return false
	}
	if s.told == nil {
		s.told = make(map[Mismatch]bool)
	}
	s.told[m] = true
	return true
}
