package core_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// world is a set of executions with the rows that a store would have of them. It applies inputs,
// writes the decisions as a store would (with the same guards), and checks the invariants of the
// core after every input.
type world struct {
	fatal func(format string, args ...any)
	now   model.Time
	lim   core.Limits
	seats map[model.Address]*seat
	runs  int             // how many run ids were used
	mail  []model.Message // messages that were sent and not delivered
}

// seat is an address with all its runs.
type seat struct {
	x    *core.Execution
	runs []*stored
}

// stored has the rows of a run in a store.
type stored struct {
	start   model.Start
	events  []model.Event
	timers  map[string]model.Time
	outcome model.Outcome
	mark    core.Mark
	started map[string]bool // timers that were ever started
}

const epoch = model.Time(1_700_000_000_000_000)

func newWorld(fatal func(format string, args ...any)) *world {
	return &world{fatal: fatal, now: epoch, lim: core.DefaultLimits, seats: map[model.Address]*seat{}}
}

func address(key string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: key}
}

func runID(n int) model.RunID { return model.RunID{13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)} }

// fresh returns an id for the next run. It returns the same id until a run uses it, so that runs
// are numbered without gaps.
func (w *world) fresh() model.RunID { return runID(w.runs + 1) }

func (w *world) seat(a model.Address) *seat {
	s := w.seats[a]
	if s == nil {
		s = &seat{}
		w.seats[a] = s
	}
	return s
}

func (s *seat) last() *stored {
	if len(s.runs) == 0 {
		return nil
	}
	return s.runs[len(s.runs)-1]
}

func (w *world) deliver(m *model.Message) core.Decision {
	s := w.seat(m.To)
	before := s.x.Clone()
	x, d := core.Deliver(s.x, m, w.now, w.fresh(), w.lim)
	if err := d.Refusal(); err != nil {
		w.checkRefused(before, s.x, &d, m)
	}
	w.keep(s, x, &d)
	return d
}

func (w *world) turn(a model.Address, t *model.Turn) (core.Decision, error) {
	s := w.seat(a)
	before := s.x.Clone()
	x, d, err := core.Apply(s.x, t, w.now, w.fresh(), w.lim)
	if err != nil {
		w.checkRefused(before, s.x, &d, &model.Message{})
		if x != s.x {
			w.fatal("a refused turn changed the current run")
		}
		return d, err
	}
	w.keep(s, x, &d)
	return d, nil
}

func (w *world) fire(a model.Address, id string) core.Decision {
	s := w.seat(a)
	before := s.x.Clone()
	d := core.Fire(s.x, id, w.now)
	if !d.HasWrites() {
		w.same("a timer that did nothing", before, s.x)
	}
	w.keep(s, s.x, &d)
	return d
}

func (w *world) release(a model.Address, seen int64, waits []model.Reason) (core.Decision, bool) {
	s := w.seat(a)
	before := s.x.Clone()
	d, ok := core.Release(s.x, seen, waits, w.lim)
	if !ok {
		w.checkRefused(before, s.x, &d, &model.Message{})
	}
	w.keep(s, s.x, &d)
	return d, ok
}

// checkRefused checks I10: a refused input writes nothing. If a step sent the input, that step gets
// one message, and there is no other message.
func (w *world) checkRefused(before, after *core.Execution, d *core.Decision, input *model.Message) {
	w.same("a refused input", before, after)
	told := model.MessageAnswer
	if input.Kind == model.MessageStart || input.Kind == model.MessageWatch {
		told = model.MessageClosed
	}

	for i := range d.Messages {
		m := &d.Messages[i]
		to := model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
		if i > 0 || m.Kind != told || to.ID == "" || to != input.From || m.Failure == nil {
			w.fatal("I10: a refused %s sends: %s", input.Kind, messageText(m))
		}
	}

	rest := *d
	rest.Messages = nil
	if rest.HasWrites() || d.Pending {
		w.fatal("I10: a refused input writes: %+v", rest)
	}
}

func (w *world) same(what string, before, after *core.Execution) {
	if diff := core.Diff(before, after); diff != "" {
		w.fatal("%s changed the state:\n%s", what, diff)
	}
}

// keep writes a decision as a store would, and checks what must hold afterwards.
func (w *world) keep(s *seat, x *core.Execution, d *core.Decision) {
	w.remove(s, d)
	if cur := s.last(); cur != nil {
		w.write(cur, d)
	} else if len(d.Events)+len(d.StartTimers)+len(d.StopTimers) > 0 || d.Close != nil && d.Start == nil || d.Mark != nil && d.Start == nil || d.StopAll {
		w.fatal("a decision writes to a run that does not exist: %+v", d)
	}
	if d.Start != nil {
		w.begin(s, d)
	}
	if d.Mark != nil {
		w.mark(s.last(), d.Mark)
	}
	s.x = x
	w.mail = append(w.mail, d.Messages...)
	w.check(s)
}

// remove deletes rows, with the guard of a store (I12).
func (w *world) remove(s *seat, d *core.Decision) {
	s.runs = slices.DeleteFunc(s.runs, func(r *stored) bool {
		gone := slices.Contains(d.Deletes, r.start.Run)
		if gone && !r.outcome.Status.Closed() {
			w.fatal("I12: %s is deleted, which is open", r.start.Run)
		}
		return gone
	})
}

// begin writes the row of a new run.
func (w *world) begin(s *seat, d *core.Decision) {
	old := s.last()
	switch {
	case old == nil && !d.Replaces.IsZero():
		w.fatal("start replaces %s, but there is none", d.Replaces)
	case old != nil && d.Replaces != old.start.Run:
		w.fatal("start replaces %s, but %s is current", d.Replaces, old.start.Run)
	case old != nil && !old.outcome.Status.Closed():
		w.fatal("start replaces %s, which is open", d.Replaces)
	case d.Start.Run != w.fresh():
		w.fatal("start of %s, want the fresh id %s", d.Start.Run, w.fresh())
	}

	w.runs++
	s.runs = append(s.runs, &stored{
		start: *d.Start, outcome: model.Outcome{Status: model.Running}, timers: map[string]model.Time{}, started: map[string]bool{},
	})

	if d.Close == nil || d.Closed != d.Start.Run {
		for _, t := range core.BirthTimers(d.Start) {
			s.last().timers[t.ID] = t.Due
		}
	}

	if d.Close != nil && d.Closed == d.Start.Run {
		s.last().outcome = *d.Close
	}
}

// write writes the rows of one run, with the guards of a store.
func (w *world) write(r *stored, d *core.Decision) {
	if d.Close != nil && d.Closed != r.start.Run {
		if d.Start == nil || d.Closed != d.Start.Run {
			w.fatal("a decision closes %s, which is neither the current run nor the next", d.Closed)
		}
		return
	}

	if r.outcome.Status.Closed() && (len(d.Events)+len(d.StartTimers)+len(d.StopTimers) > 0 || d.Close != nil || d.StopAll) {
		w.fatal("I2: something is written to the closed run %s: %+v", r.start.Run, d)
	}

	for _, e := range d.Events {
		if want := r.next(); e.Seq != want {
			w.fatal("I1: event %d stands where %d belongs", e.Seq, want)
		}
		if e.At < r.lastTime() || e.At < min(w.now, e.At) {
			w.fatal("I1: event %d is older than the one before it", e.Seq)
		}
		r.events = append(r.events, e)
	}

	for _, id := range d.StopTimers {
		if _, ok := r.timers[id]; !ok {
			w.fatal("I4: timer %q is stopped, but is not open", id)
		}
		delete(r.timers, id)
	}

	for _, t := range d.StartTimers {
		if _, ok := r.timers[t.ID]; ok {
			w.fatal("I4: timer %q is started twice", t.ID)
		}
		r.timers[t.ID] = t.Due
	}

	if d.StopAll {
		clear(r.timers)
	}

	if d.Close != nil {
		r.outcome, r.mark = *d.Close, core.Mark{}
		if len(r.timers) > 0 {
			w.fatal("I8: a closed run has timers: %v", r.timers)
		}
	}
}

// mark writes the mark of the run that is current after the decision.
func (w *world) mark(r *stored, m *core.Mark) {
	if r.outcome.Status.Closed() {
		w.fatal("I2: the closed run %s is marked: %+v", r.start.Run, m)
	}
	r.mark = *m
}

// all returns the events of a run, including the events that it was started with.
func (r *stored) all() []model.Event { return slices.Concat(r.start.Carried, r.events) }

func (r *stored) next() int64 { return int64(len(r.start.Carried)+len(r.events)) + 1 }

func (r *stored) lastTime() model.Time {
	if len(r.events) > 0 {
		return r.events[len(r.events)-1].At
	}
	return r.start.At
}

func (r *stored) openTimers() []core.Timer {
	var ts []core.Timer
	for id, due := range r.timers {
		ts = append(ts, core.Timer{ID: id, Due: due})
	}
	slices.SortFunc(ts, func(a, b core.Timer) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.ID, b.ID)) })
	return ts
}

// crash lets another node take the current run over from the store.
func (w *world) crash(a model.Address) {
	s := w.seat(a)
	r := s.last()
	if r.outcome.Status.Closed() {
		s.x = &core.Execution{Start: r.start, Outcome: r.outcome}
		return
	}
	x, err := core.Recover(r.start, r.outcome, r.events, r.openTimers())
	if err != nil {
		w.fatal("I1: %v", err)
	}
	x.Parked, x.Blocked = r.mark.Parked, r.mark.Blocked
	s.x = x
}

// check compares the state in memory with the state that a node would read from the store (I3).
func (w *world) check(s *seat) {
	r := s.last()
	if r == nil {
		if s.x != nil {
			w.fatal("there is a state without a run")
		}
		return
	}

	if s.x.Start.Run != r.start.Run {
		w.fatal("the state is of %s, the last run is %s", s.x.Start.Run, r.start.Run)
	}

	if r.outcome.Status.Closed() {
		if s.x.Open() || len(s.x.Timers()) > 0 {
			w.fatal("I2: %s is closed in the store, and in memory %s with %d timers", r.start.Run, s.x.Outcome.Status, len(s.x.Timers()))
		}
		return
	}

	back, err := core.Recover(r.start, r.outcome, r.events, r.openTimers())
	if err != nil {
		w.fatal("I1: %v", err)
		return
	}

	back.Parked, back.Blocked = r.mark.Parked, r.mark.Blocked
	if diff := core.Diff(s.x, back); diff != "" {
		w.fatal("I3: memory and recovered state differ:\n%s", diff)
	}
	if p := s.x.Withheld(); p != nil && (!r.mark.Parked || len(r.mark.Waits) != 1 || r.mark.Waits[0] != *p) {
		w.fatal("I14: %s is withheld, and its mark says %+v", r.start.Run, r.mark)
	}
}

// refusal returns the kind of the error; empty if err is nil.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	return fault.KindOf(err).String()
}

func since(t model.Time) string {
	switch t {
	case 0:
		return "never"
	case model.MaxTime:
		return "max"
	}
	d := time.Duration(t-epoch) * time.Microsecond
	if t-epoch > 1<<50 {
		return fmt.Sprint(t.Std().Year())
	}
	return d.String()
}
