package doctor

import (
	"fmt"
	"slices"
)

// Severity is how bad a finding is.
type Severity string

const (
	// OK: looked at, and nothing is wrong.
	OK Severity = "ok"
	// Warn: it works, but not as well as it should, or not for long.
	Warn Severity = "warn"
	// Fail: hints are wrong or missing, or the tier refuses to work.
	Fail Severity = "fail"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Check is area.name, stable for programs.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Subject is what it is about: a node, a partition, a pod; "" = the tier.
	Subject string `json:"subject"`
	// Text says what is wrong, or what is right.
	Text     string   `json:"text"`
	Evidence []string `json:"evidence"`
	// Fix says what to do; "" if ok.
	Fix string `json:"fix"`
	// Runbook is the page of this repository that goes on from here; "" = none.
	Runbook string `json:"runbook"`
}

// Report is what an examination came to.
type Report struct {
	// Findings, the worst first; within a severity in the order of the areas.
	Findings []Finding `json:"findings"`
	Failed   int       `json:"fail"`
	Warned   int       `json:"warn"`
	Passed   int       `json:"ok"`
}

// evidenceShown bounds the evidence of one finding: a fleet can have a problem each.
const evidenceShown = 8

// findings gathers what the checks of one examination say.
type findings []Finding

func (f *findings) ok(check, subject, format string, args ...any) {
	*f = append(*f, Finding{Check: check, Severity: OK, Subject: subject, Text: fmt.Sprintf(format, args...), Evidence: []string{}})
}

func (f *findings) add(severity Severity, check, subject, text, fix string, evidence ...string) {
	if extra := len(evidence) - evidenceShown; extra > 0 {
		evidence = append(slices.Clone(evidence[:evidenceShown]), fmt.Sprintf("and %d more", extra))
	}
	if evidence == nil {
		evidence = []string{}
	}
	*f = append(*f, Finding{Check: check, Severity: severity, Subject: subject, Text: text, Fix: fix, Evidence: evidence, Runbook: runbookOf(check)})
}

func (f *findings) report() *Report {
	r := &Report{Findings: *f}
	order := []Severity{Fail, Warn, OK}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	for _, one := range r.Findings {
		switch one.Severity {
		case Fail:
			r.Failed++
		case Warn:
			r.Warned++
		case OK:
			r.Passed++
		}
	}
	return r
}
