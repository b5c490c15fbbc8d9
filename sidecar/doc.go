// Package sidecar runs beside one engine and keeps the index equal to the engine's KV cache.
//
//	engine ──ZMQ──▶ follow ──batches──▶ mirror ──difference──▶ writer ──▶ Redis
//	   └──/metrics──▶ scrape ──stats──────────────────────────────┘
//
// One feed is one endpoint of the engine; one rank is one data-parallel rank, with a mirror, a
// writer and a replica id of its own.
package sidecar
