package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"inferencecache.io/lookuptier/cmd/internal/redisfiles"
	"inferencecache.io/lookuptier/doctor"
	"inferencecache.io/lookuptier/store"
)

type doctorCmd struct {
	redisFlags
	Pods          []string      `placeholder:"HOST:PORT,…" help:"HTTP addresses of lookup pods (their /readyz and /metrics)."`
	GRPC          []string      `name:"grpc" placeholder:"HOST:PORT,…" help:"gRPC addresses of lookup pods: health and a probe."`
	Sidecars      []string      `placeholder:"HOST:PORT,…" help:"HTTP addresses of engine sidecars."`
	PolicyDir     string        `placeholder:"DIR" help:"Directory of CachePolicy files, the pods' own."`
	ACLUser       string        `name:"acl-user" placeholder:"NAME" help:"Redis user of the pods, whose rights are judged; none = the one in --redis."`
	Shards        int           `placeholder:"K" help:"--shards that the components are started with, to compare with the layout."`
	SweepInterval time.Duration `default:"1m" placeholder:"DURATION" help:"--sweep-interval of the pods (${default})."`
	KeyTTL        time.Duration `name:"key-ttl" default:"24h" placeholder:"DURATION" help:"--key-ttl of the components (${default})."`
	Within        time.Duration `default:"30s" placeholder:"DURATION" help:"How long all of it may take (${default}); what is not looked at by then is said."`
	MaxPartitions int           `default:"256" placeholder:"N" help:"How many partitions of the index are looked at (${default})."`
	Samples       int           `default:"128" placeholder:"N" help:"How many random blocks of each space are looked at (${default})."`
	Strict        bool          `help:"Exit with 1 for warnings too."`
}

// Help is shown under the usage of the command.
func (doctorCmd) Help() string {
	return `Give what there is: each part is looked at by itself, and together they are compared.
Nothing is written. Exit code 0: nothing failed; 1: something did (with --strict also warnings).

  lookupctl doctor --redis redis://redis:6379 --pods lookupd-0:8080,lookupd-1:8080 --policy-dir policies/`
}

func (c *doctorCmd) Run(s *session) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if c.Redis != "" {
		rdb, err := c.dial()
		if err != nil {
			return err
		}
		defer func() { _ = rdb.Close() }()
		o.Redis, o.RedisName = rdb, store.Redacted(c.Redis)
	}
	if o.Dial, err = s.transport.options(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, c.Within)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	o.HTTP = &http.Client{Timeout: s.timeout, Transport: transport}
	report, err := doctor.Examine(ctx, *o)
	if err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", s.ctx.Err())
	}
	if s.json {
		if err := writeJSON(s.out, report); err != nil {
			return err
		}
	} else {
		writeReport(s, report)
	}
	if report.Failed > 0 || c.Strict && report.Warned > 0 {
		return errReported
	}
	return nil
}

func (c *doctorCmd) options() (*doctor.Options, error) {
	switch {
	case c.Redis == "" && len(c.Pods)+len(c.GRPC)+len(c.Sidecars) == 0 && c.PolicyDir == "":
		return nil, usagef("nothing to look at; give --redis, --pods, --grpc, --sidecars or --policy-dir, best all of them")
	case c.Redis == "" && c.Files != (redisfiles.Flags{}):
		return nil, usagef("the --redis-…-file flags have no effect without --redis")
	case c.Shards < 0 || c.Shards > 1024:
		return nil, usagef("--shards is %d; give 1 to 1024", c.Shards)
	case c.SweepInterval <= 0 || c.KeyTTL <= 0 || c.Within <= 0:
		return nil, usagef("--sweep-interval, --key-ttl and --within must be more than 0")
	case c.MaxPartitions < 1 || c.Samples < 1:
		return nil, usagef("--max-partitions and --samples must be 1 or more")
	}
	return &doctor.Options{
		Pods: c.Pods, GRPC: c.GRPC, Sidecars: c.Sidecars, PolicyDir: c.PolicyDir, ACLUser: c.ACLUser,
		Shards: c.Shards, SweepInterval: c.SweepInterval, KeyTTL: c.KeyTTL,
		Limits: doctor.Limits{Partitions: c.MaxPartitions, Samples: c.Samples},
	}, nil
}

// writeReport prints what is wrong, the worst first, then what is right in a table.
func writeReport(s *session, r *doctor.Report) {
	summary := fmt.Sprintf("%d failed, %d warned, %d ok", r.Failed, r.Warned, r.Passed)
	if r.Failed+r.Warned == 0 {
		summary = "Nothing is wrong: " + summary
	}
	fmt.Fprintln(s.out, summary)
	ok := table{header: []string{"OK", "ABOUT", "WHAT"}, flexible: 2}
	for _, f := range r.Findings {
		if f.Severity == doctor.OK {
			ok.add(f.Check, cell(f.Subject), cell(f.Text))
			continue
		}
		writeFinding(s, &f)
	}
	if len(ok.rows) > 0 {
		fmt.Fprintln(s.out)
		ok.write(s.out, s.width)
	}
}

func writeFinding(s *session, f *doctor.Finding) {
	head := strings.ToUpper(string(f.Severity)) + "  " + f.Check
	if f.Subject != "" {
		head += "  " + cell(f.Subject)
	}
	fmt.Fprintf(s.out, "\n%s\n", wrap(head, s.width))
	indented(s, "", f.Text)
	for _, e := range f.Evidence {
		indented(s, "· ", e)
	}
	indented(s, "Do: ", f.Fix)
	if f.Runbook != "" {
		indented(s, "Runbook: ", f.Runbook)
	}
}

// indented prints a paragraph four columns in.
func indented(s *session, mark, text string) {
	if text == "" {
		return
	}
	width := s.width
	if width > 0 {
		width -= 4
	}
	for line := range strings.Lines(wrap(mark+cell(text), width)) {
		fmt.Fprintln(s.out, "    "+strings.TrimRight(line, "\n"))
	}
}
