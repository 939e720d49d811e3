package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// A call of an entity may run *ahead*: a worker runs it before the batch that stores the call is
// committed. The result changes only the state in memory, and nothing that depends on the result
// leaves the lane before its own batch is committed. If the result comes back while the batch with
// the call is still open, both share one commit, and the call needs no row. So the lane waits a
// moment for such results before it seals a batch (Config.AheadWait).

// A workflow that makes several calls, one after the other, adds more and more to the open batch.
// The lane waits for each of its calls and turns, but for all of them together at most maxHops
// times as long as for one.
const maxHops = 4

// runsAhead notes that a worker has got calls, if one of them is stored by the open batch. The lane
// does not wait for calls of a kind that was slow the last time.
func (l *Lane) runsAhead(j *job) {
	first := j.entry.pending.stored
	if l.cfg.AheadWait == 0 || first == 0 || l.slow[j.entry.kind()] {
		return
	}
	for _, it := range j.items {
		if it.Seq >= first {
			l.open.ahead = append(l.open.ahead, j)
			l.open.prolong(j.since.Add(l.cfg.AheadWait))
			return
		}
	}
}

// endAhead notes that a hand-over is over.
func (l *Lane) endAhead(j *job) {
	if i := slices.Index(l.open.ahead, j); i >= 0 {
		l.open.ahead = slices.Delete(l.open.ahead, i, i+1)
	}
}

// noteSpeed notes how long a worker took for calls. If they were quick, the lane waits for calls of
// this kind from now on.
func (l *Lane) noteSpeed(now model.Time, j *job) {
	if len(l.slow) > 0 && now < j.since.Add(l.cfg.AheadWait) {
		delete(l.slow, j.entry.kind())
	}
}

// waitsForCalls reports whether the open batch stays open for the results of calls that run ahead,
// or for turns of workers that have a preview of it. It does not while an unreadable message waits
// for the end of the open batch (see moveAside).
func (l *Lane) waitsForCalls(now model.Time) bool {
	b := l.open
	if len(b.ahead)+len(b.previews) == 0 || l.batchFull() || l.backlog.len() > 0 || l.recovery.careful() {
		return false
	}
	if at := l.nextAsideTry(); at != 0 && at <= now {
		return false
	}
	if b.until == 0 {
		b.until, b.last = now.Add(l.cfg.AheadWait), now.Add(maxHops*l.cfg.AheadWait)
	}
	if now < b.until {
		return true
	}

	for _, j := range b.ahead {
		l.noteSlow(now, j.entry, j.since)
	}
	for _, e := range b.previews {
		l.noteSlow(now, e, e.hold.preview.since)
	}
	return false
}

// noteSlow notes that a worker has not answered in time. A worker that got its work only a moment
// ago is not slow: the batch has waited for other workers before.
func (l *Lane) noteSlow(now model.Time, e *entry, since model.Time) {
	if now >= since.Add(l.cfg.AheadWait) {
		l.slow[e.kind()] = true
	}
}

// prolong lets a batch that waits for workers wait for another one.
func (b *building) prolong(until model.Time) {
	if b.until != 0 {
		b.until = max(b.until, min(b.last, until))
	}
}

// aheadWake returns when the lane seals the open batch without the results of calls that run ahead
// and without the turns of workers that have a preview; zero if it does not wait for them.
func (l *Lane) aheadWake() model.Time {
	if l.flight != nil || len(l.open.ahead)+len(l.open.previews) == 0 {
		return 0
	}
	return l.open.until
}
