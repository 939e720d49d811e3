package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An operator drops a call that waits for an entity. The other call stays.
func ExampleMailboxes() {
	ctx := context.Background()
	app := embedded.MustOpen("memory:", perdure.NewWorkflow("idle", func(perdure.WorkflowCtx, perdure.Void) (int, error) { return 0, nil }))
	defer app.Close()

	// The code of gauge is in another program, which does not run.
	gauge := perdure.DeclareOperation[int, int]("gauge", "set")
	for _, n := range []int{7, 700} {
		if err := gauge.Send(app.With(ctx), "g-1", n); err != nil {
			panic(err)
		}
	}

	ref := perdure.EntityRef{Type: "gauge", Key: "g-1"}
	var last perdure.MailboxCall
	for call, err := range app.Mailboxes().List(ctx, ref) {
		if err != nil {
			panic(err)
		}
		last = call
	}
	wrong, err := app.Mailboxes().Describe(ctx, ref, last.ID)
	fmt.Println(wrong.Position, wrong.Operation, string(wrong.Input), err)
	fmt.Println(app.Mailboxes().Drop(ctx, ref, wrong.ID))
	for call, err := range app.Mailboxes().List(ctx, ref) {
		fmt.Println(call.Position, call.Operation, err)
	}
	// Output:
	// 2 set 700 <nil>
	// <nil>
	// 1 set <nil>
}
