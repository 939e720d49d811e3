// Package loops makes steps in loops.
package loops

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

func one(context.Context) (int, error) { return 1, nil }

func wrongRange(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for range in {
		if n, err = perdure.Do(ctx, "count", one); err != nil { // want `perdure\.Do "count" in a loop needs perdure\.StepKey: without one, their order identifies the steps`
			return 0, err
		}
	}
	return n, nil
}

func wrongFor(ctx perdure.WorkflowCtx, _ int) (int, error) {
	for {
		n, err := perdure.Do(ctx, "poll", one, perdure.Exponential(3), perdure.AttemptTimeout(time.Second)) // want `perdure\.Do "poll" in a loop needs perdure\.StepKey`
		if err != nil || n == 1 {
			return n, err
		}
		if err := ctx.Sleep(time.Minute); err != nil {
			return 0, err
		}
	}
}

func count(ctx perdure.WorkflowCtx, s string) (int, error) {
	return perdure.Do(ctx, "count", func(context.Context) (int, error) { return len(s), nil })
}

func countBoth(ctx perdure.WorkflowCtx, s string) (int, error) { return count(ctx, s+s) }

func wrongHelper(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for _, s := range in {
		if n, err = count(ctx, s); err != nil { // want `count makes step "count" without a key \(loops\.go:\d+\) and is called in a loop`
			return 0, err
		}
	}
	return n, nil
}

func wrongHelperOfHelper(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for _, s := range in {
		if n, err = countBoth(ctx, s); err != nil { // want `countBoth makes step "count" without a key`
			return 0, err
		}
	}
	return n, nil
}

func wrongClosure(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	local := func() (int, error) { return perdure.Do(ctx, "local", one) }
	for range in {
		if n, err = local(); err != nil { // want `local makes step "local" without a key`
			return 0, err
		}
	}
	return n, nil
}

func wrongName(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for i := range in {
		if n, err = perdure.Do(ctx, fmt.Sprintf("count-%d", i), one); err != nil { // want `the name of a step is computed \(fmt\.Sprintf\(.*\)\): use a constant, and put the variable part into perdure\.StepKey \[constname\]`
			return 0, err
		}
	}
	return n, nil
}

func wrongIteratedName(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for _, name := range in {
		if n, err = perdure.Do(ctx, name, one); err != nil { // want `the name of a step is computed \(name\)`
			return 0, err
		}
	}
	return n, nil
}

func wrongNameInVariable(ctx perdure.WorkflowCtx, i int) (int, error) {
	name := fmt.Sprint("count-", i)
	return perdure.Do(ctx, name, one) // want `the name of a step is computed \(name\)`
}

func wrongCountedName(ctx perdure.WorkflowCtx, n int) (sum int, err error) {
	for i := 'a'; i < 'z'; i++ {
		if sum, err = perdure.Do(ctx, string(i), one); err != nil { // want `the name of a step is computed`
			return 0, err
		}
	}
	return sum, nil
}

func wrongPolicy(ctx perdure.WorkflowCtx, n int) (sum int, err error) {
	policy := perdure.RetryPolicy{MaxAttempts: 2}
	for range n {
		if sum, err = perdure.Do(ctx, "literal", one, perdure.RetryPolicy{MaxAttempts: 2}); err != nil { // want `perdure\.Do "literal" in a loop`
			return 0, err
		}
		if sum, err = perdure.Do(ctx, "variable", one, policy); err != nil { // want `perdure\.Do "variable" in a loop`
			return 0, err
		}
	}
	return sum, nil
}

func wrongDefinition(tenant string) *perdure.Activity[int, int] {
	return perdure.DeclareActivity[int, int]("charge-" + tenant) // want `the name given to perdure\.DeclareActivity is computed \("charge-" \+ tenant\): every build must find the data that is stored under it`
}

// ---- right

const prefix = "count-"

func right(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for i := range in {
		if n, err = perdure.Do(ctx, prefix+"one", one, perdure.StepKey(strconv.Itoa(i))); err != nil {
			return 0, err
		}
	}
	return perdure.Do(ctx, "count", one)
}

func rightBeforeLoop(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for i, err := perdure.Do(ctx, "limit", one); i < 10 && err == nil; i++ {
		n++
	}
	return n, nil
}

func rightCoroutines(ctx perdure.WorkflowCtx, in []string) ([]int, error) {
	var fs []*perdure.Future[int]
	for _, s := range in {
		fs = append(fs, perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return count(ctx, s) })) // each has its own steps
	}
	return perdure.All(ctx, fs...)
}

func rightConstants(ctx perdure.WorkflowCtx, _ int) (n int, err error) {
	for _, name := range []string{"first", "second"} {
		if n, err = perdure.Do(ctx, name, one); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func rightOption(ctx perdure.WorkflowCtx, in []string, opt perdure.CallOption) (n int, err error) {
	for range in {
		if n, err = perdure.Do(ctx, "count", one, opt); err != nil { // it may be a key
			return 0, err
		}
	}
	return n, nil
}

func keyed(ctx perdure.WorkflowCtx, s string, opts ...perdure.CallOption) (int, error) {
	return perdure.Do(ctx, "keyed", one, append(opts, perdure.StepKey(s))...)
}

func rightHelper(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for _, s := range in {
		if n, err = keyed(ctx, s); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// The caller is responsible for a name that it passes in.
func rightNamed(ctx perdure.WorkflowCtx, name string) (int, error) { return perdure.Do(ctx, name, one) }

var charge = perdure.DeclareActivity[string, int]("charge")

// Their input identifies activities.
func rightActivity(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for _, s := range in {
		if n, err = charge.Run(ctx, s); err != nil {
			return 0, err
		}
	}
	return n, nil
}
