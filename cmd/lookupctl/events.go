package main

import (
	"context"
	"fmt"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
)

// replicaFlags name one replica of a tenant's model.
type replicaFlags struct {
	scopeFlags
	Replica string `placeholder:"ID" help:"The engine replica."`
}

func (f *replicaFlags) required() error {
	if err := f.scopeFlags.required(); err != nil {
		return err
	}
	switch {
	case f.Replica == "":
		return usagef("--replica is missing")
	case f.Tenant == reservedTenant:
		return usagef("tenant %s is reserved for probes; the tier drops what is said about it", reservedTenant)
	}
	return nil
}

func (f *replicaFlags) event(kind pb.CacheEvent_Type) *pb.CacheEvent {
	return &pb.CacheEvent{Type: kind, TenantId: f.Tenant, ModelId: f.Model, ReplicaId: f.Replica}
}

type evictCmd struct {
	replicaFlags
	Hash    string `placeholder:"HEX,…" help:"Hashes in hex, in any order; @FILE or - reads them."`
	Adapter string `placeholder:"NAME" help:"Only in this LoRA adapter's partition; none = in every one."`
}

func (c *evictCmd) Run(s *session) error {
	if err := c.required(); err != nil {
		return err
	}
	if c.Hash == "" {
		return usagef("--hash is missing; to drop everything the replica holds, use lookupctl clear")
	}
	words, err := listOf("--hash", c.Hash, s.in)
	if err != nil {
		return err
	}
	events := make([]*pb.CacheEvent, len(words))
	for i, w := range words {
		events[i] = c.event(pb.CacheEvent_PREFIX_EVICTED)
		events[i].AdapterId = c.Adapter
		if events[i].PrefixHash, err = parseHash("--hash", w); err != nil {
			return err
		}
	}
	return s.publish(events, fmt.Sprintf("%s no longer holds %s", cell(c.Replica), plural(len(events), "hash")))
}

type clearCmd struct{ replicaFlags }

func (c *clearCmd) Run(s *session) error {
	if err := c.required(); err != nil {
		return err
	}
	return s.publish([]*pb.CacheEvent{c.event(pb.CacheEvent_ALL_CLEARED)}, cell(c.Replica)+" holds nothing and has no load now, whether it was known or not; lookupctl state lists the known ones")
}

type aliveCmd struct{ replicaFlags }

func (c *aliveCmd) Run(s *session) error {
	if err := c.required(); err != nil {
		return err
	}
	return s.publish([]*pb.CacheEvent{c.event(pb.CacheEvent_REPLICA_UPDATED)}, cell(c.Replica)+" is alive, if it was known")
}

// eventReply is the JSON form of acknowledged events.
type eventReply struct {
	Accepted bool `json:"accepted"`
	Events   int  `json:"events"`
}

// publish sends the events in order. The tier acknowledges a change that was none, too.
func (s *session) publish(events []*pb.CacheEvent, done string) error {
	for _, e := range events {
		if err := droppedFor(lookupsvc.DropsOfEvent(e)); err != nil {
			return err
		}
	}
	out := eventReply{Events: len(events)}
	err := s.call(func(ctx context.Context, client pb.InferenceCacheClient) error {
		for _, e := range events {
			ack, err := client.PublishEvent(ctx, e)
			if err != nil {
				return err
			}
			out.Accepted = ack.GetAccepted()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.json {
		return writeJSON(s.out, out)
	}
	fmt.Fprintln(s.out, "accepted: "+done)
	return nil
}
