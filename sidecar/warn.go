package sidecar

import (
	"log/slog"

	"inferencecache.io/lookuptier/sidecar/mirror"
)

// maxWarnings bounds how many different things a warner says.
const maxWarnings = 100

// warner says once of each thing that keeps blocks out of the index; the counters say how often.
// It is called with its mirror locked.
type warner struct {
	log  *slog.Logger
	rank int
	said map[string]bool
}

func (w *warner) keptOut(r mirror.Reason, blocks int, detail string) {
	what := r.String() + ": " + detail
	if w.said[what] || len(w.said) >= maxWarnings {
		return
	}
	w.said[what] = true
	w.log.Warn("blocks are kept out of the index", "reason", r.String(), "detail", detail, "blocks", blocks, "rank", w.rank)
}
