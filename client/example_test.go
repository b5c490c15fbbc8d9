package client_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"inferencecache.io/lookuptier/client"
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// A gateway asks for a route, and goes its own way without a hint.
func ExampleClient_LookupRoute() {
	target, stop := pod() // dns:///lookup-pods:9090 in a cluster
	defer stop()
	c, err := client.Dial(target, client.Options{Timeout: time.Second})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()

	// An engine, or its sidecar, has said what its cache holds.
	reporter, err := c.NewReporter(client.ReporterOptions{})
	if err != nil {
		log.Panic(err)
	}
	_ = reporter.Report(context.Background(), &pb.CacheStateUpdate{
		TenantId: "team-a", ModelId: "llama-3", HashScheme: "vllm", ReplicaId: "vllm-0",
		Prefixes: []*pb.PrefixEntry{{BlockHashes: [][]byte{[]byte("block-00"), []byte("block-01")}, BlockTokenCounts: []int32{64, 64}}},
	})
	if err := reporter.Close(context.Background()); err != nil {
		log.Panic(err)
	}

	for _, block := range []string{"block-01", "block-77"} {
		r := c.LookupRoute(context.Background(), &pb.LookupRouteRequest{
			TenantId: "team-a", ModelId: "llama-3", HashScheme: "vllm",
			BlockHashes: [][]byte{[]byte("block-00"), []byte(block)}, BlockTokenCounts: []int32{64, 64},
		})
		if replica, ok := r.Best(); ok {
			fmt.Println(r.Reason, replica, r.Replicas[0].GetMatchedTokens())
		} else {
			fmt.Println(r.Reason, "round robin", r.Err)
		}
	}
	// Output:
	// PREFIX_MATCH vllm-0 128
	// PREFIX_MATCH vllm-0 64
}

// Without a pod every lookup is a no-hint, at once.
func ExampleClient_LookupRoute_failsOpen() {
	c, err := client.Dial("127.0.0.1:1", client.Options{Timeout: 5 * time.Second})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	r := c.LookupRoute(context.Background(), &pb.LookupRouteRequest{TenantId: "team-a", ModelId: "llama-3", HashScheme: "vllm", TokenIds: []uint32{1, 2, 3}})
	fmt.Println(r.Reason, len(r.Replicas), r.Err != nil)
	// Output: NO_HINT 0 true
}

// All pods of a headless Service, over mutual TLS, with a token from a mounted Secret.
func ExampleDial() {
	pair, err := tls.LoadX509KeyPair("tls.crt", "tls.key")
	if err != nil {
		fmt.Println("no certificate here")
		return
	}
	c, err := client.Dial("dns:///lookup-pods.inference.svc:9090", client.Options{
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
		Token: func(context.Context) (string, error) {
			token, err := os.ReadFile("/var/run/secrets/lookup/token")
			return strings.TrimSpace(string(token)), err
		},
		OnMismatch: func(m client.Mismatch) {
			log.Printf("lookup tier: %s: tenant %q model %q", m.Reason, m.Tenant, m.Model)
		},
	})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	// Output: no certificate here
}

// A producer that outlives its pods: what they did not take is kept and sent again.
func ExampleReporter() {
	target, stop := pod()
	defer stop()
	c, err := client.Dial(target, client.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	r, err := c.NewReporter(client.ReporterOptions{
		Queue: 1000, WhenFull: client.DropOldest,
		OnError: func(err error) { log.Print(err) },
	})
	if err != nil {
		log.Panic(err)
	}
	ctx := context.Background()
	for i := range 3 {
		_ = r.Report(ctx, &pb.CacheStateUpdate{
			TenantId: "team-a", ModelId: "llama-3", HashScheme: "vllm", ReplicaId: "vllm-0",
			Prefixes: []*pb.PrefixEntry{{PrefixHash: fmt.Appendf(nil, "prefix-%d", i), TokenCount: 256}},
		})
	}
	_ = r.Publish(ctx, &pb.CacheEvent{
		Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: "team-a", ModelId: "llama-3", ReplicaId: "vllm-0", PrefixHash: []byte("prefix-0"),
	})
	last, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := r.Close(last); err != nil {
		log.Print(err) // how much was not acknowledged
	}
	state, err := c.State(ctx, "team-a", "llama-3")
	fmt.Println(r.Stats().Acknowledged, state.GetSummary().GetTotalPrefixes(), err)
	// Output: 4 2 <nil>
}
