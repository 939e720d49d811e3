package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// The workload: chains of steps with sleeps and failing attempts, executions that wait for a signal and a promise, and parents of two chains.
// What each execution must return follows from its key alone.

type chainIn struct {
	Key   string
	Steps int
}

var (
	chain  = perdure.DeclareWorkflow[chainIn, int]("chain")
	gate   = perdure.DeclareWorkflow[string, string]("gate")
	family = perdure.DeclareWorkflow[string, int]("family")
	open   = perdure.NewSignal[int]("open")
	word   = perdure.NewPromise[string]("word")
)

// ledger notes every execution of a step body, in a file that survives the process.
type ledger struct{ path string }

func (l ledger) note(line string) error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// counts reads how often each body ran.
func (l ledger) counts(t *testing.T) map[string]int {
	t.Helper()
	b, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		n[strings.TrimSpace(line)]++
	}
	return n
}

// definitions are the workload's code.
func definitions(l ledger) perdure.Group {
	return perdure.Group{
		chain.Bind(func(ctx perdure.WorkflowCtx, in chainIn) (int, error) {
			sum := 0
			for i := range in.Steps {
				v, err := perdure.Do(ctx, "square", func(actx context.Context) (int, error) {
					if err := l.note(fmt.Sprintf("%s/%d", in.Key, i)); err != nil {
						return 0, err
					}
					if i%5 == 4 && perdure.Attempt(actx) == 1 {
						return 0, errors.New("the first attempt fails")
					}
					return i * i, nil
				}, perdure.StepKey(strconv.Itoa(i)), perdure.Constant(10, time.Millisecond))
				if err != nil {
					return 0, err
				}
				sum += v
				if i%3 == 2 {
					if err := ctx.Sleep(5 * time.Millisecond); err != nil {
						return 0, err
					}
				}
			}
			return sum, nil
		}),
		gate.Bind(func(ctx perdure.WorkflowCtx, key string) (string, error) {
			total := 0
			for range 3 {
				n, err := open.Receive(ctx)
				if err != nil {
					return "", err
				}
				total += n
			}
			w, err := word.Await(ctx)
			return fmt.Sprintf("%s %d", w, total), err
		}),
		family.Bind(func(ctx perdure.WorkflowCtx, key string) (int, error) {
			a := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
				return chain.Run(ctx, chainIn{key + "/a", 4}, perdure.RawKey(key+"/a"))
			})
			b, err := chain.Run(ctx, chainIn{key + "/b", 5}, perdure.RawKey(key+"/b"))
			if err != nil {
				return 0, err
			}
			v, err := a.Get(ctx)
			return v + b, err
		}),
	}
}

func squares(n int) (sum int) {
	for i := range n {
		sum += i * i
	}
	return sum
}

// drive starts n executions of each kind (or attaches to them) and waits for all of them. It may be called again and again, by
// one process after another or by several at once.
func drive(ctx context.Context, app *perdure.App, n int) error {
	c := app.With(ctx)
	var wg sync.WaitGroup
	errs := make(chan error, 3*n)
	for i := range n {
		wg.Go(func() {
			key := fmt.Sprintf("c%d", i)
			got, err := chain.Run(c, chainIn{key, 7}, perdure.RawKey(key))
			errs <- check("chain/"+key, got, squares(7), err)
		})
		wg.Go(func() {
			key := fmt.Sprintf("g%d", i)
			exec, err := gate.Start(c, key, perdure.RawKey(key))
			for s := 1; s <= 3 && err == nil; s++ {
				err = open.Send(c, exec, s, perdure.RequestID(fmt.Sprintf("%s-%d", key, s)))
				if errors.Is(err, perdure.ErrConflict) {
					err = nil // it has ended: an earlier drive sent them all
				}
			}
			if err == nil {
				if err = word.Resolve(c, exec, "open"); errors.Is(err, perdure.ErrConflict) {
					err = nil
				}
			}
			if err != nil {
				errs <- fmt.Errorf("gate/%s: %w", key, err)
				return
			}
			got, err := exec.Result(c)
			errs <- check("gate/"+key, got, "open 6", err)
		})
		wg.Go(func() {
			key := fmt.Sprintf("f%d", i)
			got, err := family.Run(c, key, perdure.RawKey(key))
			errs <- check("family/"+key, got, squares(4)+squares(5), err)
		})
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

func check[T comparable](what string, got, want T, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case got != want:
		return fmt.Errorf("%s = %v, want %v", what, got, want)
	}
	return nil
}

// verify looks at what is stored once everything has ended: every execution is completed, its history has no gap, and every outcome is in it once.
func verify(t *testing.T, url string, n int, l ledger) {
	t.Helper()
	nd, err := node.Open(t.Context(), node.Config{URL: url, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nd.Close()
	b := nd.Backend()
	want := map[string]int{"chain": 3 * n, "gate": n, "family": n}
	req := api.ListRequest{AllRuns: true, Limit: 1000}
	found := map[string]int{}
	for {
		page, err := b.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Executions {
			d := &page.Executions[i]
			found[d.Start.Address.Type]++
			if d.Outcome.Status != model.Completed {
				t.Errorf("%s is %s: %v %v", d.Start.Address, d.Outcome.Status, d.Reasons, d.Outcome.Failure)
			}
			verifyHistory(t, b, d)
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}
	for kind, count := range want {
		if found[kind] != count {
			t.Errorf("%d runs of %s, want %d", found[kind], kind, count)
		}
	}
	ran := l.counts(t)
	for i := range n {
		for s := range 7 {
			if id := fmt.Sprintf("c%d/%d", i, s); ran[id] == 0 {
				t.Errorf("step %s is recorded, but its body never ran", id)
			}
		}
	}
}

func verifyHistory(t *testing.T, b api.Backend, d *api.Description) {
	t.Helper()
	page, err := b.History(t.Context(), api.HistoryRequest{Target: api.Target{Address: d.Start.Address, Run: d.Start.Run}, After: -1})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	last := model.Time(0)
	for i, e := range page.Events {
		if e.Seq != int64(i) {
			t.Errorf("%s: event %d stands at position %d", d.Start.Address, i, e.Seq)
		}
		if e.At < last {
			t.Errorf("%s: event %d is older than the one before", d.Start.Address, i)
		}
		last = e.At
		switch e.Kind {
		case model.EventStepCompleted, model.EventStepFailed, model.EventTimerFired, model.EventChildStarted:
			outcomes[e.Kind.String()+e.ID]++
		case model.EventChildClosed:
			outcomes["closed"+e.ID]++
		case model.EventSignalReceived:
			outcomes["signal"+e.RequestID]++
		case model.EventSignalTaken:
			outcomes["taken"+strconv.FormatInt(e.Ref, 10)]++
		case model.EventPromiseSettled:
			outcomes["promise"+e.Name]++
		default:
		}
	}
	for what, n := range outcomes {
		if n != 1 {
			t.Errorf("%s: %s is recorded %d times", d.Start.Address, what, n)
		}
	}
}

// openExecutions tells what has not ended, and what is in its history.
func openExecutions(t *testing.T, url string) string {
	nd, err := node.Open(t.Context(), node.Config{URL: url, ReadOnly: true})
	if err != nil {
		return err.Error()
	}
	defer nd.Close()
	var text strings.Builder
	page, err := nd.Backend().List(t.Context(), api.ListRequest{Statuses: []model.Status{model.Running}, Limit: 5})
	if err != nil {
		return err.Error()
	}
	for _, d := range page.Executions {
		full, err := nd.Backend().Describe(t.Context(), api.Target{Address: d.Start.Address})
		fmt.Fprintf(&text, "%s %v timers %v %v\n", d.Start.Address, d.Reasons, full.Timers, err)
		h, _ := nd.Backend().History(t.Context(), api.HistoryRequest{Target: api.Target{Address: d.Start.Address}, After: -1})
		for _, e := range h.Events {
			fmt.Fprintf(&text, "  %d %s %s %s %v\n", e.Seq, e.Kind, e.Name, e.ID, e.Due)
		}
	}
	return text.String()
}
