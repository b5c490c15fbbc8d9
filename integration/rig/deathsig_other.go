//go:build !linux

package rig

import "os/exec"

// dieWithParent has no counterpart outside Linux: there a killed test binary
// leaves its servers running.
func dieWithParent(*exec.Cmd) {}
