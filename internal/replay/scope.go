package replay

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Scope is a part of the code of a run. All waits in a scope end together when its deadline passes,
// when the execution gets a cancel request, or when the code cancels the future of the scope's
// coroutine. Parked coroutines and pending futures are linked to their scope only while they wait,
// so scopes without waits cost nothing.
type Scope struct {
	m      *machine
	parent *Scope // nil for the root and for detached scopes
	err    error

	deadline model.Time
	guessed  bool   // the code had run ahead of the history when the deadline was computed
	armed    bool   // the worker has asked the engine for the timer
	dirty    bool   // armed may have to change
	path     string // path of the coroutine that made it
	n        int    // how many scopes that coroutine had made before
	timer    *ask   // the timer of the deadline; created when something first waits in the scope

	count   int // parked coroutines and pending futures under this scope, at any depth
	parked  list[*Coroutine]
	pending list[*Future]
	kids    list[*Scope] // scopes under which something waits
	link    node[*Scope]

	section *section // the section whose code waits under this scope; nil outside of locks

	inbox *Inbox // receives the futures of the scope, if it belongs to an inbox
}

// endError returns the error with which the scope, or a scope around it, has ended; nil while waits
// are allowed.
func (s *Scope) endError() error {
	for ; s != nil; s = s.parent {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// hasDeadline reports whether the scope, or a scope around it, has a deadline.
func (s *Scope) hasDeadline() bool {
	for ; s != nil; s = s.parent {
		if s.deadline != 0 {
			return true
		}
	}
	return false
}

// isUnder reports whether this scope ends when root ends.
func (s *Scope) isUnder(root *Scope) bool {
	for ; s != nil; s = s.parent {
		if s == root {
			return true
		}
	}
	return false
}

// enter counts one more waiter under the scope.
func (s *Scope) enter() {
	for ; s != nil; s = s.parent {
		if s.count++; s.count > 1 {
			continue
		}
		if s.parent != nil {
			s.parent.kids.push(&s.link, s)
		}
		if s.deadline != 0 {
			s.touch()
		}
	}
}

// leave reverses enter.
func (s *Scope) leave() {
	for ; s != nil; s = s.parent {
		if s.count--; s.count > 0 {
			continue
		}
		s.link.remove()
		if s.deadline != 0 {
			s.touch()
		}
	}
}

// touch marks the scope, so that the machine looks at the timer of the scope at the end of the
// turn.
func (s *Scope) touch() {
	m := s.m
	if s.timer == nil {
		s.timer = m.newAsk(s.path, &identity{kind: askScope, name: itoa(s.n)})
		s.timer.deadline = s
		m.serveEarly(s.timer)
	}
	if !s.dirty {
		s.dirty = true
		m.dirtyScopes = append(m.dirtyScopes, s)
	}
}

// end ends every wait under the scope. First it wakes the parked coroutines and then it gives up on
// the pending futures, in the order in which they began to wait. Then it does the same for the
// scopes inside this scope.
func (s *Scope) end(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.endWaits(err)
}

func (s *Scope) endWaits(err error) {
	for n := s.parked.first; n != nil; n = s.parked.first {
		n.value.wake()
	}
	for n := s.pending.first; n != nil; n = s.pending.first {
		s.m.giveUp(n.value, err)
	}
	for n := s.kids.first; n != nil; n = s.kids.first {
		n.value.endWaits(err)
		n.remove() // nothing waits in this scope now; enter links it again
	}
}

// syncTimers asks for the timers of scopes under which something waits now, and stops timers that
// are no longer needed.
func (m *machine) syncTimers() {
	if len(m.dirtyScopes) == 0 {
		return
	}

	for _, s := range m.dirtyScopes {
		s.dirty = false
		want := s.count > 0 && s.endError() == nil
		if want == s.armed {
			continue
		}
		c := m.startTimer(s.timer.id, s.deadline, s.guessed && len(m.ahead) > 0)
		if s.armed {
			c = model.Command{Kind: model.CommandStopTimer, Event: model.Event{ID: s.timer.id}}
		}
		s.armed = want
		m.command(nil, c)
	}

	m.dirtyScopes = m.dirtyScopes[:0]
}

// WithTimeout returns a context with a new scope. After d, every wait in that scope ends with
// ErrTimeout.
func (x Ctx) WithTimeout(d time.Duration) Ctx {
	x.must("WithTimeout")
	s := x.newScope(x.scope)
	s.deadline, s.guessed = x.co.m.clock().Add(max(d, 0)), len(x.co.m.ahead) > 0
	return Ctx{x.co, s}
}

// Detached returns a context for clean-up. Its scope ends neither with a cancel request nor with
// the deadlines of the scopes of x.
func (x Ctx) Detached() Ctx {
	x.must("Detached")
	return Ctx{x.co, x.newScope(nil)}
}

func (x Ctx) newScope(parent *Scope) *Scope {
	c := x.co
	c.scopes++
	return &Scope{m: c.m, parent: parent, path: c.path, n: c.scopes, section: x.scope.section}
}

// Err returns ErrCanceled or ErrTimeout once the scope has ended.
func (x Ctx) Err() error {
	x.must("Err")
	return x.scope.endError()
}
