package crew

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/wire"
)

// pair is two sides of a session over a line that loses and repeats frames.
type pair struct {
	a, b *exchange
	fate func() fate
	sent int
	mu   sync.Mutex
}

// Call implements Carrier: a frame of one side arrives at the other.
func (p *pair) Call(ctx context.Context, to model.NodeID, question []byte) ([]byte, error) {
	f, err := decodeFrame(question)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	what := p.fate()
	p.sent++
	p.mu.Unlock()

	side := p.a
	if to == nodeID(2) {
		side = p.b
	}
	answers := make(chan []byte, 2)
	answer := func(b []byte) { answers <- b }
	if what != lostQuestion {
		side.hear(&f, answer)
	}
	if what == arrivesTwice {
		again := f
		side.hear(&again, answer)
	}
	heard := answers
	if what == lostAnswer {
		heard = nil
	}
	select {
	case b := <-heard:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// open opens both sides. got receives the parcels of both directions.
func (p *pair) open(ctx context.Context, got func(by side, p *parcel)) (wait func() [2]error) {
	var why [2]error
	var wg sync.WaitGroup
	p.a, p.b = newExchange(p, nodeID(2), model.RunID{1}, bySender), newExchange(p, nodeID(1), model.RunID{1}, byOwner)
	for i, x := range []*exchange{p.a, p.b} {
		from := []side{byOwner, bySender}[i]
		x.take = func(_ context.Context, c *parcel) error {
			got(from, c)
			return nil
		}
		x.ended = func(err error) { why[i] = err }
		wg.Go(func() { x.run(ctx) })
	}
	return func() [2]error {
		wg.Wait()
		return why
	}
}

// Frames and answers get lost and arrive twice. Each parcel arrives once, in order, in both
// directions, even if it is larger than a frame.
func TestParcelsArriveOnceInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			losses := rand.New(rand.NewPCG(seed, 2)) // only Call uses losses, under the lock
			p := &pair{fate: func() fate { return fate(losses.IntN(4)) }}
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			got := map[side][]string{}
			wait := p.open(ctx, func(by side, c *parcel) {
				mu.Lock()
				defer mu.Unlock()
				got[by] = append(got[by], fmt.Sprint(c.Role, " ", len(c.Body), " ", bytes.Count(c.Body, []byte{byte(c.Role)})))
			})

			const n = 40
			want := map[side][]string{}
			for i := range n {
				for by, x := range map[side]*exchange{bySender: p.a, byOwner: p.b} {
					size := rnd.IntN(100)
					if i%13 == 0 {
						size = frameBytes + rnd.IntN(2*frameBytes)
					}
					body := bytes.Repeat([]byte{byte(i)}, size)
					if err := x.wait(ctx, parcel{Kind: fromWorker, Role: uint64(i), Body: body}); err != nil {
						t.Fatal(err)
					}
					want[by] = append(want[by], fmt.Sprint(i, " ", size, " ", size))
				}
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
			}
			p.a.rest(ctx)
			p.b.rest(ctx)
			cancel()
			wait()
			for by := range want {
				if fmt.Sprint(got[by]) != fmt.Sprint(want[by]) {
					t.Errorf("seed %d: of side %c arrived %v, want %v", seed, by, got[by], want[by])
				}
			}
		})
	}
}

// When the sender learns that a connection was lost, it sends its frame again immediately. If it
// does not learn that, it sends the frame again when the time patience is over.
func TestFrameOfALostConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		losses := 1
		p := &pair{fate: func() fate {
			losses--
			if losses >= 0 {
				return lostQuestion
			}
			return arrives
		}}
		ctx, cancel := context.WithCancel(t.Context())
		wait := p.open(ctx, func(side, *parcel) {})
		begun := time.Now()
		p.a.post(parcel{Kind: fromWorker})
		synctest.Wait()
		ring(p.a.again)
		p.a.rest(ctx)
		if took := time.Since(begun); took >= patience {
			t.Errorf("the frame arrived after %s", took)
		}
		cancel()
		wait()
	})
}

// A live node that does not answer loses the session after the grace period, not before.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{fate: func() fate { return lostQuestion }}
		wait := p.open(t.Context(), func(side, *parcel) {})
		begun := time.Now()
		p.a.post(parcel{Kind: fromWorker})
		<-p.a.done
		if took := time.Since(begun); took < grace || took > grace+3*patience {
			t.Errorf("the session ended after %s", took)
		}
		p.b.end(errClosed)
		if why := wait(); !errors.Is(why[0], errSilent) {
			t.Errorf("the session ended: %v", why)
		}
	})
}

// activation returns a hand-over of a run.
func activation(run model.RunID, generation uint64) *model.Activation {
	return &model.Activation{Start: &model.Start{Run: run, Address: model.Address{Tenant: "default", Type: "order", Key: "1"}}, Generation: generation, Now: 55}
}

// events returns events of a run.
func events(n int) (all []model.Event) {
	for i := range n {
		all = append(all, model.Event{Kind: model.EventSignalReceived, Seq: int64(i + 1), Name: "s"})
	}
	return all
}

// An owner dies with a turn that it has not stored. The worker keeps the run with its outcomes, and
// says so to the next owner. The dead owner has no further effect.
func TestOwnerDiesWithATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, first, second := nodeID(1), nodeID(2), nodeID(3)
		var at, next place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		_, die := o.add(t, first, &at, func() []Hands { return nil })
		h.SetMembers(view(host, first))
		until(t, "the worker joins", func() bool { return at.only() != nil })

		run := model.RunID{9}
		at.only().worker.Activate(activation(run, 77))
		until(t, "the worker gets the run", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == 1 })
		a := worker.activated[0]
		if !IsLent(a.Generation) {
			t.Errorf("the generation is %d", a.Generation)
		}
		if err := hands.Report(t.Context(), model.Turn{Run: run, Generation: a.Generation}); err != nil {
			t.Fatal(err)
		}
		until(t, "the owner has the turn", func() bool { at.mu.Lock(); defer at.mu.Unlock(); return len(at.turns) == 1 })
		if got := at.turns[0].Generation; got != 77 {
			t.Errorf("the owner got a turn of generation %d", got)
		}

		dead := at.only()
		die()
		o.add(t, second, &next, func() []Hands { return nil })
		Ask(t.Context(), desk{&o, second}, []model.NodeID{host})
		h.SetMembers(view(host, second)) // the host has not known until it was asked
		if len(worker.lost) != 1 {
			t.Errorf("the worker has lost %v", worker.lost)
		}
		next.mu.Lock()
		held := next.held
		next.mu.Unlock()
		if len(held) == 0 || held[0].Run != run || held[0].Given != 55 {
			t.Errorf("the next owner knows of %v", held)
		}

		// The next owner hands over the run. Messages of the dead owner have no effect.
		next.only().worker.Activate(activation(run, 5))
		dead.worker.Evict(run, 77, "late")
		until(t, "the worker gets the run again", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == 2 })
		if len(worker.evicted) > 0 || len(hands.Left()) > 0 {
			t.Errorf("evicted %v, left %v", worker.evicted, hands.Left())
		}
		if err := hands.Report(t.Context(), model.Turn{Run: run, Generation: a.Generation}); err != nil {
			t.Fatal(err)
		}
		if err := hands.Report(t.Context(), model.Turn{Run: run, Generation: worker.activated[1].Generation}); err != nil {
			t.Fatal(err)
		}
		until(t, "the next owner has the turn", func() bool { next.mu.Lock(); defer next.mu.Unlock(); return len(next.turns) > 0 })
		if len(next.turns) != 1 || next.turns[0].Generation != 5 {
			t.Errorf("the next owner got %+v", next.turns)
		}
	})
}

// A shard moves from one live node to another one. The next owner asks what a worker holds, before
// the message of the last owner arrives that takes the run away. The worker loses the run at once,
// and the next owner learns about it. A run that arrived at the moment of the question stays.
func TestQuestionBeforeTheLossOfARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, first, second := nodeID(1), nodeID(2), nodeID(3)
		var at, next place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		o.add(t, first, &at, func() []Hands { return nil })
		o.add(t, second, &next, func() []Hands { return nil })
		o.owner = first
		h.SetMembers(view(host, first))
		until(t, "the worker joins", func() bool { return at.only() != nil })
		old, fresh := model.RunID{9}, model.RunID{10}
		activate := func(run model.RunID, n int) {
			at.only().worker.Activate(activation(run, 77))
			until(t, "the worker gets the run", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == n })
		}
		activate(old, 1)
		Ask(t.Context(), desk{&o, first}, []model.NodeID{host})
		if len(worker.lost) > 0 {
			t.Fatalf("the worker has lost %v, although the shard has not moved", worker.lost)
		}

		o.owner, o.old = second, true
		Ask(t.Context(), desk{&o, second}, []model.NodeID{host})
		if len(worker.lost) > 0 {
			t.Fatalf("the worker has lost %v, although the owner of the shard is not known", worker.lost)
		}
		o.old = false
		o.delay = func() { o.delay = nil; activate(fresh, 2) }
		Ask(t.Context(), desk{&o, second}, []model.NodeID{host})
		if !slices.Equal(worker.lost, []model.RunID{old}) {
			t.Errorf("the worker has lost %v", worker.lost)
		}
		next.mu.Lock()
		defer next.mu.Unlock()
		if len(next.held) != 1 || next.held[0].Run != old {
			t.Errorf("the next owner knows of %v", next.held)
		}
	})
}

// A node is asked what its workers hold, and reads which nodes are alive. Before it gets the view,
// another node registers, and the workers join that node. The late view does not end this session.
func TestLateViewEndsNoSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, first, second := nodeID(1), nodeID(2), nodeID(3)
		var at, next place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		o.add(t, first, &at, func() []Hands { return nil })

		run := model.RunID{9}
		o.delay = func() {
			o.delay, o.owner = nil, second
			o.add(t, second, &next, func() []Hands { return nil })
			v := view(host, first, second)
			v.Now++
			h.SetMembers(v)
			until(t, "the worker joins", func() bool { return next.only() != nil })
			next.only().worker.Activate(activation(run, 5))
			until(t, "the worker gets the run", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == 1 })
		}

		Ask(t.Context(), desk{&o, first}, []model.NodeID{host})
		time.Sleep(grace)
		if len(worker.lost) > 0 || next.came != 1 {
			t.Errorf("the worker has lost %v, and workers have come %d times", worker.lost, next.came)
		}
	})
}

// An owner has forgotten the session, because its node has a new incarnation or has not heard from
// the host for too long. It says so, and the host takes everything back and starts another session.
func TestForgottenSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, owner := nodeID(1), nodeID(2)
		var at place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		_, end := o.add(t, owner, &at, func() []Hands { return nil })
		h.SetMembers(view(host, owner))
		until(t, "the worker joins", func() bool { return at.only() != nil })
		at.only().worker.Activate(activation(model.RunID{9}, 1))
		until(t, "the worker gets the run", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == 1 })

		end()
		var again place
		o.add(t, owner, &again, func() []Hands { return nil })
		until(t, "the worker joins again", func() bool { return again.only() != nil })
		worker.mu.Lock()
		defer worker.mu.Unlock()
		if len(worker.lost) != 1 || len(again.held) != 1 {
			t.Errorf("the worker has lost %v, and the owner knows of %v", worker.lost, again.held)
		}
	})
}

// Frames of unknown sessions, late copies and garbage change nothing.
func TestForeignFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, owner := nodeID(1), nodeID(2)
		var at place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		o.add(t, owner, &at, func() []Hands { return nil })
		h.SetMembers(view(host, owner))
		until(t, "the worker joins", func() bool { return at.only() != nil })
		joined := o.kept[0]

		// The session ends and another session begins. Then the first frame of the old session
		// arrives once more.
		h.mu.Lock()
		h.deals[owner].end(errSilent)
		h.mu.Unlock()
		until(t, "the worker joins again", func() bool { at.mu.Lock(); defer at.mu.Unlock(); return at.came == 2 && len(at.runs) == 1 })
		g := at.only()
		tell := func(to model.NodeID, from model.NodeID, body []byte) (answer []byte) {
			o.nodes[to].Handle(from, body, func(b []byte) { answer = b })
			synctest.Wait()
			return answer
		}
		if a := tell(owner, host, joined); len(a) != 1 || a[0] != unknown {
			t.Errorf("a late copy of a first frame is answered with %q", a)
		}

		evict := parcel{Kind: toWorker, Role: 2, Body: pack(&pb.ServerItem{Item: &pb.ServerItem_Evict{Evict: &pb.Evict{Run: wire.Run(model.RunID{9}), Generation: 1}}})}
		for name, f := range map[string]*frame{
			"of another session":      {Session: model.RunID{1}, Side: byOwner, Number: 1, Parcels: []parcel{evict}},
			"of a session to come":    {Session: model.RunID{0xff}, Side: bySender, Number: 3},
			"of a session without id": {Side: bySender, Number: 1},
		} {
			to, from := host, owner
			if f.Side == bySender {
				to, from = owner, host
			}
			if a := tell(to, from, f.encode()); len(a) != 1 || a[0] != unknown {
				t.Errorf("a frame %s is answered with %q", name, a)
			}
		}
		for _, garbage := range [][]byte{nil, {0}, []byte("hello"), bytes.Repeat([]byte{0x9f}, 100), (&frame{Side: 'z', Number: 1}).encode()} {
			tell(owner, host, garbage)
			tell(host, owner, garbage)
		}

		at.mu.Lock()
		defer at.mu.Unlock()
		if at.came != 2 || !at.runs[g] || len(worker.evicted)+len(worker.lost) > 0 {
			t.Errorf("the worker joined %d times, and lost %v %v", at.came, worker.evicted, worker.lost)
		}
	})
}

// Two owners hand a run to the worker, because the first does not know yet that it is no longer the
// owner. Later messages of the first owner do not affect the hand-over of the second.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host := nodeID(1)
		places := []*place{{}, {}}
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		for i, p := range places {
			o.add(t, nodeID(byte(2+i)), p, func() []Hands { return nil })
		}
		h.SetMembers(view(host, nodeID(2), nodeID(3)))
		for _, p := range places {
			until(t, "the worker joins", func() bool { return p.only() != nil })
		}

		run := model.RunID{9}
		for i, p := range places {
			p.only().worker.Activate(activation(run, 1)) // both owners count generations from one
			until(t, "the worker gets the run", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == i+1 })
		}
		old := places[0].only().worker
		old.Evict(run, 1, "late")
		old.Deliver(run, 1, events(3))
		places[1].only().worker.Deliver(run, 1, events(1))
		until(t, "the worker gets the event", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return worker.events > 0 })
		if worker.events != 1 || len(worker.evicted) > 0 {
			t.Errorf("the worker got %d events, and lost %v", worker.events, worker.evicted)
		}
	})
}

// Nodes with the same code have no session. A node that has just started has no code yet, and no
// session either.
func TestDiffer(t *testing.T) {
	t.Parallel()
	same := func(names ...string) (all []store.Member) {
		for _, n := range names {
			m := store.Member{}
			if n != "" {
				m.Serves = []store.Served{{Tenant: "default", Workflow: n}}
			}
			all = append(all, m)
		}
		return all
	}

	versions := func(name string) []store.Member {
		all := same(name, name)
		all[0].Serves[0].Version, all[1].Serves[0].Version = "v1", "v2"
		return all
	}

	for _, c := range []struct {
		want    bool
		members []store.Member
	}{
		{false, same("a", "a")},
		{false, same("a", "", "a")},
		{true, same("a", "", "b")},
		{false, nil},
		{true, versions("a")},
		{false, versions("entity:a")},
	} {
		if got := Differ(c.members); got != c.want {
			t.Errorf("%+v differ: %t", c.members, got)
		}
	}
}

// An owner that has the code of an entity in any version runs the calls itself. For a workflow, it
// needs the version of the worker.
func TestIsServed(t *testing.T) {
	t.Parallel()
	owner := &codeOf{[]store.Served{{Tenant: "t", Workflow: "entity:a", Version: "v1"}, {Tenant: "t", Workflow: "w", Version: "v1"}}}
	entities := &EntityHands{offer: model.EntityOffer{Tenant: "t", Version: "v2"}}
	if !entities.isServed("entity:a", owner) || entities.isServed("entity:b", owner) {
		t.Error("the owner has the code of a, and not of b")
	}
	for version, want := range map[string]bool{"v1": true, "v2": false} {
		workflows := &WorkflowHands{offer: model.Offer{Tenant: "t", Version: version}}
		if got := workflows.isServed("w", owner); got != want {
			t.Errorf("the owner has version %s: %t", version, got)
		}
	}
}

// A shard moves in the moment in which its owner hands over a run. The worker loses the run after
// it has got it, and not before.
func TestRunMovesWhileTheWorkerGetsIt(t *testing.T) {
	t.Parallel()
	worker, o := &hand{}, &outlet{}
	held := map[uint64]bool{}
	var hands *WorkflowHands
	hands = NewWorkflowHands(worker, model.Offer{Tenant: "default"}, HandsConfig{
		Hold: func(_ model.RunID, generation uint64) {
			hands.loseMoved(o, time.Now().Add(time.Hour), func(model.Address) bool { return true })
			held[generation] = true
		},
		Release: func(_ model.RunID, generation uint64) { delete(held, generation) },
	})
	hands.activate(o, activation(model.RunID{9}, 7))
	if len(worker.activated) != 1 || len(worker.lost) != 2 || len(held) != 0 {
		t.Errorf("the worker got %d runs and lost %v; the engine counts %v", len(worker.activated), worker.lost, held)
	}
}
