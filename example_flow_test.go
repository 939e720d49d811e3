package perdure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Activities name limits and breakers, and rules define them. The store keeps the rules. Operators
// may change a rule while tasks run.
func ExampleLimits() {
	ctx := context.Background()
	charge := perdure.NewActivity("charge", func(_ context.Context, cents int) (string, error) { return fmt.Sprint("charged ", cents), nil },
		perdure.OnQueue("payments"), perdure.Limit("bank"), perdure.Breaker("bank"))
	app, err := embedded.Open(ctx, "memory:", charge)
	if err != nil {
		fmt.Println(err)
		return
	}

	defer app.Close()
	rules := []error{
		app.Limits().Set(ctx, perdure.LimitRule{Name: "bank", Concurrency: 5, Rate: 100, Period: time.Minute, Burst: 10}),
		app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: "bank", Failures: 10, Window: time.Minute, Reset: 30 * time.Second}),
		app.Limits().Set(ctx, perdure.LimitRule{Name: "fair", Queue: "nowhere", Concurrency: 1}),
	}

	fmt.Println(rules[0], rules[1])
	fmt.Println(rules[2])
	task, err := charge.Submit(app.With(ctx), 250)
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(task.Result(app.With(ctx)))
	limits, _ := app.Limits().List(ctx)
	breakers, _ := app.Breakers().List(ctx)
	queues, _ := app.Queues().List(ctx)
	fmt.Println(limits[0].Name, limits[0].Rate, len(limits[0].Uses), breakers[0].Name, breakers[0].State, queues[1].Name)
	// Output:
	// <nil> <nil>
	// limit fair: there is no queue nowhere (queues that have workers, or waiting tasks here: default, payments)
	// charged 250 <nil>
	// bank 100 0 bank closed payments
}

// This rule gives a circuit breaker to an activity that has no Breaker option. Operators open and
// close the breaker.
func ExampleBreakers() {
	ctx := context.Background()
	send := perdure.NewActivity("send", func(_ context.Context, to string) (string, error) { return "sent to " + to, nil }, perdure.OnQueue("mail"))
	app, err := embedded.Open(ctx, "memory:", send)
	if err != nil {
		fmt.Println(err)
		return
	}

	defer app.Close()
	fmt.Println(app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: "activity:send", Ratio: 0.5, Calls: 10}))
	fmt.Println(app.Breakers().Trip(ctx, "activity:send", "the provider migrates"))
	breakers, _ := app.Breakers().List(ctx)
	fmt.Println(breakers[0].Name, breakers[0].State, breakers[0].Reason)
	fmt.Println(app.Breakers().Reset(ctx, "activity:send"))
	task, err := send.Submit(app.With(ctx), "ann")
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(task.Result(app.With(ctx)))
	// Output:
	// <nil>
	// <nil>
	// activity:send open the provider migrates
	// <nil>
	// sent to ann <nil>
}

// Pausing a queue pauses it in all processes. Each process has its own number of slots.
func ExampleQueues() {
	ctx := context.Background()
	send := perdure.NewActivity("send", func(_ context.Context, to string) (string, error) { return "sent to " + to, nil }, perdure.OnQueue("mail"))
	app, err := embedded.Config{Tasks: perdure.TaskConfig{Slots: 8}}.Open(ctx, "memory:", send)
	if err != nil {
		fmt.Println(err)
		return
	}

	defer app.Close()
	fmt.Println(app.Queues().Pause(ctx, "mail", "deploy"))
	queues, _ := app.Queues().List(ctx)
	for _, q := range queues {
		fmt.Println(q.Name, q.Paused, q.Reason, q.Slots)
	}
	// Output:
	// <nil>
	// default false  8
	// mail true deploy 8
}

// TaskConfig sets how a process executes tasks.
func ExampleTaskConfig() {
	ctx := context.Background()
	double := perdure.NewActivity("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil }, perdure.OnQueue("math"))
	app, err := embedded.Config{Tasks: perdure.TaskConfig{Slots: 4, Queues: []string{"spare"}}}.Open(ctx, "memory:", double)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer app.Close()
	task, err := double.Submit(app.With(ctx), 21, perdure.OnQueue("spare"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(task.Result(app.With(ctx)))
	// Output: 42 <nil>
}

// Limits and breakers also apply to an activity that runs in the process of its workflow.
func ExampleLimit_inline() {
	charge := perdure.NewActivity("charge", func(_ context.Context, cents int) (string, error) {
		return fmt.Sprintf("charged %d", cents), nil
	}, perdure.Limit("bank"), perdure.Breaker("bank"))
	pay := perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, cents int) (string, error) { return charge.Run(ctx, cents) })
	app := embedded.MustOpen("memory:", pay, charge)
	defer app.Close()
	ctx := context.Background()

	if err := app.Limits().Set(ctx, perdure.LimitRule{Name: "bank", Concurrency: 5}); err != nil {
		panic(err)
	}
	fmt.Println(pay.Run(app.With(ctx), 990))
	// Output: charged 990 <nil>
}
