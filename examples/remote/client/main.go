// Command client orders something from the shop. It has no code of the shop: a worker runs that
// code.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/remote/shop"
)

func main() {
	if err := run(context.Background(), cmp.Or(os.Getenv("PERDURE_SERVER"), "grpc://127.0.0.1:7800"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes two orders. The second one needs an approval.
func run(ctx context.Context, url string, out io.Writer) error {
	app, err := perdure.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)

	receipt, err := shop.Checkout.Run(c, shop.Order{Customer: "ada", Cents: 4_200}, perdure.RawKey("order-1"))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, receipt)

	order, err := shop.Checkout.Start(c, shop.Order{Customer: "bob", Cents: 99_000}, perdure.RawKey("order-2"))
	if err != nil {
		return err
	}
	if err := shop.Approved.Send(c, order, "eve", perdure.RequestID("approval-of-order-2")); err != nil {
		return err
	}
	receipt, err = order.Result(c)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, receipt)
	return nil
}
