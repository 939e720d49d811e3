package gate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// Item is a task as the gate sees it.
type Item struct {
	Ref   model.TaskRef
	Spec  *model.TaskSpec
	Input *model.Payload
	// Plan is what the gate has found out about the task. Whoever keeps it between two calls spares
	// the gate to find it out again.
	Plan *Plan
}

// Plan is what a task has to pass by the rules of a version. Tasks that need the same share it.
type Plan struct {
	gate    *Gate
	version int64
	uses    []use
	missing string // a limit that it names and that no rule defines
	breaker rule.BreakerID
	group   string
}

// use is a limit of a plan, with its machine once it was looked up.
type use struct {
	rule.Use
	r *resource
}

// entry is a task that holds or waits.
type entry struct {
	ref     model.TaskRef
	holds   bool
	held    []*resource
	breaker *circuit
	permit  breaker.Permit
	// queued is the group that it waits with, since when.
	queued *group
	since  model.Time
}

// group is the tasks of a group that wait. They need the same, so they wait at the same place:
// where the last of them was refused.
type group struct {
	name    string
	waiting int
	// at is the limit in whose line it stands, passed are those before it, which are pinned, each
	// once per task. Without at it stands nowhere: it is about to be tried again, or its breaker
	// keeps it back.
	at     *resource
	passed []*resource
	// ready tells that the dispatcher tries it by itself as soon as it can; see Pass.
	ready bool
}

// Gate is the machine.
type Gate struct {
	home      limit.Place
	owns      func(rule.Resource) bool // nil: everything is owned here
	rules     *rule.Set
	version   int64
	resources map[rule.Resource]*resource
	circuits  map[rule.BreakerID]*circuit
	entries   map[model.TaskRef]*entry
	groups    map[string]*group
	plans     map[string]*Plan // of this version, by group
	none      *Plan            // of those that need nothing
	free      []*entry
	sweepAt   int
	woken     []string
	out       []Message
	dirty     []*circuit
	asks      []Ask
	// that others share, as they were seen last, with what this node has to tell them
	stored   map[rule.BreakerID]*breaker.Breaker
	unsent   map[rule.BreakerID][]breaker.ToOwner // of that what is not stored yet
	numbered int64                                // what breakers were told so far
}

// New is the gate of a node that is home to the owners of all limits and breakers, if owns is nil.
// Otherwise others share them: the node is a place among others, owns tells for which limits it is
// the owner at the time, and it has views of breakers.
func New(home limit.Place, owns func(rule.Resource) bool) *Gate {
	g := &Gate{
		home: home, owns: owns, resources: map[rule.Resource]*resource{}, circuits: map[rule.BreakerID]*circuit{}, entries: map[model.TaskRef]*entry{},
		groups: map[string]*group{}, plans: map[string]*Plan{}, sweepAt: minSweep, stored: map[rule.BreakerID]*breaker.Breaker{}, unsent: map[rule.BreakerID][]breaker.ToOwner{},
	}
	g.none = &Plan{gate: g}
	return g
}

// Take lets a task through everything, or tells what refuses and when to ask again. Who was let
// through stays so until Give.
func (g *Gate) Take(now model.Time, it *Item) (ok bool, why model.Reason, again model.Time) {
	e := g.entries[it.Ref]
	if e != nil && e.holds {
		return true, why, 0
	}
	p := g.planOf(it)

	if e == nil {
		if p == g.none {
			return true, why, 0
		}
		e = g.enter(it.Ref)
	}

	if e.queued != nil && (e.queued.name != p.group || p.missing != "") {
		g.leave(now, e) // the rules have changed since it was refused
	}
	if p.missing != "" {
		return false, model.Reason{Code: model.WaitPermit, Name: p.missing, Detail: "no limit of that name is defined"}, 0
	}

	c := g.circuitOf(now, p)
	if c != nil {
		if until, text := c.until(now); now < until {
			g.step(now, g.groups[p.group], nil, nil)
			return c.refuse(p.group, until, text)
		}
	}

	if r := g.reach(now, e, p); r != nil {
		why, again = r.refusal(now)
		return false, why, again
	}

	if c != nil {
		a := c.allow(now, it.Spec.ToClose)
		g.told(now, c, a.Changed)
		if !a.OK {
			g.unpin(now, e)
			return c.refuse(p.group, a.Until, a.Why)
		}
		e.breaker, e.permit = c, a.Permit
	}

	e.holds = true
	for _, r := range e.held {
		r.local.Take(it.Ref) // it was reached, and nobody came in between
		r.local.Pin(-1)
		r.name(it.Ref)
	}

	g.leave(now, e)
	if q := g.groups[p.group]; q != nil {
		g.rouse(q.name) // the next of them may pass, or has to stand in line
	}
	for _, r := range e.held {
		g.exchange(now, r)
	}

	return true, why, 0
}

// Hold lets a task through that was let through before: its claim was found when this node came to
// own it, or rules have come that it did not have to pass when it was. What it held it keeps.
func (g *Gate) Hold(now model.Time, it *Item) {
	e, p := g.entries[it.Ref], g.planOf(it)
	if e == nil {
		if p == g.none {
			return
		}
		e = g.enter(it.Ref)
	}

	again := e.holds
	g.leave(now, e)
	e.holds = true

	for i := range p.uses {
		r := g.resourceOf(now, &p.uses[i])
		if again && slices.Contains(e.held, r) {
			continue
		}
		r.local.Hold(it.Ref)
		r.name(it.Ref)
		e.held = append(e.held, r)
		g.exchange(now, r)
	}

	if again {
		return
	}

	// The permit of its breaker is not known any more; its outcome counts for nothing, as that of
	// any late one.
	e.breaker, e.permit = g.circuitOf(now, p), breaker.Permit{}
}

// Give ends what Take began: the task holds nothing and stands in no line. How it ended counts for
// its breaker.
func (g *Gate) Give(now model.Time, it *Item, how breaker.Outcome) {
	e := g.entries[it.Ref]
	if e == nil {
		return
	}
	g.leave(now, e)

	for _, r := range e.held {
		r.local.Give(it.Ref)
		r.unname(it.Ref)
		g.exchange(now, r)
		g.wake(r)
	}

	if e.breaker != nil {
		g.told(now, e.breaker, e.breaker.done(now, e.permit, how))
	}
	delete(g.entries, it.Ref)
	*e = entry{held: e.held[:0]}
	g.free = append(g.free, e)
	g.sweep(now)
}

// Leave is Give for a task that has not been let through: it stands in no line any more. It returns
// its group if none of it stands in line now, so that another one has to ask.
func (g *Gate) Leave(now model.Time, ref model.TaskRef) (group string) {
	e := g.entries[ref]
	if e == nil || e.holds {
		return ""
	}
	if q := e.queued; q != nil && q.waiting == 1 {
		group = q.name
	}
	g.Give(now, &Item{Ref: ref}, breaker.Neither)
	return group
}

// Group names items that are let through or kept back together: what is true of one of them is true
// of all.
func (g *Gate) Group(it *Item) string { return g.planOf(it).group }

// Woken are groups of which an item could pass now, because something became free or has changed.
// They are told once.
func (g *Gate) Woken() []string {
	w := g.woken
	g.woken = nil
	return w
}

// Pass tells that a group which was woken could not be tried: no worker is free for its tasks, or
// they are paused, or wait under another name by now. Whoever stands behind it is woken instead.
// The dispatcher tries it as soon as it can, so it is not woken again before it was refused.
func (g *Gate) Pass(name string) {
	if q := g.groups[name]; q != nil && q.at != nil && !q.ready {
		q.ready = true
		g.wake(q.at)
	}
}

// enter makes an entry, or takes one that is not used any more.
func (g *Gate) enter(ref model.TaskRef) *entry {
	var e *entry
	if n := len(g.free); n > 0 {
		e, g.free = g.free[n-1], g.free[:n-1]
	} else {
		e = &entry{}
	}
	e.ref = ref
	g.entries[ref] = e
	return e
}

// maxPlans bounds how many plans are kept to be shared.
const maxPlans = 1 << 14

// planOf is what the task has to pass by the rules of today.
func (g *Gate) planOf(it *Item) *Plan {
	if it.Plan != nil && it.Plan.gate == g && it.Plan.version == g.version {
		return it.Plan
	}
	p := &Plan{gate: g, version: g.version}
	tenant := it.Ref.Address.Tenant
	p.breaker, _ = g.rules.Breaker(tenant, it.Spec)
	uses := g.rules.Resolve(tenant, it.Spec, it.Input)
	if len(uses) == 0 && p.breaker.IsZero() {
		it.Plan = g.none
		return g.none
	}

	var group strings.Builder
	part := func(s string) {
		group.WriteString(strconv.Itoa(len(s)))
		group.WriteByte(':')
		group.WriteString(s)
	}

	part(p.breaker.Tenant)
	part(p.breaker.Name)
	for _, u := range uses {
		if u.Missing && p.missing == "" {
			p.missing = u.Resource.String()
		}
		p.uses = append(p.uses, use{Use: u})
		for _, s := range [...]string{u.Resource.Name, u.Resource.Selector, u.Resource.Tenant, u.Resource.Key} {
			part(s)
		}
	}

	p.group = group.String()
	if known := g.plans[p.group]; known != nil {
		p = known
	} else {
		if len(g.plans) >= maxPlans {
			clear(g.plans) // those that are in use go on; equal ones are made again
		}
		g.plans[p.group] = p
	}

	it.Plan = p
	return p
}

// reach walks along the limits of a task and pins them, into held. It returns the one that refuses,
// at which its group then waits, or nil.
func (g *Gate) reach(now model.Time, e *entry, p *Plan) *resource {
	// The group lets go of what it keeps without telling anybody, because it is most likely taken
	// up again at once.
	q := g.groups[p.group]
	g.count(q, -1)
	e.held = e.held[:0]
	// all of them ask at once, so that owners hear the same number each time, or rather nothing
	waiting := 1

	if q != nil {
		waiting = q.waiting
		if e.queued == nil {
			waiting++
		}
	}

	for i := range p.uses {
		r := g.resourceOf(now, &p.uses[i])
		if !r.has() {
			r.local.Wait(waiting)
			g.exchange(now, r)
			r.local.Wait(-waiting)

			if !r.has() {
				if q == nil {
					q = &group{name: p.group}
					g.groups[p.group] = q
				}
				if e.queued == nil {
					e.queued, e.since = q, now
					q.waiting++
				}
				for _, r := range e.held {
					r.local.Pin(-1)
				}
				g.count(q, 1) // as it was: step goes on from there
				g.step(now, q, r, e.held)
				e.held = e.held[:0]
				return r
			}
		}

		r.local.Pin(1)
		e.held = append(e.held, r)
	}

	g.count(q, 1)
	g.step(now, q, nil, nil)
	return nil
}

// count adds a group to the numbers of those who wait, or takes it away.
func (g *Gate) count(q *group, sign int) {
	if q == nil || q.at == nil {
		return
	}
	q.at.local.Wait(sign * q.waiting)
	for _, r := range q.passed {
		r.local.Pin(sign * q.waiting)
	}
}

// step moves a group to the line of a limit, or to none.
func (g *Gate) step(now model.Time, q *group, to *resource, passed []*resource) {
	if q == nil || q.at == nil && to == nil {
		return
	}
	was, left := q.at, q.passed
	q.ready = false
	g.count(q, -1)
	q.at, q.passed = to, slices.Clone(passed)
	g.count(q, 1)
	if to != nil && was != to {
		to.line = append(to.line, q)
	}

	for _, r := range left {
		if !slices.Contains(passed, r) {
			g.exchange(now, r)
		}
	}

	if to != nil {
		g.exchange(now, to)
	}

	if was != nil && was != to {
		g.exchange(now, was)
		g.wake(was) // the group does not use what it may have been woken for
	}
}

// leave ends the wait of a task. A group of which nobody waits is forgotten.
func (g *Gate) leave(now model.Time, e *entry) {
	q := e.queued
	if q == nil {
		return
	}
	e.queued = nil
	g.count(q, -1)
	q.waiting--
	g.count(q, 1)
	at := q.at

	if q.waiting == 0 {
		g.step(now, q, nil, nil)
		delete(g.groups, q.name)
		return
	}

	if at != nil {
		g.exchange(now, at)
		g.wake(at)
	}
}

// unpin lets go of what a task has reached.
func (g *Gate) unpin(now model.Time, e *entry) {
	for _, r := range e.held {
		r.local.Pin(-1)
		g.exchange(now, r)
		g.wake(r)
	}
	e.held = e.held[:0]
}

// SetRules changes the rules. Everybody who waits is woken.
func (g *Gate) SetRules(now model.Time, s *rule.Set) {
	g.rules = s
	g.version++
	g.none = &Plan{gate: g, version: g.version}
	clear(g.plans)

	for _, r := range g.sorted() {
		n, ok := s.Numbers(r.id)
		if ok && (n != r.local.Numbers() || r.owner != nil && n != r.owner.Numbers()) {
			g.configure(now, r, n)
		}
		for _, q := range r.line {
			if q.at == r {
				g.rouse(q.name)
			}
		}
	}

	for _, id := range slices.SortedFunc(maps.Keys(g.circuits), func(a, b rule.BreakerID) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
	}) {
		c := g.circuits[id]
		if c.view != nil {
			g.hear(now, id, breaker.Permit{}, false)
		} else if n := s.BreakerConfig(id); n != c.owner.Status(now).Config {
			c.owner.Configure(now, n)
			g.told(now, c, true)
		}
		g.wakeCircuit(c)
	}
}

func (g *Gate) configure(now model.Time, r *resource, n limit.Numbers) {
	r.local.Configure(n)
	if r.owner != nil {
		g.deliver(r, r.owner.Configure(now, n))
	}
	g.exchange(now, r)
}

// sorted are all resources in canonical order: what a walk over them sends must not depend on luck.
func (g *Gate) sorted() []*resource {
	return slices.SortedFunc(maps.Values(g.resources), func(a, b *resource) int { return a.id.Compare(b.id) })
}
