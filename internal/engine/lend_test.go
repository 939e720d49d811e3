package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// lossy is a shared store that loses some of the letters between nodes, and delivers some twice.
type lossy struct {
	common
	mu          sync.Mutex
	rnd         *rand.Rand
	lose, twice float64
	posted      int
	calls       atomic.Int64
}

func (s *lossy) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	s.calls.Add(1)
	s.mu.Lock()
	var kept []store.PeerMail
	for _, r := range rows {
		s.posted++
		if s.rnd.Float64() < s.lose {
			continue
		}
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

func (s *lossy) letters() int {
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

// node runs an engine until stop, which waits for its end.
func (w *world) node() (e *engine.Engine, stop func()) {
	w.t.Helper()
	e = engine.New(engine.Config{Store: w.st, Hints: w.hints, Log: slog.New(slog.DiscardHandler)})
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

// owner runs an engine that has a workflow and so owns the runs.
func (w *world) owner() (*engine.Engine, func()) {
	e, stop := w.node()
	s := &stepper{steps: 1, ran: map[string]int{}}
	s.session = e.Join(s, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	return e, stop
}

// settle waits until shards have moved to where they belong.
func settle() { time.Sleep(10 * time.Second) }

func done(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} }

func execute(t *testing.T, e *engine.Engine, n int, spec model.TaskSpec) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r, err := e.Execute(t.Context(), submit(fmt.Sprint("task ", i), spec))
			if err != nil || r.Outcome.Status != model.Completed {
				t.Errorf("task %d: %v, %v", i, r.Outcome, err)
			}
		})
	}
	wg.Wait()
}

// Tasks of a node that has no worker for them are executed by the workers of another one, each once.
func TestTasksOfAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		a, stopA := w.owner()
		defer stopA()
		b, stopB := w.node()
		defer stopB()
		h := newHand(b, 10, done)
		settle()
		began := time.Now()
		execute(t, a, 100, model.TaskSpec{})
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

// Whatever of what nodes say is lost or comes twice, and whoever comes and goes meanwhile: every task ends, and none is executed twice without a reason.
func TestTasksOfAnotherNodeWithLostLetters(t *testing.T) {
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
			return done(c)
		}
		newHand(b, 5, work)
		newHand(c, 5, work)
		settle()
		var wg sync.WaitGroup
		wg.Go(func() { execute(t, b, 300, model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}}) })
		time.Sleep(5 * time.Second)
		_, stopD := w.owner() // shards move
		time.Sleep(20 * time.Second)
		stopA() // and back
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

// Two nodes with the same workers share the tasks of one of them, as long as more wait there than it has slots.
func TestTasksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		a, stopA := w.owner()
		defer stopA()
		b, stopB := w.node()
		defer stopB()
		work := func(c model.Claim) *model.TaskReport {
			time.Sleep(100 * time.Millisecond)
			return done(c)
		}
		ha, hb := newHand(a, 5, work), newHand(b, 5, work)
		settle()
		began := time.Now()
		execute(t, a, 500, model.TaskSpec{})
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("it took %s, with 10 slots of 100 ms", took)
		}
		t.Log(len(ha.claims), len(hb.claims), w.st.letters())
		if n := len(hb.claims); n < 150 || n > 350 {
			t.Errorf("the other node has executed %d of 500", n)
		}
	})
}
