package replay

import (
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

type futureKind uint8

const (
	futureStep futureKind = iota
	futureTimer
	futureChild
	futureSignal
	futurePromise
	futureCoroutine
	futureAnswer // the answer to a message
	futureLock   // all entities of a section are locked
	futureFailed // a call that was refused before it was made
	futureLocal  // the code resolves it itself
)

// Future is a result that may not be known yet. It belongs to one execution of the code.
type Future struct {
	// Handle is the typed form of the future, for callers that keep one.
	Handle any

	m    *machine
	ask  *ask       // the step, timer, child or watch behind it
	co   *Coroutine // the coroutine behind it, or the coroutine with the pending receive
	name string     // name of the signal or promise

	// Small fields are next to each other, which saves memory, because every step has a future.
	kind     futureKind
	done     bool
	observed bool  // the code looked at the result
	taken    bool  // for a signal: recorded as taken
	received int32 // for a signal: index of the event

	scope *Scope // the future ends with this scope; nil if bind was not called
	link  node[*Future]

	pos, sub int64 // the position at which it was resolved, and the order within that position
	at       model.Time
	out      model.Payload
	value    any
	err      error
	waiters  []*Coroutine
	room     [1]*Coroutine // room for the first of them
}

// FailedFuture returns the future of a call that is not allowed. Get returns the error.
func FailedFuture(err error) *Future { return failedFuture(err) }

func failedFuture(err error) *Future { return &Future{kind: futureFailed, done: true, err: err} }

// Done reports whether the future is resolved.
func (f *Future) Done() bool { return f.done }

// Err returns the error of the work behind the future, once it is resolved.
func (f *Future) Err() error { return f.err }

// Name returns the name of the signal or promise behind the future.
func (f *Future) Name() string { return f.name }

// Payload returns the encoded result, after Get returned nil.
func (f *Future) Payload() model.Payload { return f.out }

// Value returns the result of a coroutine, after Get returned nil.
func (f *Future) Value() any { return f.value }

// At returns the time when the future was resolved.
func (f *Future) At() model.Time { return f.at }

// before orders resolved futures by history position.
func (f *Future) before(g *Future) bool {
	return f.pos < g.pos || (f.pos == g.pos && f.sub < g.sub)
}

// resolve marks a future as resolved at a position, and notifies the waiting coroutines. The caller
// has set the result.
func (m *machine) resolve(f *Future, pos int64) {
	m.sub++
	f.done, f.pos, f.sub = true, pos, m.sub
	f.unbind()
	waiters := f.waiters
	f.waiters = nil
	for _, c := range waiters {
		c.notice(f)
	}
	if s := f.scope; s != nil && s.inbox != nil {
		s.inbox.push(f)
	}
}

// bind makes the future end with the scope, unless it is resolved already.
func (f *Future) bind(s *Scope) *Future {
	if !f.done && f.link.in == nil {
		f.scope = s
		s.pending.push(&f.link, f)
		s.enter()
	}
	return f
}

// unbind reverses bind.
func (f *Future) unbind() {
	if f.link.in != nil {
		f.link.remove()
		f.scope.leave()
	}
}

// giveUp resolves a pending future with an error and withdraws the work behind it. A child
// continues. A step that settles (one whose outcome is also in the user's database, see settle.go)
// is only made to end soon, and its future stays pending.
func (m *machine) giveUp(f *Future, err error) {
	if f.done {
		return
	}

	if f.kind == futureStep && f.ask.needsOwnOutcome() {
		m.hurry(f.ask, err)
		f.unbind()
		return
	}

	f.err = err
	switch f.kind {
	case futureStep, futureTimer, futureAnswer, futureLock:
		m.withdraw(f.ask)
	case futureCoroutine:
		defer f.co.scope.end(ErrCanceled)
	case futureSignal:
		f.co.forgetNext(f)
		m.unqueue(f)
	case futurePromise:
		m.unqueue(f)
	case futureChild, futureFailed, futureLocal:
	}

	m.resolve(f, m.position())
}

// Cancel withdraws the work behind the future, so that Get returns ErrCanceled. A resolved future
// does not change. But if it has a signal that the code has not taken, the signal goes back to the
// queue of its name.
func (x Ctx) Cancel(f *Future) error {
	if err := x.check("Cancel", f); err != nil {
		return err
	}
	x.co.m.cancel(f)
	return nil
}

func (m *machine) cancel(f *Future) {
	switch {
	case f.done && f.kind == futureSignal && !f.taken && f.err == nil:
		m.returnSignal(f)
		f.err = ErrCanceled
	case f.done:
	case f.kind == futureChild:
		m.withdraw(f.ask)
		m.giveUp(f, ErrCanceled)
	default:
		m.giveUp(f, ErrCanceled)
	}
}

// check refuses a call with futures that do not belong to this execution of the code.
func (x Ctx) check(call string, fs ...*Future) error {
	if err := x.enter(call); err != nil {
		return err
	}

	for i, f := range fs {
		switch {
		case f == nil:
			return fault.New(fault.Invalid, "%s: future %d is nil", call, i+1)
		case f.kind != futureFailed && f.m != x.co.m:
			return misuse("%s: future %d belongs to another execution: wait for it in the execution that created it", call, i+1)
		case f.kind == futureChild && !f.done && call != "Cancel":
			if err := x.mayWait(f.ask.target); err != nil {
				return err
			}
		}
	}

	return nil
}

// ---- waiting

// waitMode says when a wait is over.
type waitMode uint8

const (
	waitAny  waitMode = iota // one is resolved
	waitAll                  // all are resolved, or one has failed
	waitDone                 // all are resolved
	waitSome                 // enough of them have succeeded, or too many have failed
)

// wait is what a parked coroutine waits for.
type wait struct {
	active  bool
	mode    waitMode
	need    int // results that are missing
	slack   int // failures that waitSome can still tolerate
	members []*Future
	inbox   *Inbox // the inbox that the coroutine waits for, instead of members
}

// pendingFutures returns the futures that the coroutine waits for. If it waits for an inbox, there
// may be many, and pendingFutures returns only some of them.
func (w *wait) pendingFutures() []*Future {
	if w.inbox != nil {
		return w.inbox.pendingFutures()
	}
	return w.members
}

// notice tells a waiting coroutine that one of its futures was resolved.
func (c *Coroutine) notice(f *Future) {
	w := &c.wait
	if !w.active {
		return
	}

	switch w.mode {
	case waitAny:
		w.need = 0
	case waitAll:
		if w.need--; f.err != nil {
			w.need = 0
		}
	case waitDone:
		w.need--
	case waitSome:
		if f.err == nil {
			w.need--
		} else if w.slack--; w.slack < 0 {
			w.need = 0
		}
	}

	if w.need <= 0 {
		c.wake()
	}
}

// await parks until the futures satisfy the mode, or the scope ends. n is for waitSome.
func (x Ctx) await(mode waitMode, n int, fs []*Future) error {
	c := x.co
	w := &c.wait
	w.mode, w.members = mode, fs
	if w.prepare(n) {
		return nil
	}
	if err := x.scope.endError(); err != nil {
		return err
	}

	for _, f := range fs {
		if !f.done {
			f.await(c)
		}
	}

	c.parkUnder(x.scope)
	for _, f := range fs {
		if !f.done {
			f.abandon(c)
		}
	}

	satisfied := w.prepare(n)
	w.members = nil
	if !satisfied {
		return x.scope.endError()
	}

	return nil
}

// prepare counts the results that are missing, and reports whether there are none.
func (w *wait) prepare(n int) bool {
	if w.mode == waitAny {
		w.need = 1
		return w.claimFirst()
	}

	w.need, w.slack = len(w.members), len(w.members)-n
	if w.mode == waitSome {
		w.need = n
	}

	for _, f := range w.members {
		f.claim()
		switch {
		case !f.done:
		case w.mode == waitSome && f.err != nil:
			w.slack--
		case w.mode == waitAll && f.err != nil:
			w.need = 0
			return true
		default:
			w.need--
		}
	}

	return w.need <= 0 || w.slack < 0 && w.mode == waitSome
}

// claimFirst resolves the member with the smallest position among the members that are ready, if
// there is one. If other members are ready too, their signals stay in their queues.
func (w *wait) claimFirst() bool {
	f := first(w.members)
	if f == nil {
		return false
	}
	f.claim()
	return true
}

// first returns the ready member with the smallest position; nil when none is ready.
func first(fs []*Future) *Future {
	var best *Future
	var bestPos int64
	for _, f := range fs {
		pos, ok := f.readyAt()
		if ok && (best == nil || pos < bestPos || (pos == bestPos && best.done && f.done && f.before(best))) {
			best, bestPos = f, pos
		}
	}
	return best
}

// readyAt returns the position at which the future was, or could be, resolved.
func (f *Future) readyAt() (int64, bool) {
	if f.done {
		return f.pos, true
	}
	i, ok := f.source()
	return int64(i + 1), ok
}

// await registers a coroutine with the future.
func (f *Future) await(c *Coroutine) {
	if f.waiters == nil {
		f.waiters = f.room[:0]
	}
	if f.waiters = append(f.waiters, c); len(f.waiters) == 1 {
		f.m.queue(f)
	}
}

// abandon reverses await.
func (f *Future) abandon(c *Coroutine) {
	if i := slices.Index(f.waiters, c); i >= 0 {
		f.waiters = slices.Delete(f.waiters, i, i+1)
	}
	if len(f.waiters) == 0 {
		f.m.unqueue(f)
	}
}

// Get waits for the future and returns the error of the work behind it. If the scope ends first,
// Get returns the error of the scope. But if the future belongs to a step that settles (see
// settle.go), Get still waits for the outcome.
func (x Ctx) Get(f *Future) error {
	if err := x.check("Get", f); err != nil {
		return err
	}
	x.co.single[0] = f
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		if f.kind != futureStep || f.m.r.hurryReason(f.ask) == nil {
			return err
		}
		f.observed = true
		return x.awaitSettled(f)
	}
	return x.look(f)
}

// look takes the result of a resolved future.
func (x Ctx) look(f *Future) error {
	f.observed = true
	if f.err != nil {
		return f.err
	}
	if f.kind == futureSignal && !f.taken {
		x.co.m.take(x.co, f)
	}
	return nil
}

// Select waits for the first of the futures and returns its index.
func (x Ctx) Select(fs []*Future) (int, error) {
	if err := x.check("Select", fs...); err != nil {
		return -1, err
	}
	if len(fs) == 0 {
		return -1, fault.New(fault.Invalid, "Select of no futures would wait forever")
	}
	if err := x.await(waitAny, 0, fs); err != nil {
		return -1, err
	}
	f := first(fs)
	f.observed = true
	return slices.Index(fs, f), nil
}

// Wait waits until all futures are resolved, whatever their results are. It returns the error of
// the scope if the scope ends first. Otherwise it returns the first error of a future, by position.
// Wait does not cancel futures.
func (x Ctx) Wait(fs []*Future) error {
	if err := x.check("Wait", fs...); err != nil {
		return err
	}
	if err := x.await(waitDone, 0, fs); err != nil {
		return err
	}
	if f := firstError(fs); f != nil {
		return f.err
	}
	return nil
}

// All waits until all futures are resolved or one has failed. If one has failed, All cancels the
// others and returns the first error by position. If the scope ends first, All cancels all futures
// and returns the error of the scope.
func (x Ctx) All(fs []*Future) error {
	if err := x.check("All", fs...); err != nil {
		return err
	}

	err := x.await(waitAll, 0, fs)
	if err == nil {
		if f := firstError(fs); f != nil {
			err = f.err
		}
	}

	if err != nil {
		x.co.m.cancelAll(fs, nil)
		return err
	}

	for _, f := range fs {
		if err := x.look(f); err != nil {
			return err
		}
	}

	return nil
}

// Race waits for the first of the futures, cancels the rest and returns the index of the first.
func (x Ctx) Race(fs []*Future) (int, error) {
	if err := x.check("Race", fs...); err != nil {
		return -1, err
	}
	if len(fs) == 0 {
		return -1, fault.New(fault.Invalid, "Race of no futures would wait forever")
	}
	if err := x.await(waitAny, 0, fs); err != nil {
		x.co.m.cancelAll(fs, nil)
		return -1, err
	}
	won := first(fs)
	x.co.m.cancelAll(fs, []*Future{won})
	return slices.Index(fs, won), x.look(won)
}

// FirstN waits for the first n successes, cancels the rest and returns the indexes of the
// successes, ordered by position. When n successes have become impossible, it returns the first
// error.
func (x Ctx) FirstN(n int, fs []*Future) ([]int, error) {
	if err := x.check("FirstN", fs...); err != nil {
		return nil, err
	}
	if n < 1 || n > len(fs) {
		return nil, fault.New(fault.Invalid, "FirstN: n is %d, must be at least 1 and at most the number of futures, %d", n, len(fs))
	}

	if err := x.await(waitSome, n, fs); err != nil {
		x.co.m.cancelAll(fs, nil)
		return nil, err
	}

	var won []*Future
	for _, f := range fs {
		if f.done && f.err == nil {
			won = append(won, f)
		}
	}

	if len(won) < n {
		err := firstError(fs).err
		x.co.m.cancelAll(fs, nil)
		return nil, err
	}

	slices.SortFunc(won, func(a, b *Future) int {
		if a.before(b) {
			return -1
		}
		return 1
	})

	won = won[:n]
	x.co.m.cancelAll(fs, won)
	indexes := make([]int, n)
	for i, f := range won {
		indexes[i] = slices.Index(fs, f)
		if err := x.look(f); err != nil {
			return nil, err
		}
	}

	return indexes, nil
}

// firstError returns the failed future with the smallest position; nil when none has failed.
func firstError(fs []*Future) *Future {
	var worst *Future
	for _, f := range fs {
		f.observed = f.observed || f.done
		if f.done && f.err != nil && (worst == nil || f.before(worst)) {
			worst = f
		}
	}
	return worst
}

// cancelAll cancels all futures except the kept ones.
func (m *machine) cancelAll(fs, keep []*Future) {
	for _, f := range fs {
		if !slices.Contains(keep, f) {
			m.cancel(f)
		}
	}
}
