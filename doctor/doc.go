// Package doctor looks for what is wrong with a lookup tier. Gatherers ask Redis, the
// pods, the sidecars and the policy files for facts, with bounds on how much and how
// long; checks are pure functions from facts to findings, each with its evidence and
// what to do. Nothing is ever written.
//
// One file holds an area: redis, layout, partitions, producers, names, sweeper,
// policies, pods, sidecars; gather_* files fetch its facts.
package doctor
