package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Mode says what the new run is for. A past is the part of a history that a new run begins with.
type Mode uint8

// Modes.
const (
	// Fork begins another execution with a copy of the past. The source, which is the run that the
	// history comes from, does not change. The fork waits for the same things as the source.
	Fork Mode = iota + 1
	// Retry begins a new run of the same key that continues before the last failed step. Its steps
	// have the same idempotency keys as before.
	Retry
	// Reset begins a new run of the same key that continues at a place that the caller names. Its
	// steps have new idempotency keys.
	Reset
	// Import continues a run of another store here.
	Import
)

// Request says how a history is cut.
//
// The cut keeps the events up to a position. The caller may name that position; for a reset, the
// caller must. Without a named position, a cut with edits keeps everything up to the edited result.
// Without edits, a fork and an import keep everything. A retry keeps everything before the cancel
// request. If there was no cancel request, it keeps everything before the last step, child or call
// that failed. If nothing failed, it keeps everything.
//
// Among the kept events:
//
//   - Watchers are left out, because they wait for the source.
//   - The new run does not wait for the back-off of a step: it makes the next attempt immediately.
//     The failed attempts of the step that a retry repeats are left out, so that the step has all
//     its attempts again.
//   - If the cut keeps the start of a child but not its outcome, the new run watches the child
//     again. If the child no longer exists, its start is left out, and the code starts it again.
//     Retry and reset do the same with a child that failed, was cancelled or was terminated. An
//     import refuses children that do not exist here.
//   - If the cut keeps a message but not its answer, the cut takes the answer from the events after
//     the cut. If there is no answer, the message is left out, and the code sends it again.
//   - A task without an outcome is left out, and the code schedules it again. A lock that the code
//     still waits for is left out too, and the code asks for it again. A cut at a place where the
//     code has entities locked is refused, because the new run would not hold the locks.
//   - Pauses are left out: the new run is not paused.
//   - Each event that is left out becomes a blank, so that positions stay the same.
//
// Retry and reset also add signals and settled promises from after the cut. A reset of an open run
// adds the updates that wait for an answer. The run has accepted all of these, so they must not be
// lost.
type Request struct {
	Mode Mode
	// Before is the name of a step, child, call or message: the cut comes before its first event.
	// If Placed is set, the cut comes after the position After.
	Before string
	After  int64
	Placed bool
	// Edits change results.
	Edits []Edit
	// Child returns the status of the current run of a child; false when it does not exist.
	Child func(model.Address) (model.Status, bool, error)
}

// Edit gives a step, child or call another result. If Position is 0, Step selects the first step,
// child or call of that name. Otherwise Position selects the outcome at that position of the
// history.
type Edit struct {
	Step     string
	Position int64
	Output   model.Payload
}

// Plan is a past, and a description of it for operators.
type Plan struct {
	Past model.Past
	// Position is the last event that is kept. Total is how many events the source has.
	Position, Total int64
	// Blanks are the events that are left out. Added are events from after the cut. Again are the
	// children that the new run watches again.
	Blanks, Added, Again []model.Event
}

// Cut makes the past of a new run from a history.
func Cut(h *model.History, r *Request) (*Plan, error) {
	c := cutter{h: h, r: r}
	at, err := c.place()
	if err != nil {
		return nil, err
	}
	c.plan = &Plan{Position: at, Total: int64(len(h.Events))}
	c.events = slices.Clone(h.Events[:at])
	c.unfinished, c.unlocked = c.unfinishedTasks(), c.waitingLocks()

	// Keep the events before the cut, and change or blank some of them.
	for i := range c.events {
		if err := c.keep(i); err != nil {
			return nil, err
		}
	}

	// Add messages from after the cut that must not be lost.
	if r.Mode == Retry || r.Mode == Reset {
		c.addAccepted()
	}
	slices.SortFunc(c.plan.Added, func(a, b model.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	c.events = append(c.events, c.plan.Added...)

	c.plan.Past = model.Past{
		Events: model.PastOf(c.events), Began: h.Start.Zero(), Begins: h.Start.Begins, Seeds: seeds(&h.Start, at), Origin: h.Start.Origin,
		Source: model.Source{Address: h.Start.Address, Run: h.Start.Run, Position: at},
	}

	if r.Mode == Retry || r.Mode == Import {
		c.plan.Past.Identity, c.plan.Past.Earlier = h.Start.IdentityRun(), earlierRuns(&h.Start)
	}
	return c.plan, nil
}

// Whole returns the past of a closed run that is stored unchanged.
func Whole(h *model.History) *Plan {
	o := &h.Outcome
	n := int64(len(h.Events))
	return &Plan{Position: n, Total: n, Past: model.Past{
		Events: model.PastOf(h.Events), Began: h.Start.Zero(), Begins: h.Start.Begins, Seeds: seeds(&h.Start, n), Identity: h.Start.IdentityRun(), Earlier: earlierRuns(&h.Start), Origin: h.Start.Origin,
		Source: model.Source{Address: h.Start.Address, Run: h.Start.Run, Position: n},
		Status: o.Status, Output: o.Output, Failure: o.Failure, At: o.At,
	}}
}

// earlierRuns returns the runs that may already have executed the steps of the next run: this run,
// and the earlier runs that shared its idempotency keys.
func earlierRuns(s *model.Start) []model.RunID {
	runs := append([]model.RunID{s.Run}, s.Earlier...)
	if first := s.IdentityRun(); runs[len(runs)-1] != first {
		// The runs in between were not recorded, or are in another store.
		runs = append(runs, first)
	}
	return runs
}

// seeds returns the runs that seeded the random numbers of the code up to a position.
func seeds(s *model.Start, at int64) []model.Seed {
	var out []model.Seed
	last := int64(0)
	for _, seed := range s.Seeds {
		if until := min(seed.Until, at); until > last {
			out = append(out, model.Seed{Until: until, Run: seed.Run})
			last = until
		}
	}
	if last < at {
		out = append(out, model.Seed{Until: at, Run: s.IdentityRun()})
	}
	return out
}

// cutter makes one cut.
type cutter struct {
	h      *model.History
	r      *Request
	plan   *Plan
	events []model.Event // the kept events
	failed string        // the step that a retry repeats

	unfinished map[string]bool // tasks without an outcome
	unlocked   map[string]bool // sections that wait for their locks
}

// place finds the last event that is kept.
func (c *cutter) place() (int64, error) {
	n := int64(len(c.h.Events))
	at, placed := n, c.r.Placed
	switch {
	case c.r.Before != "":
		i, err := c.before(c.r.Before)
		if err != nil {
			return 0, err
		}
		at, placed = int64(i), true
	case placed && (c.r.After < 0 || c.r.After > n):
		return 0, fault.New(fault.Invalid, "position %d: the history of %s has %d events", c.r.After, c.h.Start.Run, n)
	case placed:
		at = c.r.After
	case c.r.Mode == Reset:
		return 0, fault.New(fault.Invalid, "reset of %s: say to which step or position", c.h.Start.Address)
	case c.r.Mode == Retry:
		at = c.beforeFailure()
	}

	// Without a place from the caller, the cut comes after the edited outcome. If the caller has
	// named a place, the edited outcome must be before it.
	for i := range c.r.Edits {
		p, err := c.editedPosition(&c.r.Edits[i])
		if err != nil {
			return 0, err
		}
		if !placed {
			at = p
		} else if p > at {
			return 0, fault.New(fault.Invalid, "the outcome of %q is at position %d, behind the cut at %d", c.r.Edits[i].Step, p, at)
		}
	}

	if c.r.Mode == Reset {
		if i := slices.IndexFunc(c.h.Events[:at], isCancel); i >= 0 {
			return 0, fault.New(fault.Invalid, "position %d is behind the cancel request at %d: reset to %d or before", at, i+1, i)
		}
	}

	return at, c.outsideOfLocks(at)
}

func isCancel(e model.Event) bool { return e.Kind == model.EventCancelRequest }

// beforeFailure returns the position before what ended the run: a cancel request, or the last step,
// child or call that failed.
func (c *cutter) beforeFailure() int64 {
	if i := slices.IndexFunc(c.h.Events, isCancel); i >= 0 {
		return int64(i)
	}
	for i := range slices.Backward(c.h.Events) {
		if e := &c.h.Events[i]; e.Kind == model.EventStepFailed || e.TimedOutForGood() || e.Kind == model.EventChildClosed && e.Status != model.Completed ||
			e.Kind == model.EventAnswered && e.Failure != nil {
			c.failed = e.ID
			return int64(i)
		}
	}
	return int64(len(c.h.Events))
}

// nameOf returns the name of the step or child that an event belongs to; empty for other events.
func nameOf(e *model.Event) string {
	switch e.Kind {
	case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed, model.EventChildStarted, model.EventTaskScheduled, model.EventTaskTimedOut:
		return e.Name
	case model.EventChildClosed:
		return e.Target.Type
	default:
		return ""
	}
}

// editedPosition returns the position of the outcome that an edit changes.
func (c *cutter) editedPosition(d *Edit) (int64, error) {
	for i := range c.h.Events {
		e := &c.h.Events[i]
		outcome := e.Kind == model.EventStepCompleted || e.Kind == model.EventStepFailed || e.Kind == model.EventChildClosed || e.TimedOutForGood()
		if outcome && (d.Position == e.Seq || d.Position == 0 && nameOf(e) == d.Step) {
			return e.Seq, nil
		}
	}

	for i := range c.h.Events { // no step has the name: look for the reply of an entity or service
		if e := &c.h.Events[i]; d.Position == 0 && c.isReply(e, d.Step) || d.Position == e.Seq && e.Kind == model.EventAnswered {
			return e.Seq, nil
		}
	}

	what := strconv.Quote(d.Step)
	if d.Position != 0 {
		what = fmt.Sprint("at position ", d.Position)
	}
	return 0, fault.New(fault.NotFound, "the history of %s has no outcome of a step, child or call %s", c.h.Start.Run, what)
}

// keep changes or blanks an event that cannot be kept as it is.
func (c *cutter) keep(i int) error {
	e := &c.events[i]
	switch e.Kind {
	case model.EventWatched:
		if !e.Blank() {
			c.blank(i)
		}
	case model.EventPaused, model.EventResumed:
		c.blank(i)
	case model.EventSent:
		c.keepSent(i)
	case model.EventAttemptFailed:
		e.Due = 0
		if c.failed == e.ID || c.unfinished[e.ID] {
			c.blank(i)
		}
	case model.EventTaskTimedOut:
		if e.TimedOutForGood() {
			return c.edit(e)
		}
		fallthrough
	case model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned:
		if c.unfinished[e.ID] {
			c.blank(i)
		}
	case model.EventLockAsked, model.EventLockGranted:
		if c.unlocked[e.ID] {
			c.blank(i)
		}
	case model.EventStepCompleted, model.EventStepFailed, model.EventChildClosed, model.EventAnswered:
		return c.edit(e)
	case model.EventChildStarted:
		return c.child(i)
	default:
	}

	return nil
}

// unfinishedTasks returns the tasks without an outcome among the kept events. The cut leaves them
// out, so that the code schedules them again. The scheduled tasks in the history belong to the
// source.
func (c *cutter) unfinishedTasks() map[string]bool {
	open := map[string]bool{}
	for i := range c.events {
		switch e := &c.events[i]; e.Kind {
		case model.EventTaskScheduled:
			open[e.ID] = true
		case model.EventStepCompleted, model.EventStepFailed, model.EventWithdrawn:
			delete(open, e.ID)
		case model.EventTaskTimedOut:
			if e.TimedOutForGood() {
				delete(open, e.ID)
			}
		default:
		}
	}
	return open
}

// blank replaces an event by a placeholder, so that later events keep their positions.
func (c *cutter) blank(i int) {
	c.plan.Blanks = append(c.plan.Blanks, c.events[i])
	c.events[i] = model.Blank(&c.events[i])
}

// edit gives an outcome another result.
func (c *cutter) edit(e *model.Event) error {
	for i := range c.r.Edits {
		at, err := c.editedPosition(&c.r.Edits[i])
		if err != nil {
			return err
		}
		if at != e.Seq {
			continue
		}
		e.Output, e.Failure = c.r.Edits[i].Output, nil
		switch e.Kind {
		case model.EventChildClosed:
			e.Status = model.Completed
		case model.EventAnswered:
		default:
			e.Kind, e.Status = model.EventStepCompleted, 0
		}
	}

	return nil
}

// child decides about a child whose outcome is not kept.
func (c *cutter) child(i int) error {
	e := &c.events[i]
	settled := func(o model.Event) bool {
		return o.ID == e.ID && (o.Kind == model.EventChildClosed || o.Kind == model.EventWithdrawn)
	}
	if slices.ContainsFunc(c.events[i:], settled) {
		return nil
	}

	status, found, err := c.r.Child(e.Target)
	if err != nil {
		return err
	}
	again := found

	switch c.r.Mode {
	case Import:
		if !found {
			return fault.New(fault.Conflict, "event %d: child %s has not ended and does not exist here: import it first", e.Seq, e.Target)
		}
	case Retry, Reset:
		again = found && (!status.Closed() || status == model.Completed || status == model.Continued)
	case Fork:
	}

	if again {
		if (c.r.Mode == Retry || c.r.Mode == Reset) && e.Waiter().Run.IsZero() {
			// The child accepts a cancel request only from the run that started it. So a cancel
			// request of the new run must name that run.
			starter := e.Waiter()
			starter.Run = c.h.Start.Run
			e.Watcher = &starter
		}
		c.plan.Again = append(c.plan.Again, *e)
	} else {
		c.blank(i)
	}

	return nil
}

// keepSent decides about a message whose answer is not kept. The receiver of the message sends the
// answer only to the source, not to the new run.
func (c *cutter) keepSent(i int) {
	id := c.events[i].ID
	if id == c.failed { // the call that failed: a retry sends it again
		c.blank(i)
		return
	}

	settled := func(o model.Event) bool {
		return o.ID == id && (o.Kind == model.EventAnswered || o.Kind == model.EventWithdrawn)
	}
	if slices.ContainsFunc(c.events[i:], settled) {
		return
	}
	later := c.h.Events[c.plan.Position:]
	if k := slices.IndexFunc(later, settled); k >= 0 && later[k].Kind == model.EventAnswered {
		c.plan.Added = append(c.plan.Added, later[k])
		return
	}

	c.blank(i)
}

// addAccepted adds messages that the run accepted after the cut, so that the code of the new run
// gets them. Signals that an operator has dropped stay dropped.
func (c *cutter) addAccepted() {
	dropped, answers := map[int64]bool{}, map[int64]*model.Event{}
	for i := range c.h.Events {
		switch e := &c.h.Events[i]; e.Kind {
		case model.EventSignalDropped:
			dropped[e.Ref] = true
		case model.EventUpdateAnswered:
			answers[e.Ref] = e
		default:
		}
	}

	for _, e := range c.h.Events[c.plan.Position:] {
		switch e.Kind {
		case model.EventSignalDropped:
			if e.Ref <= c.plan.Position {
				c.plan.Added = append(c.plan.Added, e)
			}
		case model.EventSignalReceived:
			if !dropped[e.Seq] {
				c.plan.Added = append(c.plan.Added, e)
			}
		case model.EventPromiseSettled:
			c.plan.Added = append(c.plan.Added, e)
		case model.EventUpdateReceived:
			if c.isAccepted(answers[e.Seq]) {
				c.plan.Added = append(c.plan.Added, e)
			}
		default:
		}
	}
}

// isAccepted reports whether the new run must know an update that came after the cut. answer is nil
// if the source has not answered the update. If the update succeeded, its caller relies on it, and
// the cut removes what it did. If it failed, or was refused because the source ended, its caller
// knows that, and the update must not take effect later. The core removes senders that no longer
// wait for an answer.
func (c *cutter) isAccepted(answer *model.Event) bool {
	if answer == nil {
		return !c.h.Outcome.Status.Closed()
	}
	return answer.Failure == nil
}
