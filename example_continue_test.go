package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A long-running workflow asks between two pieces of work whether it should continue as new.
func ExampleWorkflowCtx_ShouldContinueAsNew() {
	type inbox struct{ Handled int }
	mail := perdure.NewSignal[string]("mail")
	var desk *perdure.Workflow[inbox, int]

	desk = perdure.NewWorkflow("desk", func(ctx perdure.WorkflowCtx, in inbox) (int, error) {
		for !ctx.ShouldContinueAsNew() {
			letter, err := mail.Receive(ctx)
			if err != nil {
				return 0, err
			}
			if letter == "the end" {
				return in.Handled, nil
			}
			in.Handled++
		}
		// The next run gets the signals that this run did not receive.
		return 0, desk.ContinueAsNew(in)
	})

	ctx := context.Background()
	app, err := embedded.Open(ctx, "memory:", desk)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	c := app.With(ctx)
	x, err := desk.Start(c, inbox{}, perdure.RawKey("d-1"))
	if err != nil {
		panic(err)
	}

	for _, letter := range []string{"a bill", "a cheque", "the end"} {
		if err := mail.Send(c, x, letter); err != nil {
			panic(err)
		}
	}

	fmt.Println(x.Result(c))
	// Output: 2 <nil>
}
