package queue

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// DueKind says which deadline has passed.
type DueKind uint8

// Deadlines. Of two that pass at the same time, the first one counts.
const (
	DueToStart DueKind = iota + 1 // nobody claimed it in time
	DueSilence                    // its worker did not beat in time
	DueToClose                    // the attempt took too long
	DueTotal                      // the task took too long, over all attempts
	DueLost                       // the claim was nobody's for longer than the grace
	DueSpent                      // it came to the board although no attempt is left
)

// String is the type of the failure that the deadline leads to, where there is one.
func (k DueKind) String() string {
	switch k {
	case DueToStart:
		return model.TimeoutToStart
	case DueSilence:
		return model.TimeoutSilence
	case DueToClose:
		return model.TimeoutToClose
	case DueTotal:
		return model.TimeoutTotal
	case DueLost:
		return model.FailureLost
	case DueSpent:
		return "attempts_spent"
	}
	return "unknown"
}

// Due is a deadline that has passed.
type Due struct {
	Ref   model.TaskRef
	Lane  int
	Claim int64 // 0 when nobody has claimed it
	Kind  DueKind
}

// arm computes the next deadline of a task from its spec and state.
func (b *Board) arm(t *task) {
	due, kind := model.MaxTime, DueKind(0)
	limit := func(k DueKind, from model.Time, d time.Duration) {
		if at := from.Add(d); d > 0 && at < due {
			due, kind = at, k
		}
	}

	switch t.state {
	case delayed, waiting:
		limit(DueToStart, t.Visible, t.Spec.ToStart)
		limit(DueTotal, t.Scheduled, t.Spec.Total)
	case expired:
		if t.spent() {
			due, kind = 0, DueSpent
		}
	case held:
		if t.worker != nil {
			limit(DueSilence, t.beat, t.Spec.Silence)
		}
		limit(DueToClose, t.Claimed, t.Spec.ToClose)
		limit(DueTotal, t.Scheduled, t.Spec.Total)
		if t.worker == nil {
			limit(DueLost, t.beat, b.cfg.Grace)
		}
	case reserved, matched, late, reported:
	}

	t.kind = kind
	if kind == 0 {
		b.deadlines.remove(t)
		return
	}

	if t.deadlineAt != 0 && t.due == due {
		return
	}
	t.due = due
	b.deadlines.put(t)
}

// Due returns the deadlines that have passed: what has lasted longer than its limit. Each is
// returned once. A task that nobody had is handed out no more, and the claim of one that somebody
// had is beaten for in vain; the caller decides and calls Remove or Add, or Held if nothing came of
// it.
func (b *Board) Due(now model.Time) []Due {
	b.advance(now)
	var out []Due
	for b.deadlines.len() > 0 && b.deadlines.top().due < now {
		t := b.deadlines.top()
		d := Due{Ref: t.Ref, Lane: t.Lane, Kind: t.kind}
		b.deadlines.remove(t)
		if t.state == held {
			d.Claim = t.claim
			t.state = late
		} else {
			b.leaveState(t)
			t.state = expired
		}
		out = append(out, d)
	}

	return out
}

// Beat tells that a worker still executes a claim, and reports whether the claim is still its own.
// A claim of nobody becomes its own.
func (b *Board) Beat(now model.Time, id WorkerID, claim model.ClaimRef) (isHeld bool) {
	b.advance(now)
	t, w := b.claimed(claim), b.workers[id]
	switch {
	case t == nil || w == nil || t.state == late || (t.worker != nil && t.worker != w):
		return false
	case t.state == reported:
		return true
	}
	b.assign(t, w)
	t.beat = max(t.beat, now)
	b.arm(t)
	return true
}

// Overdue reports whether a deadline of a claim was reported, and that is not decided. One that was
// told of anew since is not: its deadlines run anew.
func (b *Board) Overdue(claim model.ClaimRef) bool {
	t := b.claimed(claim)
	return t != nil && t.state == late
}

// Wake is when something happens without anybody doing anything: when to call Match and Due again.
// It is 1 when Match would propose something now, and 0 for never.
func (b *Board) Wake() model.Time {
	if b.ready.len() > 0 {
		return 1
	}
	wake := model.Time(0)

	at := func(t model.Time) {
		if wake == 0 || t < wake {
			wake = t
		}
	}

	if b.delayed.len() > 0 {
		at(b.delayed.top().Visible)
	}
	if b.again.len() > 0 {
		at(b.again.top().again)
	}
	if b.deadlines.len() > 0 {
		at(b.deadlines.top().due + 1)
	}

	return wake
}
