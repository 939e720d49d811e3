package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

type inputKind uint8

const (
	inMessage inputKind = iota + 1
	inTurn
	inTimer
	inRelease
	inQuarantine // stores why an address is quarantined
	inClaim      // a worker is to have a task
	inReport     // how a claim ended
	inExpire     // a deadline of a task has passed
	inProgress   // how far a task is
	inAttach     // a worker has a claim
	inExpired    // removes closed runs whose time is over
	inOperated   // what a worker has made of calls of an entity
	inAside      // moves items of the mailbox of an entity out of the way that cannot be read
	inNote       // stores that calls of an entity are about to be made which the process before may have died of
	inSettle     // answers calls of an entity that are lost, and gives its lock to whose turn it is
	inAnswered   // stores what the code answered to a query of another process, or tells a step what a request was answered that it repeats
)

// input is something to be applied to one address. It is kept until its commit.
type input struct {
	kind    inputKind
	address model.Address
	held    int  // bytes that count for it in Lane.bytes
	kept    bool // no: in Lane.kept
	since   model.Time

	message *model.Message      // of inMessage
	pair    *pair               // where the message came from, when another shard sent it
	seq     int64               // its position there
	inbox   model.RunID         // its inbox row, when another process asked
	checked bool                // the request id has been looked up
	looked  int                 // how many requests to the address had been served by then
	fresh   bool                // the request id has never been used before
	seen    bool                // the store has said that the answer to the request is remembered
	misused bool                // the request id belongs to another request, and is refused
	token   any                 // who is to be answered
	barred  bool                // it removes by force, and the store has refused that
	told    bool                // it is an order for something that is quarantined, and is refused
	mailbox []model.MailboxItem // what waits for the entity that it removes
	print   []byte              // of the row of that entity
	read    int                 // the version of the entry when that was read, and one
	awaits  bool                // and wants to hear the end of the run that it starts instead of its beginning, or what the code answers

	turn   *model.Turn // of inTurn and inRelease
	worker WorkerID

	timer string // of inTimer
	run   model.RunID

	answer *model.Answer // of inAnswered
	job    *job          // of inOperated
	drops  *core.Item    // that the message drops, see manage.go

	task   *taskInput    // of inClaim, inReport and inExpire
	runs   []model.RunID // of inExpired
	letter *letterRead   // what the store says of the dead letter that the message is about; nil before it has been read
	fate   *core.Fate    // what the store says of the claim of a report; nil when it has not been asked
}

// ErrNotOwner tells that the lane does not serve the shard of an address: ask whoever does.
var ErrNotOwner = fault.New(fault.Unavailable, "this node does not own the shard")

// Deliver hands in a message from a client. The answer comes with the token. fresh tells that its request id has never been used before,
// so that nothing needs to be looked up. ErrNotOwner means that it has taken no effect, or that repeating it with the same request id
// will show which.
func (l *Lane) Deliver(now model.Time, m *model.Message, fresh bool, token any) {
	l.deliverFrom(now, &input{kind: inMessage, address: m.To, message: m, fresh: fresh, token: token})
}

// Run hands in a start of a client that waits for the end of the execution: when the start begins one, the answer is its Result;
// otherwise it is that of the start. Forget takes the wait back.
func (l *Lane) Run(now model.Time, m *model.Message, fresh bool, token any) {
	l.deliverFrom(now, &input{kind: inMessage, address: m.To, message: m, fresh: fresh, token: token, awaits: true})
}

func (l *Lane) deliverFrom(now model.Time, in *input) {
	m, token := in.message, in.token
	e := l.entry(m.To)
	switch {
	case l.dead != nil:
		l.answer(Answer{Token: token, Err: ErrNotOwner})
		return
	case e == nil || e.shard.draining && !(in.writes() && l.waitsFor(e.shard.id)):
		l.answer(Answer{Token: token, Err: ErrNotOwner})
		return
	}
	if err := l.crowded(now, e, in); err != nil {
		l.answer(Answer{Token: token, Err: err})
		return
	}
	w := waiter{token: token, early: true}
	if m.Kind == model.MessageUpdate || m.Kind == model.MessageCall && !m.OneWay && !m.Brief {
		in.awaits, w.reply, w.drawn = true, m.RequestID, drawn(m)
	}
	if in.awaits {
		l.waiters[m.To] = append(l.waiters[m.To], w)
	}
	l.take(now, e, in)
}

// Turn hands in what a worker reports.
func (l *Lane) Turn(now model.Time, w WorkerID, t *model.Turn) {
	e := l.held(w, t.Run, t.Generation)
	if e == nil {
		return
	}
	l.take(now, e, &input{kind: inTurn, address: e.address, turn: t, worker: w, run: t.Run})
}

// Release hands in the wish of a worker to let go of a parked run.
func (l *Lane) Release(now model.Time, w WorkerID, run model.RunID, gen uint64, seen int64, waits []model.Reason) {
	e := l.held(w, run, gen)
	if e == nil {
		return
	}
	l.take(now, e, &input{
		kind: inRelease, address: e.address, worker: w, run: run,
		turn: &model.Turn{Run: run, Generation: gen, Seen: seen, Waits: waits},
	})
}

// held finds the run that the worker holds in that generation; otherwise it tells the worker that it holds it no more.
func (l *Lane) held(w WorkerID, run model.RunID, gen uint64) *entry {
	if l.dead == nil {
		if e := l.runs[run]; e != nil && e.worker == w && e.gen == gen {
			return e
		}
	}
	l.evictStale(w, run, gen)
	return nil
}

// evictStale tells a worker that it holds a run no more, of which it still reports. A batch that is to tell it the same need not any more.
func (l *Lane) evictStale(w WorkerID, run model.RunID, gen uint64) {
	for _, b := range [...]*building{l.flight, l.open} {
		if b == nil {
			continue
		}
		for i := range b.effects {
			if f := &b.effects[i]; f.kind == effEvict && f.call.Worker == w && f.call.Run == run && f.call.Generation == gen {
				f.heard = true
			}
		}
	}
	l.out.Calls = append(l.out.Calls, Call{Kind: CallEvict, Worker: w, Run: run, Generation: gen, Reason: "stale: the run is not held any more"})
}

// take applies an input, or lets it wait until it can be applied.
func (l *Lane) take(now model.Time, e *entry, in *input) {
	in.since = now
	l.hold(in)
	if len(e.backlog) > 0 || !l.ready(now, e, in) {
		e.backlog = append(e.backlog, in)
		l.schedule(e)
		return
	}
	l.apply(now, e, in)
}

// schedule has the backlog of an entry served when nothing is in its way.
func (l *Lane) schedule(e *entry) {
	if !e.loading && !e.starting && !e.removing {
		l.backlog.push(e)
	}
}

// ready tells whether an input can be applied now; if it first needs something to be read, it sees to that.
func (l *Lane) ready(now model.Time, e *entry, in *input) bool {
	switch {
	case e.loading || e.starting || e.removing || l.recovery.careful():
		return false
	case e.served >= l.cfg.PerKey || l.batchFull():
		return false
	case l.staysApart(in):
		return false
	case in.early(e):
		return false
	}
	if in.kind == inExpired {
		return !e.dirty() // a start that is on its way may replace a run that is to go, and must find it
	}
	if e.poison != nil && !in.forced() && !in.orders() {
		return true // refused without a look at the run
	}
	if in.kind == inMessage && in.message.Kind == model.MessageDelete && e.dirty() {
		return false // a batch deletes before it writes: what it is to delete must be there
	}
	if in.aboutLetter() && e.dirty() {
		return false // what is on its way to the store may be about the same letter
	}
	if in.once() && !e.sure(in) {
		if _, pending := l.requests[store.RequestKey{Shard: e.shard.id, Address: e.address, ID: in.message.RequestID}]; pending {
			return false // the same request is on its way to the store
		}
		l.loads.add(&Load{
			Kind: LoadReply, Shard: e.shard.id, Address: e.address, RequestID: in.message.RequestID, entry: e, input: in, looked: e.remembered,
		})
		e.loading, in.checked = true, false
		return false
	}
	switch {
	case in.forced() && e.isEntity() && !in.mailboxRead(e):
		l.loadMailbox(e, in)
		return false
	case in.forced(): // whatever there is
	case e.poison != nil: // an order, which is refused
	case !e.known && !l.mayAssumeAbsent(e, in):
		l.load(e)
		return false
	case in.readsLetter() && in.letter == nil:
		l.loadLetter(e, in)
		return false
	case in.asksForFate(e):
		if !e.dirty() { // what is on its way to the store may be what became of it
			l.loadFate(e, in)
		}
		return false
	case e.unread(in):
		if !e.dirty() { // else what is on its way to the store may be of the same task
			l.loadWritten(e, in)
		}
		return false
	case in.kind == inMessage && in.message.Kind == model.MessageQuery && e.known && e.x != nil && !e.x.Open():
		return !e.dirty() // a worker reads the history of a run that has ended, and must find its end
	}
	return true
}

// once reports whether a repetition of the request must be noticed. A plain start needs no memory: its key is its identity. Nor does a query.
func (in *input) once() bool {
	m := in.message
	return in.kind == inMessage && m.RequestID != "" && m.Kind != model.MessageQuery &&
		(m.Kind != model.MessageStart || !in.inbox.IsZero() || len(m.With) > 0 || m.Past != nil || m.Reuse != model.ReturnExisting)
}

// early reports whether the input must wait until the run has begun: no batch both begins and ends it.
func (in *input) early(e *entry) bool {
	if !e.fresh || in.kind != inMessage {
		return false
	}
	k := in.message.Kind
	return k == model.MessageTerminate || k == model.MessageCancel && e.paused()
}

// sure reports whether it is known that the request has not been served. What was looked up before another request to the address
// was served proves nothing any more.
func (e *entry) sure(in *input) bool {
	return in.fresh || (in.checked && in.looked == e.remembered)
}

// load reads the run of an entry, so that inputs can be applied. An input wakes a sleeping run as a rule, so its history is read for a worker at the same time.
func (l *Lane) load(e *entry) {
	if e.isEntity() {
		l.loadEntity(e)
		return
	}
	e.loading = true
	if len(l.workers.offers[kind{e.address.Tenant, e.address.Type}]) > 0 && e.worker == 0 && !e.activating && !e.shard.draining && !e.unserved && !e.inLine && l.hasRoom() {
		e.activating, e.tail = true, nil
	}
	l.loads.add(&Load{Kind: LoadRun, Shard: e.shard.id, Address: e.address, entry: e})
}

// loadSoon reads the run: now, or when what is being read for the address is there. That may be an answer or a dead letter, after which nobody would ask for the run.
func (l *Lane) loadSoon(e *entry) {
	if e.loading {
		e.due = true
		return
	}
	l.load(e)
}

// loadDue reads the run if somebody wanted it while something else was read.
func (l *Lane) loadDue(e *entry) {
	due := e.due && !e.known && !e.loading
	e.due = false
	if due {
		l.load(e)
	}
}

// mayAssumeAbsent: a start by a client of this process may be written without a look: the store inserts it only if the
// address is unused, and otherwise gives us the run that is there. Not one whose answer is remembered: that would be stored either way.
func (l *Lane) mayAssumeAbsent(e *entry, in *input) bool {
	return in.kind == inMessage && in.message.Kind == model.MessageStart && !e.isEntity() && in.pair == nil && in.inbox.IsZero() && !in.checked && !in.once() &&
		in.message.Terms == nil && // its timers would be written whether or not it is
		!e.activating && !e.unserved && !e.inLine && e.worker == 0 // otherwise there is a run
}

// serveBacklog applies waiting inputs, entry by entry in turn.
func (l *Lane) serveBacklog(now model.Time) {
	if l.backlog.len() == 0 || l.recovery.careful() {
		return
	}
	for _, e := range l.backlog.take() {
		for len(e.backlog) > 0 && l.ready(now, e, e.backlog[0]) {
			in := e.backlog[0]
			e.backlog[0] = nil
			e.backlog = e.backlog[1:]
			l.apply(now, e, in)
		}
		if len(e.backlog) > 0 {
			l.schedule(e)
		} else {
			e.backlog = nil
			l.maybeDrop(e)
		}
	}
}

// apply decides what an input does and puts it into the open batch.
func (l *Lane) apply(now model.Time, e *entry, in *input) {
	if l.apart > 0 && in.proposal() && !l.recovery.careful() {
		l.apart--
		l.open.proposals++
	}
	if e.poison != nil && in.kind != inExpired && !in.forced() { // a row goes whatever is in it
		l.applyPoisoned(now, e, in)
		return
	}
	if l.cfg.Watched {
		l.witnessed(e, in)
	}
	switch in.kind {
	case inExpired:
		l.applyExpired(e, in)
	case inMessage:
		if in.forced() {
			l.applyForced(now, e, in)
			return
		}
		l.applyMessage(now, e, in)
	case inTurn:
		l.applyTurn(now, e, in)
	case inTimer:
		if e.x == nil || e.x.Start.Run != in.run {
			l.done(in) // the run has ended; its timers went with it
			l.maybeDrop(e)
			return
		}
		l.applyTimer(now, e, in)
	case inRelease:
		l.applyRelease(now, e, in)
	case inClaim, inReport, inExpire:
		l.applyTask(now, e, in)
	case inProgress:
		l.applyProgress(e, in)
	case inAttach:
		l.applyAttach(now, e, in)
	case inAnswered:
		l.applyAnswered(e, in)
	case inOperated:
		l.applyOperated(now, e, in)
	case inSettle:
		l.applySettle(now, e, in)
	case inAside:
		l.applyAside(now, e, in)
	case inNote:
		l.applyNote(now, e, in)
	case inQuarantine:
	}
}

func (l *Lane) applyMessage(now model.Time, e *entry, in *input) {
	if in.pair != nil && !in.pair.next(in) {
		l.done(in)
		l.maybeDrop(e)
		return
	}
	if e.isEntity() {
		l.applyToEntity(now, e, in)
		return
	}
	switch in.message.Kind {
	case model.MessageQuery:
		l.applyQuery(now, e, in)
		return
	case model.MessageWrite:
		l.applyWrite(now, e, in)
		return
	default:
	}
	l.traced(in.message)
	assumed := !e.known
	how := queue.Neither
	if r := in.message.Report; in.message.Kind == model.MessageReport && e.x != nil && e.run() == r.Ref.Run {
		how = l.reported(now, e, r)
	}
	x, d := l.decide(now, e, in)
	if d.Start != nil || len(d.Deletes) > 0 { // a start that is refused without a look has not found out whether there is a run
		l.setRun(e, x)
	}
	if d.Start != nil && x.Alone() {
		l.assign(now, e, x, &d)
	}
	g := l.record(e, in, &d)
	switch {
	case d.Start != nil:
		row := &g.batch.Starts[len(g.batch.Starts)-1]
		row.IfAbsent = assumed
		e.starting, e.fresh = assumed, x.Open()
		if d.Close != nil && x.Open() {
			l.giveWay(g, e, &d)
		}
	case d.Close != nil:
		l.terminated(g, e, d.Close)
	}
	l.postChanges(now, e, &d, how)
}

// terminated takes a run that ended without a word of its code from its worker.
func (l *Lane) terminated(g *building, e *entry, o *model.Outcome) {
	why := "ended"
	if o.Failure != nil {
		why = o.Failure.Message
	}
	g.effects = append(g.effects, effect{kind: effClosed, entry: e, run: e.run(), outcome: o})
	l.letGo(g, e, why)
	l.readNoMore(e)
	l.unstrand(e)
	l.askAgain(e) // whoever asks hears that it is closed when that is committed
}

// giveWay takes the run that a reset ends from its worker and hands the next one to one.
func (l *Lane) giveWay(g *building, e *entry, d *core.Decision) {
	g.effects = append(g.effects, effect{kind: effClosed, entry: e, run: d.Closed, outcome: d.Close})
	l.letGo(g, e, "reset")
	l.askAgain(e)
	l.readNoMore(e)
	l.unstrand(e)
	g.effects = append(g.effects, effect{kind: effActivate, entry: e, run: e.run()})
}

// readNoMore ends the reading of a history for a worker: the run is over, and what is read of it is not that of the next one.
func (l *Lane) readNoMore(e *entry) {
	if e.activating {
		e.activating, e.tail, e.read = false, nil, nil
		e.version++
	}
}

// applyAnswered stores an answer that is known already.
func (l *Lane) applyAnswered(e *entry, in *input) {
	if in.pair != nil && !in.pair.next(in) {
		l.done(in)
		l.maybeDrop(e)
		return
	}
	d := core.Decision{Answer: *in.answer}
	if from := in.message.From; from.ID != "" {
		d.Messages = []model.Message{{
			Kind: model.MessageAnswer, To: from.Address, ToRun: from.Run, ID: from.ID, Input: in.answer.Output, Failure: in.answer.Failure,
		}}
	}
	l.record(e, in, &d)
}

// freshFor draws an id only where it can be needed: ids are part of the trace of a simulation.
func (l *Lane) freshFor(m *model.Message) model.RunID {
	switch {
	case !m.Fresh.IsZero():
		return m.Fresh
	case m.Kind == model.MessageStart, m.Kind == model.MessageRequeue && m.Letter.Do == model.LetterRequeue:
		return l.cfg.NewRun()
	}
	return model.RunID{}
}

func (l *Lane) applyTurn(now model.Time, e *entry, in *input) {
	t := in.turn
	if e.x == nil || e.x.Start.Run != t.Run || e.gen != t.Generation || e.worker != in.worker {
		l.done(in)
		l.evictStale(in.worker, t.Run, t.Generation)
		if e.x != nil && e.x.Open() && !e.x.Parked {
			l.dispatch(now, e) // its worker went away while the turn waited; what is blocked was perhaps not any more, before that was undone
		}
		l.maybeDrop(e)
		return
	}
	var fresh model.RunID
	if t.Close != nil && (t.Close.Status == model.Continued || core.MayRepeat(e.x, t.Close)) {
		fresh = l.cfg.NewRun()
	}
	x, d, err := core.Apply(e.x, t, now, fresh, l.cfg.Limits)
	if err != nil {
		l.blockOn(e, in, err)
		return
	}
	if d.Close == nil {
		l.assign(now, e, x, &d)
	}
	g := l.record(e, in, &d)
	if d.Diverged {
		only := *t
		only.Ahead, only.Close, only.Waits = 0, nil, nil // what it took for granted has not come next: it goes on behind Seen
		t = &only
	}
	if g == nil {
		l.heard(now, e, t)
	} else {
		g.effects = append(g.effects, effect{kind: effWaits, entry: e, run: t.Run, turn: t})
	}
	switch {
	case d.Close != nil:
		g.effects = append(g.effects, effect{kind: effClosed, entry: e, run: t.Run, outcome: d.Close})
		l.letGo(g, e, "closed")
		l.askAgain(e)
		if x != e.x {
			l.setRun(e, x)
			e.fresh = true
			g.effects = append(g.effects, effect{kind: effActivate, entry: e, run: x.Start.Run})
		}
	case t.Blocked != nil:
		if g != nil {
			call := Call{Worker: e.worker, Run: e.held, Generation: e.gen} // nothing to call it for
			g.effects = append(g.effects, effect{kind: effBlocked, entry: e, call: call})
			e.missed = nil
		}
		l.letGoQuietly(e)
		l.strand(kind{e.address.Tenant, e.address.Type}, e, t.Blocked.Bounded())
	}
	l.postChanges(now, e, &d, queue.Neither)
}

// blockOn keeps a run whose turn cannot be applied as it is, and says why: trying again would fail again.
func (l *Lane) blockOn(e *entry, in *input, err error) {
	why := &model.Reason{Code: model.WaitMismatch, Detail: model.Cut(err.Error(), model.MaxReasonText)}
	if fault.Is(err, fault.Exhausted) {
		why.Code = model.WaitLimit
	}
	blocked := model.Turn{Run: in.turn.Run, Generation: in.turn.Generation, Seen: min(in.turn.Seen, e.x.Next-1), Blocked: why}
	_, d, err := core.Apply(e.x, &blocked, e.x.Last, model.RunID{}, l.cfg.Limits)
	if err != nil {
		l.done(in) // closed in the meantime: nothing to block
	} else if g := l.record(e, in, &d); why.Code == model.WaitLimit {
		l.limited(g, e, why)
	}
	l.letGo(l.batchOf(e), e, why.String())
	l.strand(kind{e.address.Tenant, e.address.Type}, e, *why)
}

func (l *Lane) applyRelease(now model.Time, e *entry, in *input) {
	t := in.turn
	if e.x == nil || e.x.Start.Run != t.Run || e.gen != t.Generation || e.worker != in.worker {
		l.done(in)
		l.maybeDrop(e)
		return
	}
	if len(t.Waits) == 0 {
		l.done(in)
		l.takeBack(now, e, "given back")
		return
	}
	d, ok := core.Release(e.x, t.Seen, t.Waits, l.cfg.Limits)
	g := l.record(e, in, &d)
	if !ok && l.stops(e) { // the news that it has not seen is not for it, and without news it does not repeat a step either
		e.retrying = nil
		l.heard(now, e, t)
	}
	if ok {
		e.waits = model.BoundedReasons(t.Waits)
		l.letGo(g, e, "released")
		if core.RetryDue(e.x, now) || len(e.queries) > 0 {
			l.dispatch(now, e) // the worker was told of it when it had let go already
		}
		l.maybeDrop(e)
	}
}

// heard takes note of what the code waits for, and whether it may be running a step. A run that is to leave its worker leaves when it does not;
// it does not begin one either, because it is not told that it may go on.
func (l *Lane) heard(now model.Time, e *entry, t *model.Turn) {
	if e.gen != t.Generation || t.Close != nil || t.Blocked != nil {
		return
	}
	if len(e.retrying) > 0 {
		e.retrying = slices.DeleteFunc(e.retrying, func(id string) bool {
			return slices.ContainsFunc(t.Commands, func(c model.Command) bool { return c.Event.ID == id })
		})
	}
	e.waits = model.BoundedReasons(t.Waits)
	l.weigh(e)
	l.room.tried = false
	e.busy = t.Running || t.Seen+int64(t.Ahead) < e.news || len(e.retrying) > 0
	switch {
	case e.busy:
	case e.withheld && !e.shard.draining: // of a shard that is given up, see drainShards
		l.takeBack(now, e, l.whyStops(e))
	case !l.stops(e):
		e.busy = len(t.Waits) == 0 || hasCode(t.Waits, model.WaitStep) // it goes on with what has just been committed
	}
}

func hasCode(rs []model.Reason, code model.ReasonCode) bool {
	for i := range rs {
		if rs[i].Code == code {
			return true
		}
	}
	return false
}

// record puts a decision into the open batch, with what is to be told after its commit. A decision that writes nothing is
// told at once, unless it rests on something that is not committed yet. It returns the batch that the input went to, nil when it is done.
func (l *Lane) record(e *entry, in *input, d *core.Decision) *building {
	var b *building
	if d.Writes() || in.pair != nil || !in.inbox.IsZero() {
		b = l.open
		l.touch(b, e)
		l.write(b, e, in, d)
	} else {
		b = l.batchOf(e)
	}
	if l.cfg.Watched {
		l.notes(b, e, in, d)
	}
	if in.token != nil {
		a := Answer{Token: in.token, Answer: d.Answer, Err: d.Refused()}
		switch {
		case d.Pending && b == nil:
			l.expect(e, in)
		case d.Pending:
			b.effects = append(b.effects, effect{kind: effExpect, entry: e, input: in})
		case in.awaits && d.Start != nil:
			b.effects = append(b.effects, effect{kind: effAwait, entry: e, run: d.Start.Run, answer: a, step: in.acknowledges(d)})
		case b == nil:
			l.reply(e.address, in.awaits, a)
		default:
			b.effects = append(b.effects, effect{kind: effAnswer, entry: e, awaits: in.awaits, answer: a, step: in.acknowledges(d)})
		}
	}
	if b == nil {
		l.done(in)
		l.maybeDrop(e)
		return nil
	}
	if b == l.open {
		e.served++
	}
	b.inputs = append(b.inputs, in)
	return b
}

// done lets go of an input that has been dealt with.
func (l *Lane) done(in *input) {
	l.unhold(in)
	l.room.tried = false
	l.retention.ended(in)
	if in.pair != nil {
		in.pair.release(l)
		l.MailWaits()
	}
}

func (l *Lane) answer(a Answer) {
	if a.Token != nil {
		l.out.Answers = append(l.out.Answers, a)
	}
}

// reply answers a message. Whoever would have waited for the end of what it starts knows now that it must ask again.
func (l *Lane) reply(to model.Address, awaits bool, a Answer) {
	if awaits {
		l.forgetWaiter(to, a.Token)
	}
	l.answer(a)
}

// batchOf is the last batch that the entry has something in; nil when all of it is committed.
func (l *Lane) batchOf(e *entry) *building {
	switch {
	case e.inOpen:
		return l.open
	case e.inFlight:
		return l.flight
	}
	return nil
}

// write turns a decision into rows.
func (l *Lane) write(b *building, e *entry, in *input, d *core.Decision) {
	key := e.key()
	if d.Close != nil {
		key.Run = d.Closed
	}
	b.bytes += decisionSize(d)
	for _, run := range d.Deletes {
		if key := (store.RunKey{Shard: e.shard.id, Run: run}); in.forced() {
			b.batch.Removes = append(b.batch.Removes, key)
		} else {
			b.batch.Deletes = append(b.batch.Deletes, key)
		}
	}
	if d.Erased {
		b.batch.EntityRemoves = append(b.batch.EntityRemoves, store.EntityKey{Shard: e.shard.id, Address: e.address})
	}
	if d.Start != nil {
		b.batch.Starts = append(b.batch.Starts, store.StartRow{Shard: e.shard.id, Start: *d.Start, Replaces: d.Replaces})
		b.relabel(store.RunKey{Shard: e.shard.id, Run: d.Start.Run}, d.Start.Carried)
		if d.Close == nil {
			b.effects = append(b.effects, effect{kind: effActivate, entry: e, run: d.Start.Run})
		}
		if d.Close == nil || d.Closed != d.Start.Run {
			l.writeBirth(b, e, d.Start)
		}
	}
	if d.Close != nil {
		b.batch.Closes = append(b.batch.Closes, store.CloseRow{RunKey: key, Outcome: *d.Close})
		e.mark = nil
	}
	if d.Mark != nil {
		e.mark = d.Mark
	}
	for i := range d.Events {
		b.batch.Events = append(b.batch.Events, store.EventRow{RunKey: key, Event: d.Events[i]})
	}
	b.relabel(key, d.Events)
	if hasKind(d.Events, model.EventResumed) {
		e.resuming++
	}
	if len(d.Events) > 0 {
		l.growing(e, d.Events)
		b.effects = append(b.effects, effect{kind: effDeliver, entry: e, run: key.Run, events: d.Events})
	}
	l.executes(b, e, d)
	for i := range d.Dead {
		b.batch.Dead = append(b.batch.Dead, store.DeadRow{
			DeadKey: store.DeadKey{RunKey: key, Task: d.Dead[i].Task.ID}, Body: deadTask(e.address, &d.Dead[i]),
		})
	}
	if c := d.Letter; c != nil {
		b.changeLetter(e.shard.id, c)
	}
	l.writeTimers(b, e, key, d)
	if e.isEntity() {
		l.writeEntity(b, e, d)
	}
	for i := range d.Messages {
		m := &d.Messages[i]
		b.batch.Messages = append(b.batch.Messages, store.MessageRow{
			To: m.To.Shard(l.cfg.Shards), From: e.shard.id, Message: *m,
		})
	}
	if in.pair != nil {
		in.pair.consume(l, in)
		if f := d.Answer.Failure; f != nil && in.message.Keep {
			l.bury(b, e, in.message, f)
		}
	}
	if !in.inbox.IsZero() {
		l.writeInbox(b, e, in, d)
	} else if in.remembers(d) {
		l.remember(b, e, in.message.RequestID, &d.Answer, in.message.Use())
	}
	for i := range d.Replies {
		r := &d.Replies[i]
		l.remember(b, e, r.RequestID, &r.Answer, r.For)
		b.effects = append(b.effects, effect{kind: effReply, entry: e, step: r.RequestID, answer: Answer{Answer: r.Answer, Err: core.RefusalOf(r.Answer)}})
	}
}

func (l *Lane) writeEntity(b *building, e *entry, d *core.Decision) {
	if c := d.Entity; c != nil {
		b.changeEntity(e, c)
		b.reserve(e.shard, &c.Entity)
		b.effects = append(b.effects, effect{kind: effEntity, entry: e, change: c})
	}
	b.changeMailbox(store.EntityKey{Shard: e.shard.id, Address: e.address}, d)
}

func (l *Lane) writeTimers(b *building, e *entry, key store.RunKey, d *core.Decision) {
	for _, id := range d.StopTimers {
		if !b.unstartTimer(key.Run, id) {
			b.batch.StopTimers = append(b.batch.StopTimers, store.TimerKey{RunKey: key, ID: id})
		}
		l.timers.remove(e.address, key.Run, id)
	}
	for _, t := range d.StartTimers {
		row := store.Timer{Shard: e.shard.id, Run: key.Run, ID: t.ID, Due: t.Due, Address: e.address}
		b.batch.Timers = append(b.batch.Timers, row)
	}
	if d.StopAll {
		b.batch.StopAll = append(b.batch.StopAll, key)
	}
}
