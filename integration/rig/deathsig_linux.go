package rig

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the test binary ends,
// however it ends: a killed or panicking test leaves no server behind.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
