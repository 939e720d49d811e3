package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// hand is a task worker that the test controls: the test claims, reports and sends heartbeats
// itself, so that it can do things that no worker of the SDK does.
type hand struct {
	t       *testing.T
	session api.TaskSession

	mu      sync.Mutex
	claims  []model.Claim
	stopped map[model.ClaimRef][]model.StopReason
	settled map[model.ClaimRef][]error
}

func (h *hand) Execute(claims []model.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims = append(h.claims, claims...)
}

func (h *hand) Stop(ref model.ClaimRef, why model.StopReason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped[ref] = append(h.stopped[ref], why)
}

func (h *hand) Settle(ref model.ClaimRef, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled[ref] = append(h.settled[ref], err)
}

// office is a node whose tasks the test executes.
type office struct {
	t *testing.T
	s *site
	n *node.Node
	b api.Backend
}

func newOffice(t *testing.T, s *site) *office {
	t.Helper()
	o := &office{t: t, s: s}
	o.open()
	t.Cleanup(o.close)
	return o
}

func (o *office) open() {
	o.t.Helper()
	n, err := node.Open(o.t.Context(), node.Config{URL: o.s.url, AllowUnsafe: true})
	if err != nil {
		o.t.Fatal(err)
	}
	o.n, o.b = n, n.Backend()
}

func (o *office) close() {
	if err := o.n.Close(); err != nil {
		o.t.Error(err)
	}
}

// join adds a worker. It leaves at the end of the test.
func (o *office) join(name string, slots int, queues ...string) *hand {
	o.t.Helper()
	h := &hand{t: o.t, stopped: map[model.ClaimRef][]model.StopReason{}, settled: map[model.ClaimRef][]error{}}
	h.mu.Lock() // the engine may hand over a claim before Join returns
	defer h.mu.Unlock()
	session, err := o.b.JoinTasks(o.t.Context(), h, model.TaskOffer{Name: name, Tenants: []string{model.DefaultTenant}, Queues: queues, Kinds: []string{"work"}, Slots: slots})
	if err != nil {
		o.t.Fatal(err)
	}
	h.session = session
	return h
}

func taskAt(key string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "work", Key: key}
}

// submit submits a task on queue q.
func (o *office) submit(key string, change ...func(*model.TaskSpec)) model.RunID {
	o.t.Helper()
	r := api.StartRequest{Address: taskAt(key), Input: model.Payload{Data: []byte("1")}, Task: &model.TaskSpec{Kind: "work", Queue: "q"}}
	for _, f := range change {
		f(r.Task)
	}
	reply, err := o.b.Start(o.t.Context(), r)
	if err != nil {
		o.t.Fatal(err)
	}
	return reply.Run
}

// take waits until the worker has n claims, and returns them.
func (h *hand) take(n int) []model.Claim {
	h.t.Helper()
	var got []model.Claim
	eventually(h.t, fmt.Sprint(n, " claims"), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		got = slices.Clone(h.claims)
		return len(got) >= n
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.claims) != n {
		h.t.Fatalf("%d claims, want %d", len(h.claims), n)
	}
	h.claims = nil
	return got
}

// report sends a report and waits for the reply.
func (h *hand) report(r model.TaskReport) (err error) {
	h.t.Helper()
	h.mu.Lock()
	before := len(h.settled[r.Ref])
	h.mu.Unlock()
	if err := h.session.Report(h.t.Context(), r); err != nil {
		h.t.Fatal(err)
	}

	eventually(h.t, "a settled report", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.settled[r.Ref]); n > before {
			err = h.settled[r.Ref][n-1]
			return true
		}
		return false
	})

	return err
}

func (h *hand) awaitStop(ref model.ClaimRef, want model.StopReason) {
	h.t.Helper()
	eventually(h.t, "the worker gets the request to stop", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Contains(h.stopped[ref], want)
	})
}

func (o *office) history(key string) []model.Event {
	o.t.Helper()
	p, err := o.b.History(o.t.Context(), api.HistoryRequest{Target: api.Target{Address: taskAt(key)}, After: -1})
	if err != nil {
		o.t.Fatal(err)
	}
	return p.Events
}

func (o *office) awaitEnd(key string, want model.Status) model.Outcome {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	r, err := o.b.Await(ctx, api.Target{Address: taskAt(key)})
	if err != nil || r.Outcome.Status != want {
		o.t.Fatalf("%s ends as %s (%v), %v, want %s", key, r.Outcome.Status, r.Outcome.Failure, err, want)
	}
	return r.Outcome
}

// dead returns the dead tasks of an address.
func (o *office) dead(key string) (dead []api.DeadTask) {
	o.t.Helper()
	p, err := o.b.ListDead(o.t.Context(), api.DeadRequest{Tenant: model.DefaultTenant})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, d := range p.Tasks {
		if d.Ref().Address == taskAt(key) {
			dead = append(dead, d)
		}
	}
	return dead
}

func wantNotOwned(t *testing.T, what string, err error) {
	t.Helper()
	if !fault.Is(err, fault.NotOwned) {
		t.Errorf("%s: %v, want that the claim is no longer held", what, err)
	}
}

var failed = &model.Failure{Type: "oops", Message: "no luck"}

// Only the current claim can report an outcome. Repeating a report has no effect and gets the same
// reply. Attempts have the order, the times and the number that the policy says (E16–E19, E23, E24,
// E37). This holds on every store, and after the store has been opened again.
func TestClaimsByHand(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		o := newOffice(t, s)
		h := o.join("h", 1, "q")
		pauses := model.Retry{MaxAttempts: 3, Initial: 20 * time.Millisecond, Coefficient: 3000, Max: 40 * time.Millisecond}
		o.submit("a", func(s *model.TaskSpec) { s.Retry = pauses })

		var before []model.Claim
		for attempt := 1; attempt <= 3; attempt++ {
			c := h.take(1)[0]
			if c.Attempt != attempt || len(before) > 0 && c.Ref.Claim <= before[len(before)-1].Ref.Claim {
				t.Errorf("attempt %d has claim %d, want attempt %d and one that is behind the others", c.Attempt, c.Ref.Claim, attempt)
			}

			for _, old := range before {
				if err := h.report(model.TaskReport{Ref: old.Ref, Failure: failed}); err != nil {
					t.Errorf("the report of attempt %d, repeated during attempt %d: %v", old.Attempt, attempt, err)
				}
			}

			never := c.Ref
			never.Claim += 50
			wantNotOwned(t, "a claim that never was", h.report(model.TaskReport{Ref: never}))
			before = append(before, c)
			if err := h.report(model.TaskReport{Ref: c.Ref, Failure: failed}); err != nil {
				t.Error(err)
			}
		}

		if f := o.awaitEnd("a", model.Failed).Failure; f == nil || f.Message != failed.Message {
			t.Errorf("it fails with %v", f)
		}

		var got []time.Duration
		for _, e := range o.history("a") {
			if e.Kind == model.EventAttemptFailed {
				got = append(got, e.Due.Sub(e.At))
			}
		}

		if want := []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("pauses %v, want %v", got, want)
		}
		if d := o.dead("a"); len(d) != 1 || d[0].Body.Attempts != 3 {
			t.Errorf("dead tasks %+v", d)
		}

		// The run has ended and has left memory. After the first check the store is opened again.
		again := func(what string, c model.Claim) {
			t.Helper()
			rows := s.contents()
			if err := h.report(model.TaskReport{Ref: c.Ref, Failure: failed}); err != nil {
				t.Errorf("%s: the report of attempt %d, repeated: %v", what, c.Attempt, err)
			}
			s.checkUnchanged(rows)
		}

		again("after the end", before[0])
		again("after the end", before[2])
		if s.kind != "memory" {
			o.close()
			o.open()
			h = o.join("h2", 1, "q")
			again("opened again", before[0])
			again("opened again", before[2])
		}

		// The engine does not retry a permanent error, or an error whose type is in the list of the
		// policy.
		for key, f := range map[string]*model.Failure{"permanent": {Permanent: true, Message: "no"}, "listed": {Type: "final", Message: "no"}} {
			o.submit(key, func(s *model.TaskSpec) { s.Retry = model.Retry{Final: []string{"final"}} })
			if err := h.report(model.TaskReport{Ref: h.take(1)[0].Ref, Failure: f}); err != nil {
				t.Error(err)
			}
			o.awaitEnd(key, model.Failed)
			if d := o.dead(key); len(d) != 1 || d[0].Body.Attempts != 1 {
				t.Errorf("%s: dead tasks %+v", key, d)
			}
		}
	})
}

// The test covers deadlines and cancellations, and what workers learn about them, on every store
// (E17, E25, E30, E31).
func TestDeadlinesByHand(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		o := newOffice(t, s)
		// No worker comes in time, and a late worker gets nothing.
		o.submit("late", func(s *model.TaskSpec) { s.ToStart = 50 * time.Millisecond })
		if f := o.awaitEnd("late", model.Failed).Failure; f.Type != model.TimeoutToStart {
			t.Errorf("it fails with %+v", f)
		}
		if d := o.dead("late"); len(d) != 1 || d[0].Body.Attempts != 0 {
			t.Errorf("dead tasks %+v", d)
		}
		o.submit("gone") // no worker executes it
		if err := o.b.Cancel(t.Context(), api.CancelRequest{Target: api.Target{Address: taskAt("gone")}}); err != nil {
			t.Fatal(err)
		}
		o.awaitEnd("gone", model.Canceled)
		h := o.join("h", 2, "q")

		// An attempt takes too long. The engine ignores its result and uses the result of the next
		// attempt.
		o.submit("slow", func(s *model.TaskSpec) {
			s.ToClose, s.Retry = 500*time.Millisecond, model.Retry{Initial: time.Millisecond}
		})
		c := h.take(1)[0]
		h.awaitStop(c.Ref, model.StopLost)
		for range 20 { // on a busy machine the next attempt may take too long as well
			next := h.take(1)[0]
			wantNotOwned(t, "the result of an attempt that took too long", h.report(model.TaskReport{Ref: c.Ref, Output: model.Payload{Data: []byte(`"late"`)}}))
			err := h.report(model.TaskReport{Ref: next.Ref, Output: model.Payload{Data: []byte(`"in time"`)}})
			if err == nil {
				break
			}
			wantNotOwned(t, "the next attempt", err)
		}
		if out := o.awaitEnd("slow", model.Completed).Output; string(out.Data) != `"in time"` {
			t.Errorf("the outcome is %s", out.Data)
		}
		wantNotOwned(t, "the same after the end", h.report(model.TaskReport{Ref: c.Ref}))

		// A running task gets the cancellation and decides how it ends.
		o.submit("told")
		c = h.take(1)[0]
		if err := o.b.Cancel(t.Context(), api.CancelRequest{Target: api.Target{Address: taskAt("told")}, Reason: "changed my mind"}); err != nil {
			t.Fatal(err)
		}
		h.awaitStop(c.Ref, model.StopCanceled)
		if r, err := h.session.Beat(t.Context(), []api.Beat{{Claim: c.Ref}}); err != nil || !r[0].Held || !r[0].Canceled {
			t.Errorf("a heartbeat returns %+v, %v", r, err)
		}
		for range 2 {
			if err := h.report(model.TaskReport{Ref: c.Ref, Failure: &model.Failure{Kind: model.FailureCanceled}}); err != nil {
				t.Error(err)
			}
		}
		o.awaitEnd("told", model.Canceled)
	})
}

// Workers claim tasks in the same order on every store: tasks with a larger priority come first,
// then older tasks. A worker gets no task of another queue, and no task before its time. Each task
// is claimed once, no matter how many workers ask, and several submissions with one key are one
// task (E20, E21, E22, E28).
func TestClaimsAreInOrder(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		o := newOffice(t, s)
		want := []string{"1", "3", "0", "2"}
		for i, priority := range []int{0, 5, 0, 5} {
			o.submit(fmt.Sprint(i), func(s *model.TaskSpec) { s.Priority = priority })
		}
		o.submit("other", func(s *model.TaskSpec) { s.Queue = "other" })
		o.submit("tomorrow", func(s *model.TaskSpec) { s.Delay, s.Priority = 24*time.Hour, 9 })
		h := o.join("h", 1, "q")
		var got []string
		for range want {
			c := h.take(1)[0]
			got = append(got, c.Ref.Address.Key)
			if err := h.report(model.TaskReport{Ref: c.Ref}); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		if h.mu.Lock(); len(h.claims) != 0 {
			t.Errorf("claimed %+v as well", h.claims)
		}
		h.mu.Unlock()

		const tasks, workers = 60, 6
		hands := make([]*hand, workers)
		for i := range hands {
			hands[i] = o.join(fmt.Sprint("crowd", i), tasks, "crowd")
		}
		var wg sync.WaitGroup
		runs := make([][]model.RunID, 4) // the runs of each submission
		for n := range runs {
			runs[n] = make([]model.RunID, tasks)
			wg.Go(func() {
				for i := range tasks {
					reply, err := o.b.Start(t.Context(), api.StartRequest{
						Address: taskAt(fmt.Sprint("crowd", i)), Input: model.Payload{Data: []byte("1")}, Task: &model.TaskSpec{Kind: "work", Queue: "crowd"},
					})
					if err != nil {
						t.Error(err)
					}
					runs[n][i] = reply.Run
				}
			})
		}
		wg.Wait()
		for _, again := range runs[1:] {
			if !slices.Equal(again, runs[0]) {
				t.Error("one key has two runs")
			}
		}
		claimed := map[model.RunID]int{}
		eventually(t, "every task is claimed", func() bool {
			clear(claimed)
			for _, h := range hands {
				h.mu.Lock()
				for _, c := range h.claims {
					claimed[c.Ref.Run]++
				}
				h.mu.Unlock()
			}
			return len(claimed) == tasks
		})
		for run, n := range claimed {
			if n != 1 {
				t.Errorf("%s is claimed %d times", run, n)
			}
		}
		for _, h := range hands {
			for _, c := range h.claims {
				if err := h.report(model.TaskReport{Ref: c.Ref}); err != nil {
					t.Error(err)
				}
			}
		}
		for i := range tasks {
			o.awaitEnd(fmt.Sprint("crowd", i), model.Completed)
		}
	})
}
