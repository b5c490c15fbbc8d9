package rig

import (
	"testing"
	"time"
)

// Eventually calls check until it returns nil, and fails the test with its last
// error after limit. The limit guards against hanging and should be generous:
// no test may depend on how fast the machine is.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	if err := poll(limit, check); err != nil {
		t.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

func poll(limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	wait := 5 * time.Millisecond
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(wait)
		wait = min(2*wait, 100*time.Millisecond)
	}
}
