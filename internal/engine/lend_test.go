package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// lossy is a shared store that loses some of the messages between nodes, and delivers some twice.
type lossy struct {
	common
	mu          sync.Mutex
	rnd         *rand.Rand
	lose, twice float64
	drop        func(store.PeerMail) bool
	// Messages that the store holds back until the sender sends another one.
	hold   func(store.PeerMail) bool
	held   []store.PeerMail
	posted int
	calls  atomic.Int64
}

func (s *lossy) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	s.calls.Add(1)
	s.mu.Lock()
	var kept []store.PeerMail
	for _, r := range rows {
		s.posted++
		if s.rnd.Float64() < s.lose || s.drop != nil && s.drop(r) {
			continue
		}

		if s.hold != nil && s.hold(r) {
			s.held = append(s.held, r)
			continue
		}

		for _, h := range s.held {
			if h.From == r.From {
				kept = append(kept, h)
			}
		}

		s.held = slices.DeleteFunc(s.held, func(h store.PeerMail) bool { return h.From == r.From })
		kept = append(kept, r)
		if s.rnd.Float64() < s.twice {
			r.ID[15]++
			kept = append(kept, r)
		}
	}

	s.mu.Unlock()
	return s.common.PutPeerMail(ctx, kept)
}

func (s *lossy) TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]store.PeerMail, error) {
	s.calls.Add(1)
	return s.common.TakePeerMail(ctx, node, limit, maxBytes)
}

// change changes which messages are lost.
func (s *lossy) change(how func(s *lossy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how(s)
}

func (s *lossy) countPosted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posted
}

// world is some engines on one store.
type world struct {
	t     *testing.T
	st    *lossy
	hints notify.Hub
	wg    sync.WaitGroup
}

func newWorld(t *testing.T, lose, twice float64) *world {
	t.Helper()
	w := &world{t: t, st: &lossy{common: common{memory.New(memory.Options{})}, rnd: rand.New(rand.NewPCG(1, 2)), lose: lose, twice: twice}, hints: &notify.Local{}}
	t.Cleanup(w.wg.Wait)
	return w
}

// node runs an engine. stop ends the engine and waits for its end.
func (w *world) node() (e *engine.Engine, stop func()) {
	w.t.Helper()
	return w.nodeOn(w.st)
}

// nodeOn does the same as node, but the engine runs on the given store.
func (w *world) nodeOn(st store.Store) (e *engine.Engine, stop func()) {
	w.t.Helper()
	e = engine.New(engine.Config{Store: st, Hints: w.hints, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	w.wg.Go(func() {
		defer close(ended)
		if err := e.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	if err := e.Ready(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return e, func() { cancel(); <-ended }
}

// owner runs an engine that has a workflow, and therefore owns the runs.
func (w *world) owner() (*engine.Engine, func()) {
	e, stop := w.node()
	s := &stepper{steps: 1, ran: map[string]int{}}
	s.session = e.Join(s, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	return e, stop
}

// pair is two nodes in a world that loses no messages. One owns runs and has no worker for their
// tasks.
type pair struct {
	*world
	owner, other         *engine.Engine
	stopOwner, stopOther func()
}

// withPair runs a test with a pair, in virtual time.
func withPair(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{world: newWorld(t, 0, 0)}
		p.owner, p.stopOwner = p.world.owner()
		defer p.stopOwner()
		p.other, p.stopOther = p.world.node()
		defer p.stopOther()
		test(t, p)
	})
}

// sendTasks starts n tasks. The key of each task is the name and its number.
//
//arch:parameters a helper of tests, called with literals
func sendTasks(t *testing.T, e *engine.Engine, n int, name string, spec model.TaskSpec) {
	t.Helper()
	for i := range n {
		if _, err := e.Send(t.Context(), submit(fmt.Sprint(name, i), spec)); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitCompleted waits until the given number of tasks with a name have succeeded.
func awaitCompleted(t *testing.T, e *engine.Engine, n int, name string) {
	t.Helper()
	for i := range n {
		if r, err := e.Await(patient(t), submit(fmt.Sprint(name, i), model.TaskSpec{}).To, model.RunID{}); err != nil || r.Outcome.Status != model.Completed {
			t.Errorf("task %d: %v, %v", i, r.Outcome, err)
		}
	}
}

// settle waits until shards have moved to their owners.
func settle() { time.Sleep(10 * time.Second) }

// patient returns a context with a very long time-out, which costs nothing in virtual time.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

func successOf(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} }

func execute(t *testing.T, e *engine.Engine, n int, spec model.TaskSpec) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r, err := e.ExecuteToEnd(patient(t), submit(fmt.Sprint("task ", i), spec))
			if err != nil || r.Outcome.Status != model.Completed {
				t.Errorf("task %d: %v, %v", i, r.Outcome, err)
			}
		})
	}
	wg.Wait()
}

// Workers of another node execute the tasks of a node that has no worker for them, each once.
func TestTasksOfAnotherNode(t *testing.T) {
	t.Parallel()
	withPair(t, func(t *testing.T, p *pair) {
		h := newHand(p.other, 10, successOf)
		settle()
		began := time.Now()
		execute(t, p.owner, 100, model.TaskSpec{})
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.claims); n != 100 {
			t.Errorf("%d claims, want 100", n)
		}
	})
}

// Messages between nodes are lost or duplicated, and nodes join and leave. Every task ends, and
// none is executed twice without a reason.
func TestTasksOfAnotherNodeWithLostMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0.3, 0.1)
		a, stopA := w.owner()
		b, stopB := w.node()
		defer stopB()
		c, stopC := w.node()
		defer stopC()
		var mu sync.Mutex
		attempts := map[string]int{}

		work := func(c model.Claim) *model.TaskReport {
			mu.Lock()
			attempts[string(c.Input.Data)]++
			mu.Unlock()
			time.Sleep(time.Duration(len(c.Input.Data)) * 100 * time.Millisecond)
			return successOf(c)
		}

		newHand(b, 5, work)
		newHand(c, 5, work)
		settle()
		var wg sync.WaitGroup
		wg.Go(func() { execute(t, b, 300, model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}}) })
		time.Sleep(5 * time.Second)
		_, stopD := w.owner() // shards move to the new node
		time.Sleep(20 * time.Second)
		stopA() // the other shards move, too
		wg.Wait()
		defer stopD()
		_ = a

		for key, n := range attempts {
			if n != 1 {
				t.Errorf("%s was executed %d times", key, n)
			}
		}

		if len(attempts) != 300 {
			t.Errorf("%d tasks were executed", len(attempts))
		}
	})
}

// Two nodes have equal workers, and one of the nodes owns all tasks. The nodes share the tasks as
// long as more tasks wait at the owner than the owner has slots.
func TestTasksAreShared(t *testing.T) {
	t.Parallel()
	withPair(t, func(t *testing.T, p *pair) {
		work := func(c model.Claim) *model.TaskReport {
			time.Sleep(100 * time.Millisecond)
			return successOf(c)
		}
		ha, hb := newHand(p.owner, 5, work), newHand(p.other, 5, work)
		settle()
		began := time.Now()
		execute(t, p.owner, 500, model.TaskSpec{})
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("it took %s, with 10 slots of 100 ms", took)
		}
		t.Log(len(ha.claims), len(hb.claims), p.st.countPosted())
		if n := len(hb.claims); n < 150 || n > 350 {
			t.Errorf("the other node has executed %d of 500", n)
		}
	})
}

// A cancel reaches the worker immediately, wherever the worker is. So does the time-out of a task.
// A task that sends heartbeats does not time out.
func TestWordsToAWorkerOfAnotherNode(t *testing.T) {
	t.Parallel()
	withPair(t, func(t *testing.T, p *pair) {
		a := p.owner
		var h *hand
		h = newHand(p.other, 10, func(c model.Claim) *model.TaskReport {
			switch string(c.Input.Data) {
			case `"beats"`:
				for range 5 {
					time.Sleep(time.Second)
					p := model.Payload{Data: []byte("50 %")}
					if held, _, err := h.session.Beat(t.Context(), c.Ref, &p); !held || err != nil {
						t.Errorf("the beat: %v, %v", held, err)
					}
					if err := h.session.Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if c.Attempt == 1 {
					return failureOf("once more")
				}
				return &model.TaskReport{Output: c.Progress}
			default:
				return nil // the body hangs and makes no report
			}
		})

		settle()
		got := make(chan string, 1)
		go func() {
			r, err := a.ExecuteToEnd(patient(t), submit("beats", model.TaskSpec{Silence: 2 * time.Second, Retry: model.Retry{MaxAttempts: 2}}))
			got <- fmt.Sprint(string(r.Outcome.Output.Data), err)
		}()

		for key, spec := range map[string]model.TaskSpec{
			"silent": {Silence: 2 * time.Second, Retry: model.Retry{MaxAttempts: 1}}, "slow": {ToClose: 2 * time.Second, Retry: model.Retry{MaxAttempts: 1}}, "canceled": {},
		} {
			m := submit(key, spec)
			if _, err := a.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}

			begun := func() int {
				n := 0
				for _, c := range h.claims {
					if string(c.Input.Data) == `"`+key+`"` {
						n++
					}
				}
				return n
			}

			h.until(func() bool { return begun() == 1 })
			if key == "canceled" {
				if _, err := a.Send(t.Context(), &model.Message{Kind: model.MessageCancel, To: m.To}); err != nil {
					t.Fatal(err)
				}
			}

			at, stopped := time.Now(), len(h.stopped)
			h.until(func() bool { return len(h.stopped) > stopped })
			if took := time.Since(at); took > 2200*time.Millisecond || key == "canceled" && took > 100*time.Millisecond {
				t.Errorf("%s: the worker heard of it after %s", key, took)
			}
		}

		if s := <-got; s != "50 %<nil>" {
			t.Errorf("what beats has ended with %s", s)
		}
	})
}

// A run moves while a worker executes one of its tasks. The worker continues. Its heartbeats and
// its progress reach the next owner, and a cancel of the next owner reaches the worker.
func TestTaskOfARunThatMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		a, stopA := w.owner()
		h := newHand(a, 50, func(model.Claim) *model.TaskReport { return nil })
		const n = 40
		sendTasks(t, a, n, "", model.TaskSpec{Silence: 30 * time.Second, Retry: model.Retry{MaxAttempts: 1}})
		h.until(func() bool { return len(h.claims) == n })
		b, stopB := w.owner()
		defer stopB()

		beat := func() {
			for _, c := range h.claims {
				if held, _, err := h.session.Beat(t.Context(), c.Ref, &model.Payload{Data: []byte("half")}); !held || err != nil {
					t.Fatalf("the beat: %v, %v", held, err)
				}
			}
			if err := h.session.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			beat()
		}

		for i := range n {
			if _, err := b.Send(t.Context(), &model.Message{Kind: model.MessageCancel, To: submit(fmt.Sprint(i), model.TaskSpec{}).To}); err != nil {
				t.Fatal(err)
			}
		}

		at := time.Now()
		h.until(func() bool { return len(h.stopped) == n })
		if took := time.Since(at); took > 100*time.Millisecond {
			t.Errorf("the worker heard of the cancels after %s", took)
		}

		for _, c := range h.claims {
			if err := h.session.Report(t.Context(), model.TaskReport{Ref: c.Ref, Output: model.Payload{Data: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
		}

		awaitCompleted(t, b, n, "")
		stopA()
	})
}

// If the node of a claim is gone, the task starts again, and this uses up an attempt. A task that
// only waited for a free slot of that node starts with its first attempt.
func TestLostClaimsOfAnotherNode(t *testing.T) {
	t.Parallel()
	withPair(t, func(t *testing.T, p *pair) {
		var mu sync.Mutex
		var attempts []int
		note := func(c model.Claim) *model.TaskReport {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, c.Attempt)
			return nil
		}

		newHand(p.other, 1, note)
		settle()
		if _, err := p.owner.Send(t.Context(), submit("x", model.TaskSpec{Retry: model.Retry{Initial: time.Second}})); err != nil {
			t.Fatal(err)
		}
		settle()

		// The messages between the nodes get lost. Both nodes still renew their leases.
		p.st.change(func(s *lossy) { s.lose = 1 })
		if _, err := p.owner.Send(t.Context(), submit("y", model.TaskSpec{})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.st.change(func(s *lossy) { s.lose = 0 })
		p.stopOther() // the claim of x is lost with its node
		c, stopC := p.world.node()
		defer stopC()
		newHand(c, 5, note)
		settle()
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(attempts); got != "[1 2 1]" && got != "[1 1 2]" {
			t.Errorf("attempts %s, want 1, and then 2 of x and 1 of y", got)
		}
	})
}

// Nodes without work for each other send no messages.
func TestIdleNodesSayNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		a, stopA := w.owner()
		defer stopA()
		b, stopB := w.owner()
		defer stopB()
		newHand(a, 100, successOf)
		newHand(b, 100, successOf)
		settle()
		// Nodes with equal workers and free slots send no messages either.
		execute(t, a, 50, model.TaskSpec{})
		time.Sleep(time.Hour)
		if n := w.st.calls.Load(); n != 0 {
			t.Errorf("%d calls for messages", n)
		}
	})
}

// The owner of a run stops before a worker of another node has received its claim. The next owner
// asks that node. If that node does not have the claim, the task starts again, as if it had not
// been claimed.
func TestClaimThatNobodyHeardOf(t *testing.T) {
	t.Parallel()
	// With three tasks, the next owner has other tasks for the node, so the node polls anyway.
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			claimThatNobodyHeardOf(t, n)
		})
	}
}

func claimThatNobodyHeardOf(t *testing.T, n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		a, stopA := w.owner()
		v, err := w.st.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first := v.Members[0].ID
		w.st.drop = func(m store.PeerMail) bool { return m.From == first && m.Body[0] == 'a' }
		b, stopB := w.node()
		defer stopB()
		h := newHand(b, 1, successOf)
		settle()
		sendTasks(t, a, n, "", model.TaskSpec{})
		settle()
		c, stopC := w.owner()
		defer stopC()
		stopA()
		at := time.Now()
		awaitCompleted(t, c, n, "")
		if took := time.Since(at); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		h.mu.Lock()
		defer h.mu.Unlock()

		for _, c := range h.claims {
			if c.Attempt != 1 {
				t.Errorf("attempt %d", c.Attempt)
			}
		}

		if len(h.claims) != n {
			t.Errorf("%d claims, want %d", len(h.claims), n)
		}
	})
}

// A caller lets another node execute one task after the other. It waits only for the messages
// between the nodes.
func TestOneTaskAfterTheOther(t *testing.T) {
	t.Parallel()
	withPair(t, func(t *testing.T, p *pair) {
		newHand(p.other, 3, successOf)
		settle()
		// The worst case: an answer without further tasks arrives together with the next knock.
		p.st.change(func(s *lossy) {
			s.hold = func(m store.PeerMail) bool {
				a, err := peer.Decode[peer.PollReply](m.Body[1:])
				return m.Body[0] == 'a' && err == nil && !slices.ContainsFunc(a.Entries, func(e peer.Entry) bool { return e.Claim != nil })
			}
		})

		began := time.Now()
		for i := range 200 {
			if r, err := p.owner.ExecuteToEnd(patient(t), submit(fmt.Sprint(i), model.TaskSpec{})); err != nil || r.Outcome.Status != model.Completed {
				t.Fatalf("task %d: %v, %v", i, r.Outcome, err)
			}
			time.Sleep(time.Duration(i%7) * time.Millisecond)
		}

		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("200 tasks took %s", took)
		}
	})
}

// A node loses its lease while its worker executes tasks of another node. The worker learns once
// for each claim that the claim is over, and all its slots are free again.
func TestLenderThatStartsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		a, stopA := w.owner()
		defer stopA()
		st := &deaf{Store: w.st}
		b, stopB := w.nodeOn(st)
		defer stopB()
		var hang atomic.Bool
		hang.Store(true)

		h := newHand(b, 4, func(c model.Claim) *model.TaskReport {
			if hang.Load() {
				return nil
			}
			time.Sleep(time.Second)
			return successOf(c)
		})

		settle()
		sendTasks(t, a, 4, "hangs ", model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}})
		h.until(func() bool { return len(h.claims) == 4 })
		st.deaf.Store(true)
		time.Sleep(time.Minute) // node a takes its place
		hang.Store(false)
		st.deaf.Store(false)
		h.until(func() bool { return len(h.stopped) >= 4 })
		settle()
		h.mu.Lock()
		if n := len(h.stopped); n != 4 {
			t.Errorf("the worker was told %d times that one of its 4 tasks is over", n)
		}
		h.mu.Unlock()
		began := time.Now()
		execute(t, a, 8, model.TaskSpec{})
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("8 tasks of a second on 4 slots took %s", took)
		}
	})
}

// The owner of a run ends a claim, and stops before it has told the node whose worker executes the
// claim. Then that node gets the run. The worker still learns that the claim is over.
func TestLenderThatInherits(t *testing.T) {
	t.Parallel()
	withPair(t, func(t *testing.T, p *pair) {
		h := newHand(p.other, 4, func(model.Claim) *model.TaskReport { return nil })
		settle()
		sendTasks(t, p.owner, 4, "hangs ", model.TaskSpec{ToClose: 10 * time.Second, Retry: model.Retry{MaxAttempts: 1}})
		h.until(func() bool { return len(h.claims) == 4 })
		p.st.change(func(s *lossy) { s.drop = func(store.PeerMail) bool { return true } })
		time.Sleep(11 * time.Second)
		p.stopOwner()
		p.st.change(func(s *lossy) { s.drop = nil })
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.stopped); n != 4 {
			t.Errorf("the worker has heard of %d of its 4 tasks that they are over", n)
		}
	})
}
