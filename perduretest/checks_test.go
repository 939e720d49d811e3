package perduretest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// recorder is a testing.TB that records failures. So a test can check that another test fails.
type recorder struct {
	testing.TB

	mu   sync.Mutex
	text strings.Builder
	fail bool
}

func (r *recorder) note(failed bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = r.fail || failed
	fmt.Fprintf(&r.text, format+"\n", args...)
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.note(true, format, args...) }

func (r *recorder) Logf(format string, args ...any) { r.note(false, format, args...) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fail
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

var outside int // a variable that no journal records

// TestWrongWorkflowsFail runs workflows with mistakes that would show in a program only after a
// crash or a deploy.
//
//perdure:allow channel,clock,goroutine,nested the test is about them
func TestWrongWorkflowsFail(t *testing.T) {
	t.Parallel()
	never, shown := perdure.NewSignal[int]("never"), perdure.NewState[int]("shown")
	var counter atomic.Int64

	step := func(ctx perdure.WorkflowCtx, name string, opts ...perdure.CallOption) error {
		_, err := perdure.Do(ctx, name, func(context.Context) (int, error) { return 1, nil }, opts...)
		return err
	}
	for _, c := range []struct {
		name string
		code func(ctx perdure.WorkflowCtx) error
		want []string
	}{
		{"differs", func(ctx perdure.WorkflowCtx) error {
			if err := step(ctx, "first"); err != nil {
				return err
			}
			outside++
			return step(ctx, fmt.Sprint("s", outside))
		}, []string{"is blocked by a replay mismatch", "checks_test.go:", "history of 1 events", "step completed first"}},
		{"state differs", func(ctx perdure.WorkflowCtx) error {
			if err := shown.Set(ctx, int(counter.Add(1))); err != nil {
				return err
			}
			return ctx.Sleep(time.Hour)
		}, []string{"is blocked by a replay mismatch", "asked for state shown at perduretest/checks_test.go:", " as "}},
		{"label differs", func(ctx perdure.WorkflowCtx) error {
			if err := ctx.SetLabel("n", fmt.Sprint(counter.Add(1))); err != nil {
				return err
			}
			return ctx.Sleep(time.Hour)
		}, []string{"is blocked by a replay mismatch", "asked for label n at perduretest/checks_test.go:", " as "}},
		{"go statement", func(ctx perdure.WorkflowCtx) error {
			errs := make(chan error, 1)
			go func() { errs <- ctx.Sleep(time.Hour) }()
			return <-errs
		}, []string{"durable call Sleep from a goroutine that is not a coroutine of this execution: begin it with perdure.Go", "checks_test.go:"}},
		{"inside a step", func(ctx perdure.WorkflowCtx) error {
			_, err := perdure.Do(ctx, "outer", func(context.Context) (int, error) { return 0, ctx.Sleep(time.Hour) })
			return err
		}, []string{"durable call Sleep inside step outer", "checks_test.go:"}},
		{"loop", func(ctx perdure.WorkflowCtx) error {
			for range 3 {
				if err := step(ctx, "again"); err != nil {
					return err
				}
			}
			return nil
		}, []string{"step again is repeated without a key at", "perdure.StepKey"}},
		{"blocks", func(perdure.WorkflowCtx) error {
			time.Sleep(time.Minute)
			return nil
		}, []string{"blocks outside durable calls", "checks_test.go:"}},
		{"waits forever", func(ctx perdure.WorkflowCtx) error {
			_, err := never.Receive(ctx)
			return err
		}, []string{"175200h0m0s of virtual time have passed", "wrong/k waits for signal never"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wrong := perdure.NewWorkflow("wrong", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return 0, c.code(ctx) })
			r := &recorder{TB: t}

			bubble(t, func(t *testing.T) {
				Config{Patience: 20 * 365 * 24 * time.Hour}.run(t, r, wrong, func(_ *testing.T, env *Env) {
					_, _ = wrong.Run(env.With(), 1, perdure.RawKey("k"))
				})
			})

			for _, want := range append(c.want, "histories:", "wrong/k: ") {
				if !strings.Contains(r.String(), want) {
					t.Errorf("%s\nhas no %q", r, want)
				}
			}

			if !r.Failed() {
				t.Error("the test has not failed")
			}
		})
	}
}
