// Command worker has the code of the shop. It connects to a server, and the server gives it work.
//
//	perdure dev                          # in one terminal
//	go run ./examples/remote/worker      # in another one
//	go run ./examples/remote/client      # and in a third
//
// Kill the worker while an order waits, and start it again: the order continues.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/remote/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("PERDURE_SERVER"), "grpc://127.0.0.1:7800"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves the shop until ctx ends.
func run(ctx context.Context, url string, out io.Writer) error {
	app, err := perdure.Dial(ctx, url,
		shop.Checkout.Bind(checkout),
		shop.Charge.Bind(func(_ context.Context, o shop.Order) (string, error) {
			fmt.Fprintf(out, "charged %s with %d cents\n", o.Customer, o.Cents)
			return "receipt of " + o.Customer, nil
		}),
	)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the worker is connected")
	return app.Wait(ctx)
}

// checkout charges a cheap order immediately. It asks for an approval before it charges an
// expensive order.
func checkout(ctx perdure.WorkflowCtx, o shop.Order) (string, error) {
	if o.Cents > 10_000 {
		by, err := shop.Approved.Receive(ctx)
		if err != nil {
			return "", err
		}
		receipt, err := shop.Charge.Run(ctx, o)
		return receipt + ", approved by " + by, err
	}
	return shop.Charge.Run(ctx, o)
}
