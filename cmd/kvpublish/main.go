// Command kvpublish publishes a file of events over ZeroMQ as an engine would, with a replay
// socket: for tests, and for trying a sidecar without a GPU.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"inferencecache.io/lookuptier/sidecar/publisher"
)

// config is the command line.
type config struct {
	File        string        `arg:"" help:"Events, one batch a line as JSON (docs/sidecar.md); - reads standard input."`
	Bind        string        `default:"tcp://*:5557" placeholder:"ENDPOINT" help:"Where to publish (${default})."`
	ReplayBind  string        `name:"replay-bind" default:"tcp://*:5558" placeholder:"ENDPOINT" help:"Where to answer replays (${default}); empty = nowhere."`
	Topic       string        `placeholder:"TOPIC" help:"Topic of every batch."`
	Subscribers int           `default:"1" placeholder:"N" help:"Wait for so many subscribers first (${default})."`
	Rate        float64       `default:"0" placeholder:"N" help:"Batches a second at most (${default} = no limit)."`
	Buffer      int           `default:"10000" placeholder:"N" help:"Batches that a replay can reach back (${default})."`
	HighWater   int           `name:"high-water" default:"100000" placeholder:"N" help:"Batches that wait for a slow subscriber (${default})."`
	OldReplay   bool          `name:"old-replay" help:"Answer replays without the topic, as older engines do."`
	Stay        time.Duration `default:"1s" placeholder:"DURATION" help:"How long to stay after the last batch (${default}); 0 = until SIGTERM."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: 0 = all was published, 1 = it was not, 2 = the command line was at fault.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &config{}
	exited := false
	parser, err := kong.New(c, kong.Name("kvpublish"), kong.Description("Publishes a file of KV-cache events as an engine would."),
		kong.DefaultEnvars("KVPUBLISH"), kong.Writers(stdout, stderr), kong.Exit(func(int) { exited = true }))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if exited {
		return 0
	}
	if err == nil && (c.Subscribers < 0 || !(c.Rate >= 0) || c.Buffer < 1 || c.HighWater < 1 || c.Stay < 0) {
		err = errors.New("numbers must not be negative, --buffer and --high-water at least 1")
	}
	if err != nil {
		fmt.Fprintln(stderr, "kvpublish: "+err.Error()+"; kvpublish --help lists the flags")
		return 2
	}
	if err := publish(ctx, c, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "kvpublish: "+strings.ReplaceAll(err.Error(), "\n", " "))
		return 1
	}
	return 0
}

func publish(ctx context.Context, c *config, stdin io.Reader, stdout io.Writer) (err error) {
	in := stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	p, err := publisher.Listen(ctx, publisher.Options{Endpoint: c.Bind, Replay: c.ReplayBind, Topic: c.Topic,
		Buffer: c.Buffer, HighWater: c.HighWater, TopicInReplay: !c.OldReplay})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	events, replay := p.Endpoints()
	fmt.Fprintf(stdout, "events %s replay %s\n", events, replay)
	if err := until(ctx, func() bool { return p.Subscribers() >= c.Subscribers }); err != nil {
		return fmt.Errorf("stopped while waiting for %d subscribers", c.Subscribers)
	}
	n, err := send(ctx, c, in, p)
	fmt.Fprintf(stdout, "published %d batches\n", n)
	if err != nil {
		return err
	}
	if err := until(ctx, p.Drained); err != nil {
		return errors.New("stopped before the subscribers had everything")
	}
	stay := make(<-chan time.Time)
	if c.Stay > 0 {
		stay = time.After(c.Stay)
	}
	select {
	case <-ctx.Done():
	case <-stay:
	}
	return nil
}

// send publishes line by line, so that a pipe can drive it.
func send(ctx context.Context, c *config, in io.Reader, p *publisher.Publisher) (sent int, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), 64<<20)
	start := time.Now()
	for number := 1; lines.Scan(); number++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		b, err := parseLine(lines.Bytes())
		if err != nil {
			return sent, fmt.Errorf("%s line %d: %w", c.File, number, err)
		}
		due := b.after
		if c.Rate > 0 {
			due = max(due, time.Until(start.Add(time.Duration(float64(sent)/c.Rate*float64(time.Second)))))
		}
		if due > 0 {
			select {
			case <-ctx.Done():
				return sent, ctx.Err()
			case <-time.After(due):
			}
		}
		if ctx.Err() != nil {
			return sent, ctx.Err()
		}
		payload, err := b.payload(time.Now())
		if err != nil {
			return sent, fmt.Errorf("%s line %d: %w", c.File, number, err)
		}
		if b.swallow {
			p.Swallow(payload)
		} else {
			p.Publish(payload)
		}
		sent++
	}
	return sent, lines.Err()
}

func until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
