// Package store keeps the index in Redis: every key, record and log entry is
// built and read here, and every change goes through one script of package
// scripts, so that a partition never shows half of a change.
//
// A Store is what a lookup pod and a sidecar share. It holds no state that it
// cannot lose: parsed heads are cached by their id, and nothing else.
package store
