package queue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Outcome is what came of an attempt, for breakers.
type Outcome uint8

// Outcomes.
const (
	Neither   Outcome = iota // it was withdrawn or given back, or did not begin
	Succeeded                // the attempt succeeded
	Failed                   // the attempt failed
)

// Gate says whether a task may begin now: limits and breakers. The board calls it; it may not call
// the board.
type Gate interface {
	// Take takes what the item needs, all or nothing. If it may not begin: why, and when to ask
	// again (0: when Changed says so).
	Take(now model.Time, it *Item) (ok bool, why model.Reason, again model.Time)
	// Hold takes what the item needs although there may be no room: the claim is durable and was
	// made elsewhere, or before this process began.
	Hold(now model.Time, it *Item)
	// Give returns what a claim held; how says what came of the attempt. Its own group is asked
	// again after that. When other groups may be let through, the caller of the board has to say so
	// by Changed.
	Give(now model.Time, it *Item, how Outcome)
	// Group names items that are let through or kept back together, so that one that is kept back
	// does not keep back others behind it. It is the same for an item until the board is told to
	// Regroup.
	Group(it *Item) string
}

// group are the tasks with one Gate.Group. It exists as long as some of them wait.
type group struct {
	name   string
	lines  int
	closed bool
	why    model.Reason
	again  model.Time // when it is asked again; 0 for not by time
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

// take asks the gate for a task that could begin otherwise.
func (b *Board) take(now model.Time, it *Item, g *group) bool {
	if b.cfg.Gate == nil {
		return true
	}
	ok, why, again := b.cfg.Gate.Take(now, it)
	if !ok && g != nil {
		g.closed, g.why, g.again = true, why, 0
		if again != 0 {
			g.again = max(again, now+1) // a gate that says "now" would be asked for ever
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

// open lets a group be asked again.
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

// Changed tells that the gate may let more through: of the named groups, or of any group when none
// is named.
func (b *Board) Changed(now model.Time, groups ...string) {
	b.advance(now)
	for _, name := range groups {
		b.open(b.groups[name])
	}
	if len(groups) == 0 {
		for _, g := range b.groups {
			b.open(g) // in any order: it only decides who is asked
		}
	}
}

// Closed reports whether tasks of a group wait and are kept back by the gate.
func (b *Board) Closed(group string) bool {
	g := b.groups[group]
	return g != nil && g.closed
}

// Pause keeps the tasks of a queue of a tenant from beginning. What is claimed goes on, and so do
// deadlines.
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

// Kept are the tasks of a group that the gate keeps back: how many, and the first of them.
type Kept struct {
	Count int
	First []Item
}

// Kept counts, by group, what is kept back by nothing but the gate, and names so many of each. It
// looks at all lines.
func (b *Board) Kept(most int) map[string]Kept {
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

// Regroup tells that the gate names groups in another way from now on: tasks that wait are put
// where they belong, and every group may be asked again. Nobody loses its place: shares are those
// of keys, which groups do not change. It looks at everything that waits.
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
				// it is counted until its tasks are in their new lines, so that their keys stay
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
	b.Changed(now)
}

// Taken visits the tasks that have been let through, in the order of Visible, so that the gate can
// be told of them again.
func (b *Board) Taken(visit func(it *Item)) {
	var taken []*task
	for _, t := range b.tasks {
		if t.state.taken() {
			taken = append(taken, t)
		}
	}
	slices.SortFunc(taken, compareTasks)
	for _, t := range taken {
		visit(&t.Item)
	}
}
