package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// The execution exists immediately; its code starts later.
func ExampleStartDelay() {
	remind := perdure.NewWorkflow("remind", func(_ perdure.WorkflowCtx, whom string) (string, error) { return "reminded " + whom, nil })
	app := embedded.MustOpen("memory:", remind)
	defer app.Close()
	ctx := context.Background()
	c := app.With(ctx)

	later, err := remind.Start(c, "Ann", perdure.StartDelay(24*time.Hour))
	if err != nil {
		panic(err)
	}
	info, _ := app.Executions().Describe(ctx, later)
	fmt.Println(info.Status, info.Begins.Sub(info.Started))
	_ = later.Cancel(c, "not needed")

	soon, err := remind.Start(c, "Bob", perdure.StartAt(time.Now().Add(10*time.Millisecond)))
	if err != nil {
		panic(err)
	}
	fmt.Println(soon.Result(c))
	// Output:
	// running 24h0m0s
	// reminded Bob <nil>
}

// The engine ends an execution that takes too long, even if its code does not react.
func ExampleExecutionTimeout() {
	forever := perdure.NewWorkflow("forever", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return "", ctx.Sleep(perdure.Forever) })
	app := embedded.MustOpen("memory:", forever)
	defer app.Close()

	_, err := forever.Run(app.With(context.Background()), "", perdure.ExecutionTimeout(10*time.Millisecond))
	fmt.Println(errors.Is(err, perdure.ErrTimeout), err)
	// Output: true the execution did not end within 10ms
}

// A workflow may have a retry policy, as activities do. After a failed run the engine starts
// another run with the same input.
func ExampleRetryPolicy_workflow() {
	flaky := perdure.NewWorkflow("import", func(ctx perdure.WorkflowCtx, file string) (string, error) {
		if ctx.Attempt() < 3 {
			return "", errors.New("the file is locked")
		}
		return fmt.Sprintf("%s at attempt %d", file, ctx.Attempt()), nil
	}, perdure.Constant(5, time.Millisecond))
	app := embedded.MustOpen("memory:", flaky)
	defer app.Close()
	c := app.With(context.Background())

	fmt.Println(flaky.Run(c, "orders.csv"))
	// this start has another policy
	fmt.Println(flaky.Run(c, "prices.csv", perdure.Constant(2, time.Millisecond)))
	// Output:
	// orders.csv at attempt 3 <nil>
	//  the file is locked
}

// StartMany starts thousands of executions in a few commits. Each start has its own outcome.
func ExampleStarted() {
	double := perdure.NewWorkflow("double", func(_ perdure.WorkflowCtx, n int) (int, error) { return 2 * n, nil }).
		KeyedBy(func(n int) perdure.Key { return perdure.RawKey(fmt.Sprint("n-", n)) })
	app := embedded.MustOpen("memory:", double)
	defer app.Close()
	c := app.With(context.Background())

	started, err := double.StartMany(c, []int{1, 2, 3})
	if err != nil {
		panic(err)
	}
	sum := 0
	for _, s := range started {
		if s.Err != nil {
			panic(s.Err)
		}
		out, err := s.Execution.Result(c)
		if err != nil {
			panic(err)
		}
		sum += out
	}
	again, err := double.StartMany(c, []int{3, 4})
	fmt.Println(sum, again[0].Existing, again[1].Existing, err)
	// Output: 12 true false <nil>
}
