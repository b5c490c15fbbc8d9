package integration_test

import (
	"os"
	"testing"

	"inferencecache.io/lookuptier/integration/pod"
)

func TestMain(m *testing.M) { os.Exit(pod.Main(m)) }
