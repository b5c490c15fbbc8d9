package main

import (
	"context"
	"fmt"
	"math"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// podAnswer is what a lookup pod says to the same request.
type podAnswer struct {
	Server string  `json:"server"`
	Error  string  `json:"error,omitempty"`
	Reason string  `json:"reason_code"`
	Scores []score `json:"replica_scores"`
	Agrees bool    `json:"agrees"`
	// Differences from the decision made here, in words.
	Differences []string `json:"differences"`
}

// compare asks the pod. What differs is asked and decided once more, since a change
// may have been on its way.
func (x *explainer) compare(s *session, r *explainReply) *podAnswer {
	out := x.askPod(s, r)
	if out.Error != "" || out.Agrees {
		return out
	}
	select {
	case <-s.ctx.Done():
		return out
	case <-time.After(podPause):
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	redis := r.Redis
	again, err := x.explain(ctx)
	if err != nil {
		return out
	}
	*r = *again
	r.Redis = redis
	return x.askPod(s, r)
}

func (x *explainer) askPod(s *session, r *explainReply) *podAnswer {
	out := &podAnswer{Server: s.server, Scores: []score{}, Differences: []string{}}
	var reply *pb.LookupRouteResponse
	err := s.call(func(ctx context.Context, client pb.InferenceCacheClient) (err error) {
		reply, err = client.LookupRoute(ctx, x.req)
		return err
	})
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Reason, out.Scores = reply.GetReasonCode(), replyOf(x.req, reply, 0).Scores
	out.Differences = append(out.Differences, differences(r, out)...)
	out.Agrees = len(out.Differences) == 0
	return out
}

// scoreTolerance allows for the moments between the two decisions: freshness falls.
const scoreTolerance = 0.02

func differences(r *explainReply, pod *podAnswer) (out []string) {
	if r.Reason != pod.Reason {
		out = append(out, fmt.Sprintf("the pod answers %s, the index says %s", pod.Reason, r.Reason))
	}
	mine := map[string]score{}
	for _, s := range r.Scores {
		mine[s.ReplicaID] = s
	}
	for _, s := range pod.Scores {
		m, ok := mine[s.ReplicaID]
		delete(mine, s.ReplicaID)
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("the pod names %s, the index does not", cell(s.ReplicaID)))
		case m.Matched != s.Matched:
			out = append(out, fmt.Sprintf("%s matches %d tokens by the pod, %d by the index", cell(s.ReplicaID), s.Matched, m.Matched))
		case math.Abs(float64(m.Score-s.Score)) > scoreTolerance*math.Max(float64(m.Score), float64(s.Score))+1e-3:
			out = append(out, fmt.Sprintf("%s scores %s by the pod, %s here", cell(s.ReplicaID), decimal(s.Score), decimal(m.Score)))
		}
	}
	for _, s := range r.Scores {
		if _, left := mine[s.ReplicaID]; left {
			out = append(out, fmt.Sprintf("the index names %s, the pod does not", cell(s.ReplicaID)))
		}
	}
	return out
}

func (p *podAnswer) write(s *session) {
	switch {
	case p.Error != "":
		fmt.Fprintf(s.out, "\n%s\n", wrap("Pod: "+printable(p.Error), s.width))
	case p.Agrees:
		fmt.Fprintf(s.out, "\n%s\n", wrap(fmt.Sprintf("Pod %s answers the same.", printable(p.Server)), s.width))
	default:
		fmt.Fprintf(s.out, "\n%s\n", wrap(fmt.Sprintf("Pod %s answers DIFFERENTLY:", printable(p.Server)), s.width))
		for _, d := range p.Differences {
			fmt.Fprintln(s.out, wrap("- "+d, s.width))
		}
		fmt.Fprintln(s.out, wrap("One of: the pod's policies or knobs are not those given here (--policy-dir, --pressure-weight …); it uses another Redis; "+
			"its memory is stale (inferencecache_log_silence_seconds on its /metrics, lookupctl doctor --pods); its budget ran out.", s.width))
	}
}

// podPause is how long a difference between pod and index may be news on its way.
const podPause = 300 * time.Millisecond
