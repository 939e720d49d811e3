package oracle

import (
	"context"
	"slices"

	cutting "github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Users also change histories: they fork, import, retry, reset and delete runs. The rules are: a
// run with a past has exactly the events that its source had up to the cut, except for the events
// that docs/histories.md says are left out. A run that replaces its source also has the messages
// that the source accepted after the cut. No caller gets two answers, or an answer from a copy. No
// caller sees a run that was deleted before the caller asked.

// edited is the result with which an edit replaces a recorded result.
var edited = model.TextPayload("edited")

// Rewrite returns a message that changes the history of an address. Most of the time, and if there
// is nothing to change, it returns nil.
func (s *Oracle) Rewrite(to model.Address) *model.Message {
	a := s.Ledger.Addresses[to]
	if a == nil || len(a.Runs) == 0 || s.Has(scenario.SignalOrders) || !s.Chance(0.18) {
		return nil
	}
	r := a.Current

	switch n := s.Pick(12); {
	case n < 5 && r != nil && (r.Open() || n == 0):
		return s.TakeOver(r, cutting.Reset)
	case n < 5 && r != nil && r.outcome.Status != model.Completed:
		return s.TakeOver(r, cutting.Retry)
	case n < 7:
		return s.copied(a.Runs[s.Pick(len(a.Runs))], cutting.Fork)
	case n < 9:
		return s.copied(a.Runs[s.Pick(len(a.Runs))], cutting.Import)
	case n < 11 && r != nil && !r.Open():
		return s.Deletion(r)
	default:
		return nil
	}
}

// historyOf returns the stored history of a run.
func historyOf(r *Run) *model.History {
	return &model.History{Start: r.Start, Events: slices.Clone(r.Events), Outcome: r.outcome}
}

// cut makes a past from the history of a run. The past ends at a random place or where the mode
// requires it, and may have an edited result of a step or a child.
func (s *Oracle) cut(r *Run, mode cutting.Mode) *cutting.Plan {
	h := historyOf(r)
	q := cutting.Request{Mode: mode, Child: func(child model.Address) (model.Status, bool, error) {
		c := s.Ledger.Addresses[child]
		if c == nil || c.Current == nil {
			return 0, false, nil
		}
		return c.Current.outcome.Status, true, nil
	}}

	if mode == cutting.Reset || mode == cutting.Fork && s.Chance(0.7) {
		q.After, q.Placed = int64(s.Pick(len(r.Events)+1)), true
	}

	if (mode == cutting.Reset || mode == cutting.Fork) && s.Chance(0.3) {
		var outcomes []int64
		for i := range r.Events {
			if e := &r.Events[i]; hasResult(e.Kind) && (!q.Placed || e.Seq <= q.After) {
				outcomes = append(outcomes, e.Seq)
			}
		}
		if len(outcomes) > 0 {
			q.Edits = []cutting.Edit{{Position: kernel.OneOf(s, outcomes...), Output: edited}}
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

// TakeOver returns a message that replaces the current run by a new run with the past of the
// current run.
func (s *Oracle) TakeOver(r *Run, mode cutting.Mode) *model.Message {
	plan := s.cut(r, mode)
	if plan == nil {
		return nil
	}
	if r.Open() {
		plan.Past.Next = int64(len(r.Events)) + 1
	}
	return &model.Message{Kind: model.MessageStart, To: r.Address.Name, ToRun: r.ID, Input: r.Start.Input, Labels: r.Start.Labels, Past: &plan.Past}
}

// copied returns a message that starts an independent execution with the past of a run. The run may
// have been deleted after its history was exported.
func (s *Oracle) copied(r *Run, mode cutting.Mode) *model.Message {
	var plan *cutting.Plan
	switch {
	case mode == cutting.Fork && r.Deleted != 0 || mode == cutting.Import && r.outcome.Status == model.Continued:
		return nil
	case mode == cutting.Import && !r.Open():
		plan = cutting.Whole(historyOf(r))
	default:
		plan = s.cut(r, mode)
	}

	if plan == nil {
		return nil
	}
	to := r.Address.Name
	to.Key = kernel.OneOf(s, kernel.OneOf(s, scenario.ForkKeys[:]...), kernel.OneOf(s, scenario.ForkKeys[:]...), kernel.OneOf(s, scenario.RootKeys[:s.Plan.Keys]...))
	if !slices.Contains(s.Copies, to) {
		s.Copies = append(s.Copies, to)
	}
	reuse := kernel.OneOf(s, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways)

	return &model.Message{Kind: model.MessageStart, To: to, Input: r.Start.Input, Reuse: reuse, Labels: r.Start.Labels, Past: &plan.Past}
}

// Deletion returns a message that deletes a closed run and its predecessors, or only one of these
// runs.
func (s *Oracle) Deletion(r *Run) *model.Message {
	var chain []model.RunID
	for x := r; x != nil && x.Deleted == 0; x = s.Ledger.Runs[x.Start.Previous] {
		chain = append(chain, x.ID)
	}
	slices.Reverse(chain)
	if s.Chance(0.4) {
		chain = []model.RunID{kernel.OneOf(s, chain...)}
	}
	for _, id := range chain {
		s.Ledger.Runs[id].condemned = true
	}
	return &model.Message{Kind: model.MessageDelete, To: r.Address.Name, Runs: chain}
}

// delete removes a closed run.
func (l *ledger) delete(b *store.Batch, key store.RunKey) {
	l.owns(b, key.Shard)
	r := l.Runs[key.Run]
	if r == nil || r.Deleted != 0 {
		return // deleting twice is allowed
	}
	if r.Open() {
		l.Fail("I21: %s is deleted while it is open", r.ID)
	}
	l.checkExpiry(r)
	r.Deleted = max(l.s.Now, 1)
	if r.Address.Current == r {
		r.Address.Current = nil
	}
	l.s.Did(scenario.OpDeleted)
}

// hears fails if a caller gets an answer about a run that was deleted before the caller asked. A
// late copy of a request gets the answer to the first copy, so hears uses the time of the first
// copy.
func (s *Oracle) hears(o *Op, r *Run) {
	asked := o.Invoked
	if o.Shadow != nil {
		asked = min(asked, o.Shadow.Invoked)
	}
	if r.Deleted != 0 && r.Deleted < asked {
		s.Fail("I21: %s hears of %s, which was deleted before", o, scenario.Short(r.ID))
	}
}

// checkPast compares the past of a new run with its source.
func (l *ledger) checkPast(b *store.Batch, r, before *Run) {
	st := &r.Start
	src, at := l.Runs[st.Source.Run], int(st.Source.Position)
	takesOver, whole := !st.Previous.IsZero(), closes(b, r.ID)
	if src == nil || at > len(src.Events) || at > len(st.Carried) {
		l.Fail("I22: %s has the past of %s up to %d, which does not exist", r.ID, st.Source.Run, at)
	}
	gaveWay := takesOver && src.outcome.Next == r.ID

	if takesOver {
		if before != src || st.Previous != src.ID || src.Open() || gaveWay != (src.outcome.Status == model.Continued) {
			l.Fail("I3: %s takes the place of a run that is not the one before it", r.ID)
		}
	} else if st.Parent.ID != "" || !st.First.IsZero() {
		l.Fail("I22: %s is a copy, and has a parent or a chain", r.ID)
	}

	retry := takesOver && !st.Identity.IsZero()
	for i := range at {
		if e, o := &st.Carried[i], &src.Events[i]; !sameInPast(e, o) && (whole || !e.Blank() || !mayBeBlank(st.Carried[:at], o, retry)) {
			l.Fail("I22: event %d of %s is a %s (%s), its source has a %s (%s)", e.Seq, r.ID, e.Kind, e.ID, o.Kind, o.ID)
		}
		if e := &st.Carried[i]; !whole && mustBeBlank(e) {
			l.Fail("I22: event %d of %s is a %s, which is about its source", e.Seq, r.ID, e.Kind)
		}
	}

	l.checkAdded(b, r, src, at, takesOver, gaveWay)
	if !slices.Equal(st.Labels, src.Start.Labels) {
		l.Fail("I22: %s begins with the labels %v, its source with %v", r.ID, st.Labels, src.Start.Labels)
	}
	l.countPast(r, src, whole, retry)
}

func (l *ledger) countPast(r, src *Run, whole, retry bool) {
	st := &r.Start
	switch {
	case retry:
		l.s.Did(scenario.OpRetried)
	case !st.Previous.IsZero():
		l.s.Did(scenario.OpReset)
		for i := range src.Events {
			switch src.Events[i].Kind { //nolint:exhaustive // other kinds need no check
			case model.EventUpdateReceived, model.EventStateSet, model.EventLabeled, model.EventPaused:
				l.s.Did(scenario.OpResetTalk)
				return
			}
		}
	case whole:
		l.s.Did(scenario.OpImportedClosed)
	case !st.Identity.IsZero():
		l.s.Did(scenario.OpImported)
	default:
		l.s.Did(scenario.OpForked)
	}

	if slices.ContainsFunc(st.Carried, func(e model.Event) bool { return hasResult(e.Kind) && e.Output.Equal(edited) }) {
		l.s.Did(scenario.OpEdited)
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
	left := !slices.ContainsFunc(kept, func(e model.Event) bool { // the task has no outcome
		return e.ID == o.ID && (e.Kind == model.EventStepCompleted || e.Kind == model.EventStepFailed || e.Kind == model.EventWithdrawn || e.TimedOutForGood())
	})

	switch o.Kind { //nolint:exhaustive // other kinds stay
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

// checkAdded checks what a run adds to the events of its source: messages that the source accepted
// after the cut, answers to messages from before the cut, and waiting callers.
//
//arch:parameters the batch, both runs, and how the copy was made
func (l *ledger) checkAdded(b *store.Batch, r, src *Run, at int, takesOver, gaveWay bool) {
	kind := func(events []model.Event, k model.EventKind) (found []model.Event) {
		for i := range events {
			if e := &events[i]; e.Kind == k && !e.Blank() {
				found = append(found, *e)
			}
		}
		return found
	}

	same := func(a, b model.Event) bool {
		return a.Name == b.Name && a.Waiter() == b.Waiter() && a.Input.Equal(b.Input) && a.Output.Equal(b.Output)
	}
	all := r.Start.Carried

	if takesOver {
		for _, k := range [...]model.EventKind{model.EventSignalReceived, model.EventPromiseSettled} {
			if !slices.EqualFunc(kind(all, k), kind(src.Events, k), same) {
				l.Fail("I11: %s does not have each %s of the run that it takes the place of", r.ID, k)
			}
		}
		// The past of an answered update names no sender, because the sender has its answer.
		alike := func(a, b model.Event) bool { return a.Name == b.Name && a.Input.Equal(b.Input) }
		accepted := slices.DeleteFunc(kind(src.Events, model.EventUpdateReceived), func(e model.Event) bool {
			return e.Seq > int64(at) && hasFailed(src, e.Seq, gaveWay)
		})
		if !slices.EqualFunc(kind(all, model.EventUpdateReceived), accepted, alike) {
			l.Fail("I11: %s does not have each update of the run that it takes the place of, or has one that failed", r.ID)
		}
	}

	var watchers, open []model.Event
	if gaveWay {
		watchers, open = kind(src.Events, model.EventWatched), unanswered(src.Events)
	}
	if !closes(b, r.ID) && !slices.EqualFunc(kind(all, model.EventWatched), watchers, same) {
		l.Fail("E40: %s does not have exactly the watchers that it must take over", r.ID)
	}
	named := func(e model.Event) bool { return updateKey(&e) == "" }
	open = slices.DeleteFunc(open, named)
	if has := slices.DeleteFunc(unanswered(all), named); !slices.EqualFunc(open, has, sameUpdate) {
		l.Fail("I16: %s has %d updates with a waiting sender, but would answer %d", r.ID, len(has), len(open))
	}

	for _, e := range all[at:] {
		answer := e.Kind == model.EventAnswered && slices.ContainsFunc(all[:at], func(o model.Event) bool { return o.Kind == model.EventSent && o.ID == e.ID })
		accepted := takesOver && (e.Kind == model.EventSignalReceived || e.Kind == model.EventPromiseSettled || e.Kind == model.EventUpdateReceived)
		if !answer && !accepted && !(gaveWay && e.Kind == model.EventWatched) {
			l.Fail("I22: event %d of %s is a %s, which does not come with a past", e.Seq, r.ID, e.Kind)
		}
	}
}

// hasFailed reports whether the caller of an update knows that it failed: it was answered with an
// error, or its run has ended without an answer.
func hasFailed(r *Run, update int64, isOpen bool) bool {
	i := slices.IndexFunc(r.Events, func(e model.Event) bool { return e.Kind == model.EventUpdateAnswered && e.Ref == update })
	if i < 0 {
		return !isOpen
	}
	return r.Events[i].Failure != nil
}

// checkBegun checks the answer that a user gets after starting a run with a past.
func (s *Oracle) checkBegun(o *Op, a *model.Answer, r *Run) {
	m := &o.Message
	s.checkReuse(o, a, r)
	switch {
	case r.Start.Source.Run != m.Past.Source.Run || r.Start.Source.Position != m.Past.Source.Position || r.Start.Previous != m.ToRun:
		s.Fail("I22: %s was answered with %s, which has another past", o, scenario.Short(r.ID))
	case a.Existing || o.Shadow != nil:
		return
	}
	if r.fresh++; r.fresh > 1 {
		s.Fail("I2: two were told that %s is theirs", scenario.Short(r.ID))
	}
}

// CheckDeleted checks that nothing is left of a deleted run.
func (s *Oracle) CheckDeleted(r *Run) {
	key := store.RunKey{Shard: r.Address.Shard, Run: r.ID}
	row, err := s.Store.LoadExecution(context.Background(), key.Shard, r.Address.Name, r.ID)
	if err != nil || row != nil {
		s.Fail("I21: %s was deleted and is in the store: %v", scenario.Short(r.ID), err)
	}
	events, err := s.Store.LoadEvents(context.Background(), key, 0, 1, 1<<30)
	if err != nil || len(events) > 0 {
		s.Fail("I21: %s was deleted and swept, and has events: %v", scenario.Short(r.ID), err)
	}
	labels, err := s.Store.LoadLabels(context.Background(), []store.RunKey{key})
	if err != nil || len(labels) > 0 {
		s.Fail("I21: %s was deleted and is found by its labels: %v", scenario.Short(r.ID), err)
	}
}

// inherit records what a run has from its past.
func (r *Run) inherit(e *model.Event) {
	switch e.Kind { //nolint:exhaustive // other kinds are recorded below or not needed
	case model.EventPromiseSettled:
		if r.settled == nil {
			r.settled = map[string]string{}
		}
		r.settled[e.Name] = string(e.Output.Data)
	case model.EventPinned:
		r.Pin = e.Name
	}

	bi, ai, ok := scenario.ParseAsk(e.ID)
	if !ok || e.Blank() {
		return
	}
	h := &r.Asks[bi][ai]

	switch e.Kind {
	case model.EventStepCompleted, model.EventStepFailed:
		h.outcome = true
	case model.EventAttemptFailed:
		h.Attempts = e.Attempt
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
	case model.EventStateSet, model.EventVersionMarked, model.EventNoted:
		h.noted = true
	default:
	}
}
