package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// ledger counts the bodies that ran, and remembers their idempotency keys.
type ledger struct {
	mu   sync.Mutex
	ran  map[string]int
	keys map[string][]string
}

func (l *ledger) note(ctx context.Context, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ran == nil {
		l.ran, l.keys = map[string]int{}, map[string][]string{}
	}
	l.ran[name]++
	l.keys[name] = append(l.keys[name], perdure.IdempotencyKey(ctx))
}

func (l *ledger) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran[name]
}

func (l *ledger) key(name string, n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[name][n]
}

// purchase is the result of a workflow that reserves, charges, waits for the signal word, and
// ships. It has every value that must be equal on replay.
type purchase struct {
	Began    time.Time
	First    string // drawn before the first step
	Amount   int
	Word     string
	Second   string // drawn after the word
	Shipment string
}

type shopfloor struct {
	ledger
	broken atomic.Bool // shipping fails
	word   *perdure.Signal[string]
	order  *perdure.Workflow[int, purchase]
}

func newShopfloor() *shopfloor {
	f := &shopfloor{word: perdure.NewSignal[string]("word")}
	f.order = perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (p purchase, err error) {
		p.Began, p.First = ctx.Now(), ctx.UUID()
		if _, err = perdure.Do(ctx, "reserve", func(c context.Context) (string, error) {
			f.note(c, "reserve")
			return "reserved", nil
		}); err != nil {
			return p, err
		}

		if p.Amount, err = perdure.Do(ctx, "charge", func(c context.Context) (int, error) {
			f.note(c, "charge")
			return 100 * n, nil
		}); err != nil {
			return p, err
		}

		if p.Word, err = f.word.Receive(ctx); err != nil {
			return p, err
		}
		p.Second = ctx.UUID()

		p.Shipment, err = perdure.Do(ctx, "ship", func(c context.Context) (string, error) {
			f.note(c, "ship")
			if f.broken.Load() {
				return "", errors.New("the van is broken")
			}
			return "shipped", nil
		}, perdure.Constant(2, time.Millisecond))

		return p, err
	})

	return f
}

func (f *shopfloor) at(key string) perdure.Execution[purchase] {
	return f.order.Execution(perdure.RawKey(key))
}

// begin starts an order and returns when the order waits for the signal word.
func (f *shopfloor) begin(t *testing.T, app *perdure.App, key string) {
	t.Helper()
	if _, err := f.order.Start(caller(t, app), 1, perdure.RawKey(key)); err != nil {
		t.Fatal(err)
	}
	reason(t, app, f.at(key), "signal word")
}

// end sends the signal word and returns the result.
func (f *shopfloor) end(t *testing.T, app *perdure.App, key string) (purchase, error) {
	t.Helper()
	c := caller(t, app)
	if err := f.word.Send(c, f.at(key), "go "+key); err != nil {
		t.Fatal(err)
	}
	return f.at(key).Result(c)
}

// A fork starts with the past of its source. It repeats no step of the past, and in the past it has
// the same times and random numbers as the source. It continues independently. An edited result
// replaces the original one. The source does not change.
func TestFork(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		f := newShopfloor()
		app := s.open(f.order)
		f.begin(t, app, "a")
		if _, err := app.Executions().Fork(t.Context(), f.at("a"), perdure.RawKey("b"), perdure.SetResult("charge", 7)); err != nil {
			t.Fatal(err)
		}
		reason(t, app, f.at("b"), "signal word")
		a, err := f.end(t, app, "a")
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.end(t, app, "b")
		if err != nil {
			t.Fatal(err)
		}
		if f.count("reserve") != 1 || f.count("charge") != 1 || f.count("ship") != 2 {
			t.Errorf("ran %v", f.ran)
		}
		if a.Amount != 100 || b.Amount != 7 || b.Word != "go b" {
			t.Errorf("the source ended as %+v, the fork as %+v", a, b)
		}
		if !b.Began.Equal(a.Began) || b.First != a.First {
			t.Errorf("the past of the fork differs: %+v, %+v", a, b)
		}
		if b.Second == a.Second {
			t.Error("the fork draws what its source has drawn")
		}
		if f.key("ship", 0) == f.key("ship", 1) {
			t.Error("the fork shows the outside world the keys of its source")
		}

		// Fork a closed run before a step, and continue after the store was opened again.
		if _, err := app.Executions().Fork(t.Context(), f.at("a"), perdure.RawKey("c"), perdure.BeforeStep("charge")); err != nil {
			t.Fatal(err)
		}
		if s.kind != "memory" {
			app = s.reopen(app, f.order)
		}
		reason(t, app, f.at("c"), "signal word")
		if c, err := f.end(t, app, "c"); err != nil || c.Amount != 100 || c.First != a.First {
			t.Errorf("the fork of a closed run: %+v, %v", c, err)
		}
		if f.count("reserve") != 1 || f.count("charge") != 2 {
			t.Errorf("ran %v", f.ran)
		}
		// A fork after a signal keeps the signal, and its code receives it at the same position.
		if _, err := app.Executions().Fork(t.Context(), f.at("a"), perdure.RawKey("d"), perdure.BeforeStep("ship")); err != nil {
			t.Fatal(err)
		}
		if d, err := f.at("d").Result(caller(t, app)); err != nil || d.Word != "go a" {
			t.Errorf("the fork behind a signal: %+v, %v", d, err)
		}
	})
}

func TestForkRefusals(t *testing.T) {
	t.Parallel()
	f := newShopfloor()
	app := newSite(t, "memory").open(f.order)
	f.begin(t, app, "a")

	fork := func(from, key string, opts ...perdure.PastOption) error {
		_, err := app.Executions().Fork(t.Context(), f.at(from), perdure.RawKey(key), opts...)
		return err
	}

	wantError(t, "a key that is taken", fork("a", "a"), perdure.ErrConflict, "order/a")
	wantError(t, "a source that is not there", fork("x", "b"), perdure.ErrNotFound, "order/x")
	wantError(t, "a step that is not there", fork("a", "b", perdure.BeforeStep("fly")), perdure.ErrNotFound, "fly")
	wantError(t, "a position that is not there", fork("a", "b", perdure.AfterPosition(99)), perdure.ErrInvalid, "99")
	wantError(t, "two places", fork("a", "b", perdure.AfterPosition(1), perdure.BeforeStep("charge")), perdure.ErrInvalid)
	wantError(t, "an edit behind the cut", fork("a", "b", perdure.BeforeStep("charge"), perdure.SetResult("charge", 1)), perdure.ErrInvalid, "charge")
	wantError(t, "an edit of nothing", fork("a", "b", perdure.SetResult("ship", "x")), perdure.ErrNotFound, "ship")
	wantError(t, "a key that is empty", fork("a", ""), perdure.ErrInvalid, "key")
	if got := list(t, app, ""); len(got) != 1 {
		t.Errorf("there are %v", got)
	}

	// A repeated request forks once.
	for range 2 {
		if err := fork("a", "once", perdure.RequestID("r")); err != nil {
			t.Error(err)
		}
	}
}

// The size of a past is bounded, because the engine stores and reads it as a unit.
func TestForkOfTooMuch(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		large := perdure.NewWorkflow("large", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
			total := 0
			for name := range strings.FieldsSeq("a b c d e f g h i j k l") {
				got, err := perdure.Do(ctx, name, func(context.Context) (string, error) { return strings.Repeat("x", 3<<19), nil })
				if err != nil {
					return 0, err
				}
				total += len(got)
			}
			return total, nil
		})

		app := s.open(large)
		c := caller(t, app)
		got, err := large.Run(c, 1, perdure.RawKey("1"))
		equal(t, "the source", got, err, 12*3<<19)
		source := large.Execution(perdure.RawKey("1"))
		_, err = app.Executions().Fork(t.Context(), source, perdure.RawKey("2"))
		wantError(t, "a fork of 18 MiB", err, perdure.ErrExhausted, "16777216")
		if _, err = app.Executions().Fork(t.Context(), source, perdure.RawKey("2"), perdure.BeforeStep("k")); err != nil {
			t.Fatalf("a fork of 15 MiB: %v", err)
		}

		got, err = large.Execution(perdure.RawKey("2")).Result(c)
		equal(t, "the fork", got, err, 12*3<<19)
	})
}

// A fork starts the timers that were open at the cut again, with their original due times. Timers
// whose time is over fire immediately.
func TestForkOfASleeper(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		nap := perdure.NewWorkflow("nap", func(ctx perdure.WorkflowCtx, long time.Duration) (string, error) {
			if _, err := perdure.Do(ctx, "lie down", func(context.Context) (bool, error) { return true, nil }); err != nil {
				return "", err
			}
			return "slept", ctx.Sleep(long)
		})
		app := s.open(nap)
		c := caller(t, app)
		got, err := nap.Run(c, 10*time.Millisecond, perdure.RawKey("short"))
		equal(t, "the source", got, err, "slept")
		if _, err := app.Executions().Fork(t.Context(), nap.Execution(perdure.RawKey("short")), perdure.RawKey("again"), perdure.AfterPosition(1)); err != nil {
			t.Fatal(err)
		}
		got, err = nap.Execution(perdure.RawKey("again")).Result(c)
		equal(t, "the fork", got, err, "slept")
	})
}

// A retry continues before the step that failed, under the same key. The step uses the same
// idempotency key as before and has all its attempts again. The new run has the messages that
// arrived between the failure and the retry.
func TestRetry(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		f := newShopfloor()
		f.broken.Store(true)
		app := s.open(f.order)
		f.begin(t, app, "a")
		_, err := app.Executions().Retry(t.Context(), f.at("a"))
		wantError(t, "a retry of what is open", err, perdure.ErrConflict, "order/a", "running")
		if _, err := f.end(t, app, "a"); err == nil {
			t.Fatal("the order should fail")
		}

		failed, err := app.Executions().Describe(t.Context(), f.at("a"))
		if err != nil || f.count("ship") != 2 {
			t.Fatalf("%+v, %v, ran %v", failed, err, f.ran)
		}

		// While the van is still broken, the retry fails too.
		if _, err := app.Executions().Retry(t.Context(), f.at("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.at("a").Result(caller(t, app)); err == nil || f.count("ship") != 4 {
			t.Errorf("the first retry ended with %v, ran %v", err, f.ran)
		}
		if s.kind != "memory" {
			app = s.reopen(app, f.order)
		}
		f.broken.Store(false)
		if _, err := app.Executions().Retry(t.Context(), f.at("a")); err != nil {
			t.Fatal(err)
		}

		got, err := f.at("a").Result(caller(t, app))
		if err != nil || got.Shipment != "shipped" || got.Word != "go a" {
			t.Errorf("the retry ended as %+v, %v", got, err)
		}
		if f.count("reserve") != 1 || f.count("charge") != 1 || f.count("ship") != 5 {
			t.Errorf("ran %v", f.ran)
		}

		for n := range 5 {
			if f.key("ship", n) != f.key("ship", 0) {
				t.Errorf("attempt %d has another idempotency key", n)
			}
		}

		_, err = app.Executions().Retry(t.Context(), f.at("a"))
		wantError(t, "a retry of what has completed", err, perdure.ErrConflict, "completed")
		if got := list(t, app, ""); len(got) != 1 {
			t.Errorf("there are %v", got)
		}
		if _, err := f.order.Start(caller(t, app), 1, perdure.RawKey("a")); err != nil {
			t.Errorf("a repeated start: %v", err)
		}
		_, err = f.order.Start(caller(t, app), 2, perdure.RawKey("a"))
		wantError(t, "a start with another input", err, perdure.ErrConflict)
	})
}

// A retry of a run that ended without a failed step keeps the whole past, so that a corrected build
// continues from the end of the past. A retry withdraws a cancel request.
func TestRetryWithoutAFailedStep(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var steps atomic.Int64
		code := func(wrong bool) *perdure.Workflow[int, string] {
			return perdure.NewWorkflow("buggy", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
				got, err := perdure.Do(ctx, "work", func(context.Context) (string, error) {
					steps.Add(1)
					return "done", nil
				})
				if err == nil && wrong {
					err = errors.New("a bug")
				}
				return got, err
			})
		}

		bad, good := code(true), code(false)
		f := newShopfloor()
		app := s.open(bad, f.order)
		if _, err := bad.Run(caller(t, app), 1, perdure.RawKey("1")); err == nil {
			t.Fatal("should fail")
		}
		f.begin(t, app, "a")
		if err := f.at("a").Cancel(caller(t, app), "changed my mind"); err != nil {
			t.Fatal(err)
		}

		if _, err := f.at("a").Result(caller(t, app)); !errors.Is(err, perdure.ErrCanceled) {
			t.Fatalf("cancelled: %v", err)
		}

		app = s.reopen(app, good, f.order)
		for _, to := range []perdure.Target{good.Execution(perdure.RawKey("1")), f.at("a")} {
			if _, err := app.Executions().Retry(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		}

		got, err := good.Execution(perdure.RawKey("1")).Result(caller(t, app))
		equal(t, "the retry with a corrected build", got, err, "done")
		if steps.Load() != 1 {
			t.Errorf("the step ran %d times", steps.Load())
		}
		if p, err := f.end(t, app, "a"); err != nil || p.Shipment != "shipped" || f.count("charge") != 1 {
			t.Errorf("the retry of what was cancelled: %+v, %v, ran %v", p, err, f.ran)
		}
	})
}

// Children of a retried run: a completed child does not run again. A child that failed or was
// cancelled with its parent runs again.
func TestRetryWithChildren(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var broken atomic.Bool
		broken.Store(true)
		var ran ledger
		hurry := perdure.NewSignal[bool]("hurry")

		child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, name string) (string, error) {
			if name == "slow" {
				if _, err := hurry.Receive(ctx); err != nil {
					return "", err
				}
			}
			return perdure.Do(ctx, "work", func(c context.Context) (string, error) {
				ran.note(c, name)
				if name == "weak" && broken.Load() {
					return "", perdure.Permanent(errors.New("too weak"))
				}
				return name, nil
			})
		})

		parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			strong, err := child.Run(ctx, "strong")
			if err != nil {
				return "", err
			}
			slow, err := child.Start(ctx, "slow", perdure.RawKey("slow"))
			if err != nil {
				return "", err
			}
			weak, err := child.Run(ctx, "weak")
			if err != nil {
				return "", err
			}
			last, err := slow.Result(ctx)
			return strong + weak + last, err
		})

		app := s.open(parent, child)
		c := caller(t, app)
		if _, err := parent.Run(c, 1, perdure.RawKey("1")); err == nil {
			t.Fatal("should fail")
		}
		slow := child.Execution(perdure.RawKey("slow"))

		eventually(t, "the slow child is cancelled", func() bool {
			info, err := app.Executions().Describe(t.Context(), slow)
			return err == nil && info.Status == perdure.Canceled
		})

		broken.Store(false)
		if _, err := app.Executions().Retry(t.Context(), parent.Execution(perdure.RawKey("1"))); err != nil {
			t.Fatal(err)
		}
		reason(t, app, slow, "signal hurry")
		if err := hurry.Send(c, slow, true); err != nil {
			t.Fatal(err)
		}

		got, err := parent.Execution(perdure.RawKey("1")).Result(c)
		equal(t, "the retried parent", got, err, "strongweakslow")
		if ran.count("strong") != 1 || ran.count("weak") != 2 || ran.count("slow") != 1 {
			t.Errorf("ran %v", ran.ran)
		}
	})
}

// A fork waits for the children that its source has started, and does not start them again.
func TestForkWithAnOpenChild(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var started atomic.Int64
		word := perdure.NewSignal[string]("word")
		child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			if _, err := perdure.Do(ctx, "count", func(context.Context) (int64, error) { return started.Add(1), nil }); err != nil {
				return "", err
			}
			return word.Receive(ctx)
		})

		parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			e, err := child.Start(ctx, 1)
			if err != nil {
				return "", err
			}
			where, err := perdure.Do(ctx, "note", func(context.Context) (string, error) { return e.Ref.Key, nil })
			if err != nil {
				return "", err
			}
			said, err := e.Result(ctx)
			return where + " " + said, err
		})

		app := s.open(parent, child)
		c := caller(t, app)
		if _, err := parent.Start(c, 1, perdure.RawKey("1")); err != nil {
			t.Fatal(err)
		}
		reason(t, app, parent.Execution(perdure.RawKey("1")), "child")
		if _, err := app.Executions().Fork(t.Context(), parent.Execution(perdure.RawKey("1")), perdure.RawKey("2")); err != nil {
			t.Fatal(err)
		}

		reason(t, app, parent.Execution(perdure.RawKey("2")), "child")
		children := list(t, app, `workflow = "child"`)
		if len(children) != 1 {
			t.Fatalf("children %v", children)
		}
		ref, err := perdure.ParseRef(children[0])
		if err != nil {
			t.Fatal(err)
		}

		if err := word.Send(c, ref, "hello"); err != nil {
			t.Fatal(err)
		}

		for _, key := range []string{"1", "2"} {
			got, err := parent.Execution(perdure.RawKey(key)).Result(c)
			equal(t, "parent "+key, got, err, ref.Key+" hello")
		}

		if started.Load() != 1 {
			t.Errorf("%d children began", started.Load())
		}
	})
}

// A deleted run cannot be found, and a start with its key starts a new run. Open runs cannot be
// deleted.
func TestDelete(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		f := newShopfloor()
		app := s.open(f.order)
		f.begin(t, app, "a")
		wantError(t, "a delete of what is open", app.Executions().Delete(t.Context(), f.at("a")), perdure.ErrConflict, "order/a")
		wantError(t, "a delete of what is not there", app.Executions().Delete(t.Context(), f.at("x")), perdure.ErrNotFound, "order/x")
		// After this reset, the execution has two runs.
		if _, err := app.Executions().Reset(t.Context(), f.at("a"), perdure.AfterPosition(0)); err != nil {
			t.Fatal(err)
		}

		reason(t, app, f.at("a"), "signal word")
		if _, err := f.end(t, app, "a"); err != nil {
			t.Fatal(err)
		}
		if err := app.Executions().Delete(t.Context(), f.at("a")); err != nil {
			t.Fatal(err)
		}

		_, err := app.Executions().Describe(t.Context(), f.at("a"))
		wantError(t, "describe", err, perdure.ErrNotFound)
		wantError(t, "a signal", f.word.Send(caller(t, app), f.at("a"), "x"), perdure.ErrNotFound)

		if s.kind != "memory" {
			app = s.reopen(app, f.order)
			if rows := s.contents()["executions"]; rows != "0" {
				t.Errorf("%s runs are left", rows)
			}
		}

		f.begin(t, app, "a")
		if p, err := f.end(t, app, "a"); err != nil || p.Shipment != "shipped" || f.count("reserve") != 3 {
			t.Errorf("started afresh: %+v, %v, ran %v", p, err, f.ran)
		}
	})
}

// An exported history fits the code and is equal to the recorded history. Where it is imported, the
// execution continues.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		f := newShopfloor()
		home := newSite(t, "memory").open(f.order)
		f.begin(t, home, "open")
		f.begin(t, home, "closed")
		want, err := f.end(t, home, "closed")
		if err != nil {
			t.Fatal(err)
		}

		files := map[string][]byte{}
		for _, key := range []string{"open", "closed"} {
			var b bytes.Buffer
			if err := home.Histories().Export(t.Context(), f.at(key), &b); err != nil {
				t.Fatal(err)
			}
			files[key] = b.Bytes()
			if err := perdure.Replay(t.Context(), bytes.NewReader(b.Bytes()), f.order); err != nil {
				t.Errorf("replay of %s: %v", key, err)
			}
		}

		away := s.open(f.order)
		for _, key := range []string{"open", "closed"} {
			if _, err := away.Histories().Import(t.Context(), bytes.NewReader(files[key])); err != nil {
				t.Fatal(err)
			}
			_, err := away.Histories().Import(t.Context(), bytes.NewReader(files[key]))
			wantError(t, "a second import", err, perdure.ErrConflict, "order/"+key)
		}

		if s.kind != "memory" {
			away = s.reopen(away, f.order)
		}
		got, err := f.at("closed").Result(caller(t, away))
		if err != nil || got != want {
			t.Errorf("the closed one: %+v, %v; want %+v", got, err, want)
		}
		reason(t, away, f.at("open"), "signal word")
		here, err := f.end(t, away, "open")
		if err != nil || here.Amount != 100 || f.count("charge") != 2 {
			t.Errorf("the open one: %+v, %v, ran %v", here, err, f.ran)
		}
		there, err := f.end(t, home, "open")
		if err != nil || here != there {
			t.Errorf("it ended as %+v here and %+v there, %v", here, there, err)
		}

		for _, key := range []string{"closed", "open"} {
			var b bytes.Buffer
			if err := away.Histories().Export(t.Context(), f.at(key), &b); err != nil {
				t.Fatal(err)
			}
			if err := perdure.Replay(t.Context(), bytes.NewReader(b.Bytes()), f.order); err != nil {
				t.Errorf("replay of the imported %s: %v", key, err)
			}
		}

		if _, err := away.Histories().Import(t.Context(), bytes.NewReader(files["closed"]), perdure.RawKey("copy")); err != nil {
			t.Error(err)
		}
		_, err = away.Histories().Import(t.Context(), strings.NewReader("nonsense"))
		wantError(t, "an import of nonsense", err, perdure.ErrInvalid, "line 1")
	})
}

// A caller may ask a node that does not own the execution. The request goes to the owner, also for
// past runs.
func TestHistoriesFromAnotherNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	f := newShopfloor()
	f.broken.Store(true)
	one := s.open(f.order)
	two := s.open(f.order)
	const n = 6

	keys := strings.Fields("a b c d e f")[:n]
	for _, key := range keys {
		f.begin(t, one, key)
		if _, err := f.end(t, one, key); err == nil {
			t.Fatal("it should fail")
		}
	}

	f.broken.Store(false)
	var exported bytes.Buffer
	for _, key := range keys { // each node owns some of them
		if _, err := two.Executions().Retry(t.Context(), f.at(key), perdure.RequestID("retry "+key)); err != nil {
			t.Fatal(err)
		}
		if p, err := f.at(key).Result(caller(t, two)); err != nil || p.Shipment != "shipped" {
			t.Errorf("the retry of %s: %+v, %v", key, p, err)
		}
		if _, err := two.Executions().Fork(t.Context(), f.at(key), perdure.RawKey(key+"-fork"), perdure.BeforeStep("charge")); err != nil {
			t.Fatal(err)
		}

		reason(t, one, f.at(key+"-fork"), "signal word")
		if _, err := two.Executions().Reset(t.Context(), f.at(key+"-fork"), perdure.AfterPosition(0)); err != nil {
			t.Fatal(err)
		}
		if p, err := f.end(t, one, key+"-fork"); err != nil || p.Shipment != "shipped" {
			t.Errorf("the fork of %s: %+v, %v", key, p, err)
		}
		exported.Reset()
		if err := two.Histories().Export(t.Context(), f.at(key), &exported); err != nil {
			t.Fatal(err)
		}

		for _, k := range []string{key, key + "-fork"} {
			if err := two.Executions().Delete(t.Context(), f.at(k)); err != nil {
				t.Fatal(err)
			}
		}

		if _, err := two.Histories().Import(t.Context(), &exported); err != nil {
			t.Fatal(err)
		}
		if p, err := f.at(key).Result(caller(t, one)); err != nil || p.Shipment != "shipped" {
			t.Errorf("the import of %s: %+v, %v", key, p, err)
		}
	}

	if got := list(t, one, ""); len(got) != n {
		t.Errorf("there are %v", got)
	}
}
