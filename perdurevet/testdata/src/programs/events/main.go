package main

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	Order struct {
		ID     string
		Amount int
	}
	Receipt struct{ ID string }
)

var (
	Charge = perdure.NewActivity("charge", func(ctx context.Context, o Order) (Receipt, error) { return Receipt{o.ID}, nil })
	Cancel = perdure.NewSignal[string]("cancel")
	Orders = perdure.NewMachine[Order, Receipt]("order-events", newOrder)
)

type order struct {
	perdure.Events
	in Order
}

func newOrder(in Order) *order { return &order{in: in} }

func (o *order) OnStart() perdure.Actions {
	return perdure.Actions{Charge.Schedule("charge", o.in), perdure.StartTimer("deadline", time.Hour)}
}

func (o *order) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	r, err := Charge.Result(e)
	if err != nil {
		return perdure.Actions{perdure.Fail(err)}
	}
	return perdure.Actions{perdure.CancelAction("deadline"), Orders.Complete(r)}
}

func (o *order) OnTimerFired(perdure.TimerFired) perdure.Actions {
	return perdure.Actions{perdure.Fail(perdure.ErrTimeout)}
}

func main() {
	app := embedded.MustOpen("memory:", Orders, Charge)
	defer app.Close()
	_, _ = Orders.Run(app.With(context.Background()), Order{"1", 2})
}
