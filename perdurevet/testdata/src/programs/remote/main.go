package main

import (
	"context"
	"fmt"
	"log"

	"github.com/perdure/perdure"
)

type (
	Order  struct{ ID string }
	Result struct{ Receipt string }
)

var (
	Orders     = perdure.DeclareWorkflow[Order, Result]("process-order").KeyedBy(func(o Order) perdure.Key { return perdure.RawKey(o.ID) })
	Approved   = perdure.NewSignal[bool]("approved")
	GetProfile = perdure.DeclareRPC[perdure.Void, string]("UserGateway", "get_profile")
	Deposit    = perdure.DeclareOperation[int, int]("account", "deposit")
)

func main() {
	ctx := context.Background()
	app, err := perdure.Dial(ctx, "grpc://host:7800")
	if err != nil {
		log.Fatal(err)
	}
	defer app.Close()
	c := app.With(ctx)
	exec, err := Orders.Start(c, Order{"42"})
	if err != nil {
		log.Fatal(err)
	}
	_ = Approved.Send(c, exec, true)
	out, err := exec.Poll(c)
	fmt.Println(out.Status, out.Value.Receipt, err)
	fmt.Println(Orders.Execution(perdure.RawKey("42")).Result(c))
	fmt.Println(GetProfile.Call(c, "u-1", perdure.Void{}))
	fmt.Println(Deposit.Call(c, "acc", 5))
}
