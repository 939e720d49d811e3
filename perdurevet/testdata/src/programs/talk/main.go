package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	Approval struct {
		By string
		OK bool
	}
	Item struct {
		SKU string
		N   int
	}
	Cart struct{ Items []Item }
	Sub  struct {
		User  string
		Month int
	}
)

var (
	Approved = perdure.NewSignal[Approval]("approved")
	Decision = perdure.NewPromise[Approval]("decision")
	AddItem  = perdure.NewUpdate[Item, Cart]("add-item")
	Contents = perdure.NewQuery[perdure.Void, Cart]("contents")
	Checkout = perdure.NewSignal[perdure.Void]("checkout")

	Approve   = perdure.NewWorkflow("approve", approve)
	Decide    = perdure.NewWorkflow("decide", decide)
	Carts     = perdure.NewWorkflow("cart", cart)
	Subscribe = perdure.DeclareWorkflow[Sub, perdure.Void]("subscribe") // refers to itself
)

func approve(ctx perdure.WorkflowCtx, doc string) (string, error) {
	a, err := Approved.Receive(ctx.WithTimeout(48 * time.Hour))
	switch {
	case errors.Is(err, perdure.ErrTimeout):
		return "expired", nil
	case err != nil:
		return "", err
	}
	return "approved by " + a.By, nil
}

func decide(ctx perdure.WorkflowCtx, doc string) (bool, error) {
	_, err := perdure.Do(ctx, "mail", func(context.Context) (perdure.Void, error) {
		fmt.Println("answer to", ctx.Self()) // read-only accessors are fine in a step
		return perdure.Void{}, nil
	})
	if err != nil {
		return false, err
	}
	d, err := Decision.Await(ctx.WithTimeout(24 * time.Hour))
	return d.OK, err
}

func cart(ctx perdure.WorkflowCtx, user string) (Cart, error) {
	var c Cart
	Contents.Handle(ctx, func(perdure.Void) (Cart, error) { return c, nil })
	AddItem.Handle(ctx, func(ctx perdure.WorkflowCtx, it Item) (Cart, error) {
		c.Items = append(c.Items, it)
		return c, nil
	}, func(it Item) error {
		if it.N <= 0 {
			return errors.New("n must be positive")
		}
		return nil
	})
	_, err := Checkout.Receive(ctx)
	return c, err
}

func subscribe(ctx perdure.WorkflowCtx, s Sub) (perdure.Void, error) {
	cancelled, month := Checkout.Next(ctx), ctx.Timer(30*24*time.Hour)
	first, err := perdure.Select(ctx, cancelled, month)
	if err != nil || first == cancelled {
		return perdure.Void{}, err
	}
	return perdure.Void{}, Subscribe.ContinueAsNew(Sub{s.User, s.Month + 1})
}

func main() {
	ctx := context.Background()
	app := embedded.MustOpen("memory:", Approve, Decide, Carts, Subscribe.Bind(subscribe))
	defer app.Close()
	c := app.With(ctx)
	exec, _ := Approve.Start(c, "doc-1", perdure.HashKey(Sub{"u", 1}))
	_ = Approved.Send(c, exec, Approval{"eve", true})
	ref, _ := perdure.ParseRef("decide/doc-2")
	_ = Decision.Resolve(c, ref, Approval{"bob", true})
	cartOf := Carts.Execution(perdure.RawKey("u-1"))
	_, _ = AddItem.Call(c, cartOf, Item{"sku", 1})
	fmt.Println(Contents.Ask(c, cartOf, perdure.Void{}))
}
