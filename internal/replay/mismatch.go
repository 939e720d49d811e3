package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// block stops the run with a reason. If there is a reason already, that reason stays.
func (m *machine) block(detail string) {
	if m.doom == nil {
		m.doom = &model.Reason{Code: model.WaitMismatch, Detail: detail}
	}
}

// blockAt stops the run because an event does not fit.
func (m *machine) blockAt(e *model.Event, detail string) {
	if m.doom == nil {
		m.misfit = e.Seq
	}
	m.block(detail)
}

// ---- events that the code has not asked for

// stray keeps an event that the code has not asked for yet. After the end of the history there can
// be no such event.
func (m *machine) stray(i int) {
	e := m.r.events[i]
	if m.live {
		m.blockAt(e, fmt.Sprintf("%s, which the code did not ask for", describeEvent(e)))
		return
	}
	if m.early == nil {
		m.early = map[string][]int{}
	}
	m.early[e.ID] = append(m.early[e.ID], i)
}

// serveEarly gives an ask the events that were recorded for it before the code asked.
func (m *machine) serveEarly(a *ask) {
	if len(m.early) == 0 {
		return
	}
	id := a.id

	events, ok := m.early[id]
	if !ok {
		if id, ok = m.renamed[a.id]; !ok {
			return
		}
		events = m.early[id]
		m.adoptName(a, id)
	}

	rest := events[:0:0]
	for _, i := range events {
		if !m.apply(a, m.r.events[i]) {
			rest = append(rest, i)
		}
	}

	if len(rest) == 0 {
		delete(m.early, id)
	} else {
		m.early[id] = rest
	}
}

// ---- inputs that are encoded differently today

// kindName is a kind of ask and a name.
type kindName struct {
	kind askKind
	name string
}

// learn remembers how inputs of a step or child are encoded today. It then tries again to find the
// asks of early events (events that the code has not asked for yet).
func (m *machine) learn(kind askKind, name string, normalize Normalize) {
	if m.live || normalize == nil {
		return
	}
	key := kindName{kind, name}
	if m.normalizers[key] != nil {
		return
	}

	if m.normalizers == nil {
		m.normalizers = map[kindName]Normalize{}
	}
	m.normalizers[key] = normalize

	for _, id := range m.strays[key] {
		for _, i := range m.early[id] {
			m.today(m.r.events[i])
		}
	}

	delete(m.strays, key)
}

// rename finds the ask of an event if today's code encodes the input in another way, so that the
// ask has another identity than the event. It returns nil when the code has not made this ask yet.
func (m *machine) rename(e *model.Event) *ask {
	if m.live {
		return nil
	}
	id, ok := m.today(e)
	if !ok {
		return nil
	}
	a := m.asks.get([]byte(id))
	if a == nil || a.fut.done || a.recorded {
		return nil
	}
	m.adoptName(a, e.ID)
	return a
}

// adoptName gives an ask the identity that is in the history.
func (m *machine) adoptName(a *ask, id string) {
	if m.alias == nil {
		m.alias = map[string]*ask{}
	}
	m.alias[id] = a
	a.id = id
}

// today returns the identity that a recorded ask would have in today's code.
func (m *machine) today(e *model.Event) (string, bool) {
	p, ok := parseID(e.ID)
	if !ok || !p.hashed || len(e.Input.Data) == 0 && e.Input.Encoding == model.JSON {
		return "", false
	}
	key := kindName{p.kind, p.name}
	normalize := m.normalizers[key]
	if normalize == nil {
		if m.strays == nil {
			m.strays = map[kindName][]string{}
		}
		m.strays[key] = append(m.strays[key], e.ID)
		return "", false
	}

	input, err := normalize(m.w.cfg.Host, e.Input)
	if err != nil {
		if fault.Is(err, fault.Blocked) {
			// The recorded input cannot be decoded. Say so, because that may be the only problem.
			m.blockAt(e, fmt.Sprintf("%s: %v", describeEvent(e), err))
		}
		return "", false
	}

	id := identity{kind: p.kind, name: p.name, input: input, hashed: true}
	text := string(appendOccurrence(id.append(nil, p.path), p.occurrence))
	if m.renamed == nil {
		m.renamed = map[string]string{}
	}
	m.renamed[text] = e.ID

	return text, true
}

// foresee finds the event that records the start of a child, if the input of the child is encoded
// differently today. It does not wait until this event is fed, because the key of the child is
// derived from the recorded identity, and the code may use the key immediately.
func (m *machine) foresee(a *ask) {
	if m.live || m.normalizers[kindName{askChild, a.name}] == nil {
		return
	}

	if m.kids == nil {
		m.kids = map[string]*model.Event{}
		for _, e := range m.r.events {
			if p, ok := parseID(e.ID); ok && e.Kind == model.EventChildStarted && p.kind == askChild && p.hashed {
				m.kids[e.ID] = e
			}
		}
	}

	if len(m.kids) == 0 || m.kids[a.id] != nil {
		return
	}

	if _, seen := m.foreseen[a.name]; !seen {
		if m.foreseen == nil {
			m.foreseen = map[string]struct{}{}
		}
		m.foreseen[a.name] = struct{}{}
		for _, e := range m.kids {
			if e.Name == a.name {
				m.today(e)
			}
		}
	}

	if id, ok := m.renamed[a.id]; ok {
		m.adoptName(a, id)
	}
}

// ---- what is left over

// mismatchAtEnd blocks the run because the code has not asked for something that is recorded,
// although it has reached the end of the history.
func (m *machine) mismatchAtEnd() {
	e := m.firstEarly()
	if text := m.drift(e); text != "" {
		m.blockAt(e, text)
		return
	}
	m.blockAt(e, fmt.Sprintf("%s, which the code did not ask for; it asks for %s", describeEvent(e), m.describeWaits()))
}

// settleRest handles code that returns before the end of the history. It checks that the code has
// asked for the remaining events, or did not have to ask for them. The worker reports requests
// without a record together with the end of the run.
func (m *machine) settleRest() bool {
	for _, e := range m.r.events[m.fed:] {
		if e.Kind == model.EventLabeled {
			m.applyLabel(e)
		}
		if isUnsolicited(e) {
			continue
		}
		a := m.find(e.ID)
		if a == nil {
			a = m.rename(e)
		}

		switch {
		case a == nil || e.Kind == model.EventWithdrawn && !a.withdrawn || e.Kind == model.EventUnlocked && (a.kind != askLock || !a.section.ended):
			m.blockAt(e, describeEvent(e)+", but the code returned without asking for it")
			return false
		case e.Kind == model.EventChildStarted || e.Kind == model.EventSignalTaken || e.Kind == model.EventSent ||
			e.Kind == model.EventStateSet || e.Kind == model.EventUpdateAnswered || e.Kind == model.EventLockAsked:
			a.recorded = true
		case e.Kind == model.EventUnlocked:
			a.section.freed = true
		case e.Kind == model.EventTaskScheduled:
			a.recorded = true
			a.adoptTask(e.Task)
		case e.Kind == model.EventWithdrawn:
			a.gone = true
		}
	}

	if len(m.early) > 0 {
		e := m.firstEarly()
		m.blockAt(e, describeEvent(e)+", but the code returned without asking for it")
		return false
	}

	m.goLive()
	return m.doom == nil
}

// isUnsolicited reports whether an event may be in the history without a request of the code. That
// includes version marks, because developers may have removed the code that asked for them.
func isUnsolicited(e *model.Event) bool {
	switch e.Kind {
	case model.EventSignalReceived, model.EventPromiseSettled, model.EventCancelRequest, model.EventWatched, model.EventStarted, model.EventClosed,
		model.EventVersionMarked, model.EventUpdateReceived, model.EventPaused, model.EventResumed, model.EventPinned,
		model.EventLabeled, model.EventSignalDropped, model.EventNoted:
		return true
	default:
		return isCarriedState(e)
	}
}

// firstEarly returns the first event that the code has not asked for.
func (m *machine) firstEarly() *model.Event {
	at := len(m.r.events)
	for _, events := range m.early {
		at = min(at, events[0])
	}
	return m.r.events[at]
}

// describeEvent describes an event in an error.
func describeEvent(e *model.Event) string {
	what := e.Kind.String()
	name := e.Name
	if p, ok := parseID(e.ID); ok {
		if name == "" {
			name = p.name
		}
		if title := p.kind.title(); title != "" {
			what = title
		}
		if p.kind == askTimer || p.kind == askScope {
			name = ""
		}
		if ofTask(e.Kind) {
			what = "task"
		}
		if e.Kind == model.EventWithdrawn {
			what = "the withdrawal of " + what
		}
		if p.key != "" && (p.kind == askStep || p.kind == askTimer) {
			name = strings.TrimPrefix(name+" (key "+p.key+")", " ")
		}
		if p.kind == askLock {
			what, name = lockText(e), ""
		}
	}

	if name != "" {
		what += " " + name
	}
	return fmt.Sprintf("event %d records %s%s", e.Seq, what, at(e.Position))
}

// describeWaits describes in an error what the code waits for.
func (m *machine) describeWaits() string {
	var texts []string
	for n := m.coroutines.first; n != nil && len(texts) < 4; n = n.next {
		for _, f := range n.value.wait.pendingFutures() {
			if f.done || f.kind == futureCoroutine || f.kind == futureLocal || len(texts) == 4 {
				continue
			}
			texts = append(texts, describeFuture(f))
		}
	}
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

// describeFuture describes in an error what a future is for.
func describeFuture(f *Future) string {
	switch f.kind {
	case futureStep:
		return f.ask.title() + " " + f.ask.name + at(f.ask.position)
	case futureTimer:
		return "a timer" + at(f.ask.position)
	case futureChild:
		return "execution " + addressText(f.ask.target) + at(f.ask.position)
	case futureSignal:
		return "signal " + f.name
	case futurePromise:
		return "promise " + f.name
	case futureAnswer:
		return "the answer of " + addressText(f.ask.target) + " to " + f.name + at(f.ask.position)
	case futureLock:
		return "the lock of " + lockNames(f.ask.section.locks) + at(f.ask.position)
	case futureCoroutine, futureFailed, futureLocal:
	}

	return "nothing"
}

// ---- argument drift

// drift explains that the code asks for a recorded step or child with another input; "" when that
// is not the problem.
func (m *machine) drift(e *model.Event) string {
	p, ok := parseID(e.ID)
	if !ok || !p.hashed {
		return ""
	}
	what := "step"
	if p.kind == askChild {
		what = "child"
	}
	a := m.closestAsk(p)

	switch {
	case a == nil:
		return ""
	case p.kind == askLock:
		return fmt.Sprintf("%s; the code asks for the lock of %s%s", describeEvent(e), lockNames(a.section.locks), at(a.position))
	}

	text := fmt.Sprintf("input of %s %s changed", what, p.name)
	switch fields := changedFields(m.inputOf(e), a.input()); len(fields) {
	case 0:
	case 1:
		text += ": field " + fields[0]
	default:
		text += ": fields " + strings.Join(fields, ", ")
	}

	return fmt.Sprintf("%s (%s; the code asks%s)", text, describeEvent(e), at(a.position))
}

// closestAsk returns the open ask that most likely is the recorded ask with another input. Both
// asks have the same coroutine, kind and name.
func (m *machine) closestAsk(p parsedID) *ask {
	var best *ask
	var bestID parsedID
	for a := range m.asks.all() {
		q, ok := parseID(a.id)
		if !ok || a.fut.done || a.recorded || !q.hashed || q.kind != p.kind || q.name != p.name || q.path != p.path {
			continue
		}
		if best == nil || (q.occurrence == p.occurrence) != (bestID.occurrence == p.occurrence) && q.occurrence == p.occurrence ||
			(q.occurrence == p.occurrence) == (bestID.occurrence == p.occurrence) && a.id < best.id {
			best, bestID = a, q
		}
	}
	return best
}

// inputOf returns the recorded input of the step or child that the event belongs to.
func (m *machine) inputOf(e *model.Event) []byte {
	for _, o := range m.r.events {
		if o.ID == e.ID && len(o.Input.Data) > 0 {
			return m.w.cfg.Plain(o.Input)
		}
	}
	return nil
}

// input returns the input of the step or child that the code asks for.
func (a *ask) input() []byte {
	if a.kind == askStep {
		return a.step.plainInput().Data
	}
	if a.pending != nil {
		return a.pending.Event.Input.Data
	}
	return nil
}

// changedFields names the fields in which two JSON objects differ, at most five; nil if they are
// not objects.
func changedFields(a, b []byte) []string {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return nil
	}

	var fields []string
	for name, v := range x {
		if w, ok := y[name]; !ok {
			fields = append(fields, name)
		} else if !bytes.Equal(v, w) {
			inner := changedFields(v, w)
			for _, f := range inner {
				fields = append(fields, name+"."+f)
			}
			if len(inner) == 0 {
				fields = append(fields, name)
			}
		}
	}

	for name := range y {
		if _, ok := x[name]; !ok {
			fields = append(fields, name)
		}
	}

	slices.Sort(fields)
	if len(fields) > 5 {
		fields = append(fields[:5], "…")
	}
	return fields
}
