package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A future is a result that the code can wait for: the result of a step, a child, a timer, a
// signal, a promise, or a coroutine.
func ExampleFuture() {
	square := perdure.NewActivity("square", func(_ context.Context, n int) (int, error) { return n * n, nil })
	both := perdure.NewWorkflow("both", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		a, b := square.Go(ctx, 3), square.Go(ctx, 4) // both steps run now
		three, err := a.Get(ctx)
		if err != nil {
			return 0, err
		}
		four, err := b.Get(ctx)
		return three + four, err
	})
	app := embedded.MustOpen("memory:", both, square)
	defer app.Close()
	fmt.Println(both.Run(app.With(context.Background()), ""))
	// Output: 25 <nil>
}

// Coroutines run one at a time, so they may share variables.
func ExampleGo() {
	square := perdure.NewActivity("square", func(_ context.Context, n int) (int, error) { return n * n, nil })
	sums := perdure.NewWorkflow("sum", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		total := 0
		var parts []perdure.Waitable
		for i := range n {
			parts = append(parts, perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (perdure.Void, error) {
				sq, err := square.Run(ctx, i)
				total += sq
				return perdure.Void{}, err
			}))
		}
		err := perdure.Wait(ctx, parts...)
		return total, err
	})

	app := embedded.MustOpen("memory:", sums, square)
	defer app.Close()
	fmt.Println(sums.Run(app.With(context.Background()), 4))
	// Output: 14 <nil>
}

// Select waits for the first of several futures, of any types. The other futures continue.
func ExampleSelect() {
	poke := perdure.NewSignal[int]("poke")
	watch := perdure.NewWorkflow("watch", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		got := 0
		for late := ctx.Timer(30 * time.Millisecond); ; {
			// Next returns the same future until Get has returned its signal, so no signal is lost.
			next := poke.Next(ctx)
			first, err := perdure.Select(ctx, next, late)
			if err != nil {
				return "", err
			}
			if first == late {
				return fmt.Sprintf("%d signals in time", got), nil
			}
			n, err := next.Get(ctx)
			if err != nil {
				return "", err
			}
			got += n
		}
	})

	app := embedded.MustOpen("memory:", watch)
	defer app.Close()
	fmt.Println(watch.Run(app.With(context.Background()), "", poke.With(1), poke.With(1)))
	// Output: 2 signals in time <nil>
}

// Race takes the first result, a value or an error, and cancels the other futures.
func ExampleRace() {
	fetch := perdure.NewActivity("fetch", func(ctx context.Context, from string) (string, error) {
		if from == "near" {
			return "the answer of " + from, nil
		}
		<-ctx.Done() // the context ends because the result is no longer needed
		return "", ctx.Err()
	})
	ask := perdure.NewWorkflow("ask", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return perdure.Race(ctx, fetch.Go(ctx, "far"), fetch.Go(ctx, "near"))
	})
	app := embedded.MustOpen("memory:", ask, fetch)
	defer app.Close()
	fmt.Println(ask.Run(app.With(context.Background()), ""))
	// Output: the answer of near <nil>
}

// FirstN takes the first n values, in the order in which they arrive, and cancels the other
// futures.
func ExampleFirstN() {
	quorum := perdure.NewWorkflow("quorum", func(ctx perdure.WorkflowCtx, delays []time.Duration) ([]int, error) {
		var votes []*perdure.Future[int]
		for i, d := range delays {
			votes = append(votes, perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return i, ctx.Sleep(d) }))
		}
		return perdure.FirstN(ctx, 2, votes...)
	})
	app := embedded.MustOpen("memory:", quorum)
	defer app.Close()
	fmt.Println(quorum.Run(app.With(context.Background()), []time.Duration{time.Hour, 40 * time.Millisecond, time.Millisecond}))
	// Output: [2 1] <nil>
}

// All waits for all futures and returns their values in order. On the first error it returns that
// error and cancels the other futures.
func ExampleAll() {
	square := perdure.NewActivity("square", func(_ context.Context, n int) (int, error) {
		if n < 0 {
			return 0, perdure.Permanent(errors.New("that is negative"))
		}
		return n * n, nil
	})

	squares := perdure.NewWorkflow("squares", func(ctx perdure.WorkflowCtx, ns []int) ([]int, error) {
		parts := make([]*perdure.Future[int], len(ns))
		for i, n := range ns {
			parts[i] = square.Go(ctx, n)
		}
		return perdure.All(ctx, parts...)
	})

	app := embedded.MustOpen("memory:", squares, square)
	defer app.Close()
	c := app.With(context.Background())
	fmt.Println(squares.Run(c, []int{1, 2, 3}))
	fmt.Println(squares.Run(c, []int{1, -2, 3}))
	// Output:
	// [1 4 9] <nil>
	// [] that is negative
}

// Wait waits for futures of different types, and cancels nothing.
func ExampleWait() {
	name := perdure.NewActivity("name", func(context.Context, int) (string, error) { return "eve", nil })
	age := perdure.NewActivity("age", func(context.Context, int) (int, error) { return 42, nil })
	profile := perdure.NewWorkflow("profile", func(ctx perdure.WorkflowCtx, id int) (string, error) {
		n, a := name.Go(ctx, id), age.Go(ctx, id)
		if err := perdure.Wait(ctx, n, a); err != nil {
			return "", err
		}
		who, _ := n.Get(ctx) // both are ready
		years, _ := a.Get(ctx)
		return fmt.Sprintf("%s, %d", who, years), nil
	})
	app := embedded.MustOpen("memory:", profile, name, age)
	defer app.Close()
	fmt.Println(profile.Run(app.With(context.Background()), 1))
	// Output: eve, 42 <nil>
}
