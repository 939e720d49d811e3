package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
)

// thread is code of production that waits: for an answer of the store, for its turn, for a time. It is a coroutine: it runs until it waits, while nothing else does, and goes on in an event of its process. So
// it has its place in the order of events as the machines have, and ends with its process: of one that is dead or paused nothing happens.
type thread struct {
	p         *proc
	next      func() (struct{}, bool)
	stop      func()
	yield     func(struct{}) bool
	abandoned bool
	user      bool // does what a user has asked for
}

// spawn begins a thread of a process.
func (p *proc) spawn(do func()) {
	t := &thread{p: p}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer t.ends()
		do()
	})
	p.threads++
	p.s.threads[t] = true
	t.run()
}

// ends has a thread that is abandoned end in silence. Whatever else goes wrong in one is told with its own stack, not that of the events.
func (t *thread) ends() {
	r := recover()
	if r == nil || t.abandoned {
		return
	}
	if _, broken := r.(violation); !broken {
		r = fmt.Errorf("%v\n%s", r, debug.Stack())
	}
	panic(r)
}

// run has a thread go on until it waits or ends. It is called in an event of its process.
func (t *thread) run() {
	s := t.p.s
	s.running = t
	_, waits := t.next()
	s.running = nil
	if !waits {
		t.p.threads--
		delete(s.threads, t)
	}
	t.p.nextTurn()
}

// wait has the thread that runs wait. What it waits for calls the function that begin is given, in an event of the process.
func (s *Sim) wait(begin func(done func())) {
	t := s.running
	if t == nil {
		s.fail("something waits that cannot")
	}
	begin(t.run)
	if !t.yield(struct{}{}) {
		panic("abandoned")
	}
}

// sleep has the thread that runs wait for a while.
func (s *Sim) sleep(d int64) {
	p := s.running.p
	s.wait(func(done func()) { s.after(d, p, done) })
}

// abandon ends all threads that wait.
func (s *Sim) abandon() {
	for t := range s.threads {
		t.abandoned = true
		t.stop()
	}
}

// turn is somebody who waits for his turn.
type turn struct {
	ready <-chan struct{}
	done  func()
}

// receive has the thread that runs wait until it has received something. Who comes first is served first.
func (p *proc) receive(ready <-chan struct{}) {
	if len(p.line) == 0 {
		select {
		case <-ready:
			return
		default:
		}
	}
	p.s.wait(func(done func()) { p.line = append(p.line, turn{ready, done}) })
}

// nextTurn has the first of those go on who wait for their turn, if it has come. Only a thread can have given it away, so it is looked for when one has run.
func (p *proc) nextTurn() {
	if len(p.line) == 0 {
		return
	}
	select {
	case <-p.line[0].ready:
		p.s.at(p.s.now, p, p.line[0].done)
		p.line = p.line[1:]
	default:
	}
}
