package perdure_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An operator interrupts an operation that takes too long. The operation has changed nothing, and
// the next call runs.
func ExampleMailboxes_Interrupt() {
	begun := make(chan struct{})
	prices := perdure.NewEntity[int]("price")
	recompute := perdure.NewOperation(prices, "recompute", func(ctx perdure.EntityCtx, cents *int, n int) (int, error) {
		*cents = n
		close(begun)
		<-ctx.Context().Done() // a long computation that checks its context
		return 0, context.Cause(ctx.Context())
	})
	set := perdure.NewOperation(prices, "set", func(_ perdure.EntityCtx, cents *int, n int) (int, error) {
		old := *cents
		*cents = n
		return old, nil
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", prices)
	defer app.Close()
	c := app.With(ctx)
	if _, err := set.Call(c, "lamp", 100); err != nil {
		panic(err)
	}

	failed := make(chan error)
	go func() {
		_, err := recompute.Call(c, "lamp", 999)
		failed <- err
	}()
	<-begun
	running, err := app.Mailboxes().Interrupt(ctx, prices.Ref("lamp"), "")
	fmt.Println(len(running), running[0].Operation, err)
	fmt.Println(errors.Is(<-failed, perdure.ErrInterrupted))
	fmt.Println(set.Call(c, "lamp", 200))
	// Output:
	// 1 recompute <nil>
	// true
	// 100 <nil>
}

// The engine keeps the last operations of each account. Support staff can see what happened to the
// account.
func ExampleOperationLog() {
	accounts := perdure.NewEntity[int]("account", perdure.OperationLog(2), perdure.LogInputs())
	withdraw := perdure.NewOperation(accounts, "withdraw", func(_ perdure.EntityCtx, cents *int, n int) (int, error) {
		if *cents-n < -100 {
			return 0, errors.New("the credit is used up")
		}
		*cents -= n
		return *cents, nil
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", accounts)
	defer app.Close()
	for i, n := range []int{10, 50, 70} {
		_, _ = withdraw.Call(app.With(ctx), "a-1", n, perdure.RequestID(fmt.Sprint("w-", i)))
	}
	info, err := app.Entities().Describe(ctx, accounts.Ref("a-1"))
	if err != nil {
		panic(err)
	}
	for _, r := range info.Log {
		fmt.Println(r.RequestID, r.Operation, string(r.Input), r.Err)
	}
	// Output:
	// w-1 withdraw 50 <nil>
	// w-2 withdraw 70 the credit is used up
}
