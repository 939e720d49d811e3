package lane

import "github.com/perdure/perdure/internal/model"

// Take returns the work for the caller and clears it. spare is an earlier Output whose memory is
// used again; it may be zero.
func (l *Lane) Take(spare Output) Output {
	out := l.out
	l.out = Output{
		Loads: spare.Loads[:0], Calls: clearCalls(spare.Calls), Answers: clearAnswers(spare.Answers), Mail: spare.Mail[:0],
		TaskCalls: clearTaskCalls(spare.TaskCalls), Hints: spare.Hints[:0], Freed: spare.Freed[:0], Verify: spare.Verify[:0],
		Facts: clearFacts(spare.Facts), Operate: clearOperate(spare.Operate), Interrupts: spare.Interrupts[:0], Changes: clearChanges(spare.Changes),
	}
	return out
}

// Usage is the memory that the lane takes, without inputs.
type Usage struct {
	Entries   int // addresses in memory
	Histories int // bytes of histories that workers hold
	Line      int // runs that wait for room for their histories
	Calls     int // bytes of calls that wait for entities
}

// Usage returns how much memory the lane takes, without inputs.
func (l *Lane) Usage() Usage {
	return Usage{Entries: len(l.entries), Histories: l.room.used, Line: len(l.room.line), Calls: l.budget.calls}
}

// Idle reports whether the lane has finished everything that was handed in.
func (l *Lane) Idle() bool {
	return l.flight == nil && l.open.empty() && l.backlog.len() == 0 && l.loads.idle() && !l.recovery.careful()
}

// Flush ends a round of inputs. It serves backlogs and due timers as long as there is room, and
// seals a batch if none is in flight.
func (l *Lane) Flush(now model.Time) {
	if l.dead != nil {
		return
	}
	l.now = now
	l.cure(now)
	l.endReunion(now)
	l.fireTimers(now)
	l.expire(now)
	l.unrestAll(now)
	l.feed(now)
	l.nextSolo(now)
	l.serveBacklog(now)
	l.serveLone(now)
	l.moveAside(now)
	l.drainShards(now)
	l.seal(now)
	if !l.lone.others {
		l.serveLone(now) // before the other inputs that come while the batch is in flight
	}
	l.recover(now)
	l.feed(now)
	l.readOn()
	l.issueReads()
}

// Wake returns when Flush must be called next even if there is no input; zero for never.
func (l *Lane) Wake() model.Time {
	if l.dead != nil {
		return 0
	}
	if l.backlog.len() > 0 && l.flight == nil && !l.recovery.busy() && !l.recovery.careful() {
		return 1 // no commit is in flight whose result would continue the backlog
	}
	wake := l.recovery.at
	timers := model.Time(0)
	// A full or crowded lane must wait for a result first.
	if !l.Full() && !l.loads.isCrowded(l.cfg.MaxLoads) {
		timers = l.timers.wake(l.cfg.TimerHorizon)
	}

	for _, t := range [...]model.Time{timers, l.drainWake(), l.loads.wake(), l.cureWake(), l.expireWake(), l.resting.wake(), l.nextAsideTry(), l.reunionWake(), l.aheadWake()} {
		if t != 0 && (wake == 0 || t < wake) {
			wake = t
		}
	}

	return wake
}
