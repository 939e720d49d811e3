package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// engine is a deterministic replacement of the real engine, for one run. It acts only when the test
// says so. Reports queue up until the test applies them. Committed events are delivered when the
// test delivers them. Step bodies block until the test lets them continue. engine checks everything
// that the worker promises to report.
type engine struct {
	code replay.Code
	cfg  replay.Config

	mu     sync.Mutex
	w      *replay.Worker
	start  model.Start
	gen    uint64
	held   bool
	events []model.Event
	told   int   // events that the worker has received
	sure   int   // events of these that are confirmed; the others are a preview
	due    int64 // position of the last confirmed event that the worker must answer
	news   int64 // position of the last event that the worker must answer
	seen   int64 // the last position that the last turn of the worker had seen or had run ahead of
	busy   bool  // the last turn of the worker said that a body runs
	fed    int64 // the highest position that a turn has seen

	reports  []model.Turn
	timers   map[string]model.Time
	retries  map[string]int64 // back-offs, by the position of the failed attempt
	retried  map[string]bool
	sent     map[string]bool
	children map[string]bool         // open children
	tasks    map[string]*queued      // open tasks
	locks    map[string]*model.Event // open sections; Attempt counts the grants
	calls    map[string]model.Event  // calls of entities without an answer
	released bool
	waits    []model.Reason
	blocked  *model.Reason
	end      *model.Close
	endSeen  int64
	diverged int
	previews int
	problems []string

	bodies []*body // blocked bodies
	auto   bool    // bodies do not block
	ran    map[string]int
	runs   map[string]int // executions of bodies that run now, by attempt
	// attempts that the code gave up on
	interrupted map[string]bool
	commits     int
	hold        chan struct{}     // for code that should block
	answers     map[uint64]answer // answers to queries

	// the place where steps that settle store their outcomes, by step; nil for a success
	place   map[string]*model.Failure
	settled int // how often the worker has tried to settle a step
}

type answer struct {
	out     model.Payload
	failure *model.Failure
}

type body struct {
	ctx  context.Context //nolint:containedctx // it is what the body is told
	name string
	free chan struct{}
}

// isTold reports whether the worker has told the body to end.
func (b *body) isTold() bool { return b.ctx.Err() != nil }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newEngine(code replay.Code) *engine {
	return &engine{
		code: code, timers: map[string]model.Time{}, retries: map[string]int64{}, sent: map[string]bool{}, retried: map[string]bool{}, children: map[string]bool{}, tasks: map[string]*queued{},
		locks: map[string]*model.Event{}, calls: map[string]model.Event{},
		ran: map[string]int{}, runs: map[string]int{}, interrupted: map[string]bool{}, hold: make(chan struct{}), answers: map[uint64]answer{}, place: map[string]*model.Failure{},
		start: model.Start{
			Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: model.RunID{1}, At: model.TimeOf(epoch),
			Input: model.Payload{Data: []byte(`"in"`)},
		},
	}
}

func (e *engine) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf(format, args...))
}

// ---- api.Session

func (e *engine) Report(_ context.Context, t model.Turn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reports = append(e.reports, t)
	return nil
}

func (e *engine) Release(_ model.RunID, gen uint64, seen int64, waits []model.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if gen == e.gen && e.sure < e.told {
		e.problem("the worker releases the run while it has a preview")
	}
	if gen == e.gen && seen == e.last() && len(e.reports) == 0 {
		e.released, e.waits = true, waits
	}
}

func (e *engine) isReleased() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.released
}

func (e *engine) Leave(context.Context) error { return nil }

// Answer is part of the session.
//
//arch:parameters the signature of api.Session
func (e *engine) Answer(_ model.RunID, gen, id uint64, out model.Payload, f *model.Failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if gen == e.gen && e.sure < e.told {
		e.problem("the worker answers query %d while it has a preview", id)
	}
	if gen == e.gen {
		e.answers[id] = answer{out, f}
	}
}

// ---- what happens to the run

func (e *engine) last() int64 { return int64(len(e.events)) }

// activate hands the run, with the first n events (all when negative), to a new worker.
func (e *engine) activate(n int) {
	cfg := e.cfg
	cfg.Code = map[string]replay.Code{"wf": e.code}
	e.w = replay.NewWorker(cfg)
	e.w.Serve(e)
	e.reactivate(n)
}

func (e *engine) reactivate(n int) {
	e.mu.Lock()
	if n < 0 {
		n = len(e.events)
	}
	e.gen++
	e.held, e.told, e.reports, e.released = true, n, nil, false
	e.news, e.seen, e.busy = int64(n), -1, true
	e.sure, e.due = n, int64(n)
	a := api.Activation{Start: &e.start, Generation: e.gen, Events: slices.Clone(e.events[:n]), Now: e.now()}
	w := e.w
	e.mu.Unlock()
	w.Activate(&a)
	synctest.Wait()
}

func (e *engine) now() model.Time {
	return e.start.At.Add(time.Duration(len(e.events)) * time.Millisecond)
}

// lose drops the session with the worker, as a server that restarts does. Reports of the worker
// that the engine has not committed are lost.
func (e *engine) lose() {
	e.mu.Lock()
	gen := e.gen
	e.gen++
	e.reports, e.held = nil, false
	e.mu.Unlock()
	e.w.Lose(e.start.Run, gen)
	synctest.Wait()
}

// takeBack takes the run from the worker, as an engine whose node has lost its lease does. Reports
// of the worker that the engine has not committed are lost.
func (e *engine) takeBack() {
	e.mu.Lock()
	gen := e.gen
	e.gen++
	e.reports, e.held = nil, false
	e.mu.Unlock()
	e.w.Evict(e.start.Run, gen, "the node lost its lease")
	synctest.Wait()
}

// crash drops the worker as if its process had died: its later reports are ignored.
func (e *engine) crash() {
	e.mu.Lock()
	w := e.w
	e.gen++
	e.reports, e.held = nil, false
	e.mu.Unlock()
	w.Evict(e.start.Run, e.gen-1, "crash")
	synctest.Wait()
	for len(e.bodies) > 0 {
		e.letGo(0)
	}
	if err := w.Close(context.Background()); err != nil {
		e.problem("close: %v", err)
	}
	synctest.Wait()
	e.reports = nil
}

func (e *engine) append(ev model.Event) {
	ev.Seq, ev.At = e.last()+1, e.now()
	e.events = append(e.events, ev)
}

// apply applies the oldest report.
func (e *engine) apply() {
	e.mu.Lock()
	t := e.reports[0]
	e.reports = e.reports[1:]
	e.commit(&t)
	closed, gen := e.end != nil, t.Generation
	e.mu.Unlock()
	if closed {
		e.w.Evict(e.start.Run, gen, "closed")
	}
	synctest.Wait()
}

func (e *engine) commit(t *model.Turn) {
	if t.Generation != e.gen || !e.held {
		return
	}
	e.commits++
	if t.Seen > e.last() || t.Seen < 0 {
		e.problem("turn has seen %d of %d events", t.Seen, e.last())
	}

	if t.Blocked != nil {
		e.blocked, e.held = t.Blocked, false
		return
	}

	e.engineAgrees(t)
	e.fed = max(e.fed, t.Seen)
	commands, end := t.Commands, t.Close
	e.seen, e.busy = t.Seen+int64(t.Ahead), t.Running

	if t.Ahead > 0 && t.Seen != e.last() {
		commands, end = commands[:t.Ahead], nil
		e.seen = t.Seen
		e.diverged++
	} else {
		e.waits = t.Waits
	}

	for i := range commands {
		e.command(&commands[i])
	}
	if end != nil {
		e.end, e.endSeen, e.held = end, t.Seen+int64(t.Ahead), false
	}
}

// command applies one command of a turn.
func (e *engine) command(c *model.Command) {
	ev := c.Event

	switch c.Kind {
	case model.CommandRecord, model.CommandRetry:
		for i := range e.events {
			o := &e.events[i]
			if o.ID == ev.ID && (o.Kind == model.EventStepCompleted || o.Kind == model.EventStepFailed || o.Kind == model.EventSignalTaken || o.Kind == model.EventVersionMarked || o.Kind == model.EventLabeled) {
				e.problem("%s %s is recorded twice", ev.Kind, ev.ID)
			}
			if ev.Kind == model.EventSignalTaken && (o.Kind == ev.Kind || o.Kind == model.EventSignalDropped) && o.Ref == ev.Ref {
				e.problem("signal %d is taken, and event %d is a %s", ev.Ref, o.Seq, o.Kind)
			}
		}
		if ev.Kind == model.EventSignalTaken && (ev.Ref < 1 || ev.Ref > e.last() || e.events[ev.Ref-1].Kind != model.EventSignalReceived) {
			e.problem("signal %d does not exist", ev.Ref)
		}
		if c.Kind == model.CommandRetry {
			ev.Due = e.now().Add(c.Delay)
			e.retries[ev.ID] = e.last() + 1
		} else {
			delete(e.retries, ev.ID)
		}
		e.append(ev)
	case model.CommandStartTimer:
		if _, ok := e.timers[ev.ID]; !ok && !e.unseenFiring(ev.ID) {
			e.timers[ev.ID] = ev.Due
		}
	case model.CommandStopTimer:
		delete(e.timers, ev.ID)
	case model.CommandWithdraw:
		delete(e.timers, ev.ID)
		delete(e.retries, ev.ID)
		delete(e.children, ev.ID)
		delete(e.tasks, ev.ID)
		delete(e.locks, ev.ID)
		delete(e.calls, ev.ID)
		ev.Kind = model.EventWithdrawn
		e.append(ev)
	case model.CommandStartChild, model.CommandWatch:
		if e.sent[ev.ID] {
			e.problem("child %s is asked for twice", ev.ID)
		}
		e.sent[ev.ID], e.children[ev.ID] = true, true
		ev.Kind = model.EventChildStarted
		e.append(ev)
	case model.CommandSend:
		if e.sent[ev.ID] {
			e.problem("%s is sent twice", ev.ID)
		}
		e.sent[ev.ID] = true
		ev.Kind = model.EventSent
		e.append(ev)
		if c.Message.Kind == model.MessageCall && !c.Message.OneWay {
			e.keepCall(c)
			return
		}
		e.append(model.Event{Kind: model.EventAnswered, ID: ev.ID})
	case model.CommandLock, model.CommandUnlock:
		e.applyLock(c)
	case model.CommandSchedule:
		e.acceptTask(&ev)
	case model.CommandAnswer:
		for i := range e.events {
			if o := &e.events[i]; o.Kind == model.EventUpdateAnswered && o.Ref == ev.Ref {
				e.problem("update %d is answered twice", ev.Ref)
			}
		}
		if ev.Ref < 1 || ev.Ref > e.last() || e.events[ev.Ref-1].Kind != model.EventUpdateReceived {
			e.problem("update %d does not exist", ev.Ref)
		}
		ev.Kind = model.EventUpdateAnswered
		e.append(ev)
	}
}

// unseenFiring reports whether the timer has fired and the worker has not received the event.
func (e *engine) unseenFiring(id string) bool {
	return slices.ContainsFunc(e.events[e.told:], func(o model.Event) bool { return o.Kind == model.EventTimerFired && o.ID == id })
}

// deliver brings the next n committed events to the worker.
func (e *engine) deliver(n int) {
	e.mu.Lock()
	events := slices.Clone(e.events[e.told : e.told+n])
	e.told += n
	e.released = false
	for i := range events {
		if events[i].Kind.News() {
			e.news = events[i].Seq
		}
	}
	e.sure, e.due = e.told, e.news
	gen := e.gen
	e.mu.Unlock()
	e.w.Deliver(e.start.Run, gen, events)
	synctest.Wait()
}

// mayPreview reports whether the worker may get events that are not committed: it has answered all
// committed ones, and it runs no step.
func (e *engine) mayPreview() bool {
	isStep := func(r model.Reason) bool { return r.Code == model.WaitStep }
	return e.held && e.w.Previews() && e.told < len(e.events) && !e.busy && e.seen >= e.due && len(e.waits) > 0 && !slices.ContainsFunc(e.waits, isStep)
}

// preview brings the next events to the worker before they are committed.
func (e *engine) preview(n int) {
	e.mu.Lock()
	if i := slices.IndexFunc(e.bodies, func(b *body) bool { return !b.isTold() }); i >= 0 {
		e.problem("a preview while the body of %s runs", e.bodies[i].name)
	}
	events := slices.Clone(e.events[e.told : e.told+n])
	e.told += n
	for i := range events {
		if events[i].Kind.News() {
			e.news = events[i].Seq
		}
	}
	gen := e.gen
	e.previews++
	e.mu.Unlock()
	e.w.Preview(e.start.Run, gen, events)
	synctest.Wait()
}

// confirm says that the first n events of the preview are committed.
func (e *engine) confirm(n int) {
	e.mu.Lock()
	e.sure += n
	e.due = min(e.news, int64(e.sure))
	gen, sure := e.gen, e.sure
	e.mu.Unlock()
	e.w.Confirm(e.start.Run, gen, int64(sure))
	synctest.Wait()
}

func (e *engine) inject(ev model.Event) {
	e.mu.Lock()
	e.append(ev)
	e.mu.Unlock()
}

func (e *engine) signal(name, value string) {
	e.inject(model.Event{Kind: model.EventSignalReceived, Name: name, Input: payload(value)})
}

func (e *engine) fire(id string) {
	e.mu.Lock()
	due := e.timers[id]
	delete(e.timers, id)
	e.append(model.Event{Kind: model.EventTimerFired, ID: id, Due: due})
	e.mu.Unlock()
}

func (e *engine) retry(id string) {
	// as in the real engine, the row of the retry stays until the outcome is recorded
	e.retried[fmt.Sprint(id, e.retries[id], e.gen)] = true
	e.w.Retry(e.start.Run, e.gen, id)
	synctest.Wait()
}

func (e *engine) closeChild(id, value string) {
	delete(e.children, id)
	e.inject(model.Event{Kind: model.EventChildClosed, ID: id, Status: model.Completed, Output: payload(value)})
}

// letGo lets a blocked body return.
func (e *engine) letGo(i int) {
	e.mu.Lock()
	b := e.bodies[i]
	e.bodies = slices.Delete(e.bodies, i, i+1)
	e.mu.Unlock()
	close(b.free)
	synctest.Wait()
}

// settle does everything that is pending, in the simplest order, until nothing is left.
func (e *engine) settle() {
	for {
		e.mu.Lock()
		reports, news, bodies := len(e.reports), int(e.last())-e.told, len(e.bodies)
		held := e.held
		e.mu.Unlock()
		switch {
		case reports > 0:
			e.apply()
		case news > 0 && held:
			e.deliver(news)
		case e.sure < e.told && held:
			e.confirm(e.told - e.sure)
		case bodies > 0:
			e.letGo(0)
		default:
			e.checkResting()
			return
		}
	}
}

// checkResting checks that the worker has answered all news and does not say that a body runs.
func (e *engine) checkResting() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held && (e.busy || e.seen < e.news) {
		e.problem("nothing runs, and the last turn has seen %d of %d events; a body runs: %v", e.seen, e.news, e.busy)
	}
}

// stop ends the worker and checks that it leaves nothing behind.
func (e *engine) stop() {
	for len(e.bodies) > 0 {
		e.letGo(0)
	}
	if err := e.w.Close(context.Background()); err != nil {
		e.problem("close: %v", err)
	}
	if n := e.w.LoadedRuns(); n > 0 {
		e.problem("%d runs are still loaded", n)
	}
}

func (e *engine) err() error {
	if len(e.problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(e.problems, "\n"))
}

// ---- code under test

func payload(s string) model.Payload { return model.Payload{Data: []byte(s)} }

// step is a step whose body blocks until the test lets it continue.
func (e *engine) step(x replay.Ctx, name string, opts ...func(*replay.Step)) (string, error) {
	out, err := x.Step(e.stepOf(name, opts...))
	return string(out.Data), err
}

func (e *engine) stepOf(name string, opts ...func(*replay.Step)) *replay.Step {
	s := &replay.Step{Name: name}
	s.Body = func(ctx context.Context) (model.Payload, error) {
		info := replay.StepFrom(ctx)
		e.mu.Lock()
		id := fmt.Sprintf("%s@%d", info.IdempotencyKey(), info.Attempt())
		e.ran[id]++
		if e.runs[id]++; e.runs[id] > 1 {
			e.problem("the body of %s runs beside itself", id)
		}
		if e.held && e.sure < e.told {
			e.problem("step %s begins while the worker has a preview", id)
		}
		b := &body{ctx: ctx, name: name, free: make(chan struct{})}
		auto := e.auto
		if !auto {
			e.bodies = append(e.bodies, b)
		}
		e.mu.Unlock()
		if !auto {
			<-b.free
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.runs[id]--
		if b.isTold() {
			e.interrupted[id] = true
		}
		return payload("out-" + name), nil
	}

	for _, o := range opts {
		o(s)
	}
	return s
}

func input(s string) func(*replay.Step) {
	return func(st *replay.Step) { st.Input = &replay.StepInput{Payload: payload(s)} }
}

func failingStep(times int, permanent bool) func(*replay.Step) {
	return func(st *replay.Step) {
		inner := st.Body
		st.Body = func(ctx context.Context) (model.Payload, error) {
			out, err := inner(ctx)
			if replay.StepFrom(ctx).Attempt() <= times {
				err = errors.New("boom " + st.Name)
				if permanent {
					err = replay.Permanent(err)
				}
			}
			return out, err
		}
	}
}

// settleStep stores the outcome of a step in a place of its own, as a database of the user does.
// Every third try to store an outcome there fails.
func (e *engine) settleStep(s *replay.Step) {
	inner := s.Body
	stands := func(id string) (model.Payload, *model.Failure, bool) {
		f, ok := e.place[id]
		if ok && f == nil {
			return payload("acted-" + s.Name), nil, true
		}
		return model.Payload{}, f, ok
	}

	s.Body = func(ctx context.Context) (model.Payload, error) {
		_, err := inner(ctx)
		id := replay.StepFrom(ctx).ID()
		e.mu.Lock()
		defer e.mu.Unlock()

		switch out, f, ok := stands(id); {
		case ok && f != nil:
			return out, replay.Permanent(f)
		case ok:
			return out, nil
		case ctx.Err() != nil:
			return out, ctx.Err()
		case err != nil:
			return out, err
		}

		e.place[id] = nil
		return payload("acted-" + s.Name), nil
	}

	s.Settle = func(ctx context.Context, f *model.Failure) (model.Payload, *model.Failure, error) {
		id := replay.StepFrom(ctx).ID()
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.settled++; e.settled%3 == 0 {
			return model.Payload{}, nil, errors.New("the place is away")
		}
		if out, stored, ok := stands(id); ok {
			return out, stored, nil
		}
		e.place[id] = f
		return model.Payload{}, f, nil
	}
}

// consistent checks that the history of a run that has ended agrees with the stored outcome of
// every step that settles.
func (e *engine) consistent() {
	told := map[string]bool{}
	for i := range e.events {
		ev := &e.events[i]
		f, ok := e.place[ev.ID]
		switch {
		case !ok:
		case ev.Kind == model.EventWithdrawn:
			e.problem("step %s was withdrawn", ev.ID)
		case ev.Kind == model.EventStepCompleted:
			told[ev.ID] = true
			if f != nil {
				e.problem("step %s has completed, and its place says %v", ev.ID, f)
			}
		case ev.Kind == model.EventStepFailed:
			told[ev.ID] = true
			if f == nil || *f != *ev.Failure {
				e.problem("step %s has failed with %v, and its place says %v", ev.ID, ev.Failure, f)
			}
		}
	}

	for id, f := range e.place {
		if f == nil && !told[id] {
			e.problem("step %s acted, and the history does not know", id)
		}
	}
}

func dump(events []model.Event) string {
	var b strings.Builder
	for i := range events {
		ev := &events[i]
		fmt.Fprintf(&b, "%d %s %s %s ref=%d\n", ev.Seq, ev.Kind, ev.ID, ev.Name, ev.Ref)
	}
	return b.String()
}
