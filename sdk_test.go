package perdure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/dialtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dialtest.Main(m, ".")) }

// with opens an app on its own store, inside a synctest bubble.
func with(t *testing.T, test func(t *testing.T, c perdure.Client, app *perdure.App), defs ...perdure.Definition) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Open(t.Context(), "memory:", defs...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := app.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, app.With(t.Context()), app)
	})
}

func want[T comparable](t *testing.T, got T, err error, wanted T) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got != wanted {
		t.Errorf("got %v, want %v", got, wanted)
	}
}

type approval struct {
	By string
	OK bool
}

var (
	approved = perdure.NewSignal[approval]("approved")
	decision = perdure.NewPromise[approval]("decision")
)

func TestSignalWithTimeout(t *testing.T) {
	t.Parallel()
	approve := perdure.NewWorkflow("approve", func(ctx perdure.WorkflowCtx, doc string) (string, error) {
		a, err := approved.Receive(ctx.WithTimeout(48 * time.Minute))
		switch {
		case errors.Is(err, perdure.ErrTimeout):
			return "expired", nil
		case err != nil:
			return "", err
		}
		return doc + " approved by " + a.By, nil
	})

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		one, err := approve.Start(c, "one", perdure.RawKey("1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Minute)
		if err := approved.Send(c, one, approval{"eve", true}, perdure.RequestID("r")); err != nil {
			t.Fatal(err)
		}

		got, err := one.Result(c)
		want(t, got, err, "one approved by eve")
		if err := approved.Send(c, one, approval{}); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("signal to a closed execution: %v", err)
		}
		if err := approved.Send(c, perdure.Ref{Workflow: "approve", Key: "nobody"}, approval{}); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("signal to a missing execution: %v", err)
		}
		got, err = approve.Run(c, "two", perdure.RawKey("2"))
		want(t, got, err, "expired")
		got, err = approve.Run(c, "three", perdure.RawKey("3"), approved.With(approval{"bob", true}))
		want(t, got, err, "three approved by bob")
	}, approve)
}

func TestPromise(t *testing.T) {
	t.Parallel()
	decide := perdure.NewWorkflow("decide", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		d, err := decision.Await(ctx.WithTimeout(time.Hour))
		return d.By, err
	})

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		e, err := decide.Start(c, "doc", perdure.RawKey("d"))
		if err != nil {
			t.Fatal(err)
		}
		ref, err := perdure.ParseRef(e.String())
		if err != nil || ref != e.Ref {
			t.Fatalf("%v is read as %v, %v", e, ref, err)
		}

		if err := decision.Resolve(c, ref, approval{By: "first"}); err != nil {
			t.Fatal(err)
		}
		if err := decision.Resolve(c, ref, approval{By: "second"}); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("second settlement: %v", err)
		}
		got, err := e.Result(c)
		want(t, got, err, "first")
		rejected, _ := decide.Start(c, "doc", perdure.RawKey("r"))
		if err := decision.Reject(c, rejected, nil); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("a rejection without an error: %v", err)
		}
		if err := decision.Reject(c, rejected, errors.New("no budget")); err != nil {
			t.Fatal(err)
		}

		_, err = rejected.Result(c)
		var remote *perdure.RemoteError
		if !errors.As(err, &remote) || remote.Message != "no budget" {
			t.Errorf("result %v", err)
		}
	}, decide)
}

func TestKeysAndReuse(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	count := perdure.NewWorkflow("count", func(_ perdure.WorkflowCtx, fail bool) (int64, error) {
		n := runs.Add(1)
		if fail {
			return n, errors.New("failed on purpose")
		}
		return n, nil
	})

	keyed := perdure.NewWorkflow("keyed", func(ctx perdure.WorkflowCtx, _ approval) (string, error) {
		return ctx.Self().Key, nil
	}).KeyedBy(func(a approval) perdure.Key { return perdure.RawKey(a.By) })

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := count.Run(c, false)
		want(t, got, err, 1)
		got, err = count.Run(c, false) // the key is the hash of the input
		want(t, got, err, 1)
		got, err = count.Run(c, false, perdure.ReuseIfFailed)
		want(t, got, err, 1)
		got, err = count.Run(c, false, perdure.ReuseAlways)
		want(t, got, err, 2)
		if _, err = count.Run(c, true); err == nil || err.Error() != "failed on purpose" {
			t.Errorf("result %v", err)
		}
		_, _ = count.Run(c, true, perdure.ReuseIfFailed)
		if runs.Load() != 4 {
			t.Errorf("%d runs", runs.Load())
		}
		key, err := keyed.Run(c, approval{By: "eve"})
		want(t, key, err, "eve")
		key, err = keyed.Run(c, approval{By: "eve"}, perdure.RawKey("other"))
		want(t, key, err, "other")
		if _, err := keyed.Run(c, approval{By: "eve", OK: true}); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("same key, other input: %v", err)
		}

		for _, k := range []perdure.Key{perdure.RawKey(""), perdure.RawKey(strings.Repeat("k", 513)), perdure.RawKey("a\x00b"), perdure.RawKey("\xff")} {
			if _, err := keyed.Start(c, approval{}, k); !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("key %.20q: %v", k, err)
			}
		}
	}, count, keyed)
}

func TestChildrenAndCancel(t *testing.T) {
	t.Parallel()
	ship := perdure.DeclareWorkflow[string, string]("ship")
	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		a, err := ship.Run(ctx, "a")
		if err != nil {
			return "", err
		}
		child, err := ship.Start(ctx, "slow", perdure.RawKey("slow"), perdure.AbandonChild)
		if err != nil {
			return "", err
		}

		before, err := child.Poll(ctx)
		if err != nil {
			return "", err
		}
		if err := child.Cancel(ctx, "not needed"); err != nil {
			return "", err
		}

		_, err = child.Future(ctx).Get(ctx)
		after, pollErr := ship.Execution(perdure.RawKey("slow")).Poll(ctx)
		return fmt.Sprint(a, " ", before.Status, " ", errors.Is(err, perdure.ErrCanceled), " ", after.Status, " ", pollErr), nil
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		got, err := parent.Run(c, "p")
		want(t, got, err, "shipped a running true canceled <nil>")
		info, err := app.Executions().Describe(t.Context(), ship.Execution(perdure.RawKey("slow")))
		if err != nil || info.Status != perdure.Canceled || !strings.Contains(info.Err.Error(), "not needed") {
			t.Errorf("%+v, %v", info, err)
		}
	}, parent, ship.Bind(func(ctx perdure.WorkflowCtx, what string) (string, error) {
		if what == "slow" {
			return "", ctx.Sleep(time.Hour)
		}
		return "shipped " + what, nil
	}))
}

func TestContinueAsNewKeepsSignals(t *testing.T) {
	t.Parallel()
	tick := perdure.NewSignal[int]("tick")
	sum := perdure.DeclareWorkflow[[]int, []int]("sum")

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		e, err := sum.Start(c, nil, perdure.RawKey("s"))
		if err != nil {
			t.Fatal(err)
		}

		for i := range 5 {
			if err := tick.Send(c, e, i); err != nil {
				t.Fatal(err)
			}
		}

		got, err := e.Result(c)
		if err != nil || fmt.Sprint(got) != "[0 1 2 3 4]" {
			t.Errorf("got %v, %v", got, err)
		}

		runs := 0
		for info, err := range app.Executions().List(t.Context(), `workflow = "sum"`) {
			if err != nil {
				t.Fatal(err)
			}
			runs++
			if info.Ref.Key != "s" {
				t.Errorf("%+v", info)
			}
		}

		if runs == 0 {
			t.Error("nothing is listed")
		}
	}, sum.Bind(func(ctx perdure.WorkflowCtx, got []int) ([]int, error) {
		v, err := tick.Receive(ctx)
		if err != nil {
			return nil, err
		}
		if got = append(got, v); len(got) == 5 {
			return got, nil
		}
		return nil, sum.ContinueAsNew(got)
	}))
}

func TestStepsAndErrors(t *testing.T) {
	t.Parallel()
	type myError struct{ error }
	flaky := perdure.NewActivity("flaky", func(ctx context.Context, n int) (string, error) {
		if perdure.Attempt(ctx) < n {
			return "", fmt.Errorf("attempt %d", perdure.Attempt(ctx))
		}
		return perdure.IdempotencyKey(ctx), nil
	}, perdure.Exponential(3))

	broken := perdure.NewActivity("broken", func(context.Context, int) (string, error) {
		return "", perdure.Permanent(myError{errors.New("no way")})
	})
	huge := perdure.NewActivity("huge", func(_ context.Context, n int) (string, error) { return strings.Repeat("x", n), nil })
	nan := perdure.NewActivity("nan", func(context.Context, int) (any, error) { return func() {}, nil })

	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		start := ctx.Now()
		key, err := flaky.Run(ctx, 3)
		if err != nil || len(key) != 32 {
			return "", fmt.Errorf("%q, %w", key, err)
		}
		// The policy pauses 1 s and 2 s.
		if took := ctx.Now().Sub(start); took < 3*time.Second || took > 4*time.Second {
			return "", fmt.Errorf("took %s", took)
		}

		_, exhausted := flaky.Run(ctx, 9)
		_, permanent := broken.Run(ctx, 1)
		_, tooLarge := huge.Run(ctx, 3<<20)
		_, notEncodable := nan.Run(ctx, 1)
		_, future := huge.Go(ctx, 3<<20).Get(ctx)
		_, noName := perdure.Do(ctx, "", func(context.Context) (int, error) { return 0, nil })

		var texts []string
		for _, e := range []error{exhausted, permanent, tooLarge, notEncodable, future, noName} {
			var r *perdure.RemoteError
			texts = append(texts, fmt.Sprint(errors.As(e, &r), " ", errors.Is(e, perdure.ErrInvalid), " ", e))
		}

		var r *perdure.RemoteError
		errors.As(permanent, &r)
		return strings.Join(append(texts, r.Type), "\n"), ctx.Sleep(time.Minute)
	})

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := wf.Run(c, "") // sleeps long enough to be unloaded and replayed
		want(t, got, err, strings.Join([]string{
			"true false attempt 3",
			"true false no way",
			"true true output of activity huge has 3145730 bytes, at most 2097152 are allowed",
			"true true output of activity nan cannot be encoded: json: unsupported type: func()",
			"true true output of activity huge has 3145730 bytes, at most 2097152 are allowed",
			"false true the name of step is empty",
			"perdure_test.myError",
		}, "\n"))
		if _, err := wf.Start(c, strings.Repeat("x", 3<<20), perdure.RawKey("big")); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("large input: %v", err)
		}
	}, wf, flaky, broken, huge, nan)
}

func TestCoroutinesSelectAndScopes(t *testing.T) {
	t.Parallel()
	poke := perdure.NewSignal[int]("poke")
	double := perdure.NewActivity("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		var fs []*perdure.Future[int]
		for i := range 3 {
			fs = append(fs, perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
				if err := ctx.Sleep(time.Duration(3-i) * time.Minute); err != nil {
					return 0, err
				}
				return double.Run(ctx, i)
			}))
		}

		two, err := perdure.FirstN(ctx, 2, fs...)
		if err != nil {
			return "", err
		}
		_, canceled := fs[0].Get(ctx)
		var log []string

		next, late := poke.Next(ctx), ctx.Timer(2*time.Minute)
		for range 3 {
			first, err := perdure.Select(ctx, next, late)
			switch {
			case err != nil:
				return "", err
			case first == next:
				v, _ := next.Get(ctx)
				log = append(log, fmt.Sprint("poke ", v))
				if next = poke.Next(ctx); next != poke.Next(ctx) {
					return "", errors.New("Next is not the same until its Get")
				}
			case first == late:
				log = append(log, "late")
			}

			if first == late {
				break
			}
		}

		_, timeout := perdure.Race(ctx.WithTimeout(time.Minute), poke.Next(ctx))
		_, nothing := perdure.Select(ctx)
		_, isNil := perdure.Select(ctx, (*perdure.Future[int])(nil))
		return fmt.Sprint(two, canceled, log, timeout, errors.Is(nothing, perdure.ErrInvalid), isNil != nil), nil
	})

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		e, err := wf.Start(c, "", perdure.RawKey("w"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Minute + time.Second)
		if err := poke.Send(c, e, 7); err != nil {
			t.Fatal(err)
		}
		got, err := e.Result(c)
		want(t, got, err, "[4 2] canceled [poke 7 late] timeout true true")
	}, wf, double)
}

func TestCompensation(t *testing.T) {
	t.Parallel()
	var log []string
	say := func(ctx perdure.WorkflowCtx, what string) error {
		_, err := perdure.Do(ctx, what, func(context.Context) (perdure.Void, error) { log = append(log, what); return perdure.Void{}, nil })
		return err
	}

	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, how string) (string, error) {
		ctx.Defer(func(ctx perdure.WorkflowCtx) error { return say(ctx, "defer") })
		ctx.OnFailure(func(ctx perdure.WorkflowCtx) error { return say(ctx, "undo 1") })
		ctx.OnFailure(func(ctx perdure.WorkflowCtx) error { return say(ctx, "undo 2") })
		switch how {
		case "fail":
			return "", errors.New("broken")
		case "panic":
			panic("broken")
		case "cancel":
			return "", ctx.Sleep(time.Hour)
		}
		return "fine", nil
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		for how, wanted := range map[string]string{"": "[defer]", "fail": "[undo 2 undo 1 defer]", "panic": "[undo 2 undo 1 defer]", "cancel": "[undo 2 undo 1 defer]"} {
			log = nil
			e, err := wf.Start(c, how, perdure.RawKey("k"+how))
			if err != nil {
				t.Fatal(err)
			}

			if how == "cancel" {
				if err := e.Cancel(c, "enough"); err != nil {
					t.Fatal(err)
				}
			}

			_, err = e.Result(c)
			if got := fmt.Sprint(log); got != wanted {
				t.Errorf("%s: %s, want %s", how, got, wanted)
			}

			var r *perdure.RemoteError
			switch errors.As(err, &r); how {
			case "":
				want(t, "", err, "")
			case "cancel":
				if !errors.Is(err, perdure.ErrCanceled) || err.Error() != "canceled: enough" {
					t.Errorf("canceled: %v", err)
				}
			case "panic":
				if r == nil || r.Kind != "panic" {
					t.Errorf("panic: %v", err)
				}
			}

			var kinds []string
			for ev, err := range app.Histories().Events(t.Context(), e) {
				if err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, ev.Kind)
			}

			if len(kinds) < 3 || kinds[0] != "started" || kinds[len(kinds)-1] != "closed" {
				t.Errorf("history %v", kinds)
			}
		}
	}, wf)
}

func TestLogIsSilentOnReplay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		ctx.Log().Info("begin")
		id, n := ctx.UUID(), ctx.Rand().IntN(1000)
		again, err := perdure.Do(ctx, "remember", func(context.Context) (string, error) {
			ctx.Log().Info("inside")
			return fmt.Sprint(id, n, ctx.Self().Key), nil
		})
		if err != nil {
			return "", err
		}
		if err := ctx.Sleep(time.Minute); err != nil { // long enough to be unloaded
			return "", err
		}
		ctx.Log().Info("end")
		return fmt.Sprint(again == fmt.Sprint(id, n, "k")), nil
	})

	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}.Open(t.Context(), "memory:", wf)
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		got, err := wf.Run(app.With(t.Context()), "", perdure.RawKey("k"))
		want(t, got, err, "true")
	})

	for _, line := range []string{"msg=begin", "msg=inside", "msg=end"} {
		if n := strings.Count(out.String(), line); n != 1 {
			t.Errorf("%s is logged %d times", line, n)
		}
	}
}

func TestHandlersThatAreNil(t *testing.T) {
	t.Parallel()
	update, query := perdure.NewUpdate[int, int]("add"), perdure.NewQuery[int, int]("sum")
	for want, handle := range map[string]func(perdure.WorkflowCtx){
		"the handler of update add is nil":   func(ctx perdure.WorkflowCtx) { update.Handle(ctx, nil) },
		"the handler of query sum is nil":    func(ctx perdure.WorkflowCtx) { query.Handle(ctx, nil) },
		"the function of OnInterrupt is nil": func(ctx perdure.WorkflowCtx) { ctx.OnInterrupt(nil) },
	} {
		wf := perdure.NewWorkflow("deaf", func(ctx perdure.WorkflowCtx, _ int) (int, error) { handle(ctx); return 0, nil })
		with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
			if _, err := wf.Run(c, 1); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}, wf)
	}
}
