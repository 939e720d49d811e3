// Command bank keeps accounts as entities and moves money between them with workflows that lock
// both accounts. No crash creates or loses a cent.
//
//	go run ./examples/bank [store URL]
//
// Kill it (kill -9, it prints its process id) and run the same command again. Every transfer has a
// key and every deposit has a request id, so the second process does not repeat the ones that have
// ended, and continues the others. One transfer waits for ten seconds between its two halves. If
// you kill the program during that time, the money is in neither account, and both accounts stay
// locked until the next process continues the transfer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	// account is the state of an entity. Its key is the name of the owner.
	account  struct{ Cents int }
	transfer struct {
		ID, From, To string
		Cents        int
		Hesitate     time.Duration `json:",omitempty"` // the pause between the two halves
	}
)

var (
	accounts = perdure.NewEntity[account]("account")
	deposit  = perdure.NewOperation(accounts, "deposit", func(ctx perdure.EntityCtx, a *account, cents int) (int, error) {
		a.Cents += cents
		if a.Cents > 900_00 {
			// An entity may start a workflow, but must never wait for it.
			_, err := review.Start(ctx, ctx.Key(), perdure.RawKey(ctx.Key()))
			return a.Cents, err
		}
		return a.Cents, nil
	})
	withdraw = perdure.NewOperation(accounts, "withdraw", func(_ perdure.EntityCtx, a *account, cents int) (int, error) {
		if a.Cents < cents {
			return a.Cents, perdure.Permanent(errors.New("insufficient funds"))
		}
		a.Cents -= cents
		return a.Cents, nil
	})
	balance = perdure.NewView(accounts, "balance", func(a account, _ perdure.Void) (int, error) { return a.Cents, nil })

	// review reports an account that has become rich.
	review = perdure.NewWorkflow("review", func(ctx perdure.WorkflowCtx, owner string) (string, error) {
		cents, err := balance.Call(ctx, owner, perdure.Void{})
		return fmt.Sprintf("%s has %d.%02d", owner, cents/100, cents%100), err
	})
	// notice prints a message.
	notice = perdure.DeclareActivity[string, perdure.Void]("notice")
	// move takes money from one account and adds it to another. It holds the locks of both
	// accounts, so no other call can change them. After a crash, steps that have completed do not
	// run again.
	move = perdure.NewWorkflow("move", func(ctx perdure.WorkflowCtx, t transfer) (perdure.Void, error) {
		return perdure.Void{}, ctx.Lock(perdure.LockSet{accounts.Ref(t.From), accounts.Ref(t.To)}, func(ctx perdure.WorkflowCtx) error {
			if _, err := withdraw.Call(ctx, t.From, t.Cents); err != nil {
				return err
			}
			if t.Hesitate > 0 {
				if _, err := notice.Run(ctx, fmt.Sprintf("transfer %s has taken %d cents from %s and hesitates for %s", t.ID, t.Cents, t.From, t.Hesitate)); err != nil {
					return err
				}
				if err := ctx.Sleep(t.Hesitate); err != nil {
					return err
				}
			}
			_, err := deposit.Call(ctx, t.To, t.Cents)
			return err
		})
	}, perdure.Uses(notice)).KeyedBy(func(t transfer) perdure.Key { return perdure.RawKey(t.ID) })
)

func main() {
	url := "file:bank.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	fmt.Printf("process %d on %s\n", os.Getpid(), url)
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := run(context.Background(), url, 10*time.Second, say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program returns all definitions that run here.
func program(say func(format string, args ...any)) perdure.Group {
	return perdure.Group{accounts, move, review, notice.Bind(func(_ context.Context, text string) (perdure.Void, error) {
		say("%s", text)
		return perdure.Void{}, nil
	})}
}

func run(ctx context.Context, url string, hesitate time.Duration, say func(format string, args ...any)) error {
	app, err := embedded.Open(ctx, url, program(say))
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)

	owners := []string{"ann", "bob", "cid"}
	for _, owner := range owners {
		if _, err := deposit.Call(c, owner, 500_00, perdure.RequestID("opening of "+owner)); err != nil {
			return err
		}
	}

	if err := transfers(c, owners); err != nil {
		return err
	}
	if _, err := move.Run(c, transfer{ID: "t-poor", From: "ann", To: "bob", Cents: 1_000_000_00}); err != nil {
		say("transfer t-poor: %v", err)
	}
	if _, err := move.Run(c, transfer{ID: "t-rich", From: "ann", To: "bob", Cents: 500_01}); err != nil {
		return err
	}

	word, err := review.Run(c, "bob", perdure.RawKey("bob"))
	if err != nil {
		return err
	}
	say("review: %s", word)
	if _, err := move.Run(c, transfer{ID: "t-slow", From: "bob", To: "cid", Cents: 100, Hesitate: hesitate}); err != nil {
		return err
	}

	sum := 0
	for _, owner := range owners {
		a, _, err := accounts.Get(c, owner)
		if err != nil {
			return err
		}
		say("%s has %d cents", owner, a.Cents)
		sum += a.Cents
	}

	say("together: %d cents", sum)
	return nil
}

// transfers moves money in circles. All transfers run at the same time.
func transfers(c perdure.Client, owners []string) error {
	var wg sync.WaitGroup
	errs := make([]error, len(owners))
	for i, from := range owners {
		to := owners[(i+1)%len(owners)]
		wg.Go(func() {
			for n := range 10 {
				if _, err := move.Run(c, transfer{ID: fmt.Sprintf("t-%s-%d", from, n), From: from, To: to, Cents: n + i}); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
