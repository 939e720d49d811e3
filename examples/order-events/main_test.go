package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

// A machine can be tested without an engine: pass it events and compare the actions that it
// returns.
func TestPurchase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		tell func(p *purchase) []perdure.Actions
		want string
	}{
		{"paid after it was reserved", func(p *purchase) []perdure.Actions {
			return []perdure.Actions{
				p.OnActivityCompleted(reserve.Completed("reserve", "s")),
				p.OnSignal(paid.Received("p")),
				p.OnSignal(paid.Received("again")),
				p.OnChildClosed(delivery.Closed("delivery", "parcel")),
			}
		}, `[[] [cancel "pay-until" start child delivery "delivery" "o"] [] [complete order-events {"Payment":"p","Parcel":"parcel"}]]`},
		{"paid before it was reserved", func(p *purchase) []perdure.Actions {
			return []perdure.Actions{p.OnSignal(paid.Received("p")), p.OnActivityCompleted(reserve.Completed("reserve", "s"))}
		}, `[[] [cancel "pay-until" start child delivery "delivery" "o"]]`},
		{"never paid", func(p *purchase) []perdure.Actions {
			return []perdure.Actions{
				p.OnActivityCompleted(reserve.Completed("reserve", "s")),
				p.OnTimerFired(perdure.TimerFired{ID: "pay-until"}),
				p.OnActivityCompleted(release.Completed("release", perdure.Void{})),
			}
		}, `[[] [schedule release "release" "s"] [fail "not paid within 1m0s: timeout"]]`},
		{"cancelled before it was reserved", func(p *purchase) []perdure.Actions {
			return []perdure.Actions{
				// The reservation still runs. It must end before the machine can undo it.
				p.OnCancel("why"),
				p.OnActivityCompleted(reserve.Completed("reserve", "s")),
				p.OnSignal(paid.Received("too late")),
				p.OnActivityCompleted(release.Completed("release", perdure.Void{})),
				p.OnActivityCompleted(refund.Completed("refund", perdure.Void{})),
			}
		}, `[[] [schedule release "release" "s"] [] [schedule refund "refund" "too late"] [fail "canceled: why"]]`},
		{"cancelled on the way", func(p *purchase) []perdure.Actions {
			p.busy, p.stock, p.payment = true, "s", "p"
			return []perdure.Actions{
				p.OnCancel("why"),
				p.OnChildClosed(perdure.ChildClosed{ID: "delivery", Workflow: "delivery", Err: errors.New("lost")}),
				p.OnActivityCompleted(refund.Completed("refund", perdure.Void{})),
				p.OnActivityCompleted(release.Completed("release", perdure.Void{})),
			}
		}, `[[] [schedule refund "refund" "p"] [schedule release "release" "s"] [fail "canceled: why"]]`},
		{"sold out", func(p *purchase) []perdure.Actions {
			return []perdure.Actions{p.OnActivityFailed(perdure.ActivityFailed{ID: "reserve", Activity: "reserve", Err: errors.New("sold out")})}
		}, `[[fail "reserve: sold out"]]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			p := newPurchase(order{ID: "o", PayUntil: time.Minute})
			if got := fmt.Sprint(p.OnStart()); got != `[schedule reserve "reserve" {"ID":"o","Cents":0,"PayUntil":60000000000} start timer "pay-until" 1m0s]` {
				t.Errorf("begins with %s", got)
			}
			if got := fmt.Sprint(c.tell(p)); got != c.want {
				t.Errorf("asks for\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	var out printed.Text
	if err := run(t.Context(), "memory:", out.Say); err != nil {
		t.Fatal(err)
	}
	if diff := printed.Diff(
		out.String(),
		"order o-1 is paid", "reserved stock for o-1", "delivered o-1", "order o-1 is there: payment-o-1, parcel-o-1",
		"order o-2 is never paid", "reserved stock for o-2", "released stock-o-2", "order o-2 was undone: not paid within 100ms: timeout",
		"order o-3 is cancelled", "reserved stock for o-3", "released stock-o-3", "order o-3 was undone: canceled: found it cheaper",
		"order o-4 cannot be delivered", "reserved stock for o-4", "refunded payment-o-4", "released stock-o-4",
		"order o-4 was undone: delivery: nobody is at home",
	); diff != "" {
		t.Error(diff)
	}
}
