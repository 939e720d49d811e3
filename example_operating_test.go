package perdure_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A query finds executions by label. One call of Batch signals all of them.
func Example_operating() {
	approved := perdure.NewSignal[bool]("approved")
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, item string) (string, error) {
		if err := ctx.SetLabel("stage", "waits for approval"); err != nil {
			return "", err
		}
		ok, err := approved.Receive(ctx)
		return fmt.Sprint(item, " ", ok), err
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", order)
	defer app.Close()
	c := app.With(ctx)
	for i, region := range []string{"eu", "us", "eu"} {
		if _, err := order.Start(c, "lamp", perdure.RawKey(fmt.Sprint("o-", i)), perdure.Labels(map[string]string{"region": region})); err != nil {
			panic(err)
		}
	}

	const query = `workflow = "order" and status = "open" and label.region = "eu"`
	n, err := app.Executions().Count(ctx, query)
	fmt.Println(n, "selected", err)

	var done []string
	for e, err := range app.Executions().Batch(ctx, query, func(c perdure.Client, e perdure.Info) error {
		return approved.Send(c, e.Ref, true, perdure.RequestID("approve all of eu"))
	}) {
		done = append(done, fmt.Sprint(e.Ref.Key, " ", err)) // in the order in which the calls end
	}
	slices.Sort(done)
	fmt.Println(done)
	fmt.Println(order.Execution(perdure.RawKey("o-2")).Result(c))
	// Output:
	// 2 selected <nil>
	// [o-0 <nil> o-2 <nil>]
	// lamp true <nil>
}
