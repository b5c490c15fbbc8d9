package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"inferencecache.io/lookuptier/cmd/internal/flagvalues"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the tier or the input was at fault
	exitUsage   = 2 // the command line was
)

// defaultServer is a pod on this machine.
const defaultServer = "127.0.0.1:9090"

type cli struct {
	Server  string           `placeholder:"HOST:PORT" help:"gRPC address of a lookup pod (${server})."`
	Timeout time.Duration    `default:"5s" help:"How long one call may take."`
	Output  string           `short:"o" enum:"table,json" default:"table" help:"table for people, json for programs."`
	Version kong.VersionFlag `env:"-" help:"Print the version."`
	transportFlags

	Lookup lookupCmd `cmd:"" help:"Ask where a prompt should go, as a gateway does."`
	State  stateCmd  `cmd:"" help:"Show what the index knows about a tenant's model."`
	Report reportCmd `cmd:"" help:"Tell the index what one replica holds, and its load."`
	Evict  evictCmd  `cmd:"" help:"Tell the index that a replica no longer holds some hashes."`
	Clear  clearCmd  `cmd:"" help:"Tell the index that a replica holds nothing any more."`
	Alive  aliveCmd  `cmd:"" help:"Tell the index that a replica is alive."`

	Explain explainCmd `cmd:"" help:"Show how a lookup is decided, step by step, from Redis itself."`
	Doctor  doctorCmd  `cmd:"" help:"Look for what is wrong with a tier, and say what to do."`

	Replay   replayCmd   `cmd:"" help:"Play a request trace against the tier with simulated engines."`
	GenTrace genTraceCmd `cmd:"" help:"Write a synthetic trace to standard output."`
	ACL      aclCmd      `cmd:"" name:"acl" help:"Print the users that components need in Redis' ACL."`
	Policy   policyCmd   `cmd:"" help:"Work with CachePolicy files."`
	Scripts  scriptsCmd  `cmd:"" help:"Write the Lua scripts as sidecars in other languages need them."`
}

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// session is what a command runs with.
type session struct {
	streams
	ctx    context.Context
	server string
	// named: the command line says which pod; otherwise server is the usual one.
	named     bool
	transport *transportFlags
	timeout   time.Duration
	json      bool
	// width of the terminal that out is, in columns; 0 = out is no terminal.
	width int
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// errReported ends a command with exit code 1 that has printed what is wrong itself.
var errReported = errors.New("already reported")

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	var c cli
	exited := false // by --help or --version, which have printed all there is to say
	parser, err := kong.New(&c,
		kong.Name("lookupctl"),
		kong.Description("Look at a lookup tier, change what it knows, replay traffic against it.\n\n"+
			"Each flag can be set by an environment variable, LOOKUPCTL_ and its name: LOOKUPCTL_SERVER=pod:9090."),
		kong.DefaultEnvars("LOOKUPCTL"),
		flagvalues.Options(),
		kong.Vars{"version": version, "server": defaultServer},
		kong.Writers(s.out, s.err),
		kong.Exit(func(int) { exited = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		return fail(s.err, err)
	}
	parsed, err := parser.Parse(args)
	if exited {
		return exitOK
	}
	if err != nil {
		return fail(s.err, &usageError{text: err.Error() + "; see lookupctl " + commandOf(err) + "--help"})
	}
	if c.Timeout <= 0 {
		return fail(s.err, usagef("--timeout is %v; give more than 0, such as 5s", c.Timeout))
	}
	return fail(s.err, parsed.Run(&session{
		streams:   s,
		ctx:       ctx,
		server:    cmp.Or(c.Server, defaultServer),
		named:     c.Server != "",
		transport: &c.transportFlags,
		timeout:   c.Timeout,
		json:      c.Output == "json",
		width:     widthOf(s.out),
	}))
}

// commandOf names the command that a parse error is about, with a space after it.
func commandOf(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Command() != "" {
		words := strings.Fields(parse.Context.Command())
		for i, w := range words {
			if strings.HasPrefix(w, "<") { // a positional argument
				words = words[:i]
				break
			}
		}
		if len(words) > 0 {
			return strings.Join(words, " ") + " "
		}
	}
	return ""
}

// fail prints an error in one line and picks the exit code for it.
func fail(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(w, "lookupctl: "+strings.Join(strings.Fields(printable(err.Error())), " "))
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}
