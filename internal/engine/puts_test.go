package engine_test

import (
	"context"
	"fmt"
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

// slowPuts is a store that is slow to take requests. It counts the transactions.
type slowPuts struct {
	wire
	puts, rows, watches, loads *atomic.Int64
}

func (s slowPuts) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	s.puts.Add(1)
	s.rows.Add(int64(len(rows)))
	for i := range rows {
		if rows[i].Message.Kind == model.MessageWatch {
			s.watches.Add(1)
		}
		if rows[i].Message.Name == "bad" {
			return store.Errorf(store.Refused, "put inbox", "a bad request")
		}
	}
	time.Sleep(10 * time.Millisecond)
	return s.Store.PutInbox(ctx, rows)
}

func (s slowPuts) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	s.loads.Add(1)
	return s.Store.LoadExecution(ctx, shard, a, run)
}

// twoNodes are nodes without connections between them.
type twoNodes struct {
	store  slowPuts
	nodes  []*engine.Engine
	cut    [2]atomic.Bool
	cancel context.CancelFunc
	done   chan error
}

func openTwo(t *testing.T, hints notify.Hub) *twoNodes {
	t.Helper()
	w := &twoNodes{done: make(chan error, 2)}
	w.store = slowPuts{wire{memory.New(memory.Options{}), &atomic.Bool{}}, new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel

	for i := range 2 {
		st := w.store
		st.cut = &w.cut[i]
		e := engine.New(engine.Config{Store: st, Hints: hints})
		go func() { w.done <- e.Run(ctx) }()
		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		a := newAnswerer(e)
		close(a.may)
		w.nodes = append(w.nodes, e)
	}

	time.Sleep(15 * time.Second)
	return w
}

func (w *twoNodes) close() {
	w.cancel()
	<-w.done
	<-w.done
}

// Requests of one process that go through the store share transactions. A caller that starts an
// execution and waits for its end sends only one request. A bad request fails without affecting
// others.
func TestRequestsThroughTheStoreAreCheap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openTwo(t, &notify.Local{})
		defer w.close()
		const n = 200
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if _, err := w.nodes[0].ExecuteToEnd(t.Context(), start(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		if rows, puts := w.store.rows.Load(), w.store.puts.Load(); rows == 0 || rows >= n || puts > 4 {
			t.Errorf("%d requests in %d transactions", rows, puts)
		}

		for i := range n {
			wg.Go(func() {
				if _, err := w.nodes[0].Send(t.Context(), &model.Message{Kind: model.MessageTerminate, To: start(fmt.Sprint(i)).To}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if w.store.watches.Load() > 0 || w.store.loads.Load() > 0 {
			t.Errorf("%d requests to watch, and %d reads of executions", w.store.watches.Load(), w.store.loads.Load())
		}

		var bad atomic.Int64
		for i := range n {
			wg.Go(func() {
				m := &model.Message{Kind: model.MessageSignal, To: start(fmt.Sprint(i)).To, Name: "s", Input: model.TextPayload("x")}
				if i%50 == 0 {
					m.Name = "bad"
				}
				if _, err := w.nodes[0].Send(t.Context(), m); store.ClassOf(err) == store.Refused && err != nil {
					bad.Add(1)
				}
			})
		}
		wg.Wait()
		if bad.Load() > 4 {
			t.Errorf("%d requests failed because of a bad one", bad.Load())
		}
	})
}

// A caller waits for an execution of a dead node. As soon as its own node owns the execution, that
// node answers the caller. Nothing else would wake the caller, because there are no hints.
func TestWaiterOfAShardThatComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openTwo(t, notify.NoHub{})
		const n = 16
		for i := range n {
			if _, err := w.nodes[0].Send(t.Context(), start(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		type end struct {
			at  time.Time
			err error
		}
		ended := make(chan end, n)
		for i := range n {
			go func() {
				_, err := w.nodes[1].Await(t.Context(), start(fmt.Sprint(i)).To, model.RunID{})
				ended <- end{time.Now(), err}
			}()
		}

		time.Sleep(time.Second)
		w.cut[0].Store(true)
		time.Sleep(30*time.Second + 300*time.Millisecond)
		for i := range n {
			begun := time.Now()
			if _, err := w.nodes[1].Send(t.Context(), &model.Message{Kind: model.MessageTerminate, To: start(fmt.Sprint(i)).To}); err != nil {
				t.Fatal(err)
			}
			if e := <-ended; e.err != nil || e.at.Sub(begun) > 50*time.Millisecond {
				t.Errorf("the caller learned after %s: %v", e.at.Sub(begun), e.err)
			}
		}
		w.cut[0].Store(false)
		w.close()
	})
}

// quick is a worker that ends each run immediately, and notes when.
type quick struct {
	*answerer

	mu    sync.Mutex
	ended map[string]time.Time // by key
}

func (w *quick) Activate(a *model.Activation) {
	w.mu.Lock()
	w.ended[a.Start.Address.Key] = time.Now()
	w.mu.Unlock()
	t := model.Turn{Run: a.Start.Run, Generation: a.Generation, Close: &model.Close{Status: model.Completed}}
	go func() { _ = w.session.Report(context.Background(), t) }()
}

// Callers start runs on the shards of a dead process, and wait for their ends. The requests wait in
// the store until the callers' own process takes the shards over. Each caller gets its answer when
// its run ends, although no other process can say so.
func TestRequestThatItsOwnProcessServesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openTwo(t, notify.NoHub{})
		defer w.close()
		worker := &quick{answerer: &answerer{}, ended: map[string]time.Time{}}
		worker.session = w.nodes[0].Join(worker, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"quick"}})
		w.cut[1].Store(true)

		began := time.Now()
		var wg sync.WaitGroup
		var waited atomic.Int64
		for i := range 40 {
			wg.Go(func() {
				m := start(fmt.Sprint(i))
				m.To.Type = "quick"
				if _, err := w.nodes[0].ExecuteToEnd(t.Context(), m); err != nil {
					t.Error(err)
					return
				}

				worker.mu.Lock()
				defer worker.mu.Unlock()
				ended := worker.ended[m.To.Key]
				if ended.Sub(began) > 2*time.Second {
					waited.Add(1)
				}
				if late := time.Since(ended); late > 100*time.Millisecond {
					t.Errorf("run %d had ended %s before its caller knew it", i, late)
				}
			})
		}
		wg.Wait()

		if waited.Load() == 0 {
			t.Error("no request waited for the shards of the dead process")
		}
	})
}
