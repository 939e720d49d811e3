package replay

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// signalQueue is for the signals of one name. It holds either signals that have not been given to a
// receive, or receives that wait for a signal, never both.
type signalQueue struct {
	received []int     // indexes of events
	waiting  []*Future // receives with a parked coroutine, in the order in which they began to wait
	bound    []*Future // receives that have a signal which the code has not taken
}

func (q *signalQueue) pop() int {
	i := q.received[0]
	q.received = q.received[1:]
	return i
}

func (m *machine) signalQueue(name string) *signalQueue {
	q := m.signals[name]
	if q == nil {
		if m.signals == nil {
			m.signals = map[string]*signalQueue{}
		}
		q = &signalQueue{}
		m.signals[name] = q
	}
	return q
}

// receive gives a new signal to the receive that has waited longest, or keeps it. An inbox takes
// all signals.
func (m *machine) receive(i int) {
	if m.isHidden(i) {
		return
	}
	if m.inbox != nil {
		m.inbox.signal(i)
		return
	}
	m.offer(m.signalQueue(m.r.events[i].Name), i)
}

// offer gives a signal to the first waiting receive, or keeps it in the order of the history.
func (m *machine) offer(q *signalQueue, i int) {
	if len(q.waiting) == 0 {
		at, _ := slices.BinarySearch(q.received, i)
		q.received = slices.Insert(q.received, at, i)
		return
	}
	f := q.waiting[0]
	q.waiting = q.waiting[1:]
	m.bindSignal(f, i)
}

// bindSignal resolves a receive with a signal. The code takes the signal later, when it gets the
// value of the receive.
func (m *machine) bindSignal(f *Future, i int) {
	e := m.r.events[i]
	f.received, f.out, f.at = int32(i), e.Input, e.At
	if m.inbox == nil {
		q := m.signalQueue(e.Name)
		q.bound = append(q.bound, f)
	}
	m.resolve(f, e.Seq)
}

// unbindSignal notes that a receive no longer has a signal, because the code takes the signal or
// gives it back.
func (m *machine) unbindSignal(f *Future) {
	if q := m.signals[f.name]; q != nil {
		if i := slices.Index(q.bound, f); i >= 0 {
			q.bound = slices.Delete(q.bound, i, i+1)
		}
	}
}

// returnSignal gives back a signal that was bound to a receive and not taken.
func (m *machine) returnSignal(f *Future) {
	f.co.forgetNext(f)
	m.unbindSignal(f)
	m.offer(m.signalQueue(f.name), int(f.received))
}

// take records that the code has taken a signal.
func (m *machine) take(c *Coroutine, f *Future) {
	e := m.r.events[f.received]
	m.preventTake(c, e.Seq)
	f.taken = true
	f.co.forgetNext(f)
	m.unbindSignal(f)
	a := m.newAsk(c.path, &identity{kind: askTaken, name: f.name})
	a.ref, c.taken = e.Seq, e.Seq
	m.serveEarly(a)
	if !a.recorded {
		m.request(a, model.Command{Kind: model.CommandRecord, Event: model.Event{
			Kind: model.EventSignalTaken, ID: a.id, Name: f.name, Ref: e.Seq, Position: a.position,
		}})
	}
}

// Next returns the pending receive of a signal. It returns the same future until the code gets the
// value of that future. So if another future wins a Select, the signal is not lost.
func (x Ctx) Next(name string) *Future {
	if err := x.enter("Next"); err != nil {
		return failedFuture(err)
	}
	c := x.co
	if f := c.next[name]; f != nil {
		return f
	}
	f := &Future{m: c.m, kind: futureSignal, co: c, name: name}
	if c.next == nil {
		c.next = map[string]*Future{}
	}
	c.next[name] = f
	return f
}

func (c *Coroutine) forgetNext(f *Future) {
	if c.next[f.name] == f {
		delete(c.next, f.name)
	}
}

// TryReceive takes a signal if there is one. It takes the signal of a pending receive, or otherwise
// the oldest signal.
func (x Ctx) TryReceive(name string) (model.Payload, bool) {
	x.must("TryReceive")
	c := x.co
	f := c.next[name]
	if f == nil {
		f = &Future{m: c.m, kind: futureSignal, co: c, name: name}
	}
	f.claim()
	if !f.done || f.err != nil {
		return model.Payload{}, false
	}
	_ = x.look(f) // a receive has no error
	return f.out, true
}

// promise is a value that a client, or another execution, settles once.
type promise struct {
	settled int       // index of the event plus 1; 0 while it is open
	waiting []*Future // futures with a parked coroutine
}

func (m *machine) promise(name string) *promise {
	p := m.promises[name]
	if p == nil {
		if m.promises == nil {
			m.promises = map[string]*promise{}
		}
		p = &promise{}
		m.promises[name] = p
	}
	return p
}

// settlePromise notes the value of a promise, unless the promise has one already.
func (m *machine) settlePromise(i int) {
	p := m.promise(m.r.events[i].Name)
	if p.settled > 0 {
		return
	}
	p.settled = i + 1
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		m.fulfil(f, p)
	}
}

// fulfil resolves the future of a promise with its value.
func (m *machine) fulfil(f *Future, p *promise) {
	e := m.r.events[p.settled-1]
	f.out, f.at = e.Output, e.At
	if e.Failure != nil {
		f.err = e.Failure
	}
	m.resolve(f, e.Seq)
}

// Promise returns the value of a promise as a future.
func (x Ctx) Promise(name string) *Future {
	if err := x.enter("Promise"); err != nil {
		return failedFuture(err)
	}
	return &Future{m: x.co.m, kind: futurePromise, name: name}
}

// ---- futures that are resolved only when a coroutine waits for them

// source returns the event that could resolve a receive or the future of a promise now.
func (f *Future) source() (i int, ok bool) {
	switch f.kind {
	case futureSignal:
		if q := f.m.signals[f.name]; q != nil && len(q.received) > 0 {
			return q.received[0], true
		}
	case futurePromise:
		if p := f.m.promises[f.name]; p != nil && p.settled > 0 {
			return p.settled - 1, true
		}
	default:
	}
	return 0, false
}

// claim resolves the future if source finds an event for it.
func (f *Future) claim() {
	if f.done {
		return
	}
	if _, ok := f.source(); !ok {
		return
	}
	if f.kind == futureSignal {
		f.m.bindSignal(f, f.m.signals[f.name].pop())
	} else {
		f.m.fulfil(f, f.m.promises[f.name])
	}
}

// queue lets the future wait for an event that resolves it.
func (m *machine) queue(f *Future) {
	switch f.kind {
	case futureSignal:
		q := m.signalQueue(f.name)
		q.waiting = append(q.waiting, f)
	case futurePromise:
		p := m.promise(f.name)
		p.waiting = append(p.waiting, f)
	default:
	}
}

// unqueue reverses queue.
func (m *machine) unqueue(f *Future) {
	var waiting *[]*Future
	switch f.kind {
	case futureSignal:
		waiting = &m.signalQueue(f.name).waiting
	case futurePromise:
		waiting = &m.promise(f.name).waiting
	default:
		return
	}
	if i := slices.Index(*waiting, f); i >= 0 {
		*waiting = slices.Delete(*waiting, i, i+1)
	}
}
