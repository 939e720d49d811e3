package main

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type Counter struct{ N int }

var (
	Counters = perdure.NewEntity[Counter]("counter")
	Ping     = perdure.DeclareOperation[int, int]("counter", "ping") // ping and pong refer to each other
	Pong     = perdure.DeclareOperation[int, int]("counter", "pong")
	Progress = perdure.NewState[int]("progress")
	Poke     = perdure.NewSignal[string]("poke")
	Batch    = perdure.NewWorkflow("batch", batch)
)

func ping(ctx perdure.EntityCtx, s *Counter, n int) (int, error) {
	return n, Pong.Send(ctx, ctx.Key(), n-1)
}

func pong(ctx perdure.EntityCtx, s *Counter, n int) (int, error) {
	return n, Ping.Send(ctx, ctx.Key(), n-1)
}

func batch(ctx perdure.WorkflowCtx, files []string) (int, error) {
	ctx.Defer(func(ctx perdure.WorkflowCtx) error { _, err := Ping.Call(ctx, "done", 1); return err })
	var fs []*perdure.Future[int]
	for _, f := range files {
		fs = append(fs, perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
			return perdure.Do(ctx, "count", func(context.Context) (int, error) { return len(f), nil }, perdure.StepKey(f))
		}))
	}
	ns, err := perdure.FirstN(ctx, 2, fs...)
	if err != nil {
		return 0, err
	}
	return len(ns), Progress.Set(ctx, 100)
}

func main() {
	app := embedded.MustOpen("memory:", Counters, Batch,
		perdure.BindOperation(Counters, Ping, ping), perdure.BindOperation(Counters, Pong, pong))
	defer app.Close()
	ctx := context.Background()
	exec, _ := Batch.Start(app.With(ctx), []string{"a"}, perdure.RawKey("b1"), Poke.With("go"), perdure.ReuseIfFailed)
	fmt.Println(Progress.Read(app.With(ctx), exec))
	for info, err := range app.Executions().List(ctx, `workflow = "batch" and status = "open"`) {
		fmt.Println(info.Ref, info.Reason, err)
	}
}
