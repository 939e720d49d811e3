package main

import (
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

// The contract: names and types. Code that starts, pays or awaits an order needs nothing else.
type (
	order struct {
		ID       string
		Cents    int
		PayUntil time.Duration
	}
	receipt struct{ Payment, Parcel string }
)

var (
	reserve  = perdure.DeclareActivity[order, string]("reserve", perdure.Exponential(5))
	release  = perdure.DeclareActivity[string, perdure.Void]("release")
	refund   = perdure.DeclareActivity[string, perdure.Void]("refund")
	delivery = perdure.DeclareWorkflow[string, string]("delivery") // a workflow that is a plain function
	paid     = perdure.NewSignal[string]("paid")
	orders   = perdure.NewMachine[order, receipt]("order-events", newPurchase, perdure.Uses(reserve, release, refund)).
			KeyedBy(func(o order) perdure.Key { return perdure.RawKey(o.ID) })
)

// purchase is the state of an order: plain fields, which change with one event at a time. The stock
// is reserved while the customer pays. The machine undoes everything if the customer does not pay
// in time, if the customer cancels, or if the parcel cannot be delivered.
type purchase struct {
	perdure.Events
	order

	// busy is true while an activity or the delivery runs. The machine waits for its end before it
	// does anything else.
	busy    bool
	stock   string // reserved
	payment string
	undo    error // why the order is being undone
}

func newPurchase(o order) *purchase { return &purchase{order: o} }

func (p *purchase) OnStart() perdure.Actions {
	p.busy = true
	return perdure.Actions{reserve.Schedule("reserve", p.order), perdure.StartTimer("pay-until", p.PayUntil)}
}

// OnSignal handles the signal with which the payment service reports that the customer has paid. If
// the machine has already given the order up, it refunds the payment.
func (p *purchase) OnSignal(e perdure.SignalReceived) perdure.Actions {
	if payment, ok := paid.Value(e); ok && p.payment == "" {
		p.payment = payment
		return p.next()
	}
	return nil // an unknown signal, or the same payment again
}

func (p *purchase) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	p.busy = false
	switch e.ID {
	case "reserve":
		stock, err := reserve.Result(e)
		if err != nil {
			return p.giveUp(err)
		}
		p.stock = stock
	case "refund":
		p.payment = ""
	case "release":
		p.stock = ""
	}
	return p.next()
}

func (p *purchase) OnActivityFailed(e perdure.ActivityFailed) perdure.Actions {
	p.busy = false
	if e.ID == "reserve" {
		return p.giveUp(fmt.Errorf("reserve: %w", e.Err))
	}
	return perdure.Actions{perdure.Fail(fmt.Errorf("%w; it could not be undone: %s: %w", p.undo, e.ID, e.Err))}
}

// OnTimerFired gives the order up, because the customer has not paid in time.
func (p *purchase) OnTimerFired(perdure.TimerFired) perdure.Actions {
	return p.giveUp(fmt.Errorf("not paid within %s: %w", p.PayUntil, perdure.ErrTimeout))
}

func (p *purchase) OnChildClosed(e perdure.ChildClosed) perdure.Actions {
	p.busy = false
	parcel, err := delivery.Result(e)
	if err != nil {
		return p.giveUp(fmt.Errorf("delivery: %w", err))
	}
	return perdure.Actions{orders.Complete(receipt{p.payment, parcel})}
}

// OnCancel gives the order up. The customer may cancel at any time, but a parcel that is already on
// its way is not called back. The cancel request does not affect actions that the machine schedules
// after it.
func (p *purchase) OnCancel(reason string) perdure.Actions {
	return p.giveUp(fmt.Errorf("%w: %s", perdure.ErrCanceled, reason))
}

// giveUp starts to undo the order. It keeps only the first reason.
func (p *purchase) giveUp(why error) perdure.Actions {
	if p.undo == nil {
		p.undo = why
	}
	return p.next()
}

// next returns the actions that the state requires.
func (p *purchase) next() perdure.Actions {
	switch {
	case p.busy:
		return nil
	case p.undo == nil && (p.stock == "" || p.payment == ""):
		return nil // wait for the reservation or the payment
	case p.undo == nil:
		p.busy = true
		return perdure.Actions{perdure.CancelAction("pay-until"), delivery.Child("delivery", p.ID)}
	case p.payment != "":
		p.busy = true
		return perdure.Actions{refund.Schedule("refund", p.payment)}
	case p.stock != "":
		p.busy = true
		return perdure.Actions{release.Schedule("release", p.stock)}
	}

	return perdure.Actions{perdure.Fail(p.undo)}
}
