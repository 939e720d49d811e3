package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// clerks has the code of an entity whose state is a list, and of a service that counts its calls by
// input.
type clerks struct {
	session *engine.EntitySession
	joined  chan struct{} // closed when there is a session
	pace    time.Duration
	mu      *sync.Mutex
	rang    map[string]int
}

func (c *clerks) Operate(o model.Operations) {
	go func() {
		<-c.joined
		time.Sleep(c.pace)
		res := model.Operated{Entity: o.Entity, Generation: o.Generation, State: o.State, Exists: o.Exists}
		for _, call := range o.Calls {
			switch in := string(call.Input.Data); call.Name {
			case "add":
				res.State, res.Exists, res.Changed = model.TextPayload(string(res.State.Data)+in+";"), true, true
			case "ring":
				c.mu.Lock()
				c.rang[in]++
				c.mu.Unlock()
			}
			res.Results = append(res.Results, model.OperationResult{Output: res.State})
		}
		_ = c.session.FinishCalls(context.Background(), res)
	}()
}

func joinClerks(e *engine.Engine, c *clerks) {
	c.joined = make(chan struct{})
	defer close(c.joined)
	c.session = e.JoinEntities(c, model.EntityOffer{Tenant: model.DefaultTenant, Types: []model.EntityType{
		{Type: "entity:list", Views: []string{"read"}}, {Type: "service:bell"},
	}})
}

func list(key string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: "entity:list", Key: key}
}

func stateOf(t testing.TB, st store.Store, a model.Address) string {
	t.Helper()
	got, err := st.LoadEntity(t.Context(), store.EntityKey{Shard: a.Shard(st.Info().Shards), Address: a}, 1000, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Mailbox) > 0 {
		t.Errorf("%d calls of %s are left", len(got.Mailbox), a)
	}
	if got.Entity == nil {
		return ""
	}
	return string(got.Entity.State.Data)
}

// Nodes join, die and leave. Each call runs once, wherever it comes from. Brief calls run at most
// once.
func TestEntitiesAmongNodes(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{false, true} {
		t.Run(fmt.Sprint("linked=", linked), func(t *testing.T) {
			t.Parallel()
			testEntitiesAmongNodes(t, linked)
		})
	}
}

func testEntitiesAmongNodes(t *testing.T, linked bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		if linked {
			r.lan = &lan.LAN{}
		}
		var mu sync.Mutex
		rang := map[string]int{}

		join := func() *member {
			m := r.join(0, nil)
			joinClerks(m.Engine, &clerks{pace: time.Millisecond, mu: &mu, rang: rang})
			return m
		}

		first, second := join(), join()
		time.Sleep(15 * time.Second)
		var calls sync.WaitGroup

		var answered atomic.Int64
		for i := range 300 {
			m := r.nodes[i%2]
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				call := &model.Message{Kind: model.MessageCall, To: list(fmt.Sprint(i % 7)), Name: "add", Input: model.TextPayload(fmt.Sprint(i)), RequestID: fmt.Sprint("r", i)}
				call.OneWay = i%3 == 0

				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					a, err := m.Call(ctx, call, false)
					cancel()
					if err == nil {
						answered.Add(1)
						if !call.OneWay && !strings.Contains(string(a.Output.Data), fmt.Sprint(i, ";")) {
							t.Errorf("%d is answered %s", i, a.Output.Data)
						}
						break
					}
					m = r.nodes[2] // the node of the caller is gone
				}

				bell := model.Message{Kind: model.MessageCall, To: model.Address{Tenant: model.DefaultTenant, Type: "service:bell", Key: fmt.Sprint(i)}, Name: "ring", Input: model.TextPayload(fmt.Sprint(i)), Brief: true}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := m.Call(ctx, &bell, false)
				mu.Lock()
				defer mu.Unlock()
				if n := rang[fmt.Sprint(i)]; n > 1 || err == nil && n != 1 {
					t.Errorf("bell %d rang %d times: %v", i, n, err)
				}
			})
		}

		time.Sleep(5 * time.Second)
		third := join()
		time.Sleep(5 * time.Second)
		second.cut.Store(true) // as far as the other nodes can see, this node is dead
		time.Sleep(15 * time.Second)
		first.stop()
		if err := <-first.done; err != nil {
			t.Error(err)
		}
		calls.Wait()
		time.Sleep(5 * time.Second)

		seen := map[string]int{}
		for k := range 7 {
			for in := range strings.SplitSeq(strings.TrimSuffix(stateOf(t, r.st, list(fmt.Sprint(k))), ";"), ";") {
				seen[in]++
			}
		}

		for i := range 300 {
			if seen[fmt.Sprint(i)] != 1 {
				t.Errorf("%d was added %d times", i, seen[fmt.Sprint(i)])
			}
		}

		if answered.Load() != 300 {
			t.Errorf("%d answers", answered.Load())
		}
		second.stop()
		<-second.done
		third.stop()
		<-third.done
	})
}

// A worker that leaves reports its calls. Later calls wait for the next worker. If a caller gives
// up before a worker has started its call, the call does not run.
func TestEntityWorkerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e, stop := open(t, st)
		defer stop()
		w := &clerks{pace: time.Second}
		joinClerks(e, w)

		add := func(in string, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := e.Call(ctx, &model.Message{Kind: model.MessageCall, To: list("a"), Name: "add", Input: model.TextPayload(in)}, false)
			return err
		}

		made := make(chan error, 1)
		go func() { made <- add("1", time.Minute) }()
		synctest.Wait()
		if err := w.session.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-made; err != nil {
			t.Error(err)
		}
		if err := add("2", time.Minute); !fault.Is(err, fault.Timeout) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call without a worker: %v", err)
		}
		synctest.Wait()
		joinClerks(e, w)
		if err := add("3", time.Minute); err != nil {
			t.Error(err)
		}
		if got := stateOf(t, st, list("a")); got != "1;3;" {
			t.Errorf("state %q", got)
		}
		if err := w.session.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No call is lost when a worker leaves in order, even if the call may run only once. The worker
// also reports calls that it gets while it leaves.
func TestEntityWorkerLeavesInOrder(t *testing.T) {
	t.Parallel()
	e, stop := open(t, memory.New(memory.Options{}))
	defer stop()
	stays := &hands{}
	stays.join(e, "service:bell")
	ctx, cancel := context.WithCancel(t.Context())

	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			bell := model.Address{Tenant: model.DefaultTenant, Type: "service:bell", Key: fmt.Sprint(i)}
			for ctx.Err() == nil {
				if _, err := e.Call(ctx, &model.Message{Kind: model.MessageCall, To: bell, Name: "ring", Brief: true}, false); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}

	for range 100 {
		leaves := &hands{}
		leaves.join(e, "service:bell")
		<-leaves.busy
		if err := leaves.session.Leave(ctx); err != nil {
			t.Error(err)
		}
	}

	cancel()
	callers.Wait()
}

// BenchmarkEntityCalls calls operations of entities on the memory store: of one entity, and of as
// many as there are callers.
func BenchmarkEntityCalls(b *testing.B) {
	for _, many := range []bool{false, true} {
		b.Run(map[bool]string{false: "one", true: "many"}[many], func(b *testing.B) {
			e, stop := open(b, memory.New(memory.Options{}))
			defer stop()
			w := &hands{}
			w.join(e, "entity:list")
			var n atomic.Int64
			b.SetParallelism(64)

			b.RunParallel(func(pb *testing.PB) {
				key := "a"
				if many {
					key = fmt.Sprint(n.Add(1))
				}
				for pb.Next() {
					if _, err := e.Call(context.Background(), &model.Message{Kind: model.MessageCall, To: list(key), Name: "add"}, false); err != nil && !errors.Is(err, lane.ErrNotOwner) {
						b.Error(err)
					}
				}
			})
		})
	}
}

// hands is a worker that finishes every call immediately.
type hands struct {
	session *engine.EntitySession
	joined  chan struct{}
	made    atomic.Int64
	busy    chan struct{} // closed with the twentieth hand-over
}

func (w *hands) join(e *engine.Engine, what string) {
	w.joined, w.busy = make(chan struct{}), make(chan struct{})
	w.session = e.JoinEntities(w, model.EntityOffer{Tenant: model.DefaultTenant, Types: []model.EntityType{{Type: what}}})
	close(w.joined)
}

func (w *hands) Operate(o model.Operations) {
	go func() {
		<-w.joined
		if w.made.Add(1) == 20 {
			close(w.busy)
		}
		res := model.Operated{Entity: o.Entity, Generation: o.Generation, State: model.TextPayload(fmt.Sprint(o.Generation)), Exists: true, Changed: true}
		res.Results = make([]model.OperationResult, len(o.Calls))
		_ = w.session.FinishCalls(context.Background(), res)
	}()
}
