package lane_test

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// bench is a board with one worker, whose id is 1, and the claims that the worker got.
type bench struct {
	name string // what histories call the worker
	*queue.Board
	r       *rig
	has     map[model.ClaimRef]bool
	away    bool // workers that this board does not have belong to other live nodes
	left    bool // the worker is not here
	dropped bool // the node of the worker has said that it does not have the claim

	released    []model.ClaimRef // claims whose permits the lane has freed
	quarantined []model.Address  // addresses whose claims cannot end
}

func (b *bench) Reserve(now model.Time, it *queue.Item) (queue.WorkerID, string, bool) {
	id, ok := b.Board.Reserve(now, it)
	return id, b.name, ok
}

// Hold passes the claim on to the board, without the name of the worker.
//
//arch:parameters lane.Board gives the signature
func (b *bench) Hold(now model.Time, it queue.Item, claim int64, id queue.WorkerID, _ string) {
	b.Board.Hold(now, it, queue.HeldClaim{Ref: model.ClaimRef{TaskRef: it.Ref, Claim: claim}, Worker: id})
}

func (b *bench) Find(name string, claim model.ClaimRef) (queue.WorkerID, bool) {
	if name != b.name || b.left {
		return 0, false
	}
	return 1, b.has[claim]
}

func (b *bench) Forget(now model.Time, ref model.TaskRef) { b.Remove(now, ref, queue.Neither) }

func (b *bench) Elsewhere(string) bool { return b.away }

func (b *bench) IsDropped(string, model.ClaimRef) bool { return b.dropped }

func (*bench) RetryAfter(model.Time, *queue.Item, model.Time) {}

// newBench returns a lane with a board, and a worker with this many slots.
func newBench(t tb, slots int, change ...func(*lane.Config)) (*rig, *bench) {
	b := &bench{name: "w@here", has: map[model.ClaimRef]bool{}}
	b.board(begin, queue.Config{}, slots)
	b.r = newRig(t, append(change, func(c *lane.Config) { c.Board = b })...)
	return b.r, b
}

// board creates a board that knows only the worker.
func (b *bench) board(now model.Time, cfg queue.Config, slots int) {
	b.Board = queue.New(cfg)
	b.Join(now, 1, model.TaskOffer{Name: "w", Tenants: []string{"default"}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: slots})
}

// restart starts the node again, with a new board. The worker has one slot.
func (b *bench) restart() {
	b.r.t.Helper()
	b.board(b.r.now, queue.Config{}, 1)
	b.r.crashFenced()
}

// propose passes the proposals of the board to the lane.
func (b *bench) propose() {
	for _, m := range b.Match(b.r.now) {
		b.r.l.Claim(b.r.now, m.Ref, m.Worker, b.name)
	}
	for _, d := range b.TakeDue(b.r.now) {
		b.r.l.Expire(b.r.now, model.ClaimRef{TaskRef: d.Ref, Claim: d.Claim}, d.Claim != 0 || d.Kind == queue.DueToClose, d.Kind.String())
	}
	b.r.take()
}

// claims returns the claims that the lane has handed over since the last call. The worker has them
// now.
func (b *bench) claims() (claims []model.Claim) {
	b.r.told = slices.DeleteFunc(b.r.told, func(c lane.TaskCall) bool {
		if c.Kind == lane.TaskExecute {
			claims = append(claims, *c.Claim)
			b.has[c.Ref] = true
		}
		return c.Kind == lane.TaskExecute
	})
	return claims
}

// one returns the only claim that the lane has handed over.
func (b *bench) one() model.Claim {
	b.r.t.Helper()
	cs := b.claims()
	if len(cs) != 1 {
		b.r.t.Fatalf("%d claims are handed over, want 1", len(cs))
	}
	return cs[0]
}

// report sends the lane a report that a claim has ended.
func (b *bench) report(c model.Claim, change ...func(*model.TaskReport)) {
	rep := &model.TaskReport{Ref: c.Ref}
	for _, f := range change {
		f(rep)
	}
	b.MarkReported(b.r.now, 1, c.Ref)
	b.r.l.Report(b.r.now, 1, rep)
	b.r.take()
}

// reportAnswers returns the answers to the reports of a claim.
func (b *bench) reportAnswers(c model.Claim) (errs []error) {
	for _, call := range b.r.told {
		if call.Kind == lane.TaskSettled && call.Ref == c.Ref {
			errs = append(errs, call.Err)
		}
	}
	return errs
}

// wantSettled checks that the lane has answered the reports of a claim with errors of these kinds,
// in this order; "" means no error.
func (b *bench) wantSettled(c model.Claim, kinds ...string) {
	b.r.t.Helper()
	errs := b.reportAnswers(c)
	if !slices.EqualFunc(errs, kinds, func(err error, kind string) bool { return kindOf(err) == kind }) {
		b.r.t.Errorf("the reports of %s are answered %v, want %q", c.Ref.TaskRef, errs, kinds)
	}
}

func (b *bench) takeStops(canceled bool) (n int) {
	for _, call := range b.r.told {
		if call.Kind == lane.TaskStop && call.Canceled == canceled {
			n++
		}
	}
	return n
}

// slots returns the number of slots in use.
func (b *bench) slots() int { return b.Stats().Workers[0].Held }

func (b *bench) wantSlots(n int) {
	b.r.t.Helper()
	if got := b.slots(); got != n {
		b.r.t.Errorf("%d slots are taken, want %d", got, n)
	}
}

func failed(r *model.TaskReport) { r.Failure = &model.Failure{Message: "fails"} }

func taskAt(k string) model.Address {
	return model.Address{Tenant: "default", Type: model.TaskPrefix + "k", Key: k}
}

func theTask(k string, change ...func(*model.TaskSpec)) model.Message {
	spec := &model.TaskSpec{Kind: "k", Queue: "q", Retry: model.Retry{Initial: time.Second, MaxAttempts: 5}}
	for _, f := range change {
		f(spec)
	}
	return model.Message{Kind: model.MessageStart, To: taskAt(k), Task: spec}
}

func taskCommand(id string) model.Command {
	return model.Command{Kind: model.CommandSchedule, Event: model.Event{
		Kind: model.EventTaskScheduled, ID: id, Name: "k", Task: &model.TaskSpec{Kind: "k", Queue: "q", Retry: model.Retry{Initial: time.Second}},
	}}
}
