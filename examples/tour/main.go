// Command tour runs an order as a durable workflow and shows every step as it happens. Kill the
// process while the order waits, and run the same command again: the order continues, and no step
// is repeated.
//
//	go run ./examples/tour [store URL]
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type order struct {
	ID    string
	Items []string
}

type receipt struct{ Reservation, Payment, Parcel string }

var (
	reserve = perdure.NewActivity("reserve", func(ctx context.Context, items []string) (string, error) {
		return done(ctx, "reserve", fmt.Sprintf("res-%d", len(items)))
	})
	charge = perdure.NewActivity("charge", func(ctx context.Context, reservation string) (string, error) {
		return done(ctx, "charge", "pay-"+reservation)
	})
	ship = perdure.NewActivity("ship", func(ctx context.Context, o order) (string, error) {
		return done(ctx, "ship", "parcel-"+o.ID)
	})
	orders = perdure.NewWorkflow("order", process, perdure.Uses(reserve, charge, ship)).
		KeyedBy(func(o order) perdure.Key { return perdure.RawKey(o.ID) })
)

func process(ctx perdure.WorkflowCtx, o order) (receipt, error) {
	reservation, err := reserve.Run(ctx, o.Items)
	if err != nil {
		return receipt{}, err
	}
	payment, err := charge.Run(ctx, reservation)
	if err != nil {
		return receipt{}, err
	}
	ctx.Log().Info("paid; the warehouse needs 15 seconds")
	if err := ctx.Sleep(15 * time.Second); err != nil {
		return receipt{}, err
	}
	parcel, err := ship.Run(ctx, o)
	return receipt{reservation, payment, parcel}, err
}

// done simulates the work of a step. It prints a line, so that a repetition would be visible.
func done(ctx context.Context, step, result string) (string, error) {
	fmt.Printf("%s  step %-7s ran in process %d → %s (idempotency key %.8s…)\n",
		time.Now().Format("15:04:05"), step, os.Getpid(), result, perdure.IdempotencyKey(ctx))
	return result, nil
}

func main() {
	url := "file:tour.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	app, err := embedded.Open(ctx, url, orders, reserve, charge, ship)
	if err != nil {
		return err
	}
	defer app.Close()
	fmt.Printf("%s  order o-1 on %s, process %d. While the order waits, try: kill -9 %d\n", time.Now().Format("15:04:05"), url, os.Getpid(), os.Getpid())
	fmt.Println("          Then run the same command again: the order continues, and no step is repeated.")
	exec, err := orders.Start(app.With(ctx), order{ID: "o-1", Items: []string{"lamp", "desk"}})
	if err != nil {
		return err
	}

	stop := progress(ctx, app, exec.Ref)
	got, err := exec.Result(app.With(ctx))
	stop()
	if err != nil {
		return err
	}
	fmt.Printf("%s  completed: %+v\n          Start over in the default store with: rm tour.db*\n", time.Now().Format("15:04:05"), got)

	return nil
}

// progress prints why the order waits, whenever the reason changes, until the caller calls stop.
func progress(ctx context.Context, app *perdure.App, ref perdure.Ref) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last := ""
		for tick := time.NewTicker(500 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			info, err := app.Executions().Describe(ctx, ref)
			if err == nil && info.Status.Open() && info.Reason != last {
				last = info.Reason
				fmt.Printf("%s  order o-1 %s\n", time.Now().Format("15:04:05"), info.Reason)
			}
		}
	}()

	return func() {
		cancel()
		<-ended
	}
}
