package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Target is a lookup tier. Write and Read may be two of its pods.
type Target struct {
	// Write takes reports and events.
	Write pb.InferenceCacheClient
	// Read answers lookups and states.
	Read pb.InferenceCacheClient
	// Patience is how long a reply may differ from the one expected while a
	// change travels from Write to Read; 0 = it must be right at once. More than
	// a few seconds would let freshness drift out of the comparison's slack.
	Patience time.Duration
}

// callLimit guards against a tier that hangs; it is no part of any scenario.
const callLimit = 60 * time.Second

// Run plays the scenario to its end and lists every difference, with the number
// of its step counted from 0.
func (s *Scenario) Run(ctx context.Context, to Target) error {
	start := time.Now()
	var diffs []error
	for i := range s.Steps {
		step := &s.Steps[i]
		if err := step.run(ctx, start, to); err != nil {
			diffs = append(diffs, fmt.Errorf("step %d, %s: %w", i, step.text(), err))
		}
	}
	return errors.Join(diffs...)
}

func (s *Step) run(ctx context.Context, start time.Time, to Target) error {
	switch {
	case s.Report != nil:
		u := proto.CloneOf(s.Report)
		if s.AgeMS != nil {
			u.TimestampUs = aged(start, *s.AgeMS)
		}
		return Report(ctx, to.Write, u)
	case s.Event != nil:
		e := proto.CloneOf(s.Event)
		if s.AgeMS != nil {
			e.TimestampUs = aged(start, *s.AgeMS)
		}
		return Publish(ctx, to.Write, e)
	case s.Lookup != nil:
		return settle(ctx, to.Patience, func(ctx context.Context) error {
			got, err := to.Read.LookupRoute(ctx, s.Lookup)
			if err != nil {
				return err
			}
			return CompareLate(s.WantLookup, got, time.Since(start))
		})
	default:
		return settle(ctx, to.Patience, func(ctx context.Context) error {
			got, err := to.Read.GetCacheState(ctx, s.State)
			if err != nil {
				return err
			}
			return CompareState(s.WantState, got)
		})
	}
}

func aged(start time.Time, ms int64) int64 {
	return start.Add(-time.Duration(ms) * time.Millisecond).UnixMicro()
}

// settle tries until there is no difference or patience is over.
func settle(ctx context.Context, patience time.Duration, try func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		call, cancel := context.WithTimeout(ctx, callLimit)
		err := try(call)
		cancel()
		if err == nil || ctx.Err() != nil || !time.Now().Before(deadline) {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Report sends one update in a call of its own and wants it accepted.
func Report(ctx context.Context, c pb.InferenceCacheClient, u *pb.CacheStateUpdate) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	stream, err := c.ReportCacheState(ctx)
	if err != nil {
		return err
	}
	// A send that fails says only EOF; the reason comes with the reply.
	sendErr := stream.Send(u)
	ack, err := stream.CloseAndRecv()
	if err != nil {
		return err
	}
	if sendErr != nil {
		return sendErr
	}
	return accepted(ack)
}

// Publish sends one event and wants it accepted.
func Publish(ctx context.Context, c pb.InferenceCacheClient, e *pb.CacheEvent) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ack, err := c.PublishEvent(ctx, e)
	if err != nil {
		return err
	}
	return accepted(ack)
}

func accepted(ack *pb.Ack) error {
	if !ack.GetAccepted() || ack.GetReasonCode() != "" {
		return fmt.Errorf("ack %v, want accepted without a code", ack)
	}
	return nil
}

// text shows what a step asks, for a reader of a failed test.
func (s *Step) text() string {
	for _, m := range []proto.Message{s.Report, s.Event, s.Lookup, s.State} {
		if m.ProtoReflect().IsValid() {
			return fmt.Sprintf("%s %.300s", m.ProtoReflect().Descriptor().Name(), protojson.Format(m))
		}
	}
	return "nothing"
}
