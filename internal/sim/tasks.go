package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Users submit tasks and workflows schedule them. Hands (hand.go) execute them. What must hold
// (E8–E11, E16–E27, E30–E32, E37, E43): every task ends once. One worker holds it at a time, and at
// most as many attempts start as allowed. Only the report of the holder counts, and it counts once.
// No worker gets a task before its claim is durable, or a task that it does not offer. Only a
// time-out takes a task from the worker that executes it. Exactly the tasks that failed permanently
// are dead tasks. In the end no slot is in use.

var (
	taskKinds  = [...]string{"ka", "kb"}
	taskQueues = [...]string{"qa", "qb"}
	taskKeys   = [...]string{"t0", "t1", "t2", "t3", "t4"}
)

// work describes how a task executes.
type work struct {
	fails     int // attempts that fail
	permanent bool
	returns   float64 // probability that a worker gives an attempt back
	took      int64
}

func (w work) payload() model.Payload {
	flags := byte(0)
	if w.permanent {
		flags |= 1
	}
	if w.returns > 0 {
		flags |= 2
	}
	return model.Payload{Data: []byte{'w', byte(w.fails), flags, byte(w.took >> 16), byte(w.took >> 8), byte(w.took)}}
}

func workOf(p model.Payload) work {
	d := p.Data
	w := work{fails: int(d[1]), permanent: d[2]&1 != 0, took: int64(d[3])<<16 | int64(d[4])<<8 | int64(d[5])}
	if d[2]&2 != 0 {
		w.returns = 0.4
	}
	return w
}

// errand is a task that a program or a user will schedule.
type errand struct {
	spec *model.TaskSpec
	work model.Payload
}

func (s *Sim) drawErrand() errand {
	w := work{returns: oneOf(s, 0.0, 0.0, 0.4), took: oneOf(s, 0, s.between(0, 3*millisecond), s.between(0, 40*millisecond))}
	if s.chance(0.4) {
		w.fails, w.permanent = 1+s.pick(3), s.chance(0.15)
	}
	ms := func(lo, hi int64) time.Duration { return microseconds(s.between(lo, hi) * millisecond) }

	spec := &model.TaskSpec{
		Kind: oneOf(s, taskKinds[:]...), Queue: oneOf(s, taskQueues[:]...), Priority: s.pick(3), Fair: oneOf(s, "", "x", "y"),
		Retry: model.Retry{MaxAttempts: oneOf(s, 0, 1, 2, 3, 6), Initial: ms(0, 30) + 1, Max: 60 * time.Millisecond, Jitter: oneOf[int64](s, 0, 500)},
	}

	if s.chance(0.2) {
		spec.ToStart = ms(5, 400)
	}
	if s.chance(0.3) {
		spec.Silence = ms(5, 100)
	}
	if s.chance(0.2) {
		spec.Total = ms(50, 1500)
	}
	if s.chance(0.2) {
		spec.Delay = ms(0, 50)
	}

	if s.chance(0.3) {
		spec.ToClose = ms(100, 300)
		if spec.Retry.MaxAttempts > 0 {
			spec.ToClose = ms(2, 100) // otherwise it might never end
		}
	}

	if s.lends && spec.Silence > 0 { // a heartbeat needs two messages
		spec.Silence += 50 * time.Millisecond
	}

	if s.gates {
		spec.Breaker = oneOf(s, "", breakerNames[0])
		if s.chance(0.3) {
			spec.Limits = []string{oneOf(s, "named/x", "named/y")}
		}
	}

	return errand{spec, w.payload()}
}

func (s *Sim) taskAddress(i int) model.Address {
	return model.Address{Tenant: tenant, Type: model.TaskPrefix + s.errands[i].spec.Kind, Key: taskKeys[i]}
}

// drawTask draws an operation on a task without a workflow.
func (u *user) drawTask() *op {
	s := u.s
	i := s.pick(len(taskKeys))
	to := s.taskAddress(i)
	a := s.ledger.addresses[to]
	why := &model.Failure{Message: "by a user"}
	if s.gates && !s.healed && s.chance(0.25) {
		return u.drawFlow()
	}

	if s.letters && s.chance(0.45) {
		if o := u.drawLetter(); o != nil {
			return o
		}
	}

	switch n := s.pick(16); {
	case n < 9 || a == nil || a.current == nil:
		o := u.op(s.submission(i))
		if s.young && s.chance(0.4) { // many at a time, as SendMany does
			for range 1 + s.pick(4) {
				u.soon(o, 0, s.submission(s.pick(len(taskKeys))))
			}
			s.did(opMany)
		}
		return o
	case n < 11:
		return u.op(model.Message{Kind: model.MessageCancel, To: to, Failure: why})
	case n < 13:
		return u.op(model.Message{To: to})
	case n < 14:
		o := u.op(model.Message{Kind: model.MessagePause, To: to, Failure: why})
		u.soon(o, s.between(0, 200*millisecond), model.Message{Kind: model.MessageResume, To: to})
		return o
	case n < 15:
		return u.op(model.Message{Kind: model.MessageTerminate, To: to, Failure: why})
	case !a.current.open():
		return u.op(*s.deletion(a.current))
	default:
		o := u.op(model.Message{To: to})
		o.read = true
		return o
	}
}

// submission returns the start of a task without a workflow.
func (s *Sim) submission(i int) model.Message {
	spec := *s.errands[i].spec
	return model.Message{
		Kind: model.MessageStart, To: s.taskAddress(i), Input: s.errands[i].work, Task: &spec,
		Reuse: oneOf(s, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways, model.ReuseAlways),
	}
}

// beat is the last heartbeat of a claim that a board has received.
type beat struct {
	node model.NodeID
	at   model.Time
}

// claimed is a claim that is, or was, in a history.
type claimed struct {
	worker   string
	maker    model.NodeID
	permits  []rule.Resource // the limits that it holds, if nodes share them
	begun    bool            // its worker has received it
	late     bool            // it has no time left, and another task has its permit
	reported bool            // a report has ended it
	unsure   bool            // a report may have ended it: its task was being canceled
}

// errandState is the state of a task according to its history.
type errandState struct {
	spec      *model.TaskSpec
	input     model.Payload
	scheduled model.Time
	visible   model.Time
	attempt   int
	failed    int // failed attempts and time-outs
	lost      int // successive workers that left
	held      bool
	claim     int64
	worker    string
	since     model.Time
	over      bool
	inherited bool // from a past
	node      model.NodeID
	tenure    int // of its shard, when it was claimed
}

func (t *errandState) hold(attempt int, claim int64, worker string, at model.Time) {
	t.attempt, t.held, t.claim, t.worker, t.since = attempt, true, claim, worker, at
}

func (t *errandState) letGo(visible model.Time) {
	t.held, t.claim, t.worker, t.visible = false, 0, "", visible
}

func compareClaims(a, b model.ClaimRef) int {
	return cmp.Or(a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Claim, b.Claim))
}

func (r *run) ref(id string, claim int64) model.ClaimRef {
	return model.ClaimRef{TaskRef: model.TaskRef{Address: r.address.name, Run: r.id, ID: id}, Claim: claim}
}

func (r *run) task(id string) *errandState { return r.tasks[id] }

func (r *run) schedule(id string, spec *model.TaskSpec, in model.Payload, at model.Time) *errandState {
	if r.tasks == nil {
		r.tasks = map[string]*errandState{}
	}
	t := &errandState{spec: spec, input: in, scheduled: at, visible: at.Add(spec.Delay)}
	r.tasks[id] = t
	return t
}

// startTask records a task without a workflow.
func (l *ledger) startTask(b *store.Batch, r *run) {
	t := r.schedule(model.TaskStep, r.start.Task, r.start.Input, r.start.At)
	l.made++
	l.s.did(opSubmitted)
	if w := r.start.Worker; w != "" {
		l.s.did(opReserved)
		l.claim(b, r, model.TaskStep, t, 1, 0, w, r.start.At)
	}
}

// claim checks that a worker may start an attempt (E16, E19, E20).
//
//arch:parameters the fields of a claim event, which workflows and lone tasks store differently
func (l *ledger) claim(b *store.Batch, r *run, id string, t *errandState, attempt int, claim int64, worker string, at model.Time) {
	name, _, node := splitWorker(worker)
	h, limit := l.s.hands[name], t.spec.Retry.MaxAttempts
	switch {
	case t.over || t.held || r.paused:
		l.fail("E16: %s of %s is claimed: over %v, held by %s, paused %v", id, r.id, t.over, t.worker, r.paused)
	case attempt != t.attempt+1 || limit > 0 && attempt > limit:
		l.fail("E19: attempt %d of %s of %s after attempt %d of at most %d", attempt, id, r.id, t.attempt, limit)
	case at < t.visible:
		l.fail("E20: %s of %s is claimed before its time", id, r.id)
	case h == nil || node != b.Lane.Node.String():
		l.fail("E20: %s of %s is claimed by %s, who is not a worker of %s", id, r.id, worker, l.name(b.Lane.Node))
	case !slices.Contains(h.offer.Kinds, t.spec.Kind) || !slices.Contains(h.offer.Queues, t.spec.Queue):
		l.fail("E20: %s of %s (%s, %s) is claimed by %s, who does not offer that", id, r.id, t.spec.Kind, t.spec.Queue, worker)
	}

	t.hold(attempt, claim, worker, at)
	l.s.claims[r.ref(id, claim)] = &claimed{worker: worker, maker: b.Lane.Node}
	l.begins(b, r, id, t)
	l.s.did(opClaimed)
}

// taskFact checks and records an event of a task. It returns false if the event does not concern a
// task.
func (l *ledger) taskFact(b *store.Batch, r *run, e *model.Event) bool {
	t := r.task(e.ID)
	if e.Kind == model.EventTaskScheduled {
		if t != nil {
			l.fail("E8: %s of %s is scheduled twice", e.ID, r.id)
		}
		t = r.schedule(e.ID, e.Task, e.Input, e.At)
		l.made++
		l.s.did(opScheduled)
		if e.Worker != "" {
			l.s.did(opReserved)
			l.claim(b, r, e.ID, t, 1, e.Seq, e.Worker, e.At)
		}
		return true
	}

	if t == nil {
		return false
	}
	if t.over && e.Kind != model.EventWithdrawn { // the program may not have known
		l.fail("E9: %s of %s: a %s after its end", e.ID, r.id, e.Kind)
	}

	switch e.Kind {
	case model.EventTaskClaimed:
		l.claim(b, r, e.ID, t, e.Attempt, e.Seq, e.Worker, e.At)
	case model.EventTaskReturned:
		if ref := r.ref(e.ID, t.claim); l.s.dropped[ref] && len(l.s.reports[ref]) == 0 {
			l.checkLost(b, r, e.ID, t)
			l.s.did(opDropped)
		} else {
			l.reportedBy(r, e.ID, t, func(o *model.TaskReport) bool { return o.Returned })
		}
		t.attempt--
		t.letGo(e.Due)
		l.s.did(opReturned)
	case model.EventStepCompleted:
		l.sameClaim(r, e, t)
		l.reportedBy(r, e.ID, t, func(o *model.TaskReport) bool { return !o.Returned && o.Failure == nil && o.Output.Equal(e.Output) })
		l.ends(t, endCompleted)
		l.s.did(opTaskCompleted)
	case model.EventWithdrawn:
		l.ends(t, endCalledOff)
		l.s.did(opTaskWithdrawn)
	case model.EventAttemptFailed, model.EventStepFailed, model.EventTaskTimedOut:
		l.sameClaim(r, e, t)
		l.taskFailed(b, r, e.ID, t, e.Failure, e.At)
		final := e.Kind == model.EventStepFailed || e.TimedOutForGood()
		if limit := t.spec.Retry.MaxAttempts; !final && (limit > 0 && t.attempt >= limit || e.Failure.Permanent) {
			l.fail("E24: attempt %d of %s of %s is to be repeated", t.attempt, e.ID, r.id)
		}
		if final {
			l.ends(t, endDead)
			l.dies(r, e.ID)
		} else {
			t.letGo(e.Due)
		}
	default:
		l.fail("E9: %s of %s: a %s of a task", e.ID, r.id, e.Kind)
	}

	return true
}

func (l *ledger) sameClaim(r *run, e *model.Event, t *errandState) {
	if e.Ref != t.claim || e.Worker != t.worker || e.Attempt != t.attempt {
		l.fail("E17: %s of %s: a %s of claim %d, which is %d", e.ID, r.id, e.Kind, e.Ref, t.claim)
	}
}

// reportedBy checks that the holder of the claim has sent the report (E17).
func (l *ledger) reportedBy(r *run, id string, t *errandState, said func(*model.TaskReport) bool) {
	if !t.held {
		l.fail("E17: %s of %s ends by a report, and nobody has it", id, r.id)
	}
	ref := r.ref(id, t.claim)
	if !slices.ContainsFunc(l.s.reports[ref], said) {
		l.fail("E17: %s of %s ends by a report that claim %d has not made", id, r.id, t.claim)
	}
	l.s.claims[ref].reported = true
}

// taskFailed checks why an attempt, or a task, has failed (E26, E30–E32).
//
//arch:parameters the fields of a failure, which workflows and lone tasks store differently
func (l *ledger) taskFailed(b *store.Batch, r *run, id string, t *errandState, f *model.Failure, at model.Time) {
	t.failed++
	after := func(from model.Time, d time.Duration) bool { return d > 0 && at > from.Add(d) }
	ok, lost := true, false

	switch f.Type {
	case model.TimeoutToStart:
		ok = !t.held && after(t.visible, t.spec.ToStart)
		l.s.did(opToStart)
	case model.TimeoutToClose:
		ok = t.held && after(t.since, t.spec.ToClose)
		l.s.did(opToClose)
	case model.TimeoutTotal:
		ok = after(t.scheduled, t.spec.Total)
		l.s.did(opTotal)
	case model.TimeoutSilence:
		ok = t.held && after(t.since, t.spec.Silence)
		if last, heard := l.s.beats[r.ref(id, t.claim)]; heard && last.node == b.Lane.Node && !after(last.at, t.spec.Silence) {
			l.fail("E32: claim %d of %s of %s was silent, and beat at %s of %s", t.claim, id, r.id, last.at, at)
		}
		l.s.did(opSilence)
	case model.FailureLost, model.FailurePoison:
		lost = true
		l.s.did(opLost)
		l.checkLost(b, r, id, t)
		if t.lost+1 >= 3 != (f.Type == model.FailurePoison) {
			l.fail("E27: %d workers in a row went away with %s of %s: %s", t.lost+1, id, r.id, f.Type)
		}
		if f.Type == model.FailurePoison {
			l.s.did(opPoison)
		}
	case model.FailureSpent:
		ok = false // nothing else in the simulation uses up attempts
	default:
		l.reportedBy(r, id, t, func(o *model.TaskReport) bool { return o.Failure != nil && o.Failure.Message == f.Message })
		l.s.did(opTaskFailed)
	}

	if !ok {
		l.fail("E30: %s of %s fails with %s at %s: scheduled %s, visible %s, claimed %s", id, r.id, f.Type, at, t.scheduled, t.visible, t.since)
	}

	if lost {
		t.lost++
	} else {
		t.lost = 0
	}
}

// checkLost checks that a claim that counts as lost, or as dropped, is not executing on a live
// worker (E26).
func (l *ledger) checkLost(b *store.Batch, r *run, id string, t *errandState) {
	if !t.held {
		l.fail("E26: %s of %s is lost, and nobody had it", id, r.id)
	}
	name, node, _ := splitWorker(t.worker)
	h, ref := l.s.hands[name], r.ref(id, t.claim)
	if h.gone || h.ghost || h.p.dead || !h.has(ref) {
		return
	}

	for n, m := range l.nodes {
		if n.String() == node && m.alive {
			l.fail("E26: claim %d of %s of %s is lost, and %s executes it", t.claim, id, r.id, t.worker)
		}
	}

	if h.p.inc != nil && h.p.inc.self.ID == b.Lane.Node {
		l.fail("E26: claim %d of %s of %s is lost, and %s of the same process executes it", t.claim, id, r.id, t.worker)
	}
}

// dies records that a task has failed permanently: the batch must make it a dead task.
func (l *ledger) dies(r *run, id string) {
	l.dying = append(l.dying, store.DeadKey{RunKey: store.RunKey{Shard: r.address.shard, Run: r.id}, Task: id})
}

// endTasks ends the tasks of a run: the task of a standalone run ends with the run, and a workflow
// run ends its open tasks.
func (l *ledger) endTasks(b *store.Batch, r *run) {
	for _, t := range r.tasks {
		if r.start.Task == nil {
			l.ends(t, endCalledOff)
		}
	}

	if r.start.Task == nil {
		return
	}
	t, o, how := r.tasks[model.TaskStep], &r.outcome, endCalledOff
	if t.over {
		l.fail("E9: the task of %s ends twice", r.id)
	}

	switch o.Status {
	case model.Completed:
		l.reportedBy(r, model.TaskStep, t, func(p *model.TaskReport) bool { return !p.Returned && p.Failure == nil && p.Output.Equal(o.Output) })
		how = endCompleted
		l.s.did(opTaskCompleted)
	case model.Failed:
		l.taskFailed(b, r, model.TaskStep, t, o.Failure, o.At)
		how = endDead
		l.dies(r, model.TaskStep)
	case model.Canceled:
		if t.held && !r.cancel {
			l.fail("E25: %s is canceled and nobody has asked for it", r.id)
		}
		if t.held {
			for _, p := range l.s.reports[r.ref(model.TaskStep, t.claim)] {
				if p.Failure != nil || p.Returned {
					l.s.claims[r.ref(model.TaskStep, t.claim)].unsure = true
				}
			}
		}
		r.cancel = true
		l.undoes(r)
		l.s.did(opTaskCanceled)
	case model.Terminated:
	default:
		l.fail("the task of %s ends as %s", r.id, o.Status)
	}

	l.ends(t, how)
}

// deadLetters checks that exactly the tasks that fail permanently in a batch become dead tasks in
// it (E37).
func (l *ledger) deadLetters(b *store.Batch) {
	if len(b.Dead) != len(l.dying) {
		l.fail("E37: %d tasks fail for good, and there are %d dead letters", len(l.dying), len(b.Dead))
	}

	for i := range b.Dead {
		row := &b.Dead[i]
		r := l.runs[row.Run]
		if !slices.Contains(l.dying, row.DeadKey) {
			l.fail("E37: a dead letter of %s of %s, which has not failed for good", row.Task, row.Run)
		}
		t := r.task(row.Task)
		if row.Body.Attempts != t.attempt || len(row.Body.Failed)+row.Body.LeftOut != t.failed {
			l.fail("E37: the dead letter of %s of %s has %d attempts and %d failures, its history %d and %d", row.Task, row.Run, row.Body.Attempts, len(row.Body.Failed), t.attempt, t.failed)
		}
		l.s.did(opDead)
	}

	l.dying = l.dying[:0]
	l.letterRows(b)
}

// inheritTask records the tasks that a run has from its past.
func (r *run) inheritTask(e *model.Event) {
	if e.Blank() {
		return
	}
	if e.Kind == model.EventTaskScheduled {
		r.schedule(e.ID, e.Task, e.Input, e.At).inherited = true
		return
	}
	if t := r.task(e.ID); t != nil {
		t.over = true // a past leaves out tasks without an outcome
	}
}

// checkTaskCall checks a call to a task worker: no worker receives a claim that is not durable.
func (sh *shell) checkTaskCall(c *lane.TaskCall, gone bool) {
	s := sh.s
	s.mix(9, uint64(c.Kind), uint64(c.Worker), uint64(c.Ref.Claim))
	known, r := s.claims[c.Ref], s.ledger.runs[c.Ref.Run]

	switch c.Kind {
	case lane.TaskExecute:
		if known == nil {
			s.fail("L2: a worker gets claim %d of %s, which is not in the store", c.Ref.Claim, c.Ref.TaskRef)
		}
		t := r.task(c.Ref.ID)
		if name, _, _ := splitWorker(known.worker); !gone && !sh.inc.board.named(c.Worker, name) || !t.input.Equal(c.Claim.Input) {
			s.fail("E16: claim %d of %s is that of %s, and another one gets it", c.Ref.Claim, c.Ref.TaskRef, known.worker)
		}
		if t.held && t.claim == c.Ref.Claim && t.attempt != c.Claim.Attempt {
			s.fail("E19: claim %d of %s is attempt %d, and handed over as %d", c.Ref.Claim, c.Ref.TaskRef, t.attempt, c.Claim.Attempt)
		}
	case lane.TaskStop:
		// a guest receives it only if its owner still serves
		if g := sh.inc.board.guests[c.Worker]; g == nil && !c.Canceled && s.current(c.Ref) {
			s.fail("E26: claim %d of %s is to be stopped, and it is the current one", c.Ref.Claim, c.Ref.TaskRef)
		}
		if c.Canceled && (r == nil || !r.cancel) {
			s.fail("L2: a worker hears that %s is canceled, which is not in the store", c.Ref.TaskRef)
		}
	case lane.TaskSettled:
	}
}

// current reports whether a claim is the current one in its history.
func (s *Sim) current(ref model.ClaimRef) bool {
	r := s.ledger.runs[ref.Run]
	if r == nil || !r.open() {
		return false
	}
	t := r.task(ref.ID)
	return t != nil && !t.over && t.held && t.claim == ref.Claim
}

// checkSettled checks the answer that a worker gets to its report (E17, E18).
func (s *Sim) checkSettled(ref model.ClaimRef, err error) {
	switch known := s.claims[ref]; {
	case known == nil:
		s.fail("L2: a worker hears of claim %d of %s, which is not in the store", ref.Claim, ref.TaskRef)
	case err == nil && !known.reported && !known.unsure:
		s.fail("E17: the report of claim %d of %s counts, and is not in the history", ref.Claim, ref.TaskRef)
	case err != nil && known.reported && s.ledger.runs[ref.Run].deleted == 0:
		// otherwise the history is gone
		s.fail("E18: the report of claim %d of %s is in the history, and its worker hears that it does not count: %v", ref.Claim, ref.TaskRef, err)
	case err != nil && s.current(ref):
		s.fail("E17: the report of claim %d of %s does not count, and it is the current one: %v", ref.Claim, ref.TaskRef, err)
	case err != nil && !fault.Is(err, fault.NotOwned) && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict):
		s.fail("the report of claim %d of %s: %v", ref.Claim, ref.TaskRef, err)
	case err != nil:
		s.did(opReportLate)
	}
}

// away returns a worker whose slots are lent or taken by claims of other owners, or an empty string
// if there is none.
func (s *Sim) away() string {
	for _, p := range s.procs {
		if p == nil {
			continue
		}
		for _, h := range p.hands {
			if n := h.abroad.Slots(); n != 0 {
				return fmt.Sprintf("%d slots of %s", n, h.offer.Name)
			}
		}
	}
	return ""
}

// checkBoards checks that the boards are empty when every task has ended.
func (s *Sim) checkBoards() {
	if what := s.away(); what != "" {
		s.fail("E43: everything has ended, and %s are lent, or taken by other owners", what)
	}
	for _, p := range s.procs {
		// it has not noticed that it was fenced
		if p.inc.board == nil || !s.ledger.nodes[p.inc.self.ID].alive {
			continue
		}
		if what := p.inc.board.left(); what != "" {
			s.fail("E43: everything has ended, and the board of %s has %s", p.inc.name(), what)
		}
	}
}
