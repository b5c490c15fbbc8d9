package main

import (
	"context"
	"os"
	"time"
)

// httpGrace is how long a scrape under way may take to end.
const httpGrace = 2 * time.Second

// shutdown ends the pod in this order, each step bounded:
//
//  1. not ready, so that load balancers send callers elsewhere; health says so first;
//  2. --shutdown-delay, in which the pod takes calls as before;
//  3. gRPC takes no new calls, ends those without an end of their own (watches of health,
//     streams of events and metrics), gives the others --drain, then cuts them;
//  4. the workers end: the sweeper after its current script, the prober, the reader
//     of secrets, the cache's follower of the log, the policies; the last spans are sent;
//  5. HTTP ends: until here the metrics could be read;
//  6. Redis' client, and last the embedded store.
//
// A second signal skips what is left of 2 and 3. Calls after the first do nothing. It
// also ends a pod that start could not finish.
func (p *pod) shutdown(again <-chan os.Signal) {
	p.once.Do(func() {
		p.readiness.leave()
		if p.grpc != nil {
			hurry := p.wait(time.Duration(p.config.ShutdownDelay), again)
			p.drain(hurry, again)
			p.metrics.up.Set(0)
		}
		p.stop()
		p.workers.Wait()
		if p.cached != nil {
			p.cached.Close()
		}
		p.policies.close()
		p.tracer.close(p.log)
		if p.http != nil {
			ctx, cancel := context.WithTimeout(context.Background(), httpGrace)
			defer cancel()
			if p.http.Shutdown(ctx) != nil {
				_ = p.http.Close() // a scrape that hangs is cut
			}
		}
		p.listening.Wait()
		if p.backend != nil {
			p.backend.close(p.log)
		}
		if p.grpc != nil {
			p.log.Info("stopped")
		}
	})
}

// wait returns after d, or true at the next signal.
func (p *pod) wait(d time.Duration, again <-chan os.Signal) (hurry bool) {
	if d <= 0 {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-again:
		return true
	}
}

func (p *pod) drain(hurry bool, again <-chan os.Signal) {
	p.endless.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.grpc.GracefulStop()
	}()
	if !hurry {
		t := time.NewTimer(time.Duration(p.config.Drain))
		defer t.Stop()
		select {
		case <-done:
			return
		case <-t.C:
			p.log.Warn("calls still under way after --drain are cut", "drain", p.config.Drain.String())
		case <-again:
			p.log.Warn("second signal: calls under way are cut")
		}
	}
	p.grpc.Stop()
	<-done
}
