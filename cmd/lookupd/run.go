package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"inferencecache.io/lookuptier/cmd/internal/processlog"
	"inferencecache.io/lookuptier/cmd/internal/redislog"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // something that the pod needs was at fault
	exitUsage   = 2 // the command line was
)

// run is main without the process: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	c, code, done := parse(args, stdout, stderr)
	if done {
		return code
	}
	log := processlog.New(stderr, c.LogFormat, c.LogLevel)
	redislog.Use(log)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	p, err := start(c, log)
	if err != nil {
		return fail(stderr, err)
	}
	select {
	case sig := <-signals:
		log.Info("shutting down", "signal", sig.String(), "drain", c.Drain.String())
	case err = <-p.broken:
		log.Error("shutting down: the pod cannot go on", "error", err)
	}
	p.shutdown(signals)
	return fail(stderr, err)
}

// fail prints an error in one line and picks the exit code for it.
func fail(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(w, "lookupd: "+strings.Join(strings.Fields(err.Error()), " "))
	if isUsage(err) {
		return exitUsage
	}
	return exitFailure
}
