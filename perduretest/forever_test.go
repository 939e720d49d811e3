package perduretest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// The documentation promises that without a policy, the engine retries a step, an activity or a
// task until it succeeds, no matter how often it fails or panics. The engine does not retry the
// code of workflows, entities and services: their callers get the error.
func TestNoPolicyRetriesForEver(t *testing.T) {
	t.Parallel()
	const failures = 40 // pauses of 1 s, doubled up to 1 min: more than half an hour in total
	ran := map[string]int{}
	try := func(name string) (int, error) {
		ran[name]++
		switch {
		case ran[name] > failures:
			return ran[name], nil
		case ran[name]%2 == 0:
			panic("it fails like this, too")
		}
		return 0, errors.New("it fails")
	}
	inline := perdure.NewActivity("inline", func(_ context.Context, name string) (int, error) { return try(name) })
	queued := perdure.NewActivity("queued", func(_ context.Context, name string) (int, error) { return try(name) }, perdure.OnQueue("q"))
	steps := perdure.NewWorkflow("steps", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		for _, run := range []func() (int, error){
			func() (int, error) {
				return perdure.Do(ctx, "step", func(context.Context) (int, error) { return try("Do") })
			},
			func() (int, error) { return inline.Run(ctx, "Run") },
			func() (int, error) { return inline.Go(ctx, "Go").Get(ctx) },
			func() (int, error) { return queued.Run(ctx, "Run on a queue") },
		} {
			if _, err := run(); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}, perdure.Uses(queued))
	fails := perdure.NewWorkflow("fails", func(perdure.WorkflowCtx, string) (int, error) { return try("workflow") })
	things := perdure.NewEntity[int]("thing")
	operate := perdure.NewOperation(things, "operate", func(perdure.EntityCtx, *int, string) (int, error) { return try("operation") })
	service := perdure.NewService("service")
	rpc := perdure.NewRPC(service, "rpc", func(perdure.EntityCtx, string) (int, error) { return try("RPC") })

	perduretest.Run(t, perdure.Group{inline, queued, steps, fails, things, service}, func(t *testing.T, env *perduretest.Env) {
		c := env.With()
		begun := time.Now()
		if _, err := steps.Run(c, ""); err != nil {
			t.Error(err)
		}
		task, err := queued.Submit(c, "Submit")
		if err == nil {
			_, err = task.Result(c)
		}
		if err != nil {
			t.Error(err)
		}
		for _, verb := range []string{"Do", "Run", "Go", "Run on a queue", "Submit"} {
			if ran[verb] != failures+1 {
				t.Errorf("%s: %d attempts, want %d", verb, ran[verb], failures+1)
			}
		}
		if d := time.Since(begun); d < 5*30*time.Minute {
			t.Errorf("it took %s: the pauses are not those of the documents", d)
		}

		for verb, call := range map[string]func() error{
			"workflow":  func() error { _, err := fails.Run(c, ""); return err },
			"operation": func() error { _, err := operate.Call(c, "k", ""); return err },
			"RPC":       func() error { _, err := rpc.Call(c, "k", ""); return err },
		} {
			if err := call(); err == nil || ran[verb] != 1 {
				t.Errorf("%s: %d attempts, %v; want one, and its error", verb, ran[verb], err)
			}
		}
	})
}
