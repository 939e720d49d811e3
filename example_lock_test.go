package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Code inside Lock changes several entities before any other caller can use one of them.
func ExampleWorkflowCtx_Lock() {
	type account struct{ Cents int }
	type transfer struct {
		From, To string
		Cents    int
	}

	accounts := perdure.NewEntity[account]("account")
	deposit := perdure.NewOperation(accounts, "deposit", func(_ perdure.EntityCtx, a *account, cents int) (int, error) {
		a.Cents += cents
		return a.Cents, nil
	})

	withdraw := perdure.NewOperation(accounts, "withdraw", func(_ perdure.EntityCtx, a *account, cents int) (int, error) {
		if a.Cents < cents {
			return a.Cents, errors.New("insufficient funds")
		}
		a.Cents -= cents
		return a.Cents, nil
	})

	move := perdure.NewWorkflow("move", func(ctx perdure.WorkflowCtx, t transfer) (string, error) {
		err := ctx.Lock(perdure.LockSet{accounts.Ref(t.From), accounts.Ref(t.To)}, func(ctx perdure.WorkflowCtx) error {
			if _, err := withdraw.Call(ctx, t.From, t.Cents); err != nil {
				return err
			}
			_, err := deposit.Call(ctx, t.To, t.Cents)
			return err
		})
		return "moved", err
	})

	app := embedded.MustOpen("memory:", accounts, move)
	defer app.Close()
	c := app.With(context.Background())
	for _, key := range []string{"ann", "bob"} {
		if _, err := deposit.Call(c, key, 100); err != nil {
			panic(err)
		}
	}

	var both sync.WaitGroup
	// The transfers lock the accounts in opposite orders, and still do not deadlock.
	for _, t := range []transfer{{"ann", "bob", 30}, {"bob", "ann", 20}} {
		both.Go(func() { _, _ = move.Run(c, t) })
	}
	both.Wait()
	fmt.Println(accounts.Get(c, "ann"))
	fmt.Println(accounts.Get(c, "bob"))
	fmt.Println(move.Run(c, transfer{"ann", "bob", 500}))
	// Output:
	// {90} true <nil>
	// {110} true <nil>
	//  insufficient funds
}

// A set may have entities of different types. Its order does not matter.
func ExampleLockSet() {
	type shelf struct{ Pieces int }
	shelves := perdure.NewEntity[shelf]("shelf")
	count := perdure.NewOperation(shelves, "count", func(_ perdure.EntityCtx, s *shelf, _ perdure.Void) (int, error) { return s.Pieces, nil })

	inventory := perdure.NewWorkflow("inventory", func(ctx perdure.WorkflowCtx, keys []string) (string, error) {
		set := perdure.LockSet{{Type: "warehouse", Key: "main"}} // the name of a lock; there is no entity of this type
		for _, k := range keys {
			set = append(set, shelves.Ref(k))
		}
		total := 0
		var other error

		err := ctx.Lock(set, func(ctx perdure.WorkflowCtx) error {
			for _, k := range keys {
				n, err := count.Call(ctx, k, perdure.Void{})
				if err != nil {
					return err
				}
				total += n
			}
			// The call returns an error, and nothing is sent.
			_, other = count.Call(ctx, "elsewhere", perdure.Void{})
			return nil
		})

		return fmt.Sprintf("%d pieces; %v", total, other), err
	})

	app := embedded.MustOpen("memory:", shelves, inventory)
	defer app.Close()
	fmt.Println(inventory.Run(app.With(context.Background()), []string{"lamps", "desks"}))
	// Output:
	// 0 pieces; call of count of shelf/elsewhere, which is not among the locked entities: lock it together with them <nil>
}

// The fencing token of the lock protects what an activity writes outside the engine.
func ExampleFence() {
	printers := perdure.NewEntity[int]("printer")
	var last int64 // the largest token that the printer has seen
	pages := perdure.NewActivity("print", func(ctx context.Context, text string) (string, error) {
		token, locked := perdure.Fence(ctx, printers.Ref("hall"))
		if !locked || token < last {
			return "", perdure.Permanent(errors.New("somebody else has the printer"))
		}
		last = token
		return "printed " + text, nil
	})

	report := perdure.NewWorkflow("report", func(ctx perdure.WorkflowCtx, text string) (out string, err error) {
		err = ctx.Lock(perdure.LockSet{printers.Ref("hall")}, func(ctx perdure.WorkflowCtx) error {
			out, err = pages.Run(ctx, text)
			return err
		})
		if err != nil {
			return "", err
		}
		_, err = pages.Run(ctx, text+" again")
		return out + ", then: " + err.Error(), nil
	})

	app := embedded.MustOpen("memory:", report, pages)
	defer app.Close()
	fmt.Println(report.Run(app.With(context.Background()), "page 1"))
	// Output: printed page 1, then: somebody else has the printer <nil>
}
