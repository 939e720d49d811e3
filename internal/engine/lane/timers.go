package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	timerPage = 1000
	// a larger page, for when more than a page of timers is due, or when most timers of a page are
	// skipped because their kind is behind (see window)
	stormPage  = 5000
	timerBurst = 500 // due timers that fire in one round
)

// fireTimers fires due timers while there is room, and reads the next page well before the window
// is used up.
func (l *Lane) fireTimers(now model.Time) {
	w := &l.timers
	w.ripen(now)
	for n := 0; n < timerBurst && w.due > 0 && !l.Full() && !l.loads.isCrowded(l.cfg.MaxLoads); n++ {
		if t, ok := w.next(); ok {
			l.fire(now, t)
		}
	}
	if l.recovery.careful() {
		return
	}
	if w.refillDue() && w.horizon.Due.Add(-l.cfg.TimerHorizon/2) <= now {
		l.refill(w.horizon, now.Add(l.cfg.TimerHorizon), false)
	} else if n := w.catchUpDue(); n != nil {
		l.refill(n.from, w.horizon.Due, true)
	}
}

// fire gives a due timer to its run.
func (l *Lane) fire(now model.Time, t store.Timer) {
	sh := l.shards[t.Shard]
	if sh == nil || sh.draining || l.passOver(t.Shard, t.Address, "a timer") {
		return
	}
	e := l.entry(t.Address)
	l.take(now, e, &timerInput{inputBase{address: &e.address, run: t.Run}, t.ID})
}

// refill reads the timers after a position.
func (l *Lane) refill(after store.TimerMark, until model.Time, catchUp bool) {
	w := &l.timers
	shards := l.servedShards()
	if len(shards) == 0 {
		w.fresh = true // until the lane has shards
		return
	}
	w.asked = until
	limit := timerPage
	if w.behind > 0 || w.more {
		limit = stormPage
	}
	l.loads.addFirst(&Load{Kind: LoadTimers, Shards: shards, Mark: after, Until: until, Limit: min(limit, w.limit), catchUp: catchUp})
}

// acceptTimers takes a page of timers into the window.
func (l *Lane) acceptTimers(ld *Load, r LoadResult) {
	p := page{after: ld.Mark, timers: r.Timers, catchUp: ld.catchUp, end: store.TimerMark{Due: ld.Until, Run: maxRun}}
	if ld.catchUp {
		p.end = l.timers.horizon
	}
	l.timers.more = len(r.Timers) == ld.Limit
	if l.timers.more {
		p.end = markOf(&r.Timers[len(r.Timers)-1])
	}
	l.timers.take(p, l.HasShard)
}

// ring fires the timer of an entity whose state may have expired.
func (in *timerInput) ring(l *Lane, now model.Time, e *entry) {
	d := e.actor.entity.Ring(in.id, now)
	if !d.HasWrites() {
		l.skip(e, in) // the timer is out of date, or an operation or a section must end first
		return
	}
	l.record(e, in, &d)
	l.operate(now, e)
}

// apply fires the timer, if its run is still the current one.
func (in *timerInput) apply(l *Lane, now model.Time, e *entry) {
	if e.isEntity() {
		in.ring(l, now, e)
		return
	}
	if e.x == nil || e.x.Start.Run != in.run {
		l.skip(e, in) // the run has ended, and so have its timers
		return
	}
	d := core.Fire(e.x, in.id, now)

	// The failure of the attempt may still be in flight. The worker must get it first.
	switch b := l.batchOf(e); {
	case d.Retry == "":
	case b == nil:
		l.wakeForRetry(now, e, in.run, d.Retry)
	default:
		b.effects = append(b.effects, effect{kind: effRetry, entry: e, run: in.run, step: d.Retry})
	}

	g := l.record(e, in, &d)
	switch {
	case d.Begins:
		e.pending.resuming++
		g.effects = append(g.effects, effect{kind: effBegins, entry: e, run: in.run})
	case d.Close != nil:
		l.terminate(g, e, d.Close)
		l.postChanges(now, e, &d, queue.Neither)
	}
}
