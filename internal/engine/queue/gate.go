package queue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Outcome is the outcome of an attempt, for breakers.
type Outcome uint8

// Outcomes.
const (
	Neither   Outcome = iota // it was withdrawn or given back, or did not start
	Succeeded                // the attempt succeeded
	Failed                   // the attempt failed
	// The task leaves the memory of this node, because its run moves away or is unloaded. A worker
	// may still execute the attempt.
	Forgotten
)

// Admitter decides whether a task may start now: limits and breakers. The board calls it; the gate
// must not call the board.
type Admitter interface {
	// Take takes what the item needs, all or nothing. If the item may not start, it returns why,
	// and when to ask again (0: after the caller has called Reopen).
	Take(now model.Time, it *Item) (ok bool, why model.Reason, again model.Time)
	// Hold takes what the item needs even if there is no room: the claim is durable and was made
	// elsewhere, or before this process started. maker is the other node that has made the claim
	// and counts it; empty if this node counts it.
	Hold(now model.Time, it *Item, maker string)
	// Give returns what a claim held; how is the outcome of the attempt. The board then asks for
	// its group again. If other groups may pass now, the caller of the board must call Reopen.
	Give(now model.Time, it *Item, how Outcome)
	// Group names the group of an item. The gate admits or refuses all items of a group alike, so
	// that a refused item does not hold back other groups behind it. The group of an item may
	// change only with Regroup.
	Group(it *Item) string
}

// group stands for the tasks with the same Admitter.Group. It exists while some of them wait.
type group struct {
	name   string
	lines  int
	closed bool
	why    model.Reason
	again  model.Time // when to ask the gate again; 0 if not by time
	at     int32
	cells  []*cell
}

type byAgain struct{}

func (byAgain) before(a, b *group) bool {
	if a.again != b.again {
		return a.again < b.again
	}
	return a.name < b.name
}
func (byAgain) place(g *group) *int32 { return &g.at }

// take asks the gate for a task that could start otherwise. If the gate refuses, take closes the
// group.
func (b *Board) take(now model.Time, it *Item, g *group) bool {
	if b.cfg.Gate == nil {
		return true
	}
	ok, why, again := b.cfg.Gate.Take(now, it)
	if !ok && g != nil {
		g.closed, g.why, g.again = true, why, 0
		if again != 0 {
			g.again = max(again, now+1) // a gate that answers "now" must not cause an endless loop
			b.again.put(g)
		}
		b.refreshAll(g.cells)
	}
	return ok
}

// give returns the permits of a task.
func (b *Board) give(now model.Time, it *Item, how Outcome) {
	if b.cfg.Gate == nil {
		return
	}
	b.cfg.Gate.Give(now, it, how)
	b.open(b.groups[b.cfg.Gate.Group(it)])
}

// open lets the board ask the gate for a group again.
func (b *Board) open(g *group) {
	if g == nil || !g.closed {
		return
	}
	g.closed, g.again = false, 0
	b.again.remove(g)
	b.refreshAll(g.cells)
}

func (b *Board) groupName(it *Item) string {
	if b.cfg.Gate == nil {
		return ""
	}
	return b.cfg.Gate.Group(it)
}

// Reopen says that the gate may let more tasks of the named groups through, or of any group if
// none is named.
func (b *Board) Reopen(now model.Time, groups ...string) {
	b.advance(now)
	for _, name := range groups {
		b.open(b.groups[name])
	}
	if len(groups) == 0 {
		for _, g := range b.groups {
			b.open(g) // the order does not matter: nothing is asked yet
		}
	}
}

// Closed reports whether tasks of a group wait and the gate holds them back.
func (b *Board) Closed(group string) bool {
	g := b.groups[group]
	return g != nil && g.closed
}

// Pause stops the tasks of a queue of a tenant from starting. Claimed tasks continue, and deadlines
// still run.
func (b *Board) Pause(tenant, queue, why string) {
	s := b.site(siteName{tenant, queue})
	s.paused, s.why = true, why
	b.refreshAll(s.cells)
}

// Resume undoes Pause.
func (b *Board) Resume(tenant, queue string) {
	s := b.sites[siteName{tenant, queue}]
	if s == nil {
		return
	}
	s.paused, s.why = false, ""
	b.refreshAll(s.cells)
	b.forget(s)
}

// Kept counts the tasks of a group that the gate holds back, with the first of them.
type Kept struct {
	Count int
	First []Item
}

// CountKept counts, by group, the tasks that only the gate holds back, and returns the first ones
// of each. It visits all lines.
func (b *Board) CountKept(most int) map[string]Kept {
	all := map[string]Kept{}
	for _, ln := range b.lines {
		if !ln.group.closed || ln.site.paused || len(ln.leaves) == 0 {
			continue
		}
		k := all[ln.group.name]
		k.Count += ln.tasks.len()
		for _, t := range ln.tasks.first(most) {
			k.First = append(k.First, t.Item)
		}
		slices.SortFunc(k.First, func(x, y Item) int {
			return cmp.Or(cmp.Compare(x.Visible, y.Visible), cmp.Compare(x.Ref.String(), y.Ref.String()))
		})
		k.First = k.First[:min(len(k.First), most)]
		all[ln.group.name] = k
	}

	return all
}

// Regroup says that the gate has changed the names of groups. It moves waiting tasks to their new
// groups and opens all groups. No key loses its place: shares belong to keys, which do not depend
// on groups. It visits everything that waits.
func (b *Board) Regroup(now model.Time) {
	b.advance(now)
	var moved []*task
	var emptied []*leaf
	for _, ln := range slices.SortedFunc(maps.Values(b.lines), func(x, y *line) int { return compareTasks(x.tasks.top(), y.tasks.top()) }) {
		var leaving []*task
		for _, t := range ln.tasks.xs {
			if b.groupName(&t.Item) != ln.name.group {
				leaving = append(leaving, t)
			}
		}

		for _, t := range leaving {
			ln.tasks.remove(t)
			t.line = nil
			t.site.waiting--
		}

		moved = append(moved, leaving...)
		switch {
		case len(leaving) == 0:
		case ln.tasks.len() > 0:
			b.headChanged(ln)
		default:
			for _, lf := range ln.leaves {
				// stays counted until its tasks are in their new lines, so that their keys survive
				b.withdraw(lf)
			}
			emptied = append(emptied, ln.leaves...)
			b.dropLine(ln)
		}
	}

	slices.SortFunc(moved, compareTasks)
	for _, t := range moved {
		b.wait(t)
	}
	for _, lf := range emptied {
		lf.uncount()
	}
	b.Reopen(now)
}

// VisitTaken visits the admitted tasks in the order of Visible, so that the caller can announce
// them to the gate again.
func (b *Board) VisitTaken(visit func(it *Item)) {
	var taken []*task
	for _, t := range b.tasks {
		if t.state.hasPermits() {
			taken = append(taken, t)
		}
	}
	slices.SortFunc(taken, compareTasks)
	for _, t := range taken {
		visit(&t.Item)
	}
}
