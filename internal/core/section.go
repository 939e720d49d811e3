package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// section is a part of a run's code that holds locks of entities, or waits for them. It requests
// them one at a time, in an order that is the same for all sections, so that two sections cannot
// deadlock. The code continues when the last lock is granted. The decision that ends the section or
// the run releases every entity that was asked.
type section struct {
	id     string          // the step that asked for the locks
	locks  []model.Address // sorted, without duplicates
	epochs []int64         // fencing tokens of locks[:len(epochs)], which are granted
}

// isGranted reports whether the section has all its locks.
func (s *section) isGranted() bool { return len(s.epochs) == len(s.locks) }

// askedEntities returns the entities that are locked for the section, and the entity whose lock it
// waits for.
func (s *section) askedEntities() []model.Address {
	return s.locks[:min(len(s.epochs)+1, len(s.locks))]
}

// call is a message that a step has sent. The step waits for the answer.
type call struct {
	id      string
	target  model.Address
	section string // the section that makes the call; empty outside of sections
}

// section finds an open section, or nil.
func (x *Execution) section(id string) *section { return findSection(x.sections, id) }

func findSection(sections []section, id string) *section {
	if i := slices.IndexFunc(sections, func(s section) bool { return s.id == id }); i >= 0 {
		return &sections[i]
	}
	return nil
}

// noteSection applies an event to the sections of the run: it opens the section of the event,
// changes it, or drops it.
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
	default: // the section was withdrawn, or a lock was refused
		x.dropSection(e.ID)
	}
}

func (x *Execution) dropSection(id string) {
	x.sections = slices.DeleteFunc(x.sections, func(s section) bool { return s.id == id })
}

// dropCall forgets a message that has its answer, or whose answer the code no longer wants.
func (x *Execution) dropCall(id string) {
	if i := slices.IndexFunc(x.calls, func(c call) bool { return c.id == id }); i >= 0 {
		x.calls = slices.Delete(x.calls, i, i+1)
	}
}

// waitsFor reports whether a step waits for the answer to a message.
func (x *Execution) waitsFor(id string) bool {
	return slices.ContainsFunc(x.calls, func(c call) bool { return c.id == id })
}

// self returns the link that identifies a step of this run to other executions and to entities.
func (x *Execution) self(id string) model.Link {
	return model.Link{Address: x.Start.Address, Run: x.Start.Run, ID: id}
}

// lock begins a section, unless the step has begun it before. The order in which the worker lists
// the entities does not matter.
func (x *Execution) lock(d *Decision, e model.Event, now model.Time) {
	if x.section(e.ID) != nil {
		return
	}
	e.Kind, e.Locks = model.EventLockAsked, model.SortLocks(e.Locks)
	x.append(d, now, e)
	x.askNext(d, e.ID)
}

// askNext requests the next lock of a section, if one is missing.
func (x *Execution) askNext(d *Decision, id string) {
	if s := x.section(id); !s.isGranted() {
		d.Messages = append(d.Messages, model.Message{Kind: model.MessageLock, To: s.locks[len(s.epochs)], From: x.self(id), Trace: x.Start.Trace})
	}
}

// unlock ends a section whose code is over.
func (x *Execution) unlock(d *Decision, e model.Event, now model.Time) {
	x.releaseSection(d, x.section(e.Section))
	e.Kind, e.ID = model.EventUnlocked, e.Section
	x.append(d, now, e)
}

// releaseSection sends the end of the section to every entity that the section has asked for a
// lock. An entity ignores the message if the section neither holds its lock nor waits for it.
func (x *Execution) releaseSection(d *Decision, s *section) {
	if s == nil {
		return
	}
	for _, a := range s.askedEntities() {
		d.Messages = append(d.Messages, releaseMessage(a, x.self(s.id)))
	}
}

// releaseSections ends all sections because the run ends.
func (x *Execution) releaseSections(d *Decision) {
	for i := range x.sections {
		x.releaseSection(d, &x.sections[i])
	}
	x.sections = nil
}

// releaseMessage returns the message that ends a section at an entity.
func releaseMessage(entity model.Address, section model.Link) model.Message {
	return model.Message{Kind: model.MessageRelease, To: entity, From: section}
}

// deliverGrant records once that an entity is locked for a section, and requests the next lock. If
// the section or its run is over, deliverGrant sends a release instead, because otherwise the
// entity would stay locked. x is the current run of the address; it may be nil, or a later run than
// the run of the section.
func deliverGrant(x *Execution, m *model.Message, now model.Time) Decision {
	var d Decision
	var s *section
	if x != nil && x.Open() && x.Start.Run == m.ToRun {
		s = x.section(m.ID)
	}
	if s == nil || !slices.Contains(s.askedEntities(), m.From.Address) {
		d.Messages = append(d.Messages, releaseMessage(m.From.Address, model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}))
		return d
	}
	if !s.isGranted() && s.locks[len(s.epochs)] == m.From.Address {
		x.append(&d, now, model.Event{Kind: model.EventLockGranted, ID: m.ID, Target: m.From.Address, Ref: m.Epoch})
		x.askNext(&d, m.ID)
	}
	return d
}

// lockRefused ends a section because one of its entities cannot be locked.
func (x *Execution) lockRefused(d *Decision, m *model.Message, now model.Time) {
	if s := x.section(m.ID); s != nil && !s.isGranted() && m.Failure != nil {
		x.releaseSection(d, s)
		x.append(d, now, model.Event{Kind: model.EventAnswered, ID: m.ID, Failure: m.Failure})
	}
}

// rules checks the commands of a turn before any of them is applied: which addresses the code may
// reach, what it may start and send, and what it may do with locks. It follows how each command
// changes the sections of the run. The core makes these checks because it does not trust the
// worker's report.
type rules struct {
	x        *Execution
	own      bool // sections and calls are copies
	sections []section
	calls    []call
}

func (x *Execution) rules() rules { return rules{x: x, sections: x.sections, calls: x.calls} }

// change copies the sections and calls of the run before the first change.
func (r *rules) change() {
	if !r.own {
		r.own, r.sections, r.calls = true, slices.Clone(r.sections), slices.Clone(r.calls)
	}
}

// violation returns the error for a turn that breaks a rule.
func (r *rules) violation(format string, args ...any) error {
	return fault.New(fault.Invalid, "run %s %s", r.x.Start.Run, fmt.Sprintf(format, args...))
}

// lock checks the beginning of a section.
func (r *rules) lock(e *model.Event, most int) error {
	switch {
	case e.ID == "":
		return r.violation("locks entities in a step without a name")
	case e.Section != "":
		return r.violation("locks entities inside section %s: a section cannot begin inside another", e.Section)
	case len(e.Locks) == 0:
		return r.violation("begins a section that locks nothing")
	}

	for _, a := range e.Locks {
		if err := r.entity("locks", a); err != nil {
			return err
		}
		if a.Stateless() {
			return r.violation("locks %s, which is a service: it cannot be locked", a)
		}
		if err := r.target("locks", a); err != nil {
			return err
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

// tenant refuses an address of another tenant. A turn may reach only addresses in the tenant of its
// run, whatever a worker sends.
func (r *rules) tenant(what string, a model.Address) error {
	if a.Tenant != r.x.Start.Address.Tenant {
		return r.violation("%s %s, which belongs to another tenant", what, a)
	}
	return nil
}

// start checks an execution that the code starts.
func (r *rules) start(c *model.Command) error {
	if c.Event.Target.Type == model.BatchType {
		return r.violation("starts a batch job, which only callers of the API may start")
	}
	if err := r.tenant("starts", c.Event.Target); err != nil {
		return err
	}
	m := r.x.childMessage(c)
	if with := Overreach(&m, SenderRun); with != "" {
		return r.violation("starts an execution %s, which workers may not start", with)
	}
	return nil
}

// entity checks an address that is locked or called.
func (r *rules) entity(what string, a model.Address) error {
	if !a.IsEntity() {
		return r.violation("%s %s, which is not an entity", what, a)
	}
	return r.tenant(what, a)
}

// target checks an address that the code waits for or locks.
func (r *rules) target(what string, a model.Address) error {
	if err := r.tenant(what, a); err != nil {
		return err
	}
	if with := unfitAddress(a); with != "" {
		return r.violation("%s an address %s", what, with)
	}
	return nil
}

// send checks a message.
func (r *rules) send(e *model.Event, m *model.Message) error {
	if err := r.tenant(fmt.Sprintf("sends a %s to", m.Kind), m.To); err != nil {
		return err
	}

	if with := Overreach(m, SenderRun); with != "" {
		return r.violation("sends a %s %s, which workers may not send", m.Kind, with)
	}

	switch m.Kind {
	case model.MessageCall:
	case model.MessageUpdate:
		if e.Section != "" {
			return r.violation("waits for update %s of %s in section %s: its code may need what is locked there", m.Name, m.To, e.Section)
		}
		return nil
	case model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageTerminate, model.MessagePause, model.MessageResume:
		return nil
	default: // also a start: no answer would end the step, so the code must start a child instead
		return r.violation("sends a %s, which workers may not send", m.Kind)
	}

	if err := r.entity("calls", m.To); err != nil {
		return err
	}
	if e.Section == "" {
		return r.callOutside(m)
	}

	// Inside a section, the code may call only what the section has locked, one call at a time per
	// entity.
	switch s := findSection(r.sections, e.Section); {
	case s == nil:
		return r.violation("calls %s of %s in section %s, which is not open", m.Name, m.To, e.Section)
	case !slices.Contains(s.locks, m.To):
		return r.violation("calls %s of %s in section %s, which has not locked it", m.Name, m.To, s.id)
	case !s.isGranted():
		return r.violation("calls %s of %s in section %s, which does not have its locks yet", m.Name, m.To, s.id)
	case m.OneWay:
		return r.violation("calls %s of %s one way in the section that has locked it: the call would wait until the section ends", m.Name, m.To)
	case slices.ContainsFunc(r.calls, func(c call) bool { return c.section == s.id && c.target == m.To }):
		return r.violation("calls %s of %s in section %s before its last call of it has been answered", m.Name, m.To, s.id)
	}

	r.change()
	r.calls = append(r.calls, call{e.ID, m.To, e.Section})
	return nil
}

// callOutside checks a call that is made outside of sections. If the run itself has locked the
// entity, or is about to, the call would wait for its own run.
func (r *rules) callOutside(m *model.Message) error {
	if m.OneWay {
		return nil
	}
	for i := range r.sections {
		if s := &r.sections[i]; slices.Contains(s.locks, m.To) {
			return r.violation("calls %s of %s outside its section %s, which locks it: the call would wait for its own run", m.Name, m.To, s.id)
		}
	}
	return nil
}

// unlock checks the end of a section.
func (r *rules) unlock(e *model.Event) error {
	if findSection(r.sections, e.Section) == nil {
		return r.violation("ends section %q, which is not open", e.Section)
	}
	r.drop(e.Section)
	return nil
}

// drop notes that a section is over, or that the code no longer waits for a call.
func (r *rules) drop(id string) {
	if len(r.sections) == 0 && len(r.calls) == 0 {
		return
	}
	r.change()
	r.sections = slices.DeleteFunc(r.sections, func(s section) bool { return s.id == id })
	r.calls = slices.DeleteFunc(r.calls, func(c call) bool { return c.id == id })
}
