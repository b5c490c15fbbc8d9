// Package integration has the tests that need real processes: lookupd, Redis
// alone, under Sentinel and as a Cluster.
//
//	rig          starts and breaks Redis
//	pod          starts lookupd
//	conformance  plays scenarios and compares replies
//	reference    the slow, obvious tier to compare with
package integration
