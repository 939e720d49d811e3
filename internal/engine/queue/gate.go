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
	Neither   Outcome = iota // the attempt was withdrawn or given back, or did not start
	Succeeded                // the attempt succeeded
	Failed                   // the attempt failed
	// The task leaves the memory of this node, because its run moves away or is unloaded. A worker
	// may still execute the attempt.
	Forgotten
)

// Admitter decides, by limits and breakers, whether a task may start now. The board calls it. An
// Admitter must not call the board.
type Admitter interface {
	// Take takes the permits that the item needs, all or none. If the item may not start, Take
	// returns why, and when the board should ask again. A zero time means that the board asks again
	// after a call of Reopen.
	Take(now model.Time, it *Item) (ok bool, why model.Reason, again model.Time)
	// Hold takes the permits that the item needs even if none are free, because the claim is
	// durable: another node, or an earlier life of this node, has made the claim. maker is the node
	// that has made the claim and counts it. It is empty if this node counts the claim.
	Hold(now model.Time, it *Item, maker string)
	// Give gives the permits of a claim back. The parameter how is the outcome of the attempt.
	// After that the board asks the gate about the group of the item again. If other groups may
	// pass now, the caller of the board must call Reopen.
	Give(now model.Time, it *Item, how Outcome)
	// Group names the group of an item. The gate admits or refuses all items of a group alike, so
	// that a refused item does not hold back other groups behind it. The group of an item may
	// change only with Regroup.
	Group(it *Item) string
}

// group has the state of a group of tasks, see Admitter.Group. It exists while tasks of the group
// wait.
type group struct {
	name   string
	lines  int
	closed bool
	why    model.Reason
	again  model.Time // when to ask the gate again; 0 if the gate gave no time
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

// take asks the gate about a task that nothing else holds back. If the gate refuses, take closes
// the group.
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

// open lets the board ask the gate about a group again.
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

// Reopen opens the named groups, or all groups if none is named, because the gate may let more of
// their tasks through.
func (b *Board) Reopen(now model.Time, groups ...string) {
	b.advance(now)
	for _, name := range groups {
		b.open(b.groups[name])
	}
	if len(groups) == 0 {
		for _, g := range b.groups {
			b.open(g) // the order does not matter, because open does not ask the gate
		}
	}
}

// Closed reports whether tasks of a group wait and the gate holds them back.
func (b *Board) Closed(group string) bool {
	g := b.groups[group]
	return g != nil && g.closed
}

// Pause keeps the tasks of a queue of a tenant from starting. Claimed tasks continue, and deadlines
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

// Kept has the number of tasks of a group that the gate holds back, and the first of these tasks.
type Kept struct {
	Count int
	First []Item
}

// CountKept counts, by group, the tasks that only the gate holds back. It also returns up to most
// tasks of each group. It visits all lines.
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

// Regroup moves waiting tasks to their new groups and opens all groups, after the gate has changed
// the names of groups. No key loses its place, because shares belong to keys, and keys do not
// depend on groups. Regroup visits all waiting tasks.
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
				// the counts still include the leaf until its tasks are in their new lines, so that
				// their keys survive
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
