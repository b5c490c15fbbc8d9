// Package conformance runs scenarios of reports, events and lookups against a
// lookup tier over gRPC and compares the replies with what the contract says.
// integration/testdata/conformance has the scenarios and their format.
package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Scenario is a sequence of calls that shares its tenant with no other scenario.
type Scenario struct {
	// Name is also the tenant.
	Name string
	Why  string
	// Policies are CachePolicy objects in JSON that must be in force.
	Policies []json.RawMessage
	// Fresh asks for an index that is empty everywhere.
	Fresh bool
	Steps []Step
}

// Step is one call; exactly one of its four requests is set.
type Step struct {
	Report *pb.CacheStateUpdate
	Event  *pb.CacheEvent
	Lookup *pb.LookupRouteRequest
	State  *pb.GetCacheStateRequest

	// AgeMS dates a report or an event that many milliseconds before the start of
	// the scenario; nil leaves its timestamp as it is.
	AgeMS *int64
	// WantLookup and WantState are the reply to Lookup and State.
	WantLookup *pb.LookupRouteResponse
	WantState  *pb.GetCacheStateResponse
}

// Load reads the scenarios of one file. Unknown fields are errors: a scenario
// that is not understood must not pass.
func Load(path string) ([]Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	var out []Scenario
	if err := strictly(data, &out); err != nil {
		return nil, fmt.Errorf("scenarios of %s: %w", path, err)
	}
	return out, nil
}

// PolicyFile is one YAML file with the policies of all scenarios.
func PolicyFile(scenarios []Scenario) []byte {
	var out bytes.Buffer
	for _, s := range scenarios {
		for _, p := range s.Policies {
			out.WriteString("---\n")
			out.Write(p) // JSON is YAML
			out.WriteString("\n")
		}
	}
	return out.Bytes()
}

// UnmarshalJSON reads the protobuf JSON inside a step.
func (s *Step) UnmarshalJSON(data []byte) error {
	var raw struct {
		AgeMS                                *int64 `json:"age_ms"`
		Report, Event, Lookup, State, Expect json.RawMessage
	}
	if err := strictly(data, &raw); err != nil {
		return err
	}
	*s = Step{AgeMS: raw.AgeMS}
	requests := 0
	read := func(text json.RawMessage, m proto.Message) error {
		requests++
		return protojson.Unmarshal(text, m)
	}
	var err error
	if raw.Report != nil && err == nil {
		s.Report = &pb.CacheStateUpdate{}
		err = read(raw.Report, s.Report)
	}
	if raw.Event != nil && err == nil {
		s.Event = &pb.CacheEvent{}
		err = read(raw.Event, s.Event)
	}
	if raw.Lookup != nil && err == nil {
		s.Lookup, s.WantLookup = &pb.LookupRouteRequest{}, &pb.LookupRouteResponse{}
		if err = read(raw.Lookup, s.Lookup); err == nil {
			err = protojson.Unmarshal(raw.Expect, s.WantLookup)
		}
	}
	if raw.State != nil && err == nil {
		s.State, s.WantState = &pb.GetCacheStateRequest{}, &pb.GetCacheStateResponse{}
		if err = read(raw.State, s.State); err == nil {
			err = protojson.Unmarshal(raw.Expect, s.WantState)
		}
	}
	switch {
	case err != nil:
		return err
	case requests != 1:
		return fmt.Errorf("a step has %d requests, want 1: %.100s", requests, data)
	case (s.Report != nil || s.Event != nil) && raw.Expect != nil:
		return fmt.Errorf("a report or event expects nothing: %.100s", data)
	}
	return nil
}

func strictly(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// Stranger is a report of a tenant of its own. It must stand in the index
// before scenarios that are not Fresh run, since an index that is empty
// everywhere diagnoses nothing.
func Stranger() *pb.CacheStateUpdate {
	return &pb.CacheStateUpdate{
		TenantId: "stranger", ModelId: "m", ReplicaId: "r", HashScheme: "vllm",
		Prefixes: []*pb.PrefixEntry{{PrefixHash: []byte("p"), TokenCount: 16}},
	}
}
