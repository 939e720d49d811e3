package perdure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Retry continues a failed execution just before the step that failed. The earlier steps keep their
// results.
func ExampleExecutions_Retry() {
	reserved, stock := 0, 0
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := perdure.Do(ctx, "reserve", func(context.Context) (int, error) { reserved++; return reserved, nil }); err != nil {
			return "", err
		}
		return perdure.Do(ctx, "ship", func(context.Context) (string, error) {
			if stock == 0 {
				return "", perdure.Permanent(errors.New("out of stock"))
			}
			return "shipped", nil
		})
	})

	app := embedded.MustOpen("memory:", orders)
	defer app.Close()
	ctx := context.Background()
	exec := orders.Execution(perdure.RawKey("o-1"))
	fmt.Println(orders.Run(app.With(ctx), "", perdure.RawKey("o-1")))
	stock = 10
	if _, err := app.Executions().Retry(ctx, exec); err != nil {
		panic(err)
	}
	fmt.Println(exec.Result(app.With(ctx)))
	fmt.Println("reserved", reserved, "time")
	// Output:
	//  out of stock
	// shipped <nil>
	// reserved 1 time
}

// Replay checks, before a deploy, whether the new code matches an exported history.
func ExampleReplay() {
	done := func(context.Context) (bool, error) { return true, nil }
	orders := perdure.DeclareWorkflow[string, bool]("order")
	before := orders.Bind(func(ctx perdure.WorkflowCtx, _ string) (bool, error) { return perdure.Do(ctx, "charge", done) })
	after := orders.Bind(func(ctx perdure.WorkflowCtx, _ string) (bool, error) { return perdure.Do(ctx, "debit", done) })

	app := embedded.MustOpen("memory:", before)
	defer app.Close()
	ctx := context.Background()
	if _, err := orders.Run(app.With(ctx), "", perdure.RawKey("o-1")); err != nil {
		panic(err)
	}
	var file bytes.Buffer
	if err := app.Histories().Export(ctx, orders.Execution(perdure.RawKey("o-1")), &file); err != nil {
		panic(err)
	}
	fmt.Println(perdure.Replay(ctx, bytes.NewReader(file.Bytes()), before))
	fmt.Println(perdure.Replay(ctx, bytes.NewReader(file.Bytes()), after) != nil)
	// Output:
	// <nil>
	// true
}
