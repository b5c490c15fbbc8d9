package tracing

import "go.opentelemetry.io/otel/attribute"

// All names of spans and attributes are in this file; docs/tracing.md lists them for
// who reads traces, and a test holds the page to this file.
//
// No name, number or text of a prompt is ever recorded: no prompt text, token ids,
// hashes, nor what they are made of.

// Spans. The span of a call is named after it, service/method, as OpenTelemetry's
// conventions for RPC have it; these are its parts.
const (
	// SpanInput is the way from the request to blocks: policy, limits, fingerprints.
	SpanInput = "lookup.input"
	// SpanCache is the question to the pod's memory, reads of Redis by it included.
	SpanCache = "lookup.cache"
	// SpanWalk is one walk of one shard in Redis. Lookups that want the same at the
	// same time share a walk; it stands in the trace of the one that started it.
	SpanWalk = "redis.walk"
	// SpanRank is the way from what was found to the reply.
	SpanRank = "lookup.rank"
)

// Attributes of a LookupRoute call.
const (
	// AttrModel is the request's model_id, cut to 128 bytes.
	AttrModel = attribute.Key("inferencecache.model")
	// AttrPolicy is whose CachePolicy applied: the namespace, or "default".
	AttrPolicy = attribute.Key("inferencecache.policy")
	// AttrReason is the reply's reason code.
	AttrReason = attribute.Key("inferencecache.reason_code")
	// AttrReplicas is how many replicas the reply names.
	AttrReplicas = attribute.Key("inferencecache.replicas")
	// AttrMatched is matched_tokens of the first of them; 0 without one.
	AttrMatched = attribute.Key("inferencecache.matched_tokens")
)

// Attributes of a LookupRoute call and of SpanCache: what the index found. A lookup
// that was answered before the index was asked has none.
const (
	// AttrAsked is how many blocks the request has.
	AttrAsked = attribute.Key("inferencecache.blocks.asked")
	// AttrCached is how many of them the pod's memory answered for.
	AttrCached = attribute.Key("inferencecache.blocks.cached")
	// AttrWalked is how many of them were read in Redis.
	AttrWalked = attribute.Key("inferencecache.blocks.walked")
	// AttrDegraded is true if the answer is from memory because Redis is away.
	AttrDegraded = attribute.Key("inferencecache.degraded")
	// AttrPartial is true if memory or the shards that answered did not cover the query.
	AttrPartial = attribute.Key("inferencecache.partial")
)

// Attributes of SpanInput.
const (
	// AttrInput is what named the prompt: the input label of lookup_input_total.
	AttrInput = attribute.Key("inferencecache.input")
	// AttrRejected is why the input was not taken: the reason label of
	// lookup_rejected_total. Missing if it was.
	AttrRejected = attribute.Key("inferencecache.rejected")
)

// Attributes of SpanWalk, beside AttrAsked: how many blocks it was to read at most.
const (
	// AttrShard is the shard, from 0 up.
	AttrShard = attribute.Key("inferencecache.shard")
	// AttrHeld is how many leading blocks of them somebody held.
	AttrHeld = attribute.Key("inferencecache.blocks.held")
)

// Attributes of SpanRank.
const (
	// AttrServing is the size of the serving set.
	AttrServing = attribute.Key("inferencecache.serving")
)

// Attributes of every call, from OpenTelemetry's conventions.
const (
	attrSystem  = attribute.Key("rpc.system")
	attrService = attribute.Key("rpc.service")
	attrMethod  = attribute.Key("rpc.method")
	attrStatus  = attribute.Key("rpc.grpc.status_code")
)
