// Package soak runs a whole tier for minutes while everything around it breaks: a real
// Redis, lookup pods, sidecars of simulated engines, producers over gRPC, and gateways
// that keep asking. What it wants is at the top of soak_test.go.
//
// Without -soak it is a smoke test of some seconds. docs/operations.md says how to run it.
package soak
