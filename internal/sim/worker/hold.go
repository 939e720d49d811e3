package worker

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// Hold is a run that a worker holds.
type Hold struct {
	w         *Worker
	run       model.RunID
	Gen       uint64
	since     model.Time // the owner's clock at the hand-over
	durable   int64      // the events up to this position are committed; the others are a preview
	m         scenario.Machine
	marks     [scenario.MaxBlocks + 1][scenario.MaxAsks]mark
	running   int
	unacked   int // reported events that the lane has not delivered yet
	ahead     *ahead
	reported  bool // the hold has reported at least one turn
	closed    bool // the hold has reported the end
	released  bool // the hold has asked the owner to take the run back
	thinking  bool
	dropped   bool
	lastWaits string
	lastSeen  int64          // position of the last event that the last turn had seen or assumed
	replied   map[int64]bool // positions of updates that were answered in this activation
	pinning   bool           // the hold has asked that the run is pinned
	active    bool           // the code has something to do, or a body runs
	turns     int            // turns that the hold has reported
	answers   int            // answers that the hold got for turns without events

	// While a step runs inline, the code of the workflow is inside the step. The commands before
	// the step are kept here, and new events wait in mail.
	inline bool
	kept   []model.Command
	mail   []model.Event
	bodies []*body // bodies that the hold has begun or taken over
}

// Last is the position of the last event that the hold has received.
func (h *Hold) Last() int64 { return h.m.Seen + int64(len(h.mail)) }

// mark records what a worker has already requested in this activation.
type mark uint8

const (
	markStarted mark = 1 << iota // the start of a timer or a child, or a message
	markStopped                  // the stop of a deadline
	markWithdrawn
	markTaken
	markOutcome // the outcome was reported
	markRunning
	markRetry // the back-off is over
)

// ahead is a turn whose later commands assume that its first command, the outcome of a step, takes
// effect.
type ahead struct {
	kind     model.EventKind
	id       string
	marks    [scenario.MaxBlocks + 1][scenario.MaxAsks]mark
	replies  []int64
	eventful int
}

// Activate hands a run to the worker.
func (w *Worker) Activate(a *model.Activation) {
	s := w.Oracle
	if s.Tracing {
		s.Logf("%s worker %d activates %s of %s gen %x with %d events", w.Process.Name(), w.ID, scenario.Short(a.Start.Run), a.Start.Address.Key, a.Generation, len(a.Events))
	}

	if w.Bad {
		t := model.Turn{
			Run: a.Start.Run, Generation: a.Generation, Seen: int64(len(a.Events)),
			Blocked: &model.Reason{Code: model.WaitStuck, Detail: "bad worker"},
		}
		s.After(s.Between(0, 500), w.Process, func() { w.report(t) })
		return
	}

	w.Disclaim(a.Start.Run)
	h := &Hold{w: w, run: a.Start.Run, Gen: a.Generation, since: a.Now, durable: int64(len(a.Events)), m: s.NewMachine(a.Start)}
	h.m.Hide(a.Events)
	w.Held[h.run] = h
	h.awake()
	for i := range a.Events {
		h.m.Feed(&a.Events[i])
	}
	h.check()
	h.think()
}

// check fails if the history does not fit the program.
func (h *Hold) check() {
	if err := h.m.Broken; err != nil {
		h.w.Oracle.Fail("I13: history of %s (%s) as %s has it: %v", scenario.Short(h.run), h.m.Start.Address.Key, h.w.Process.Name(), err)
	}
}

// Deliver hands new events of the run to the worker.
func (h *Hold) Deliver(events []model.Event) {
	h.confirm(events[len(events)-1].Seq)
	h.feed(events)
}

// Preview hands events to the worker that are not committed yet.
func (h *Hold) Preview(events []model.Event) {
	if h.Wanted() || h.inline {
		h.w.Oracle.Fail("worker gets a preview of %s while it runs a step", scenario.Short(h.run))
	}
	h.w.Oracle.Did(scenario.OpPreview)
	h.feed(events)
}

// Confirm tells the worker that events of a preview are durable.
func (h *Hold) Confirm(position int64) {
	if position <= h.durable || position > h.Last() {
		h.w.Oracle.Fail("worker hears that %d events of %s are durable, after %d of %d", position, scenario.Short(h.run), h.durable, h.Last())
	}
	h.confirm(position)
	h.think()
}

func (h *Hold) confirm(position int64) { h.durable = max(h.durable, position) }

// hasPreview reports whether the worker knows events that are not committed. Until they are, it
// starts no step, answers no query and does not release the run.
func (h *Hold) hasPreview() bool { return h.Last() > h.durable }

// feed gives the program new events.
func (h *Hold) feed(events []model.Event) {
	s := h.w.Oracle
	if slices.ContainsFunc(events, func(e model.Event) bool { return e.Kind.News() }) {
		h.awake()
	}

	if h.inline {
		h.mail = append(h.mail, events...)
		return
	}

	if h.ahead != nil {
		if e := &events[0]; e.Kind != h.ahead.kind || e.ID != h.ahead.id {
			// Another event came first, so the lane kept only the outcome and dropped the commands
			// that came after the outcome in the turn.
			s.Did(scenario.OpDiverged)
			for b := range h.marks {
				for a := range h.marks[b] {
					h.marks[b][a] &^= h.ahead.marks[b][a]
				}
			}
			for _, seq := range h.ahead.replies {
				delete(h.replied, seq)
			}
			h.unacked -= h.ahead.eventful
			h.closed, h.lastSeen = false, -1 // the hold has not yet reported this event as seen
		}
		h.ahead = nil
	}

	for i := range events {
		e := &events[i]
		if b, a, ok := scenario.ParseAsk(e.ID); ok && h.marks[b][a]&reportedBy(e.Kind) != 0 {
			h.unacked--
			if e.Kind == model.EventAttemptFailed {
				h.marks[b][a] &^= markOutcome | markRetry
			}
		}
		if e.Kind == model.EventUpdateAnswered && h.replied[e.Ref] || e.Kind == model.EventPinned && h.pinning {
			h.unacked--
		}
		h.m.Feed(e)
	}

	h.check()
	h.released = false
	h.think()
}

// Answer notes that a turn without events is answered. It returns false if there was no such turn.
func (h *Hold) Answer() bool {
	h.answers++
	return h.answers <= h.turns
}

// awake notes that the run has something to do, so it needs a slot of the worker.
func (h *Hold) awake() {
	h.active = true
	w, mine := h.w, 0
	for _, o := range w.Held {
		if o.active && o.Gen>>32 == h.Gen>>32 {
			mine++
		}
	}
	if n := w.Offer.Slots; n > 0 && mine > n && !w.Kept {
		w.Oracle.Fail("I21: worker %d of %s works on %d runs and has %d slots", w.ID, w.Process.Name(), mine, n)
	}
}

// reportedBy returns the mark of the command that produces an event.
func reportedBy(k model.EventKind) mark {
	switch k {
	case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed:
		return markOutcome
	case model.EventWithdrawn:
		return markWithdrawn
	case model.EventSignalTaken:
		return markTaken
	case model.EventChildStarted, model.EventSent, model.EventStateSet, model.EventVersionMarked, model.EventNoted, model.EventLabeled, model.EventTaskScheduled,
		model.EventLockAsked, model.EventUnlocked:
		return markStarted
	default:
		return 0
	}
}

// Retry tells the worker that a back-off is over.
func (h *Hold) Retry(id string) {
	if b, a, ok := scenario.ParseAsk(id); ok {
		h.marks[b][a] |= markRetry
		h.awake()
		h.think()
	}
}

// think schedules a turn of the run.
func (h *Hold) think() {
	if !h.thinking {
		h.thinking = true
		s := h.w.Oracle
		s.After(s.Between(0, 200), h.w.Process, h.turn)
	}
}

// turn continues the program: it sends new commands and runs the steps.
func (h *Hold) turn() {
	h.thinking = false
	if h.dropped || h.closed || h.released || h.ahead != nil || h.inline {
		return
	}
	s := h.w.Oracle
	started := h.startSteps()
	h.restartTimer()
	commands, marks, eventful := h.commands(&h.m)
	replies := h.replies(&h.m, &commands, &eventful)
	h.pin(&commands, &eventful)

	if started == 1 && h.running == 1 && h.unacked == 0 && len(commands) == eventful && records(commands) && s.Chance(s.Plan.Ahead) {
		h.take(marks, eventful, replies)
		h.inline, h.kept = true, commands
		return
	}

	waits := h.m.Reasons(h.Wanted() || h.isHeldBack())
	quiet := len(commands) == 0 && h.m.End == nil && h.reported && waits[0].Name == h.lastWaits && h.m.Seen == h.lastSeen
	if !quiet {
		h.take(marks, eventful, replies)
		h.send(model.Turn{Commands: commands, Close: h.m.Close(), Waits: waits})
	}

	if !h.closed && h.running == 0 && h.unacked == 0 && s.Chance(s.Plan.Release) {
		seen := h.m.Seen
		s.After(h.idles(), h.w.Process, func() { h.release(seen) })
	}
}

// records reports whether the commands only record something.
func records(cs []model.Command) bool {
	for i := range cs {
		if cs[i].Kind != model.CommandRecord {
			return false
		}
	}
	return true
}

// idles draws how long the worker keeps an idle run. Sometimes it keeps the run only until a
// back-off ends.
func (h *Hold) idles() int64 {
	s := h.w.Oracle
	for b := range h.m.Asks {
		for a := range h.m.Asks[b] {
			if x := &h.m.Asks[b][a]; x.Asked && !x.Done && !x.Gone && x.Attempts > 0 && s.Chance(0.5) {
				return max(0, int64(x.Due-h.w.Host.Now())+s.Between(-500, 1500))
			}
		}
	}
	return s.Between(0, 30*kernel.Millisecond)
}

// restartTimer sometimes moves a timer: it stops the timer in one turn, and starts the same timer
// with another due time in the next turn.
func (h *Hold) restartTimer() {
	s := h.w.Oracle
	if s.Healed || !s.Chance(s.Plan.Restart) {
		return
	}

	for b := range h.m.Asks {
		for a := range h.m.Asks[b] {
			x := &h.m.Asks[b][a]
			if !x.Asked || x.Done || x.Gone || !h.m.Program.Timed(b, a) || h.marks[b][a]&markStarted == 0 {
				continue
			}
			s.Did(scenario.OpTimerRestarted)
			h.marks[b][a] &^= markStarted
			x.Timer += model.Time(s.Between(-20, 100) * kernel.Millisecond)
			h.send(model.Turn{
				Commands: []model.Command{{Kind: model.CommandStopTimer, Event: model.Event{ID: h.m.Program.Ids[b][a]}}},
				Waits:    []model.Reason{{Code: model.WaitTurn}},
			})
			return
		}
	}
}

func (h *Hold) send(t model.Turn) {
	s := h.w.Oracle
	t.Run, t.Generation, t.Seen, t.Running = h.run, h.Gen, h.m.Seen, h.Wanted()
	h.lastSeen = t.Seen + int64(t.Ahead)
	h.reported = true
	h.turns++
	t.Close = h.retained(t.Close)
	h.closed = t.Close != nil
	h.active = !h.closed && (t.Running || len(t.Waits) == 0 || t.Waits[0].Code == model.WaitStep)
	if len(t.Waits) > 0 {
		h.lastWaits = t.Waits[0].Name
	}

	if !s.Healed && s.Chance(s.Plan.Stale) {
		s.Hurt(scenario.FaultStaleTurn)
		old := t
		old.Generation -= uint64(h.w.Host.Lanes())
		h.w.report(old)
	}

	if s.Tracing {
		s.Logf("%s worker %d reports for %s: %s", h.w.Process.Name(), h.w.ID, scenario.Short(h.run), scenario.DescribeTurn(&t))
	}
	if !h.w.report(t) {
		h.Drop()
	}
}

// take records the requests of a turn.
func (h *Hold) take(marks [scenario.MaxBlocks + 1][scenario.MaxAsks]mark, eventful int, replies []int64) {
	for b := range marks {
		for a := range marks[b] {
			h.marks[b][a] |= marks[b][a]
		}
	}
	for _, seq := range replies {
		if h.replied == nil {
			h.replied = map[int64]bool{}
		}
		h.replied[seq] = true
	}
	h.unacked += eventful
}

// commands returns the requests of the program that the worker has not sent yet.
func (h *Hold) commands(m *scenario.Machine) (cs []model.Command, marks [scenario.MaxBlocks + 1][scenario.MaxAsks]mark, eventful int) {
	for b := range m.Asks {
		for a := range m.Asks[b] {
			x := &m.Asks[b][a]
			if !x.Asked {
				continue
			}
			had := h.marks[b][a]

			add := func(mk mark, event bool, c model.Command) {
				if had&mk != 0 {
					return
				}
				marks[b][a] |= mk
				c.Event.ID = m.Program.Ids[b][a]
				if event {
					eventful++
				}
				cs = append(cs, c)
			}

			h.ask(m, b, a, x, add)
		}
	}

	return cs, marks, eventful
}

// startTimer asks for a timer. In some cases it gives a delay, which the owner adds to its own
// time.
func startTimer(m *scenario.Machine, x *scenario.Ask) model.Command {
	c := model.Command{Kind: model.CommandStartTimer, Event: model.Event{Due: x.Timer}}
	if wait := x.Timer.Sub(m.Last); x.Timer%4 == 0 && wait > 0 {
		c.Event.Due, c.Delay = 0, wait
	}
	return c
}

// ask adds the commands of ask a of block b.
//
//arch:parameters the place of the ask in the program, and the collector of its commands
func (h *Hold) ask(m *scenario.Machine, b, a int, x *scenario.Ask, add func(mk mark, event bool, c model.Command)) {
	timed := m.Program.Timed(b, a)
	var blk *scenario.Block
	if b != scenario.CleanupBlock {
		blk = &m.Program.Blocks[b]
	}

	switch {
	case timed && !x.Done && !x.Gone:
		add(markStarted, false, startTimer(m, x))
	case timed && !x.Done && x.Gone && blk.Deadline(a):
		add(markStopped, false, model.Command{Kind: model.CommandStopTimer})
	case blk == nil || timed:
	case blk.Kind == scenario.BlockSignal && x.Ref > 0 && !x.Recorded:
		add(markTaken, true, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Name: blk.Name, Ref: x.Ref}})
	case (blk.Kind == scenario.BlockChild || blk.Kind == scenario.BlockDetach) && !x.Recorded && !x.Gone:
		c := model.Command{Kind: model.CommandStartChild, Reuse: blk.Reuse, Event: model.Event{
			Target: blk.ChildOf(m.Start, b), Input: scenario.Input(blk.Program, 0, 0), Policy: blk.Policy,
		}}
		if h.w.Oracle.Has(scenario.Labels) {
			c.Labels = []model.Label{{Name: "child", Value: "yes"}}
		}
		add(markStarted, true, c)
	case blk.Kind == scenario.BlockWatch && !x.Recorded && !x.Gone:
		add(markStarted, true, model.Command{Kind: model.CommandWatch, Event: model.Event{Target: blk.Target}})
	case blk.Kind == scenario.BlockLabel && !x.Recorded:
		l := blk.Label()
		add(markStarted, true, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventLabeled, Name: l.Name, Output: model.TextPayload(l.Value)}})
	case blk.Kind == scenario.BlockNote && !x.Recorded:
		add(markStarted, true, blk.Note())
	case blk.Kind == scenario.BlockTask && !x.Recorded && !x.Gone:
		spec := *blk.Errand.Spec
		add(markStarted, true, model.Command{Kind: model.CommandSchedule, Event: model.Event{
			Kind: model.EventTaskScheduled, Name: spec.Kind, Input: blk.Errand.Work, Task: &spec,
		}})
	case blk.Kind == scenario.BlockSend && !x.Recorded && !x.Gone:
		msg := model.Message{Kind: model.MessageSignal, To: blk.Target, Name: blk.Name, Input: scenario.SignalPayload(scenario.SendID(m.Start.Run, b))}
		if blk.Named {
			msg.RequestID = m.Start.Address.Key + " " + m.Program.Ids[b][a]
		}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Event: model.Event{Name: blk.Name, Target: blk.Target}, Message: &msg})
	case blk.Kind == scenario.BlockCall && !x.Recorded && !x.Gone:
		msg := model.Message{Kind: model.MessageUpdate, To: blk.Target, Name: "u", Input: scenario.SignalPayload(scenario.CallID(m.Start.Run, b, blk.Slow))}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Event: model.Event{Name: "u", Target: blk.Target}, Message: &msg})
	case (blk.Kind == scenario.BlockOperate || blk.Kind == scenario.BlockTell) && !x.Recorded && !x.Gone:
		d := blk.Deeds[0]
		d.ID = scenario.Follows(scenario.SendID(m.Start.Run, b), m.Program.Ids[b][a])
		msg := model.Message{Kind: model.MessageCall, To: blk.Targets[0], Name: blk.Names[0], Input: d.Input(), OneWay: blk.Kind == scenario.BlockTell}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Event: model.Event{Name: msg.Name, Target: msg.To}, Message: &msg})
	case blk.Kind == scenario.BlockSection:
		h.askSection(m, blk, b, a, x, add)
	}

	begun := !m.Program.Step(b, a) || h.marks[b][a]&(markRunning|markOutcome) != 0 || x.Attempts > 0
	if x.Gone && !x.Done && !x.Withdrawn && begun && (blk == nil || !blk.Deadline(a)) && (timed || m.Program.Step(b, a) || x.Recorded || h.marks[b][a]&markStarted != 0) {
		add(markWithdrawn, true, model.Command{Kind: model.CommandWithdraw})
	}
}

// startSteps starts the bodies of the steps that are ready.
func (h *Hold) startSteps() (started int) {
	m := &h.m
	if h.hasPreview() {
		return 0
	}
	for b := range m.Asks {
		for a := range m.Asks[b] {
			if !h.isOpen(b, a) {
				continue
			}
			x := &m.Asks[b][a]
			kept := h.takeOver(b, a, x.Attempts+1)
			if kept == nil && h.backsOff(b, a) {
				continue
			}

			h.marks[b][a] |= markRunning
			h.running++
			started++
			if kept != nil {
				h.bodies = append(h.bodies, kept)
				continue
			}
			took := int64(0)
			if b != scenario.CleanupBlock {
				took = m.Program.Blocks[b].Took
			}
			y := &body{hold: h, b: b, a: a, attempt: x.Attempts + 1}
			h.bodies = append(h.bodies, y)
			h.w.Host.Begins(h.run, b, a, y.attempt, h.since)
			h.w.Oracle.After(took+h.w.lingers(), h.w.Process, y.end)
		}
	}

	return started
}

// isOpen reports whether a step has no outcome, and no body of it runs.
func (h *Hold) isOpen(b, a int) bool {
	x := &h.m.Asks[b][a]
	return x.Asked && !x.Done && !x.Gone && h.m.Program.Step(b, a) && h.marks[b][a]&(markRunning|markOutcome) == 0
}

// backsOff reports whether a step waits for the end of its back-off.
func (h *Hold) backsOff(b, a int) bool {
	x := &h.m.Asks[b][a]
	return x.Attempts > 0 && x.Due > h.since && h.marks[b][a]&markRetry == 0
}

// isHeldBack reports whether a step can start when the preview of the worker is confirmed.
func (h *Hold) isHeldBack() bool {
	if !h.hasPreview() {
		return false
	}
	for b := range h.m.Asks {
		for a := range h.m.Asks[b] {
			if h.isOpen(b, a) && !h.backsOff(b, a) {
				return true
			}
		}
	}
	return false
}

// Wanted reports whether the program needs the outcome of a running body. The body of a withdrawn
// step may still run, but a later worker would not run it again.
func (h *Hold) Wanted() bool {
	for b := range h.marks {
		for a := range h.marks[b] {
			if h.marks[b][a]&markRunning != 0 && !h.m.Asks[b][a].Gone {
				return true
			}
		}
	}
	return false
}

// ran handles the end of the body of a step.
func (h *Hold) ran(b, a int) {
	if h.dropped || h.marks[b][a]&markRunning == 0 {
		return
	}
	h.marks[b][a] &^= markRunning
	h.running--
	x := &h.m.Asks[b][a]
	if x.Gone || h.closed {
		h.think()
		return
	}

	c := h.outcome(b, a)
	h.marks[b][a] |= markOutcome
	s := h.w.Oracle
	if h.ahead != nil {
		s.Fail("worker runs a step while it is ahead of the history")
	}
	alone := h.running == 0 && h.unacked == len(h.kept) && c.Kind == model.CommandRecord && len(h.mail) == 0
	h.unacked++
	t := model.Turn{Commands: append(h.kept, c), Waits: h.m.Reasons(h.Wanted())}
	if alone && (h.inline || s.Chance(s.Plan.Ahead)) {
		h.runAhead(&t)
	}
	h.inline, h.kept = false, nil
	if h.running == 0 && t.Ahead == 0 {
		// the code continues when the outcome is recorded
		t.Waits = []model.Reason{{Code: model.WaitStep, Name: "step"}}
	}
	h.send(t)

	if news := h.mail; len(news) > 0 && !h.dropped {
		h.mail = nil
		h.feed(news)
	}
}

// outcome returns the outcome of an attempt.
func (h *Hold) outcome(b, a int) model.Command {
	x := &h.m.Asks[b][a]
	e := model.Event{ID: h.m.Program.Ids[b][a], Name: "step", Kind: model.EventStepCompleted}
	attempt := x.Attempts + 1
	if b == scenario.CleanupBlock || a > 0 || attempt > h.m.Program.Blocks[b].Fails {
		e.Output = model.Payload{Data: []byte{byte(attempt)}}
		return model.Command{Kind: model.CommandRecord, Event: e}
	}
	blk := &h.m.Program.Blocks[b]
	e.Failure = &model.Failure{Message: "attempt fails"}
	if attempt >= blk.Attempts {
		e.Kind = model.EventStepFailed
		return model.Command{Kind: model.CommandRecord, Event: e}
	}
	e.Attempt = attempt
	return model.Command{Kind: model.CommandRetry, Event: e, Delay: kernel.Microseconds(blk.Backoff)}
}

// runAhead assumes that the outcome of a step will be recorded, and adds the following commands to
// the turn.
func (h *Hold) runAhead(t *model.Turn) {
	fact, facts := t.Commands[0].Event, len(t.Commands)
	next := h.m.Clone()
	for i := range t.Commands {
		e := t.Commands[i].Event
		e.Seq, e.At = next.Seen+1, max(next.Last, h.w.Host.Now())
		next.Feed(&e)
	}

	commands, marks, eventful := h.commands(&next)
	replies := h.replies(&next, &commands, &eventful)
	if len(commands) == 0 && next.End == nil {
		return
	}
	h.w.Oracle.Did(scenario.OpAhead)
	h.take(marks, eventful, replies)
	h.ahead = &ahead{kind: fact.Kind, id: fact.ID, marks: marks, replies: replies, eventful: eventful}
	t.Commands = append(t.Commands, commands...)
	t.Ahead, t.Close, t.Waits = facts, next.Close(), next.Reasons(true)
}

// release gives up an idle run.
func (h *Hold) release(seen int64) {
	if h.dropped || h.closed || h.released || h.ahead != nil || h.running > 0 || h.unacked > 0 || h.m.Seen != seen || h.thinking || h.hasPreview() {
		return
	}
	if !h.w.Host.Serves() {
		return
	}
	h.released = true
	h.w.Oracle.Did(scenario.OpReleased)
	waits := h.m.Reasons(false)
	h.w.Host.Post(h.Gen, func(now model.Time, l *lane.Lane) {
		l.Release(now, h.w.ID, &model.Turn{Run: h.run, Generation: h.Gen, Seen: seen, Waits: waits})
	})
}
