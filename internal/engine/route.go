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

// waiting is who is told an answer of a lane.
type waiting interface{ finish(a *lane.Answer) }

// call is somebody who waits for an answer of a lane.
type call struct {
	done   chan struct{}
	once   sync.Once
	answer lane.Answer
	// what a reply in the store is compared with; nil where none is looked for
	asked *model.Message
	reply store.RequestKey // where that reply was found
}

func newCall() *call { return &call{done: make(chan struct{})} }

func (c *call) finish(a *lane.Answer) {
	c.once.Do(func() {
		c.answer = *a
		close(c.done)
	})
}

// finishWith is finish with an answer that was found in the store.
func (c *call) finishWith(a *lane.Answer, reply store.RequestKey) {
	c.once.Do(func() {
		c.answer, c.reply = *a, reply
		close(c.done)
	})
}

// Send delivers a message of a client to its address, wherever it is owned, and returns the answer.
// Losing the lease in between is not the caller's business: the message has a request id, so it is
// simply sent again. When ctx ends first, it may or may not take effect. An error of the kinds
// Exhausted and Blocked means that it has not been taken.
func (e *Engine) Send(ctx context.Context, m *model.Message) (model.Answer, error) {
	m, fresh := named(m)
	taken := false // perhaps, by an owner that has lost its lease since
	for served := (<-chan struct{})(nil); ; served = e.served.listen() {
		a, err := e.sendLocal(ctx, m, fresh, false)
		if !errors.Is(err, lane.ErrNotOwner) {
			return a.Answer, unsure(err, taken)
		}
		taken = taken || a.Token != nil
		if e.cfg.Store.Info().Shared {
			answer, err := e.clerk.send(ctx, m, taken)
			return answer, unsure(err, taken)
		}
		// The only node there can be is between two incarnations, or not ready yet. The first look
		// was made without listening: look again.
		fresh = false
		if served != nil && !e.await(ctx, served) {
			return model.Answer{}, e.gaveUp(ctx, "send %s to %s: the node does not serve its shards", m.Kind, m.To)
		}
	}
}

// unsure turns a refusal of a message that an earlier owner may have taken into an error that does
// not say so.
func unsure(err error, taken bool) error {
	if taken && (fault.Is(err, fault.Exhausted) || fault.Is(err, fault.Blocked)) {
		return fault.New(fault.Unavailable, "the node that had the message lost its lease, and the next one refuses it: %w", err)
	}
	return err
}

// Reach tells whether messages can be sent now: the store answers and, unless this is a guest, the
// node has its lease.
func (e *Engine) Reach(ctx context.Context) error {
	if inc := e.current(); !e.cfg.Guest && (inc == nil || !inc.serving()) {
		return fault.New(fault.Unavailable, "the node does not serve its shards")
	}
	// any read will do; this one finds nothing
	if _, err := e.cfg.Store.LoadReplies(ctx, []store.RequestKey{{}}); err != nil {
		return fault.New(fault.Unavailable, "the store does not answer: %w", err)
	}
	return nil
}

// Remembers is how long the answer to a request id is kept at least, by whichever node owns its
// target.
func (e *Engine) Remembers() time.Duration { return LeastRetainRequest }

// Query asks the code of the current run of an address, wherever it is owned. A node that cannot be
// sure of its lease answers nothing: what it has in memory may be out of date.
func (e *Engine) Query(ctx context.Context, m *model.Message) (model.Answer, error) {
	for tries := 0; ; tries++ {
		served := e.served.listen()
		inc := e.current()
		a, err := e.sendLocal(ctx, m, true, false)
		more := true

		switch {
		case errors.Is(err, lane.ErrNotOwner) && e.cfg.Store.Info().Shared:
			return e.clerk.send(ctx, m, false)
		case errors.Is(err, lane.ErrNotOwner):
			more = e.await(ctx, served)
		case inc != nil && inc.serving() && !errors.Is(err, lane.ErrAskAgain):
			return a.Answer, err
		case ctx.Err() != nil && err != nil:
			return model.Answer{}, err
		case ctx.Err() != nil:
			// what somebody answers who is not sure to be the owner is no answer, also for the last
			// time
			more = false
		case tries > 2:
			more = e.pause(ctx, storePause)
		}

		if !more {
			return model.Answer{}, e.gaveUp(ctx, "query %s of %s", m.Name, m.To)
		}
	}
}

// Execute is Send of a start and Await of the chain that has the key then. When this node owns the
// shard and the start begins the execution, as is usual, the owner is asked once.
func (e *Engine) Execute(ctx context.Context, m *model.Message) (lane.Result, error) {
	m, fresh := named(m)
	switch a, err := e.sendLocal(ctx, m, fresh, true); {
	case a.Result != nil:
		return *a.Result, nil
	case a.Begun: // and its owner is gone
	case errors.Is(err, lane.ErrNotOwner) || fault.Is(err, fault.Unavailable) && ctx.Err() == nil:
		if _, err := e.Send(ctx, m); err != nil {
			return lane.Result{}, err
		}
	case err != nil:
		return lane.Result{}, err
	}
	return e.Await(ctx, m.To, model.RunID{})
}

// named gives a message a request id if repeating it could do harm. fresh tells that no id can have
// been used before.
func named(m *model.Message) (_ *model.Message, fresh bool) {
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

// repeatable messages change nothing the second time, even without a request id.
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
		return m.Name == model.MailboxList || m.Name == model.MailboxShow
	case model.MessageRequeue:
		return m.Letter.Do == model.LetterPurge
	}

	return false
}

// awaited reports whether the answer to a message may come long after the message has been
// accepted.
func awaited(m *model.Message) bool {
	return m.Kind == model.MessageUpdate || m.Kind == model.MessageQuery || m.Kind == model.MessageCall
}

// sendLocal asks the owner if it is this node: for the answer to a message or, for a start that
// awaits, for the end of what it begins.
func (e *Engine) sendLocal(ctx context.Context, m *model.Message, fresh, awaits bool) (lane.Answer, error) {
	inc := e.current()
	if inc == nil {
		return lane.Answer{}, lane.ErrNotOwner
	}
	shard := m.To.Shard(len(inc.owner))
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
		if awaits || awaited(m) {
			s.forget(m.To, c)
		}
		if awaits {
			return lane.Answer{}, s.gaveUp(ctx, "run of "+m.To.String())
		}
		return lane.Answer{}, s.gaveUp(ctx, "send "+m.Kind.String()+" to "+m.To.String())
	}
}

// Await waits for the end of an execution: of the run if it is given, else of the last run of the
// chain.
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
			return e.clerk.await(ctx, a, run)
		case served != nil:
			more = e.await(ctx, served)
		}

		if !more {
			return lane.Result{}, e.gaveUp(ctx, "wait for %s", a)
		}
	}
}

// awaitLocal registers with the owner first and looks at the store afterwards, so that an end in
// between is heard.
func (e *Engine) awaitLocal(ctx context.Context, a model.Address, run model.RunID) (lane.Result, error) {
	inc := e.current()
	if inc == nil {
		return lane.Result{}, lane.ErrNotOwner
	}
	shard := a.Shard(len(inc.owner))
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
		forget() // it is behind the registration, which is still made
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
