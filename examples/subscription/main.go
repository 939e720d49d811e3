// Command subscription charges a customer in every period until the customer cancels. Each period
// is a separate run, so the history does not grow.
//
//	go run ./examples/subscription [store URL]
//
// A period lasts two seconds here. The program upgrades the plan in the first period and cancels in
// the fourth. Kill it at any time (kill -9, it prints its process id) and run the same command
// again. It skips no period, and repeats a charge only if the process was killed before it had
// recorded the charge.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// subscription is the state that one period passes to the next.
type subscription struct {
	Customer string
	Plan     string
	Period   int
	Every    time.Duration
	Paid     int
}

// account is the state that other programs can read.
type account struct {
	Period int
	Plan   string
	Paid   int
}

type invoice struct {
	Customer string
	Period   int
	Amount   int
}

var (
	charge        = perdure.DeclareActivity[invoice, perdure.Void]("charge", perdure.Exponential(10))
	changePlan    = perdure.NewUpdate[string, int]("change-plan")
	quit          = perdure.NewSignal[string]("quit")
	state         = perdure.NewState[account]("account")
	subscriptions = perdure.DeclareWorkflow[subscription, account]("subscription", perdure.Uses(charge)).
			KeyedBy(func(s subscription) perdure.Key { return perdure.RawKey(s.Customer) })
)

// price returns the price of a plan per period, or 0 if the plan does not exist.
func price(plan string) int {
	switch plan {
	case "basic":
		return 10
	case "pro":
		return 25
	}
	return 0
}

// period is the workflow of one period of a subscription.
func period(ctx perdure.WorkflowCtx, s subscription) (account, error) {
	changePlan.Handle(ctx, func(_ perdure.WorkflowCtx, plan string) (int, error) {
		s.Plan = plan // from the next period on
		return price(plan), nil
	}, func(plan string) error {
		if price(plan) == 0 {
			return fmt.Errorf("there is no plan %q: choose basic or pro", plan)
		}
		return nil
	})

	if _, err := charge.Run(ctx, invoice{s.Customer, s.Period, price(s.Plan)}); err != nil {
		return account{}, err
	}
	s.Paid += price(s.Plan)
	now := account{s.Period, s.Plan, s.Paid}
	if err := state.Set(ctx, now); err != nil {
		return account{}, err
	}

	over, quits := ctx.Timer(s.Every), quit.Next(ctx)
	first, err := perdure.Select(ctx, over, quits)
	if err != nil {
		return account{}, err
	}

	if first == quits {
		why, err := quits.Get(ctx)
		ctx.Log().Info("cancelled", "reason", why)
		return now, err
	}

	// Let the handlers of open updates answer before this run ends.
	if err := ctx.WaitUpdates(); err != nil {
		return account{}, err
	}
	s.Period++
	return account{}, subscriptions.ContinueAsNew(s)
}

func main() {
	url := "file:subscription.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	fmt.Printf("process %d on %s\n", os.Getpid(), url)
	if err := run(context.Background(), url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) error {
	app, err := embedded.Open(ctx, url, subscriptions.Bind(period), charge.Bind(func(_ context.Context, i invoice) (perdure.Void, error) {
		fmt.Fprintf(out, "period %d: charged %s %d EUR\n", i.Period, i.Customer, i.Amount)
		return perdure.Void{}, nil
	}))
	if err != nil {
		return err
	}

	defer app.Close()
	c := app.With(ctx)
	exec, err := subscriptions.Start(c, subscription{Customer: "eve", Plan: "basic", Period: 1, Every: 2 * time.Second})
	if err != nil {
		return err
	}

	if o, err := exec.Poll(c); err != nil || o.Status.Open() {
		if err := errors.Join(err, customer(c, exec, out)); err != nil {
			return err
		}
	}

	last, err := exec.Result(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ended in period %d, paid %d EUR in all. Start over with: rm subscription.db*\n", last.Period, last.Paid)

	return nil
}

// customer sends the requests of a customer. Each request has an id. So if a second process repeats
// a request, the repetition changes nothing.
func customer(c perdure.Client, exec perdure.Execution[account], out io.Writer) error {
	if _, err := reached(c, exec, 1); err != nil {
		return err
	}
	_, err := changePlan.Call(c, exec, "gold", perdure.RequestID("typo"))
	fmt.Fprintln(out, "update to gold refused:", err)
	cost, err := changePlan.Call(c, exec, "pro", perdure.RequestID("upgrade"))
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "update to pro accepted: %d EUR from the next period on\n", cost)
	a, err := reached(c, exec, 4)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "state: period %d, plan %s, %d EUR paid\n", a.Period, a.Plan, a.Paid)

	return quit.Send(c, exec, "too expensive", perdure.RequestID("quit"))
}

// reached reads the state of the subscription until period n has started.
func reached(c perdure.Client, exec perdure.Execution[account], n int) (account, error) {
	for {
		a, ok, err := state.Read(c, exec)
		if err != nil || ok && a.Period >= n {
			return a, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
