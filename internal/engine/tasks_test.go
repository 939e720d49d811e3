package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// hand is a task worker that calls do for each claim, on its own goroutine.
type hand struct {
	session *engine.TaskSession
	do      func(c model.Claim) *model.TaskReport // if it returns nil, there is no report

	mu      sync.Mutex
	claims  []model.Claim
	stopped []model.ClaimRef
	settled map[model.ClaimRef]error
	news    *sync.Cond
}

func newHand(e *engine.Engine, slots int, do func(c model.Claim) *model.TaskReport) *hand {
	h := &hand{do: do, settled: map[model.ClaimRef]error{}}
	h.news = sync.NewCond(&h.mu)
	h.mu.Lock() // waiting tasks may be handed over before JoinTasks has returned
	defer h.mu.Unlock()
	h.session = e.JoinTasks(h, model.TaskOffer{
		Name: fmt.Sprintf("hand-%p", h), Tenants: []string{model.DefaultTenant}, Queues: []string{"default"}, Kinds: []string{"work"}, Slots: slots,
	})
	return h
}

func (h *hand) Execute(claims []model.Claim) {
	h.mu.Lock()
	h.claims = append(h.claims, claims...)
	h.news.Broadcast()
	h.mu.Unlock()
	for _, c := range claims {
		go func() {
			if r := h.do(c); r != nil {
				r.Ref = c.Ref
				_ = h.session.Report(context.Background(), *r)
			}
		}()
	}
}

func (h *hand) Stop(ref model.ClaimRef, _ model.StopReason) {
	h.mu.Lock()
	h.stopped = append(h.stopped, ref)
	h.news.Broadcast()
	h.mu.Unlock()
}

func (h *hand) Settle(ref model.ClaimRef, err error) {
	h.mu.Lock()
	h.settled[ref] = err
	h.news.Broadcast()
	h.mu.Unlock()
}

// until waits for a condition.
func (h *hand) until(cond func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !cond() {
		h.news.Wait()
	}
}

func submit(key string, spec model.TaskSpec) *model.Message {
	spec.Kind, spec.Queue = "work", "default"
	return &model.Message{
		Kind: model.MessageStart, To: model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "work", Key: key},
		Input: model.Payload{Data: []byte(`"` + key + `"`)}, Task: &spec,
	}
}

func failureOf(text string) *model.TaskReport {
	return &model.TaskReport{Failure: &model.Failure{Type: "*errors.errorString", Message: text}}
}

func TestTaskAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e, stop := open(t, st)
		defer stop()
		ctx := t.Context()
		// No worker is here, so the task waits.
		if _, err := e.Send(ctx, submit("early", model.TaskSpec{})); err != nil {
			t.Fatal(err)
		}

		h := newHand(e, 2, func(c model.Claim) *model.TaskReport {
			switch {
			case string(c.Input.Data) == `"flaky"` && c.Attempt < 3:
				return failureOf(fmt.Sprint("attempt ", c.Attempt))
			case string(c.Input.Data) == `"hopeless"`:
				return failureOf("never")
			}
			return &model.TaskReport{Output: c.Input}
		})

		for key, want := range map[string]model.Status{"early": model.Completed, "at once": model.Completed, "flaky": model.Completed, "hopeless": model.Failed} {
			m := submit(key, model.TaskSpec{Retry: model.Retry{MaxAttempts: 3, Initial: time.Second}})
			if key == "early" {
				m = submit(key, model.TaskSpec{})
			}
			r, err := e.ExecuteToEnd(ctx, m)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			if r.Outcome.Status != want || (want == model.Completed && string(r.Outcome.Output.Data) != `"`+key+`"`) {
				t.Errorf("%s ended as %s with %s", key, r.Outcome.Status, r.Outcome.Output.Data)
			}
		}

		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.claims); n != 1+1+3+3 {
			t.Errorf("%d claims, want 8", n)
		}
	})
}

func TestTaskTimesOutAndLateReportIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, stop := open(t, memory.New(memory.Options{}))
		defer stop()
		h := newHand(e, 2, func(c model.Claim) *model.TaskReport {
			if c.Attempt == 1 {
				return nil
			}
			return &model.TaskReport{Output: c.Input}
		})

		began := time.Now()
		r, err := e.ExecuteToEnd(t.Context(), submit("slow", model.TaskSpec{ToClose: time.Minute}))
		if err != nil || r.Outcome.Status != model.Completed {
			t.Fatalf("%+v, %v", r, err)
		}
		if took := time.Since(began); took < 61*time.Second || took > 62*time.Second {
			t.Errorf("it took %s", took)
		}
		late := h.claims[0].Ref
		if err := h.session.Report(t.Context(), model.TaskReport{Ref: late, Output: model.Payload{Data: []byte("1")}}); err != nil {
			t.Fatal(err)
		}

		h.until(func() bool { _, ok := h.settled[late]; return ok })
		if err := h.settled[late]; !fault.Is(err, fault.NotOwned) {
			t.Errorf("a late report: %v, want not owned", err)
		}
		if len(h.stopped) != 1 || h.stopped[0] != late {
			t.Errorf("stopped: %v, want %v", h.stopped, late)
		}
	})
}

func TestTaskCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, stop := open(t, memory.New(memory.Options{}))
		defer stop()
		m := submit("waits", model.TaskSpec{})
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		cancel := func(m *model.Message) error {
			_, err := e.Send(t.Context(), &model.Message{Kind: model.MessageCancel, To: m.To, Failure: &model.Failure{Message: "enough"}})
			return err
		}
		if err := cancel(m); err != nil {
			t.Fatal(err)
		}

		if r, err := e.Await(t.Context(), m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Canceled {
			t.Errorf("%+v, %v", r, err)
		}
		told := make(chan struct{})
		h := newHand(e, 2, func(model.Claim) *model.TaskReport { <-told; return failureOf("stopped") })
		m = submit("runs", model.TaskSpec{})
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		h.until(func() bool { return len(h.claims) == 1 })
		if err := cancel(m); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.stopped) == 1 })
		close(told)
		if r, err := e.Await(t.Context(), m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Canceled {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A worker that leaves gives back its claims, which uses up no attempt.
func TestTaskReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, stop := open(t, memory.New(memory.Options{}))
		defer stop()
		h := newHand(e, 1, func(model.Claim) *model.TaskReport { return nil })
		m := submit("a", model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}})
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		h.until(func() bool { return len(h.claims) == 1 })
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.session.Leave(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("leave: %v", err)
		}
		other := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		if r, err := e.Await(t.Context(), m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Completed {
			t.Errorf("%+v, %v", r, err)
		}
		if a := other.claims[0].Attempt; a != 1 {
			t.Errorf("attempt %d, want the first one again", a)
		}
	})
}

func BenchmarkTasks(b *testing.B) {
	for name, openStore := range stores {
		b.Run(name, func(b *testing.B) {
			st := openStore(b)
			defer st.Close()
			e, stop := open(b, st)
			defer stop()
			h := newHand(e, 64, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
			_ = h
			const clients = 256
			var wg sync.WaitGroup
			b.ResetTimer()
			began := cpu()

			for c := range clients {
				wg.Go(func() {
					for i := c; i < b.N; i += clients {
						if _, err := e.ExecuteToEnd(b.Context(), submit(fmt.Sprint(b.N, "-", i), model.TaskSpec{})); err != nil {
							b.Error(err)
						}
					}
				})
			}

			wg.Wait()
			b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// A worker vanished with its node, so its attempt is lost. Another attempt starts immediately.
func TestTaskOfAWorkerThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e, stop := open(t, st)
		h := newHand(e, 1, func(model.Claim) *model.TaskReport { return nil })
		m := submit("a", model.TaskSpec{Retry: model.Retry{MaxAttempts: 2, Initial: time.Hour, Max: time.Hour}})
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		h.until(func() bool { return len(h.claims) == 1 })
		stop() // without a message of the worker
		e, stop = open(t, st)
		defer stop()
		began := time.Now()
		other := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		if r, err := e.Await(t.Context(), m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Completed {
			t.Errorf("%+v, %v", r, err)
		}
		if took := time.Since(began); other.claims[0].Attempt != 2 || took > time.Second {
			t.Errorf("attempt %d after %s", other.claims[0].Attempt, took)
		}
	})
}

// A workflow schedules a task and continues with its outcome. It gets the outcome once, whatever
// happens to the worker.
func TestTaskOfAWorkflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, stop := open(t, memory.New(memory.Options{}))
		defer stop()
		w := &scheduler{eng: e}
		w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})

		newHand(e, 1, func(c model.Claim) *model.TaskReport {
			if c.Attempt == 1 {
				return failureOf("once")
			}
			return &model.TaskReport{Output: c.Input}
		})

		for _, key := range []string{"a", "b"} {
			r, err := e.ExecuteToEnd(t.Context(), start(key))
			if err != nil || r.Outcome.Status != model.Completed || string(r.Outcome.Output.Data) != `"task"` {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// scheduler is a worker whose workflows schedule one task and end with its outcome.
type scheduler struct {
	eng     *engine.Engine
	session *engine.Session
}

func (w *scheduler) Activate(a *model.Activation) {
	if len(a.Events) == 0 {
		go func() {
			_ = w.session.Report(context.Background(), model.Turn{Run: a.Start.Run, Generation: a.Generation, Commands: []model.Command{{
				Kind: model.CommandSchedule, Event: model.Event{
					ID: "step", Name: "work", Input: model.Payload{Data: []byte(`"task"`)}, Task: &model.TaskSpec{Kind: "work", Queue: "default"},
				},
			}}, Waits: []model.Reason{{Code: model.WaitTask, Name: "work", Detail: "default"}}})
		}()
		return
	}
	w.Deliver(a.Start.Run, a.Generation, a.Events)
}

func (w *scheduler) Deliver(run model.RunID, gen uint64, events []model.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == model.EventStepCompleted {
			go func() {
				_ = w.session.Report(context.Background(), model.Turn{
					Run: run, Generation: gen, Seen: e.Seq, Close: &model.Close{Status: model.Completed, Output: e.Output},
				})
			}()
		}
	}
}
func (*scheduler) Retry(model.RunID, uint64, string)                      {}
func (*scheduler) Evict(model.RunID, uint64, string)                      {}
func (*scheduler) Query(model.RunID, uint64, model.Query)                 {}
func (*scheduler) Recall(model.Address, model.RunID, uint64, model.Query) {}
func (*scheduler) Taken(model.RunID, uint64)                              {}

// slow is a store whose commits take a second.
type slow struct{ store.Store }

func (s slow) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	time.Sleep(time.Second)
	return s.Store.Commit(ctx, b)
}

// A worker leaves while the claim that names it is being committed. No worker gets the claim, so
// the engine gives it back immediately, which uses up no attempt.
func TestLeaveWhileClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, stop := open(t, slow{memory.New(memory.Options{})})
		defer stop()
		first := newHand(e, 1, func(model.Claim) *model.TaskReport { return nil })
		began := make(chan error, 1)

		go func() {
			_, err := e.Send(t.Context(), submit("t", model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}}))
			began <- err
		}()

		synctest.Wait() // the commit is in flight
		if err := first.session.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-began; err != nil {
			t.Fatal(err)
		}

		at := time.Now()
		second := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		second.until(func() bool { return len(second.claims) == 1 })
		if c := second.claims[0]; c.Attempt != 1 || time.Since(at) > 5*time.Second {
			t.Errorf("attempt %d after %s", c.Attempt, time.Since(at))
		}
		if len(first.claims) != 0 {
			t.Errorf("a worker that left gets %+v", first.claims)
		}
	})
}

// A report that cannot be committed while its worker leaves is not lost.
func TestLeaveBeforeSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &shut{deaf{Store: memory.New(memory.Options{})}}
		e, stop := open(t, st)
		defer stop()
		first := newHand(e, 1, func(model.Claim) *model.TaskReport { return nil })
		if _, err := e.Send(t.Context(), submit("t", model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}})); err != nil {
			t.Fatal(err)
		}

		first.until(func() bool { return len(first.claims) == 1 })
		st.deaf.deaf.Store(true)
		time.Sleep(time.Minute) // the lease is lost, and no node can register
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := first.session.Leave(brief); !fault.Is(err, fault.Timeout) {
			t.Fatalf("leave = %v", err)
		}

		st.deaf.deaf.Store(false)
		second := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		second.until(func() bool { return len(second.claims) == 1 })
		if c := second.claims[0]; c.Attempt != 1 {
			t.Errorf("attempt %d", c.Attempt)
		}
	})
}

// A change of the slots of a worker that has left does not bring the worker back. Otherwise it
// would get claims and give them back, again and again.
func TestSlotsAfterLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e, stop := open(t, st)
		defer stop()
		h := newHand(e, 1, func(model.Claim) *model.TaskReport { return nil })
		if err := h.session.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}

		h.session.Slots(3)
		m := submit("t", model.TaskSpec{})
		a, err := e.Send(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		events, err := st.LoadEvents(t.Context(), store.RunKey{Shard: m.To.Shard(st.Info().Shards), Run: a.Run}, 0, 10, 1<<20)
		if err != nil || len(events) > 0 {
			t.Errorf("%d events of a task that no worker can execute, %v", len(events), err)
		}
	})
}

// A report whose worker no longer waits arrives when a node can take it, and the task does not run
// again.
func TestReportThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &shut{deaf{Store: memory.New(memory.Options{})}}
		e, stop := open(t, st)
		defer stop()
		h := newHand(e, 1, func(model.Claim) *model.TaskReport { return nil })
		m := submit("t", model.TaskSpec{})
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		h.until(func() bool { return len(h.claims) == 1 })
		st.deaf.deaf.Store(true)
		time.Sleep(time.Minute) // the lease is lost, and no node can register
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.session.Report(brief, model.TaskReport{Ref: h.claims[0].Ref, Output: model.Payload{Data: []byte("1")}}); err != nil {
			t.Errorf("report = %v", err)
		}
		st.deaf.deaf.Store(false)
		if err := h.session.Leave(t.Context()); err != nil {
			t.Errorf("leave = %v", err)
		}
		r, err := e.Await(t.Context(), m.To, model.RunID{})
		if err != nil || r.Outcome.Status != model.Completed || len(h.claims) != 1 || h.settled[h.claims[0].Ref] != nil {
			t.Errorf("%s after %d claims, settled %v, %v", r.Outcome.Status, len(h.claims), h.settled, err)
		}
	})
}

// closing is a store that refuses to end runs while it is sick.
type closing struct {
	store.Store
	sick atomic.Bool
}

func (c *closing) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	if c.sick.Load() && len(b.Closes) > 0 {
		return store.Committed{}, store.Errorf(store.Refused, "commit", "sick")
	}
	return c.Store.Commit(ctx, b)
}

// The lane has no room for a report of a quarantined run. The report is not lost: the session
// repeats it until the quarantine is over.
func TestReportLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &closing{Store: memory.New(memory.Options{})}
		e, stop := serve(t, engine.Config{Store: st, Lane: lane.Config{MaxKeptBytes: 1}})
		defer stop()
		st.sick.Store(true)
		h := newHand(e, 4, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })

		addresses := make([]model.Address, 4)
		for i := range addresses {
			m := submit(fmt.Sprint("t", i), model.TaskSpec{})
			if _, err := e.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			addresses[i] = m.To
		}

		time.Sleep(10 * time.Minute) // of virtual time: the quarantine ends and begins again
		h.mu.Lock()
		if len(h.settled) != 0 || len(h.claims) != len(addresses) {
			t.Errorf("settled while it cannot be: %v, of %d claims", h.settled, len(h.claims))
		}
		h.mu.Unlock()
		st.sick.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()

		for _, a := range addresses {
			if res, err := e.Await(ctx, a, model.RunID{}); err != nil || res.Outcome.Status != model.Completed {
				t.Errorf("%s: %+v, %v", a, res, err)
			}
		}

		synctest.Wait()
		if len(h.settled) != len(addresses) {
			t.Errorf("%d reports are settled, want %d", len(h.settled), len(addresses))
		}

		for ref, err := range h.settled {
			if err != nil {
				t.Errorf("%s: %v", ref, err)
			}
		}
	})
}
