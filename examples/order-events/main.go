// Command order-events shows the event-driven style. An order is a state machine: it receives one
// event after the other, and returns for each event the actions to take next. order.go has the
// machine. This file has the services around it.
//
//	go run ./examples/order-events [store URL]
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

// shop does the work of the activities.
type shop struct {
	say func(format string, args ...any)
}

func (s *shop) reserve(_ context.Context, o order) (string, error) {
	s.say("reserved stock for %s", o.ID)
	return "stock-" + o.ID, nil
}

func (s *shop) release(_ context.Context, stock string) (perdure.Void, error) {
	s.say("released %s", stock)
	return perdure.Void{}, nil
}

func (s *shop) refund(_ context.Context, payment string) (perdure.Void, error) {
	s.say("refunded %s", payment)
	return perdure.Void{}, nil
}

// deliver is a workflow that is a plain function. A machine can start such a workflow, and such a
// workflow can start a machine.
func (s *shop) deliver(ctx perdure.WorkflowCtx, id string) (string, error) {
	if err := ctx.Sleep(50 * time.Millisecond); err != nil {
		return "", err
	}
	return perdure.Do(ctx, "ring the bell", func(context.Context) (string, error) {
		if id == "o-4" {
			return "", perdure.Permanent(errors.New("nobody is at home"))
		}
		s.say("delivered %s", id)
		return "parcel-" + id, nil
	})
}

func (s *shop) definitions() perdure.Group {
	return perdure.Group{
		reserve.Bind(s.reserve), release.Bind(s.release), refund.Bind(s.refund), delivery.Bind(s.deliver), orders,
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
	c := app.With(ctx)

	pay := func(x perdure.Execution[receipt]) error {
		return paid.Send(c, x, "payment-"+x.Ref.Key, perdure.RequestID("pay"))
	}
	for _, story := range []struct {
		order
		told    string
		happens func(x perdure.Execution[receipt]) error
	}{
		{order{"o-1", 1999, time.Minute}, "is paid", pay},
		{order{"o-2", 4999, 100 * time.Millisecond}, "is never paid", func(perdure.Execution[receipt]) error { return nil }},
		{order{"o-3", 2999, time.Minute}, "is cancelled", func(x perdure.Execution[receipt]) error { return x.Cancel(c, "found it cheaper") }},
		{order{"o-4", 999, time.Minute}, "cannot be delivered", pay},
	} {
		say("order %s %s", story.ID, story.told)
		x, err := orders.Start(c, story.order)
		if err != nil {
			return err
		}
		// An earlier run of this command may have closed the execution.
		if err := story.happens(x); err != nil && !errors.Is(err, perdure.ErrConflict) {
			return err
		}
		got, err := x.Result(c)
		if err != nil {
			say("order %s was undone: %v", story.ID, err)
			continue
		}
		say("order %s is there: %s, %s", story.ID, got.Payment, got.Parcel)
	}

	return nil
}
