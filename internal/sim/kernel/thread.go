package kernel

import (
	"fmt"
	"iter"
	"runtime/debug"
)

// thread runs production code that blocks: it waits for an answer of the store, for its turn, or
// for a time. A thread is a coroutine. While it runs, nothing else runs. When its wait is over, it
// continues in an event of its process. So the thread has its place in the order of events, as the
// state machines have. The threads of a dead or paused process do not run.
type thread struct {
	p         *Process
	do        func() // nil if it has no work
	next      func() (struct{}, bool)
	stop      func()
	yield     func(struct{}) bool
	abandoned bool
	User      bool // it works for a user
}

// Spawn starts a thread of a process. It reuses a coroutine without work, because a new one has a
// small stack that has to grow first.
func (p *Process) Spawn(do func()) {
	s := p.k
	var t *thread
	if n := len(s.resting); n > 0 {
		t, s.resting = s.resting[n-1], s.resting[:n-1]
	} else {
		t = &thread{}
		t.next, t.stop = iter.Pull(t.loop)
	}
	t.p, t.do, t.User = p, do, false
	p.Threads++
	s.threads[t] = true
	t.run()
}

// loop runs one function after the other.
func (t *thread) loop(yield func(struct{}) bool) {
	t.yield = yield
	defer t.ends()
	for {
		t.do()
		t.do = nil
		if !yield(struct{}{}) {
			return
		}
	}
}

// ends handles the panic of a thread. If the kernel has abandoned the thread, the thread ends
// silently. A Violation is passed on as it is. To any other panic, ends adds the stack of the
// thread, because the event loop would report only its own.
func (t *thread) ends() {
	r := recover()
	if r == nil || t.abandoned {
		return
	}
	if _, broken := r.(Violation); !broken {
		r = fmt.Errorf("%v\n%s", r, debug.Stack())
	}
	panic(r)
}

// run lets a thread continue until it waits or has finished. The caller is an event of its process.
func (t *thread) run() {
	p, s := t.p, t.p.k
	s.Running = t
	t.next()
	s.Running = nil
	if t.do == nil {
		p.Threads--
		delete(s.threads, t)
		s.resting = append(s.resting, t)
	}
	p.nextTurn()
}

// Wait suspends the running thread. The function begin starts the operation that the thread waits
// for. The operation calls done in an event of the process, and the thread continues.
func (s *Kernel) Wait(begin func(done func())) {
	t := s.Running
	if t == nil {
		s.Fail("Wait was called outside a thread")
	}
	begin(t.run)
	if !t.yield(struct{}{}) {
		panic("abandoned")
	}
}

// Sleep suspends the running thread for a while.
func (s *Kernel) Sleep(d int64) {
	p := s.Running.p
	s.Wait(func(done func()) { s.After(d, p, done) })
}

// Abandon ends all threads.
func (s *Kernel) Abandon() {
	for t := range s.threads {
		t.abandoned = true
		t.stop()
	}
	for _, t := range s.resting {
		t.stop()
	}
}

// turn is a caller that waits for its turn.
type turn struct {
	ready <-chan struct{}
	done  func()
}

// Receive suspends the running thread until it can receive from ready. Threads are served in order
// of arrival.
func (p *Process) Receive(ready <-chan struct{}) {
	if len(p.line) == 0 {
		select {
		case <-ready:
			return
		default:
		}
	}
	p.k.Wait(func(done func()) { p.line = append(p.line, turn{ready, done}) })
}

// nextTurn lets the first waiting thread continue if its turn has come. Only a running thread can
// end the wait of another thread, so the process calls nextTurn after a thread has run.
func (p *Process) nextTurn() {
	if len(p.line) == 0 {
		return
	}
	select {
	case <-p.line[0].ready:
		p.k.At(p.k.Now, p, p.line[0].done)
		p.line = p.line[1:]
	default:
	}
}
