package sim

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Users requeue dead tasks (the code calls them letters), with the same input or another one,
// requeue them again, undo that, and purge them. What must hold (E38): one order at a time changes
// a dead task, and the changes are counted. Every requeue that counts starts one run, with the
// options and the input of the dead task or of the order. A requeue that is undone never starts,
// and the dead task is as before. A purged one is gone and stays gone. Only an order or its
// retention purges a dead task. Together with E37: every task has completed, was called off, is a
// dead task, or was one and was purged.

// letter is a dead task as the store has it.
type letter struct {
	key    store.DeadKey
	ref    model.TaskRef
	body   model.DeadTask
	count  int64
	purged bool
	asked  bool            // a user has asked to purge it
	edits  []model.Payload // inputs with which users have asked to requeue it
}

// requeued is a run that a requeue has started or will start.
type requeued struct {
	letter *letter
	run    model.RunID
	to     model.Address
	told   int // how many users got the answer that the requeue is theirs
	undone bool
}

// undoneText is the reason in the outcome of a run whose requeue was undone.
const undoneText = "the requeue was undone"

// drawLetter draws an order for a dead task, or returns nil if there is none.
func (u *user) drawLetter() *op {
	s := u.s
	var there []*letter
	for _, x := range s.ledger.letterOrder {
		if !x.purged || s.chance(0.05) { // the user may not know that it was purged
			there = append(there, x)
		}
	}

	if len(there) == 0 {
		return nil
	}
	x := there[s.pick(len(there))]
	waits := s.ledger.runs[x.body.Requeued.Run]
	o := model.DeadTaskOrder{Do: model.DeadTaskRequeue, Ref: x.ref}
	to := x.ref.Address

	switch n := s.pick(10); {
	case n < 3 && x.count > 0, n < 8 && waits != nil && waits.open() && waits.tasks[model.TaskStep].attempt == 0:
		// perhaps no worker has started it
		o.Do, o.Count, o.Run, to = model.DeadTaskUndo, x.count, x.body.Requeued.Run, x.body.Requeued.Address
	case n < 4 && s.settledLetter(x):
		o.Do, o.Count, o.Run = model.DeadTaskPurge, x.count, x.body.Requeued.Run
		x.asked = true
	default:
		if s.settledLetter(x) && s.chance(0.6) {
			o.Count, o.Run = x.count, x.body.Requeued.Run // again
		}
		if s.chance(0.35) {
			w := work{took: s.between(0, 5*millisecond), fails: oneOf(s, 0, 0, 3)}.payload()
			o.Input = &w
			x.edits = append(x.edits, w)
		}
	}

	first := u.op(model.Message{Kind: model.MessageRequeue, To: to, DeadTask: &o})
	// undo it as soon as the requeue is known, or ask twice
	if o.Do == model.DeadTaskRequeue && s.chance(0.3) {
		if s.chance(0.5) {
			again := o
			u.soon(first, s.between(0, 2*millisecond), model.Message{Kind: model.MessageRequeue, To: to, DeadTask: &again})
		} else {
			s.after(s.between(2, 20)*millisecond, nil, func() { u.undoSoon(x) })
		}
	}

	return first
}

// undoSoon undoes a requeue, perhaps before a worker has started the task.
func (u *user) undoSoon(x *letter) {
	if x.purged || x.count == 0 {
		return
	}
	q := x.body.Requeued
	o := &model.DeadTaskOrder{Do: model.DeadTaskUndo, Ref: x.ref, Count: x.count, Run: q.Run}
	u.op(model.Message{Kind: model.MessageRequeue, To: q.Address, DeadTask: o}).perform(func() {})
}

// settledLetter reports whether the requeued task has ended. Users check this before they ask.
func (s *Sim) settledLetter(x *letter) bool {
	r := s.ledger.runs[x.body.Requeued.Run]
	return x.body.Requeued.IsZero() || r != nil && !r.open()
}

// letterRows applies the dead tasks of a batch.
func (l *ledger) letterRows(b *store.Batch) {
	for i := range b.Dead {
		row := &b.Dead[i]
		x := &letter{key: row.DeadKey, ref: model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}, body: row.Body}
		if l.letters[x.key] != nil {
			l.fail("E37: task %s of %s dies twice", row.Task, row.Run)
		}
		l.letters[x.key] = x
		l.letterOrder = append(l.letterOrder, x)
	}

	for i := range b.DeadMarks {
		m := &b.DeadMarks[i]
		l.owns(b, m.Shard)
		x := l.letters[m.DeadKey]
		if x == nil || x.purged || x.count != m.Prev {
			l.fail("E38: the dead letter of %s of %s is marked from %d to %d, and is not there so", m.Task, m.Run, m.Prev, m.Next)
		}
		before := x.body.Requeued
		x.count, x.body = m.Next, m.Body

		switch m.Next {
		case m.Prev + 1:
			if r := l.runs[before.Run]; !before.IsZero() && (r == nil || r.open()) {
				l.fail("E38: the dead letter of %s is requeued again, and run %s, which it was requeued as, has not ended", x.ref, short(before.Run))
			}
			l.requeue(b, x, m.Body.Requeued)
		case m.Prev - 1:
			q := l.requeues[before.Run]
			if r := l.runs[before.Run]; q == nil || q.letter != x || r == nil || !undone(r) || q.undone {
				l.fail("E38: the dead letter of %s is as it was, and run %s, which it was requeued as, was not taken back", x.ref, short(before.Run))
			}
			q.undone = true
			l.s.did(opLetterUndone)
		default:
			l.fail("E38: the dead letter of %s was requeued %d times, and then %d", x.ref, m.Prev, m.Next)
		}
	}

	for _, key := range b.DeadDeletes {
		l.owns(b, key.Shard)
		l.purge(l.letters[key])
	}
}

// undone reports whether a run has ended because its requeue was undone.
func undone(r *run) bool {
	return r.outcome.Status == model.Canceled && r.outcome.Failure != nil && r.outcome.Failure.Message == undoneText
}

// requeue checks that the batch starts the run of a requeue, or sends the message that starts it.
func (l *ledger) requeue(b *store.Batch, x *letter, q model.Requeue) {
	if l.requeues[q.Run] != nil {
		l.fail("E38: run %s is begun by two requeues", short(q.Run))
	}
	l.requeues[q.Run] = &requeued{letter: x, run: q.Run, to: q.Address}
	l.requeueOrder = append(l.requeueOrder, l.requeues[q.Run])
	var spec *model.TaskSpec
	var in model.Payload

	if x.ref.Alone() {
		if r := l.runs[q.Run]; r != nil && starts(b, q.Run) {
			spec, in = r.start.Task, r.start.Input
		}
	} else if i := slices.IndexFunc(b.Messages, func(m store.MessageRow) bool {
		return m.Message.Kind == model.MessageStart && m.Message.Fresh == q.Run && m.Message.To == q.Address
	}); i >= 0 {
		spec, in = b.Messages[i].Message.Task, b.Messages[i].Message.Input
		l.s.did(opRequeuedStep)
	}

	if spec == nil {
		l.fail("E38: the dead letter of %s is requeued as %s, which does not begin", x.ref, short(q.Run))
	}
	edited := slices.ContainsFunc(x.edits, in.Equal)
	if had := &x.body.Spec; !in.Equal(x.body.Input) && !edited || spec.Kind != had.Kind || spec.Queue != had.Queue || spec.Retry.MaxAttempts != had.Retry.MaxAttempts || spec.Delay != 0 || spec.Breaker != had.Breaker {
		l.fail("E38: the dead letter of %s is requeued as another task: %+v with %x", x.ref, *spec, in.Data)
	}
	l.s.did(opRequeued)
	if edited {
		l.s.did(opRequeuedEdited)
	}
	if x.count > 1 {
		l.s.did(opRequeuedAgain)
	}
}

// purge checks that a dead task may be removed.
func (l *ledger) purge(x *letter) {
	if x == nil || x.purged {
		l.fail("E38: a dead letter is purged that is not there")
	}
	if r := l.runs[x.body.Requeued.Run]; !x.body.Requeued.IsZero() && (r == nil || r.open()) {
		l.fail("E38: the dead letter of %s is purged, and run %s, which it was requeued as, has not ended", x.ref, short(x.body.Requeued.Run))
	}
	x.purged = true
	if x.asked {
		l.s.did(opPurged)
		return
	}
	l.s.did(opDeadExpired)
	if due := x.body.At.Add(l.s.plan.keepDead); l.s.plan.keepDead == 0 || due > l.s.fairTime() {
		l.fail("R1: the dead letter of %s is purged, nobody has asked for it, and it was to stay until %s", x.ref, due)
	}
}

// undoes checks that no worker had started a run that ends because its requeue was undone.
func (l *ledger) undoes(r *run) {
	if !undone(r) {
		return
	}
	for ref := range l.s.claims {
		if ref.Run == r.id {
			l.fail("E38: the requeue as %s is taken back, and claim %d has begun it", short(r.id), ref.Claim)
		}
	}
}

// requeuedFrom returns the dead task that a batch requeues as a run, or nil.
func (l *ledger) requeuedFrom(b *store.Batch, id model.RunID) *letter {
	for i := range b.DeadMarks {
		if m := &b.DeadMarks[i]; m.Next > m.Prev && m.Body.Requeued.Run == id {
			return l.letters[m.DeadKey]
		}
	}
	return nil
}

// checkLetterAnswer checks the answer that a user gets to an order for a dead task.
func (s *Sim) checkLetterAnswer(o *op, a *model.Answer) {
	order := o.message.DeadTask
	x := s.ledger.letters[store.DeadKey{RunKey: store.RunKey{Shard: order.Ref.Address.Shard(s.plan.shards), Run: order.Ref.Run}, Task: order.Ref.ID}]
	switch order.Do {
	case model.DeadTaskRequeue:
		q := s.ledger.requeues[a.Run]
		if q == nil || q.letter != x {
			s.fail("E38: %s was accepted as %s, which is not in the store", o, short(a.Run))
		}
		if a.Existing {
			s.did(opRequeuedBefore)
		} else if o.shadow == nil {
			if q.told++; q.told > 1 {
				s.fail("E38: two were told that %s is their requeue", short(a.Run))
			}
		}
	case model.DeadTaskUndo:
		if r := s.ledger.runs[order.Run]; r == nil || !undone(r) {
			s.fail("E38: %s was accepted, and %s is not taken back", o, short(order.Run))
		}
	case model.DeadTaskPurge:
		if !x.purged {
			s.fail("E38: %s was accepted, and the letter is there", o)
		}
	default:
	}
}

// checkLetters compares dead tasks with the store, and checks the outcome of requeues and of all
// tasks.
func (s *Sim) checkLetters() {
	l := s.ledger
	left := int64(0)
	for _, x := range l.letterOrder {
		row, err := s.disk.mem.LoadDead(background, x.key)
		if err != nil || (row == nil) != x.purged || row != nil && (row.Requeued != x.count || row.Body.Requeued != x.body.Requeued) {
			s.fail("E37: the dead letter of %s is not in the store as it was written: purged %v, %v", x.ref, x.purged, err)
		}
		if !x.purged {
			left++
		}
	}

	if n, err := s.disk.mem.CountDead(background, store.DeadQuery{Tenant: tenant}); err != nil || n != left {
		s.fail("E37: %d dead letters are in the store, %d by the ledger: %v", n, left, err)
	}

	for _, q := range l.requeueOrder {
		r := l.runs[q.run]
		if r == nil {
			s.fail("E38: the dead letter of %s was requeued as %s, which never began", q.letter.ref, short(q.run))
		}
		// otherwise it was requeued again before it received the undo
		if undone(r) != q.undone && !q.letter.purged && q.letter.body.Requeued.Run == q.run {
			s.fail("E38: the requeue as %s was taken back, and its letter is not as it was", short(q.run))
		}
	}

	s.checkSum()
}

// checkSum checks that every task has ended once, and that every failed task is or was a dead task.
func (s *Sim) checkSum() {
	l := s.ledger
	if sum := l.tally[endCompleted] + l.tally[endCalledOff] + l.tally[endDead]; sum != l.made || l.tally[endDead] != len(l.letterOrder) {
		s.fail("E37: %d tasks, of which %d have completed, %d were called off and %d died, with %d dead letters", l.made, l.tally[endCompleted], l.tally[endCalledOff], l.tally[endDead], len(l.letterOrder))
	}
}

// ending says how a task has ended.
type ending uint8

const (
	endCompleted ending = iota
	endCalledOff        // withdrawn, canceled, terminated, or closed with its run
	endDead
	endings
)

// ends records the end of a task.
func (l *ledger) ends(t *errandState, how ending) {
	if !t.over && !t.inherited {
		l.tally[how]++
	}
	t.over = true
}
