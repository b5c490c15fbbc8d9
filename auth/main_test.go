package auth

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	generous = 60 * time.Second
	interval = 5 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
