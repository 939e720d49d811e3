package lane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// rig drives a lane by hand on a store in memory: it does what the lane asks for only when the test
// says so, one thing at a time. It checks everything that the lane reports against the store at
// that moment (L2: nothing leaves the lane before it is durable).
type rig struct {
	t     tb
	st    *memory.Store
	l     *lane.Lane
	now   model.Time
	cfg   lane.Config
	lease int64 // epoch of the registration; the epoch of the fence may be higher
	// crashed says that the last owner did not give up the shards that are acquired next.
	crashed bool
	inOrder bool // shards were handed over, see store.AcquiredShard

	ids   int
	lives int
	spare lane.Output

	// What the lane has asked for and the rig has not done yet.
	commit  *store.Batch
	refence *store.LaneRef
	verify  []store.StartRow
	loads   []lane.Load
	// What the lane has reported.
	calls []lane.Call
	told  []lane.TaskCall
	// operations are calls of entities that workers have. handed counts how often workers got a
	// call, by its input.
	operations []lane.OperateCall
	interrupts []lane.InterruptCall
	handed     map[string]int
	answers    map[any]lane.Answer
	mail       []store.MessageRow
	hints      []lane.Hint
	aside      []lane.Aside
	freed      []model.ShardID
	recalls    []lane.Call // questions about runs that have ended, which workers have not answered
	large      []lane.Large
	dead       error

	// slots are the slots of workers. Each worker gets limit of them; 0 means any number.
	slots map[lane.WorkerID]*slots
	limit int
	// previews says that workers of workflows may get previews of events.
	previews bool

	// held is what the workers themselves believe that they hold.
	held map[model.RunID]*holding
	// refuse tells which batches the store refuses.
	refuse func(b *store.Batch) error
	// reads, when set, replaces a read.
	reads func(ld *lane.Load) *lane.LoadResult
	// commits counts the committed batches. turnedDown has the errors of the store itself for other
	// batches.
	commits    int
	turnedDown []error
	// removed are runs that batches have deleted.
	removed map[model.RunID]bool
	// facts counts the facts that the lane reported. landed counts the facts that it should have
	// reported. See facts_test.go.
	facts, landed map[string]int
	messages      int
	entityFacts   []string
	ended         []lane.Outcome // outcomes of attempts

	// seen has the status of every run according to the reported changes. stands has the status
	// according to the store; see changes_test.go. changes are all reported changes.
	seen, stands map[model.RunID]model.Status
	changes      []model.Change
}

// tb is a test or a check of rapid.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Error(args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
	Context() context.Context
}

// holding is a run in the hands of a worker.
type holding struct {
	worker lane.WorkerID
	gen    uint64
	start  model.Start
	events []model.Event
	// durable is the position up to which the worker knows that the events are durable. The others
	// are a preview.
	durable int64
	retry   []string
	asked   []model.Query
}

const (
	shards = 4
	begin  = model.Time(1_700_000_000_000_000)
)

func newRig(t tb, change ...func(*lane.Config)) *rig {
	t.Helper()
	r := &rig{t: t, now: begin, answers: map[any]lane.Answer{}, handed: map[string]int{}, held: map[model.RunID]*holding{}, removed: map[model.RunID]bool{}}
	r.st = memory.New(memory.Options{Shards: shards, Now: func() time.Time { return r.now.Std() }, Cluster: "test"})
	r.cfg = lane.Config{Layout: model.NewLayout(shards, nil), NewRun: r.newRun, Limits: core.DefaultLimits, WantsChanges: func() bool { return true }}
	r.seen, r.stands = map[model.RunID]model.Status{}, map[model.RunID]model.Status{}
	for _, f := range change {
		f(&r.cfg)
	}
	r.register(model.NodeID{15: 1})
	r.acquire(0, 1, 2, 3)
	r.settle()
	return r
}

// register starts a new incarnation of the node.
func (r *rig) register(id model.NodeID) {
	r.t.Helper()
	reg, err := r.st.Register(r.t.Context(), store.NodeInfo{ID: id}, 1, time.Hour)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cfg.Ref, r.lease = store.LaneRef{Node: id, Epoch: reg.Epoch}, reg.Epoch
	r.l, r.slots = lane.New(r.cfg), nil
}

// restart starts a new incarnation of the node, without the memory of the one before.
func (r *rig) restart() {
	r.t.Helper()
	if err := r.st.Unregister(r.t.Context(), r.cfg.Ref.Node, r.lease); err != nil {
		r.t.Fatal(err)
	}
	r.nextLife()
}

// crashFenced lets another node fence this node, as after a crash, and starts the next incarnation.
func (r *rig) crashFenced() {
	r.t.Helper()
	r.fence()
	r.nextLife()
}

func (r *rig) nextLife() {
	r.t.Helper()
	r.commit, r.refence, r.verify, r.loads, r.held = nil, nil, nil, nil, map[model.RunID]*holding{}
	r.spare, r.recalls = lane.Output{}, nil
	r.lives++
	r.register(model.NodeID{13: 1, 14: byte(r.lives >> 8), 15: byte(r.lives)})
	r.acquire(0, 1, 2, 3)
}

func (r *rig) newRun() model.RunID {
	r.ids++
	return model.RunID{0: 1, 13: byte(r.ids >> 16), 14: byte(r.ids >> 8), 15: byte(r.ids)}
}

func (r *rig) acquire(ids ...model.ShardID) {
	r.t.Helper()
	ref := r.cfg.Ref
	got, err := r.st.Acquire(r.t.Context(), ref.Node, r.lease, ids)
	if err != nil || len(got) != len(ids) {
		r.t.Fatalf("acquire %v: got %v, %v", ids, got, err)
	}
	for i := range got {
		got[i].Crashed = r.crashed
		got[i].Foreign = r.lives > 0
		got[i].Handed = r.inOrder
	}
	r.l.Acquire(r.now, got)
	r.take()
}

// flush ends a round of inputs.
func (r *rig) flush() {
	r.t.Helper()
	r.l.Flush(r.now)
	r.take()
}

// take notes what the lane asks for and what it reports.
func (r *rig) take() {
	r.t.Helper()
	r.handOut()
	out := r.l.Take(r.spare)
	if out.Commit != nil {
		if r.commit != nil || r.refence != nil || r.verify != nil {
			r.t.Fatal("L1: a batch is handed out while another one is in flight")
		}
		r.commit = out.Commit
	}

	if out.Refence != nil {
		r.refence = out.Refence
	}
	if len(out.Verify) > 0 {
		r.verify = slices.Clone(out.Verify)
	}
	r.loads = append(r.loads, out.Loads...)
	if out.Dead != nil {
		r.dead = out.Dead
	}
	for _, c := range out.Calls {
		r.call(c)
	}
	r.told = append(r.told, out.TaskCalls...)
	r.operations = append(r.operations, out.Operate...)
	r.interrupts = append(r.interrupts, out.Interrupts...)

	for i := range out.Operate {
		for _, c := range out.Operate[i].Operations.Calls {
			r.handed[string(c.Input.Data)]++
		}
	}

	for _, a := range out.Answers {
		r.answer(a)
	}

	for _, m := range out.Mail {
		r.durableMessage(m)
		r.mail = append(r.mail, m)
	}

	r.hints = append(r.hints, out.Hints...)
	r.aside = append(r.aside, out.Aside...)
	r.large = append(r.large, out.Large...)
	r.count(out.Facts)
	r.checkChanges(out.Changes)
	r.freed = append(r.freed, out.Freed...)
	r.spare = out
}

// call does what a worker does when the lane calls it.
func (r *rig) call(c lane.Call) {
	r.t.Helper()
	r.calls = append(r.calls, c)
	h := r.held[c.Run]

	switch c.Kind {
	case lane.CallActivate:
		if h != nil {
			r.t.Fatalf("%s is activated while generation %d is held", c.Run, h.gen)
		}
		a := c.Activation
		if a.Start.Run != c.Run || a.Generation != c.Generation || c.Generation == 0 {
			r.t.Fatalf("the activation of %s generation %d is of %s generation %d", c.Run, c.Generation, a.Start.Run, a.Generation)
		}
		h = &holding{worker: c.Worker, gen: c.Generation, start: *a.Start}
		r.held[c.Run] = h
		r.notPaused(h, "activated")
		r.feed(h, a.Events)
	case lane.CallDeliver:
		if h == nil || h.gen != c.Generation || h.worker != c.Worker {
			r.t.Fatalf("events of %s for generation %d, which is not held", c.Run, c.Generation)
		}
		r.notPaused(h, "told of events")
		r.feed(h, c.Events)
	case lane.CallPreview:
		if h == nil || h.gen != c.Generation || h.worker != c.Worker || !r.previews || len(c.Events) == 0 {
			r.t.Fatalf("a preview of %s for generation %d, which is not held by a worker that takes it", c.Run, c.Generation)
		}
		r.append(h, c.Events)
	case lane.CallConfirm:
		if h == nil || h.gen != c.Generation || h.worker != c.Worker || c.Durable <= h.durable || c.Durable > int64(len(h.events)) {
			r.t.Fatalf("a confirmation of %d events of %s for generation %d: %+v", c.Durable, c.Run, c.Generation, h)
		}
		r.notPaused(h, "told that events are durable")
		r.confirm(h, c.Durable)
	case lane.CallRetry:
		if h == nil || h.gen != c.Generation {
			r.t.Fatalf("a retry of %s for generation %d, which is not held", c.Run, c.Generation)
		}
		r.notPaused(h, "told to retry")
		h.retry = append(h.retry, c.ID)
	case lane.CallQuery:
		if h == nil || h.gen != c.Generation || h.worker != c.Worker {
			r.t.Fatalf("a query of %s for generation %d, which is not held", c.Run, c.Generation)
		}
		h.asked = append(h.asked, *c.Query)
	case lane.CallRecall:
		r.recalls = append(r.recalls, c)
	case lane.CallTaken: // the code of the rig needs no answer
	case lane.CallEvict:
		if c.Run.IsZero() {
			r.t.Fatalf("an eviction that names no run: %s", c.Reason)
		}
		if h != nil && h.gen == c.Generation && h.worker == c.Worker {
			delete(r.held, c.Run)
		}
	}
}

// feed hands events to the code. It checks that the events are durable and follow without a gap.
func (r *rig) feed(h *holding, events []model.Event) {
	r.t.Helper()
	r.append(h, events)
	r.confirm(h, int64(len(h.events)))
}

// confirm notes that the events that the code knows are durable, up to a position.
func (r *rig) confirm(h *holding, position int64) {
	r.t.Helper()
	h.durable = position
	stored := r.history(h.start.Address, h.start.Run)
	if int64(len(stored)) < position {
		r.t.Fatalf("L2: event %d of %s is confirmed, but only %d are durable", position, h.start.Run, len(stored))
	}
	for i := range h.events[:position] {
		if e, s := &h.events[i], &stored[i]; e.ID != s.ID || e.Kind != s.Kind || e.At != s.At {
			r.t.Fatalf("event %d of %s is %s %s at its worker, and %s %s in the store", i+1, h.start.Run, e.Kind, e.ID, s.Kind, s.ID)
		}
	}
}

// append hands events to the code. It checks that they follow without a gap.
func (r *rig) append(h *holding, events []model.Event) {
	r.t.Helper()
	for _, e := range events {
		if e.Seq != int64(len(h.events))+1 {
			r.t.Fatalf("%s is fed event %d, want %d", h.start.Run, e.Seq, len(h.events)+1)
		}
		h.events = append(h.events, e)
	}
}

func (r *rig) answer(a lane.Answer) {
	r.t.Helper()
	if old, ok := r.answers[a.Token]; ok {
		r.t.Fatalf("%v is answered twice: %+v, then %+v", a.Token, old, a)
	}
	r.answers[a.Token] = a
	// the store may remember an answer for longer than it keeps the run
	if run := a.Answer.Run; a.Err == nil && !run.IsZero() && r.row(run) == nil && (a.Answer.Existing || !r.removed[run]) {
		r.t.Fatalf("L2: %v is told of %s, which is not durable", a.Token, run)
	}
	if res := a.Result; res != nil {
		if row := r.row(res.Run); row == nil || row.Outcome.Status != res.Outcome.Status {
			r.t.Fatalf("L2: %v is told that %s has ended, which is not durable", a.Token, res.Run)
		}
	}
}

func (r *rig) durableMessage(m store.MessageRow) {
	r.t.Helper()
	rows, _, err := r.st.LoadMessages(r.t.Context(), []model.ShardID{m.To}, 10_000, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	if !slices.ContainsFunc(rows, func(x store.MessageRow) bool { return x.From == m.From && x.Seq == m.Seq }) {
		r.t.Fatalf("L2: message %d from shard %d to %d is not durable", m.Seq, m.From, m.To)
	}
}

// commitNow lets the store do the commit that the lane has asked for, and reports the result.
func (r *rig) commitNow() {
	r.t.Helper()
	res, err := r.land()
	r.l.FinishCommit(r.now, res, err)
	r.flush()
}

// land does the commit and does not report the result to the lane.
func (r *rig) land() (store.Committed, error) {
	r.t.Helper()
	b := r.commit
	if b == nil {
		r.t.Fatal("no batch is in flight")
	}
	r.commit = nil

	if r.refuse != nil {
		if err := r.refuse(b); err != nil {
			return store.Committed{}, err
		}
	}

	res, err := r.st.Commit(r.t.Context(), b)
	if err != nil {
		r.turnedDown = append(r.turnedDown, err)
		return res, err
	}

	r.commits++
	r.counts(b, res)
	r.noteStored(b, res)
	for _, k := range b.Deletes {
		r.removed[k.Run] = true
	}

	return res, err
}

// landUnheard does the commit, and the lane gets no answer.
func (r *rig) landUnheard() {
	r.t.Helper()
	if _, err := r.land(); err != nil {
		r.t.Fatal(err)
	}
}

// fence lets another node raise the fence of this node.
func (r *rig) fence() {
	r.t.Helper()
	if ok, err := r.st.FenceNode(r.t.Context(), store.FenceRequest{Node: r.cfg.Ref.Node, Epoch: r.lease, Proven: true}); !ok || err != nil {
		r.t.Fatal(ok, err)
	}
}

// fail reports that the commit failed; nothing was written.
func (r *rig) fail(c store.Class) {
	r.t.Helper()
	if r.commit == nil {
		r.t.Fatal("no batch is in flight")
	}
	r.commit = nil
	r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(c, "commit", "injected"))
	r.flush()
}

func (r *rig) refenceNow() {
	r.t.Helper()
	ref := *r.refence
	r.refence = nil
	epoch, landed, err := r.st.Refence(r.t.Context(), ref)
	if err == nil {
		r.cfg.Ref.Epoch = epoch
	}
	r.l.FinishRefence(r.now, epoch, landed, err)
	r.flush()
}

func (r *rig) verifyNow() {
	r.t.Helper()
	rows := make([]*store.Execution, len(r.verify))
	for i, s := range r.verify {
		rows[i] = r.current(s.Start.Address)
	}
	r.verify = nil
	r.l.FinishVerify(r.now, rows, nil)
	r.flush()
}

// read does all reads that the lane has asked for.
func (r *rig) read() {
	r.t.Helper()
	loads := r.loads
	r.loads = nil
	for _, ld := range loads {
		r.readOne(ld)
	}
	r.flush()
}

func (r *rig) readOne(ld lane.Load) {
	if r.reads != nil {
		if res := r.reads(&ld); res != nil {
			r.l.FinishLoad(r.now, ld.ID, *res)
			return
		}
	}
	r.l.FinishLoad(r.now, ld.ID, engine.Read(r.t.Context(), r.st, ld, r.now))
}

// settle does everything that the lane asks for until it asks for nothing more.
func (r *rig) settle() {
	r.t.Helper()
	r.flush()
	for range 10_000 {
		switch {
		case len(r.loads) > 0:
			r.read()
		case r.commit != nil:
			r.commitNow()
		case r.refence != nil:
			r.refenceNow()
		case r.verify != nil:
			r.verifyNow()
		case r.dead == nil && r.l.Wake() != 0 && r.l.Wake() <= r.now:
			r.flush()
		default:
			return
		}
	}

	r.t.Fatal("the lane does not come to rest")
}

// pass lets time go by, waking the lane whenever it wants to be woken.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	until := r.now.Add(d)
	for range 100_000 {
		at := r.l.Wake()
		if at == 0 || at > until {
			r.now = until
			r.settle()
			return
		}
		r.now = max(r.now, at)
		r.settle()
		if at := r.l.Wake(); at != 0 && at <= r.now {
			r.t.Fatalf("the lane has nothing to do and wants to be woken at %s, which is now or past: it would spin", at)
		}
	}

	r.t.Fatal("the lane is woken without end")
}

// What the store holds.

func (r *rig) current(a model.Address) *store.Execution {
	r.t.Helper()
	row, err := r.st.LoadExecution(r.t.Context(), a.Shard(shards), a, model.RunID{})
	if err != nil {
		r.t.Fatal(err)
	}
	return row
}

// runsOf returns how many runs an address has had.
func (r *rig) runsOf(a model.Address) int {
	r.t.Helper()
	page, err := r.st.List(r.t.Context(), store.Query{Tenant: a.Tenant, Workflows: []string{a.Type}, Key: a.Key, AllRuns: true, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(page.Executions)
}

func (r *rig) row(run model.RunID) *store.Execution {
	r.t.Helper()
	for s := range model.ShardID(shards) {
		row, err := r.st.LoadExecution(r.t.Context(), s, model.Address{}, run)
		if err != nil {
			r.t.Fatal(err)
		}
		if row != nil {
			return row
		}
	}
	return nil
}

// history returns all events of a run, including the events that it was started with.
func (r *rig) history(a model.Address, run model.RunID) []model.Event {
	r.t.Helper()
	row := r.row(run)
	if row == nil {
		return nil
	}
	stored, err := r.st.LoadEvents(r.t.Context(), store.RunKey{Shard: a.Shard(shards), Run: run}, 0, 1<<20, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.Concat(row.Start.Carried, stored)
}

// events names the events of the current run: "step_completed a", …
func (r *rig) events(a model.Address) []string {
	r.t.Helper()
	row := r.current(a)
	if row == nil {
		return nil
	}

	var out []string
	for _, e := range r.history(a, row.Start.Run) {
		text := e.Kind.String()
		if e.ID != "" {
			text += " " + e.ID
		} else if e.Name != "" {
			text += " " + e.Name
		}
		out = append(out, text)
	}

	return out
}

func (r *rig) timers(a model.Address) int {
	r.t.Helper()
	row := r.current(a)
	if row == nil {
		return 0
	}
	ts, err := r.st.LoadRunTimers(r.t.Context(), store.RunKey{Shard: row.Shard, Run: row.Start.Run})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(ts)
}

// Inputs. Each of these methods also lets the immediate effects of the input happen.

func key(k string) model.Address { return model.Address{Tenant: "default", Type: "wf", Key: k} }

// in returns an address of the type wf in the given shard. Different n give different addresses.
func in(s model.ShardID, n int) model.Address {
	for i := 0; ; i++ {
		a := key(fmt.Sprintf("s%d-%d", s, i))
		if a.Shard(shards) == s {
			if n == 0 {
				return a
			}
			n--
		}
	}
}

func (r *rig) join(w lane.WorkerID, workflows ...string) {
	if len(workflows) == 0 {
		workflows = []string{"wf"}
	}
	r.l.Join(r.now, w, model.Offer{Tenant: "default", Workflows: workflows, Previews: r.previews}, r.slotsOf(w))
	r.take()
}

func (r *rig) leave(w lane.WorkerID) {
	r.t.Helper()
	r.l.Leave(r.now, w)
	r.take()
}

func (r *rig) giveUp(ids ...model.ShardID) {
	r.t.Helper()
	r.l.GiveUp(r.now, ids)
	r.take()
}

// send hands in a message of a client; the answer comes under the token.
func (r *rig) send(m model.Message, token any) {
	r.l.Deliver(r.now, &m, false, token)
	r.take()
}

func (r *rig) start(a model.Address, token any) {
	r.send(model.Message{Kind: model.MessageStart, To: a}, token)
}

func (r *rig) signal(a model.Address, name string, token any) {
	r.send(model.Message{Kind: model.MessageSignal, To: a, Name: name}, token)
}

// startRun starts an execution and lets everything settle; a worker holds it if there is one.
func (r *rig) startRun(a model.Address) model.RunID {
	r.t.Helper()
	token := fmt.Sprintf("start of %s at %d", a, r.ids)
	r.start(a, token)
	r.settle()
	ans, ok := r.answers[token]
	if !ok || ans.Err != nil {
		r.t.Fatalf("%s: %+v", token, ans)
	}
	return ans.Answer.Run
}

// turn hands in a turn of the worker that holds the current run of the address.
func (r *rig) turn(a model.Address, t model.Turn) {
	r.t.Helper()
	for run, h := range r.held {
		if h.start.Address == a {
			t.Run, t.Generation = run, h.gen
			if t.Seen == 0 {
				t.Seen = int64(len(h.events))
			}
			r.l.Turn(r.now, h.worker, &t)
			r.take()
			return
		}
	}
	r.t.Fatalf("no worker holds %s", a)
}

func (r *rig) release(a model.Address, waits string) {
	r.t.Helper()
	for run, h := range r.held {
		if h.start.Address == a {
			r.l.Release(r.now, h.worker, &model.Turn{Run: run, Generation: h.gen, Seen: int64(len(h.events)), Waits: []model.Reason{{Code: model.WaitSignal, Name: waits}}})
			r.take()
			return
		}
	}
	r.t.Fatalf("no worker holds %s", a)
}

func (r *rig) holder(a model.Address) lane.WorkerID {
	for _, h := range r.held {
		if h.start.Address == a {
			return h.worker
		}
	}
	return 0
}

// commandTurn returns a turn with commands.
func commandTurn(commands ...model.Command) model.Turn { return model.Turn{Commands: commands} }

func step(id string) model.Command {
	return model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: id}}
}

func timer(id string, due model.Time) model.Command {
	return model.Command{Kind: model.CommandStartTimer, Event: model.Event{ID: id, Due: due}}
}

func stop(id string) model.Command {
	return model.Command{Kind: model.CommandStopTimer, Event: model.Event{ID: id}}
}

func steps(ids ...string) (t model.Turn) {
	for _, id := range ids {
		t.Commands = append(t.Commands, step(id))
	}
	return t
}

func done() *model.Close {
	return &model.Close{Status: model.Completed, Output: model.Payload{Data: []byte("done")}}
}

// signalTo is a command that sends a signal.
func signalTo(a model.Address, id, name string) model.Command {
	return model.Command{
		Kind: model.CommandSend, Event: model.Event{ID: id, Target: a}, Message: &model.Message{Kind: model.MessageSignal, To: a, Name: name},
	}
}

// poison refuses every batch that has an event or a start with the name.
func poison(name string) func(*store.Batch) error {
	return func(b *store.Batch) error {
		bad := slices.ContainsFunc(b.Events, func(e store.EventRow) bool { return e.Event.ID == name || e.Event.Name == name }) ||
			slices.ContainsFunc(b.Starts, func(s store.StartRow) bool { return s.Start.Address.Key == name })
		if bad {
			return store.Errorf(store.Refused, "commit", "poison %s", name)
		}
		return nil
	}
}

func (r *rig) wantEvents(a model.Address, want ...string) {
	r.t.Helper()
	if got := r.events(a); !slices.Equal(got, want) {
		r.t.Errorf("history of %s = %q, want %q", a.Key, got, want)
	}
}

// wantHolder checks that the worker holds the current run of the address; 0 means no worker.
func (r *rig) wantHolder(a model.Address, w lane.WorkerID) {
	r.t.Helper()
	if got := r.holder(a); got != w {
		r.t.Fatalf("%s is held by %d, want %d", a.Key, got, w)
	}
}

func (r *rig) wantStatus(a model.Address, want model.Status) {
	r.t.Helper()
	if got := r.current(a).Outcome.Status; got != want {
		r.t.Errorf("%s is %s, want %s", a.Key, got, want)
	}
}

func (r *rig) wantAnswer(token any, kind string) {
	r.t.Helper()
	a, ok := r.answers[token]
	if !ok {
		r.t.Errorf("%v is not answered", token)
		return
	}
	if got := kindOf(a.Err); got != kind {
		r.t.Errorf("%v is answered %q (%v), want %q", token, got, a.Err, kind)
	}
}

func (r *rig) wantSilence(tokens ...any) {
	r.t.Helper()
	for _, token := range tokens {
		if a, ok := r.answers[token]; ok {
			r.t.Errorf("%v is answered: %+v", token, a)
		}
	}
}

var errInjected = errors.New("injected")
