package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A workflow stops waiting for a lock after some time. Operators see which execution holds the
// lock.
func ExampleWorkflowCtx_Lock_timeout() {
	printers := perdure.NewEntity[[]string]("printer")
	print := perdure.NewOperation(printers, "print", func(_ perdure.EntityCtx, s *[]string, page string) (int, error) {
		*s = append(*s, page)
		return len(*s), nil
	})

	repaired := perdure.NewSignal[bool]("repaired")
	repair := perdure.NewWorkflow("repair", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return "done", ctx.Lock(perdure.LockSet{printers.Ref("p-1")}, func(ctx perdure.WorkflowCtx) error {
			_, err := repaired.Receive(ctx)
			return err
		})
	})

	letter := perdure.NewWorkflow("letter", func(ctx perdure.WorkflowCtx, page string) (string, error) {
		err := ctx.WithTimeout(100*time.Millisecond).Lock(perdure.LockSet{printers.Ref("p-1")}, func(ctx perdure.WorkflowCtx) error {
			_, err := print.Call(ctx, "p-1", page)
			return err
		})
		if errors.Is(err, perdure.ErrTimeout) {
			return "the printer is busy", nil
		}
		return "printed", err
	})

	ctx := context.Background()
	app := embedded.MustOpen("memory:", printers, repair, letter)
	defer app.Close()
	c := app.With(ctx)
	broken, err := repair.Start(c, "", perdure.RawKey("r-1"))
	if err != nil {
		panic(err)
	}

	for held := false; !held; { // until the repair has the lock
		info, err := app.Entities().Describe(ctx, printers.Ref("p-1"))
		if err != nil {
			panic(err)
		}
		held = info.Epoch != 0
	}

	fmt.Println(letter.Run(c, "dear", perdure.RawKey("l-1")))
	for info, err := range app.Locks().List(ctx, "printer") {
		fmt.Println(info.Ref, "is locked by", info.LockedBy.Workflow, info.LockedBy.Key, err)
	}
	if err := repaired.Send(c, broken, true); err != nil {
		panic(err)
	}
	fmt.Println(broken.Result(c))
	fmt.Println(letter.Run(c, "dear", perdure.RawKey("l-2")))
	// Output:
	// the printer is busy <nil>
	// {printer p-1} is locked by repair r-1 <nil>
	// done <nil>
	// printed <nil>
}
