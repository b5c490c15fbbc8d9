// Package lookupsvc answers the InferenceCache gRPC service.
//
// A call passes three layers: the handler (the method gRPC calls: accounting, fail-open),
// the command behind it (input, budget, decision, or validation and flattening), and
// the Index, the small interface that holds the data. The rules that turn what the
// Index found into an answer are not here but in package ranking.
package lookupsvc
