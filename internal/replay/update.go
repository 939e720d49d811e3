package replay

import (
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// UpdateHandler serves an update. Seal returns the stored form of the answer; it may be nil.
type UpdateHandler struct {
	Serve func(Ctx, model.Payload) (model.Payload, error)
	Seal  Seal
}

// updateQueue is the handler for the updates of one name, and the updates that wait for a handler.
type updateQueue struct {
	handler *UpdateHandler
	waiting []int // indexes of events
}

// handling is an update that is being served.
type handling struct {
	received *model.Event
	handler  *UpdateHandler
	fut      *Future
}

func (m *machine) updateQueue(name string) *updateQueue {
	q := m.updates[name]
	if q == nil {
		if m.updates == nil {
			m.updates = map[string]*updateQueue{}
		}
		q = &updateQueue{}
		m.updates[name] = q
	}
	return q
}

// HandleUpdate registers the handler for updates of the name. The handler serves waiting updates
// first, in the order in which they arrived.
func (x Ctx) HandleUpdate(name string, h UpdateHandler) {
	x.must("Handle")
	m := x.co.m
	q := m.updateQueue(name)
	q.handler = &h
	waiting := q.waiting
	q.waiting = nil
	for _, i := range waiting {
		m.serveUpdate(q, i)
	}
}

// updateReceived serves an update, or keeps it until the code has a handler.
func (m *machine) updateReceived(i int) {
	q := m.updateQueue(m.r.events[i].Name)
	if q.handler == nil {
		q.waiting = append(q.waiting, i)
		return
	}
	m.serveUpdate(q, i)
}

// servedUpdates are the updates whose handlers have begun.
type servedUpdates struct {
	handling []*handling // those that have not answered, in order
	cutOff   []int64     // positions of those whose handlers were cut off
}

// serveUpdate serves an update in a coroutine of its own, whose path is the position of the update.
func (m *machine) serveUpdate(q *updateQueue, i int) {
	e := m.r.events[i]
	serving := &handling{received: e, handler: q.handler}
	serving.fut = m.spawn("u"+itoa(int(e.Seq)), m.rootScope, func(x Ctx) (any, error) {
		out, err := serve(x, serving.handler, e.Input)
		m.recordReply(x.co, serving, out, err)
		return nil, nil
	})
	if m.served == nil {
		m.served = new(servedUpdates)
	}
	m.served.handling = append(m.served.handling, serving)
}

// serve calls a handler and turns a panic into an error.
func serve(x Ctx, h *UpdateHandler, in model.Payload) (out model.Payload, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = model.Payload{}, PanicFailure(p)
		}
	}()
	return x.co.m.w.probeError(h.Serve(x, in))
}

// recordReply records the answer to an update.
func (m *machine) recordReply(c *Coroutine, served *handling, out model.Payload, err error) {
	received := served.received
	begun := m.served
	if i := slices.Index(begun.handling, served); i >= 0 {
		begun.handling = append(begun.handling[:i:i], begun.handling[i+1:]...)
	}

	a := m.newAsk(c.path, &identity{kind: askReply, name: received.Name})
	a.ref = received.Seq
	m.serveEarly(a)
	if a.recorded {
		return
	}
	e := model.Event{Kind: model.EventUpdateAnswered, ID: a.id, Name: received.Name, Ref: received.Seq, Output: out}

	if err != nil {
		e.Output, e.Failure = model.Payload{}, m.w.cfg.Failure(err)
	} else {
		a.seal = served.handler.Seal
	}

	m.request(a, model.Command{Kind: model.CommandAnswer, Event: e})
}

// WaitUpdates waits until every update that has begun is answered. That includes updates that
// arrive during the wait.
func (x Ctx) WaitUpdates() error {
	for {
		if err := x.enter("WaitUpdates"); err != nil {
			return err
		}
		begun := x.co.m.served
		if begun == nil {
			return nil
		}

		fs := make([]*Future, 0, len(begun.handling))
		for _, h := range begun.handling {
			if h.fut.co != x.co { // a handler that calls WaitUpdates does not wait for itself
				fs = append(fs, h.fut)
			}
		}
		if len(fs) == 0 {
			return nil
		}
		if err := x.await(waitDone, 0, fs); err != nil {
			return err
		}
	}
}

// abandonUpdates gives up on the updates that handlers are serving, because their coroutines end.
// The engine refuses these updates when the run ends.
func (m *machine) abandonUpdates() {
	begun := m.served
	if begun == nil {
		return
	}
	for _, h := range begun.handling {
		if h.fut.co.started {
			begun.cutOff = append(begun.cutOff, h.received.Seq)
		}
	}
	begun.handling = nil
}

// ---- interrupts

// OnInterrupt runs fn when the execution is cancelled, in a coroutine that the cancel request does
// not end. The run does not end before fn returns.
func (x Ctx) OnInterrupt(fn func(Ctx, string) error) {
	x.must("OnInterrupt")
	m := x.co.m
	h := m.addedHooks()
	h.interrupts = append(h.interrupts, fn)
	if m.canceled != nil {
		m.interrupt(fn)
	}
}

// cancelRequested applies the first cancel request: it starts the interrupts and ends the root
// scope.
func (m *machine) cancelRequested(why *model.Failure) {
	if m.canceled != nil {
		return
	}
	if why == nil {
		why = &model.Failure{Kind: model.FailureCanceled}
	}
	m.canceled = why
	if m.hooks != nil {
		for _, fn := range m.hooks.interrupts {
			m.interrupt(fn)
		}
	}
	m.rootScope.end(ErrCanceled)
}

// interrupt runs a function of OnInterrupt.
func (m *machine) interrupt(fn func(Ctx, string) error) {
	path := "i" + itoa(len(m.hooks.interrupted)+1)
	f := m.spawn(path, nil, func(x Ctx) (any, error) { return nil, fn(x, m.canceled.Message) })
	m.hooks.interrupted = append(m.hooks.interrupted, f)
}

// afterInterrupts waits for the functions of OnInterrupt and returns their errors.
func (m *machine) afterInterrupts() error {
	h := m.hooks
	if h == nil {
		return nil
	}
	defer func() { h.interrupts = nil }() // a cancel request that arrives now is too late
	if len(h.interrupted) == 0 {
		return nil
	}
	root := Ctx{m.root, m.rootScope}

	var all error
	for n := 0; n < len(h.interrupted); { // a function may add another one
		fs := h.interrupted[n:]
		_ = root.Detached().await(waitDone, 0, fs) // a detached scope does not end
		for _, f := range fs {
			f.observed = true
			all = errors.Join(all, f.err)
		}
		n += len(fs)
	}

	return all
}
