package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// The engine keeps a task that failed permanently, with its input and all its errors. Requeue the
// task when the cause is fixed.
func ExampleDeadTasks() {
	var broken atomic.Bool
	broken.Store(true)
	charge := perdure.NewActivity("charge", func(_ context.Context, cents int) (string, error) {
		if broken.Load() {
			return "", errors.New("the bank is closed")
		}
		return fmt.Sprintf("charged %d", cents), nil
	}, perdure.OnQueue("bank"), perdure.RetryPolicy{MaxAttempts: 2, Initial: time.Millisecond})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", charge)
	defer app.Close()
	c := app.With(ctx)
	task, err := charge.Submit(c, 500, perdure.RawKey("order-42"))
	if err != nil {
		panic(err)
	}
	_, err = task.Result(c)
	fmt.Println(err)

	for d, err := range app.DeadTasks().List(ctx, perdure.DeadQuery{Activities: []string{"charge"}}) {
		if err != nil {
			panic(err)
		}
		whole, err := app.DeadTasks().Describe(ctx, d.ID)
		fmt.Println(d.Activity, "of", d.Of.Key, "died after", d.Attempts, "attempts:", len(whole.Failed), "errors, input", string(whole.Input), err)
		broken.Store(false)
		for range 2 { // two requests create one task
			if _, err := app.DeadTasks().Requeue(ctx, d.ID); err != nil {
				panic(err)
			}
		}
	}
	fmt.Println(task.Result(c))
	// Output:
	// the bank is closed
	// charge of order-42 died after 2 attempts: 2 errors, input 500 <nil>
	// charged 500 <nil>
}

// RequeueAll requeues one dead task of a group first. When that task has completed, it requeues the
// others.
func ExampleDeadTasks_RequeueAll() {
	var broken atomic.Bool
	broken.Store(true)
	fetch := perdure.NewActivity("fetch", func(_ context.Context, page int) (int, error) {
		if broken.Load() {
			return 0, perdure.Permanent(fmt.Errorf("page %d is not there", page))
		}
		return page, nil
	}, perdure.OnQueue("web"))

	ctx := context.Background()
	app := embedded.MustOpen("memory:", fetch)
	defer app.Close()
	c := app.With(ctx)
	tasks, err := fetch.SubmitMany(c, []int{1, 2, 3})
	if err != nil {
		panic(err)
	}
	for _, t := range tasks {
		_, _ = t.Result(c) // fails
	}
	groups, err := app.DeadTasks().Groups(ctx, perdure.DeadQuery{})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(groups), "group of", groups[0].Count)
	broken.Store(false)

	n := 0
	for _, err := range app.DeadTasks().RequeueAll(ctx, perdure.DeadQuery{Fingerprint: groups[0].Fingerprint}, perdure.RequeueMany{Canary: true, Rate: 100}) {
		if err != nil {
			panic(err)
		}
		n++
	}

	fmt.Println(n, "requeued")
	fmt.Println(tasks[2].Result(c))
	// Output:
	// 1 group of 3
	// 3 requeued
	// 3 <nil>
}
