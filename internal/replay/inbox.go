package replay

import (
	"slices"
	"time"
)

// Inbox is how event-driven code waits: for whatever comes next of all that it has begun through
// the inbox, and of all signals, in the order of the history. What is pending is linked to a scope
// of the inbox and says so when it is resolved, so that a wait costs the same however much is
// pending. The scope is detached: a cancel request ends a wait (see Next), not what is pending.
type Inbox struct {
	x     Ctx       // whose scope is that of everything which is pending
	ready []*Future // resolved and not handed out, in the order of their resolution
}

// Inbox opens the inbox of the run. From now on every signal goes there; those that nobody has
// taken are in it already.
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

// signal puts a signal into the inbox. It is taken when Next hands it out.
func (b *Inbox) signal(i int) {
	m := b.x.co.m
	f := &Future{m: m, kind: futureSignal, co: b.x.co, name: m.r.events[i].Name, scope: b.x.scope}
	m.bindSignal(f, i)
}

// Step begins a step.
func (b *Inbox) Step(s *Step) *Future { return b.add(b.x.StepFuture(s)) }

// Timer begins a timer that is identified by a key. caller is the program counter of user code, for
// messages.
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

// Failed is the future of a call that was wrong: the inbox hands it out like any other.
func (b *Inbox) Failed(err error) *Future { return b.add(failed(err)) }

// add has the inbox hand the future out once it is resolved, which it may be already: by what was
// recorded before the code asked.
func (b *Inbox) add(f *Future) *Future {
	if f.done {
		b.push(f)
	}
	return f.bind(b.x.scope)
}

// push is told of every future of the inbox that is resolved.
func (b *Inbox) push(f *Future) {
	b.ready = append(b.ready, f)
	if c := b.x.co; c.wait.inbox == b {
		c.wake()
	}
}

// Withdraw gives up on something that is pending. The inbox does not hand it out any more.
func (b *Inbox) Withdraw(f *Future) {
	b.x.must("Cancel")
	f.unbind()
	f.scope = nil
	if i := slices.Index(b.ready, f); i >= 0 {
		b.ready = slices.Delete(b.ready, i, i+1)
	}
	b.x.co.m.cancel(f)
}

// Next waits for what is resolved next. A signal is taken thereby. The error is that of the scope
// of x.
func (b *Inbox) Next(x Ctx) (*Future, error) {
	if err := x.enter("Next"); err != nil {
		return nil, err
	}

	for len(b.ready) == 0 {
		if err := x.scope.ended(); err != nil {
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

// waits are the first of what is pending, and among them a step that runs, if one does.
func (b *Inbox) waits() []*Future {
	var fs []*Future
	running := b.x.co.m.r.running.Load() == 0 // or named already
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

// CancelReason is the reason of the cancel request, once it has ended the scope of the run.
func (x Ctx) CancelReason() string {
	x.must("Cancel")
	if c := x.co.m.canceled; c != nil {
		return c.Message
	}
	return ""
}
