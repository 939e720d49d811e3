// Package concurrent goes past the scheduler: goroutines, channels, blocking, mutexes.
package concurrent

import (
	"context"
	"sync"

	"github.com/perdure/perdure"
)

var charge = perdure.DeclareActivity[int, int]("charge")

func wrongGo(ctx perdure.WorkflowCtx, n int) (int, error) {
	go charge.Run(ctx, n) // want `a go statement in workflow code: the scheduler does not know the goroutine; use perdure\.Go`
	return 0, nil
}

func wrongGroup(ctx perdure.WorkflowCtx, n int) (int, error) {
	var wg sync.WaitGroup
	wg.Go(func() {}) // want `sync\.WaitGroup\.Go in workflow code`
	wg.Wait()        // want `sync\.WaitGroup\.Wait in workflow code: it blocks the worker`
	return 0, nil
}

func parallel(n int) int {
	done := make(chan int)
	go func() { done <- n }()
	return <-done
}

func wrongHelper(ctx perdure.WorkflowCtx, n int) (int, error) {
	return parallel(n), nil // want `parallel reaches a go statement` `parallel reaches a (send|receive)`
}

func wrongReceive(ctx perdure.WorkflowCtx, ready chan int) (int, error) {
	return <-ready, nil // want `a receive from a channel in workflow code: it blocks the worker, and the value is not journaled; use a signal`
}

func wrongSend(ctx perdure.WorkflowCtx, ready chan int) (int, error) {
	ready <- 1 // want `a send on a channel in workflow code`
	return 0, nil
}

func wrongSelect(ctx perdure.WorkflowCtx, a, b chan int) (int, error) {
	select { // want `select in workflow code: it picks at random, and blocks the worker; use perdure\.Select`
	case v := <-a:
		return v, nil
	case v := <-b:
		return v, nil
	}
}

func wrongRange(ctx perdure.WorkflowCtx, in chan int) (n int, err error) {
	for v := range in { // want `a range over a channel in workflow code`
		n += v
	}
	return n, nil
}

func wrongMutex(ctx perdure.WorkflowCtx, mu *sync.Mutex) (int, error) {
	mu.Lock() // want `mu is held over the durable call charge\.Run \(concurrent\.go:\d+\), which may take days; unlock before it`
	defer mu.Unlock()
	return charge.Run(ctx, 1)
}

func wrongMutexBetween(ctx perdure.WorkflowCtx, mu *sync.RWMutex) (int, error) {
	mu.RLock() // want `mu is held over the durable call ctx\.Sleep`
	err := ctx.Sleep(1)
	mu.RUnlock()
	return 0, err
}

// ---- right

func rightGo(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return charge.Run(ctx, n) }).Get(ctx)
}

func rightMutex(ctx perdure.WorkflowCtx, mu *sync.Mutex) (int, error) {
	mu.Lock()
	n := 1
	mu.Unlock()
	return charge.Run(ctx, n)
}

func rightStep(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Do(ctx, "parallel", func(c context.Context) (int, error) {
		done := make(chan int, 1)
		go func() { done <- n }()
		select {
		case v := <-done:
			return v, nil
		case <-c.Done():
			return 0, c.Err()
		}
	})
}
