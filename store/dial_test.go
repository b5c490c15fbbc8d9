package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/store"
)

func TestParseURLReadsEveryTopology(t *testing.T) {
	none := 0
	for url, want := range map[string]store.Endpoint{
		"redis://localhost":      {Addrs: []string{"localhost:6379"}},
		"redis://localhost:7000": {Addrs: []string{"localhost:7000"}},
		"redis://[::1]":          {Addrs: []string{"[::1]:6379"}},
		"redis://[::1]:7000/":    {Addrs: []string{"[::1]:7000"}},
		"redis://me:s3%40c%2Fret@h:1/3": {
			Addrs: []string{"h:1"}, DB: 3, Username: "me", Password: "s3@c/ret",
		},
		"redis://:pw@h":     {Addrs: []string{"h:6379"}, Password: "pw"},
		"redis://p%2Cq:r@h": {Addrs: []string{"h:6379"}, Username: "p,q", Password: "r"},
		"rediss://h?ca_file=/ca.pem&cert_file=/c.pem&key_file=/k.pem&server_name=cache": {
			Addrs: []string{"h:6379"}, TLS: true,
			CAFile: "/ca.pem", CertFile: "/c.pem", KeyFile: "/k.pem", ServerName: "cache",
		},
		"rediss://h?skip_verify=true":          {Addrs: []string{"h:6379"}, TLS: true, SkipVerify: true},
		"redis://h1:1,h2,h3:3":                 {Addrs: []string{"h1:1", "h2:6379", "h3:3"}, Cluster: true},
		"redis://u:p@h1,h2/0":                  {Addrs: []string{"h1:6379", "h2:6379"}, Username: "u", Password: "p", Cluster: true},
		"redis://seed?cluster=true":            {Addrs: []string{"seed:6379"}, Cluster: true},
		"redis://one?cluster=false":            {Addrs: []string{"one:6379"}},
		"redis://s1,s2/2?master_name=mymaster": {Addrs: []string{"s1:26379", "s2:26379"}, DB: 2, MasterName: "mymaster"},
		"redis://s1?master_name=m&sentinel_username=su&sentinel_password=sp": {
			Addrs: []string{"s1:26379"}, MasterName: "m", SentinelUsername: "su", SentinelPassword: "sp",
		},
		"unix:///run/redis.sock":          {Addrs: []string{"/run/redis.sock"}},
		"unix://u:p@/run/redis.sock?db=1": {Addrs: []string{"/run/redis.sock"}, DB: 1, Username: "u", Password: "p"},
		"redis://h?protocol=3&pool_size=7&min_idle_conns=1&max_retries=0&dial_timeout=5s&read_timeout=10ms&write_timeout=1m&client_name=x": {
			Addrs: []string{"h:6379"}, Protocol: 3, PoolSize: 7, MinIdleConns: 1, MaxRetries: &none,
			DialTimeout: 5 * time.Second, ReadTimeout: 10 * time.Millisecond, WriteTimeout: time.Minute, ClientName: "x",
		},
	} {
		t.Run(url, func(t *testing.T) {
			got, err := store.ParseURL(url)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(&want, got))
		})
	}
}

func TestParseURLRefusesNonsenseAndSaysWhatToWrite(t *testing.T) {
	for url, want := range map[string]string{
		"":                                       "write redis://host:port",
		"localhost:6379":                         "write redis://host:port",
		"http://h":                               `unknown scheme "http": write redis`,
		"redis://":                               "an empty host",
		"redis:///0":                             "an empty host",
		"redis://h1,,h2":                         "an empty host",
		"redis://h1,":                            "an empty host",
		"redis://:6379":                          "write 127.0.0.1:6379",
		"redis://h:":                             "write host:6379",
		"redis://h:0":                            "1 to 65535",
		"redis://h:65536":                        "1 to 65535",
		"redis://h:x?master_name=m":              "write host:26379",
		"redis://::1:6379":                       "[::1]:6379",
		"redis://[::1":                           "[::1]:6379",
		"redis://[h]:1":                          "no IPv6 address",
		"redis://h/x":                            "write redis://host:port/0",
		"redis://h/-1":                           "write redis://host:port/0",
		"redis://h1 ,h2":                         "white space",
		"redis://h#x":                            "write %23",
		"redis://a:b@h1,a:b@h2":                  "write credentials once",
		"redis://u:p%zz@h":                       "write %25",
		"redis://u:p/q@h":                        "%2F for '/'",
		"redis://u:p?q@h":                        "%3F for '?'",
		"redis://h1,h2/1":                        "a Cluster has database 0 only: remove /1",
		"redis://h/1?cluster=true":               "remove /1",
		"redis://h?cluster=yes":                  "write true or false",
		"redis://h1,h2?cluster=false":            "write one host",
		"redis://h?cluster=true&cluster=true":    "given twice",
		"redis://h?cluster=true&master_name=m":   "exclude each other",
		"redis://h?master_name=":                 "master_name is empty",
		"redis://h?sentinel_password=x":          "add master_name",
		"redis://h?ca_file=/x":                   "write rediss://",
		"redis://h?skip_verify=true":             "write rediss://",
		"rediss://h?cert_file=/x":                "write both or none",
		"rediss://h?skip_verify=true&ca_file=/x": "skip_verify=true ignores",
		"redis://h?db=1":                         `unknown parameter "db"`,
		"redis://h?retries=1":                    "known are cluster, master_name",
		"redis://h?pool_size=0":                  "at least 1",
		"redis://h?protocol=4":                   "write 2 or 3",
		"redis://h?dial_timeout=3":               "write a duration",
		"redis://h?read_timeout=-1s":             "above 0",
		"unix://h/run/x":                         "write unix:///run/redis.sock",
		"unix://":                                "write unix:///run/redis.sock",
		"unix:///x?db=one":                       "write ?db=0",
		"unix:///x?cluster=true":                 "makes no sense on a socket",
		"unix:///x?master_name=m":                "makes no sense on a socket",
	} {
		t.Run(url, func(t *testing.T) {
			_, err := store.ParseURL(url)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestNoPasswordReachesAnErrorOrALog(t *testing.T) {
	const secret = "hunter2secret"
	for _, url := range []string{
		"redis://u:" + secret + "@h", "redis://:" + secret + "@h1,h2/9", "u:" + secret + "@h",
		"redis://u:a@" + secret + "@h", "redis://u:a/" + secret + "@h", "redis://u:a?" + secret + "@h",
		"redis://u:a#" + secret + "@h", "redis://u:" + secret, "redis://u:a," + secret, "redis://u:a/" + secret, "redis://u:a?" + secret + "&" + secret, "redis://u:%zz" + secret + "@h:1",
		"redis://h1,u:" + secret + "@h2", "redis://h?master_name=m&sentinel_password=" + secret,
		"redis://h?sentinel_password=a@" + secret, "redis://h?sentinel%5Fpassword=" + secret,
		"redis://h?SENTINEL_PASSWORD=" + secret, "redis://h?password=" + secret, "unix://u:" + secret + "@rel",
		"bogus://u:" + secret + "@h", "redis://u:" + secret + " x@h", "redis://u: " + secret + "@h",
	} {
		require.NotContains(t, store.Redacted(url), secret, url)
		if _, err := store.ParseURL(url); err != nil {
			require.NotContains(t, err.Error(), secret, url)
		}
	}
	require.Equal(t, "redis://u:xxxxx@h1:1,[::1]:2/3?cluster=true",
		store.Redacted("redis://u:p@h1:1,[::1]:2/3?cluster=true"))
}

func TestRedactionHoldsForAnyPassword(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[a-z]{3}[a-z@:/?#,%& ]{0,6}QQQQ[a-z@:/?#,%& ]{0,6}`).Draw(t, "secret")
		tail := rapid.SampledFrom([]string{"@h", "@h:1,h2", "@/sock", "", "@h?cluster=true"}).Draw(t, "tail")
		url := rapid.SampledFrom([]string{"redis://u:", "rediss://:", "unix://u:", "u:"}).Draw(t, "head") + secret + tail
		if tail == "" && strings.Contains(secret, "@") {
			return // what follows the '@' is a host by all that anybody can tell
		}
		_, err := store.ParseURL(url)
		if err != nil && strings.Contains(err.Error(), "QQQQ") {
			t.Fatalf("%q: error quotes the password: %v", url, err)
		}
		if strings.Contains(store.Redacted(url), "QQQQ") {
			t.Fatalf("%q: redacted to %q", url, store.Redacted(url))
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"redis://h", "rediss://u:p@h1,h2/0?cluster=true", "unix:///x?db=1", "redis://[::1]:1?master_name=m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, url string) {
		e, err := store.ParseURL(url)
		if err != nil {
			return
		}
		if len(e.Addrs) == 0 || (e.Cluster && (e.DB != 0 || e.MasterName != "")) {
			t.Fatalf("%q accepted as %+v", url, e)
		}
	})
}

func TestDialRefusesContradictoryCredentialsAndTLS(t *testing.T) {
	creds := func(context.Context) (string, string, error) { return "u", "p", nil }
	_, err := store.Dial(store.DialOptions{URL: "redis://u:topsecret@h", Credentials: creds})
	require.ErrorContains(t, err, "given twice")
	require.NotContains(t, err.Error(), "topsecret")
	_, err = store.Dial(store.DialOptions{URL: "rediss://h?ca_file=/does/not/exist"})
	require.ErrorContains(t, err, "ca_file")
	_, err = store.Dial(store.DialOptions{URL: "rediss://h?ca_file=" + t.TempDir()})
	require.Error(t, err)
}

func TestDialMakesTheClientOfTheTopology(t *testing.T) {
	for url, want := range map[string]any{
		"redis://127.0.0.1:1":               (*redis.Client)(nil),
		"redis://127.0.0.1:1,127.0.0.1:2":   (*redis.ClusterClient)(nil),
		"redis://127.0.0.1:1?cluster=true":  (*redis.ClusterClient)(nil),
		"redis://127.0.0.1:1?master_name=m": (*redis.Client)(nil),
		"unix:///does/not/exist":            (*redis.Client)(nil),
	} {
		c, err := store.Dial(store.DialOptions{URL: url, MinIdleConns: -1})
		require.NoError(t, err)
		require.IsType(t, want, c)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		require.Error(t, c.Ping(ctx).Err(), url)
		cancel()
		require.NoError(t, c.Close())
	}
}
