package store

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Endpoint is a Redis URL taken apart: which servers, in which topology, as whom.
//
//	redis://user:password@host:port/db            one server
//	rediss://host                                 the same over TLS
//	unix:///run/redis.sock?db=1                   one server on a socket
//	redis://h1:6379,h2:6379,h3:6379               Cluster, by several seeds
//	redis://host?cluster=true                     Cluster, by one seed
//	redis://s1,s2,s3/0?master_name=mymaster       Sentinel
//
// A port left out is 6379, or 26379 for Sentinels. User and password are
// percent-encoded, and stand once, before the first host.
type Endpoint struct {
	// Addrs are host:port pairs, or the path of one socket.
	Addrs              []string
	Username, Password string
	// DB is the database's number; always 0 on a Cluster.
	DB int
	// TLS is set by rediss.
	TLS bool
	// Cluster is set by several hosts without master_name, or by cluster=true.
	Cluster bool
	// MasterName selects Sentinel; SentinelUsername and SentinelPassword are
	// the credentials of the Sentinels themselves.
	MasterName                         string
	SentinelUsername, SentinelPassword string
	// CAFile replaces the system's roots, CertFile and KeyFile are the client's
	// certificate, ServerName overrides the host's name in verification, and
	// SkipVerify accepts any certificate.
	CAFile, CertFile, KeyFile, ServerName string
	SkipVerify                            bool
	// The rest overrides the DialOptions of the same name; zero leaves them.
	ClientName                             string
	Protocol, PoolSize, MinIdleConns       int
	DialTimeout, ReadTimeout, WriteTimeout time.Duration
	// MaxRetries is nil unless given, for 0 means no retry.
	MaxRetries *int
}

// ParseURL reads a Redis URL. Its errors say in one line what to write instead,
// and never repeat a password.
func ParseURL(raw string) (*Endpoint, error) {
	e, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("redis URL %s: %w", Redacted(raw), err)
	}
	return e, nil
}

func parseURL(raw string) (*Endpoint, error) {
	scheme, rest, ok := cutScheme(raw)
	if !ok {
		return nil, fmt.Errorf("no scheme: write redis://host:port, rediss://host:port or unix:///path")
	}
	if strings.ContainsAny(raw, " \t\r\n") {
		return nil, fmt.Errorf("it contains white space: write hosts with commas only, and %%20 for a space in a password")
	}
	if strings.Contains(rest, "#") {
		return nil, fmt.Errorf("it contains '#': write %%23 in a password; a fragment has no meaning here")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(path, "@") || strings.Contains(query, "@") {
		// Otherwise half of a password would be taken for a port and be quoted.
		return nil, fmt.Errorf("an '@' after '/' or '?': in a password write %%2F for '/', %%3F for '?' and %%40 for '@'")
	}

	e := &Endpoint{}
	hosts, err := e.userinfo(authority)
	if err != nil {
		return nil, err
	}
	values, err := queryOf(query)
	if err != nil {
		return nil, err
	}
	switch scheme {
	case "redis", "rediss":
		e.TLS = scheme == "rediss"
		err = e.network(hosts, path, values)
	case "unix":
		err = e.socket(hosts, path, values)
	default:
		return nil, fmt.Errorf("unknown scheme %q: write redis, rediss (TLS) or unix", scheme)
	}
	if err != nil {
		return nil, err
	}
	return e, e.params(values)
}

func (e *Endpoint) userinfo(authority string) (hosts string, err error) {
	i := strings.LastIndexByte(authority, '@')
	if i < 0 {
		return authority, nil
	}
	user, password, _ := strings.Cut(authority[:i], ":")
	if strings.ContainsAny(authority[:i], "@,") {
		return "", fmt.Errorf("more than one '@', or a ',' before it: write credentials once, before the first host, with %%40 and %%2C inside them")
	}
	if e.Username, err = url.PathUnescape(user); err != nil {
		return "", fmt.Errorf("the user name has a bad percent escape: write %%25 for a '%%'")
	}
	if e.Password, err = url.PathUnescape(password); err != nil {
		return "", fmt.Errorf("the password has a bad percent escape: write %%25 for a '%%'")
	}
	return authority[i+1:], nil
}

func (e *Endpoint) network(hosts, path string, v map[string]string) error {
	port := "6379"
	if v["master_name"] != "" {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := addrOf(host, port)
		if err != nil {
			return err
		}
		e.Addrs = append(e.Addrs, addr)
	}
	if db := strings.TrimPrefix(path, "/"); db != "" {
		n, err := strconv.ParseUint(db, 10, 31)
		if err != nil {
			return fmt.Errorf("database %q is no number: write redis://host:port/0", db)
		}
		e.DB = int(n)
	}
	return nil
}

// addrOf checks one host of the list and gives it a port.
func addrOf(host, defaultPort string) (string, error) {
	if host == "" {
		return "", fmt.Errorf("an empty host: write redis://host:port, and no comma without a host on both sides")
	}
	name, port := host, defaultPort
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 || (end+1 < len(host) && host[end+1] != ':') {
			return "", fmt.Errorf("host %q: write an IPv6 address as [::1]:6379", host)
		}
		name = host[1:end]
		if end+1 < len(host) {
			port = host[end+2:]
		}
		if net.ParseIP(name) == nil {
			return "", fmt.Errorf("host %q is no IPv6 address: write [::1]:6379", host)
		}
	} else if n, p, found := strings.Cut(host, ":"); found {
		if strings.Contains(p, ":") {
			return "", fmt.Errorf("more than one ':' in a host: write an IPv6 address as [::1]:6379")
		}
		name, port = n, p
	}
	if name == "" {
		return "", fmt.Errorf("a ':' without a host before it: write 127.0.0.1:%s", defaultPort)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		// What stands there may be a password whose '@host' was forgotten.
		return "", fmt.Errorf("the port of host %q is no number from 1 to 65535: write host:%s", name, defaultPort)
	}
	return net.JoinHostPort(name, port), nil
}

func (e *Endpoint) socket(hosts, path string, v map[string]string) error {
	if hosts != "" || len(path) < 2 {
		return fmt.Errorf("a socket needs an absolute path: write unix:///run/redis.sock")
	}
	for _, name := range []string{"cluster", "master_name"} {
		if _, ok := v[name]; ok {
			return fmt.Errorf("%s makes no sense on a socket: write redis:// with hosts", name)
		}
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return fmt.Errorf("the path has a bad percent escape: write %%25 for a '%%'")
	}
	e.Addrs = []string{decoded}
	if db, ok := v["db"]; ok {
		n, err := strconv.ParseUint(db, 10, 31)
		if err != nil {
			return fmt.Errorf("db=%q is no number: write ?db=0", db)
		}
		e.DB = int(n)
		delete(v, "db")
	}
	return nil
}

// queryOf reads name=value pairs, each name once.
func queryOf(query string) (map[string]string, error) {
	parsed, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the part after '?' is malformed: write name=value&name=value, with %%25 for a '%%'")
	}
	v := make(map[string]string, len(parsed))
	for name, values := range parsed {
		if len(values) > 1 {
			return nil, fmt.Errorf("a parameter is given twice: write each once")
		}
		v[name] = values[0]
	}
	return v, nil
}
