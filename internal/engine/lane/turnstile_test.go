package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// turnstile is a gate that lets one task pass at a time. It counts tasks that run although they did
// not pass.
type turnstile struct {
	in   map[model.TaskRef]bool
	over int
}

func (g *turnstile) Take(_ model.Time, it *queue.Item) (bool, model.Reason, model.Time) {
	if len(g.in) > 0 && !g.in[it.Ref] {
		return false, model.Reason{Code: model.WaitPermit}, 0
	}
	g.in[it.Ref] = true
	return true, model.Reason{}, 0
}

func (g *turnstile) Hold(_ model.Time, it *queue.Item, _ string) {
	if !g.in[it.Ref] {
		g.over++
	}
	g.in[it.Ref] = true
}

func (g *turnstile) Give(_ model.Time, it *queue.Item, _ queue.Outcome) { delete(g.in, it.Ref) }

func (*turnstile) Group(*queue.Item) string { return "" }

// wantOne passes the proposals of the board to the lane. It checks that there is exactly one claim,
// and that its task has passed the turnstile.
func (g *turnstile) wantOne(b *bench) {
	b.r.t.Helper()
	b.propose()
	b.r.settle()
	b.one()
	if g.over > 0 {
		b.r.t.Errorf("%d claims are made that were not let through", g.over)
	}
	b.wantSlots(1)
}

// newTurnstile returns a lane with a board that has a turnstile, and a worker without a slot.
func newTurnstile(t *testing.T) (*rig, *bench, *turnstile) {
	r, b := newBench(t, 0)
	g := &turnstile{in: map[model.TaskRef]bool{}}
	b.board(begin, queue.Config{Gate: g}, 0)
	return r, b, g
}

// A claim shares its batch with a row that the store refuses. The lane undoes the claim. It makes
// the claim again only after the task has passed the gate again, because another task may have the
// permit by then.
func TestClaimBesidePoison(t *testing.T) {
	t.Parallel()
	r, b, g := newTurnstile(t)
	r.join(1)
	r.startRun(key("bad"))
	r.send(theTask("t"), "t")
	r.settle()
	r.refuse = poison("poison")
	r.turn(key("bad"), steps("poison"))
	b.Slots(r.now, 1, 1)
	b.propose()
	r.settle()
	if len(g.in) > 0 {
		t.Fatalf("%d tasks are let through before the board has proposed any", len(g.in))
	}

	if cs := b.claims(); len(cs) != 0 {
		t.Fatalf("%d claims are handed over that the board did not propose", len(cs))
	}
	g.wantOne(b)
}

// A proposal is on its way to the lane while a user pauses and resumes the run. The task has left
// the board and has come back. The lane claims the task only after the task has passed the gate
// again.
func TestProposalOfATaskThatCameBack(t *testing.T) {
	t.Parallel()
	r, b, g := newTurnstile(t)
	r.send(theTask("t"), "t")
	r.settle()
	b.Slots(r.now, 1, 1)
	matches := b.Match(r.now)
	r.send(model.Message{Kind: model.MessagePause, To: taskAt("t")}, "pause")
	r.send(model.Message{Kind: model.MessageResume, To: taskAt("t")}, "resume")
	r.settle()
	r.l.Claim(r.now, matches[0].Ref, 1, "w@here")
	r.settle()
	if cs := b.claims(); len(cs) != 0 || len(g.in) > 0 {
		t.Fatalf("%d claims are handed over that the board did not propose, and %d let through", len(cs), len(g.in))
	}
	g.wantOne(b)
}
