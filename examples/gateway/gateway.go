package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"inferencecache.io/lookuptier/client"
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// What a response tells about its route.
const (
	reasonHeader  = "X-Route-Reason"  // the tier's reason code
	replicaHeader = "X-Route-Replica" // the engine that answered
)

// mostBody bounds a request, bytes.
const mostBody = 32 << 20

// gateway forwards each completion to the engine that the tier points at, and to the
// next in turn without a hint.
type gateway struct {
	tier           *client.Client
	tenant, scheme string
	replicas       []string
	proxies        map[string]*httputil.ReverseProxy // by replica
	turn           atomic.Uint64
}

func newGateway(tier *client.Client, tenant, scheme string, all engines) (*gateway, error) {
	if len(all) == 0 {
		return nil, errors.New("no engine: give -engine replica=URL, or -demo 3")
	}
	g := &gateway{tier: tier, tenant: tenant, scheme: scheme, proxies: map[string]*httputil.ReverseProxy{}}
	for _, e := range all {
		target, err := url.Parse(e.url)
		if err != nil {
			return nil, fmt.Errorf("-engine %s=%s: %w", e.replica, e.url, err)
		}
		g.replicas = append(g.replicas, e.replica)
		g.proxies[e.replica] = &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			FlushInterval: -1, // tokens are passed on as they come
		}
	}
	return g, nil
}

// completion is what a route depends on; the engine gets the body as it came.
type completion struct {
	Model string `json:"model"`
	// Prompt is an array of token ids, or text, which only a tier with a tokenizer can route.
	Prompt json.RawMessage `json:"prompt"`
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var c completion
	if err := json.Unmarshal(body, &c); err != nil {
		http.Error(w, "not a completion: "+err.Error(), http.StatusBadRequest)
		return
	}
	lookup := &pb.LookupRouteRequest{TenantId: g.tenant, ModelId: c.Model, HashScheme: g.scheme}
	if json.Unmarshal(c.Prompt, &lookup.TokenIds) != nil {
		lookup.TokenIds = nil
		_ = json.Unmarshal(c.Prompt, &lookup.PromptText) // neither: the engine will say so
	}
	// It always answers, and in time; without replicas in it nobody knows the prompt.
	hint := g.tier.LookupRoute(r.Context(), lookup)
	replica := g.choose(hint)
	w.Header().Set(reasonHeader, string(hint.Reason))
	w.Header().Set(replicaHeader, replica)
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.proxies[replica].ServeHTTP(w, r)
}

// choose takes the best replica of the hint that this gateway knows.
func (g *gateway) choose(hint client.Result) string {
	for _, r := range hint.Replicas {
		if g.proxies[r.GetReplicaId()] != nil {
			return r.GetReplicaId()
		}
	}
	return g.replicas[g.turn.Add(1)%uint64(len(g.replicas))]
}
