package perdure_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// ForceDelete saves the rows of an execution and then removes it. Use it when the execution cannot
// end in any other way.
func ExampleExecutions_ForceDelete() {
	ctx := context.Background()
	stuck := perdure.NewWorkflow("stuck", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return perdure.NewSignal[string]("never").Receive(ctx)
	})
	app, err := embedded.Open(ctx, "memory:", stuck)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	exec, err := stuck.Start(app.With(ctx), "in", perdure.RawKey("42"))
	if err != nil {
		panic(err)
	}
	var rows bytes.Buffer
	if err := app.Executions().ForceDelete(ctx, exec, &rows); err != nil {
		panic(err)
	}
	_, err = app.Executions().Describe(ctx, exec)
	fmt.Println(rows.Len() > 0, err != nil)
	// Output: true true
}

// Entities.ForceDelete saves the rows of an entity and then removes it. Use it when the entity can
// be neither read nor changed.
func ExampleEntities_ForceDelete() {
	ctx := context.Background()
	account := perdure.NewEntity[int]("account")
	deposit := perdure.NewOperation(account, "deposit", func(_ perdure.EntityCtx, cents *int, n int) (int, error) {
		*cents += n
		return *cents, nil
	})

	app, err := embedded.Open(ctx, "memory:", account)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	if _, err := deposit.Call(app.With(ctx), "42", 100); err != nil {
		panic(err)
	}
	var rows bytes.Buffer
	if err := app.Entities().ForceDelete(ctx, account.Ref("42"), &rows); err != nil {
		panic(err)
	}
	info, err := app.Entities().Describe(ctx, account.Ref("42"))
	fmt.Println(rows.Len() > 0, info.Exists, err)
	// Output: true false <nil>
}
