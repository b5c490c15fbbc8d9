// Gateway is a small gateway for OpenAI-style completions: it asks the lookup tier
// which engine holds the prompt's KV cache and forwards the request there.
//
// README.md shows it at work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"inferencecache.io/lookuptier/client"
)

type config struct {
	listen, lookup, tenant, scheme string
	engines                        engines
	demo                           int
}

// engines are the URLs of replicas, by the replica id that their sidecars report under.
type engines []engine

type engine struct{ replica, url string }

func (e *engines) String() string { return fmt.Sprint(*e) }

func (e *engines) Set(s string) error {
	replica, url, ok := strings.Cut(s, "=")
	if !ok || replica == "" || !strings.HasPrefix(url, "http") {
		return errors.New("write replica=http://host:port")
	}
	*e = append(*e, engine{replica, url})
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var c config
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8000", "where completions are taken")
	flags.StringVar(&c.lookup, "lookup", "127.0.0.1:9090", "the lookup pods; dns:///service:port spreads over all of them")
	flags.StringVar(&c.tenant, "tenant", "default", "the tenant that the engines' sidecars report under")
	flags.StringVar(&c.scheme, "scheme", "vllm", "the hash scheme that they report under")
	flags.Var(&c.engines, "engine", "an engine as replica=URL; once for each")
	flags.IntVar(&c.demo, "demo", 0, "start this many fake engines as well")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tier, err := client.Dial(c.lookup, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	for i := range c.demo {
		fake, err := startFakeEngine(ctx, tier, fmt.Sprint("engine-", i), c.tenant, c.scheme)
		if err != nil {
			return err
		}
		defer fake.close(context.WithoutCancel(ctx))
		c.engines = append(c.engines, engine{fake.replica, fake.url})
		fmt.Fprintln(out, "fake engine", fake.replica, "on", fake.url)
	}
	g, err := newGateway(tier, c.tenant, c.scheme, c.engines)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "gateway on http://%s\n", l.Addr())
	return serve(ctx, l, g)
}

// serve ends when ctx does, after the requests under way.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := server.Shutdown(last)
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
