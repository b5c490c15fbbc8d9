package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// maxPage bounds one page of a pod: 1,000 models have a few megabytes of series.
const maxPage = 32 << 20

// get fetches a page; a status that is no success is no error.
func get(ctx context.Context, client *http.Client, addr, path string) (status int, body []byte, err error) {
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxPage))
	return resp.StatusCode, body, err
}

// page is what the HTTP port of a pod or a sidecar says.
type page struct {
	err     error
	ready   bool
	says    string
	metrics *Metrics
}

func readPage(ctx context.Context, client *http.Client, addr string) (p page) {
	status, body, err := get(ctx, client, addr, "/readyz")
	if err != nil {
		p.err = err
		return p
	}
	p.ready, p.says = status == http.StatusOK, strings.TrimSpace(string(body[:min(len(body), 2000)]))
	if status == http.StatusNotFound {
		p.err = fmt.Errorf("GET /readyz: status %d", status)
		return p
	}
	if status, body, err = get(ctx, client, addr, "/metrics"); err == nil && status == http.StatusOK {
		p.metrics, _ = ParseMetrics(bytes.NewReader(body)) // nil: a finding of its own
	}
	return p
}

// readPages asks all addresses at once and keeps their order.
func readPages(ctx context.Context, client *http.Client, addrs []string) []page {
	pages := make([]page, len(addrs))
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, addr := range addrs {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			pages[i] = readPage(ctx, client, addr)
		})
	}
	all.Wait()
	return pages
}

func gatherPods(ctx context.Context, client *http.Client, addrs []string) (out []PodFacts) {
	for i, p := range readPages(ctx, client, addrs) {
		out = append(out, PodFacts{Addr: addrs[i], Err: p.err, Ready: p.ready, Says: p.says, Metrics: p.metrics})
	}
	return out
}

func gatherSidecars(ctx context.Context, client *http.Client, addrs []string) (out []SidecarFacts) {
	for i, p := range readPages(ctx, client, addrs) {
		out = append(out, SidecarFacts{Addr: addrs[i], Err: p.err, Ready: p.ready, Says: p.says, Metrics: p.metrics})
	}
	return out
}
