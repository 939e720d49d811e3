package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// The times of executions are in the store. So a start time, the end of a pause between two
// attempts, and a time-out take effect in any process that runs at that time.
func TestStartTimesOverRestarts(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var began atomic.Int32
		wake := perdure.NewSignal[string]("wake")
		w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, how string) (string, error) {
			began.Add(1)
			if strings.HasPrefix(how, "fails") && ctx.Attempt() == 1 {
				return "", errors.New("the first attempt fails")
			}
			got, err := wake.Receive(ctx)
			return fmt.Sprintf("%s, attempt %d", got, ctx.Attempt()), err
		})

		reopen := func(app *perdure.App) *perdure.App {
			if s.kind == "memory" {
				return app
			}
			return s.reopen(app, w)
		}

		app := s.open(w)
		c := caller(t, app)
		far := mustStart(t, c, w, "far", perdure.StartDelay(time.Hour))
		canceled := mustStart(t, c, w, "canceled", perdure.StartAt(time.Now().Add(time.Hour)))
		near := mustStart(t, c, w, "near", perdure.StartDelay(2*time.Second))
		if err := wake.Send(c, near, "early"); err != nil {
			t.Fatal(err)
		}

		fails := mustStart(t, c, w, "fails", perdure.Constant(3, 2*time.Second))
		late := mustStart(t, c, w, "late", perdure.ExecutionTimeout(2*time.Second))
		pauses := mustStart(t, c, w, "fails and pauses", perdure.Constant(3, time.Hour))
		reason(t, app, pauses, "begins again, attempt 2")
		if err := wake.Send(c, fails, "again"); err != nil {
			t.Fatal(err)
		}
		app = reopen(app)
		c = caller(t, app)
		if info := reason(t, app, far, "waits for its start time"); info.Begins.Sub(info.Started).Round(time.Second) != time.Hour {
			t.Errorf("described as %+v", info)
		}
		reason(t, app, pauses, "begins again, attempt 2")
		if waiting := list(t, app, `reason = "start"`); len(waiting) < 2 {
			t.Errorf("%v wait for their start", waiting)
		}
		if err := canceled.Cancel(c, "not needed"); err != nil {
			t.Fatal(err)
		}

		_, err := canceled.Result(c)
		if !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("canceled before it began: %v", err)
		}
		got, err := near.Result(c)
		equal(t, "the one with a signal", got, err, "early, attempt 1")
		got, err = fails.Result(c)
		equal(t, "the one that failed first", got, err, "again, attempt 2")
		_, err = late.Result(c)
		var re *perdure.RemoteError
		if !errors.Is(err, perdure.ErrTimeout) || !errors.As(err, &re) || re.Type != "timeout.execution" {
			t.Errorf("the one that takes too long: %v", err)
		}
		// The code of execution near begins once, the code of fails begins twice, and the code of
		// pauses begins once. The code of late begins if it can do so before its time-out. The code
		// of each of them, except pauses, may begin once more if the process closed while the code
		// ran.
		if n := began.Load(); n < 4 || n > 8 {
			t.Errorf("code began %d times", n)
		}
		n, err := app.Executions().Count(t.Context(), `status = "failed"`)
		equal(t, "failed executions", n, err, 1) // a repeated attempt is not a failed execution
	})
}

// One call starts many executions. Each start has its own outcome, and the call can be repeated.
func TestStartMany(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		w := perdure.NewWorkflow("square", func(_ perdure.WorkflowCtx, n int) (int, error) { return n * n, nil }).
			KeyedBy(func(n int) perdure.Key { return perdure.RawKey(fmt.Sprint("n", n/2)) })
		app := s.open(w)
		c := caller(t, app)
		ins := make([]int, 500)
		for i := range ins {
			ins[i] = 2 * i
		}
		ins[7], ins[8] = 3, 2*8 // input 3 has the key of input 2
		first, err := w.StartMany(c, ins, perdure.RequestID("r"))
		if err != nil || len(first) != len(ins) {
			t.Fatalf("%d results, %v", len(first), err)
		}

		for i, r := range first {
			switch {
			case i == 7:
				wantError(t, "a start that contradicts another", r.Err, perdure.ErrConflict, "another input")
			case r.Err != nil || r.Existing:
				t.Fatalf("start %d: %+v", i, r)
			}
		}

		got, err := first[499].Execution.Result(c)
		equal(t, "a result", got, err, 998*998)
		again, err := w.StartMany(c, ins, perdure.RequestID("r"))
		if err != nil || !again[0].Existing || !again[499].Existing || again[7].Err == nil {
			t.Errorf("repeated: %+v, %v", again[:8], err)
		}
		n, err := app.Executions().Count(t.Context(), "")
		equal(t, "executions", n, err, 499)
		if s.kind != "memory" {
			return
		}

		_, err = w.StartMany(c, ins, perdure.RawKey("one"))
		wantError(t, "one key for all", err, perdure.ErrInvalid, "KeyedBy")
		_, err = w.StartMany(c, make([]int, 100_001))
		wantError(t, "too many", err, perdure.ErrExhausted, "100000")
		big := perdure.NewWorkflow("big", func(_ perdure.WorkflowCtx, text string) (int, error) { return len(text), nil })
		text := strings.Repeat("x", 2<<20)
		texts := make([]string, 33)
		for i := range texts {
			texts[i] = fmt.Sprint(text, i)
		}
		_, err = big.StartMany(c, texts)
		wantError(t, "too many bytes", err, perdure.ErrExhausted, "67108864")
	})
}
