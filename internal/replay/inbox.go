package replay

import (
	"slices"
	"time"
)

// Inbox is for event-driven code. Such code begins steps, timers and children through the inbox,
// and waits for the next result or signal, whichever comes first in the history. Pending futures
// are linked to a scope of the inbox, and notify the inbox when they are resolved. So a wait costs
// the same, however many futures are pending. The scope is detached: a cancel request ends a wait
// (see Next), but not the pending futures.
type Inbox struct {
	x     Ctx       // the context whose scope has all pending futures
	ready []*Future // resolved and not handed out, in the order of their resolution
}

// Inbox opens the inbox of the run. From now on every signal goes into the inbox. Inbox also puts
// into it the signals that have arrived and that the code has not taken.
func (x Ctx) Inbox() *Inbox {
	x.must("Inbox")
	m := x.co.m
	if m.inbox != nil {
		panic(misuse("the execution has an inbox already"))
	}
	b := &Inbox{x: x.Detached()}
	b.x.scope.inbox = b
	m.inbox = b

	var kept []int
	for _, q := range m.signals {
		kept = append(kept, q.received...)
		q.received = nil
	}

	slices.Sort(kept)
	for _, i := range kept {
		b.signal(i)
	}
	return b
}

// signal puts a signal into the inbox. The code takes the signal when Next returns it.
func (b *Inbox) signal(i int) {
	m := b.x.co.m
	f := &Future{m: m, kind: futureSignal, co: b.x.co, name: m.r.events[i].Name, scope: b.x.scope}
	m.bindSignal(f, i)
}

// Step begins a step.
func (b *Inbox) Step(s *Step) *Future { return b.add(b.x.StepFuture(s)) }

// Timer begins a timer that is identified by a key. caller is the program counter of user code, for
// errors.
func (b *Inbox) Timer(key string, d time.Duration, caller uintptr) *Future {
	return b.add(b.x.timer(&identity{kind: askTimer, key: key, keyed: true, caller: caller}, d))
}

// Child starts an execution as a child.
func (b *Inbox) Child(c Child) *Future {
	a, _, err := b.x.startChild("Start", c)
	if err != nil {
		return b.Failed(err)
	}
	return b.add(&a.fut)
}

// Failed returns the future of a call that is not allowed. The inbox hands it out like any other
// future.
func (b *Inbox) Failed(err error) *Future { return b.add(failedFuture(err)) }

// add lets the inbox return the future once it is resolved. The future may be resolved already, by
// an event that was recorded before the code asked.
func (b *Inbox) add(f *Future) *Future {
	if f.done {
		b.push(f)
	}
	return f.bind(b.x.scope)
}

// push adds a future that has been resolved, and wakes the waiting coroutine.
func (b *Inbox) push(f *Future) {
	b.ready = append(b.ready, f)
	if c := b.x.co; c.wait.inbox == b {
		c.wake()
	}
}

// Withdraw gives up on a future that the inbox has not handed out. After that the inbox never hands
// the future out.
func (b *Inbox) Withdraw(f *Future) {
	b.x.must("Cancel")
	f.unbind()
	f.scope = nil
	if i := slices.Index(b.ready, f); i >= 0 {
		b.ready = slices.Delete(b.ready, i, i+1)
	}
	b.x.co.m.cancel(f)
}

// Next waits for the next resolved future and returns it. If the future is that of a signal, Next
// takes the signal. If the scope of x ends first, Next returns the error of that scope.
func (b *Inbox) Next(x Ctx) (*Future, error) {
	if err := x.enter("Next"); err != nil {
		return nil, err
	}

	for len(b.ready) == 0 {
		if err := x.scope.endError(); err != nil {
			return nil, err
		}
		w := &x.co.wait
		w.members, w.inbox = nil, b
		x.co.parkUnder(x.scope)
		w.inbox = nil
	}

	f := b.ready[0]
	b.ready[0] = nil
	b.ready = b.ready[1:]
	f.observed = true
	if f.kind == futureSignal {
		x.co.m.take(x.co, f)
	}

	return f, nil
}

// pendingFutures returns the first pending futures, and among them a running step, if there is one.
func (b *Inbox) pendingFutures() []*Future {
	var fs []*Future
	running := b.x.co.m.r.running.Load() == 0 // true if the loop need not look for a running step
	for n := b.x.scope.pending.first; n != nil && (len(fs) < maxWaits || !running); n = n.next {
		f := n.value
		runs := f.kind == futureStep && f.ask.state == stepRunning
		switch {
		case len(fs) < maxWaits:
			fs = append(fs, f)
		case runs:
			fs[maxWaits-1] = f
		}
		running = running || runs
	}
	return fs
}

// CancelReason returns the reason of the cancel request; empty while the code has got none.
func (x Ctx) CancelReason() string {
	x.must("Cancel")
	if c := x.co.m.canceled; c != nil {
		return c.Message
	}
	return ""
}
