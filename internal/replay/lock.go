package replay

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// section is a part of the code that has entities locked. The code asks for the locks of all
// entities in one request, and continues when the engine has granted the last lock. The engine
// decides in which order the entities are locked. A section ends when its function returns, or with
// the run.
//
// A call that breaks a rule of locks returns an error. The worker does not send or record anything
// for this call, so the call gets the same error on replay. The engine knows the same rules, and
// refuses a turn that breaks them.
type section struct {
	ask    *ask
	locks  []model.Address // sorted, without duplicates
	epochs []int64         // fencing tokens of locks[:len(epochs)], which are granted
	over   bool
	ended  bool                   // its function has returned, which must be recorded
	freed  bool                   // the history has its end
	calls  map[model.Address]*ask // the last call of each entity
}

// Lock waits until all entities of the set are locked, runs fn, and releases them. Calls of these
// entities with the context of fn run immediately. All other callers wait for the end of fn. If the
// scope ends, Lock stops waiting.
func (x Ctx) Lock(set []model.Address, fn func(Ctx) error) error {
	if err := x.enter("Lock"); err != nil {
		return err
	}
	if err := x.scope.endError(); err != nil {
		return err
	}
	s, err := x.newSection(set)
	if err != nil {
		return err
	}

	m, a := x.co.m, s.ask
	m.sections = append(m.sections, s)
	m.serveEarly(a)

	if !a.recorded {
		m.request(a, model.Command{Kind: model.CommandLock, Event: model.Event{
			Kind: model.EventLockAsked, ID: a.id, Locks: s.locks, Position: a.position,
		}})
	}

	x.co.single[0] = &a.fut
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		m.giveUpSection(s)
		return err
	}

	if a.fut.err != nil {
		m.leaveSection(s)
		return a.fut.err
	}

	defer func() {
		// Do not end the section if the run is unloaded, or if the body of a step has ended the
		// goroutine. In both cases a replay reaches this point again.
		if c := x.co; !c.dying.Load() && c.inline == nil {
			m.unlock(s)
		}
	}()

	scope := x.newScope(x.scope)
	scope.section = s
	return fn(Ctx{x.co, scope})
}

// newSection checks the set of entities to lock, and asks for their locks.
func (x Ctx) newSection(set []model.Address) (*section, error) {
	locks := model.SortLocks(set)
	switch {
	case x.scope.section != nil && x.scope.section.over:
		return nil, fault.New(fault.Invalid, "Lock with the context of a lock that has ended: use the context outside the lock")
	case x.scope.section != nil:
		return nil, fault.New(fault.Invalid, "Lock inside Lock: lock everything at once, or one after the other")
	case len(locks) == 0:
		return nil, fault.New(fault.Invalid, "Lock of no entities")
	case len(locks) > model.MaxLocks:
		return nil, fault.New(fault.Exhausted, "Lock of %d entities: at most %d are allowed", len(locks), model.MaxLocks)
	}

	parts := make([]string, 0, 2*len(locks))
	for _, a := range locks {
		if !a.IsEntity() || a.Stateless() {
			return nil, fault.New(fault.Invalid, "Lock of %s, which is not an entity", addressText(a))
		}
		parts = append(parts, a.Type, a.Key)
	}

	a := x.co.m.newAsk(x.co.path, &identity{kind: askLock, name: "lock", input: []byte(joinCounted(parts...)), hashed: true})
	s := &section{ask: a, locks: locks}
	a.fut.kind, a.section = futureLock, s
	return s, nil
}

// lockGranted notes that an entity is locked. When the last entity is locked, the code continues,
// unless the code has given up on the section.
func (m *machine) lockGranted(a *ask, e *model.Event) {
	s := a.section
	if len(s.epochs) == len(s.locks) || s.locks[len(s.epochs)] != e.Target {
		m.blockAt(e, fmt.Sprintf("event %d records that %s is locked, which the code does not wait for%s", e.Seq, e.Target.EntityName(), at(a.position)))
		return
	}
	m.untold = true
	if s.epochs = append(s.epochs, e.Ref); len(s.epochs) == len(s.locks) {
		m.answer(a, e)
	}
}

// unlock ends a section whose function has returned.
func (m *machine) unlock(s *section) {
	if s.over {
		return // the section has ended with the run
	}
	m.leaveSection(s)
	s.ended = true
	m.serveEarly(s.ask)
	switch {
	case !m.live:
		m.unconfirmed = append(m.unconfirmed, s.ask)
	case !s.freed && !m.wasSent(s.ask):
		m.command(s.ask, s.unlockCommand())
	}
}

// unlockCommand returns the command that ends the section.
func (s *section) unlockCommand() model.Command {
	return model.Command{Kind: model.CommandUnlock, Event: model.Event{Kind: model.EventUnlocked, ID: s.ask.id, Section: s.ask.id}}
}

// giveUpSection ends a section that waits for its locks.
func (m *machine) giveUpSection(s *section) {
	m.leaveSection(s)
	m.cancel(&s.ask.fut)
}

// leaveSection closes the section for further calls.
func (m *machine) leaveSection(s *section) {
	s.over = true
	m.sections = slices.DeleteFunc(m.sections, func(o *section) bool { return o == s })
}

// endSections ends all sections, because the coroutines that ran their functions have been ended.
func (m *machine) endSections() {
	for _, s := range slices.Clone(m.sections) {
		if s.ask.fut.done {
			m.unlock(s)
		} else {
			m.giveUpSection(s)
		}
	}
}

// fence returns the token of an entity that the section has locked.
func (s *section) fence(entity model.Address) (int64, bool) {
	if s == nil {
		return 0, false
	}
	i := slices.Index(s.locks, entity)
	if i < 0 || i >= len(s.epochs) {
		return 0, false
	}
	return s.epochs[i], true
}

// withFences adds the fencing tokens to a task that is scheduled in the section.
func (s *section) withFences(t *model.TaskSpec) *model.TaskSpec {
	if s == nil || t == nil {
		return t
	}
	own := *t
	own.Fences = make([]model.Fence, len(s.locks))
	for i := range s.locks {
		own.Fences[i] = model.Fence{Entity: s.locks[i], Epoch: s.epochs[i]}
	}
	return &own
}

// Fence returns the fencing token of an entity that the code has locked. It grows with every lock
// of the entity. A system that gets the token with every write can refuse writers that have lost
// their lock.
func (x Ctx) Fence(entity model.Address) (int64, bool) {
	x.must("Fence")
	return x.heldSection().fence(entity)
}

// heldSection returns the section that the code is in, or nil.
func (x Ctx) heldSection() *section {
	if s := x.scope.section; s != nil && !s.over {
		return s
	}
	return nil
}

// ---- rules of a section

// callIn returns the section that makes a call, or nil outside of sections. The error says which
// rule the call breaks.
func (x Ctx) callIn(msg *model.Message) (*section, error) {
	if msg.Kind != model.MessageCall || msg.To.Stateless() {
		return nil, nil
	}
	s, name := x.scope.section, msg.To.EntityName()
	if s == nil {
		return nil, x.callOutside(msg, name)
	}

	locked := slices.Contains(s.locks, msg.To)
	switch last := s.calls[msg.To]; {
	case s.over:
		return nil, fault.New(fault.Invalid, "call of %s of %s with the context of a lock that has ended: use the context outside the lock", msg.Name, name)
	case locked && msg.OneWay:
		return nil, fault.New(fault.Invalid, "send of %s to %s, which is locked here: the call would wait for the end of the lock, so call it instead", msg.Name, name)
	case msg.OneWay:
		return nil, nil
	case !locked:
		return nil, fault.New(fault.Invalid, "call of %s of %s, which is not among the locked entities: lock it together with them", msg.Name, name)
	case last != nil && !last.fut.done:
		return nil, fault.New(fault.Invalid, "call of %s of %s before the previous call of this entity was answered", msg.Name, name)
	}

	return s, nil
}

// callOutside checks a call outside of sections.
func (x Ctx) callOutside(msg *model.Message, name string) error {
	if !msg.OneWay && slices.ContainsFunc(x.co.m.sections, func(s *section) bool { return slices.Contains(s.locks, msg.To) }) {
		return fault.New(fault.Invalid, "call of %s of %s, which this execution locks elsewhere: it would wait for itself", msg.Name, name)
	}
	return nil
}

// noteCall notes a call that is made in the section.
func (s *section) noteCall(a *ask) {
	a.section = s
	if s.calls == nil {
		s.calls = map[model.Address]*ask{}
	}
	s.calls[a.target] = a
}

// mayWait refuses to wait for another execution while entities are locked, because that execution
// may need them too.
func (x Ctx) mayWait(target model.Address) error {
	if x.heldSection() != nil {
		return fault.New(fault.Invalid, "wait for execution %s inside Lock: that execution may need the locked entities; start it inside Lock and wait for it outside", addressText(target))
	}
	return nil
}

// isRecorded reports whether the history has a message that the code is about to send. An older
// build, which did not have a rule yet, may have recorded a message that the rule forbids. A run
// with such a record may continue.
func (m *machine) isRecorded(path string, id *identity) bool {
	m.buf = id.append(m.buf[:0], path)
	if earlier := m.asks.get(m.buf); earlier != nil {
		m.buf = appendOccurrence(m.buf, earlier.repeats+1)
	}
	for _, e := range m.r.events {
		if e.Kind == model.EventSent && e.ID == string(m.buf) {
			return true
		}
	}
	return false
}

// noteSent notes that a message is recorded. The code that made the record must have sent the
// message in the same place: inside the same lock, or outside of all locks.
func (m *machine) noteSent(a *ask, e *model.Event) {
	a.recorded = true
	where, is := "", "outside all locks"
	if a.section != nil {
		where, is = a.section.ask.id, "inside the lock of "+lockNames(a.section.locks)
	}
	if where != e.Section {
		m.blockAt(e, fmt.Sprintf("%s, in another lock or in none; the code sends it %s%s", describeEvent(e), is, at(a.position)))
	}
}

// ---- texts for errors

// lockNames lists the entities of a section, and cuts a long list.
func lockNames(locks []model.Address) string {
	names := make([]string, len(locks))
	for i := range locks {
		names[i] = locks[i].EntityName()
	}
	return listTexts(names)
}

// endText says whether the section is over.
func (s *section) endText() string {
	if s.ended {
		return ", and its end"
	}
	return ", and not its end"
}

// lockText describes what an event of a section records.
func lockText(e *model.Event) string {
	switch e.Kind {
	case model.EventLockAsked:
		return "the lock of " + lockNames(e.Locks)
	case model.EventLockGranted:
		return "that " + e.Target.EntityName() + " is locked"
	case model.EventUnlocked:
		return "the end of a lock"
	case model.EventWithdrawn:
		return "the withdrawal of a lock"
	default:
		return "the refusal of a lock"
	}
}
