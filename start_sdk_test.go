package perdure_test

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
	"github.com/perdure/perdure/embedded"
)

// checkInfo checks the description of an execution.
func checkInfo(t *testing.T, app *perdure.App, to perdure.Target, status perdure.Status, reason string) perdure.Info {
	t.Helper()
	info, err := app.Executions().Describe(t.Context(), to)
	if err != nil || info.Status != status || !strings.Contains(info.Reason, reason) {
		t.Errorf("described as %+v, %v; want %s because of %q", info, err, status, reason)
	}
	return info
}

// An execution with a delayed start has its key and accepts signals and updates. Its code starts
// after the delay.
func TestStartDelay(t *testing.T) {
	t.Parallel()
	note := perdure.NewSignal[string]("note")
	add := perdure.NewUpdate[int, int]("add")
	ask := perdure.NewQuery[int, string]("ask")
	var runs atomic.Int32

	late := perdure.NewWorkflow("late", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		runs.Add(1)
		began := ctx.Now()
		add.Handle(ctx, func(_ perdure.WorkflowCtx, n int) (int, error) { return n + 1, nil })
		text, err := note.Receive(ctx)
		if text == "hello" {
			_, err = note.Receive(ctx)
		}
		return text + " " + began.UTC().Format(time.RFC3339), err
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		for i := range 2 {
			started := time.Now()
			begin := started.Add(time.Minute).UTC().Truncate(time.Second)
			opt := perdure.StartDelay(time.Minute)
			if i == 1 {
				opt = perdure.StartAt(begin)
			}
			key := perdure.RawKey(fmt.Sprint("k", i))
			x, err := late.Start(c, "in", key, opt)
			must(t, err)
			info := checkInfo(t, app, x, perdure.Running, "waits for its start time")
			if want := begin; i == 1 && !info.Begins.Equal(want) {
				t.Errorf("begins at %s, want %s", info.Begins, want)
			}
			_, err = late.Start(c, "other", key)
			if !errors.Is(err, perdure.ErrConflict) {
				t.Errorf("the key is not taken: %v", err)
			}
			n, err := app.Executions().Count(t.Context(), `reason = "start" and key = "`+fmt.Sprint("k", i)+`"`)
			want(t, n, err, 1)
			must(t, note.Send(c, x, "hello"))
			if _, err := ask.Ask(c, x, 1); !errors.Is(err, perdure.ErrBlocked) || !strings.Contains(err.Error(), "start time") {
				t.Errorf("a query before the start: %v", err)
			}
			checkInfo(t, app, x, perdure.Running, "waits for its start time")
			if runs.Load() != int32(i) {
				t.Fatal("the code has begun")
			}

			sum, err := add.Call(c, x, 2) // waits until the code has started
			want(t, sum, err, 3)
			if d := time.Since(started).Round(100 * time.Millisecond); d != time.Minute && i == 0 {
				t.Errorf("the update was answered after %s", d)
			}
			must(t, note.Send(c, x, "the end"))
			got, err := x.Result(c)
			if i == 1 {
				want(t, got, err, "hello "+begin.Format(time.RFC3339))
			}
			must(t, err)
		}

		x, err := late.Start(c, "past", perdure.StartAt(time.Now().Add(-time.Minute)))
		must(t, err)
		must(t, note.Send(c, x, "at once"))
		began := time.Now()
		_, err = x.Result(c)
		must(t, err)
		if d := time.Since(began); d > time.Second {
			t.Errorf("a start time that has passed was waited for %s", d)
		}
		canceled, err := late.Start(c, "canceled", perdure.StartDelay(time.Minute))
		must(t, err)
		must(t, canceled.Cancel(c, "not needed"))
		if _, err := canceled.Result(c); !errors.Is(err, perdure.ErrCanceled) || !strings.Contains(err.Error(), "not needed") {
			t.Errorf("canceled before it began: %v", err)
		}
		paused, err := late.Start(c, "paused", perdure.StartDelay(time.Minute))
		must(t, err)
		must(t, app.Executions().Pause(t.Context(), paused, "look"))
		checkInfo(t, app, paused, perdure.Running, "is paused")
		time.Sleep(2 * time.Minute)
		checkInfo(t, app, paused, perdure.Running, "is paused")
		must(t, app.Executions().Resume(t.Context(), paused))
		must(t, note.Send(c, paused, "now"))
		_, err = paused.Result(c)
		must(t, err)
		again, err := late.Start(c, "paused and resumed", perdure.StartDelay(time.Minute))
		must(t, err)
		must(t, app.Executions().Pause(t.Context(), again, "look"))
		must(t, app.Executions().Resume(t.Context(), again))
		checkInfo(t, app, again, perdure.Running, "waits for its start time")
		n, err := app.Executions().Count(t.Context(), `reason = "start"`)
		want(t, n, err, 1)
		must(t, app.Executions().Terminate(t.Context(), again, "enough"))
	}, late)
}

// An execution that exceeds its ExecutionTimeout ends, with all its runs and children, and its
// waiting callers get the error.
func TestExecutionTimeout(t *testing.T) {
	t.Parallel()
	counter := perdure.NewEntity[int]("counter")
	perdure.NewOperation(counter, "add", func(_ perdure.EntityCtx, n *int, by int) (int, error) { *n += by; return *n, nil })
	child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return "", ctx.Sleep(24 * time.Minute)
	})
	var runs atomic.Int32
	var loop *perdure.Workflow[int, int]

	loop = perdure.NewWorkflow("loop", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		runs.Add(1)
		if n == 0 {
			if _, err := child.Start(ctx, "c", perdure.RawKey("canceled")); err != nil {
				return 0, err
			}
		}
		if err := ctx.Sleep(20 * time.Second); err != nil {
			return 0, err
		}
		return 0, loop.ContinueAsNew(n + 1)
	})

	holder := perdure.NewWorkflow("holder", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		_, err := child.Start(ctx, "a", perdure.RawKey("abandoned"), perdure.AbandonChild)
		if err != nil {
			return "", err
		}
		if _, err := child.Start(ctx, "a", perdure.RawKey("canceled too")); err != nil {
			return "", err
		}
		return "", ctx.Lock(perdure.LockSet{counter.Ref("x")}, func(ctx perdure.WorkflowCtx) error { return ctx.Sleep(24 * time.Minute) })
	})

	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		_, err := loop.Run(ctx, 5, perdure.ExecutionTimeout(time.Second))
		if !errors.Is(err, perdure.ErrTimeout) {
			return "", fmt.Errorf("the child ended with %w", err)
		}
		return "told", nil
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		began := time.Now()
		x, err := loop.Start(c, 0, perdure.ExecutionTimeout(time.Minute))
		must(t, err)
		if info := checkInfo(t, app, x, perdure.Running, ""); !info.Expires.Equal(info.Started.Add(time.Minute)) {
			t.Errorf("expires at %s, want a minute after %s", info.Expires, info.Started)
		}
		_, err = x.Result(c)
		var re *perdure.RemoteError
		if !errors.Is(err, perdure.ErrTimeout) || !errors.As(err, &re) || re.Type != "timeout.execution" || !strings.Contains(err.Error(), "1m0s") {
			t.Errorf("ended with %v", err)
		}
		if d := time.Since(began).Round(100 * time.Millisecond); d != time.Minute || runs.Load() < 3 {
			t.Errorf("ended after %s and %d runs", d, runs.Load())
		}
		if info := checkInfo(t, app, x, perdure.Failed, ""); !errors.Is(info.Err, perdure.ErrTimeout) {
			t.Errorf("described with error %v", info.Err)
		}
		h, err := holder.Start(c, "h", perdure.ExecutionTimeout(time.Minute), perdure.StartDelay(time.Minute))
		must(t, err)
		began = time.Now()
		if _, err = h.Result(c); !errors.Is(err, perdure.ErrTimeout) || time.Since(began).Round(100*time.Millisecond) != 2*time.Minute {
			t.Errorf("ended with %v after %s, want two minutes", err, time.Since(began))
		}
		time.Sleep(time.Second) // a message tells the entity that its lock is free

		locked := 0
		for _, err := range app.Locks().List(t.Context(), "counter") {
			must(t, err)
			locked++
		}

		want(t, locked, nil, 0)
		_, err = child.Execution(perdure.RawKey("canceled too")).Result(c)
		if !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("the child ended with %v, want canceled", err)
		}
		checkInfo(t, app, child.Execution(perdure.RawKey("abandoned")), perdure.Running, "timer")
		got, err := parent.Run(c, "p")
		want(t, got, err, "told")
		runs.Store(0)
		done, err := child.Start(c, "in time", perdure.ExecutionTimeout(25*time.Minute))
		must(t, err)
		_, err = done.Result(c)
		must(t, err)
		time.Sleep(48 * time.Minute)
		checkInfo(t, app, done, perdure.Completed, "")
	}, loop, child, holder, parent, counter)
}

// After a failed run the engine starts another run with the same input, until the policy allows no
// further run.
func TestWorkflowRetry(t *testing.T) {
	t.Parallel()
	fail := errors.New("not yet")
	wake := perdure.NewSignal[string]("wake")
	var mu sync.Mutex
	var began []time.Time
	var children atomic.Int32
	fragile := perdure.NewWorkflow("fragile", func(_ perdure.WorkflowCtx, _ string) (string, error) {
		if children.Add(1) == 1 {
			return "", errors.New("the child failed")
		}
		return "child", nil
	})
	body := func(ctx perdure.WorkflowCtx, how string) (string, error) {
		mu.Lock()
		began = append(began, ctx.Now())
		mu.Unlock()

		switch {
		case how == "panic" && ctx.Attempt() == 1:
			panic("oh")
		case how == "permanent":
			return "", perdure.Permanent(fail)
		case how == "child":
			got, err := fragile.Run(ctx, "c", perdure.RawKey("fixed"))
			return got, err
		case how == "after" && ctx.Attempt() == 1:
			return "", perdure.RetryAfter(fail, time.Minute)
		case how == "signal" && ctx.Attempt() == 2:
			return wake.Receive(ctx)
		case how == "timeout":
			return "", perdure.ErrTimeout
		case ctx.Attempt() < 3 || how == "always":
			return "", fail
		}

		return fmt.Sprintf("%s %d", how, ctx.Attempt()), nil
	}
	plain := perdure.NewWorkflow("plain", body)
	declared := perdure.NewWorkflow("declared", body, perdure.RetryPolicy{MaxAttempts: 3, Initial: time.Second, Max: time.Minute, Coefficient: 2, If: func(err error) bool {
		return !errors.Is(err, perdure.ErrTimeout)
	}})
	var loop *perdure.Workflow[int, string]
	var tries atomic.Int32
	loop = perdure.NewWorkflow("loop", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		tries.Add(1)
		switch {
		case n == 0 && ctx.Attempt() == 2:
			return "", loop.ContinueAsNew(1)
		case n == 1 && ctx.Attempt() == 2:
			return "over", nil
		}
		return "", fail
	}, perdure.Constant(2, 10*time.Millisecond))
	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return plain.Run(ctx, "as child", perdure.Constant(5, time.Second))
	})
	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		attempts := func() int {
			mu.Lock()
			defer mu.Unlock()
			n := len(began)
			began = nil
			return n
		}
		start := time.Now()
		x, err := plain.Start(c, "given", perdure.Constant(5, time.Minute))
		must(t, err)
		time.Sleep(time.Second)
		info := checkInfo(t, app, x, perdure.Running, "begins again, attempt 2")
		if !strings.Contains(info.Reason, "not yet") || info.Attempt != 2 || !info.Begins.Equal(start.Add(time.Minute)) {
			t.Errorf("described as %+v", info)
		}
		got, err := x.Result(c)
		want(t, got, err, "given 3")
		if d := time.Since(start).Round(100 * time.Millisecond); d != 2*time.Minute || attempts() != 3 {
			t.Errorf("it took %s", d)
		}
		n, err := app.Executions().Count(t.Context(), `workflow = "plain" and status = "failed"`)
		want(t, n, err, 0)

		start = time.Now()
		got, err = declared.Run(c, "declared")
		want(t, got, err, "declared 3")
		want(t, time.Since(start).Round(100*time.Millisecond), nil, 3*time.Second)
		attempts()
		for how, want := range map[string]int{"always": 3, "permanent": 1, "timeout": 1} {
			_, err = declared.Run(c, how)
			if n := attempts(); err == nil || n != want {
				t.Errorf("%s: %v after %d attempts, want %d", how, err, n, want)
			}
		}
		got, err = declared.Run(c, "panic")
		want(t, got, err, "panic 3")
		start = time.Now()
		got, err = declared.Run(c, "after")
		want(t, got, err, "after 3")
		want(t, time.Since(start).Round(100*time.Millisecond), nil, time.Minute+2*time.Second)
		got, err = plain.Run(c, "child", perdure.Constant(2, 10*time.Millisecond))
		want(t, got, err, "child")
		got, err = loop.Run(c, 0)
		want(t, got, err, "over")
		want(t, tries.Load(), nil, 4)
		got, err = parent.Run(c, "p")
		want(t, got, err, "as child 3")

		x, err = plain.Start(c, "always", perdure.Constant(100, time.Minute), perdure.ExecutionTimeout(150*time.Second))
		must(t, err)
		start = time.Now()
		if _, err = x.Result(c); err == nil || err.Error() != "not yet" || time.Since(start).Round(100*time.Millisecond) != 2*time.Minute {
			t.Errorf("ended with %v after %s; an attempt that would begin too late is not made", err, time.Since(start))
		}
		x, err = plain.Start(c, "always", perdure.RawKey("canceled"), perdure.Constant(100, time.Minute))
		must(t, err)
		time.Sleep(time.Second)
		must(t, x.Cancel(c, "enough"))
		if _, err := x.Result(c); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("canceled between two attempts: %v", err)
		}
		x, err = plain.Start(c, "signal", perdure.Constant(3, time.Minute))
		must(t, err)
		must(t, wake.Send(c, x, "early")) // to the first attempt, or before the second attempt starts
		got, err = x.Result(c)
		want(t, got, err, "early")
		x, err = plain.Start(c, "signal", perdure.RawKey("terminated"), perdure.Constant(3, 10*time.Millisecond))
		must(t, err)
		time.Sleep(time.Second)
		must(t, app.Executions().Terminate(t.Context(), x, "enough"))
		time.Sleep(time.Minute)
		checkInfo(t, app, x, perdure.Terminated, "")
	}, plain, declared, loop, fragile, parent)
}

// Start options that make no sense are refused. So are workflow options in a submission of a task.
func TestTermsAreChecked(t *testing.T) {
	t.Parallel()
	w := perdure.NewWorkflow("w", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
	act := perdure.NewActivity("a", func(context.Context, int) (int, error) { return 0, nil })

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		start := func(opts ...perdure.StartOption) error { _, err := w.Start(c, 1, opts...); return err }
		submit := func(opts ...perdure.StartOption) error { _, err := act.Submit(c, 1, opts...); return err }
		for what, err := range map[string]error{
			"StartDelay is -1ns":                 start(perdure.StartDelay(-1)),
			"ExecutionTimeout is -1ns":           start(perdure.ExecutionTimeout(-1)),
			"StartDelay and StartAt":             start(perdure.StartDelay(1), perdure.StartAt(time.Now())),
			"the year 1":                         start(perdure.StartAt(time.Time{})),
			"RetryPolicy.If cannot be stored":    start(perdure.RetryPolicy{If: func(error) bool { return true }}),
			"or use ErrorNamed":                  start(perdure.RetryPolicy{Except: []perdure.ErrorKind{perdure.ErrorType[*perdure.RemoteError]()}}),
			"RetryPolicy.MaxAttempts is -1":      start(perdure.RetryPolicy{MaxAttempts: -1}),
			"StartDelay is for workflows":        submit(perdure.StartDelay(time.Hour)),
			"StartAt is for workflows":           submit(perdure.StartAt(time.Now())),
			"ExecutionTimeout is for workflows":  submit(perdure.ExecutionTimeout(time.Hour)),
			"Delay is for activities":            start(perdure.Delay(time.Hour)),
			"which is more than a hundred years": start(perdure.ExecutionTimeout(101 * 365 * 24 * time.Hour)),
		} {
			if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want ErrInvalid: %s", err, what)
			}
		}

		jobs := map[string]perdure.Job{
			"a schedule decides when executions start": w.Job(1, perdure.StartDelay(time.Hour)),
			"pass the retry policy to NewWorkflow":     w.Job(1, perdure.Exponential(3)),
			"Priority is for activities":               w.Job(1, perdure.Priority(3)),
			"AttemptTimeout is for activities":         w.Job(1, perdure.AttemptTimeout(time.Hour)),
		}
		for what, job := range jobs {
			app, err := embedded.Open(t.Context(), "memory:", w, perdure.NewSchedule("s", perdure.Every(time.Hour), job))
			if err == nil {
				_ = app.Close()
			}
			if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want ErrInvalid: %s", err, what)
			}
		}
	}, w, act)
}
