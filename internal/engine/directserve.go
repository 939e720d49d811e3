package engine

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/store"
)

// linkHandler implements peerlink.Handler for an incarnation.
type linkHandler struct {
	inc   *incarnation
	looks looks
}

// served is a request of another node that a lane answers.
type served struct {
	inc     *incarnation
	request *peerlink.Request
	kind    askKind
}

// finish sends the answer. If this node is not sure of its lease, it does not answer from memory.
// In that case the other node asks the new owner, or sends the request through the store.
func (s *served) finish(a *lane.Answer) {
	t := s.judge(a)
	if t == nil {
		t = tell(a)
	}
	s.request.Reply(t.size(), func(dst []byte) []byte { return append(dst, mustEncode(t)...) })
}

// IsForwarded implements lane.Forwarded.
func (s *served) IsForwarded() {}

// judge returns what the other node gets instead of the answer. It returns nil if the other node
// gets the answer.
func (s *served) judge(a *lane.Answer) *told {
	serving := s.inc.isServing()
	switch {
	case errors.Is(a.Err, lane.ErrNotOwner):
		return &told{Moved: true, Taken: a.Token != nil, Begun: a.Begun, Run: begunRun(a)}
	case a.Result != nil: // the result is durable, whichever node is the owner
		return nil
	case s.kind == askQuery && !serving:
		return &told{Err: &toldError{Known: 1}} // ask again
	case s.kind == askBrief && a.Err == nil && !serving:
		return tell(&lane.Answer{Err: lane.ErrInterrupted}) // the new owner does not have this call
	case s.kind == askQuery || s.kind == askBrief:
		return nil
	case !serving && !a.Committed && (a.Answer.Existing || a.Answer.Failure != nil), isEnding(a.Err):
		return &told{Moved: true, Taken: true, Begun: a.Begun, Run: begunRun(a)}
	}

	return nil
}

// begunRun returns the run that a start has begun although its answer is an error. It returns zero
// if there is no such run.
func begunRun(a *lane.Answer) model.RunID {
	if !a.Begun {
		return model.RunID{}
	}
	return a.Answer.Run
}

// isEnding reports whether an error means that the lane has ended, or cannot answer for another
// reason, while the next owner may be able to answer.
func isEnding(err error) bool {
	return fault.Is(err, fault.Unavailable) && !errors.Is(err, lane.ErrInterrupted) && !errors.Is(err, lane.ErrAskAgain) && !errors.Is(err, lane.ErrLater)
}

// HandleRequest implements peerlink.Handler.
func (h *linkHandler) HandleRequest(ctx context.Context, r *peerlink.Request, taken func()) {
	if !r.IsWaiting() {
		taken()
		return
	}
	q, err := decodeAsk(r.Body)
	if err != nil {
		// A newer build may ask for something that this build does not know.
		h.inc.eng.cfg.Log.Warn("cannot read a request of another node; it goes through the store", "node", r.From.String(), "error", err)
		reply(r, &told{Moved: true, Taken: true})
		taken()
		return
	}

	if q.Kind == askFeed {
		h.serveFeed(r, q.Feed)
		taken()
		return
	}

	shard := h.inc.shardOf(q.to())
	s := h.inc.lane(shard)
	if s == nil && q.message != nil && q.message.Kind == model.MessageWrite {
		s = h.inc.keeper(shard)
	}
	if s == nil || q.Epoch != h.inc.epoch {
		reply(r, &told{Moved: true})
		taken()
		return
	}

	if q.Kind == askItems {
		h.serveItems(r, q)
		taken()
		return
	}
	token := &served{inc: h.inc, request: r, kind: q.Kind}
	if q.Kind == askAwait {
		h.await(ctx, s, &q, token, taken)
		return
	}

	m := q.message
	m.Linked = r.Link
	to, awaits, awaited := m.To, q.Kind == askRun, isAwaited(m)
	// The tenure is how often this node had acquired shards when the caller certainly still used
	// the connection. If this node has acquired shards since, isFresh returns false: the caller may
	// have given up the connection and sent a copy through the store, and another owner may have
	// applied the copy before this node got the shard back.
	o := op{message: m, fresh: q.Fresh, token: token, awaits: awaits, tenure: int64(r.Since), arrived: h.inc.eng.clock.now()}
	s.line.put(ctx, s, o, func(err error) {
		defer taken()
		switch {
		case err != nil:
			token.refuse(err)
		case awaits || awaited:
			// This comes after put, so that the lane forgets the caller after it has taken the
			// request.
			r.OnCancel(func() { s.forget(to, token) })
		}
	})
}

// refuse answers a request that no lane has taken. If there was no room for the request, it goes
// through the store.
func (s *served) refuse(err error) {
	if errors.Is(err, errLineFull) {
		reply(s.request, &told{Moved: true, Taken: true})
		return
	}
	s.finish(&lane.Answer{Err: err})
}

func reply(r *peerlink.Request, t *told) {
	r.Reply(0, func(dst []byte) []byte { return append(dst, mustEncode(t)...) })
}

// await registers another node that waits for the end of an execution. If the lane does not know
// the execution, await then looks at the store, so that it does not miss an end before the
// registration.
func (h *linkHandler) await(ctx context.Context, s *laneShell, q *ask, token *served, taken func()) {
	a, run := q.Address, q.Run
	o := op{token: token, do: func(l *lane.Lane, _ model.Time) {
		sure, err := l.Await(a, run, token)
		switch {
		case err != nil:
			token.finish(&lane.Answer{Err: err})
		case !sure:
			h.looks.start(h.inc.eng, func(ctx context.Context) { h.look(ctx, s, q, token) })
		}
	}}
	s.line.put(ctx, s, o, func(err error) {
		defer taken()
		if err != nil {
			token.refuse(err)
			return
		}
		// This comes after put, so that the lane forgets the caller after it has registered the
		// caller.
		token.request.OnCancel(func() { s.forget(a, token) })
	})
}

// look answers an await if the execution has ended, cannot end, or does not exist.
func (h *linkHandler) look(ctx context.Context, s *laneShell, q *ask, token *served) {
	if !token.request.IsWaiting() {
		return // the lane forgets the caller
	}
	row, err := h.inc.eng.cfg.Store.LoadExecution(ctx, h.inc.shardOf(q.Address), q.Address, q.Run)
	answer := lane.Answer{Err: err}
	switch {
	case err != nil:
	case row == nil:
		answer.Err = fault.New(fault.NotFound, "execution %s does not exist", q.Address)
	case row.Outcome.Status.Closed() && (!q.Run.IsZero() || row.Outcome.Status != model.Continued):
		answer.Result = &lane.Result{Run: row.Start.Run, Outcome: row.Outcome}
	default:
		if answer.Err = core.LimitReached(q.Address, row.Blocked); answer.Err == nil {
			return // the lane answers when the execution ends
		}
	}
	s.forget(q.Address, token)
	token.finish(&answer)
}

// joinLinks connects the incarnation with the other nodes, if the process listens for them.
func (inc *incarnation) joinLinks() {
	end := inc.eng.cfg.Peers
	if end == nil || !inc.eng.cfg.Store.Info().Shared {
		return
	}
	info := inc.eng.cfg.Store.Info()
	inc.links = end.Join(peerlink.Member{
		Self: inc.self.ID, Cluster: info.Cluster, Schema: info.Version,
		Handler:    &linkHandler{inc: inc},
		LookAround: func() { inc.post(inc.member.RenewNow) },
	})
}

// linkWith tells the connections which nodes are alive, and remembers which node owns which shard.
func (inc *incarnation) linkWith(v *store.View) {
	if inc.links == nil {
		return
	}
	inc.shardMap.Store(&v.Owners)
	var peers []peerlink.Peer
	for i := range v.Members {
		if m := &v.Members[i]; m.Expires >= v.Now {
			peers = append(peers, peerlink.Peer{Node: m.ID, Address: m.LinkAddress, Fingerprint: m.LinkKey})
		}
	}
	inc.setFeedPeers(peers)
	inc.links.SetPeers(peers)
}
