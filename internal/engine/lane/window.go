package lane

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// window holds the timers that are due soon. Later timers stay in the store. A kind of workflow
// that has more than its share of the window also leaves timers in the store: such a kind is
// behind. So if a million timers of a kind are due at the same time, the lane reads them as they
// fire. Timers of other kinds do not wait behind them, and have room in the window.
//
// Every timer of our shards up to the horizon is in the window or has fired. For a kind that is
// behind, this is true only up to the position of the kind (line.from). A refill asks for timers up
// to a later bound. The window compares a timer that is committed while a refill is in flight with
// that bound. So it either keeps the timer now or reads it later.
type window struct {
	limit   int
	heap    timerHeap
	known   map[timerKey]model.Time // due time by timer: an older entry of the same timer is void
	lines   map[kind]*line
	order   []*line         // lines with due timers, in turn
	due     int             // timers in lines that are due
	behind  int             // lines that are behind
	horizon store.TimerMark // lines that are not behind: all timers up to here are known
	asked   model.Time      // bound of the refill in flight; 0 if no refill is in flight
	// timers that were started or stopped since the refill began, so that it may show an old state
	changed map[timerKey]struct{}
	crossed bool // the window has kept timers that were committed while a refill was in flight
	stale   bool // a position was moved back while a refill was in flight
	more    bool // the last page was full
	fresh   bool // the lane has read no timers yet
}

// line holds the timers of one kind of workflow. The lane serves due timers of all lines in turn.
type line struct {
	kind   kind
	n      int             // timers in memory that are not void
	last   store.TimerMark // no timer of the line is after this position
	due    []store.Timer   // timers that are due, in order
	behind bool
	// while the line is behind: its timers up to here are known, and the window does not keep later
	// ones
	from   store.TimerMark
	denied bool // a page had more timers of the line than there was room for
}

type timerKey struct {
	run model.RunID
	id  string
}

func newWindow(limit int) window {
	return window{limit: limit, known: map[timerKey]model.Time{}, lines: map[kind]*line{}, changed: map[timerKey]struct{}{}, fresh: true}
}

// reset makes the lane read all timers again: after it has acquired shards, after a quarantine, and
// after it has dropped a batch that may have stopped timers.
func (w *window) reset() {
	w.horizon, w.stale, w.fresh = store.TimerMark{}, w.asked != 0, false
	for _, n := range w.lines {
		w.catchUp(n)
	}
}

// bound returns the due time up to which a timer must be kept in memory.
func (w *window) bound() model.Time { return max(w.horizon.Due, w.asked) }

// share returns how many timers a kind may have in memory once the window is half full.
func (w *window) share() int { return max(1, w.limit/(2*max(1, len(w.lines)))) }

// room reports whether the window takes a timer that the lane has read for a line. If the line has
// a later timer in memory, room always returns true, because the earlier timer takes the place of
// the later one.
func (w *window) room(n *line, place store.TimerMark) bool {
	return w.timerCount() < w.limit/2 || n.n < w.share() || compareMarks(place, n.last) < 0
}

// timerCount returns the number of timers in memory, including void ones.
func (w *window) timerCount() int { return len(w.heap) + w.due }

// line finds or creates the line of a kind.
func (w *window) line(k kind) *line {
	n := w.lines[k]
	if n == nil {
		n = &line{kind: k}
		w.lines[k] = n
	}
	return n
}

func kindOf(t *store.Timer) kind { return kind{t.Address.Tenant, t.Address.Type} }

// forgetOne forgets a timer of a line.
func (w *window) forgetOne(k kind) {
	n := w.lines[k]
	n.n--
	w.dismiss(n)
}

// dismiss forgets a line that is empty and not behind.
func (w *window) dismiss(n *line) {
	if n.n == 0 && !n.behind && len(n.due) == 0 {
		delete(w.lines, n.kind)
	}
}

// fallBehind notes that the window knows the timers of a line only up to a position.
func (w *window) fallBehind(n *line, from store.TimerMark) {
	if !n.behind {
		n.behind, n.from = true, from
		w.behind++
	} else if compareMarks(from, n.from) < 0 {
		n.from = from
	}
}

// catchUp notes that the window knows a line up to the same place as it knows all other lines.
func (w *window) catchUp(n *line) {
	if n.behind {
		n.behind, n.from = false, store.TimerMark{}
		w.behind--
	}
	w.dismiss(n)
}

// add takes a timer that has just been committed, if it is due within the window.
func (w *window) add(t *store.Timer) {
	w.change(timerKey{t.Run, t.ID})
	if t.Due > w.bound() {
		return
	}
	// If a line is behind, the lane reads the timers after the position of the line when the line
	// has its turn. But a read in flight may already have passed the place of this timer.
	if n := w.lines[kindOf(t)]; n != nil && n.behind && w.asked == 0 && compareMarks(markOf(t), n.from) > 0 {
		return
	}
	w.push(*t)
	w.crossed = w.crossed || w.asked != 0
	if w.timerCount() > 2*w.limit {
		w.shrink()
	}
}

// push takes a timer into memory. An older entry of the same timer is void from now on.
func (w *window) push(t store.Timer) {
	k := timerKey{t.Run, t.ID}
	due, ok := w.known[k]
	if ok && due == t.Due {
		return
	}
	n := w.line(kindOf(&t))
	n.last = maxMark(n.last, markOf(&t))
	if !ok {
		n.n++
	}
	w.known[k] = t.Due
	heap.Push(&w.heap, t)
}

// shrink forgets the later timers of lines that have more than their share.
func (w *window) shrink() {
	w.trim(w.share())
	if len(w.heap) > w.limit {
		w.cut()
	}
	w.stale = w.asked != 0
}

// trim forgets void timers, timers after the position of a line that is behind, and timers beyond
// the share of their line.
func (w *window) trim(share int) {
	slices.SortFunc(w.heap, compareTimers) // a sorted slice is a heap
	// A timer that was stopped and started again for the same time is in the heap twice. One entry
	// is enough.
	all := slices.CompactFunc(w.heap, func(x, y store.Timer) bool { return compareTimers(x, y) == 0 })

	kept, taken := all[:0], map[*line]int{}
	var last store.TimerMark
	for _, t := range all {
		if due, ok := w.known[timerKey{t.Run, t.ID}]; !ok || due != t.Due {
			continue
		}

		n, place := w.lines[kindOf(&t)], markOf(&t)
		if taken[n]++; taken[n]+len(n.due) > share {
			if last == (store.TimerMark{}) {
				// No timer in the heap is earlier, so all earlier timers of the line are known.
				last = store.TimerMark{Due: t.Due - 1, Run: maxRun}
			}
			w.fallBehind(n, last)
		}

		last = place
		if n.behind && compareMarks(place, n.from) > 0 {
			w.forget(&t)
			continue
		}

		kept = append(kept, t)
	}

	clear(w.heap[len(kept):])
	w.heap = kept
	for _, n := range w.lines {
		// The timers that the line lacks are after the horizon, and the lane reads them with all
		// others.
		if n.behind && compareMarks(n.from, w.horizon) >= 0 {
			w.catchUp(n)
		}
		w.dismiss(n)
	}
}

// cut forgets the later timers of all lines, because there are so many lines that shares do not
// help. The horizon moves back to the last timer that stays.
func (w *window) cut() {
	for i := range w.heap[w.limit:] {
		w.forget(&w.heap[w.limit+i])
	}
	clear(w.heap[w.limit:])
	w.heap = w.heap[:w.limit]

	defer func() {
		for _, n := range w.lines {
			w.dismiss(n)
		}
	}()

	// The horizon must not move forward here: after a reset, the lane may not have read all timers
	// up to the last one in the heap.
	if last := markOf(&w.heap[w.limit-1]); compareMarks(last, w.horizon) < 0 {
		w.horizon = last
		for _, n := range w.lines {
			if n.behind && compareMarks(n.from, last) >= 0 {
				w.catchUp(n)
			}
		}
	}
}

// forget drops a timer that stays in the store.
func (w *window) forget(t *store.Timer) {
	delete(w.known, timerKey{t.Run, t.ID})
	w.lines[kindOf(t)].n--
}

// remove forgets a timer that was stopped. The entry of the timer in the heap stays, and the window
// skips this entry when its time comes.
func (w *window) remove(a model.Address, run model.RunID, id string) {
	k := timerKey{run, id}
	w.change(k)
	if _, ok := w.known[k]; ok {
		delete(w.known, k)
		w.forgetOne(kind{a.Tenant, a.Type})
	}
}

func (w *window) change(k timerKey) {
	if w.asked != 0 {
		w.changed[k] = struct{}{}
	}
}

// dropShard forgets the timers of a shard that another lane owns from now on.
func (w *window) dropShard(id model.ShardID) {
	drop := func(t store.Timer) bool {
		k := timerKey{t.Run, t.ID}
		if due, ok := w.known[k]; t.Shard == id && ok && due == t.Due {
			w.forget(&t)
		}
		return t.Shard == id
	}

	w.heap = slices.DeleteFunc(w.heap, drop)
	heap.Init(&w.heap)

	order := w.order[:0]
	w.due = 0
	for _, n := range w.order {
		if n.due = slices.DeleteFunc(n.due, drop); len(n.due) > 0 {
			order = append(order, n)
			w.due += len(n.due)
		}
	}

	clear(w.order[len(order):])
	w.order = order
	for _, n := range w.lines {
		w.dismiss(n)
	}
}

// ripen moves due timers into their lines.
func (w *window) ripen(now model.Time) {
	for len(w.heap) > 0 && w.heap[0].Due <= now {
		t := heap.Pop(&w.heap).(store.Timer)
		if due, ok := w.known[timerKey{t.Run, t.ID}]; !ok || due != t.Due {
			continue
		}
		n := w.lines[kindOf(&t)]
		if len(n.due) == 0 {
			w.order = append(w.order, n)
		}
		n.due = append(n.due, t)
		w.due++
	}
}

// next takes a due timer, from each line in turn. ok is false if the timer was stopped since.
func (w *window) next() (t store.Timer, ok bool) {
	n := w.order[0]
	w.order = w.order[1:]
	t, n.due[0] = n.due[0], store.Timer{}
	w.due--

	if n.due = n.due[1:]; len(n.due) > 0 {
		w.order = append(w.order, n)
	} else {
		n.due = nil
	}

	k := timerKey{t.Run, t.ID}
	if due, known := w.known[k]; known && due == t.Due {
		delete(w.known, k)
		n.n--
		ok = true
	}

	w.dismiss(n)
	return t, ok
}

// wake returns when the next timer is due, or when the lane must read the next timers.
func (w *window) wake(horizon time.Duration) model.Time {
	if w.due > 0 || w.catchUpDue() != nil {
		return 1
	}
	var t model.Time
	if len(w.heap) > 0 {
		t = w.heap[0].Due
	}
	if w.refillDue() {
		if at := w.horizon.Due.Add(-horizon / 2); t == 0 || at < t {
			t = at
		}
	}
	return t
}

// refillDue reports whether there is room for the next page and no read is in flight.
func (w *window) refillDue() bool {
	// A window that is full of timers beyond the horizon has room too: nearer timers are more
	// urgent and replace them.
	return !w.fresh && w.asked == 0 && w.due < 2*w.limit && (w.timerCount() < 2*w.limit || compareMarks(markOf(&w.heap[0]), w.horizon) > 0)
}

// catchUpDue returns the line that is furthest behind and has used up half of its share. It is nil
// when there is no such line, or a read is in flight.
func (w *window) catchUpDue() (next *line) {
	if w.behind == 0 || w.asked != 0 || w.fresh {
		return nil
	}
	for _, n := range w.lines {
		if n.behind && n.n <= w.share()/2 && (next == nil || compareMarks(n.from, next.from) < 0) {
			next = n
		}
	}
	return next
}

// page is what a refill has read: all timers after the position after, up to the position end.
type page struct {
	after, end store.TimerMark
	timers     []store.Timer
	catchUp    bool // the page is for the lines that are behind; if false, for all other lines
}

// take takes a page of timers into the window. Timers without room stay in the store, and their
// line falls behind.
func (w *window) take(p page, owns func(model.ShardID) bool) {
	last := p.after
	for i := range p.timers {
		t := &p.timers[i]
		place := markOf(t)
		if _, changed := w.changed[timerKey{t.Run, t.ID}]; !changed && owns(t.Shard) {
			switch n := w.line(kindOf(t)); {
			case n.behind != p.catchUp || p.catchUp && !w.isWanted(n, p.after, place):
				// The timer is already known, or is beyond the position of its line.
				w.dismiss(n)
			case w.room(n, place):
				w.push(*t)
			case w.stale: // the lane reads the timers again
				w.dismiss(n)
			case p.catchUp:
				n.from, n.denied = last, true
			default:
				w.fallBehind(n, last)
			}
		}

		last = place
	}

	// The timers of a stale read are valid. But the window may not know all timers up to the end of
	// the page, because a position was moved back while the read was in flight.
	if !w.stale {
		w.move(p)
	}

	crossed := w.crossed
	w.asked, w.stale, w.crossed = 0, false, false
	clear(w.changed)
	switch {
	case len(w.heap) > w.limit:
		w.shrink()
	case crossed && w.behind > 0:
		// The window kept some timers because the read might have passed them. They are in the
		// store, so the window can forget them now.
		w.trim(len(w.heap) + w.due)
	}
}

// isWanted reports whether a line that is behind takes the timer at a place of a page.
func (w *window) isWanted(n *line, after, place store.TimerMark) bool {
	return !n.denied && compareMarks(n.from, after) >= 0 && compareMarks(place, n.from) > 0 && compareMarks(place, w.horizon) <= 0
}

// move notes up to which position the window knows all timers, now that it has taken a page.
func (w *window) move(p page) {
	if !p.catchUp {
		w.horizon = p.end
		return
	}

	for _, n := range w.lines {
		switch {
		case !n.behind || compareMarks(n.from, p.after) < 0:
		case n.denied:
			n.denied = false
		case compareMarks(n.from, p.end) < 0:
			n.from = p.end
		}
		if n.behind && compareMarks(n.from, w.horizon) >= 0 {
			w.catchUp(n)
		}
	}
}

var maxRun = func() (id model.RunID) {
	for i := range id {
		id[i] = 0xff
	}
	return id
}()

func markOf(t *store.Timer) store.TimerMark { return store.TimerMark{Due: t.Due, Run: t.Run, ID: t.ID} }

func maxMark(x, y store.TimerMark) store.TimerMark {
	if compareMarks(x, y) < 0 {
		return y
	}
	return x
}

func compareMarks(x, y store.TimerMark) int {
	return cmp.Or(cmp.Compare(x.Due, y.Due), x.Run.Compare(y.Run), cmp.Compare(x.ID, y.ID))
}

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
