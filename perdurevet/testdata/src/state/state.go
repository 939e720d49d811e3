// Package state keeps state where no journal does.
package state

import (
	"context"
	"sync/atomic"

	"github.com/perdure/perdure"
)

var (
	count    int
	hits     atomic.Int64
	cache    = map[string]int{}
	limit    = 10
	verbose  bool
	patience = 10                 // only a test changes it
	names    = []string{"a", "b"} // never changes
	charge   = perdure.DeclareActivity[string, int]("charge")
)

func configure(n int) { limit = n }

func flags(bind func(*bool)) { bind(&verbose) }

func wrongCount(ctx perdure.WorkflowCtx, _ int) (int, error) {
	count++ // want `package variable count in workflow code: it changes \(state\.go:\d+\), so replay may see another value; pass it in with the input`
	return 0, nil
}

func wrongRange(ctx perdure.WorkflowCtx, in []int) (int, error) {
	for count = range in { // want `package variable count in workflow code`
	}
	return 0, nil
}

func wrongDelete(ctx perdure.WorkflowCtx, k string) (int, error) {
	delete(cache, k) // want `package variable cache in workflow code`
	return 0, nil
}

func wrongAtomic(ctx perdure.WorkflowCtx, _ int) (int, error) {
	hits.Add(1) // want `package variable hits in .*: it changes`
	return 0, nil
}

func wrongCache(ctx perdure.WorkflowCtx, k string) (int, error) {
	if n, ok := cache[k]; ok { // want `package variable cache in .*: it changes`
		return n, nil
	}
	n, err := charge.Run(ctx, k)
	cache[k] = n // want `package variable cache in .*: it changes`
	return n, err
}

func wrongRead(ctx perdure.WorkflowCtx, n int) (bool, error) {
	return n > limit, nil // want `package variable limit in .*: it changes`
}

func wrongFlag(ctx perdure.WorkflowCtx, n int) (bool, error) {
	return verbose, nil // want `package variable verbose in .*: it changes`
}

func next() int { count++; return count }

func wrongHelper(ctx perdure.WorkflowCtx, _ int) (int, error) {
	return next(), nil // want `next reaches package variable count \(state\.go:\d+\) in workflow code: it changes \(state\.go:\d+\)`
}

type shop struct {
	orders int
	seen   map[string]bool
	rate   int
}

func (s *shop) wrongField(ctx perdure.WorkflowCtx, _ int) (int, error) {
	s.orders++ // want `workflow code changes a field of its receiver s, which no journal keeps and all executions share; use local variables`
	return s.orders, nil
}

func (s shop) wrongElement(ctx perdure.WorkflowCtx, k string) (int, error) {
	s.seen[k] = true // want `workflow code changes a field of its receiver s`
	return 0, nil
}

func wrongCapture() *perdure.Workflow[int, int] {
	total := 0
	return perdure.NewWorkflow("total", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		total += n // want `workflow code changes total, which is declared outside it`
		return total, nil
	})
}

func (s *shop) count() int { s.orders++; return s.orders }

func (s *shop) countTwice() int { return s.count() + s.count() }

func (s *shop) wrongMethod(ctx perdure.WorkflowCtx, _ int) (int, error) {
	return s.countTwice(), nil // want `s\.countTwice changes its receiver, which no journal keeps and all executions share`
}

var all shop

func wrongVariableMethod(ctx perdure.WorkflowCtx, _ int) (int, error) {
	return all.count(), nil // want `package variable all in workflow code: it changes`
}

type stats struct{ sold, asked atomic.Int64 }

var sell = perdure.DeclareActivity[int, int]("sell")

func (s *stats) definitions() perdure.Group {
	last := 0
	return perdure.Group{
		sell.Bind(s.sell),
		perdure.NewActivity("last", func(_ context.Context, n int) (int, error) { last = n; return n, nil }),
		perdure.NewWorkflow("reads", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
			return last, nil // want `last in workflow code: a step or an entity changes it \(state\.go:\d+\), so replay may see another value`
		}),
	}
}

func (s *stats) sell(_ context.Context, n int) (int, error) { s.sold.Add(int64(n)); return n, nil }

func (s *stats) wrongRead(ctx perdure.WorkflowCtx, _ int) (int64, error) {
	return s.sold.Load(), nil // want `s\.sold in workflow code: a step or an entity changes it`
}

// ---- right

func (s *stats) rightRead(ctx perdure.WorkflowCtx, _ int) (int64, error) { return s.asked.Load(), nil }

type sum struct{ n int }

func (s *sum) add(n int) { s.n += n }

func rightLocal(ctx perdure.WorkflowCtx, in []int) (int, error) {
	var s sum
	p := &sum{}
	for _, n := range in {
		s.add(n)
		p.add(n)
	}
	return s.n + p.n, nil
}

func right(ctx perdure.WorkflowCtx, in []int) (n int, err error) {
	local := map[int]int{}
	for _, v := range in {
		n += v
		local[v]++
	}
	add := func(v int) { n += v }
	add(len(names))
	return n, nil
}

func rightReplaced(ctx perdure.WorkflowCtx, n int) (bool, error) { return n > patience, nil }

func (s *shop) rightRead(ctx perdure.WorkflowCtx, n int) (int, error) { return n * s.rate, nil }

func (s shop) rightCopy(ctx perdure.WorkflowCtx, n int) (int, error) {
	s.orders = n
	return s.orders, nil
}

func (s *shop) rightActivity(context.Context, int) (int, error) {
	s.orders++
	hits.Add(1)
	return s.orders, nil
}

var rightHandles = perdure.NewWorkflow("handles", func(ctx perdure.WorkflowCtx, in string) (int, error) { return charge.Run(ctx, in) })

func rightCoroutines(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	var fs []perdure.Waitable
	for _, s := range in {
		fs = append(fs, perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
			one, err := charge.Run(ctx, s)
			n += one // coroutines run one at a time
			return one, err
		}))
	}
	return n, perdure.Wait(ctx, fs...)
}
