package sim

import (
	"fmt"
	"slices"

	cutting "github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Users also change histories: they fork, import, retry, reset and delete runs. What must hold: a
// run with a past has exactly the events that its source had up to the cut, except for what
// docs/histories.md leaves out. Messages that were accepted after the cut are there. No caller is
// answered twice, or by a copy. No caller sees a run that was deleted before the caller asked.

var forkKeys = [...]string{"f0", "f1", "f2", "f3"}

// edited is the result that an edit puts in place of a recorded one.
var edited = model.TextPayload("edited")

// rewrite returns a message that changes the history of an address. Most of the time, and if there
// is nothing to change, it returns nil.
func (s *Sim) rewrite(to model.Address) *model.Message {
	a := s.ledger.addresses[to]
	if a == nil || len(a.runs) == 0 || !s.chance(0.18) {
		return nil
	}
	r := a.current

	switch n := s.pick(12); {
	case n < 5 && r != nil && (r.open() || n == 0):
		return s.takeOver(r, cutting.Reset)
	case n < 5 && r != nil && r.outcome.Status != model.Completed:
		return s.takeOver(r, cutting.Retry)
	case n < 7:
		return s.copied(a.runs[s.pick(len(a.runs))], cutting.Fork)
	case n < 9:
		return s.copied(a.runs[s.pick(len(a.runs))], cutting.Import)
	case n < 11 && r != nil && !r.open():
		return s.deletion(r)
	default:
		return nil
	}
}

// historyOf returns the stored history of a run.
func historyOf(r *run) *model.History {
	return &model.History{Start: r.start, Events: slices.Clone(r.events), Outcome: r.outcome}
}

// cut makes a past from the history of a run: up to a random place, with another result of a step
// or a child, or as the mode requires.
func (s *Sim) cut(r *run, mode cutting.Mode) *cutting.Plan {
	h := historyOf(r)
	q := cutting.Request{Mode: mode, Child: func(child model.Address) (model.Status, bool, error) {
		c := s.ledger.addresses[child]
		if c == nil || c.current == nil {
			return 0, false, nil
		}
		return c.current.outcome.Status, true, nil
	}}

	if mode == cutting.Reset || mode == cutting.Fork && s.chance(0.7) {
		q.After, q.Placed = int64(s.pick(len(r.events)+1)), true
	}

	if (mode == cutting.Reset || mode == cutting.Fork) && s.chance(0.3) {
		var outcomes []int64
		for i := range r.events {
			if e := &r.events[i]; hasResult(e.Kind) && (!q.Placed || e.Seq <= q.After) {
				outcomes = append(outcomes, e.Seq)
			}
		}
		if len(outcomes) > 0 {
			q.Edits = []cutting.Edit{{Position: oneOf(s, outcomes...), Output: edited}}
		}
	}

	plan, err := cutting.Cut(h, &q)
	if err != nil { // the cut is after a cancel request, or a child does not exist
		return nil
	}
	return plan
}

func hasResult(k model.EventKind) bool {
	return k == model.EventStepCompleted || k == model.EventStepFailed || k == model.EventChildClosed
}

// takeOver returns a message that starts a run in place of the current one.
func (s *Sim) takeOver(r *run, mode cutting.Mode) *model.Message {
	plan := s.cut(r, mode)
	if plan == nil {
		return nil
	}
	if r.open() {
		plan.Past.Next = int64(len(r.events)) + 1
	}
	return &model.Message{Kind: model.MessageStart, To: r.address.name, ToRun: r.id, Input: r.start.Input, Labels: r.start.Labels, Past: &plan.Past}
}

// copied returns a message that starts an independent execution with the past of a run. That run
// may have been deleted since it was exported.
func (s *Sim) copied(r *run, mode cutting.Mode) *model.Message {
	var plan *cutting.Plan
	switch {
	case mode == cutting.Fork && r.deleted != 0 || mode == cutting.Import && r.outcome.Status == model.Continued:
		return nil
	case mode == cutting.Import && !r.open():
		plan = cutting.Whole(historyOf(r))
	default:
		plan = s.cut(r, mode)
	}

	if plan == nil {
		return nil
	}
	to := r.address.name
	to.Key = oneOf(s, oneOf(s, forkKeys[:]...), oneOf(s, forkKeys[:]...), oneOf(s, rootKeys[:s.plan.keys]...))
	if !slices.Contains(s.copies, to) {
		s.copies = append(s.copies, to)
	}
	reuse := oneOf(s, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways)

	return &model.Message{Kind: model.MessageStart, To: to, Input: r.start.Input, Reuse: reuse, Labels: r.start.Labels, Past: &plan.Past}
}

// deletion removes a closed run: with its predecessors, or alone, or only one of the predecessors.
func (s *Sim) deletion(r *run) *model.Message {
	var chain []model.RunID
	for x := r; x != nil && x.deleted == 0; x = s.ledger.runs[x.start.Previous] {
		chain = append(chain, x.id)
	}
	slices.Reverse(chain)
	if s.chance(0.4) {
		chain = []model.RunID{oneOf(s, chain...)}
	}
	for _, id := range chain {
		s.ledger.runs[id].condemned = true
	}
	return &model.Message{Kind: model.MessageDelete, To: r.address.name, Runs: chain}
}

// delete removes a closed run.
func (l *ledger) delete(b *store.Batch, key store.RunKey) {
	l.owns(b, key.Shard)
	r := l.runs[key.Run]
	if r == nil || r.deleted != 0 {
		return // this is allowed
	}
	if r.open() {
		l.fail("I21: %s is deleted while it is open", r.id)
	}
	l.expired(r)
	r.deleted = max(l.s.now, 1)
	if r.address.current == r {
		r.address.current = nil
	}
	l.s.did(opDeleted)
}

// hears fails if a caller gets an answer about a run that was deleted before the caller asked.
func (s *Sim) hears(o *op, r *run) {
	if r.deleted != 0 && r.deleted < o.invoked {
		s.fail("I21: %s hears of %s, which was deleted before", o, short(r.id))
	}
}

// checkPast compares the past of a new run with its source.
func (l *ledger) checkPast(b *store.Batch, r, before *run) {
	st := &r.start
	src, at := l.runs[st.Source.Run], int(st.Source.Position)
	takesOver, whole := !st.Previous.IsZero(), closes(b, r.id)
	if src == nil || at > len(src.events) || at > len(st.Carried) {
		l.fail("I22: %s has the past of %s up to %d, which there is not", r.id, st.Source.Run, at)
	}
	gaveWay := takesOver && src.outcome.Next == r.id

	if takesOver {
		if before != src || st.Previous != src.id || src.open() || gaveWay != (src.outcome.Status == model.Continued) {
			l.fail("I3: %s takes the place of a run that is not the one before it", r.id)
		}
	} else if st.Parent.ID != "" || !st.First.IsZero() {
		l.fail("I22: %s is a copy, and has a parent or a chain", r.id)
	}

	retry := takesOver && !st.Identity.IsZero()
	for i := range at {
		if e, o := &st.Carried[i], &src.events[i]; !sameInPast(e, o) && (whole || !e.Blank() || !mayBeBlank(st.Carried[:at], o, retry)) {
			l.fail("I22: event %d of %s is a %s (%s), its source has a %s (%s)", e.Seq, r.id, e.Kind, e.ID, o.Kind, o.ID)
		}
		if e := &st.Carried[i]; !whole && mustBeBlank(e) {
			l.fail("I22: event %d of %s is a %s, which is about its source", e.Seq, r.id, e.Kind)
		}
	}

	l.checkAdded(r, src, at, takesOver, gaveWay)
	if !slices.Equal(st.Labels, src.start.Labels) {
		l.fail("I22: %s begins with the labels %v, its source with %v", r.id, st.Labels, src.start.Labels)
	}
	l.countPast(r, src, whole, retry)
}

func (l *ledger) countPast(r, src *run, whole, retry bool) {
	st := &r.start
	switch {
	case retry:
		l.s.did(opRetried)
	case !st.Previous.IsZero():
		l.s.did(opReset)
		for i := range src.events {
			switch src.events[i].Kind { //nolint:exhaustive // the others need no check
			case model.EventUpdateReceived, model.EventStateSet, model.EventLabeled, model.EventPaused:
				l.s.did(opResetTalk)
				return
			}
		}
	case whole:
		l.s.did(opImportedClosed)
	case !st.Identity.IsZero():
		l.s.did(opImported)
	default:
		l.s.did(opForked)
	}

	if slices.ContainsFunc(st.Carried, func(e model.Event) bool { return hasResult(e.Kind) && e.Output.Equal(edited) }) {
		l.s.did(opEdited)
	}
}

// sameInPast reports whether an event of a past equals the event of its source, except for an
// edited result.
func sameInPast(e, o *model.Event) bool {
	if e.Seq != o.Seq || e.At != o.At || e.ID != o.ID || e.Name != o.Name || e.Ref != o.Ref || !e.Input.Equal(o.Input) {
		return false
	}
	if hasResult(o.Kind) && hasResult(e.Kind) && e.Output.Equal(edited) && !o.Output.Equal(edited) {
		return e.Failure == nil && e.Kind != model.EventStepFailed && (e.Kind != model.EventChildClosed || e.Status == model.Completed)
	}
	return e.Kind == o.Kind && e.Output.Equal(o.Output) && (e.Failure == nil) == (o.Failure == nil) && e.Status == o.Status
}

// mayBeBlank reports whether a past may leave out an event of its source.
func mayBeBlank(kept []model.Event, o *model.Event, retry bool) bool {
	settled := slices.ContainsFunc(kept, func(e model.Event) bool {
		return e.ID == o.ID && (e.Kind == model.EventChildClosed || e.Kind == model.EventAnswered || e.Kind == model.EventWithdrawn)
	})
	left := !slices.ContainsFunc(kept, func(e model.Event) bool { // of a task without an outcome
		return e.ID == o.ID && (e.Kind == model.EventStepCompleted || e.Kind == model.EventStepFailed || e.Kind == model.EventWithdrawn || e.TimedOutForGood())
	})

	switch o.Kind { //nolint:exhaustive // the others stay
	case model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut:
		return left
	case model.EventWatched, model.EventPaused, model.EventResumed:
		return true
	case model.EventSent, model.EventChildStarted:
		return !settled
	case model.EventLockAsked, model.EventLockGranted: // the section still waits
		return !slices.ContainsFunc(kept, func(e model.Event) bool {
			return e.ID == o.ID && (e.Kind == model.EventUnlocked || e.Kind == model.EventWithdrawn)
		})
	case model.EventAttemptFailed:
		return retry || left && o.Ref+int64(len(o.Worker)) > 0
	default:
		return false
	}
}

// mustBeBlank reports whether a past must leave out an event.
func mustBeBlank(e *model.Event) bool {
	return e.Kind == model.EventWatched && !e.Blank() || e.Kind == model.EventPaused || e.Kind == model.EventResumed || e.Kind == model.EventAttemptFailed && e.Due != 0
}

// checkAdded checks what a run has in addition to the events of its source: messages that were
// accepted after the cut, and waiting callers.
//
//arch:parameters both runs, and how the copy was made
func (l *ledger) checkAdded(r, src *run, at int, takesOver, gaveWay bool) {
	kind := func(events []model.Event, k model.EventKind) (found []model.Event) {
		for i := range events {
			if e := &events[i]; e.Kind == k && !e.Blank() {
				found = append(found, *e)
			}
		}
		return found
	}

	same := func(a, b model.Event) bool {
		return a.Name == b.Name && a.Watcher == b.Watcher && a.Input.Equal(b.Input) && a.Output.Equal(b.Output)
	}
	all := r.start.Carried

	if takesOver {
		for _, k := range [...]model.EventKind{model.EventSignalReceived, model.EventPromiseSettled} {
			if !slices.EqualFunc(kind(all, k), kind(src.events, k), same) {
				l.fail("I11: %s does not have each %s of the run that it takes the place of", r.id, k)
			}
		}
	}

	var watchers, open []model.Event
	if gaveWay {
		watchers, open = kind(src.events, model.EventWatched), unanswered(src.events)
	}
	if !closes(l.s.disk.applying, r.id) && !slices.EqualFunc(kind(all, model.EventWatched), watchers, same) {
		l.fail("E40: %s does not have those who wait for the run that it takes the place of, or others", r.id)
	}
	named := func(e model.Event) bool { return updateKey(&e) == "" }
	open = slices.DeleteFunc(open, named)
	if has := slices.DeleteFunc(unanswered(all), named); !slices.EqualFunc(open, has, sameUpdate) {
		l.fail("I16: %s has %d updates that somebody waits for, and is to answer %d", r.id, len(has), len(open))
	}

	for _, e := range all[at:] {
		answer := e.Kind == model.EventAnswered && slices.ContainsFunc(all[:at], func(o model.Event) bool { return o.Kind == model.EventSent && o.ID == e.ID })
		accepted := takesOver && (e.Kind == model.EventSignalReceived || e.Kind == model.EventPromiseSettled)
		if !answer && !accepted && !(gaveWay && (e.Kind == model.EventUpdateReceived || e.Kind == model.EventWatched)) {
			l.fail("I22: event %d of %s is a %s, which does not come with a past", e.Seq, r.id, e.Kind)
		}
	}
}

// readAgain repeats a reset with the current history if the run has continued since the user read
// it, as the service does.
func (o *op) readAgain() bool {
	s, m := o.user.s, &o.message
	if m.Past == nil || m.Past.Next == 0 || o.shadow != nil || o.reads == 3 {
		return false
	}
	r := s.ledger.runs[m.ToRun]
	if !r.open() || r.address.current != r {
		return false
	}

	next := s.takeOver(r, cutting.Reset)
	if next == nil {
		return false
	}
	o.reads++
	if m.RequestID != "" { // the refusal is remembered under the request id
		next.RequestID = fmt.Sprintf("%s#%d", m.RequestID, o.reads)
	}
	o.message = *next
	s.did(opReadAgain)

	return true
}

// checkBegun checks the answer to a user who starts a run with a past.
func (s *Sim) checkBegun(o *op, a *model.Answer, r *run) {
	m := &o.message
	s.checkReuse(o, a, r)
	switch {
	case r.start.Source.Run != m.Past.Source.Run || r.start.Source.Position != m.Past.Source.Position || r.start.Previous != m.ToRun:
		s.fail("I22: %s was answered with %s, which has another past", o, short(r.id))
	case a.Existing || o.shadow != nil:
		return
	}
	if r.fresh++; r.fresh > 1 {
		s.fail("I2: two were told that %s is theirs", short(r.id))
	}
}

// checkDeleted checks that nothing is left of a deleted run.
func (s *Sim) checkDeleted(r *run) {
	key := store.RunKey{Shard: r.address.shard, Run: r.id}
	row, err := s.disk.mem.LoadExecution(background, key.Shard, r.address.name, r.id)
	if err != nil || row != nil {
		s.fail("I21: %s was deleted and is in the store: %v", short(r.id), err)
	}
	events, err := s.disk.mem.LoadEvents(background, key, 0, 1, 1<<30)
	if err != nil || len(events) > 0 {
		s.fail("I21: %s was deleted and swept, and has events: %v", short(r.id), err)
	}
	labels, err := s.disk.mem.LoadLabels(background, []store.RunKey{key})
	if err != nil || len(labels) > 0 {
		s.fail("I21: %s was deleted and is found by its labels: %v", short(r.id), err)
	}
}

// inherit records what a run has from its past.
func (r *run) inherit(e *model.Event) {
	switch e.Kind { //nolint:exhaustive // the others are recorded below or not needed
	case model.EventPromiseSettled:
		if r.settled == nil {
			r.settled = map[string]string{}
		}
		r.settled[e.Name] = string(e.Output.Data)
	case model.EventPinned:
		r.pin = e.Name
	}

	bi, ai, ok := parseAsk(e.ID)
	if !ok || e.Blank() {
		return
	}
	h := &r.asks[bi][ai]

	switch e.Kind {
	case model.EventStepCompleted, model.EventStepFailed:
		h.outcome = true
	case model.EventAttemptFailed:
		h.attempts = e.Attempt
	case model.EventTimerFired:
		h.fired = true
	case model.EventWithdrawn:
		h.withdrawn = true
	case model.EventSignalTaken:
		h.taken = true
	case model.EventChildStarted:
		h.started = true
	case model.EventChildClosed:
		h.closed = true
	case model.EventSent, model.EventLabeled, model.EventLockAsked:
		h.sent = true
	case model.EventAnswered:
		h.answered = true
	case model.EventStateSet, model.EventVersionMarked:
		h.noted = true
	default:
	}
}
