package perdure

import (
	"github.com/perdure/perdure/internal/replay"
)

// Future is a result that workflow code can wait for. It belongs to one execution.
type Future[T any] struct {
	f     *replay.Future
	value func(WorkflowCtx, *replay.Future) (T, error)
}

func (f *Future[T]) future() *replay.Future {
	if f == nil {
		return nil
	}
	return f.f
}

// Waitable is a *Future of any type.
type Waitable interface{ future() *replay.Future }

// payloadFuture returns a future whose Get decodes a value that was sent. For a value of the wrong
// type, Get returns an error.
func payloadFuture[T any](kind, name string, f *replay.Future) *Future[T] {
	return &Future[T]{f: f, value: func(ctx WorkflowCtx, f *replay.Future) (T, error) {
		return decode[T](ctx, kind, name, f.Payload())
	}}
}

// stepFuture returns a future whose Get decodes the recorded outcome of a step. An outcome of the
// wrong type blocks the execution.
func stepFuture[T any](kind, name string, f *replay.Future) *Future[T] {
	return &Future[T]{f: f, value: func(ctx WorkflowCtx, f *replay.Future) (T, error) {
		return decodeRecorded[T](ctx, kind, name, f.Payload()), nil
	}}
}

// failedFuture returns a future of a call that could not be made. Its Get returns the error.
func failedFuture[T any](err error) *Future[T] {
	return &Future[T]{f: replay.FailedFuture(Permanent(err))}
}

// Get waits for the value. The error is the error of the work, or ErrTimeout or ErrCanceled if the
// scope of ctx ends first.
func (f *Future[T]) Get(ctx WorkflowCtx) (v T, err error) {
	if err := ctx.x.Get(f.future()); err != nil {
		return v, remote(err)
	}
	return f.value(ctx, f.f)
}

// Cancel withdraws the work of the future, and Get returns ErrCanceled. A future that already has
// its result keeps the result.
func (f *Future[T]) Cancel(ctx WorkflowCtx) {
	// The call fails only after a mistake that Get reports too, such as a call from inside a step.
	_ = ctx.x.Cancel(f.future())
}

// Go runs fn as a coroutine of this execution. Coroutines run one at a time, so they may share
// variables.
func Go[T any](ctx WorkflowCtx, fn func(WorkflowCtx) (T, error)) *Future[T] {
	return &Future[T]{
		f: ctx.x.Go(func(x replay.Ctx) (any, error) { return fn(WorkflowCtx{x}) }),
		value: func(_ WorkflowCtx, f *replay.Future) (T, error) {
			v, ok := f.Value().(T)
			if !ok {
				var zero T // T is an interface type, and fn returned nil
				return zero, nil
			}
			return v, nil
		},
	}
}

func futures[W Waitable](fs []W) []*replay.Future {
	rs := make([]*replay.Future, len(fs))
	for i, f := range fs {
		if any(f) != nil {
			rs[i] = f.future()
		}
	}
	return rs
}

// Select waits until one of the futures has its result, and returns that future. If the scope ends
// first, Select returns nil and the error. The other futures continue.
func Select(ctx WorkflowCtx, fs ...Waitable) (Waitable, error) {
	i, err := ctx.x.Select(futures(fs))
	if err != nil {
		return nil, remote(err)
	}
	return fs[i], nil
}

// Wait waits for all futures, of any types. It returns the error that comes first in the history,
// or the error of the scope. It cancels nothing.
func Wait(ctx WorkflowCtx, fs ...Waitable) error { return remote(ctx.x.Wait(futures(fs))) }

// All waits for all futures and returns their values in order. On the first error it cancels the
// others and returns that error.
func All[T any](ctx WorkflowCtx, fs ...*Future[T]) ([]T, error) {
	if err := ctx.x.All(futures(fs)); err != nil {
		return nil, remote(err)
	}
	return values(ctx, fs)
}

func values[T any](ctx WorkflowCtx, fs []*Future[T]) ([]T, error) {
	vs := make([]T, len(fs))
	for i, f := range fs {
		v, err := f.value(ctx, f.f)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}

// Race returns the value or the error of the first future to finish, and cancels the others.
func Race[T any](ctx WorkflowCtx, fs ...*Future[T]) (v T, err error) {
	i, err := ctx.x.Race(futures(fs))
	if err != nil {
		return v, remote(err)
	}
	return fs[i].Get(ctx)
}

// FirstN returns the first n values and cancels the other futures. When failures leave fewer than n
// futures, it returns the first error.
func FirstN[T any](ctx WorkflowCtx, n int, fs ...*Future[T]) ([]T, error) {
	first, err := ctx.x.FirstN(n, futures(fs))
	if err != nil {
		return nil, remote(err)
	}
	won := make([]*Future[T], len(first))
	for i, j := range first {
		won[i] = fs[j]
	}
	return values(ctx, won)
}
