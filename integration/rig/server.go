package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	startLimit = 20 * time.Second // to answer the first PING, on a busy machine
	stopLimit  = 10 * time.Second // to leave after SIGTERM
)

// Server is one redis-server process that can be paused, killed and started
// again at the same address.
type Server struct {
	t        testing.TB
	name     string
	bin      string
	dir      string
	port     int
	settings settings
	sentinel bool
	proc     *Process
}

// Standalone starts one redis-server.
func Standalone(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return startServer(t, "redis", opts...)
}

func startServer(t testing.TB, name string, opts ...Option) *Server {
	t.Helper()
	s := newServer(t, name, opts...)
	for attempt := 1; ; attempt++ {
		s.port = FreePort(t)
		err := s.configureAndStart()
		if err == nil {
			return s
		}
		if attempt == 5 {
			t.Fatalf("%s did not start: %v\n%s", name, err, tail(s.logPath(), 4<<10))
		}
	}
}

func newServer(t testing.TB, name string, opts ...Option) *Server {
	t.Helper()
	s := &Server{t: t, name: name, bin: Require(t), dir: t.TempDir()}
	for _, o := range opts {
		o(&s.settings)
	}
	LogOnFailure(t, name, s.logPath())
	return s
}

func (s *Server) configureAndStart() error {
	lines, err := s.settings.lines(s.dir, s.port)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.configPath(), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("configuration of %s: %w", s.name, err)
	}
	return s.start()
}

// start runs the process on the configuration that lies in the directory and
// waits until that very process answers: a foreign server on our port does not count.
func (s *Server) start() error {
	args := []string{s.configPath()}
	if s.sentinel {
		args = append(args, "--sentinel")
	}
	p, err := Start(s.t, s.name, s.logPath(), s.bin, args, nil)
	if err != nil {
		return err
	}
	s.proc = p
	o := s.Options()
	o.PoolSize = 1
	c := redis.NewClient(o)
	defer c.Close()
	deadline := time.Now().Add(startLimit)
	for {
		err := s.answers(c)
		switch {
		case err == nil:
			return nil
		case !p.Running():
			return fmt.Errorf("%s on port %d ended with status %d", s.name, s.port, p.ExitCode())
		case time.Now().After(deadline):
			p.Kill()
			return fmt.Errorf("%s on port %d: %w", s.name, s.port, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *Server) answers(c *redis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// Before the port is open go-redis would log each refusal.
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	_ = conn.Close()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("process_id:%d\r\n", s.proc.PID()); !strings.Contains(info, want) {
		return fmt.Errorf("another server listens on port %d", s.port)
	}
	if err := c.Ping(ctx).Err(); err != nil { // LOADING while a snapshot is read
		return err
	}
	return nil
}

func (s *Server) configPath() string { return filepath.Join(s.dir, "redis.conf") }
func (s *Server) logPath() string    { return filepath.Join(s.dir, "output.log") }

// Addr is host:port.
func (s *Server) Addr() string { return loopback(s.port) }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port }

// Dir is where the server keeps its files.
func (s *Server) Dir() string { return s.dir }

// PID is the id of the current process.
func (s *Server) PID() int { return s.proc.PID() }

// Certs are those given by WithTLS or WithClientCerts, or nil.
func (s *Server) Certs() *Certs { return s.settings.tls }

// URL is how a program is told of this server: redis:// or rediss://, with the
// rig's user and password if there are any.
func (s *Server) URL() string { return s.URLAs(s.settings.username, s.settings.password) }

// URLAs is URL for another user; an empty name with a password is the default user.
func (s *Server) URLAs(username, password string) string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.settings.tls != nil {
		u.Scheme = "rediss"
	}
	text := u.String()
	if password != "" {
		// A comma separates hosts in our URLs; net/url leaves it bare.
		user := strings.ReplaceAll(url.UserPassword(username, password).String(), ",", "%2C")
		text = strings.Replace(text, "://", "://"+user+"@", 1)
	}
	return text
}

// Options connect go-redis to this server.
func (s *Server) Options() *redis.Options {
	o := &redis.Options{
		Addr:            s.Addr(),
		Username:        s.settings.username,
		Password:        s.settings.password,
		DialTimeout:     2 * time.Second,
		DialerRetries:   1,
		MaxRetries:      -1,
		PoolSize:        8,
		DisableIdentity: true,
		Protocol:        2,

		ContextTimeoutEnabled: true,
	}
	if c := s.settings.tls; c != nil {
		o.TLSConfig = &tls.Config{RootCAs: c.pool, Certificates: []tls.Certificate{c.pair}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	return o
}

// Client returns a new client that is closed when the test ends. It does not
// retry: what a test sees is what the server did.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(s.Options())
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Pause stops the process in its tracks (SIGSTOP): connections stay open,
// new ones are accepted by the kernel, and nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.proc.Signal(sig); err != nil {
		s.t.Fatalf("%v to %s: %v", sig, s.name, err)
	}
}

// Kill ends the process with SIGKILL, as a crash would; what is not on disk is lost.
func (s *Server) Kill() { s.proc.Kill() }

// Stop ends the process with SIGTERM, as an orderly shutdown would.
func (s *Server) Stop() { s.proc.Stop(stopLimit) }

// Restart starts the process again at the same address, ending it first if it
// still runs. It is empty unless WithRDB or WithAOF was given.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	// The port can be busy for a moment, by a peer that probes it.
	if err := poll(startLimit, s.start); err != nil {
		s.t.Fatalf("%s did not start again: %v", s.name, err)
	}
}
