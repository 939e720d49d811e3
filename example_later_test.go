package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A reservation ends by itself, unless the customer pays in time.
func ExampleOperation_SendLater() {
	seats := perdure.NewEntity[string]("seat")
	reserve := perdure.NewOperation(seats, "reserve", func(_ perdure.EntityCtx, by *string, who string) (perdure.Void, error) {
		*by = who
		return perdure.Void{}, nil
	})
	expire := perdure.NewOperation(seats, "expire", func(ctx perdure.EntityCtx, _ *string, _ perdure.Void) (perdure.Void, error) {
		ctx.Delete()
		return perdure.Void{}, nil
	})

	app := embedded.MustOpen("memory:", seats)
	defer app.Close()
	c := app.With(context.Background())
	if _, err := reserve.Call(c, "12A", "ann"); err != nil {
		panic(err)
	}
	end, err := expire.SendLater(c, "12A", perdure.Void{}, perdure.StartDelay(15*time.Minute), perdure.RawKey("12A"))
	if err != nil {
		panic(err)
	}

	// The seat is paid.
	if err := end.Cancel(c, "paid"); err != nil {
		panic(err)
	}
	_, err = perdure.LaterCall(perdure.RawKey("12A")).Result(c)
	fmt.Println(errors.Is(err, perdure.ErrCanceled))
	// Output: true
}
