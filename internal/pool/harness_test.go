package pool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
)

// engine is a simple replacement of the real engine. It hands out claims, checks the promises of a
// worker, and records what the pool reports.
type engine struct {
	p *pool.Pool

	mu       sync.Mutex
	slots    int // the number that the pool has asked for
	told     []int
	claims   map[model.ClaimRef]*model.Claim // the claims that the pool has
	reports  []model.TaskReport
	ended    map[model.ClaimRef]int // number of reports, by claim
	beats    [][]api.Beat
	lost     map[model.ClaimRef]bool // claims that the engine has taken away; they need no report
	quiet    map[model.ClaimRef]bool // lost claims whose code has ended, according to the pool
	cancels  map[model.ClaimRef]bool
	deaf     bool          // beats fail
	terse    bool          // beats get no answers
	full     chan struct{} // reports wait until it is closed
	left     bool
	handed   int
	jobs     map[model.ClaimRef]*job // claims whose handlers run
	problems []string
	slotsMax int

	writes  int // number of calls of Write
	written map[model.ClaimRef][]model.TaskItem
	number  map[model.ClaimRef]int64 // number of the last item
	refuse  func(w model.TaskWrite) error
	states  []api.TaskState
}

// job is a handler that waits for the test.
type job struct {
	ctx context.Context
	t   *pool.Task
	do  chan func() (model.Payload, error)
	// over says that the handler has returned.
	over bool
}

func newEngine(cfg pool.Config) *engine {
	e := &engine{
		claims: map[model.ClaimRef]*model.Claim{}, ended: map[model.ClaimRef]int{}, lost: map[model.ClaimRef]bool{}, quiet: map[model.ClaimRef]bool{}, cancels: map[model.ClaimRef]bool{},
		jobs: map[model.ClaimRef]*job{}, written: map[model.ClaimRef][]model.TaskItem{}, number: map[model.ClaimRef]int64{},
	}
	if cfg.Handlers == nil {
		cfg.Handlers = map[string]pool.Handler{"polite": {Run: e.polite}, "deaf": {Run: e.obstinate}}
	}
	e.p = pool.New(cfg)
	e.slots, e.slotsMax = e.p.Capacity(), e.p.Capacity()
	e.p.Serve(e)
	return e
}

func (e *engine) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf(format, args...))
}

func (e *engine) withLock(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *engine) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.problems) == 0 {
		return nil
	}
	return fmt.Errorf("%q", e.problems)
}

// ---- handlers

func (e *engine) enter(ctx context.Context, t *pool.Task) *job {
	j := &job{ctx: ctx, t: t, do: make(chan func() (model.Payload, error))}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs[t.Claim().Ref] = j
	return j
}

// polite waits for the test, or for the end of its context.
func (e *engine) polite(ctx context.Context, t *pool.Task) (model.Payload, error) {
	j := e.enter(ctx, t)
	defer e.exit(j)
	select {
	case do := <-j.do:
		return do()
	case <-ctx.Done():
		return model.Payload{}, context.Cause(ctx)
	}
}

// obstinate waits for the test and ignores the end of its context.
func (e *engine) obstinate(ctx context.Context, t *pool.Task) (model.Payload, error) {
	j := e.enter(ctx, t)
	defer e.exit(j)
	return (<-j.do)()
}

func (e *engine) exit(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j.over = true
}

// Outcomes of handlers.
func succeed() (model.Payload, error)  { return model.Payload{Data: []byte("out")}, nil }
func fail() (model.Payload, error)     { return model.Payload{}, errors.New("boom") }
func panicNow() (model.Payload, error) { panic("ouch") }
func mute() (model.Payload, error)     { return model.Payload{}, (*nobodysError)(nil) }
func exitNow() (model.Payload, error) {
	runtime.Goexit()
	return model.Payload{}, nil
}

// nobodysError is an error whose nil pointer panics when it is printed.
type nobodysError struct{ inner error }

func (e *nobodysError) Error() string { return e.inner.Error() }
func (e *nobodysError) Unwrap() error { return e.inner }

func snooze() (model.Payload, error) {
	return model.Payload{}, &pool.GiveBack{After: time.Minute}
}

// ---- api.TaskSession

func (e *engine) Lose() { e.problem("the pool says of itself that it has disappeared") }

func (e *engine) Suspend() { e.problem("the pool says of itself that its node stops") }

func (e *engine) CodeEnded(r model.ClaimRef) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[r]; j != nil && !j.over {
		e.problem("the code of %s has ended, according to the pool, but it runs", r)
	}
	e.quiet[r] = true
}

// untold returns a lost claim whose code does not run although the pool has not said so.
func (e *engine) untold() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.lost {
		if j := e.jobs[r]; (j == nil || j.over) && !e.quiet[r] {
			return fmt.Errorf("the pool does not say that the code of %s has ended", r)
		}
	}
	return nil
}

func (e *engine) Report(ctx context.Context, r model.TaskReport) error {
	if e.full != nil {
		select {
		case <-e.full:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left {
		return fault.New(fault.Unavailable, "the session is over")
	}
	if e.claims[r.Ref] == nil && e.ended[r.Ref] == 0 && !e.lost[r.Ref] {
		e.problem("a report of %s, which was not claimed", r.Ref)
	}
	e.ended[r.Ref]++
	if e.ended[r.Ref] > 1 {
		e.problem("%s is reported twice", r.Ref)
	}
	delete(e.claims, r.Ref)
	e.reports = append(e.reports, r)

	return nil
}

func (e *engine) Beat(_ context.Context, beats []api.Beat) ([]api.BeatReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beats = append(e.beats, beats)
	if e.deaf {
		return nil, errors.New("not heard")
	}
	if e.terse {
		return nil, nil
	}
	replies := make([]api.BeatReply, len(beats))
	for i, b := range beats {
		replies[i] = api.BeatReply{Held: e.claims[b.Claim] != nil, Canceled: e.cancels[b.Claim]}
	}
	return replies, nil
}

// Write accepts what a task writes. It skips items whose numbers it has already.
func (e *engine) Write(_ context.Context, w model.TaskWrite) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	if e.claims[w.Ref] == nil {
		return fault.New(fault.NotOwned, "not yours")
	}
	if e.ended[w.Ref] > 0 {
		e.problem("%s writes behind its report", w.Ref)
	}
	var err error
	if e.refuse != nil {
		err = e.refuse(w)
	}
	if err != nil && !fault.Is(err, fault.Unavailable) {
		return err
	}

	for i, it := range w.Items {
		if number := w.First + int64(i); number > e.number[w.Ref] {
			e.number[w.Ref] = number
			e.written[w.Ref] = append(e.written[w.Ref], it)
		}
	}

	return err // the items are stored, but the answer may be lost
}

func (e *engine) States(_ context.Context, claim model.ClaimRef) (states []api.TaskState, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claims[claim] == nil {
		return nil, fault.New(fault.NotOwned, "not yours")
	}
	return e.states, nil
}

func (e *engine) Slots(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n < 0 || n > e.slotsMax {
		e.problem("%d slots", n)
	}
	e.slots = n
	e.told = append(e.told, n)
}

func (e *engine) Leave(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = true
	return nil
}

// ---- what happens

func ref(n int) model.ClaimRef {
	return model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: "default", Type: "wf", Key: fmt.Sprint(n)}, Run: model.RunID{1}, ID: "s"}, Claim: int64(n)}
}

// room returns how many more claims the pool may get.
func (e *engine) room() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slots - len(e.claims)
}

// claim hands out a task, even if the pool has no room for it.
func (e *engine) claim(kind string, spec model.TaskSpec) model.ClaimRef {
	e.mu.Lock()
	e.handed++
	r := ref(e.handed)
	spec.Kind = kind
	c := model.Claim{Ref: r, Spec: &spec, Attempt: 1}
	e.claims[r] = &c
	e.mu.Unlock()
	e.p.Execute([]model.Claim{c})
	synctest.Wait()
	return r
}

// finish lets a handler return.
func (e *engine) finish(r model.ClaimRef, do func() (model.Payload, error)) {
	e.mu.Lock()
	j := e.jobs[r]
	delete(e.jobs, r)
	e.mu.Unlock()
	select {
	case j.do <- do:
	case <-j.ctx.Done(): // a polite one has returned already
		if j.t.Claim().Spec.Kind == "deaf" {
			j.do <- do
		}
	}
	synctest.Wait()
}

// take takes a claim away from the pool.
func (e *engine) take(r model.ClaimRef) {
	e.mu.Lock()
	delete(e.claims, r)
	e.lost[r] = true
	e.mu.Unlock()
	e.p.Stop(r, model.StopLost)
	synctest.Wait()
}

func (e *engine) reportOf(r model.ClaimRef) *model.TaskReport {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.reports {
		if e.reports[i].Ref == r {
			return &e.reports[i]
		}
	}
	return nil
}

func (e *engine) close(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return e.p.Close(ctx)
}
