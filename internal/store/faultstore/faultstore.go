// Package faultstore wraps a store and puts faults before, after and around its calls: errors, lost
// answers, crashes, delays, and commits that land when nobody expects them any more.
//
// One wrapper is one process as the store sees it. A crash ends it: from then on every call of that
// wrapper fails, so that goroutines of the dead process cannot write, and answers that were on
// their way are lost; the store behind it and other wrappers of it go on. What happens at a call is
// decided by a Plan. Counters tell what did happen, so that a test can prove that its faults were
// not imaginary.
//
// Called from one goroutine, a wrapper with a seeded plan does the same thing every time. It starts
// no goroutine.
package faultstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// Errors inside of what a wrapper returns, for errors.Is. The class is that of the *store.Error
// around them.
var (
	// ErrInjected is a fault of the plan.
	ErrInjected = errors.New("injected fault")
	// ErrCrashed is the answer of a process that has died, or whose wrapper is closed.
	ErrCrashed = errors.New("this process is gone")
)

// Config configures a wrapper. The zero value injects nothing.
type Config struct {
	// Plan decides about every call; None when nil. It is asked with the wrapper locked, so a plan
	// of one wrapper needs no lock.
	Plan Plan
	// OnCrash is called once, by the call that crashes the process and without a lock held. It may
	// panic or end the goroutine; when it returns, or is nil, the call returns an error with
	// ErrCrashed. A Kill does not call it.
	OnCrash func()
	// Sleep waits for a slow call; it returns early when the context ends. Real time when nil.
	Sleep func(ctx context.Context, d time.Duration)
	// Orphans are the late commits of all processes that use the same store. Wrappers of one store
	// share one value, since a takeover by another process has to wait for an orphan too; nil gives
	// the wrapper one of its own.
	Orphans *Orphans
	// KeepInner lets Close leave the wrapped store open, for wrappers that share it.
	KeepInner bool
}

// Store is a store as a process with bad luck sees it.
type Store struct {
	inner   store.Store
	config  Config
	orphans *Orphans
	dead    atomic.Bool
	crash   sync.Once

	mu     sync.Mutex // protects what follows, and the plan
	calls  int
	counts Counts
}

var _ store.Store = (*Store)(nil)

// Wrap wraps a store.
func Wrap(inner store.Store, c Config) *Store {
	if c.Plan == nil {
		c.Plan = None{}
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	if c.Orphans == nil {
		c.Orphans = NewOrphans()
	}
	return &Store{inner: inner, config: c, orphans: c.Orphans}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Kill ends the process from outside: calls in flight lose their answers, later ones fail.
func (f *Store) Kill() { f.dead.Store(true) }

// Dead reports whether the process has crashed or was killed.
func (f *Store) Dead() bool { return f.dead.Load() }

// Orphans are the late commits that this wrapper knows of.
func (f *Store) Orphans() *Orphans { return f.orphans }

// Counts tells what has happened so far.
func (f *Store) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// next asks the plan about a call and counts it.
func (f *Store) next(m Method, b *store.Batch) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.counts.Calls[m]++
	fault := f.config.Plan.Next(Call{Method: m, N: f.calls, OfMethod: int(f.counts.Calls[m]), Batch: b})
	if m != Commit && (fault.Kind == Late || fault.Kind == LateBegun) {
		fault = Fault{}
	}
	if fault.Kind != OK {
		f.counts.Faults[m][fault.Kind]++
	}
	return fault
}

// die ends the process by a crash of the plan.
func (f *Store) die() {
	f.dead.Store(true)
	f.crash.Do(func() {
		if f.config.OnCrash != nil {
			f.config.OnCrash()
		}
	})
}

func (f *Store) crashed(c store.Class, m Method) error {
	return &store.Error{Class: c, Op: m.String(), Err: ErrCrashed}
}

// call makes one call with whatever the plan has for it. b is the batch of a commit.
func call[T any](ctx context.Context, f *Store, m Method, b *store.Batch, do func() (T, error)) (T, error) {
	var none T
	if f.dead.Load() {
		return none, f.crashed(store.Away, m)
	}
	f.orphans.tick()

	fault := f.next(m, b)
	switch fault.Kind {
	case FailBefore:
		class := fault.Class
		if class == 0 {
			class = store.Unknown
		}
		return none, &store.Error{Class: class, Op: m.String(), Err: ErrInjected}
	case CrashBefore:
		f.die()
		return none, f.crashed(store.Away, m)
	case Late, LateBegun:
		f.orphans.add(f.inner, b, fault)
		return none, &store.Error{Class: store.Unknown, Op: m.String(), Err: ErrInjected}
	case Slow:
		f.config.Sleep(ctx, fault.Delay)
		if ctx.Err() != nil {
			return none, &store.Error{Class: store.Retryable, Op: m.String(), Err: context.Cause(ctx)}
		}
		if f.dead.Load() { // died before the call was sent
			return none, f.crashed(store.Away, m)
		}
	case OK, FailAfter, CrashAfter, SlowReply:
	}

	v, err := do()
	switch fault.Kind {
	case FailAfter:
		return none, &store.Error{Class: store.Unknown, Op: m.String(), Err: ErrInjected}
	case CrashAfter:
		f.die()
	case SlowReply:
		f.config.Sleep(ctx, fault.Delay)
		if err == nil && ctx.Err() != nil {
			return none, &store.Error{Class: store.Unknown, Op: m.String(), Err: context.Cause(ctx)}
		}
	case OK, FailBefore, CrashBefore, Slow, Late, LateBegun:
	}

	if f.dead.Load() { // the answer reaches nobody
		return none, f.crashed(store.Unknown, m)
	}
	return v, err
}
