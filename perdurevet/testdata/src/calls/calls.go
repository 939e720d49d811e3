// Package calls makes calls of the wrong kind, at the wrong place, or drops what they return.
package calls

import (
	"context"
	"fmt"
	"sync"

	"github.com/perdure/perdure"
)

var (
	Charge = perdure.NewActivity("charge", charge)
	Ship   = perdure.NewWorkflow("ship", ship)
	Orders = perdure.DeclareWorkflow[int, int]("orders").KeyedBy(func(int) perdure.Key { return perdure.RawKey("x") })
	Other  = perdure.DeclareWorkflow[int, int]("other")
	Cancel = perdure.NewSignal[int]("cancel")
	app    *perdure.App
)

func charge(_ context.Context, n int) (int, error) { return n, nil }

func ship(ctx perdure.WorkflowCtx, n int) (int, error) { return n, ctx.Sleep(1) }

func definitions() perdure.Group { return perdure.Group{Orders.Bind(orders), Other.Bind(other)} }

func wrongClient(ctx perdure.WorkflowCtx, n int) (int, error) {
	return Ship.Run(app.With(context.Background()), n) // want `App app used in workflow code: its calls are not journaled` `context\.Background in workflow code`
}

var queues = app.Queues()

func wrongOperator(ctx perdure.WorkflowCtx, n int) (int, error) {
	return n, queues.Resume(nil, "mail") // want `Queues queues used in workflow code: its calls are not journaled`
}

type shop struct{ c perdure.Client }

func (s *shop) wrongField(ctx perdure.WorkflowCtx, n int) (int, error) {
	return Ship.Run(s.c, n) // want `Client c used in workflow code`
}

func wrongDirect(ctx perdure.WorkflowCtx, n int) (int, error) {
	return ship(ctx, n) // want `direct call of ship, the code of workflow ship: it runs as part of this execution, under its key; write Ship\.Run\(ctx, …\) for a child`
}

func wrongDirectActivity(ctx perdure.WorkflowCtx, n int) (int, error) {
	return charge(nil, n) // want `direct call of charge, the code of activity charge: it is not journaled and runs again on every replay; write Charge\.Run\(ctx, …\)`
}

func unnamed(_ context.Context, n int) (int, error) { return n, nil }

var group = perdure.Group{perdure.NewActivity("unnamed", unnamed)}

func wrongDirectUnnamed(ctx perdure.WorkflowCtx, n int) (int, error) {
	return unnamed(nil, n) // want `direct call of unnamed, the code of activity unnamed: .* write its handle\.Run`
}

func wrongDropped(ctx perdure.WorkflowCtx, n int) (int, error) {
	ctx.Sleep(1)       // want `the error of ctx\.Sleep is dropped: it may be ErrCanceled or ErrTimeout`
	Charge.Run(ctx, n) // want `the error of Charge\.Run is dropped`
	Charge.Go(ctx, n)  // want `the future of Charge\.Go is dropped: its error is lost, and the work is withdrawn when the workflow returns`
	pause(ctx)         // want `the error of pause is dropped`
	return n, nil
}

func pause(ctx perdure.WorkflowCtx) error { return ctx.Sleep(1) }

func wrongDroppedSend(c perdure.Client, to perdure.Ref) {
	Cancel.Send(c, to, 1) // want `the error of Cancel\.Send is dropped: the call may have failed; check it`
}

func orders(ctx perdure.WorkflowCtx, n int) (int, error) {
	if n > 100 {
		return 0, Other.ContinueAsNew(n) // want `this is the code of workflow orders, which cannot continue as other; continue as itself, or start the other: Other\.Start\(ctx, in\)`
	}
	if n > 50 {
		Orders.ContinueAsNew(n) // want `Orders\.ContinueAsNew does nothing by itself: return its error`
	}
	_ = Orders.ContinueAsNew(n) // want `Orders\.ContinueAsNew does nothing by itself`
	return 0, Orders.ContinueAsNew(n + 1)
}

type kept struct {
	ctx perdure.WorkflowCtx             // want `WorkflowCtx kept in a field: it belongs to one call of one function`
	all map[string]*perdure.WorkflowCtx // want `WorkflowCtx kept in a field`
}

var global perdure.WorkflowCtx // want `WorkflowCtx kept in package variable global`

var promised *perdure.Future[int] // want `Future kept in package variable promised`

var queue chan perdure.WorkflowCtx // want `WorkflowCtx sent over a channel`

func wrongDefer(ctx perdure.WorkflowCtx, n int) (int, error) {
	defer Charge.Run(ctx, n) // want `durable call Charge\.Run in a plain defer: a plain defer runs whenever the execution leaves memory, with zero results; use ctx\.Defer or ctx\.OnFailure`
	return 0, nil
}

func wrongDeferClosure(ctx perdure.WorkflowCtx, n int) (out int, err error) {
	defer func() { // want `durable call Charge\.Run in a plain defer`
		if err != nil {
			_, err = Charge.Run(ctx, n)
		}
	}()
	return 0, ctx.Sleep(1)
}

func wrongDeferVariable(ctx perdure.WorkflowCtx, n int) (out int, err error) {
	undo := func() { _, err = Charge.Run(ctx, n) }
	defer undo() // want `durable call Charge\.Run in a plain defer`
	return 0, ctx.Sleep(1)
}

func wrongDeferLog(ctx perdure.WorkflowCtx, n int) (out int, err error) {
	defer ctx.Log().Info("done") // want `ctx\.Log\(\) in a plain defer`
	return 0, ctx.Sleep(1)
}

type metrics interface{ Count(string) }

type counted struct{ m metrics }

func (c *counted) wrongDeferOutward(ctx perdure.WorkflowCtx, n int) (int, error) {
	defer c.m.Count("done") // want `c\.m\.Count in a plain defer changes something outside the execution`
	return 0, ctx.Sleep(1)
}

func (c *counted) wrongDeferOutwardClosure(ctx perdure.WorkflowCtx, n int) (int, error) {
	defer func() { c.m.Count("done") }() // want `c\.m\.Count in a plain defer changes something outside the execution`
	return 0, ctx.Sleep(1)
}

// ---- right

func other(ctx perdure.WorkflowCtx, n int) (int, error) {
	if n > 3 {
		return 0, Other.ContinueAsNew(n)
	}
	err := Other.ContinueAsNew(n)
	return 0, err
}

func right(ctx perdure.WorkflowCtx, n int) (int, error) {
	if err := ctx.Sleep(1); err != nil {
		return 0, err
	}
	_ = Cancel.Send(ctx, Orders.Execution(perdure.RawKey("x")), 1) // on purpose, and one sees it
	perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return Cancel.Receive(ctx) })
	ctx.Defer(func(ctx perdure.WorkflowCtx) error { _, err := Charge.Run(ctx, n); return err })
	local := []perdure.WorkflowCtx{ctx, ctx.WithTimeout(1)}
	return Ship.Run(local[1], n)
}

type futures struct{ paid, shipped *perdure.Future[int] } // of one execution, in a local variable

func rightFutures(ctx perdure.WorkflowCtx, n int) (int, error) {
	f := futures{Charge.Go(ctx, n), Charge.Go(ctx, n+1)}
	return 0, perdure.Wait(ctx, f.paid, f.shipped)
}

func rightDefer(ctx perdure.WorkflowCtx, n int) (out int, err error) {
	steps := []string{}
	defer func() { steps = nil }()
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("order %d: %w", n, err)
		}
	}()
	return len(steps), nil
}

func rightOrdinary(ctx context.Context) (int, error) {
	n, err := charge(ctx, 1)
	if err != nil {
		return 0, err
	}
	return Ship.Run(app.With(ctx), n)
}
