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

// Task is a task as the gate sees it.
type Task struct {
	Ref   model.TaskRef
	Spec  *model.TaskSpec
	Input *model.Payload
	// Plan caches what the gate has worked out about the task. A caller that keeps Plan between two
	// calls saves the gate this work.
	Plan *Plan
}

// Plan lists what a task must pass under one version of the rules. Tasks with the same needs share
// a plan.
type Plan struct {
	gate    *Gate
	version int64
	uses    []use
	missing string // a limit that the task names and no rule defines
	breaker rule.BreakerID
	group   string
}

// use is a limit of a plan, with its resource once the gate has looked it up.
type use struct {
	rule.Use
	r *resource
}

// admission is a task that holds or waits for limits.
type admission struct {
	ref     model.TaskRef
	holds   bool
	held    []*resource
	breaker *circuit
	permit  breaker.Permit
	// queued is the group that the task waits with; since is when it started to wait.
	queued *taskGroup
	since  model.Time
}

// taskGroup is the set of waiting tasks with the same needs. They wait at the same place: where the
// last of them was refused.
type taskGroup struct {
	name    string
	waiting int
	// The group waits in the line of the limit at. The list passed holds the limits that the group
	// has passed before, each pinned once per waiting task. If at is nil, the group is in no line:
	// the dispatcher is about to try the group again, or its breaker holds it back.
	at     *resource
	passed []*resource
	// ready says that the dispatcher tries the group on its own as soon as it can; see Pass.
	ready bool
}

// Gate holds the limits and breakers of a node. See the package comment.
type Gate struct {
	home      limit.Place
	owns      func(rule.Resource) bool // nil: this node owns every limit
	rules     *rule.Set
	version   int64
	resources map[rule.Resource]*resource
	circuits  map[rule.BreakerID]*circuit
	entries   map[model.TaskRef]*admission
	groups    map[string]*taskGroup
	plans     map[string]*Plan // of this version of the rules, by group
	none      *Plan            // the plan of tasks that need nothing
	// entries to use again
	free []*admission
	// the number of resources that triggers the next sweep
	sweepAt int
	woken   []string
	out     []Message
	dirty   []*circuit
	asks    []Ask
	// stored holds the shared breakers in their last known state, including reports of this node
	// that are not stored yet.
	stored map[rule.BreakerID]*breaker.Breaker
	unsent map[rule.BreakerID][]breaker.ToOwner // reports of this node that are not stored yet
	// the number of the last report to a shared breaker
	numbered int64
}

// New returns an empty gate. If owns is nil, the node owns all limits and breakers. Otherwise nodes
// share them, and home is the place of this node among the others. In that case owns says which
// limits this node owns at the moment, and the node has only views of the breakers.
func New(home limit.Place, owns func(rule.Resource) bool) *Gate {
	g := &Gate{
		home: home, owns: owns, resources: map[rule.Resource]*resource{}, circuits: map[rule.BreakerID]*circuit{}, entries: map[model.TaskRef]*admission{},
		groups: map[string]*taskGroup{}, plans: map[string]*Plan{}, sweepAt: minSweep, stored: map[rule.BreakerID]*breaker.Breaker{}, unsent: map[rule.BreakerID][]breaker.ToOwner{},
	}
	g.none = &Plan{gate: g}
	return g
}

// Take lets a task through its limits and its breaker, or returns what refuses it and when to ask
// again. An admitted task keeps its limits until Give. Calling Take again for an admitted task
// changes nothing.
func (g *Gate) Take(now model.Time, it *Task) (ok bool, why model.Reason, again model.Time) {
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
		g.leave(now, e) // the rules have changed since the task was refused
	}
	if p.missing != "" {
		return false, model.Reason{Code: model.WaitPermit, Name: p.missing, Detail: "no limit of that name is defined"}, 0
	}

	// Ask the breaker first, without taking a permit: an open breaker must not use up limits.
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
		g.publish(now, c, a.Changed)
		if !a.OK {
			g.unpin(now, e)
			return c.refuse(p.group, a.Until, a.Why)
		}
		e.breaker, e.permit = c, a.Permit
	}

	e.holds = true
	for _, r := range e.held {
		r.local.Take(it.Ref) // cannot fail, because reach has pinned the limit in this call
		r.local.Pin(-1)
		r.name(it.Ref)
	}

	g.leave(now, e)
	if q := g.groups[p.group]; q != nil {
		g.rouse(q.name) // the next task of the group may pass, or must wait in the line
	}
	for _, r := range e.held {
		g.exchange(now, r)
	}

	return true, why, 0
}

// Hold records a task that was admitted earlier. There are two cases. Either this node has just
// become the owner of the task and has found its claim. Or there are new rules, which the task did
// not have to pass when it started. The task keeps what it already holds.
func (g *Gate) Hold(now model.Time, it *Task) {
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

	// The gate no longer knows the task's breaker permit, so the breaker will ignore its outcome,
	// as it ignores every late outcome.
	e.breaker, e.permit = g.circuitOf(now, p), breaker.Permit{}
}

// Give undoes Take: the task holds nothing and stands in no line. how tells the breaker how the
// task ended.
func (g *Gate) Give(now model.Time, it *Task, how breaker.Outcome) {
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
		g.publish(now, e.breaker, e.breaker.finish(now, e.permit, how))
	}
	delete(g.entries, it.Ref)
	*e = admission{held: e.held[:0]}
	g.free = append(g.free, e)
	g.sweep(now)
}

// Rename ends the attempt of an admitted task, but keeps its limits under another name, because the
// code of the attempt still runs. how tells the breaker how the attempt ended. Give with the new
// name frees the limits.
func (g *Gate) Rename(now model.Time, from, to model.TaskRef, how breaker.Outcome) {
	e := g.entries[from]
	if e == nil || !e.holds {
		return
	}
	for _, r := range e.held {
		r.local.Rename(from, to)
		r.unname(from)
		r.name(to)
		if r.trim(); len(r.line) > 0 {
			g.rouse(r.line[0].name) // so that the first group in the line learns the new name
		}
	}
	if e.breaker != nil {
		g.publish(now, e.breaker, e.breaker.finish(now, e.permit, how))
	}
	delete(g.entries, from)
	e.ref, e.breaker, e.permit = to, nil, breaker.Permit{}
	g.entries[to] = e
}

// Leave removes a task that was not admitted from its line. If no other task of its group is in the
// line, Leave returns the name of the group, and the dispatcher must ask for another task of that
// group.
func (g *Gate) Leave(now model.Time, ref model.TaskRef) (group string) {
	e := g.entries[ref]
	if e == nil || e.holds {
		return ""
	}
	if q := e.queued; q != nil && q.waiting == 1 {
		group = q.name
	}
	g.Give(now, &Task{Ref: ref}, breaker.Neither)
	return group
}

// Group returns the name of the task's group. The gate admits or refuses all tasks of a group
// alike.
func (g *Gate) Group(it *Task) string { return g.planOf(it).group }

// TakeWoken returns the groups that the gate has woken since the last call. Their tasks may pass
// now, because something became free or has changed. A group may be in the list more than once.
func (g *Gate) TakeWoken() []string {
	w := g.woken
	g.woken = nil
	return w
}

// Pass wakes the next group in the line of a woken group. The dispatcher calls it when it could not
// try the woken group: no worker is free for its tasks, they are paused, or they now wait under
// another name. The gate does not wake this group again before it has refused a task of the group,
// because the dispatcher tries the group as soon as possible anyway.
func (g *Gate) Pass(name string) {
	if q := g.groups[name]; q != nil && q.at != nil && !q.ready {
		q.ready = true
		g.wake(q.at)
	}
}

// enter adds an entry for a task. It reuses a free entry if there is one.
func (g *Gate) enter(ref model.TaskRef) *admission {
	var e *admission
	if n := len(g.free); n > 0 {
		e, g.free = g.free[n-1], g.free[:n-1]
	} else {
		e = &admission{}
	}
	e.ref = ref
	g.entries[ref] = e
	return e
}

// maxPlans bounds the number of shared plans. When there are that many, the gate empties the table
// of plans.
const maxPlans = 1 << 14

// planOf returns the plan of a task under the current rules.
func (g *Gate) planOf(it *Task) *Plan {
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

	// The group name lists what the task needs. Each part has its length in front, so two different
	// lists cannot give the same name.
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
			clear(g.plans) // plans in use stay valid; the gate builds equal plans again
		}
		g.plans[p.group] = p
	}

	it.Plan = p
	return p
}

// reach walks along the limits of a task. It pins each limit that has room, and adds it to e.held.
// If a limit refuses, the group of the task waits there, and reach returns that limit. Otherwise it
// returns nil.
func (g *Gate) reach(now model.Time, e *admission, p *Plan) *resource {
	// Release the pins of the group without a message to the owners, because the walk will probably
	// pin the same limits again.
	q := g.groups[p.group]
	g.count(q, -1)
	e.held = e.held[:0]
	// All tasks of the group ask together. So the owner sees the same number each time, and usually
	// there is no message to send.
	waiting := 1

	if q != nil {
		waiting = q.waiting
		if e.queued == nil {
			waiting++
		}
	}

	for i := range p.uses {
		r := g.resourceOf(now, &p.uses[i])
		if !r.available() {
			r.local.Wait(waiting)
			g.exchange(now, r)
			r.local.Wait(-waiting)

			if !r.available() {
				if q == nil {
					q = &taskGroup{name: p.group}
					g.groups[p.group] = q
				}
				if e.queued == nil {
					e.queued, e.since = q, now
					q.waiting++
				}
				for _, r := range e.held {
					r.local.Pin(-1)
				}
				g.count(q, 1) // restore the old counts, because step starts from them
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

// count adds a group to the waiting and pin counts of its limits (sign 1) or removes it (sign -1).
func (g *Gate) count(q *taskGroup, sign int) {
	if q == nil || q.at == nil {
		return
	}
	q.at.local.Wait(sign * q.waiting)
	for _, r := range q.passed {
		r.local.Pin(sign * q.waiting)
	}
}

// step moves a group into the line of another limit, or out of all lines if to is nil.
func (g *Gate) step(now model.Time, q *taskGroup, to *resource, passed []*resource) {
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
		g.wake(was) // the gate may have woken the group for a permit that the group does not use
	}
}

// leave ends the wait of a task. The gate drops a group with no waiting task.
func (g *Gate) leave(now model.Time, e *admission) {
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

// unpin releases the limits that a task has reached.
func (g *Gate) unpin(now model.Time, e *admission) {
	for _, r := range e.held {
		r.local.Pin(-1)
		g.exchange(now, r)
		g.wake(r)
	}
	e.held = e.held[:0]
}

// SetRules changes the rules and wakes every waiting group.
func (g *Gate) SetRules(now model.Time, s *rule.Set) {
	g.rules = s
	g.version++
	g.none = &Plan{gate: g, version: g.version}
	clear(g.plans)

	for _, r := range g.sortedResources() {
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
			g.updateView(now, id, breaker.Permit{}, false)
		} else if n := s.BreakerConfig(id); n != c.owner.Status(now).Config {
			c.owner.Configure(now, n)
			g.publish(now, c, true)
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

// sortedResources returns all resources in canonical order, so that the messages of a walk over
// them do not depend on the order of a map.
func (g *Gate) sortedResources() []*resource {
	return slices.SortedFunc(maps.Values(g.resources), func(a, b *resource) int { return a.id.Compare(b.id) })
}
