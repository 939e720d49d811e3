package lane

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	timerPage  = 1000
	timerBurst = 500 // due timers that are fired in one round
)

// window holds the timers that are due soon. Those further away stay in the store.
//
// Every timer of our shards with a due time up to horizon is in it, or has been fired. A refill asks for those up to a later
// bound; a timer that is committed while the refill is in flight is judged against that requested bound, so it cannot fall between.
type window struct {
	limit   int
	heap    timerHeap
	known   map[timerKey]model.Time // when it is due: an older entry of the same timer in the heap is void
	horizon store.TimerMark         // everything up to here is known
	asked   model.Time              // bound of the refill in flight; 0 when there is none
	changed map[timerKey]struct{}   // started or stopped since it was asked for: what it brings of them is out of date
	stale   bool                    // shards were added: read again from the beginning
	fresh   bool                    // nothing has been read yet
	due     fairQueue
}

type timerKey struct {
	run model.RunID
	id  string
}

func newWindow(limit int) window {
	return window{limit: limit, known: map[timerKey]model.Time{}, changed: map[timerKey]struct{}{}, fresh: true, due: fairQueue{lines: map[kind][]store.Timer{}}}
}

// reset has all timers read again, because shards were added, or because a batch that stopped some was refused.
func (w *window) reset() {
	w.horizon, w.stale, w.fresh = store.TimerMark{}, w.asked != 0, false
}

// bound is the due time up to which a timer must be kept in memory.
func (w *window) bound() model.Time { return max(w.horizon.Due, w.asked) }

// add takes in a timer that has just been committed, if it is due within the window.
func (w *window) add(t *store.Timer) {
	w.change(timerKey{t.Run, t.ID})
	if t.Due <= w.bound() {
		w.push(*t)
	}
}

func (w *window) push(t store.Timer) {
	k := timerKey{t.Run, t.ID}
	if due, ok := w.known[k]; ok && due == t.Due {
		return
	}
	w.known[k] = t.Due
	heap.Push(&w.heap, t)
	if len(w.heap) > 2*w.limit {
		w.shrink()
	}
}

// shrink forgets the later half; the horizon moves in front of it.
func (w *window) shrink() {
	slices.SortFunc(w.heap, compareTimers) // sorted is a heap
	// A timer that was stopped and started again for the same time is in it twice, and must not be half forgotten.
	w.heap = slices.CompactFunc(w.heap, func(x, y store.Timer) bool { return compareTimers(x, y) == 0 })
	if len(w.heap) <= w.limit {
		return
	}
	for _, t := range w.heap[w.limit:] {
		if k := (timerKey{t.Run, t.ID}); w.known[k] == t.Due {
			delete(w.known, k)
		}
	}
	clear(w.heap[w.limit:])
	w.heap = w.heap[:w.limit]
	// Only ever back: after a reset there may be timers in front of it that have not been read.
	if last := w.heap[w.limit-1]; !w.beyond(last) {
		w.horizon = store.TimerMark{Due: last.Due, Run: last.Run, ID: last.ID}
	}
	w.stale = w.asked != 0
}

// remove forgets a timer that was stopped. It stays in the heap and is skipped when its time comes.
func (w *window) remove(run model.RunID, id string) {
	w.change(timerKey{run, id})
	delete(w.known, timerKey{run, id})
}

func (w *window) change(k timerKey) {
	if w.asked != 0 {
		w.changed[k] = struct{}{}
	}
}

func (w *window) dropShard(id model.ShardID) {
	w.heap = slices.DeleteFunc(w.heap, func(t store.Timer) bool {
		if t.Shard == id {
			delete(w.known, timerKey{t.Run, t.ID})
		}
		return t.Shard == id
	})
	heap.Init(&w.heap)
	w.due.dropShard(id)
}

// wake is when the next timer is due, or the window must move on.
func (w *window) wake(horizon time.Duration) model.Time {
	if w.due.n > 0 {
		return 1
	}
	var t model.Time
	if len(w.heap) > 0 {
		t = w.heap[0].Due
	}
	if w.wantsRefill() {
		if at := w.horizon.Due.Add(-horizon / 2); t == 0 || at < t {
			t = at
		}
	}
	return t
}

// wantsRefill reports whether there is room to read on, and nobody does yet.
func (w *window) wantsRefill() bool {
	// A window that is full of what lies behind the horizon has room too: what is in front of it comes first, and the rest goes.
	return !w.fresh && w.asked == 0 && w.due.n < w.limit && (len(w.heap)+w.due.n < w.limit || w.beyond(w.heap[0]))
}

// beyond reports whether a timer lies behind the horizon.
func (w *window) beyond(t store.Timer) bool {
	return compareTimers(t, store.Timer{Due: w.horizon.Due, Run: w.horizon.Run, ID: w.horizon.ID}) > 0
}

// fireTimers fires what is due, as far as there is room, and reads on well before the window has been used up.
func (l *Lane) fireTimers(now model.Time) {
	w := &l.timers
	for len(w.heap) > 0 && w.heap[0].Due <= now {
		t := heap.Pop(&w.heap).(store.Timer)
		k := timerKey{t.Run, t.ID}
		if due, ok := w.known[k]; ok && due == t.Due {
			delete(w.known, k)
			w.due.push(t)
		}
	}
	for n := 0; n < timerBurst && w.due.n > 0 && !l.Full() && !l.loads.crowded(); n++ {
		l.fire(now, w.due.pop())
	}
	if w.wantsRefill() && w.horizon.Due.Add(-l.cfg.TimerHorizon/2) <= now && !l.recovery.careful() {
		l.refill(now)
	}
}

// fire hands a due timer to its run.
func (l *Lane) fire(now model.Time, t store.Timer) {
	e := l.entry(t.Address)
	if e == nil || e.shard.draining {
		return
	}
	l.take(now, e, &input{kind: inTimer, address: e.address, timer: t.ID, run: t.Run})
}

// refill reads the timers behind the horizon.
func (l *Lane) refill(now model.Time) {
	w := &l.timers
	shards := l.serving()
	if len(shards) == 0 {
		w.fresh = true // until there are some
		return
	}
	w.asked = now.Add(l.cfg.TimerHorizon)
	l.loads.add(&Load{Kind: LoadTimers, Shards: shards, Mark: w.horizon, Until: w.asked, Limit: min(timerPage, w.limit)})
}

func (l *Lane) loadedTimers(ld *Load, r LoadResult) {
	w := &l.timers
	for _, t := range r.Timers {
		if _, changed := w.changed[timerKey{t.Run, t.ID}]; !changed && l.Owns(t.Shard) {
			w.push(t) // may shrink the window, which makes the bound of this read stale
		}
	}
	asked := w.asked
	w.asked = 0
	clear(w.changed)
	switch {
	case w.stale:
		// The horizon was moved while we were reading: what we have is right, but there may be more in front of it.
		w.stale = false
	case len(r.Timers) == ld.Limit:
		last := r.Timers[len(r.Timers)-1]
		w.horizon = store.TimerMark{Due: last.Due, Run: last.Run, ID: last.ID}
	default:
		w.horizon = store.TimerMark{Due: asked, Run: maxRun}
	}
}

var maxRun = func() (id model.RunID) {
	for i := range id {
		id[i] = 0xff
	}
	return id
}()

type timerHeap []store.Timer

func compareTimers(x, y store.Timer) int {
	return cmp.Or(cmp.Compare(x.Due, y.Due), x.Run.Compare(y.Run), cmp.Compare(x.ID, y.ID))
}

// Len is part of heap.Interface.
func (h timerHeap) Len() int { return len(h) }

// Less is part of heap.Interface.
func (h timerHeap) Less(i, j int) bool { return compareTimers(h[i], h[j]) < 0 }

// Swap is part of heap.Interface.
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *timerHeap) Push(v any) { *h = append(*h, v.(store.Timer)) }

// Pop is part of heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = store.Timer{}
	*h = old[:len(old)-1]
	return t
}

// fairQueue serves due timers in turn between tenants and workflows, so that a storm of one kind does not delay the others.
type fairQueue struct {
	lines map[kind][]store.Timer
	order []kind
	n     int
}

func (q *fairQueue) push(t store.Timer) {
	k := kind{t.Address.Tenant, t.Address.Type}
	if len(q.lines[k]) == 0 {
		q.order = append(q.order, k)
	}
	q.lines[k] = append(q.lines[k], t)
	q.n++
}

func (q *fairQueue) pop() store.Timer {
	k := q.order[0]
	q.order = q.order[1:]
	line := q.lines[k]
	t := line[0]
	if len(line) > 1 {
		q.lines[k] = line[1:]
		q.order = append(q.order, k)
	} else {
		delete(q.lines, k)
	}
	q.n--
	return t
}

func (q *fairQueue) dropShard(id model.ShardID) {
	q.n = 0
	kept := q.order[:0]
	for _, k := range q.order {
		line := slices.DeleteFunc(q.lines[k], func(t store.Timer) bool { return t.Shard == id })
		if len(line) == 0 {
			delete(q.lines, k)
			continue
		}
		q.lines[k] = line
		q.n += len(line)
		kept = append(kept, k)
	}
	q.order = kept
}
