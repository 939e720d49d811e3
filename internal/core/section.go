package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// section is a part of the code of a run that has entities locked, or waits for them. They are
// asked one after the other in an order that is the same for everybody; the code goes on when the
// last one is granted. Whatever ends the section, or the run, lets go of every entity that was
// asked, in the same decision.
type section struct {
	id     string          // the step that asked
	locks  []model.Address // sorted, each once
	epochs []int64         // fencing tokens of the first so many, which are granted
}

// granted reports whether everything is locked.
func (s *section) granted() bool { return len(s.epochs) == len(s.locks) }

// asked are the entities that hold a lock for the section, or may come to.
func (s *section) asked() []model.Address { return s.locks[:min(len(s.epochs)+1, len(s.locks))] }

// call is a message that a step sent and that has not been answered.
type call struct {
	id      string
	target  model.Address
	section string // it is made in; empty outside of locks
}

// section finds a section that is not over; nil when there is none.
func (x *Execution) section(id string) *section { return findSection(x.sections, id) }

func findSection(sections []section, id string) *section {
	if i := slices.IndexFunc(sections, func(s section) bool { return s.id == id }); i >= 0 {
		return &sections[i]
	}
	return nil
}

// noteSection folds an event into the section that it belongs to, if it belongs to one.
func (x *Execution) noteSection(e *model.Event) {
	switch e.Kind {
	case model.EventLockAsked:
		x.sections = append(x.sections, section{id: e.ID, locks: e.Locks})
	case model.EventLockGranted:
		if s := x.section(e.ID); s != nil {
			s.epochs = append(s.epochs, e.Ref)
		}
	case model.EventUnlocked:
		x.dropSection(e.Section)
	default: // withdrawn, or refused
		x.dropSection(e.ID)
	}
}

func (x *Execution) dropSection(id string) {
	x.sections = slices.DeleteFunc(x.sections, func(s section) bool { return s.id == id })
}

// dropCall forgets a message whose answer has come, or is not waited for any more.
func (x *Execution) dropCall(id string) {
	if i := slices.IndexFunc(x.calls, func(c call) bool { return c.id == id }); i >= 0 {
		x.calls = slices.Delete(x.calls, i, i+1)
	}
}

// waitsFor reports whether a step has sent a message that has not been answered.
func (x *Execution) waitsFor(id string) bool {
	return slices.ContainsFunc(x.calls, func(c call) bool { return c.id == id })
}

// self is a step of the run as others know it.
func (x *Execution) self(id string) model.Link {
	return model.Link{Address: x.Start.Address, Run: x.Start.Run, ID: id}
}

// lock begins a section (a step that has asked does not ask again). The order of the worker counts
// for nothing.
func (x *Execution) lock(d *Decision, e model.Event, now model.Time) {
	if x.section(e.ID) != nil {
		return
	}
	e.Kind, e.Locks = model.EventLockAsked, model.SortLocks(e.Locks)
	x.append(d, now, e)
	x.askNext(d, e.ID)
}

// askNext asks for the next lock of a section, if there is one.
func (x *Execution) askNext(d *Decision, id string) {
	if s := x.section(id); !s.granted() {
		d.Messages = append(d.Messages, model.Message{Kind: model.MessageLock, To: s.locks[len(s.epochs)], From: x.self(id), Trace: x.Start.Trace})
	}
}

// unlock ends a section whose code is over.
func (x *Execution) unlock(d *Decision, e model.Event, now model.Time) {
	x.letGo(d, x.section(e.Section))
	e.Kind, e.ID = model.EventUnlocked, e.Section
	x.append(d, now, e)
}

// letGo tells every entity that a section has asked that it is over. One that is not locked for it,
// and where it does not wait, takes no notice.
func (x *Execution) letGo(d *Decision, s *section) {
	if s == nil {
		return
	}
	for _, a := range s.asked() {
		d.Messages = append(d.Messages, releaseMessage(a, x.self(s.id)))
	}
}

// letGoOfAll ends all sections, because the run ends.
func (x *Execution) letGoOfAll(d *Decision) {
	for i := range x.sections {
		x.letGo(d, &x.sections[i])
	}
	x.sections = nil
}

func releaseMessage(entity model.Address, section model.Link) model.Message {
	return model.Message{Kind: model.MessageRelease, To: entity, From: section}
}

// deliverGrant records that an entity is locked for a section, once, and asks for the next. A grant
// that finds its section over, or its run, is answered with a release: nobody else would ever let
// go of the entity. x may be another run than that of the section, or nil.
func deliverGrant(x *Execution, m *model.Message, now model.Time) Decision {
	var d Decision
	var s *section
	if x != nil && x.Open() && x.Start.Run == m.ToRun {
		s = x.section(m.ID)
	}
	if s == nil || !slices.Contains(s.asked(), m.From.Address) {
		d.Messages = append(d.Messages, releaseMessage(m.From.Address, model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}))
		return d
	}
	if !s.granted() && s.locks[len(s.epochs)] == m.From.Address {
		x.append(&d, now, model.Event{Kind: model.EventLockGranted, ID: m.ID, Target: m.From.Address, Ref: m.Epoch})
		x.askNext(&d, m.ID)
	}
	return d
}

// lockRefused ends a section because an entity that it waits for cannot be locked.
func (x *Execution) lockRefused(d *Decision, m *model.Message, now model.Time) {
	if s := x.section(m.ID); s != nil && !s.granted() && m.Failure != nil {
		x.letGo(d, s)
		x.append(d, now, model.Event{Kind: model.EventAnswered, ID: m.ID, Failure: m.Failure})
	}
}

// rules follow the sections of a run through the commands of a turn, before any of them is applied:
// what code may do about locks is for the engine to say, whoever reports it.
type rules struct {
	x        *Execution
	own      bool // sections and calls are copies
	sections []section
	calls    []call
}

func (x *Execution) rules() rules { return rules{x: x, sections: x.sections, calls: x.calls} }

// change makes what follows independent of the run.
func (r *rules) change() {
	if !r.own {
		r.own, r.sections, r.calls = true, slices.Clone(r.sections), slices.Clone(r.calls)
	}
}

func (r *rules) broken(format string, args ...any) error {
	return fault.New(fault.Invalid, "run %s %s", r.x.Start.Run, fmt.Sprintf(format, args...))
}

// lock looks at the beginning of a section.
func (r *rules) lock(e *model.Event, most int) error {
	switch {
	case e.ID == "":
		return r.broken("locks entities in a step without a name")
	case e.Section != "":
		return r.broken("locks entities inside of section %s: a section cannot begin inside of another", e.Section)
	case len(e.Locks) == 0:
		return r.broken("begins a section that locks nothing")
	}

	for _, a := range e.Locks {
		if err := r.entity("locks", a); err != nil {
			return err
		}
		if a.Stateless() {
			return r.broken("locks %s, which is a service: it cannot be locked", a)
		}
	}

	locks := model.SortLocks(e.Locks)
	if len(locks) > most {
		return fault.New(fault.Exhausted, "run %s locks %d entities in one section and may lock %d", r.x.Start.Run, len(locks), most)
	}

	if findSection(r.sections, e.ID) == nil {
		r.change()
		r.sections = append(r.sections, section{id: e.ID, locks: locks})
	}

	return nil
}

// tenant refuses an address of another tenant. Everything that a turn reaches belongs to the tenant
// of its run: tenants never see each other, whatever a worker sends.
func (r *rules) tenant(what string, a model.Address) error {
	if a.Tenant != r.x.Start.Address.Tenant {
		return r.broken("%s %s, which belongs to another tenant", what, a)
	}
	return nil
}

// entity looks at an address that is locked or called.
func (r *rules) entity(what string, a model.Address) error {
	if !a.IsEntity() {
		return r.broken("%s %s, which is not an entity", what, a)
	}
	return r.tenant(what, a)
}

// send looks at a message.
func (r *rules) send(e *model.Event, m *model.Message) error {
	if err := r.tenant(fmt.Sprintf("sends a %s to", m.Kind), m.To); err != nil {
		return err
	}

	switch m.Kind {
	case model.MessageCall:
	case model.MessageUpdate:
		if e.Section != "" {
			return r.broken("waits for update %s of %s in section %s: its code may need what is locked there", m.Name, m.To, e.Section)
		}
		return nil
	case model.MessageLock, model.MessageGrant, model.MessageRelease, model.MessageUnlock, model.MessageMailbox:
		return r.broken("sends a %s, which is not for a worker to send", m.Kind)
	default:
		return nil
	}

	if err := r.entity("calls", m.To); err != nil {
		return err
	}
	if e.Section == "" {
		return r.callOutside(m)
	}

	switch s := findSection(r.sections, e.Section); {
	case s == nil:
		return r.broken("calls %s of %s in section %s, which is not open", m.Name, m.To, e.Section)
	case !slices.Contains(s.locks, m.To):
		return r.broken("calls %s of %s in section %s, which has not locked it", m.Name, m.To, s.id)
	case !s.granted():
		return r.broken("calls %s of %s in section %s, before that has its locks", m.Name, m.To, s.id)
	case m.OneWay:
		return r.broken("calls %s of %s one way in the section that has it locked: it would be made when that is over", m.Name, m.To)
	case slices.ContainsFunc(r.calls, func(c call) bool { return c.section == s.id && c.target == m.To }):
		return r.broken("calls %s of %s in section %s before its last call of it has been answered", m.Name, m.To, s.id)
	}

	r.change()
	r.calls = append(r.calls, call{e.ID, m.To, e.Section})
	return nil
}

// callOutside looks at a call that is made in no section: one of an entity that the run itself has
// locked, or is about to, would wait for its own end.
func (r *rules) callOutside(m *model.Message) error {
	if m.OneWay {
		return nil
	}
	for i := range r.sections {
		if s := &r.sections[i]; slices.Contains(s.locks, m.To) {
			return r.broken("calls %s of %s outside of its section %s, which locks it: it would wait for itself", m.Name, m.To, s.id)
		}
	}
	return nil
}

// unlock looks at the end of a section.
func (r *rules) unlock(e *model.Event) error {
	if findSection(r.sections, e.Section) == nil {
		return r.broken("ends section %q, which is not open", e.Section)
	}
	r.drop(e.Section)
	return nil
}

// drop notes that a section is over, or that a call is not waited for any more.
func (r *rules) drop(id string) {
	if len(r.sections) == 0 && len(r.calls) == 0 {
		return
	}
	r.change()
	r.sections = slices.DeleteFunc(r.sections, func(s section) bool { return s.id == id })
	r.calls = slices.DeleteFunc(r.calls, func(c call) bool { return c.id == id })
}
