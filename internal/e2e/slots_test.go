package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A process that works on one execution at a time can still run a workflow that waits for its
// children. It runs the calls of one entity key at a time. Waiting executions and calls report why
// they wait.
func TestSlotsOfAProcess(t *testing.T) {
	t.Parallel()
	begun, end := make(chan string, 10), make(chan struct{})
	body := func(ctx context.Context, name string) (string, error) {
		begun <- name
		select {
		case <-end:
		case <-ctx.Done():
		}
		return name, ctx.Err()
	}
	hold := perdure.NewActivity("hold", body)
	child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if n == 0 {
			return 1, nil
		}
		return n + 1, ctx.Sleep(1)
	})
	family := perdure.NewWorkflow("family", func(ctx perdure.WorkflowCtx, n int) (sum int, err error) {
		for i := range n {
			one, err := child.Run(ctx, i)
			if err != nil {
				return 0, err
			}
			sum += one
		}
		return sum, nil
	})
	busy := perdure.NewWorkflow("busy", func(ctx perdure.WorkflowCtx, name string) (string, error) { return hold.Run(ctx, name) })
	desk := perdure.NewEntity[int]("desk", perdure.OperationTimeout(time.Hour))
	wait := perdure.NewOperation(desk, "wait", func(_ perdure.EntityCtx, _ *int, name string) (string, error) {
		return body(context.Background(), name)
	})

	s := newSite(t, "memory")
	s.cfg = embedded.Config{AllowUnsafe: true, MaxLoaded: 1, MaxCalls: 1}
	app := s.open(family, child, busy, desk, hold)
	c := caller(t, app)
	if sum, err := family.Run(c, 3); err != nil || sum != 6 {
		t.Fatalf("the family returns %d, %v", sum, err)
	}

	// Two executions, one slot.
	first := mustStart(t, c, busy, "one", perdure.RawKey("one"))
	if got := <-begun; got != "one" {
		t.Fatalf("%s runs", got)
	}
	second := mustStart(t, c, busy, "two", perdure.RawKey("two"))
	reason(t, app, second, "waits for a free slot of a worker with the code of workflow busy: the only worker has 1")

	// Two keys of an entity, one slot.
	results := make(chan error, 2)
	call := func(key string) {
		_, err := wait.Call(c, key, key)
		results <- err
	}
	go call("three")
	if got := <-begun; got != "three" {
		t.Fatalf("%s runs", got)
	}
	go call("four")
	eventually(t, "the second key waits for a slot", func() bool {
		info, err := app.Entities().Describe(t.Context(), desk.Ref("four"))
		return err == nil && strings.Contains(info.Reason, "waits for a free slot of a worker with the code of entity desk")
	})

	close(end)
	for _, x := range []perdure.Execution[string]{first, second} {
		if _, err := x.Result(c); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
