package perduretest

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure"
)

// Fake is a test double of an activity. It remembers its calls and can fail on request. Bind its
// method Call:
//
//	charge := perduretest.NewFake(func(ctx context.Context, o Order) (Receipt, error) {
//		return Receipt{ID: "r1"}, nil
//	})
//	perduretest.Run(t, perdure.Group{Checkout, Charge.Bind(charge.Call)}, …)
type Fake[I, O any] struct {
	fn func(context.Context, I) (O, error)

	mu    sync.Mutex
	calls []Call[I, O]
	fail  int
	err   error
}

// Call is one call of a Fake.
type Call[I, O any] struct {
	Input  I
	Output O
	Err    error
	// Attempt counts the attempts of the step from 1.
	Attempt int
	// IdempotencyKey is the same for all attempts of a step, before and after a crash.
	IdempotencyKey string
}

// NewFake returns a Fake that calls fn.
func NewFake[I, O any](fn func(context.Context, I) (O, error)) *Fake[I, O] {
	return &Fake[I, O]{fn: fn}
}

// FailFirst makes the next n calls fail with err. These calls do not reach the function of NewFake.
func (f *Fake[I, O]) FailFirst(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.err = n, err
}

// Call is the function to pass to Bind.
func (f *Fake[I, O]) Call(ctx context.Context, in I) (O, error) {
	c := Call[I, O]{Input: in, Attempt: perdure.Attempt(ctx), IdempotencyKey: perdure.IdempotencyKey(ctx)}
	f.mu.Lock()
	if f.fail > 0 {
		f.fail--
		c.Err = f.err
	}
	f.mu.Unlock()

	if c.Err == nil {
		c.Output, c.Err = f.fn(ctx, in) // without the lock, because fn may sleep
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	return c.Output, c.Err
}

// Calls returns the calls that have returned, in the order in which they returned.
func (f *Fake[I, O]) Calls() []Call[I, O] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}
