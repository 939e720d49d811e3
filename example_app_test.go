package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An App runs executions and gives access to them. Close lets running steps finish. Everything else
// continues when a process opens the store again.
func ExampleApp() {
	double := perdure.NewWorkflow("double", func(_ perdure.WorkflowCtx, n int) (int, error) { return 2 * n, nil })
	app, err := embedded.Open(context.Background(), "memory:", double)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	// The timeout ends the call, not the execution.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(double.Run(app.With(ctx), 21))
	// Output: 42 <nil>
}

// Describe returns the state of an execution and, while it is open, why it makes no progress.
func ExampleExecutions_Describe() {
	paid := perdure.NewSignal[int]("paid")
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (int, error) { return paid.Receive(ctx) })
	app := embedded.MustOpen("memory:", orders)
	defer app.Close()
	exec, err := orders.Start(app.With(context.Background()), "", perdure.RawKey("o-1"))
	if err != nil {
		panic(err)
	}
	waitFor(app, exec.Ref, "signal")
	info, err := app.Executions().Describe(context.Background(), exec)
	fmt.Println(info.Status, "/", info.Reason, "/", err)
	// Output: running / waits for signal paid / <nil>
}

// A query finds executions by workflow, key, status, label, time or reason.
func ExampleExecutions_List() {
	orders := perdure.NewWorkflow("order", func(_ perdure.WorkflowCtx, fail bool) (string, error) {
		if fail {
			return "", errors.New("out of stock")
		}
		return "shipped", nil
	})

	app := embedded.MustOpen("memory:", orders)
	defer app.Close()
	c := app.With(context.Background())
	for i, fail := range []bool{false, true, false} {
		_, _ = orders.Run(c, fail, perdure.RawKey(fmt.Sprintf("o-%d", i)))
	}
	for info, err := range app.Executions().List(context.Background(), `workflow = "order" and key = "o-"* and status = "failed"`) {
		fmt.Println(info.Ref.Key, info.Status, info.Err, err)
	}
	// Output: o-1 failed out of stock <nil>
}

// The history lists the journaled events of a run.
func ExampleHistories_Events() {
	greet := perdure.NewWorkflow("greet", func(ctx perdure.WorkflowCtx, name string) (string, error) {
		return perdure.Do(ctx, "compose", func(context.Context) (string, error) { return "Hello " + name, nil })
	})
	app := embedded.MustOpen("memory:", greet)
	defer app.Close()
	if _, err := greet.Run(app.With(context.Background()), "World", perdure.RawKey("g")); err != nil {
		panic(err)
	}
	for e, err := range app.Histories().Events(context.Background(), greet.Execution(perdure.RawKey("g"))) {
		fmt.Printf("%d %s %s %s %v\n", e.Position, e.Kind, e.Name, e.Output, err)
	}
	// Output:
	// 0 started greet  <nil>
	// 1 step_completed compose "Hello World" <nil>
	// 2 closed  "Hello World" <nil>
}

// Terminate ends an execution immediately, and its clean-up code does not run. Prefer Cancel if the
// code can react.
func ExampleExecutions_Terminate() {
	stubborn := perdure.NewWorkflow("stubborn", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		for {
			_ = ctx.Detached().Sleep(time.Hour) // ignores cancellation
		}
	})

	app := embedded.MustOpen("memory:", stubborn)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := stubborn.Start(c, "", perdure.RawKey("s"))
	if err != nil {
		panic(err)
	}
	if err := app.Executions().Terminate(context.Background(), exec, "it does not listen"); err != nil {
		panic(err)
	}
	_, err = exec.Result(c)
	o, _ := exec.Poll(c)
	fmt.Println(o.Status, "/", err)
	// Output: terminated / terminated: it does not listen
}

// A paused execution does not continue until it is resumed. The engine keeps signals that arrive in
// between.
func ExampleExecutions_Pause() {
	paid := perdure.NewSignal[int]("paid")
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (int, error) { return paid.Receive(ctx) })
	app := embedded.MustOpen("memory:", orders)
	defer app.Close()
	ctx := context.Background()
	exec, err := orders.Start(app.With(ctx), "", perdure.RawKey("o-1"))
	if err != nil {
		panic(err)
	}
	if err := app.Executions().Pause(ctx, exec, "audit"); err != nil {
		panic(err)
	}
	if err := paid.Send(app.With(ctx), exec, 5); err != nil {
		panic(err)
	}
	info, _ := app.Executions().Describe(ctx, exec)
	fmt.Println(info.Status, "/", info.Reason)
	if err := app.Executions().Resume(ctx, exec); err != nil {
		panic(err)
	}
	fmt.Println(exec.Result(app.With(ctx)))
	// Output:
	// running / is paused: audit
	// 5 <nil>
}

// Stranded lists executions that no live process can continue. Call it after a deploy. Here, the
// new build has renamed a workflow.
func ExampleExecutions_Stranded() {
	wait := func(ctx perdure.WorkflowCtx, _ string) (string, error) { return "", ctx.Sleep(time.Hour) }
	old, renamed := perdure.NewWorkflow("order", wait), perdure.NewWorkflow("purchase", wait)

	url, remove := newFile()
	defer remove()
	ctx := context.Background()

	app := embedded.MustOpen(url, old)
	if _, err := old.Start(app.With(ctx), "", perdure.RawKey("o-1")); err != nil {
		panic(err)
	}
	if err := app.Close(); err != nil {
		panic(err)
	}
	app = embedded.MustOpen(url, renamed)
	defer app.Close()
	for info, err := range app.Executions().Stranded(ctx) {
		fmt.Println(info.Ref.Workflow, info.Ref.Key, "/", info.Reason, "/", err)
	}
	// Output: order o-1 / waits for a worker that offers workflow order: no live process has its code / <nil>
}

// When code does not match the history, no step runs. The execution stays open, and the reason
// names the recorded step and the step that the code asked for.
func ExampleInfo() {
	done := func(context.Context) (bool, error) { return true, nil }
	goOn := perdure.NewSignal[perdure.Void]("go-on")
	orders := perdure.DeclareWorkflow[string, string]("order")
	before := orders.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := perdure.Do(ctx, "charge", done); err != nil {
			return "", err
		}
		_, err := goOn.Receive(ctx)
		return "charged", err
	})
	after := orders.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := perdure.Do(ctx, "debit", done); err != nil { // a new name for the same step
			return "", err
		}
		_, err := goOn.Receive(ctx)
		return "debited", err
	})

	url, remove := newFile()
	defer remove()
	ctx := context.Background()
	exec := orders.Execution(perdure.RawKey("o-1"))

	app := embedded.MustOpen(url, before)
	if _, err := orders.Start(app.With(ctx), "", perdure.RawKey("o-1")); err != nil {
		panic(err)
	}
	waitFor(app, exec.Ref, "waits for signal")
	if err := app.Close(); err != nil {
		panic(err)
	}

	app = embedded.MustOpen(url, after)
	if err := goOn.Send(app.With(ctx), exec, perdure.Void{}); err != nil {
		panic(err)
	}
	waitFor(app, exec.Ref, "mismatch")
	info, err := app.Executions().Describe(ctx, exec)
	position := regexp.MustCompile(` at \S+:\d+`) // files and lines differ on every machine
	fmt.Println(info.Status, "/", position.ReplaceAllString(info.Reason, ""), "/", err)
	if err := app.Close(); err != nil {
		panic(err)
	}

	app = embedded.MustOpen(url, before) // a build that matches
	defer app.Close()
	fmt.Println(exec.Result(app.With(ctx)))
	// Output:
	// running / is blocked by a replay mismatch: event 1 records step charge, which the code did not ask for; it asks for step debit / <nil>
	// charged <nil>
}

// Only the version of the program that started a pinned execution continues it. After a deploy, if
// no process of the old version runs, Stranded lists the execution.
func ExamplePinned() {
	goOn := perdure.NewSignal[perdure.Void]("go-on")
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := perdure.Do(ctx, "charge", func(context.Context) (bool, error) { return true, nil }); err != nil {
			return "", err
		}
		_, err := goOn.Receive(ctx)
		return "charged", err
	}, perdure.Pinned())
	exec := orders.Execution(perdure.RawKey("o-1"))

	url, remove := newFile()
	defer remove()
	ctx := context.Background()
	deploy := func(version string) *perdure.App {
		app, err := embedded.Config{Version: version}.Open(ctx, url, orders)
		if err != nil {
			panic(err)
		}
		return app
	}

	app := deploy("v1")
	if _, err := orders.Start(app.With(ctx), "", perdure.RawKey("o-1")); err != nil {
		panic(err)
	}
	waitFor(app, exec.Ref, "waits for signal")
	if err := app.Close(); err != nil {
		panic(err)
	}

	app = deploy("v2")
	if err := goOn.Send(app.With(ctx), exec, perdure.Void{}); err != nil {
		panic(err)
	}
	for info, err := range app.Executions().Stranded(ctx) {
		fmt.Println("stranded:", info.Ref.Workflow, info.Ref.Key, err)
	}
	if err := app.Close(); err != nil {
		panic(err)
	}

	app = deploy("v1")
	defer app.Close()
	fmt.Println(exec.Result(app.With(ctx)))
	// Output:
	// stranded: order o-1 <nil>
	// charged <nil>
}
