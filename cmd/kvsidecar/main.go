// Command kvsidecar runs beside one inference engine and keeps the index in Redis equal
// to the engine's KV cache.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"inferencecache.io/lookuptier/cmd/internal/processlog"
	"inferencecache.io/lookuptier/cmd/internal/redislog"
	"inferencecache.io/lookuptier/secrets"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/store"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // something that the sidecar needs was at fault
	exitUsage   = 2 // the command line was
)

// startLimit bounds the first try to reach Redis. A sidecar starts without it too.
const startLimit = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	redislog.Install() // what the client says of every failed dial, the sidecar says once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, code, done := parse(args, stdout, stderr)
	if done {
		return code
	}
	log := processlog.New(stderr, c.LogFormat, c.LogLevel)
	redislog.Use(log)
	return fail(stderr, serve(ctx, c, log))
}

// serve runs the sidecar until ctx ends.
func serve(ctx context.Context, c *config, log *slog.Logger) error {
	files, err := c.RedisFiles.Open(c.Redis)
	if err != nil {
		return &usageError{err}
	}
	o := c.dial()
	files.Apply(&o)
	client, err := store.Dial(o)
	if err != nil {
		return &usageError{fmt.Errorf("--redis: %w", err)}
	}
	defer func() { _ = client.Close() }()
	index, err := store.New(store.Options{Redis: client, Shards: c.Shards, KeyTTL: time.Duration(c.KeyTTL), Logger: log})
	if err != nil {
		return &usageError{err}
	}
	side, err := sidecar.New(index, c.sidecar(log))
	if err != nil {
		return &usageError{err}
	}
	if err := agree(ctx, index, log); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.HTTPBindAddress)
	if err != nil {
		return fmt.Errorf("--http-bind-address: %w", err)
	}
	server := newHTTP(side, log)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("following", "version", version, "engine", c.EngineEndpoint, "replay", c.EngineReplayEndpoint, "redis", store.Redacted(c.Redis),
		"replica", c.ReplicaID, "model", c.ModelID, "tenant", c.TenantID, "scheme", c.HashScheme, "http", listener.Addr().String())

	running, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	reading.Go(func() {
		secrets.Follow(running, secrets.DefaultEvery,
			func(name string) { log.Info("secret read again, and in force for new connections", "secret", name) },
			func(name string, err error) {
				log.Error("secret changed and cannot be used", "secret", name, "error", err)
			},
			files.Checked()...)
	})
	ended := make(chan error, 1)
	go func() { ended <- side.Run(running) }()
	select {
	case <-ctx.Done():
		err = nil
	case err = <-served:
		err = fmt.Errorf("serving %s: %w", c.HTTPBindAddress, err)
	}
	stop()
	if retired := <-ended; retired != nil {
		err = errors.Join(err, retired)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close()
	}
	return err
}

// dial is how the sidecar reaches Redis. The client sends nothing again by itself: the writer
// does, and can tell its own second writes from another producer's only if it knows of them.
func (c *config) dial() store.DialOptions {
	return store.DialOptions{URL: c.Redis, ClientName: "kvsidecar", PoolSize: 4, MinIdleConns: 1, MaxRetries: new(int)}
}

// agree checks the layout if Redis answers. If it does not, the writer will check.
func agree(ctx context.Context, index *store.Store, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := index.Ready(ctx)
	if errors.Is(err, store.ErrLayout) {
		return err
	}
	if err != nil {
		log.Warn("Redis does not answer yet: following the engine meanwhile", "error", err)
	}
	return nil
}

// fail prints an error in one line and picks the exit code for it.
func fail(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(w, "kvsidecar: "+strings.Join(strings.Fields(err.Error()), " "))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
