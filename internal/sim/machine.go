package sim

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// ask is the state of one request of a program.
type ask struct {
	asked bool
	// the history has that the child started, the message was sent or the signal was taken
	recorded  bool
	done      bool // the history has its outcome
	gone      bool // the program has abandoned it
	withdrawn bool // the history has that it was abandoned
	attempts  int  // failed attempts
	due       model.Time
	timer     model.Time // when its timer is due
	ref       int64      // the signal that was taken
	granted   int        // locks
}

// machine interprets a program. Its state is a function of the events that it was fed, and of
// nothing else.
type machine struct {
	p       *program
	start   *model.Start
	cans    int
	count   int // steps completed, over the whole chain
	pc      int
	asks    [maxBlocks + 1][maxAsks]ask
	signals []signal     // received and unread
	updates []openUpdate // received and unanswered
	pin     string       // the version that the run is pinned to
	settled uint8
	seen    int64
	last    model.Time
	cancel  bool
	broken  error // the history does not fit the program
	end     *model.Close
}

// signal is a signal that a run has received.
type signal struct {
	name string
	seq  int64
}

// newMachine starts a program.
func (s *Sim) newMachine(start *model.Start) machine {
	m := machine{start: start, last: start.Zero()}
	index, cans, count, ok := parseInput(start.Input)
	if !ok || index >= len(s.programs) {
		m.broken = fmt.Errorf("input %x names no program", start.Input.Data)
		return m
	}
	m.p, m.cans, m.count = s.programs[index], cans, count
	m.enter()
	m.advance()
	return m
}

// clone returns an independent copy.
func (m *machine) clone() machine {
	c := *m
	c.signals, c.updates = slices.Clone(m.signals), slices.Clone(m.updates)
	return c
}

// feed passes the next event to the program.
func (m *machine) feed(e *model.Event) {
	if m.broken != nil {
		return
	}

	if e.Seq != m.seen+1 {
		m.broken = fmt.Errorf("event %d follows event %d", e.Seq, m.seen)
		return
	}

	m.seen, m.last = e.Seq, e.At
	switch e.Kind {
	case model.EventSignalReceived:
		m.signals = append(m.signals, signal{e.Name, e.Seq})
	case model.EventPromiseSettled:
		for i, name := range promises {
			if name == e.Name {
				m.settled |= 1 << i
			}
		}
	case model.EventCancelRequest:
		m.cancel = true
	case model.EventWatched, model.EventPaused, model.EventResumed:
	case model.EventUpdateReceived:
		m.updates = append(m.updates, openUpdate{*e, m.pc})
	case model.EventUpdateAnswered:
		m.answered(e)
	case model.EventStateSet:
		if e.ID != "" { // otherwise the run before has set it
			m.answer(e)
		}
	case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed, model.EventTimerFired, model.EventWithdrawn,
		model.EventSignalTaken, model.EventChildStarted, model.EventChildClosed, model.EventSent, model.EventAnswered, model.EventVersionMarked, model.EventLabeled,
		model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut,
		model.EventLockAsked, model.EventLockGranted, model.EventUnlocked:
		m.answer(e)
	case model.EventPinned:
		if m.pin != "" {
			m.broken = fmt.Errorf("event %d pins the run a second time", e.Seq)
		}
		m.pin = e.Name
	case model.EventStarted, model.EventClosed, model.EventSignalDropped: // no simulated operator drops signals
		m.broken = fmt.Errorf("event %d is a %s", e.Seq, e.Kind)
	}

	m.advance()
}

// answer records an event that answers an ask.
func (m *machine) answer(e *model.Event) {
	b, i, ok := parseAsk(e.ID)
	if !ok || !m.asks[b][i].asked {
		m.broken = fmt.Errorf("event %d (%s) answers %q, which was not asked for", e.Seq, e.Kind, e.ID)
		return
	}

	a := &m.asks[b][i]
	if e.Kind == model.EventUnlocked {
		a = &m.asks[b][askUnlock] // the event has the name of its section
	}

	switch e.Kind {
	case model.EventStepCompleted:
		if !a.gone {
			m.count++
		}
		a.done = true
	case model.EventStepFailed, model.EventTimerFired, model.EventChildClosed:
		a.done = true
	case model.EventAnswered:
		if k := m.p.blocks[b].kind; !a.gone && e.Failure == nil && (k == blockCall || k == blockOperate || k == blockSection) {
			m.count++
		}
		a.done = true
	case model.EventTaskTimedOut:
		a.done = a.done || e.TimedOutForGood()
	case model.EventAttemptFailed:
		a.attempts, a.due = e.Attempt, e.Due
	case model.EventWithdrawn:
		a.withdrawn = true
		if !a.gone {
			m.broken = fmt.Errorf("event %d withdraws %s, which the program wants", e.Seq, e.ID)
		}
	case model.EventSignalTaken:
		a.recorded = true
		if a.ref != e.Ref {
			m.broken = fmt.Errorf("event %d takes signal %d, the program took %d", e.Seq, e.Ref, a.ref)
		}
	case model.EventChildStarted, model.EventSent, model.EventStateSet, model.EventVersionMarked, model.EventLabeled, model.EventTaskScheduled, model.EventLockAsked:
		a.recorded = true
	case model.EventUnlocked:
		a.recorded, a.done = true, true
	case model.EventLockGranted:
		a.granted++
		a.done = !a.gone && a.granted == len(model.SortLocks(m.p.blocks[b].locks))
	default:
	}
}

// enter makes the requests of the current block.
func (m *machine) enter() {
	if m.pc >= len(m.p.blocks) {
		m.finish()
		return
	}

	b := &m.p.blocks[m.pc]
	as := &m.asks[m.pc]
	ask := func(i int) { as[i].asked = true }
	timer := func(i int) {
		as[i].asked, as[i].timer = true, m.last+model.Time(b.wait)
	}

	switch b.kind {
	case blockStep, blockChild, blockDetach, blockWatch, blockSend, blockCall, blockSignal, blockPromise, blockNote, blockLabel, blockTask,
		blockOperate, blockTell, blockSection:
		ask(0)
		if b.wait > 0 {
			timer(1)
		}
	case blockSleep:
		timer(0)
	case blockRace:
		ask(0)
		timer(1)
	case blockAll:
		ask(0)
		ask(1)
		timer(2)
	}
}

// advance continues the program as far as it can without further events.
func (m *machine) advance() {
	for m.end == nil && m.broken == nil {
		if m.cancel && m.pc != cleanupBlock {
			m.giveUp()
			if !m.p.cleanup {
				m.end = &model.Close{Status: model.Canceled, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "canceled"}}
				return
			}
			m.pc = cleanupBlock
			m.asks[cleanupBlock][0].asked = true
		}

		if m.pc == cleanupBlock {
			if m.asks[cleanupBlock][0].done {
				m.end = &model.Close{Status: model.Canceled, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "cleaned up"}}
			}
			return
		}

		if !m.passed() {
			return
		}
		m.giveUp()
		m.pc++
		m.enter()
	}
}

// passed reports whether the current block is over.
func (m *machine) passed() bool {
	b, as := &m.p.blocks[m.pc], &m.asks[m.pc]
	late := b.wait > 0 && as[1].done
	switch b.kind {
	case blockStep, blockSleep, blockSend, blockTell:
		return as[0].done
	case blockSignal:
		if as[0].ref > 0 {
			return true
		}
		if i := slices.IndexFunc(m.signals, func(x signal) bool { return x.name == b.name }); i >= 0 && !late {
			as[0].ref = m.signals[i].seq
			m.signals = slices.Delete(m.signals, i, i+1)
			return true
		}
		return late
	case blockPromise:
		return m.settled&b.bit != 0 || late
	case blockChild, blockWatch, blockCall, blockTask, blockOperate:
		return as[0].done || late
	case blockSection:
		return m.inSection(b, as)
	case blockDetach, blockNote, blockLabel:
		return true
	case blockRace:
		return as[0].done || as[1].done
	case blockAll:
		return as[0].done && as[1].done && as[2].done
	}

	return false
}

// giveUp abandons the requests of the current block that are still open.
func (m *machine) giveUp() {
	b := &m.p.blocks[m.pc]
	if b.kind == blockSection {
		m.leaveSection(b, &m.asks[m.pc])
		return
	}
	for i := range m.asks[m.pc] {
		a := &m.asks[m.pc][i]
		switch {
		case !a.asked || a.done:
		case b.kind == blockDetach || b.kind == blockNote || b.kind == blockLabel || (i == 0 && (b.kind == blockSignal || b.kind == blockPromise)):
		default:
			a.gone = true
		}
	}
}

// finish runs after the last block.
func (m *machine) finish() {
	output := model.Payload{Data: []byte{byte(m.count >> 8), byte(m.count)}}
	switch {
	case m.cans > 0:
		m.end = &model.Close{Status: model.Continued, Input: input(m.p.index, m.cans-1, m.count)}
	case m.p.fails:
		m.end = &model.Close{Status: model.Failed, Failure: &model.Failure{Message: "meant to fail"}, Output: output}
	default:
		m.end = &model.Close{Status: model.Completed, Output: output}
	}
}

// deadline reports whether the ask is the deadline of its block. A program stops a deadline and
// withdraws other asks.
func (b *block) deadline(i int) bool {
	switch b.kind {
	case blockSignal, blockPromise, blockChild, blockWatch, blockCall, blockStep, blockTask, blockOperate, blockSection:
		return i == 1
	default:
		return false
	}
}

// step reports whether the ask is a step.
func (p *program) step(b, i int) bool {
	if b == cleanupBlock {
		return i == 0
	}
	switch p.blocks[b].kind {
	case blockStep, blockRace:
		return i == 0
	case blockAll:
		return i < 2
	default:
		return false
	}
}

// timed reports whether the ask is a timer.
func (p *program) timed(b, i int) bool {
	if b == cleanupBlock {
		return false
	}

	blk := &p.blocks[b]
	switch blk.kind {
	case blockSleep:
		return i == 0
	case blockRace:
		return i == 1
	case blockAll:
		return i == 2
	case blockSection:
		return i == askNap || blk.deadline(i)
	default:
		return blk.deadline(i)
	}
}

// wants returns the input from outside that the program waits for: a signal or a promise by name.
func (m *machine) wants() (kind blockKind, name string) {
	if m.end != nil || m.broken != nil || m.pc == cleanupBlock {
		return 0, ""
	}
	b := &m.p.blocks[m.pc]
	if b.kind == blockSignal || b.kind == blockPromise {
		return b.kind, b.name
	}
	return 0, ""
}

// waits returns the reasons why the run does not continue.
func (m *machine) waits(running bool) []model.Reason {
	if running {
		return []model.Reason{{Code: model.WaitStep, Name: "step"}}
	}
	if m.end != nil || m.pc == cleanupBlock {
		return []model.Reason{{Code: model.WaitRetry}}
	}
	b := &m.p.blocks[m.pc]
	return []model.Reason{{Code: model.WaitSignal, Name: blockNames[b.kind]}}
}
