// Package bench measures the tier as a whole, each figure beside its baseline in the
// same run. docs/benchmarks.md says what came out and how to repeat it.
package bench
