// Package clock reads the clock in workflow code.
package clock

import (
	"context"
	"time"

	"github.com/perdure/perdure"
)

var now = time.Now

var today = func() time.Time { return time.Now().Truncate(24 * time.Hour) }

func wrongNow(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return time.Now(), nil // want `time\.Now in workflow code: it differs on replay; use ctx\.Now\(\) \[clock\]`
}

func wrongSince(ctx perdure.WorkflowCtx, begin time.Time) (time.Duration, error) {
	return time.Since(begin), nil // want `time\.Since in workflow code`
}

func wrongSleep(ctx perdure.WorkflowCtx, _ int) (int, error) {
	time.Sleep(time.Second) // want `time\.Sleep in workflow code: it blocks the worker and is not durable; use ctx\.Sleep`
	return 0, nil
}

func wrongTimer(ctx perdure.WorkflowCtx, _ int) (int, error) {
	t := time.NewTimer(time.Second) // want `time\.NewTimer in workflow code: it is not durable; use ctx\.Timer`
	t.Stop()
	return 0, nil
}

// A function value is as bad as a call.
func wrongValue(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	read := time.Now // want `time\.Now in workflow code`
	return read(), nil
}

func wrongVariable(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return now(), nil // want `time\.Now \(through now\) in workflow code`
}

func wrongLiteral(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return today(), nil // want `today reaches time\.Now \(clock\.go:\d+\) in workflow code`
}

// A closure of the workflow is workflow code.
func wrongClosure(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	read := func() time.Time { return time.Now() } // want `time\.Now in workflow code`
	return read(), nil
}

// A coroutine too.
func wrongCoroutine(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (time.Time, error) {
		return time.Now(), nil // want `time\.Now in workflow code`
	}).Get(ctx)
}

// A clean-up too.
func wrongCompensation(ctx perdure.WorkflowCtx, _ int) (int, error) {
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
		return ctx.Sleep(time.Until(time.Time{})) // want `time\.Until in workflow code`
	})
	return 0, nil
}

func stamp() string { return time.Now().String() }

func label() string { return "at " + stamp() }

func wrongHelper(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return stamp(), nil // want `stamp reaches time\.Now \(clock\.go:\d+\) in workflow code`
}

func wrongHelperOfHelper(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return label(), nil // want `label reaches time\.Now`
}

type watch struct{}

func (watch) read() time.Time { return time.Now() }

func wrongMethod(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return watch{}.read(), nil // want `watch\.read reaches time\.Now`
}

func even(n int) bool { return n == 0 || odd(n-1) }

func odd(n int) bool { return time.Now().IsZero() || n != 0 && even(n-1) }

// Functions that call each other do not confuse it.
func wrongCycle(ctx perdure.WorkflowCtx, n int) (bool, error) {
	return even(n), nil // want `even reaches time\.Now`
}

// The key of an execution must be the same for the same input.
var wrongKey = perdure.DeclareWorkflow[int, int]("keyed").KeyedBy(func(int) perdure.Key {
	return perdure.RawKey(time.Now().String()) // want `time\.Now in a function that derives a key`
})

// ---- right

func right(ctx perdure.WorkflowCtx, d time.Duration) (time.Time, error) {
	if err := ctx.Sleep(2*time.Second + d); err != nil {
		return time.Time{}, err
	}
	return ctx.Now().Add(time.Hour).Truncate(time.Minute), nil
}

func rightStep(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return perdure.Do(ctx, "now", func(context.Context) (time.Time, error) { return time.Now(), nil })
}

func body(context.Context) (time.Time, error) { return time.Now(), nil }

func rightNamedStep(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return perdure.Do(ctx, "now", body)
}

func rightStepInVariable(ctx perdure.WorkflowCtx, _ int) (string, error) {
	f := func(context.Context) (string, error) { return stamp(), nil }
	return perdure.Do(ctx, "now", f)
}

func stepMaker() func(context.Context) (time.Time, error) {
	return func(context.Context) (time.Time, error) { return time.Now(), nil }
}

func rightMadeStep(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return perdure.Do(ctx, "now", stepMaker())
}

var rightActivity = perdure.NewActivity("now", func(context.Context, int) (time.Time, error) { return time.Now(), nil })

func rightOrdinary() time.Time { return time.Now() }
