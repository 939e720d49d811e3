// Package faultstore wraps a store and injects faults before, after and during its calls: errors,
// lost answers, crashes, delays, and commits that are applied after their sender has given up on
// them.
//
// One wrapper plays the part of one process. After a crash every call of that wrapper fails, so
// goroutines of the dead process cannot write, and answers in flight are lost. The wrapped store
// and its other wrappers continue. A Plan decides what happens at each call. Counters record the
// injected faults, so a test can prove that its faults really happened.
//
// If only one goroutine calls a wrapper with a seeded plan, the wrapper behaves the same in every
// run of the test. The wrapper starts no goroutine.
package faultstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// Errors inside the errors that a wrapper returns, for errors.Is. The *store.Error around them has
// the class.
var (
	// ErrInjected is a fault of the plan.
	ErrInjected = errors.New("injected fault")
	// ErrCrashed is the error of a process that has died, or whose wrapper is closed.
	ErrCrashed = errors.New("this process is gone")
)

// Config configures a wrapper. The zero value injects nothing.
type Config struct {
	// Plan decides about every call. The default is None. The wrapper holds its own lock while it
	// calls the plan, so a plan that only one wrapper uses needs no lock.
	Plan Plan
	// When a call crashes the process, the wrapper calls OnCrash, once and without a lock. OnCrash
	// may panic or end the goroutine. If OnCrash returns or is nil, the call of the store returns
	// an error with ErrCrashed. Kill does not call OnCrash.
	OnCrash func()
	// Sleep waits during a slow call. It must return early if the context ends. The default waits
	// in real time.
	Sleep func(ctx context.Context, d time.Duration)
	// Orphans has the late commits of all processes that use the same store: commits that the store
	// receives after their senders have given up. Wrappers of one store share one value, because a
	// takeover by another process must wait for an orphan too. If Orphans is nil, the wrapper
	// creates its own value.
	Orphans *Orphans
	// KeepInner makes Close leave the wrapped store open, for wrappers that share a store.
	KeepInner bool
}

// Store is a wrapped store into which a plan injects faults.
type Store struct {
	inner   store.Store
	config  Config
	orphans *Orphans
	dead    atomic.Bool
	crash   sync.Once

	mu     sync.Mutex // protects the fields below, and the plan
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

// Kill ends the process from outside: calls in flight lose their answers, and later calls fail.
func (f *Store) Kill() { f.dead.Store(true) }

// Dead reports whether the process has crashed or was killed.
func (f *Store) Dead() bool { return f.dead.Load() }

// Orphans returns the late commits of this wrapper, or of all wrappers that share them.
func (f *Store) Orphans() *Orphans { return f.orphans }

// Counts returns the counters.
func (f *Store) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// next asks the plan about a call, and counts the call.
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

// die ends the process because the plan crashes it.
func (f *Store) die() {
	f.dead.Store(true)
	f.crash.Do(func() {
		if f.config.OnCrash != nil {
			f.config.OnCrash()
		}
	})
}

func (f *Store) crashError(c store.Class, m Method) error {
	return &store.Error{Class: c, Op: m.String(), Err: ErrCrashed}
}

// call makes one call with the fault that the plan chooses. b is the batch of a commit, nil for
// other calls.
func call[T any](ctx context.Context, f *Store, m Method, b *store.Batch, do func() (T, error)) (T, error) {
	var none T
	if f.dead.Load() {
		return none, f.crashError(store.Away, m)
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
		return none, f.crashError(store.Away, m)
	case Late, LateBegun:
		f.orphans.add(f.inner, b, fault)
		return none, &store.Error{Class: store.Unknown, Op: m.String(), Err: ErrInjected}
	case Slow:
		f.config.Sleep(ctx, fault.Delay)
		if ctx.Err() != nil {
			return none, &store.Error{Class: store.Retryable, Op: m.String(), Err: context.Cause(ctx)}
		}
		if f.dead.Load() { // the process died before the call was sent
			return none, f.crashError(store.Away, m)
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

	if f.dead.Load() { // the caller is dead, so the answer is lost
		return none, f.crashError(store.Unknown, m)
	}
	return v, err
}
