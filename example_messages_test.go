package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A signal is a message that the code receives when the code is ready. The code receives signals of
// one name in the order in which they arrived.
func ExampleSignal() {
	item := perdure.NewSignal[string]("item")
	packing := perdure.NewWorkflow("packing", func(ctx perdure.WorkflowCtx, n int) ([]string, error) {
		var box []string
		for len(box) < n {
			it, err := item.Receive(ctx) // waits; a waiting execution costs nothing
			if err != nil {
				return nil, err
			}
			box = append(box, it)
		}
		return box, nil
	})

	app := embedded.MustOpen("memory:", packing)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := packing.Start(c, 2, perdure.RawKey("box-1"))
	if err != nil {
		panic(err)
	}

	for _, it := range []string{"lamp", "desk"} {
		// a repetition with the same id changes nothing
		if err := item.Send(c, exec, it, perdure.RequestID(it)); err != nil {
			panic(err)
		}
	}

	fmt.Println(exec.Result(c))
	fmt.Println(errors.Is(item.Send(c, exec, "late"), perdure.ErrConflict)) // the execution has ended
	// Output:
	// [lamp desk] <nil>
	// true
}

// A start with a signal starts the execution if it does not exist, and delivers the signal in the
// same commit.
func ExampleSignal_With() {
	visit := perdure.NewSignal[string]("visit")
	visitors := perdure.NewWorkflow("visitors", func(ctx perdure.WorkflowCtx, _ string) ([]string, error) {
		first, err := visit.Receive(ctx)
		if err != nil {
			return nil, err
		}
		second, err := visit.Receive(ctx)
		return []string{first, second}, err
	})

	app := embedded.MustOpen("memory:", visitors)
	defer app.Close()
	c := app.With(context.Background())

	var exec perdure.Execution[[]string]
	for _, who := range []string{"ann", "bob"} { // the first call starts the execution
		var err error
		if exec, err = visitors.Start(c, "monday", visit.With(who)); err != nil {
			panic(err)
		}
	}

	fmt.Println(exec.Result(c))
	// Output: [ann bob] <nil>
}

// A promise gets one value, which never changes. Any code may resolve it, before the workflow waits
// or later.
func ExamplePromise() {
	type verdict struct {
		OK bool
		By string
	}

	decision := perdure.NewPromise[verdict]("decision")
	approval := perdure.NewWorkflow("approval", func(ctx perdure.WorkflowCtx, within time.Duration) (string, error) {
		v, err := decision.Await(ctx.WithTimeout(within))
		switch {
		case errors.Is(err, perdure.ErrTimeout):
			return "expired", nil
		case err != nil:
			return "", err
		}
		return "decided by " + v.By, nil
	})

	app := embedded.MustOpen("memory:", approval)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := approval.Start(c, 48*time.Hour, perdure.RawKey("a-1"))
	if err != nil {
		panic(err)
	}
	fmt.Println(decision.Resolve(c, exec, verdict{true, "eve"}))
	fmt.Println(exec.Result(c))
	fmt.Println(approval.Run(c, time.Millisecond, perdure.RawKey("a-2")))
	// Output:
	// <nil>
	// decided by eve <nil>
	// expired <nil>
}

// An update is a request to running code. The code can validate the update and run steps, and then
// answers.
func ExampleUpdate() {
	type item struct {
		SKU string
		N   int
	}

	add := perdure.NewUpdate[item, int]("add")
	checkout := perdure.NewSignal[perdure.Void]("checkout")
	carts := perdure.NewWorkflow("cart", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		total := 0
		add.Handle(ctx, func(_ perdure.WorkflowCtx, it item) (int, error) {
			total += it.N
			return total, nil
		}, func(it item) error { // validators run first and must not wait
			if it.N <= 0 {
				return fmt.Errorf("%d of %s: it must be at least one", it.N, it.SKU)
			}
			return nil
		})
		_, err := checkout.Receive(ctx)
		return total, err
	})

	app := embedded.MustOpen("memory:", carts)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := carts.Start(c, "eve", perdure.RawKey("eve"))
	if err != nil {
		panic(err)
	}
	fmt.Println(add.Call(c, exec, item{"lamp", 2}, perdure.RequestID("r-1")))
	fmt.Println(add.Call(c, exec, item{"lamp", 2}, perdure.RequestID("r-1"))) // runs once
	fmt.Println(add.Call(c, exec, item{"desk", 0}))
	// Output:
	// 2 <nil>
	// 2 <nil>
	// 0 0 of desk: it must be at least one
}

// A query asks running code for a value in memory. The history does not record the query.
func ExampleQuery() {
	progress := perdure.NewQuery[perdure.Void, string]("progress")
	count := perdure.NewWorkflow("count", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		done := 0
		progress.Handle(ctx, func(perdure.Void) (string, error) { return fmt.Sprintf("%d of %d", done, n), nil })
		for done < n/2 {
			if err := ctx.Sleep(time.Millisecond); err != nil {
				return "", err
			}
			done++
		}
		return "", ctx.Sleep(time.Hour)
	})

	app := embedded.MustOpen("memory:", count)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := count.Start(c, 4, perdure.RawKey("c"))
	if err != nil {
		panic(err)
	}

	answer := ""
	for answer != "2 of 4" {
		if answer, err = progress.Ask(c, exec, perdure.Void{}); err != nil {
			panic(err)
		}
	}

	fmt.Println(answer)
	// Output: 2 of 4
}

// A query also works after the execution has ended: the engine replays the history and runs no
// step.
func ExampleQuery_Ask() {
	picked := perdure.NewQuery[perdure.Void, []string]("picked")
	pick := perdure.NewWorkflow("pick", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		var all []string
		picked.Handle(ctx, func(perdure.Void) ([]string, error) { return all, nil })
		for i := range n {
			name, err := perdure.Do(ctx, "pick", func(context.Context) (string, error) { return fmt.Sprint("item ", i), nil }, perdure.StepKey(fmt.Sprint(i)))
			if err != nil {
				return 0, err
			}
			all = append(all, name)
		}
		return len(all), nil
	})

	app := embedded.MustOpen("memory:", pick)
	defer app.Close()
	c := app.With(context.Background())
	fmt.Println(pick.Run(c, 2, perdure.RawKey("p")))
	fmt.Println(picked.Ask(c, pick.Execution(perdure.RawKey("p")), perdure.Void{}))
	// Output:
	// 2 <nil>
	// [item 0 item 1] <nil>
}

// State is durable and belongs to the execution. It can be read even if no worker has the code, and
// after the execution has ended.
func ExampleState() {
	phase := perdure.NewState[string]("phase")
	build := perdure.NewWorkflow("build", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		for _, p := range []string{"compile", "test", "done"} {
			if err := phase.Set(ctx, p); err != nil {
				return "", err
			}
		}
		p, _ := phase.Get(ctx)
		return p, nil
	})

	app := embedded.MustOpen("memory:", build)
	defer app.Close()
	c := app.With(context.Background())
	if _, err := build.Run(c, "", perdure.RawKey("b-1")); err != nil {
		panic(err)
	}
	fmt.Println(phase.Read(c, build.Execution(perdure.RawKey("b-1"))))
	// Output: done true <nil>
}
