package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Process is one child process. Its output goes to a file, and the tail of
// that file to the test's log if the test fails.
type Process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed once the process is gone and reaped
	exitErr error         // valid after done
}

// Start runs a program until the test ends. env is added to the test's own
// environment. Output of both kinds is appended to logPath.
func Start(t testing.TB, name, logPath, path string, args, env []string) (*Process, error) {
	t.Helper()
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)

	p := &Process{name: name, logPath: logPath, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.watch(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	t.Cleanup(func() { p.Kill() })
	return p, nil
}

// watch owns the child from start to reaping, on a thread of its own: the
// kernel delivers the parent-death signal when the *thread* that forked ends,
// so that thread must outlive the child. It is never unlocked; Go ends it with
// the goroutine.
func (p *Process) watch(started chan<- error) {
	runtime.LockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.exitErr = p.cmd.Wait()
	close(p.done)
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet; a paused one runs.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode is the exit status once Done is closed: -1 if a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends sig; a process that has ended is no error.
func (p *Process) Signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill sends SIGKILL and waits until the process is reaped. It may be called again.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // the wait below is what counts
	<-p.done
}

// Stop sends SIGTERM, waits up to limit and then kills. It tells whether the
// process went by itself.
func (p *Process) Stop(limit time.Duration) bool {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		p.Kill()
		return false
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		p.Kill()
		return false
	}
}

// Output is what the process has written so far.
func (p *Process) Output() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Sprintf("(no output: %v)", err)
	}
	return string(b)
}

// LogOnFailure makes a failed test show the end of a process's output.
func LogOnFailure(t testing.TB, name, path string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("--- last output of %s ---\n%s", name, tail(path, 8<<10))
	})
}

func tail(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(no output: %v)", err)
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		if _, err := f.Seek(max(0, size-limit), io.SeekStart); err != nil {
			return fmt.Sprintf("(no output: %v)", err)
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return fmt.Sprintf("(no output: %v)", err)
	}
	return string(b)
}
