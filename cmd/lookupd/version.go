package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// revision is the commit that the binary was built from, "" if it does not know.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func versionLine() string {
	return fmt.Sprintf("lookupd %s (%s, %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
