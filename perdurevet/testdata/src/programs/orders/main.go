package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	Order struct {
		ID, From, To string
		Items        []string
	}
	Reservation struct {
		ID    string
		Total int
	}
	ChargeIn struct {
		OrderID string
		Amount  int
	}
	Receipt  struct{ ID string }
	Result   struct{ Receipt string }
	Parcel   struct{ OrderID string }
	Tracking struct{ Number string }
)

// The contract: names and types, importable by every binary.
var (
	Reserve = perdure.DeclareActivity[[]string, Reservation]("reserve", perdure.Exponential(5))
	Release = perdure.DeclareActivity[string, perdure.Void]("release")
	Charge  = perdure.DeclareActivity[ChargeIn, Receipt]("charge", perdure.Exponential(5), perdure.AttemptTimeout(10*time.Second)).
		StepKeyedBy(func(c ChargeIn) string { return c.OrderID })
	Render = perdure.DeclareActivity[string, []byte]("render", perdure.OnQueue("gpu"), perdure.HeartbeatTimeout(time.Minute))
	Ship   = perdure.DeclareWorkflow[Parcel, Tracking]("ship")
	Orders = perdure.DeclareWorkflow[Order, Result]("process-order", perdure.Uses(Reserve, Release, Charge)).
		KeyedBy(func(o Order) perdure.Key { return perdure.RawKey(o.ID) })
)

func processOrder(ctx perdure.WorkflowCtx, o Order) (Result, error) {
	res, err := Reserve.Run(ctx, o.Items)
	if err != nil {
		return Result{}, err
	}
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error { _, err := Release.Run(ctx, res.ID); return err })

	// futures of different types
	paid := Charge.Go(ctx, ChargeIn{o.ID, res.Total})
	label := Render.Go(ctx, o.ID)
	late := ctx.Timer(time.Hour)
	first, err := perdure.Select(ctx, paid, label, late)
	if err != nil {
		return Result{}, err
	}
	switch first {
	case paid:
		ctx.Log().Info("paid first")
	case label:
		ctx.Log().Info("label first")
	case late:
		return Result{}, perdure.ErrTimeout
	}
	if err := perdure.Wait(ctx, paid, label); err != nil {
		return Result{}, err
	}
	receipt, err := paid.Get(ctx)
	if err != nil {
		return Result{}, err
	}

	// children: one awaited, one as a future, raced with another
	if _, err := Ship.Run(ctx, Parcel{o.ID}, perdure.RawKey("ship/"+o.ID)); err != nil {
		return Result{}, err
	}
	child, err := Ship.Start(ctx, Parcel{o.ID + "/2"}, perdure.AbandonChild)
	if err != nil {
		return Result{}, err
	}
	if _, err := perdure.Race(ctx, child.Future(ctx), perdure.Go(ctx, pickup)); err != nil {
		return Result{}, err
	}

	// same type: fan out
	var fs []*perdure.Future[[]byte]
	for _, item := range o.Items {
		fs = append(fs, Render.Go(ctx, item, perdure.OnQueue("gpu-low")))
	}
	if _, err := perdure.All(ctx, fs...); err != nil {
		return Result{}, err
	}
	return Result{receipt.ID}, nil
}

func pickup(ctx perdure.WorkflowCtx) (Tracking, error) {
	return Tracking{"pickup"}, ctx.Sleep(time.Hour)
}

func ship(ctx perdure.WorkflowCtx, p Parcel) (Tracking, error) {
	if _, err := Orders.Execution(perdure.RawKey(p.OrderID)).Poll(ctx); err != nil { // refers back: no init cycle
		return Tracking{}, err
	}
	return Tracking{"1Z"}, nil
}

type Payments struct{ secret string }

func (p *Payments) charge(ctx context.Context, in ChargeIn) (Receipt, error) {
	return Receipt{perdure.IdempotencyKey(ctx)}, nil
}

// Group binds all activities of Payments.
func (p *Payments) Group() perdure.Group { return perdure.Group{Charge.Bind(p.charge)} }

func reserve(context.Context, []string) (Reservation, error) { return Reservation{}, nil }
func release(context.Context, string) (perdure.Void, error)  { return perdure.Void{}, nil }
func render(ctx context.Context, s string) ([]byte, error)   { return nil, perdure.Heartbeat(ctx, 50) }

func main() {
	ctx := context.Background()
	pay := &Payments{"sk"}
	app, err := embedded.Open(ctx, "file:orders.db",
		Orders.Bind(processOrder), Ship.Bind(ship), pay.Group(),
		Reserve.Bind(reserve), Release.Bind(release), Render.Bind(render))
	if err != nil {
		log.Fatal(err)
	}
	defer app.Close()
	exec, err := Orders.Start(app.With(ctx), Order{ID: "o-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(exec.Result(app.With(ctx)))
}
