// Package rig starts the real processes that tests run against: redis-server
// alone, under Sentinel or as a Cluster, and a TCP proxy that breaks
// connections on demand.
//
// Everything listens on loopback ports that were free a moment ago, keeps its
// files in the test's own directory, is stopped by process id when the test
// ends, and dies with the test binary when that is killed. Nothing persists
// unless an option asks for it. Tests may run in parallel.
//
// A test that needs redis-server where there is none ends in Require, which is
// the only place that decides between failing and skipping.
//
// rig imports no package of the tier, so that tests inside any of them can use it.
package rig
