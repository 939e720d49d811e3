// Command checkout sells items from shelves. A workflow locks the shelves of an order and takes all
// items or none. A task charges the card. If the card is refused, the workflow puts all items back.
//
//	go run ./examples/checkout [store URL]
//
// Shelves are entities. While the workflow checks and takes items, its lock keeps other orders away
// from the shelves. The charge is a task with a retry policy. Any process that serves the queue may
// execute it.
//
// Before you deploy a new build, you can check its code against the stored histories:
//
//	go build -o checkout ./examples/checkout
//	perdure deploy-check --store file:checkout.db -- ./checkout
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	// shelf is the state of an entity. Its key is the name of the item.
	shelf struct{ Pieces int }
	// order lists the items that a customer wants, each item once.
	order struct {
		ID    string
		Items []string
		Card  string
	}
	payment struct {
		Order, Card string
		Cents       int
	}
)

// price is the price of each item, in cents.
const price = 20_00

var (
	shelves = perdure.NewEntity[shelf]("shelf")
	put     = perdure.NewOperation(shelves, "put", func(_ perdure.EntityCtx, s *shelf, n int) (int, error) {
		s.Pieces += n
		return s.Pieces, nil
	})
	take = perdure.NewOperation(shelves, "take", func(ctx perdure.EntityCtx, s *shelf, n int) (int, error) {
		if s.Pieces < n {
			return s.Pieces, perdure.Permanent(fmt.Errorf("there are only %d of %s", s.Pieces, ctx.Key()))
		}
		s.Pieces -= n
		return s.Pieces, nil
	})

	// charge is a task. Without this policy, the engine would retry it forever.
	charge = perdure.NewActivity("charge", chargeCard, perdure.OnQueue("payments"), perdure.RetryPolicy{MaxAttempts: 3, Initial: 10 * time.Millisecond})

	checkout = perdure.NewWorkflow("checkout", sell, perdure.Uses(charge)).
			KeyedBy(func(o order) perdure.Key { return perdure.RawKey(o.ID) })
)

// chargeCard simulates a payment provider. The provider uses the idempotency key to charge the card
// only once.
func chargeCard(ctx context.Context, p payment) (string, error) {
	switch {
	case p.Card == "stolen":
		return "", perdure.Permanent(errors.New("the card is refused"))
	case p.Card == "slow" && perdure.Attempt(ctx) < 3:
		return "", errors.New("the provider does not answer") // the engine retries the task
	}
	return fmt.Sprintf("%s paid %d.%02d", p.Order, p.Cents/100, p.Cents%100), nil
}

// sell takes the items of an order from their shelves and charges the card.
func sell(ctx perdure.WorkflowCtx, o order) (string, error) {
	if err := takeAll(ctx, o.Items); err != nil {
		return "", err
	}
	receipt, err := charge.Run(ctx, payment{o.ID, o.Card, len(o.Items) * price})
	if err == nil {
		return receipt, nil
	}
	for _, item := range o.Items {
		if _, err := put.Call(ctx, item, 1); err != nil {
			return "", err
		}
	}
	return "", err
}

// takeAll takes one piece of each item, or nothing. While it holds the locks, no other order can
// take items from these shelves.
func takeAll(ctx perdure.WorkflowCtx, items []string) error {
	var locks perdure.LockSet
	for _, item := range items {
		locks = append(locks, shelves.Ref(item))
	}
	return ctx.Lock(locks, func(ctx perdure.WorkflowCtx) error {
		for _, item := range items {
			s, _, err := shelves.Get(ctx, item)
			if err != nil {
				return err
			}
			if s.Pieces == 0 {
				return perdure.Permanent(fmt.Errorf("%s is sold out", item))
			}
		}
		for _, item := range items {
			if _, err := take.Call(ctx, item, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

var program = perdure.Group{shelves, checkout, charge}

func main() {
	embedded.AnswerDeployCheck(program) // does nothing unless perdure deploy-check runs the program

	url := "file:checkout.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := run(context.Background(), url, say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, say func(format string, args ...any)) error {
	app, err := embedded.Open(ctx, url, program)
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)

	for item, n := range map[string]int{"lamp": 2, "chair": 1} {
		if _, err := put.Call(c, item, n, perdure.RequestID("delivery of "+item)); err != nil {
			return err
		}
	}
	for _, o := range []order{
		{"o-1", []string{"lamp", "chair"}, "good"},
		// There is no second chair, so the order takes no lamp either.
		{"o-2", []string{"lamp", "chair"}, "good"},
		{"o-3", []string{"lamp"}, "stolen"},
		{"o-4", []string{"lamp"}, "slow"},
	} {
		receipt, err := checkout.Run(c, o)
		if err != nil {
			say("%s: %v", o.ID, err)
			continue
		}
		say("%s: %s", o.ID, receipt)
	}
	for _, item := range []string{"lamp", "chair"} {
		s, _, err := shelves.Get(c, item)
		if err != nil {
			return err
		}
		say("%s: %d left", item, s.Pieces)
	}
	return nil
}
