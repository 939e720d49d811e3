package perdure_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An operator limits how many executions of a tenant may be open.
func ExampleTenant_SetAllowance() {
	approved := perdure.NewSignal[bool]("approved")
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (bool, error) {
		return approved.Receive(ctx)
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", order)
	defer app.Close()
	if err := app.Tenant().SetAllowance(ctx, perdure.Allowance{OpenExecutions: 1}); err != nil {
		panic(err)
	}

	for _, key := range []string{"o-1", "o-2"} {
		_, err := order.Start(app.With(ctx), "lamp", perdure.RawKey(key))
		fmt.Println(key, "refused:", errors.Is(err, perdure.ErrExhausted))
	}
	a, err := app.Tenant().Allowance(ctx)
	fmt.Println(app.Tenant().Name(), a.OpenExecutions, err)
	// Output:
	// o-1 refused: false
	// o-2 refused: true
	// default 1 <nil>
}
