// Package tracing records lookups as OpenTelemetry spans and sends them to an OTLP
// collector. It hangs on three seams that know nothing of OpenTelemetry: the Tracer of
// lookupsvc, which hears of a lookup's stages; the Index interface, which it decorates;
// and the Tracer of the store, which hears of walks. A pod without a collector has none
// of the three and pays for nothing.
package tracing
