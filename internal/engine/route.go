package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// waiting receives an answer of a lane.
type waiting interface{ finish(a *lane.Answer) }

// call is a caller that waits for an answer of a lane.
type call struct {
	done   chan struct{}
	once   sync.Once
	answer lane.Answer
	// asked is the request, to compare with a reply in the store. It is nil if the call does not
	// look for a reply.
	asked *model.Message
	reply *store.RequestKey // where the reply was found; nil if it was not in the store
	// ends is nil unless the caller of a start also waits for the end of the execution. In that
	// case the clerk lets ends wait for the run that the reply names.
	ends *call
	run  store.RunKey // that run; zero before the reply was found
}

func newCall() *call { return &call{done: make(chan struct{})} }

func (c *call) finish(a *lane.Answer) {
	c.once.Do(func() {
		c.answer = *a
		close(c.done)
	})
}

// finishWith does the same as finish, with an answer that was found in the store.
func (c *call) finishWith(a *lane.Answer, reply store.RequestKey) {
	c.once.Do(func() {
		c.answer, c.reply = *a, &reply
		close(c.done)
	})
}

// Send delivers a message of a client to its address, on any node, and returns the answer. The
// caller does not notice the loss of a lease: the message has a request id, so Send sends it again.
// If ctx ends first, the message may or may not take effect. An error of kind Exhausted or Blocked
// means that it has no effect.
func (e *Engine) Send(ctx context.Context, m *model.Message) (model.Answer, error) {
	m, fresh := withRequestID(m)
	return e.send(ctx, m, fresh, attempt{})
}

// send does the same as Send, for a message that already has its request id. tried says what became
// of an earlier attempt.
func (e *Engine) send(ctx context.Context, m *model.Message, fresh bool, tried attempt) (model.Answer, error) {
	for served := (<-chan struct{})(nil); ; served = e.served.listen() {
		inc := e.current()
		a, err := e.sendLocal(ctx, m, fresh, false)
		stale := e.mayBeStale(inc, &a)
		if !errors.Is(err, lane.ErrNotOwner) && !stale {
			e.fillReceipt(ctx, m, err == nil && !tried.taken)
			return a.Answer, unsure(err, tried.taken)
		}
		// An owner that has lost its lease since then may have applied the message.
		tried.taken = tried.taken || a.Token != nil || stale

		if e.cfg.Store.Info().Shared {
			a, tried, err := e.sendDirectly(ctx, askSend, m, fresh, tried)
			if !errors.Is(err, lane.ErrNotOwner) {
				e.fillReceipt(ctx, m, err == nil && !tried.taken)
				return a.Answer, unsure(err, tried.taken)
			}
			answer, err := e.clerk.send(ctx, m, tried)
			return answer, unsure(err, tried.taken)
		}

		// The only node of this store is between two incarnations, or not ready yet. The first look
		// was before this goroutine listened to the bell, so look again.
		fresh = false
		if served != nil && !e.await(ctx, served) {
			return model.Answer{}, e.gaveUp(ctx, "send %s to %s: the node does not serve its shards", m.Kind, m.To)
		}
	}
}

// mayBeStale reports whether an answer may be out of date. Such an answer says that an execution
// exists, or refuses the message. The lane gave such an answer from memory without a commit, and
// another node may own the shard by now. The message can be sent again, because it had no effect. A
// message whose effect was committed must not be sent again: the lane removes the remembered answer
// of a caller that it has answered, so the message would take effect twice.
func (e *Engine) mayBeStale(inc *incarnation, a *lane.Answer) bool {
	known := a.Answer.Existing || a.Answer.Failure != nil
	return known && !a.Committed && e.cfg.Store.Info().Shared && (inc == nil || !inc.isServing())
}

// A refusal promises that the message has no effect. unsure changes a refusal into an error without
// that promise, if an earlier owner may have applied the message, or a copy of the message may
// still arrive.
func unsure(err error, taken bool) error {
	if taken && (fault.Is(err, fault.Exhausted) || fault.Is(err, fault.Blocked) || fault.Is(err, fault.Corrupt)) {
		return fault.New(fault.Unavailable, "this copy of the message was refused, but another copy may have taken effect: %w", err)
	}
	return err
}

// Reach reports whether messages can be sent now: the store answers and, unless this is a guest,
// the node has its lease.
func (e *Engine) Reach(ctx context.Context) error {
	if inc := e.current(); !e.cfg.Guest && (inc == nil || !inc.isServing()) {
		return fault.New(fault.Unavailable, "the node does not serve its shards")
	}
	// Any read shows whether the store answers. This read finds nothing.
	if _, err := e.cfg.Store.LoadReplies(ctx, []store.RequestKey{{}}); err != nil {
		return fault.New(fault.Unavailable, "the store does not answer: %w", err)
	}
	return nil
}

// RequestRetention returns the minimum time for which the answer to a request id is kept, whichever
// node owns its target.
func (e *Engine) RequestRetention() time.Duration { return LeastRetainRequest }

// Query asks the code of the current run of an address, on any node. A node that is not sure of its
// lease does not answer: its memory may be out of date.
func (e *Engine) Query(ctx context.Context, m *model.Message) (model.Answer, error) {
	for tries := 0; ; tries++ {
		served := e.served.listen()
		inc := e.current()
		a, err := e.sendLocal(ctx, m, true, false)
		more := true

		switch {
		case errors.Is(err, lane.ErrNotOwner) && e.cfg.Store.Info().Shared:
			a, _, err := e.sendDirectly(ctx, askQuery, m, true, attempt{})
			switch {
			case errors.Is(err, lane.ErrNotOwner) || errors.Is(err, lane.ErrAskAgain) && tries > 2:
				return e.clerk.send(ctx, m, attempt{}) // a second copy changes nothing
			case !errors.Is(err, lane.ErrAskAgain):
				return a.Answer, err
			}
		case errors.Is(err, lane.ErrNotOwner):
			more = e.await(ctx, served)
		case inc != nil && inc.isServing() && !errors.Is(err, lane.ErrAskAgain):
			return a.Answer, err
		case ctx.Err() != nil && err != nil:
			return model.Answer{}, err
		case ctx.Err() != nil:
			// A node that may no longer be the owner must not answer, even if ctx has ended.
			more = false
		case tries > 2:
			more = e.pause(ctx, storePause)
		}

		if !more {
			return model.Answer{}, e.gaveUp(ctx, "query %s of %s", m.Name, m.To)
		}
	}
}

// Execute does a Send of a start, and waits for the end of the execution if the start begins it. If
// this node owns the shard, as is usual, it asks the lane only once. Otherwise the result has no
// outcome, and names the run that the caller must follow. If it names no run, because an older
// build owned the shard, the caller must wait for the last run of the execution.
func (e *Engine) Execute(ctx context.Context, m *model.Message) (lane.Result, error) {
	m, fresh := withRequestID(m)
	inc := e.current()
	a, err := e.sendLocal(ctx, m, fresh, true)
	stale, shared := e.mayBeStale(inc, &a), e.cfg.Store.Info().Shared
	// The same rule as in send: an owner that has lost its lease since then may have applied the
	// message.
	tried := attempt{taken: a.Token != nil || stale}

	switch {
	case a.Result != nil:
		return *a.Result, nil
	case a.Begun: // the execution has begun, but its owner is gone
	case stale, errors.Is(err, lane.ErrNotOwner) && a.Token == nil && shared:
		return e.executeElsewhere(ctx, m, fresh, tried)
	case errors.Is(err, lane.ErrNotOwner) || fault.Is(err, fault.Unavailable) && ctx.Err() == nil:
		a, err := e.send(ctx, m, false, tried)
		return lane.Result{Run: a.Run}, err
	case err != nil:
		return lane.Result{}, err
	}
	return lane.Result{Run: a.Answer.Run}, nil
}

// executeElsewhere does the same as Execute, for an execution that another node owns. tried says
// what became of an earlier attempt.
func (e *Engine) executeElsewhere(ctx context.Context, m *model.Message, fresh bool, tried attempt) (lane.Result, error) {
	a, tried, err := e.sendDirectly(ctx, askRun, m, fresh, tried)
	switch {
	case a.Result != nil:
		return *a.Result, nil
	case a.Begun: // the execution has begun, but its owner is gone
	case errors.Is(err, lane.ErrNotOwner):
		return e.clerk.execute(ctx, m, tried)
	case err != nil:
		return lane.Result{}, unsure(err, tried.taken)
	}
	return lane.Result{Run: a.Answer.Run}, nil
}

// withRequestID gives a message a request id, if sending it twice could do harm. fresh says that
// the id was never used before.
func withRequestID(m *model.Message) (_ *model.Message, fresh bool) {
	if m.RequestID != "" {
		return m, false
	}
	if repeatable(m) {
		return m, true
	}
	c := *m
	c.RequestID, c.Drawn = newID().String(), true
	return &c, true
}

// repeatable reports whether a message changes nothing the second time, even without a request id.
func repeatable(m *model.Message) bool {
	switch m.Kind {
	case model.MessageStart:
		return m.Reuse == model.ReturnExisting && len(m.With) == 0 && m.Past == nil
	case model.MessageCancel, model.MessageWatch, model.MessageNothing, model.MessageClosed, model.MessageAnswer, model.MessageQuery, model.MessageWrite,
		model.MessageLock, model.MessageGrant, model.MessageRelease:
		return true
	case model.MessageCall:
		return m.Brief
	case model.MessageSignal, model.MessageSettle, model.MessageUpdate, model.MessageTerminate, model.MessagePause, model.MessageResume,
		model.MessageDelete, model.MessageReport, model.MessageUnlock:
	case model.MessageMailbox:
		return m.Name == model.MailboxList || m.Name == model.MailboxShow || m.Name == model.MailboxInterrupt
	case model.MessageRequeue:
		return m.DeadTask.Do == model.DeadTaskPurge
	}

	return false
}

// isAwaited reports whether the answer may arrive long after the owner has accepted the message.
func isAwaited(m *model.Message) bool {
	return m.Kind == model.MessageUpdate || m.Kind == model.MessageQuery || m.Kind == model.MessageCall
}

// sendLocal passes a message to the lane of its address, if this node owns that address. It waits
// for the answer or, for a start with awaits, for the end of the execution.
func (e *Engine) sendLocal(ctx context.Context, m *model.Message, fresh, awaits bool) (lane.Answer, error) {
	inc := e.current()
	if inc == nil {
		return lane.Answer{}, lane.ErrNotOwner
	}
	shard := inc.shardOf(m.To)
	s := inc.lane(shard)
	if s == nil && m.Kind == model.MessageWrite {
		s = inc.keeper(shard)
	}
	if s == nil {
		return lane.Answer{}, lane.ErrNotOwner
	}

	c := newCall()
	if err := s.inbox.put(ctx, op{message: m, fresh: fresh, token: c, awaits: awaits}); err != nil {
		return lane.Answer{}, err
	}

	select {
	case <-c.done:
		return c.answer, c.answer.Err
	case <-ctx.Done():
		if awaits || isAwaited(m) {
			s.forget(m.To, c)
		}
		if awaits {
			return lane.Answer{}, s.gaveUp(ctx, "run of "+m.To.String())
		}
		return lane.Answer{}, s.gaveUp(ctx, "send "+m.Kind.String()+" to "+m.To.String())
	}
}

// Await waits for the end of an execution: of the given run, or of the last run of the chain if run
// is zero.
func (e *Engine) Await(ctx context.Context, a model.Address, run model.RunID) (lane.Result, error) {
	for served := (<-chan struct{})(nil); ; served = e.served.listen() {
		r, err := e.awaitLocal(ctx, a, run)
		more := true
		switch {
		case !errors.Is(err, lane.ErrNotOwner):
			if !fault.Is(err, fault.Unavailable) || ctx.Err() != nil {
				return r, err
			}
			more = e.pause(ctx, storePause) // the store cannot be read
		case e.cfg.Store.Info().Shared:
			got, _, err := e.askDirectly(ctx, &ask{Kind: askAwait, Address: a, Run: run})
			if got.Result != nil {
				return *got.Result, nil
			}
			if err != nil && !fault.Is(err, fault.Unavailable) {
				return lane.Result{}, err
			}
			if r, err := e.clerk.await(ctx, a, run); !errors.Is(err, errOursNow) {
				return r, err
			}
		case served != nil:
			more = e.await(ctx, served)
		}

		if !more {
			return lane.Result{}, e.gaveUp(ctx, "wait for %s", a)
		}
	}
}

// awaitLocal first registers with the owner and then looks at the store, so that it does not miss
// an end in between.
func (e *Engine) awaitLocal(ctx context.Context, a model.Address, run model.RunID) (lane.Result, error) {
	inc := e.current()
	if inc == nil {
		return lane.Result{}, lane.ErrNotOwner
	}
	shard := inc.shardOf(a)
	s := inc.lane(shard)
	if s == nil {
		return lane.Result{}, lane.ErrNotOwner
	}

	c, registered := newCall(), newCall()
	var sure bool
	err := s.inbox.put(ctx, op{token: registered, do: func(l *lane.Lane, _ model.Time) {
		var err error
		sure, err = l.Await(a, run, c)
		registered.finish(&lane.Answer{Err: err})
	}})
	if err != nil {
		return lane.Result{}, err
	}

	forget := func() { s.forget(a, c) }
	select {
	case <-registered.done:
	case <-ctx.Done():
		forget() // queued after the registration, so it undoes the registration
		return lane.Result{}, fault.New(fault.KindOf(ctx.Err()), "wait for %s: %w", a, context.Cause(ctx))
	}

	if err := registered.answer.Err; err != nil {
		return lane.Result{}, err
	}

	if !sure {
		row, err := e.cfg.Store.LoadExecution(ctx, shard, a, run)
		switch {
		case err != nil:
			forget()
			return lane.Result{}, err
		case row == nil:
			forget()
			return lane.Result{}, fault.New(fault.NotFound, "execution %s does not exist", a)
		case row.Outcome.Status.Closed() && (!run.IsZero() || row.Outcome.Status != model.Continued):
			forget()
			return lane.Result{Run: row.Start.Run, Outcome: row.Outcome}, nil
		}

		if err := core.LimitReached(a, row.Blocked); err != nil {
			forget()
			return lane.Result{}, err
		}
	}

	select {
	case <-c.done:
		if c.answer.Result == nil {
			return lane.Result{}, c.answer.Err
		}
		return *c.answer.Result, nil
	case <-ctx.Done():
		forget()
		return lane.Result{}, fault.New(fault.KindOf(ctx.Err()), "wait for %s: %w", a, context.Cause(ctx))
	}
}
