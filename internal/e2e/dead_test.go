package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
)

// dead returns the dead tasks that a query selects.
func dead(t *testing.T, app *perdure.App, q perdure.DeadQuery) []perdure.DeadTask {
	t.Helper()
	var all []perdure.DeadTask
	for d, err := range app.DeadTasks().List(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// A task dies. Operators find it, and ten of them requeue it at the same time. With an edited input
// it fails for another reason. In the end it completes.
func TestDeadTasks(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var broken atomic.Bool
		broken.Store(true)
		var mu sync.Mutex
		keys := map[string]bool{}

		mail := perdure.NewActivity("mail", func(ctx context.Context, to string) (string, error) {
			mu.Lock()
			keys[perdure.IdempotencyKey(ctx)] = true
			mu.Unlock()
			if broken.Load() {
				return "", fmt.Errorf("mail to %q bounced after %d ms", to, 17)
			}
			return "sent to " + to, nil
		}, perdure.OnQueue("mails"), perdure.RetryPolicy{MaxAttempts: 2, Initial: time.Millisecond})

		begun, free := make(chan struct{}), make(chan struct{})
		unblock := sync.OnceFunc(func() { close(free) })
		defer unblock()

		block := perdure.NewActivity("block", func(context.Context, int) (int, error) {
			close(begun)
			<-free
			return 0, nil
		})

		s.cfg.Tasks.Slots = 1
		app := s.open(mail, block)
		c := caller(t, app)

		var xs []perdure.Execution[string]
		for i := range 3 {
			x, err := mail.Submit(c, fmt.Sprintf("ann-%d", i), perdure.RawKey(fmt.Sprint("k", i)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Result(c); err == nil {
				t.Fatal("it completed")
			}
			xs = append(xs, x)
		}

		groups, err := app.DeadTasks().Groups(t.Context(), perdure.DeadQuery{Activities: []string{"mail"}})
		if err != nil || len(groups) != 1 || groups[0].Count != 3 {
			t.Fatalf("groups %+v, %v", groups, err)
		}
		all := dead(t, app, perdure.DeadQuery{Queues: []string{"mails"}, Fingerprint: groups[0].Fingerprint})
		if len(all) != 3 || all[0].Of.Key != "k2" {
			t.Fatalf("%+v", all)
		}

		d, err := app.DeadTasks().Describe(t.Context(), all[0].ID)
		if err != nil || d.Attempts != 2 || len(d.Failed) != 2 || string(d.Input) != `"ann-2"` || d.Err == nil {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := block.Submit(c, 0); err != nil {
			t.Fatal(err)
		}

		<-begun // the only slot is in use, so the requeued task waits
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if ref, err := app.DeadTasks().Requeue(t.Context(), d.ID); err != nil || ref != (perdure.Ref{Workflow: "task:mail", Key: "k2"}) {
					t.Errorf("requeue: %v, %v", ref, err)
				}
			})
		}

		wg.Wait()
		if _, err := app.DeadTasks().Requeue(t.Context(), d.ID, perdure.WithInput("bob")); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("requeue of a requeued one with another input: %v", err)
		}
		if err := app.DeadTasks().UndoRequeue(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}

		if d, err = app.DeadTasks().Describe(t.Context(), d.ID); err != nil || d.Requeued != 0 || !d.RequeuedAt.IsZero() {
			t.Fatalf("%+v, %v", d, err)
		}
		broken.Store(false)
		if _, err := app.DeadTasks().Requeue(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}

		unblock()
		got, err := xs[2].Result(c)
		equal(t, "the requeued task", got, err, "sent to ann-2")
		if len(keys) != 3 {
			t.Errorf("%d idempotency keys, want one per task", len(keys))
		}
		d, _ = app.DeadTasks().Describe(t.Context(), all[1].ID)
		if _, err := app.DeadTasks().Requeue(t.Context(), d.ID, perdure.WithInput("bob")); err != nil {
			t.Fatal(err)
		}

		got, err = xs[1].Result(c)
		equal(t, "the one with another input", got, err, "sent to bob")
		if len(keys) != 4 {
			t.Errorf("%d idempotency keys, want another one for another input", len(keys))
		}

		// A retry of a task is a requeue.
		if _, err := app.Executions().Retry(t.Context(), xs[0]); err != nil {
			t.Fatal(err)
		}
		got, err = xs[0].Result(c)
		equal(t, "the retried one", got, err, "sent to ann-0")
		if left := dead(t, app, perdure.DeadQuery{Requeued: new(bool)}); len(left) != 0 {
			t.Errorf("not requeued: %+v", left)
		}

		n := 0
		for d, err := range app.DeadTasks().Purge(t.Context(), perdure.DeadQuery{To: time.Now().Add(time.Hour)}) {
			if err != nil {
				t.Errorf("purge of %+v: %v", d, err)
			}
			n++
		}

		if left := dead(t, app, perdure.DeadQuery{}); n != 3 || len(left) != 0 {
			t.Errorf("purged %d, left %+v", n, left)
		}

		for what, err := range map[string]error{
			"signal": perdure.NewSignal[int]("s").Send(c, xs[0], 1),
			"fork":   second(app.Executions().Fork(t.Context(), xs[0], perdure.RawKey("other"))),
			"reset":  second(app.Executions().Reset(t.Context(), xs[0], perdure.BeforeStep("mail"))),
		} {
			wantError(t, what+" of a task", err, perdure.ErrInvalid, "is a task")
		}
	})
}

// An operator requeues a dead step of a workflow. The requeued task runs independently of the
// workflow, which has already received the failure.
func TestDeadStepsAreRequeuedBesideTheirWorkflow(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var broken atomic.Bool
		broken.Store(true)
		charge := perdure.NewActivity("charge", func(_ context.Context, n int) (int, error) {
			if broken.Load() {
				return 0, perdure.Permanent(errors.New("no money"))
			}
			return n, nil
		}, perdure.OnQueue("bank"))

		order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			total := 0
			for i := range n {
				if v, err := charge.Run(ctx, i+1, perdure.StepKey(fmt.Sprint(i))); err == nil {
					total += v
				}
			}
			return total, nil
		})

		app := s.open(charge, order)
		c := caller(t, app)
		got, err := order.Run(c, 5)
		equal(t, "the workflow decides", got, err, 0)
		if n := len(dead(t, app, perdure.DeadQuery{})); n != 5 {
			t.Fatalf("%d dead tasks, want 5", n)
		}

		// The canary fails, so the others stay dead.
		n, stopped := 0, error(nil)
		for d, err := range app.DeadTasks().RequeueAll(t.Context(), perdure.DeadQuery{}, perdure.RequeueMany{Canary: true}) {
			if d.ID == "" {
				stopped = err
			} else if n++; err != nil {
				t.Errorf("%+v: %v", d, err)
			}
		}

		wantError(t, "a canary that fails", stopped, perdure.ErrConflict, "the canary", "no money")
		// The canary is dead again.
		if left := dead(t, app, perdure.DeadQuery{Requeued: new(bool)}); n != 1 || len(left) != 5 {
			t.Fatalf("%d requeued, %d dead and not requeued", n, len(left))
		}
		broken.Store(false)

		var as []perdure.Ref
		for d, err := range app.DeadTasks().RequeueAll(t.Context(), perdure.DeadQuery{}, perdure.RequeueMany{Canary: true, Rate: 200}) {
			if err != nil {
				t.Fatalf("%+v: %v", d, err)
			}
			as = append(as, d.As)
		}

		if len(as) != 5 {
			t.Fatalf("requeued %v", as)
		}

		sum := 0
		for _, ref := range as {
			v, err := perdure.Execution[int]{Ref: ref}.Result(c)
			if err != nil {
				t.Errorf("%s: %v", ref, err)
			}
			sum += v
		}

		if sum != 1+2+3+4+5 {
			t.Errorf("the sum is %d", sum)
		}
	})
}

// A step of a workflow dies, and operators requeue it with a new input. An operator who gives the
// same input again gets the same task, also if the app encrypts its payloads. An operator who
// repeats an old request gets the address of the task that this request began, even if that task
// was deleted and other requeues followed.
func TestRepeatedRequeuesOfAStep(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		s.cfg.Payloads = sealingCodec(payload.JSON, ring(t, "k1"), payload.Dir(t.TempDir()))
		charge := perdure.NewActivity("charge", func(_ context.Context, card string) (string, error) {
			if card == "bad" {
				return "", perdure.Permanent(errors.New("no money"))
			}
			return "charged " + card, nil
		}, perdure.OnQueue("bank"))
		order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, card string) (string, error) {
			return charge.Run(ctx, card)
		})

		app := s.open(charge, order)
		c := caller(t, app)
		if _, err := order.Run(c, "bad"); err == nil {
			t.Fatal("it completed")
		}
		id := dead(t, app, perdure.DeadQuery{})[0].ID
		long := "good" + strings.Repeat("!", 500) // long enough for each transform of the codec
		requeue := func(opts ...perdure.RequeueOption) perdure.Ref {
			t.Helper()
			ref, err := app.DeadTasks().Requeue(t.Context(), id, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := (perdure.Execution[string]{Ref: ref}).Result(c); err != nil && !errors.Is(err, perdure.ErrNotFound) || err == nil && got != "charged "+long {
				t.Errorf("%s: %q, %v", ref, got, err)
			}
			return ref
		}

		first := requeue(perdure.WithInput(long), perdure.RequestID("first"))
		if again := requeue(perdure.WithInput(long)); again != first {
			t.Errorf("the same input is requeued as %s, want %s", again, first)
		}
		if _, err := app.DeadTasks().Requeue(t.Context(), id, perdure.WithInput(long+"?")); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("another input: %v", err)
		}

		if second := requeue(perdure.WithInput(long), perdure.RequeueAgain()); second == first {
			t.Fatalf("two requeues have the address %s", first)
		}
		if err := app.Executions().Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if again := requeue(perdure.WithInput(long), perdure.RequestID("first")); again != first {
			t.Errorf("the repeated request is answered with %s, want %s", again, first)
		}
	})
}
