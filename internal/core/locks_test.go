package core_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// lockPlay lets random runs lock, call and release entities. It follows the rules of sections, so
// every request is granted in the end, or refused for a reason.
type lockPlay struct {
	*town
	runs  []model.Address
	all   []model.Address    // entities
	calls map[string]string  // calls that runs have sent: the name of the call by its step
	sent  map[route][]string // calls in the order in which they were sent
}

func newLockPlay(fatal func(format string, args ...any), runs, entities int) *lockPlay {
	p := &lockPlay{town: newTown(fatal), calls: map[string]string{}, sent: map[route][]string{}}
	for i := range runs {
		p.runs = append(p.runs, address(fmt.Sprintf("run%03d", i)))
	}
	for i := range entities {
		p.all = append(p.all, entityAddress(fmt.Sprintf("%02d", i)))
		p.house(p.all[i])
	}
	return p
}

func (p *lockPlay) start(a model.Address) {
	p.deliver(&model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways})
}

func (p *lockPlay) isOpen(a model.Address) bool { x := p.seat(a).x; return x != nil && x.Open() }

// sectionsOf returns the open sections of one run, either the granted ones or the others.
func (p *lockPlay) sectionsOf(a model.Address, granted bool) (fs []core.SectionFacts) {
	for _, s := range core.SectionsOf(p.seat(a).x) {
		if s.IsGranted() == granted {
			fs = append(fs, s)
		}
	}
	return fs
}

func (p *lockPlay) lock(a model.Address, set []model.Address) {
	p.must(p.command(a, model.Command{Kind: model.CommandLock, Event: model.Event{ID: p.step(), Locks: set}}))
}

func (p *lockPlay) unlock(a model.Address, id string) {
	p.must(p.command(a, model.Command{Kind: model.CommandUnlock, Event: model.Event{ID: id, Section: id}}))
}

func (p *lockPlay) withdraw(a model.Address, id string) {
	p.must(p.command(a, model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: id}}))
}

func (p *lockPlay) must(err error) {
	if err != nil {
		p.fatal("refused: %v", err)
	}
}

// call calls an entity, inside a section or outside of all sections.
func (p *lockPlay) call(a, to model.Address, section string) error {
	id := p.step()
	name := id
	if p.n%7 == 0 {
		name = "fails" + id
	}
	m := &model.Message{Kind: model.MessageCall, To: to, Name: name}
	err := p.command(a, model.Command{Kind: model.CommandSend, Message: m, Event: model.Event{ID: id, Section: section}})
	if err == nil {
		p.calls[id] = name
		p.sent[route{a, to}] = append(p.sent[route{a, to}], name)
	}
	return err
}

// reset replaces the current run by a new run that keeps none of its events.
func (p *lockPlay) reset(a model.Address) {
	x := p.seat(a).x
	p.hand(&model.Message{Kind: model.MessageStart, To: a, ToRun: x.Start.Run, Past: &model.Past{
		Next: x.Next, Source: model.Source{Address: a, Run: x.Start.Run},
	}})
}

// finish ends a run in one of many ways.
func (p *lockPlay) finish(a model.Address, how int) {
	switch statuses := []model.Status{model.Completed, model.Failed, model.Canceled, model.Continued}; {
	case how < len(statuses):
		p.must(p.do(a, model.Turn{Close: &model.Close{Status: statuses[how]}}))
	case how == len(statuses):
		p.hand(&model.Message{Kind: model.MessageTerminate, To: a})
	default:
		p.reset(a)
	}
}

const waysToFinish = 6

// checkApplied checks the states of the entities. Every call was made at most once and in the order
// of its sender (L2, L4). A call with a good answer was made, and a refused or failed call was not
// (L3, L5).
func (p *lockPlay) checkApplied() {
	where := map[string]model.Address{}
	for _, a := range p.addresses() {
		h := p.house(a)
		var names []string
		if row := &h.n.Row; row.Exists {
			names = strings.Split(strings.TrimSuffix(string(row.State.Data), ","), ",")
		}
		if strings.Join(names, ",") != strings.Join(h.made, ",") {
			p.fatal("L2: the state of %s is %v, and made was %v", a, names, h.made)
		}

		for _, n := range h.made {
			if w, ok := where[n]; ok {
				p.fatal("L3: %s was made at %s and at %s", n, w, a)
			}
			where[n] = a
		}

		for _, from := range p.runs {
			p.inOrder(h, from, a)
		}
	}

	for _, a := range p.runs {
		for _, r := range p.seat(a).runs {
			for _, e := range r.all() {
				name, sent := p.calls[e.ID]
				if e.Kind != model.EventAnswered || !sent {
					continue
				}
				_, made := where[name]
				if made != (e.Failure == nil) {
					p.fatal("L3: %s was answered with %+v, and made: %v", name, e.Failure, made)
				}
			}
		}
	}
}

// inOrder checks that the calls of a sender were made in the order in which they were sent (L4).
func (p *lockPlay) inOrder(h *house, from, to model.Address) {
	sent, next := p.sent[route{from, to}], 0
	for _, n := range h.made {
		if i := slices.Index(sent, n); i >= 0 {
			if i < next {
				p.fatal("L4: %s made %s out of the order %v", to, n, sent)
			}
			next = i + 1
		}
	}
}

// TestRandomSections lets a few runs lock, call, give up, release and end at any time, while their
// messages travel and their owners crash. See the checks of town for what must hold at every moment
// and when nothing moves.
func TestRandomSections(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newLockPlay(t.Fatalf, 3, 3)
		run := func(t *rapid.T) model.Address {
			var open []model.Address
			for _, a := range p.runs {
				if p.isOpen(a) {
					open = append(open, a)
				}
			}
			if len(open) == 0 {
				t.Skip("no run is open")
			}
			return pick(t, "run", open...)
		}

		entity := func(t *rapid.T) *house { return p.house(pick(t, "entity", p.all...)) }
		job := func(t *rapid.T) (*house, int) {
			h := entity(t)
			if len(h.jobs) == 0 {
				t.Skip("nothing is being made")
			}
			return h, rapid.IntRange(0, len(h.jobs)-1).Draw(t, "job")
		}

		arrive := func(t *rapid.T) {
			if len(p.routes) == 0 {
				t.Skip("nothing is on its way")
			}
			p.arrive(pick(t, "route", p.routes...))
		}

		lock := func(t *rapid.T) {
			p.lock(run(t), rapid.SliceOfN(rapid.SampledFrom(p.all), 1, 4).Draw(t, "set"))
		}

		actions := map[string]func(*rapid.T){
			"": func(t *rapid.T) { p.fatal = t.Fatalf; p.exclusive() },
			"clock": func(t *rapid.T) {
				p.now = p.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)
			},
			"start": func(t *rapid.T) { p.start(pick(t, "run", p.runs...)) },
			"lock":  lock, "lock2": lock, "arrive": arrive, "arrive2": arrive, "arrive3": arrive,
			"unlock": func(t *rapid.T) {
				a := run(t)
				if fs := p.sectionsOf(a, true); len(fs) > 0 {
					p.unlock(a, pick(t, "section", fs...).ID)
				}
			},
			"withdraw": func(t *rapid.T) {
				a := run(t)
				if fs := core.SectionsOf(p.seat(a).x); len(fs) > 0 {
					p.withdraw(a, pick(t, "section", fs...).ID)
				}
			},
			"call": func(t *rapid.T) {
				a := run(t)
				fs := p.sectionsOf(a, true)
				if len(fs) == 0 {
					t.Skip("no section is granted")
				}
				s := pick(t, "section", fs...)
				// The core may refuse the call only if the last call has no answer yet.
				if err := p.call(a, pick(t, "entity", s.Locks...), s.ID); err != nil && !strings.Contains(err.Error(), "has been answered") {
					t.Fatal(err)
				}
			},
			"outside": func(t *rapid.T) {
				if err := p.call(run(t), pick(t, "entity", p.all...), ""); err != nil && !strings.Contains(err.Error(), "wait for its own run") {
					t.Fatal(err)
				}
			},
			"client": func(t *rapid.T) {
				p.hand(&model.Message{Kind: model.MessageCall, To: pick(t, "entity", p.all...), Name: p.step(), RequestID: p.step()})
			},
			"finish": func(t *rapid.T) { p.finish(run(t), rapid.IntRange(0, waysToFinish-1).Draw(t, "how")) },
			"begin":  func(t *rapid.T) { p.begin(entity(t), rapid.IntRange(1, 3).Draw(t, "most")) },
			"end": func(t *rapid.T) {
				h, i := job(t)
				p.end(h, i, rapid.IntRange(0, 3).Draw(t, "results"))
			},
			"lost": func(t *rapid.T) {
				h, i := job(t)
				h.n.Return(h.jobs[i].items)
				h.jobs = slices.Delete(h.jobs, i, i+1)
				d := h.n.Settle(p.now)
				p.commit(h, &d)
			},
			"crash": func(t *rapid.T) { p.crash(run(t)) },
			"away":  func(t *rapid.T) { p.crashHouse(entity(t)) },
			"again": func(t *rapid.T) {
				if len(p.old) == 0 {
					t.Skip("nothing has come yet")
				}
				p.redeliver(pick(t, "message", p.old...))
			},
			"foreign": func(t *rapid.T) { p.foreign(entity(t)) },
		}
		for range 3 {
			t.Repeat(actions)
		}
		p.quiet()
		p.exclusive()
		p.checkKnown()
		p.finishAll()
		p.checkApplied()
	})
}

// redeliver delivers a message of a section that is over, or a grant, once more. Neither changes an
// entity or a run (L23, L30).
func (p *lockPlay) redeliver(m model.Message) {
	section := m.From
	if m.Kind == model.MessageGrant {
		section = model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
	}
	if s, open := p.sections()[section]; m.Kind == model.MessageRelease && open && !s.IsGranted() {
		return // the section may still ask for this lock, and must not lose it then
	}
	if m.Kind == model.MessageRelease {
		p.checkUnchanged(p.house(m.To), &m)
		return
	}
	before := p.seat(m.To).x.Clone()
	p.hand(&m)
	p.same("a grant that comes again", before, p.seat(m.To).x)
}

// foreign sends a release in the name of a section that does not hold the lock: another section,
// another run, another execution (L30).
func (p *lockPlay) foreign(h *house) {
	row := h.n.Row
	if !row.Locked() {
		return
	}
	for _, l := range []model.Link{
		{Address: row.Holder.Address, Run: row.Holder.Run, ID: "another"},
		{Address: row.Holder.Address, Run: runID(999), ID: row.Holder.ID},
		{Address: address("z"), Run: row.Holder.Run, ID: row.Holder.ID},
	} {
		p.checkUnchanged(h, &model.Message{Kind: model.MessageRelease, To: row.Address, From: l})
	}
}

func (p *lockPlay) checkUnchanged(h *house, m *model.Message) {
	before, waiting := h.n.Row, h.n.MailCount()
	d := h.n.Deliver(m, core.Arrival{}, p.now)
	if d.HasWrites() || !equalRows(&before, &h.n.Row) || h.n.MailCount() != waiting {
		p.fatal("L30: a release of another section changes %+v to %+v, and writes %+v", before, h.n.Row, d)
	}
}

// finishAll releases everything that is granted, over and over. In the end no section has a lock or
// waits, and every call has been answered (L3, L26, L36).
func (p *lockPlay) finishAll() {
	for range 10_000 {
		p.quiet()
		held := false
		for _, a := range p.runs {
			if !p.isOpen(a) {
				continue
			}
			for _, s := range p.sectionsOf(a, true) {
				p.unlock(a, s.ID)
				held = true
			}
		}
		if !held {
			break
		}
	}

	if left := p.sections(); len(left) > 0 {
		p.fatal("L26: sections that never get their locks: %+v", left)
	}

	for _, a := range p.addresses() {
		if h := p.house(a); h.n.Row.Locked() || !h.n.Idle() {
			p.fatal("L36: %s is locked: %v, and %d wait for it", a, h.n.Row.Locked(), h.n.MailCount())
		}
	}

	for _, a := range p.runs {
		if p.isOpen(a) && len(core.FactsOf(p.seat(a).x).Calls) > 0 {
			p.fatal("L3: %s waits forever for %v", a, core.FactsOf(p.seat(a).x).Calls)
		}
	}
}

// TestNoDeadlock lets 200 runs lock random sets of 50 entities, call them and release them, three
// times each, with crashes in between. Every run gets the locks that it asks for (L26), in whatever
// order things happen.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			p := newLockPlay(t.Fatalf, 200, 50)

			rounds := map[model.Address]int{}
			for _, a := range p.runs {
				p.start(a)
				rounds[a] = 3
			}

			sets := func() (set []model.Address) {
				for range 1 + rnd.IntN(6) {
					set = append(set, p.all[rnd.IntN(len(p.all))])
				}
				return set
			}
			for range 5_000_000 {
				switch rnd.IntN(20) {
				case 0:
					p.now = p.now.Add(time.Millisecond)
				case 1:
					p.crash(p.runs[rnd.IntN(len(p.runs))])
				case 2:
					p.crashHouse(p.house(p.all[rnd.IntN(len(p.all))]))
				case 3, 4, 5, 6:
					h := p.house(p.all[rnd.IntN(len(p.all))])
					if p.begin(h, 4); len(h.jobs) > 0 {
						p.end(h, 0, 4)
					}
				case 7, 8, 9, 10:
					a := p.runs[rnd.IntN(len(p.runs))]
					p.live(rnd, a, rounds, sets)
				default:
					if n := len(p.routes); n > 0 {
						p.arrive(p.routes[rnd.IntN(n)])
					}
				}

				if rounds[model.Address{}] == len(p.runs) {
					break
				}
			}

			if n := rounds[model.Address{}]; n != len(p.runs) {
				t.Fatalf("%d of %d runs came to their end", n, len(p.runs))
			}
			p.exclusive()
			p.finishAll()
			p.checkApplied()
		})
	}
}

// live lets a run do the next thing that it can.
func (p *lockPlay) live(rnd *rand.Rand, a model.Address, rounds map[model.Address]int, sets func() []model.Address) {
	all := core.SectionsOf(p.seat(a).x)
	switch {
	case len(all) > 0 && !all[0].IsGranted():
	case len(all) > 0 && rnd.IntN(3) > 0:
		// The core refuses the call if the last call has no answer yet.
		_ = p.call(a, all[0].Locks[rnd.IntN(len(all[0].Locks))], all[0].ID)
	case len(all) > 0:
		p.unlock(a, all[0].ID)
		if rounds[a]--; rounds[a] == 0 {
			rounds[model.Address{}]++
		}
	case rounds[a] > 0:
		p.lock(a, sets())
	}
}

// TestRulesOfSections checks that the core refuses everything that code may not do with locks. Each
// refusal has a text that says why, and changes nothing (L34).
func TestRulesOfSections(t *testing.T) {
	t.Parallel()
	a, b := entityAddress("a"), entityAddress("b")
	lock := func(id string, set ...model.Address) model.Command {
		return model.Command{Kind: model.CommandLock, Event: model.Event{ID: id, Locks: set}}
	}
	send := func(section string, m model.Message) model.Command {
		return model.Command{Kind: model.CommandSend, Message: &m, Event: model.Event{ID: "call", Section: section}}
	}
	call := func(section string, to model.Address) model.Command {
		return send(section, model.Message{Kind: model.MessageCall, To: to, Name: "op"})
	}
	again := call("s", a)
	again.Event.ID = "again"
	nested := lock("n", b)
	nested.Event.Section = "s"
	end := model.Command{Kind: model.CommandUnlock, Event: model.Event{Section: "s"}}
	foreign := a
	foreign.Tenant = "other"
	var many []model.Address
	for i := range 101 {
		many = append(many, entityAddress(fmt.Sprint(i)))
	}

	for name, c := range map[string]struct {
		before   []model.Command
		grant    bool // deliver the grants that the commands in before ask for
		commands []model.Command
		kind     fault.Kind
		want     string
	}{
		"nothing":        {commands: []model.Command{lock("s")}, want: "locks nothing"},
		"nested":         {before: []model.Command{lock("s", a)}, grant: true, commands: []model.Command{nested}, want: "inside section s"},
		"no entity":      {commands: []model.Command{lock("s", a, address("w"))}, want: "which is not an entity"},
		"service":        {commands: []model.Command{lock("s", model.Address{Tenant: "default", Type: "service:x"})}, want: "cannot be locked"},
		"another tenant": {commands: []model.Command{lock("s", foreign)}, want: "another tenant"},
		"too many":       {commands: []model.Command{lock("s", many...)}, kind: fault.Exhausted, want: "locks 101 entities in one section and may lock 100"},
		"not locked":     {before: []model.Command{lock("s", a)}, grant: true, commands: []model.Command{call("s", b)}, want: "has not locked it"},
		"not granted":    {before: []model.Command{lock("s", a, b)}, commands: []model.Command{call("s", a)}, want: "which does not have its locks yet"},
		"same turn":      {commands: []model.Command{lock("s", a), call("s", a)}, want: "which does not have its locks yet"},
		"no section":     {commands: []model.Command{call("s", a)}, want: "which is not open"},
		"over":           {before: []model.Command{lock("s", a)}, grant: true, commands: []model.Command{end, call("s", a)}, want: "which is not open"},
		"over twice":     {before: []model.Command{lock("s", a)}, grant: true, commands: []model.Command{end, end}, want: "which is not open"},
		"itself":         {before: []model.Command{lock("s", a)}, grant: true, commands: []model.Command{call("", a)}, want: "would wait for its own run"},
		"twice":          {before: []model.Command{lock("s", a)}, grant: true, commands: []model.Command{call("s", a), again}, want: "before its last call of it has been answered"},
		"one way": {
			before: []model.Command{lock("s", a)}, grant: true, want: "one way",
			commands: []model.Command{send("s", model.Message{Kind: model.MessageCall, To: a, OneWay: true})},
		},
		"not an entity": {commands: []model.Command{call("", address("w"))}, want: "which is not an entity"},
		"forged":        {commands: []model.Command{send("", model.Message{Kind: model.MessageRelease, To: a})}, want: "workers may not send"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newLockPlay(t.Fatalf, 1, 0)
			run := p.runs[0]
			p.start(run)
			if len(c.before) > 0 {
				p.must(p.do(run, model.Turn{Commands: c.before}))
			}
			if c.grant {
				p.quiet()
			}
			kind := c.kind
			if kind == 0 {
				kind = fault.Invalid
			}
			err := p.do(run, model.Turn{Commands: c.commands})
			if err == nil || !strings.Contains(err.Error(), c.want) || fault.KindOf(err) != kind {
				t.Errorf("refused with %v (%v), want %s %q", err, fault.KindOf(err), kind, c.want)
			}
		})
	}
}
