package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An operator drops a signal that was sent by mistake. The code never receives it.
func ExampleSignals() {
	ctx := context.Background()
	price, open := perdure.NewSignal[int]("price"), perdure.NewSignal[bool]("open")
	shop := perdure.NewWorkflow("shop", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		if _, err := open.Receive(ctx); err != nil {
			return 0, err
		}
		return price.Receive(ctx)
	})
	app := embedded.MustOpen("memory:", shop)
	defer app.Close()

	x, err := shop.Start(app.With(ctx), "", perdure.RawKey("s-1"))
	if err != nil {
		panic(err)
	}
	for range 3 {
		if err := perdure.NewSignal[string]("noise").Send(app.With(ctx), x, "hum"); err != nil {
			panic(err)
		}
	}
	fmt.Println(app.Signals().DropAll(ctx, x, "noise", "a broken sender"))
	for _, cents := range []int{0, 995} {
		if err := price.Send(app.With(ctx), x, cents); err != nil {
			panic(err)
		}
	}
	signals, err := app.Signals().List(ctx, x)
	if err != nil {
		panic(err)
	}
	wrong, err := app.Signals().Describe(ctx, x, signals[0].ID)
	fmt.Println(wrong.Position, wrong.Name, string(wrong.Value), err)
	fmt.Println(app.Signals().Drop(ctx, x, wrong.ID, "nobody sells for nothing"))

	if err := open.Send(app.With(ctx), x, true); err != nil {
		panic(err)
	}
	fmt.Println(x.Result(app.With(ctx)))
	// Output:
	// 3 <nil>
	// 1 price 0 <nil>
	// <nil>
	// 995 <nil>
}
