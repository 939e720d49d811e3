package sim

import (
	"github.com/perdure/perdure/internal/model"
)

// hold is a run that a worker holds.
type hold struct {
	w         *worker
	run       model.RunID
	gen       uint64
	since     model.Time // the owner's clock at the hand-over
	m         machine
	marks     [maxBlocks + 1][maxAsks]mark
	running   int
	unacked   int // reported events that the lane has not delivered yet
	ahead     *ahead
	reported  bool // at least one turn
	closed    bool // it has reported the end
	released  bool // it has asked to release the run
	thinking  bool
	dropped   bool
	lastWaits string
	lastSeen  int64          // the last event that the last turn had seen or assumed
	replied   map[int64]bool // positions of updates that were answered in this activation
	pinning   bool           // has asked to be pinned

	// While a step runs inline, the code is inside it. Commands before it are kept here, and new
	// events wait in mail.
	inline bool
	kept   []model.Command
	mail   []model.Event
}

// last is the position of the last event that the hold has received.
func (h *hold) last() int64 { return h.m.seen + int64(len(h.mail)) }

// mark records what a worker has already requested in this activation.
type mark uint8

const (
	markStarted mark = 1 << iota // timer, child, send
	markStopped                  // deadline
	markWithdrawn
	markTaken
	markOutcome // reported
	markRunning
	markRetry // the back-off is over
)

// ahead is a turn that assumed the outcome of its first command.
type ahead struct {
	kind     model.EventKind
	id       string
	marks    [maxBlocks + 1][maxAsks]mark
	replies  []int64
	eventful int
}

func (w *worker) activate(a *model.Activation) {
	s := w.p.s
	if s.opts.Trace {
		s.logf("%s worker %d activates %s of %s gen %x with %d events", w.p.name(), w.id, short(a.Start.Run), a.Start.Address.Key, a.Generation, len(a.Events))
	}

	if w.bad {
		t := model.Turn{
			Run: a.Start.Run, Generation: a.Generation, Seen: int64(len(a.Events)),
			Blocked: &model.Reason{Code: model.WaitStuck, Detail: "bad worker"},
		}
		s.after(s.between(0, 500), w.p, func() { w.report(t) })
		return
	}

	start := a.Start
	h := &hold{w: w, run: start.Run, gen: a.Generation, since: a.Now, m: s.newMachine(&start)}
	w.held[h.run] = h
	for i := range a.Events {
		h.m.feed(&a.Events[i])
	}
	h.check()
	h.think()
}

// check fails if the history does not fit the program.
func (h *hold) check() {
	if err := h.m.broken; err != nil {
		h.w.p.s.fail("I13: history of %s (%s) as %s has it: %v", short(h.run), h.m.start.Address.Key, h.w.p.name(), err)
	}
}

func (h *hold) deliver(events []model.Event) {
	s := h.w.p.s
	if len(events) == 0 {
		s.fail("worker gets nothing for %s", short(h.run))
	}

	if h.inline {
		h.mail = append(h.mail, events...)
		return
	}

	if h.ahead != nil {
		if e := &events[0]; e.Kind != h.ahead.kind || e.ID != h.ahead.id {
			// Another event came first, so the lane dropped everything except the fact.
			s.did(opDiverged)
			for b := range h.marks {
				for a := range h.marks[b] {
					h.marks[b][a] &^= h.ahead.marks[b][a]
				}
			}
			for _, seq := range h.ahead.replies {
				delete(h.replied, seq)
			}
			h.unacked -= h.ahead.eventful
			h.closed, h.lastSeen = false, -1 // it has not reported that it has seen this event
		}
		h.ahead = nil
	}

	for i := range events {
		e := &events[i]
		if b, a, ok := parseAsk(e.ID); ok && h.marks[b][a]&reportedBy(e.Kind) != 0 {
			h.unacked--
			if e.Kind == model.EventAttemptFailed {
				h.marks[b][a] &^= markOutcome | markRetry
			}
		}
		if e.Kind == model.EventUpdateAnswered && h.replied[e.Ref] || e.Kind == model.EventPinned && h.pinning {
			h.unacked--
		}
		h.m.feed(e)
	}

	h.check()
	h.released = false
	h.think()
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
	case model.EventChildStarted, model.EventSent, model.EventStateSet, model.EventVersionMarked, model.EventLabeled, model.EventTaskScheduled,
		model.EventLockAsked, model.EventUnlocked:
		return markStarted
	default:
		return 0
	}
}

// The lane calls retry when a back-off is over.
func (h *hold) retry(id string) {
	if b, a, ok := parseAsk(id); ok {
		h.marks[b][a] |= markRetry
		h.think()
	}
}

// think schedules a turn of the run.
func (h *hold) think() {
	if !h.thinking {
		h.thinking = true
		s := h.w.p.s
		s.after(s.between(0, 200), h.w.p, h.turn)
	}
}

// turn continues the program: it sends new commands and runs the steps.
func (h *hold) turn() {
	h.thinking = false
	if h.dropped || h.closed || h.released || h.ahead != nil || h.inline {
		return
	}
	s := h.w.p.s
	started := h.startSteps()
	h.restartTimer()
	commands, marks, eventful := h.commands(&h.m)
	replies := h.replies(&h.m, &commands, &eventful)
	h.pin(&commands, &eventful)

	if started == 1 && h.running == 1 && h.unacked == 0 && len(commands) == eventful && records(commands) && s.chance(s.plan.ahead) {
		h.take(marks, eventful, replies)
		h.inline, h.kept = true, commands
		return
	}

	waits := h.m.waits(h.wanted())
	quiet := len(commands) == 0 && h.m.end == nil && h.reported && waits[0].Name == h.lastWaits && h.m.seen == h.lastSeen
	if !quiet {
		h.take(marks, eventful, replies)
		h.send(model.Turn{Commands: commands, Close: h.m.close(), Waits: waits})
	}

	if !h.closed && h.running == 0 && h.unacked == 0 && s.chance(s.plan.release) {
		seen := h.m.seen
		s.after(h.idles(), h.w.p, func() { h.release(seen) })
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

// idles draws how long the worker keeps an idle run: sometimes only until a back-off ends.
func (h *hold) idles() int64 {
	s := h.w.p.s
	for b := range h.m.asks {
		for a := range h.m.asks[b] {
			if x := &h.m.asks[b][a]; x.asked && !x.done && !x.gone && x.attempts > 0 && s.chance(0.5) {
				return max(0, int64(x.due-h.w.p.now())+s.between(-500, 1500))
			}
		}
	}
	return s.between(0, 30*millisecond)
}

// restartTimer moves a timer from time to time: it stops the timer in one turn and starts it with
// another due time in the next.
func (h *hold) restartTimer() {
	s := h.w.p.s
	if s.healed || !s.chance(s.plan.restart) {
		return
	}

	for b := range h.m.asks {
		for a := range h.m.asks[b] {
			x := &h.m.asks[b][a]
			if !x.asked || x.done || x.gone || !h.m.p.timed(b, a) || h.marks[b][a]&markStarted == 0 {
				continue
			}
			s.did(opTimerRestarted)
			h.marks[b][a] &^= markStarted
			x.timer += model.Time(s.between(-20, 100) * millisecond)
			h.send(model.Turn{
				Commands: []model.Command{{Kind: model.CommandStopTimer, Event: model.Event{ID: h.m.p.ids[b][a]}}},
				Waits:    []model.Reason{{Code: model.WaitTurn}},
			})
			return
		}
	}
}

func (h *hold) send(t model.Turn) {
	s := h.w.p.s
	t.Run, t.Generation, t.Seen, t.Running = h.run, h.gen, h.m.seen, h.wanted()
	h.lastSeen = t.Seen + int64(t.Ahead)
	h.reported = true
	t.Close = h.retained(t.Close)
	h.closed = t.Close != nil
	if len(t.Waits) > 0 {
		h.lastWaits = t.Waits[0].Name
	}

	if !s.healed && s.chance(s.plan.stale) {
		s.hurt(faultStaleTurn)
		old := t
		old.Generation -= uint64(len(h.w.p.inc0()))
		h.w.report(old)
	}

	if s.opts.Trace {
		s.logf("%s worker %d reports for %s: %s", h.w.p.name(), h.w.id, short(h.run), describeTurn(&t))
	}
	if !h.w.report(t) {
		h.drop()
	}
}

// inc0 returns the shells of the current incarnation, if there is one.
func (p *proc) inc0() []*shell {
	if p.inc == nil {
		return nil
	}
	return p.inc.shells
}

// take records the requests of a turn.
func (h *hold) take(marks [maxBlocks + 1][maxAsks]mark, eventful int, replies []int64) {
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
func (h *hold) commands(m *machine) (cs []model.Command, marks [maxBlocks + 1][maxAsks]mark, eventful int) {
	for b := range m.asks {
		for a := range m.asks[b] {
			x := &m.asks[b][a]
			if !x.asked {
				continue
			}
			had := h.marks[b][a]

			add := func(mk mark, event bool, c model.Command) {
				if had&mk != 0 {
					return
				}
				marks[b][a] |= mk
				c.Event.ID = m.p.ids[b][a]
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

// ask adds the commands of ask a of block b.
//
//arch:parameters the place of the ask in the program, and the collector of its commands
func (h *hold) ask(m *machine, b, a int, x *ask, add func(mk mark, event bool, c model.Command)) {
	timed := m.p.timed(b, a)
	var blk *block
	if b != cleanupBlock {
		blk = &m.p.blocks[b]
	}

	switch {
	case timed && !x.done && !x.gone:
		add(markStarted, false, model.Command{Kind: model.CommandStartTimer, Event: model.Event{Due: x.timer}})
	case timed && !x.done && x.gone && blk.deadline(a):
		add(markStopped, false, model.Command{Kind: model.CommandStopTimer})
	case blk == nil || timed:
	case blk.kind == blockSignal && x.ref > 0 && !x.recorded:
		add(markTaken, true, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Name: blk.name, Ref: x.ref}})
	case (blk.kind == blockChild || blk.kind == blockDetach) && !x.recorded && !x.gone:
		c := model.Command{Kind: model.CommandStartChild, Reuse: blk.reuse, Event: model.Event{
			Target: blk.childOf(m.start, b), Input: input(blk.program, 0, 0), Policy: blk.policy,
		}}
		if h.w.p.s.labels {
			c.Labels = []model.Label{{Name: "child", Value: "yes"}}
		}
		add(markStarted, true, c)
	case blk.kind == blockWatch && !x.recorded && !x.gone:
		add(markStarted, true, model.Command{Kind: model.CommandWatch, Event: model.Event{Target: blk.target}})
	case blk.kind == blockLabel && !x.recorded:
		l := blk.label()
		add(markStarted, true, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventLabeled, Name: l.Name, Output: model.TextPayload(l.Value)}})
	case blk.kind == blockNote && !x.recorded:
		add(markStarted, true, blk.note())
	case blk.kind == blockTask && !x.recorded && !x.gone:
		spec := *blk.errand.spec
		add(markStarted, true, model.Command{Kind: model.CommandSchedule, Event: model.Event{
			Kind: model.EventTaskScheduled, Name: spec.Kind, Input: blk.errand.work, Task: &spec,
		}})
	case blk.kind == blockSend && !x.recorded && !x.gone:
		msg := model.Message{Kind: model.MessageSignal, To: blk.target, Name: blk.name, Input: signalPayload(sendID(m.start.Run, b))}
		if blk.named {
			msg.RequestID = m.start.Address.Key + " " + m.p.ids[b][a]
		}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Event: model.Event{Name: blk.name, Target: blk.target}, Message: &msg})
	case blk.kind == blockCall && !x.recorded && !x.gone:
		msg := model.Message{Kind: model.MessageUpdate, To: blk.target, Name: "u", Input: signalPayload(callID(m.start.Run, b, blk.slow))}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Event: model.Event{Name: "u", Target: blk.target}, Message: &msg})
	case (blk.kind == blockOperate || blk.kind == blockTell) && !x.recorded && !x.gone:
		d := blk.deeds[0]
		d.id = follows(sendID(m.start.Run, b), m.p.ids[b][a])
		msg := model.Message{Kind: model.MessageCall, To: blk.targets[0], Name: blk.names[0], Input: d.input(), OneWay: blk.kind == blockTell}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Event: model.Event{Name: msg.Name, Target: msg.To}, Message: &msg})
	case blk.kind == blockSection:
		h.askSection(m, blk, b, a, x, add)
	}

	begun := !m.p.step(b, a) || h.marks[b][a]&(markRunning|markOutcome) != 0 || x.attempts > 0
	if x.gone && !x.done && !x.withdrawn && begun && (blk == nil || !blk.deadline(a)) && (timed || m.p.step(b, a) || x.recorded || h.marks[b][a]&markStarted != 0) {
		add(markWithdrawn, true, model.Command{Kind: model.CommandWithdraw})
	}
}

// sendID returns the id of the signal that a block of a run sends.
func sendID(run model.RunID, b int) uint64 {
	h := uint64(14695981039346656037)
	for _, x := range run {
		h = (h ^ uint64(x)) * 1099511628211
	}
	return (h^uint64(b))*1099511628211 | 1<<63
}

// callID returns the id of the update that a block of a run sends.
func callID(run model.RunID, b int, slow bool) uint64 {
	id := sendID(run, b)
	switch {
	case !slow:
		return id &^ 3
	case id&8 != 0:
		return id | 7
	default:
		return id&^7 | 3
	}
}

// startSteps starts the bodies of the steps that are ready.
func (h *hold) startSteps() (started int) {
	m := &h.m
	for b := range m.asks {
		for a := range m.asks[b] {
			x := &m.asks[b][a]
			if !x.asked || x.done || x.gone || !m.p.step(b, a) || h.marks[b][a]&(markRunning|markOutcome) != 0 {
				continue
			}
			if x.attempts > 0 && x.due > h.since && h.marks[b][a]&markRetry == 0 {
				continue // it waits for the end of its back-off
			}

			h.marks[b][a] |= markRunning
			h.running++
			started++
			took := int64(0)
			if b != cleanupBlock {
				took = m.p.blocks[b].took
			}
			s := h.w.p.s
			s.after(took, h.w.p, func() { h.ran(b, a) })
		}
	}

	return started
}

// wanted reports whether a body runs whose outcome the program needs. A withdrawn body may still
// run, but a later worker would not run it again.
func (h *hold) wanted() bool {
	for b := range h.marks {
		for a := range h.marks[b] {
			if h.marks[b][a]&markRunning != 0 && !h.m.asks[b][a].gone {
				return true
			}
		}
	}
	return false
}

// ran runs when the body of a step has returned.
func (h *hold) ran(b, a int) {
	if h.dropped || h.marks[b][a]&markRunning == 0 {
		return
	}
	h.marks[b][a] &^= markRunning
	h.running--
	x := &h.m.asks[b][a]
	if x.gone || h.closed {
		h.think()
		return
	}

	c := h.outcome(b, a)
	h.marks[b][a] |= markOutcome
	s := h.w.p.s
	if h.ahead != nil {
		s.fail("worker runs a step while it is ahead of the history")
	}
	alone := h.running == 0 && h.unacked == len(h.kept) && c.Kind == model.CommandRecord && len(h.mail) == 0
	h.unacked++
	t := model.Turn{Commands: append(h.kept, c), Waits: h.m.waits(h.wanted())}
	if alone && (h.inline || s.chance(s.plan.ahead)) {
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
		h.deliver(news)
	}
}

// outcome returns the outcome of an attempt.
func (h *hold) outcome(b, a int) model.Command {
	x := &h.m.asks[b][a]
	e := model.Event{ID: h.m.p.ids[b][a], Name: "step", Kind: model.EventStepCompleted}
	attempt := x.attempts + 1
	if b == cleanupBlock || a > 0 || attempt > h.m.p.blocks[b].fails {
		e.Output = model.Payload{Data: []byte{byte(attempt)}}
		return model.Command{Kind: model.CommandRecord, Event: e}
	}
	blk := &h.m.p.blocks[b]
	e.Failure = &model.Failure{Message: "attempt fails"}
	if attempt >= blk.attempts {
		e.Kind = model.EventStepFailed
		return model.Command{Kind: model.CommandRecord, Event: e}
	}
	e.Attempt = attempt
	return model.Command{Kind: model.CommandRetry, Event: e, Delay: microseconds(blk.backoff)}
}

// runAhead assumes that the outcome of a step will be recorded, and adds the following commands to
// the turn.
func (h *hold) runAhead(t *model.Turn) {
	fact, facts := t.Commands[0].Event, len(t.Commands)
	next := h.m.clone()
	for i := range t.Commands {
		e := t.Commands[i].Event
		e.Seq, e.At = next.seen+1, max(next.last, h.w.p.now())
		next.feed(&e)
	}

	commands, marks, eventful := h.commands(&next)
	replies := h.replies(&next, &commands, &eventful)
	if len(commands) == 0 && next.end == nil {
		return
	}
	h.w.p.s.did(opAhead)
	h.take(marks, eventful, replies)
	h.ahead = &ahead{kind: fact.Kind, id: fact.ID, marks: marks, replies: replies, eventful: eventful}
	t.Commands = append(t.Commands, commands...)
	t.Ahead, t.Close, t.Waits = facts, next.close(), next.waits(true)
}

// release gives up an idle run.
func (h *hold) release(seen int64) {
	if h.dropped || h.closed || h.released || h.ahead != nil || h.running > 0 || h.unacked > 0 || h.m.seen != seen || h.thinking {
		return
	}
	inc := h.w.p.inc
	if inc == nil {
		return
	}
	h.released = true
	h.w.p.s.did(opReleased)
	waits := h.m.waits(false)
	sh := inc.shells[h.gen%uint64(len(inc.shells))]
	sh.put(nil, func(now model.Time) {
		sh.lane.Release(now, h.w.id, &model.Turn{Run: h.run, Generation: h.gen, Seen: seen, Waits: waits})
	})
}
