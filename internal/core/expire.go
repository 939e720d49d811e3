package core

import (
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Life says how long an entity keeps its state: at most TTL after the state was created, and at
// most Idle after the last successful operation. Zero means no limit.
type Life struct{ TTL, Idle time.Duration }

// end returns when a state expires, if now is the time of the last operation. It returns zero if
// the state does not expire.
func (l Life) end(created, now model.Time) (at model.Time) {
	if l.TTL > 0 {
		at = created.Add(l.TTL)
	}
	if idle := now.Add(l.Idle); l.Idle > 0 && (at == 0 || idle < at) {
		at = idle
	}
	return at
}

// HandOver holds what the operations of one hand-over share. A hand-over has a HandOver only if the
// state can expire or the entity keeps a log.
type HandOver struct {
	Life Life
	// Fresh says that the state had expired at the hand-over, so the worker got no state.
	Fresh bool
	// Log is how many operations the entity keeps in its log. LogInputs says whether it keeps their
	// inputs too.
	Log       int
	LogInputs bool
}

// Attach gives the items of one hand-over a common HandOver.
func Attach(items []*Item, h HandOver) {
	for _, it := range items {
		it.hand = &h
	}
}

// prolong decides when the state expires after operations that were made as one hand-over. Without
// a HandOver, the state does not expire.
func (n *Entity) prolong(h *HandOver, now model.Time) {
	if h != nil && n.Row.Exists {
		n.Row.Expires = h.Life.end(n.Row.Created, now)
	}
}

// expire removes the state when its time is over. While an operation runs or a section holds the
// lock, the state stays; the decision that ends the operation or the section removes it.
func (n *Entity) expire(now model.Time) {
	if n.busy == 0 && n.Row.Expired(now) {
		n.clearState()
	}
}

// clearState removes the state.
func (n *Entity) clearState() {
	n.Row.State, n.Row.Exists, n.Row.Created, n.Row.Expires, n.Row.Log = model.Payload{}, false, 0, 0, nil
}

// log adds operations to the log of the entity, if the entity keeps one. It leaves out calls that
// the worker could not run. The log disappears together with the state.
func (n *Entity) log(made []*Item, r *model.Operated, now model.Time) {
	if len(made) == 0 || made[0].hand == nil || made[0].hand.Log == 0 {
		return
	}
	h := made[0].hand
	more := make([]model.OperationRecord, 0, len(made))
	for i, it := range made {
		if !r.Results[i].Unmade {
			more = append(more, model.RecordOf(it.Message, r.Results[i].Failure, now, h.LogInputs))
		}
	}
	if len(more) > 0 {
		n.Row.Log = model.AppendLog(n.Row.Log, more, h.Log)
	}
}

// sameLog reports whether two logs are the same memory. That is enough, because logs are never
// changed in place.
func sameLog(a, b []model.OperationRecord) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Ring applies a timer of the entity that has fired. It ignores a timer that the row does not name,
// because that timer is out of date.
func (n *Entity) Ring(id string, now model.Time) Decision {
	var d Decision
	if n.Row.Alarm == 0 || id != alarmID(n.Row.Alarm) {
		return d
	}
	before := n.Row
	n.expire(now)
	n.change(&d, &before, now)
	return d
}

// arm gives the row a timer for the time when its state expires. An operation that prolongs the
// state does not move the timer, because that would cost a write. If the timer fires too early for
// this reason, arm sets it again.
func (n *Entity) arm(d *Decision, now model.Time) {
	r := &n.Row
	stop, start := r.Alarm != 0 && r.Expires == 0, r.Expires != 0 && (r.Alarm == 0 || r.Expires < r.Alarm)
	if r.Alarm != 0 && r.Alarm <= now && r.Expires > now { // it has fired
		start = true
	}
	if r.Alarm != 0 && (stop || start) {
		d.StopTimers = append(d.StopTimers, alarmID(r.Alarm))
		r.Alarm = 0
	}
	if start {
		r.Alarm = r.Expires
		d.StartTimers = append(d.StartTimers, Timer{ID: alarmID(r.Alarm), Due: r.Alarm})
	}
}

// alarmID names the timer of an entity that is due at a time.
func alarmID(at model.Time) string { return "expires-" + strconv.FormatInt(int64(at), 10) }
