package deploy

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// peers stand in for the names of the StatefulSet's pods.
var peers = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}

// redisSet is what the overlay sentinel starts, on loopback addresses.
type redisSet struct {
	t              *testing.T
	port, sentinel string
	processes      map[string][]*exec.Cmd // by peer
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// start runs a pod's two containers with a directory of their own.
func (s *redisSet) start(me string) {
	s.t.Helper()
	config, err := filepath.Abs("redis/redis.conf")
	require.NoError(s.t, err)
	dir := s.t.TempDir()
	s.processes[me] = nil
	for _, role := range []string{"redis", "sentinel"} {
		run := exec.Command("sh", "overlays/sentinel/join.sh", role)
		run.Env = append(os.Environ(), "ME="+me, "BIND="+me, "PEERS="+strings.Join(peers, " "), "DIR="+dir, "CONFIG="+config,
			"PORT="+s.port, "SENTINEL_PORT="+s.sentinel, "DOWN_AFTER=1000")
		log, err := os.Create(filepath.Join(dir, role+".log"))
		require.NoError(s.t, err)
		run.Stdout, run.Stderr = log, log
		run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(s.t, run.Start())
		s.processes[me] = append(s.processes[me], run)
		s.t.Cleanup(func() {
			if text, err := os.ReadFile(log.Name()); s.t.Failed() && err == nil {
				s.t.Logf("%s of %s:\n%s", role, me, text)
			}
		})
	}
}

func (s *redisSet) kill(peer string) {
	for _, run := range s.processes[peer] {
		_ = run.Process.Kill()
		_ = run.Wait()
	}
}

func (s *redisSet) ask(peer, port string, command ...string) string {
	out, _ := exec.Command("redis-cli", append([]string{"-h", peer, "-p", port, "--raw"}, command...)...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

func (s *redisSet) eventually(what string, is func() bool) {
	s.t.Helper()
	require.Eventually(s.t, is, 90*time.Second, 100*time.Millisecond, what)
}

// leads tells whether a peer has two replicas, and all Sentinels agree and know one another and them.
func (s *redisSet) leads(peer string) bool {
	for _, p := range peers {
		said := "\n" + s.ask(p, s.sentinel, "sentinel", "master", "lookup-tier") + "\n"
		for _, field := range []string{"\nip\n" + peer + "\n", "\nnum-slaves\n2\n", "\nnum-other-sentinels\n2\n"} {
			if !strings.Contains(said, field) {
				return false
			}
		}
	}
	return strings.Contains(s.ask(peer, s.port, "info", "replication"), "role:master\r\nconnected_slaves:2")
}

// The worst that can happen to soft state in memory: the pod that leads is killed and is back, empty,
// before anybody noticed. Had it gone on to lead, its replicas would have copied nothing from it.
func TestALeaderThatComesBackEmptyEmptiesNobody(t *testing.T) {
	s := &redisSet{t: t, port: freePort(t), sentinel: freePort(t), processes: map[string][]*exec.Cmd{}}
	t.Cleanup(func() {
		for _, peer := range peers {
			s.kill(peer)
		}
	})
	for _, peer := range peers {
		s.start(peer)
	}
	s.eventually("the first peer leads", func() bool { return s.leads(peers[0]) })
	require.Equal(t, "noeviction", strings.Split(s.ask(peers[1], s.port, "config", "get", "maxmemory-policy"), "\n")[1])
	require.Equal(t, "OK", s.ask(peers[0], s.port, "set", "k", "v"))
	require.Equal(t, "2", s.ask(peers[0], s.port, "wait", "2", "0"))

	s.kill(peers[0])
	s.start(peers[0])
	leader := ""
	s.eventually("another peer leads, and the first follows it", func() bool {
		for _, peer := range peers[1:] {
			if s.leads(peer) {
				leader = peer
			}
		}
		return leader != ""
	})
	require.Equal(t, "v", s.ask(leader, s.port, "get", "k"))
	s.eventually("the first peer has a copy", func() bool { return s.ask(peers[0], s.port, "get", "k") == "v" })
}
