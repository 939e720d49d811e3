package perdure_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// ForceDelete removes an execution that cannot be ended in any other way, after its rows have been saved.
func ExampleApp_ForceDelete() {
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
	if err := app.ForceDelete(ctx, exec, &rows); err != nil {
		panic(err)
	}
	_, err = app.Describe(ctx, exec)
	fmt.Println(rows.Len() > 0, err != nil)
	// Output: true true
}
