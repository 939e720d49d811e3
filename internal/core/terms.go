package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Ids of timers that belong to a run and not to its code. They end with \x1f, and no id of a timer
// of the code does.
const (
	beginTimer  = "begin\x1f"
	expireTimer = "expire\x1f"
)

// OwnTimer reports whether a timer belongs to the run and not to its code. A run has such a timer
// for its start time, and one for the time-out of its execution.
func OwnTimer(id string) bool { return id == beginTimer || id == expireTimer }

// BirthTimers returns the timers that a run has from its start. If the code of the run has begun in
// its past, the run does not wait for its start time, even if our clock is behind the clock that
// recorded the past.
func BirthTimers(s *model.Start) (timers []Timer) {
	if s.Begins > s.At && !slices.ContainsFunc(s.Carried, func(e model.Event) bool { return e.ID != "" }) {
		timers = append(timers, Timer{ID: beginTimer, Due: s.Begins})
	}
	if s.Expires != 0 {
		timers = append(timers, Timer{ID: expireTimer, Due: s.Expires})
	}
	return timers
}

// Withheld returns why workers may not continue the run: it is paused, or its start time is in the
// future. It returns nil when they may. A withheld run stays parked, whatever arrives.
func (x *Execution) Withheld() *model.Reason {
	switch {
	case x.Paused != nil:
		return x.Paused
	case x.isBeforeStart():
		return x.early()
	}
	return nil
}

// isBeforeStart reports whether the run still waits for its start time, which means that its timer
// is open.
func (x *Execution) isBeforeStart() bool { return x.Start.Begins != 0 && x.timer(beginTimer) >= 0 }

// early returns why the code has not begun. The reason has the start time and the failure of the
// previous attempt.
func (x *Execution) early() *model.Reason {
	r := &model.Reason{Code: model.WaitStart, Until: x.Start.Begins}
	if x.Start.Cause != nil {
		r.Attempt, r.Detail = x.Start.Tries(), model.Cut(x.Start.Cause.Message, model.MaxReasonText)
	}
	return r
}

// park parks a run that is withheld.
func (x *Execution) park(d *Decision) {
	if x.Withheld() != nil {
		x.Parked = true
		d.Mark = x.mark()
	}
}

// agree applies terms to the start of the first run of an execution.
func agree(s *model.Start, t *model.Terms) {
	if t == nil {
		return
	}
	s.Begins = max(t.NotBefore, 0)
	if t.Delay > 0 {
		s.Begins = s.At.Add(t.Delay)
	}
	if s.Begins <= s.At {
		s.Begins = 0
	}
	s.Terms = t.Kept()
	s.Expires = expiry(s)
}

// expiry returns when an execution that begins with this run times out; zero for never.
func expiry(s *model.Start) model.Time {
	if s.Terms == nil || s.Terms.Timeout <= 0 {
		return 0
	}
	return max(s.At, s.Begins).Add(s.Terms.Timeout)
}

// start lets the code of a run begin, because its start time has arrived. A paused run stays
// parked.
func (x *Execution) start(d *Decision) {
	x.stopTimer(d, beginTimer)
	x.Parked = x.Paused != nil
	d.Mark = x.mark()
	d.Begins = !x.Parked
}

// timeOut ends an execution that has taken longer than it may, without asking its code.
func (x *Execution) timeOut(d *Decision, now model.Time) {
	f := &model.Failure{Kind: model.FailureTimeout, Type: model.TimeoutExecution, Message: "the execution did not end in time"}
	if t := x.Start.Terms; t != nil {
		f.Message = fmt.Sprintf("the execution did not end within %s", t.Timeout)
	}
	x.end(d, model.Outcome{Status: model.Failed, Failure: f, At: max(now, x.Last), Seen: x.Next - 1}, nil)
}

// cancelEarly ends a run whose code has not begun. There is nothing to clean up.
func (x *Execution) cancelEarly(d *Decision, why *model.Failure, now model.Time) {
	x.end(d, model.Outcome{Status: model.Canceled, Failure: canceledFailure(why).Bounded(), At: max(now, x.Last), Seen: x.Next - 1}, nil)
	d.Answer = model.Answer{Run: x.Start.Run, Status: model.Canceled}
}

// MayRepeat reports whether the end of a run can lead to another attempt, which needs a fresh id.
func MayRepeat(x *Execution, end *model.Close) bool {
	return x != nil && end != nil && end.Status == model.Failed && x.policy(end) != nil
}

// policy returns how a failed run is repeated; nil when it is not.
func (x *Execution) policy(end *model.Close) *model.Retry {
	if t := x.Start.Terms; t != nil && t.Retry != nil {
		return t.Retry
	}
	return end.Retry
}

// nextAttempt returns when the next attempt of a failed run begins. It reports false when no
// attempt follows. That is so if the run has no retry policy, if the error is not worth a retry, if
// the run has a cancel request, or if the execution would time out before the attempt begins.
func (x *Execution) nextAttempt(end *model.Close, at model.Time) (begins model.Time, ok bool) {
	p := x.policy(end)
	if end.Status != model.Failed || end.Failure == nil || p == nil || x.Canceling != 0 {
		return 0, false
	}
	own := p == end.Retry
	if tries := x.Start.Tries(); !p.Worth(tries, end.Failure) || own && end.Final {
		return 0, false
	}
	pause := max(p.Pause(x.Start.Tries(), x.runJitter()), end.RetryAfter, 0)
	begins = at.Add(pause)
	return begins, x.Start.Expires == 0 || begins < x.Start.Expires
}

// runJitter returns the random number for the jitter of the next pause. Every node computes the
// same number.
func (x *Execution) runJitter() float64 {
	return jitterOf(x.Start.Run, expireTimer, x.Start.Tries())
}

// repeatedStart returns the start of the next attempt. It begins with the input of this run and
// with the messages that the code of this run has not taken.
func (x *Execution) repeatedStart(t *model.Turn, at, begins model.Time, fresh model.RunID) model.Start {
	s := x.continuedStart(t, at, fresh)
	s.Input, s.Attempt, s.Cause = x.Start.Input, x.Start.Tries()+1, t.Close.Failure.Brief()
	s.Begins = max(begins, at+1)
	return s
}
