package scenario

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Ask is the state of one request of a program.
type Ask struct {
	Asked bool
	// Recorded says that the history has the start of the child, the sent message or the taken
	// signal.
	Recorded  bool
	Done      bool // the history has the outcome of the ask
	Gone      bool // the program has abandoned the ask
	Withdrawn bool // the history says that the ask was abandoned
	Attempts  int  // failed attempts
	Due       model.Time
	Timer     model.Time // when its timer is due
	Ref       int64      // the signal that was taken
	granted   int        // the number of granted locks
}

// Machine interprets a program. Its state depends only on the program and on the events that it was
// fed.
type Machine struct {
	Program *program
	Start   *model.Start
	cans    int
	count   int // completed steps of the whole chain of runs
	PC      int
	Asks    [MaxBlocks + 1][MaxAsks]Ask
	signals []signal     // received and unread
	Updates []openUpdate // received and unanswered
	Pin     string       // the version that the run is pinned to
	settled uint8
	Seen    int64
	Last    model.Time
	cancel  bool
	Broken  error // the history does not fit the program
	End     *model.Close
	hidden  map[int64]bool // signals that operators have dropped
}

// signal is a signal that a run has received.
type signal struct {
	name string
	seq  int64
}

// NewMachine starts a program.
func (s *Scenario) NewMachine(start *model.Start) Machine {
	m := Machine{Start: start, Last: start.Awake()}
	index, cans, count, ok := ParseInput(start.Input)
	if !ok || index >= len(s.Programs) {
		m.Broken = fmt.Errorf("input %x names no program", start.Input.Data)
		return m
	}
	m.Program, m.cans, m.count = s.Programs[index], cans, count
	m.enter()
	m.advance()
	return m
}

// Hide makes the program never see the signals that operators have dropped in a history. A program
// takes a signal as soon as it can, so it may take a signal that an operator drops later. In that
// case the turn that took the signal never reached the history, because an owner does not drop a
// signal that was taken. So nothing in the history depends on a dropped signal.
func (m *Machine) Hide(events []model.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == model.EventSignalDropped {
			if m.hidden == nil {
				m.hidden = map[int64]bool{}
			}
			m.hidden[e.Ref] = true
		}
	}
}

// Clone returns an independent copy.
func (m *Machine) Clone() Machine {
	c := *m
	c.signals, c.Updates = slices.Clone(m.signals), slices.Clone(m.Updates)
	return c
}

// Feed passes the next event to the program.
func (m *Machine) Feed(e *model.Event) {
	if m.Broken != nil {
		return
	}

	if e.Seq != m.Seen+1 {
		m.Broken = fmt.Errorf("event %d follows event %d", e.Seq, m.Seen)
		return
	}

	m.Seen, m.Last = e.Seq, e.At
	switch e.Kind {
	case model.EventSignalReceived:
		if !m.hidden[e.Seq] {
			m.signals = append(m.signals, signal{e.Name, e.Seq})
		}
	case model.EventSignalDropped:
		before := len(m.signals)
		m.signals = slices.DeleteFunc(m.signals, func(x signal) bool { return x.seq == e.Ref })
		if len(m.signals) == before && !m.hidden[e.Ref] {
			m.Broken = fmt.Errorf("event %d drops signal %d, which the program has taken or never had", e.Seq, e.Ref)
		}
	case model.EventPromiseSettled:
		for i, name := range Promises {
			if name == e.Name {
				m.settled |= 1 << i
			}
		}
	case model.EventCancelRequest:
		m.cancel = true
	case model.EventWatched, model.EventPaused, model.EventResumed:
	case model.EventUpdateReceived:
		m.Updates = append(m.Updates, openUpdate{*e, m.PC})
	case model.EventUpdateAnswered:
		m.recordAnswer(e)
	case model.EventStateSet:
		if e.ID != "" { // without an id, the previous run has set the state
			m.answer(e)
		}
	case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed, model.EventTimerFired, model.EventWithdrawn,
		model.EventSignalTaken, model.EventChildStarted, model.EventChildClosed, model.EventSent, model.EventAnswered, model.EventVersionMarked, model.EventNoted, model.EventLabeled,
		model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut,
		model.EventLockAsked, model.EventLockGranted, model.EventUnlocked:
		m.answer(e)
	case model.EventPinned:
		if m.Pin != "" {
			m.Broken = fmt.Errorf("event %d pins the run a second time", e.Seq)
		}
		m.Pin = e.Name
	case model.EventStarted, model.EventClosed:
		m.Broken = fmt.Errorf("event %d has kind %s, which a program never receives", e.Seq, e.Kind)
	}

	m.advance()
}

// answer records an event that answers an ask.
func (m *Machine) answer(e *model.Event) {
	b, i, ok := ParseAsk(e.ID)
	if !ok || !m.Asks[b][i].Asked {
		m.Broken = fmt.Errorf("event %d (%s) answers %q, which was not asked for", e.Seq, e.Kind, e.ID)
		return
	}

	a := &m.Asks[b][i]
	if e.Kind == model.EventUnlocked {
		a = &m.Asks[b][AskUnlock] // the event has the id of its section
	}

	switch e.Kind {
	case model.EventStepCompleted:
		if !a.Gone {
			m.count++
		}
		a.Done = true
	case model.EventStepFailed, model.EventTimerFired, model.EventChildClosed:
		a.Done = true
	case model.EventAnswered:
		if k := m.Program.Blocks[b].Kind; !a.Gone && e.Failure == nil && (k == BlockCall || k == BlockOperate || k == BlockSection) {
			m.count++
		}
		a.Done = true
	case model.EventTaskTimedOut:
		a.Done = a.Done || e.TimedOutForGood()
	case model.EventAttemptFailed:
		a.Attempts, a.Due = e.Attempt, e.Due
	case model.EventWithdrawn:
		a.Withdrawn = true
		if !a.Gone {
			m.Broken = fmt.Errorf("event %d withdraws %s, but the program still waits for it", e.Seq, e.ID)
		}
	case model.EventSignalTaken:
		a.Recorded = true
		if a.Ref != e.Ref {
			m.Broken = fmt.Errorf("event %d takes signal %d, the program took %d", e.Seq, e.Ref, a.Ref)
		}
	case model.EventChildStarted, model.EventSent, model.EventStateSet, model.EventVersionMarked, model.EventNoted, model.EventLabeled, model.EventTaskScheduled,
		model.EventLockAsked:
		a.Recorded = true
	case model.EventUnlocked:
		a.Recorded, a.Done = true, true
	case model.EventLockGranted:
		a.granted++
		a.Done = !a.Gone && a.granted == len(model.SortLocks(m.Program.Blocks[b].Locks))
	default:
	}
}

// enter makes the requests of the current block.
func (m *Machine) enter() {
	if m.PC >= len(m.Program.Blocks) {
		m.finish()
		return
	}

	b := &m.Program.Blocks[m.PC]
	as := &m.Asks[m.PC]
	ask := func(i int) { as[i].Asked = true }
	timer := func(i int) {
		as[i].Asked, as[i].Timer = true, m.Last+model.Time(b.wait)
	}

	switch b.Kind {
	case BlockStep, BlockChild, BlockDetach, BlockWatch, BlockSend, BlockCall, BlockSignal, BlockPromise, BlockNote, BlockLabel, BlockTask,
		BlockOperate, BlockTell, BlockSection:
		ask(0)
		if b.wait > 0 {
			timer(1)
		}
	case BlockSleep:
		timer(0)
	case BlockRace:
		ask(0)
		timer(1)
	case BlockAll:
		ask(0)
		ask(1)
		timer(2)
	}
}

// advance continues the program as far as it can without further events.
func (m *Machine) advance() {
	for m.End == nil && m.Broken == nil {
		if m.cancel && m.PC != CleanupBlock {
			m.giveUp()
			if !m.Program.cleanup {
				m.End = &model.Close{Status: model.Canceled, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "canceled"}}
				return
			}
			m.PC = CleanupBlock
			m.Asks[CleanupBlock][0].Asked = true
		}

		if m.PC == CleanupBlock {
			if m.Asks[CleanupBlock][0].Done {
				m.End = &model.Close{Status: model.Canceled, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "cleaned up"}}
			}
			return
		}

		if !m.passed() {
			return
		}
		m.giveUp()
		m.PC++
		m.enter()
	}
}

// passed reports whether the current block is over.
func (m *Machine) passed() bool {
	b, as := &m.Program.Blocks[m.PC], &m.Asks[m.PC]
	late := b.wait > 0 && as[1].Done
	switch b.Kind {
	case BlockStep, BlockSleep, BlockSend, BlockTell:
		return as[0].Done
	case BlockSignal:
		if as[0].Ref > 0 {
			return true
		}
		if i := slices.IndexFunc(m.signals, func(x signal) bool { return x.name == b.Name }); i >= 0 && !late {
			as[0].Ref = m.signals[i].seq
			m.signals = slices.Delete(m.signals, i, i+1)
			return true
		}
		return late
	case BlockPromise:
		return m.settled&b.bit != 0 || late
	case BlockChild, BlockWatch, BlockCall, BlockTask, BlockOperate:
		return as[0].Done || late
	case BlockSection:
		return m.inSection(b, as)
	case BlockDetach, BlockNote, BlockLabel:
		return true
	case BlockRace:
		return as[0].Done || as[1].Done
	case BlockAll:
		return as[0].Done && as[1].Done && as[2].Done
	}

	return false
}

// giveUp abandons the requests of the current block that are still open.
func (m *Machine) giveUp() {
	b := &m.Program.Blocks[m.PC]
	if b.Kind == BlockSection {
		m.leaveSection(b, &m.Asks[m.PC])
		return
	}
	for i := range m.Asks[m.PC] {
		a := &m.Asks[m.PC][i]
		switch {
		case !a.Asked || a.Done:
		case b.Kind == BlockDetach || b.Kind == BlockNote || b.Kind == BlockLabel || (i == 0 && (b.Kind == BlockSignal || b.Kind == BlockPromise)):
		default:
			a.Gone = true
		}
	}
}

// finish runs after the last block.
func (m *Machine) finish() {
	output := model.Payload{Data: []byte{byte(m.count >> 8), byte(m.count)}}
	switch {
	case m.cans > 0:
		m.End = &model.Close{Status: model.Continued, Input: Input(m.Program.index, m.cans-1, m.count)}
	case m.Program.fails:
		m.End = &model.Close{Status: model.Failed, Failure: &model.Failure{Message: "meant to fail"}, Output: output}
	default:
		m.End = &model.Close{Status: model.Completed, Output: output}
	}
}

// Deadline reports whether ask i is the timer that ends the wait of the block. When a program
// abandons its asks, it stops this timer, and withdraws all other asks.
func (b *Block) Deadline(i int) bool {
	switch b.Kind {
	case BlockSignal, BlockPromise, BlockChild, BlockWatch, BlockCall, BlockStep, BlockTask, BlockOperate, BlockSection:
		return i == 1
	default:
		return false
	}
}

// Step reports whether the ask is a step.
func (p *program) Step(b, i int) bool {
	if b == CleanupBlock {
		return i == 0
	}
	switch p.Blocks[b].Kind {
	case BlockStep, BlockRace:
		return i == 0
	case BlockAll:
		return i < 2
	default:
		return false
	}
}

// Timed reports whether the ask is a timer.
func (p *program) Timed(b, i int) bool {
	if b == CleanupBlock {
		return false
	}

	blk := &p.Blocks[b]
	switch blk.Kind {
	case BlockSleep:
		return i == 0
	case BlockRace:
		return i == 1
	case BlockAll:
		return i == 2
	case BlockSection:
		return i == askNap || blk.Deadline(i)
	default:
		return blk.Deadline(i)
	}
}

// Wants returns the input from outside that the program waits for: a signal or a promise by name.
func (m *Machine) Wants() (kind BlockKind, name string) {
	if m.End != nil || m.Broken != nil || m.PC == CleanupBlock {
		return 0, ""
	}
	b := &m.Program.Blocks[m.PC]
	if b.Kind == BlockSignal || b.Kind == BlockPromise {
		return b.Kind, b.Name
	}
	return 0, ""
}

// Reasons returns the reasons why the run does not continue.
func (m *Machine) Reasons(running bool) []model.Reason {
	if running {
		return []model.Reason{{Code: model.WaitStep, Name: "step"}}
	}
	if m.End != nil || m.PC == CleanupBlock {
		return []model.Reason{{Code: model.WaitRetry}}
	}
	b := &m.Program.Blocks[m.PC]
	return []model.Reason{{Code: model.WaitSignal, Name: BlockNames[b.Kind]}}
}
