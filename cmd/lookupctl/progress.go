package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plainEvery is how often progress is told to what is no terminal.
const plainEvery = 10 * time.Second

// progress tells how far a replay is: a bar on a terminal, now and then a line
// anywhere else.
type progress struct {
	out  io.Writer
	bar  *progressbar.ProgressBar // nil = lines
	told time.Time
}

func newProgress(out io.Writer, total int) *progress {
	p := &progress{out: out, told: time.Now()}
	if widthOf(out) > 0 {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription("replay"),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("requests"),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

func (p *progress) report(done, total int) {
	if p.bar != nil {
		_ = p.bar.Set(done)
		return
	}
	if now := time.Now(); now.Sub(p.told) >= plainEvery {
		p.told = now
		fmt.Fprintf(p.out, "replay: %s of %s\n", grouped(int64(done)), plural(total, "request"))
	}
}

// finish takes the bar away, also that of a replay that was broken off.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
