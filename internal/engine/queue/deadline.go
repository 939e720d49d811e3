package queue

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// DueKind says which deadline has passed.
type DueKind uint8

// Kinds of deadlines. If two deadlines pass at the same time, the board reports the first one in
// this list.
const (
	DueToStart DueKind = iota + 1 // no worker claimed the task in time
	DueSilence                    // the worker sent no heartbeat in time
	DueToClose                    // the attempt took too long
	DueTotal                      // the task took too long, over all attempts
	DueLost                       // the claim had no worker for longer than the grace period
	DueSpent                      // the task was added although no attempt is left
)

// String returns the type of the failure that the deadline causes, if there is one.
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
	Claim int64 // 0 if the task has no claim
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

// TakeDue returns the deadlines that have passed. It returns each of them once. After that, the
// board no longer offers an unclaimed task, and refuses heartbeats for an expired claim. The caller
// decides what follows: it calls Remove or Add, or Hold if the claim continues after all.
func (b *Board) TakeDue(now model.Time) []Due {
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

// Beat is a heartbeat: a worker says that it still executes a claim. Beat reports whether the
// worker still has the claim. If the claim has no worker, this worker gets it.
func (b *Board) Beat(now model.Time, id WorkerID, claim model.ClaimRef) (isHeld bool) {
	b.advance(now)
	t, w := b.findClaim(claim), b.workers[id]
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

// Overdue reports whether TakeDue has returned a deadline of a claim and the caller has not decided
// yet. Another Hold starts the deadlines of the claim again, so the claim is no longer overdue.
func (b *Board) Overdue(claim model.ClaimRef) bool {
	t := b.findClaim(claim)
	return t != nil && t.state == late
}

// Wake returns when to call Match and TakeDue again if no other call comes before. It returns 1 if
// Match would propose something now, and 0 for never.
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
