// Command order-saga shows compensation. If a later step fails permanently, the workflow undoes the
// earlier steps in reverse order, as durable steps.
//
//	go run ./examples/order-saga [store URL]
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

// The contract: names and types. shop.definitions binds the code to these names.
type (
	order   struct{ ID, Address string }
	booking struct{ ID string }
)

var (
	reserve = perdure.DeclareActivity[order, booking]("reserve")
	release = perdure.DeclareActivity[booking, perdure.Void]("release")
	charge  = perdure.DeclareActivity[order, booking]("charge", perdure.Constant(5, 100*time.Millisecond))
	refund  = perdure.DeclareActivity[booking, perdure.Void]("refund")
	ship    = perdure.DeclareActivity[order, booking]("ship", perdure.Exponential(3))
	orders  = perdure.DeclareWorkflow[order, string]("order", perdure.Uses(reserve, release, charge, refund, ship)).
		KeyedBy(func(o order) perdure.Key { return perdure.RawKey(o.ID) })
)

func process(ctx perdure.WorkflowCtx, o order) (string, error) {
	stock, err := reserve.Run(ctx, o)
	if err != nil {
		return "", err
	}
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error { _, err := release.Run(ctx, stock); return err })
	paid, err := charge.Run(ctx, o)
	if err != nil {
		return "", err
	}
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error { _, err := refund.Run(ctx, paid); return err })
	parcel, err := ship.Run(ctx, o)
	if err != nil {
		return "", fmt.Errorf("ship order %s: %w", o.ID, err)
	}
	return parcel.ID, nil
}

// shop does the work of the activities.
type shop struct {
	say func(format string, args ...any)
}

func (s *shop) reserve(_ context.Context, o order) (booking, error) {
	s.say("reserved stock for %s", o.ID)
	return booking{"stock-" + o.ID}, nil
}

func (s *shop) release(_ context.Context, b booking) (perdure.Void, error) {
	s.say("released %s", b.ID)
	return perdure.Void{}, nil
}

func (s *shop) charge(ctx context.Context, o order) (booking, error) {
	if perdure.Attempt(ctx) == 1 {
		s.say("the payment service does not answer; retrying")
		return booking{}, errors.New("timeout")
	}
	s.say("charged %s, attempt %d", o.ID, perdure.Attempt(ctx))
	return booking{"payment-" + o.ID}, nil
}

func (s *shop) refund(_ context.Context, b booking) (perdure.Void, error) {
	s.say("refunded %s", b.ID)
	return perdure.Void{}, nil
}

func (s *shop) ship(_ context.Context, o order) (booking, error) {
	if o.Address == "" {
		return booking{}, perdure.Permanent(errors.New("there is no address"))
	}
	s.say("shipped %s to %s", o.ID, o.Address)
	return booking{"parcel-" + o.ID}, nil
}

// definitions binds the code to the contract.
func (s *shop) definitions() perdure.Group {
	return perdure.Group{
		reserve.Bind(s.reserve), release.Bind(s.release), charge.Bind(s.charge), refund.Bind(s.refund), ship.Bind(s.ship),
		orders.Bind(process),
	}
}

func main() {
	url := "memory:"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url, func(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, say func(string, ...any)) error {
	app, err := embedded.Open(ctx, url, (&shop{say}).definitions())
	if err != nil {
		return err
	}
	defer app.Close()
	for _, o := range []order{{"o-1", "Main Street 1"}, {"o-2", ""}} {
		say("order %s", o.ID)
		parcel, err := orders.Run(app.With(ctx), o)
		if err != nil {
			say("order %s failed and was undone: %v", o.ID, err)
			continue
		}
		say("order %s is on its way: %s", o.ID, parcel)
	}
	return nil
}
