package client_test

import (
	"context"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

// pod serves the service on an index in memory, for the examples.
func pod() (target string, stop func()) {
	s, err := lookupsvc.New(lookupsvc.Options{
		Index: rankingtest.New(func() int64 { return time.Now().UnixMilli() }), Knobs: ranking.DefaultKnobs(),
	})
	if err != nil {
		log.Panic(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Panic(err)
	}
	g := grpc.NewServer(lookupsvc.ServerOptions()...)
	lookupsvc.Register(g, s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l)
	}()
	return l.Addr().String(), func() {
		g.Stop()
		<-served
	}
}
