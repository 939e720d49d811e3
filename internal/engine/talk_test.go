package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// answerer is a worker that answers queries immediately, and updates when the test allows it.
type answerer struct {
	session *engine.Session
	asked   atomic.Int64
	may     chan struct{} // closed when updates may be answered
}

func newAnswerer(e *engine.Engine) *answerer {
	w := &answerer{may: make(chan struct{})}
	w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	return w
}

func (w *answerer) Activate(a *model.Activation) { w.Deliver(a.Start.Run, a.Generation, a.Events) }

func (w *answerer) Deliver(run model.RunID, gen uint64, events []model.Event) {
	t := model.Turn{Run: run, Generation: gen, Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}}}
	for _, e := range events {
		t.Seen = e.Seq
		if e.Kind == model.EventUpdateReceived {
			t.Commands = append(t.Commands, model.Command{Kind: model.CommandAnswer, Event: model.Event{ID: "u", Ref: e.Seq, Output: e.Input}})
		}
	}
	go func() {
		if len(t.Commands) > 0 {
			<-w.may
		}
		_ = w.session.Report(context.Background(), t)
	}()
}

func (w *answerer) Retry(model.RunID, uint64, string) {}
func (w *answerer) Evict(model.RunID, uint64, string) {}

func (w *answerer) Query(run model.RunID, gen uint64, q model.Query) {
	w.asked.Add(1)
	go w.session.Answer(run, gen, q.ID, q.Input, nil)
}

func (*answerer) Taken(model.RunID, uint64) {}

func (w *answerer) Recall(_ model.Address, run model.RunID, gen uint64, q model.Query) {
	w.Query(run, gen, q)
}

func query(key string) *model.Message {
	return &model.Message{Kind: model.MessageQuery, To: start(key).To, Name: "q", Input: model.Payload{Data: []byte("42")}}
}

// shut is a deaf store that refuses registrations as well.
type shut struct{ deaf }

func (s *shut) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	if !s.deaf.deaf.Load() {
		return s.Store.Register(ctx, n, lanes, ttl)
	}
	return store.Registration{}, store.Errorf(store.Away, "register", "shut")
}

// A node that is not sure of its lease answers no query. While the caller waits, the node asks its
// workers again only after a pause. It answers again when it can.
func TestQueryWithoutLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &shut{deaf{Store: memory.New(memory.Options{})}}
		const lease = 10 * time.Second
		e := engine.New(engine.Config{Store: st, LeaseTTL: lease})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}

		w := newAnswerer(e)
		if _, err := e.Send(ctx, start("a")); err != nil {
			t.Fatal(err)
		}
		if a, err := e.Query(ctx, query("a")); err != nil || string(a.Output.Data) != "42" {
			t.Fatalf("query = %+v, %v", a, err)
		}

		st.deaf.deaf.Store(true)
		time.Sleep(lease)
		before := w.asked.Load()
		short, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if a, err := e.Query(short, query("a")); !fault.Is(err, fault.Timeout) && !fault.Is(err, fault.Unavailable) {
			t.Errorf("query without a lease = %+v, %v", a, err)
		}
		if n := w.asked.Load() - before; n > 30 {
			t.Errorf("the code was asked %d times within a second", n)
		}
		st.deaf.deaf.Store(false)
		long, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		if a, err := e.Query(long, query("a")); err != nil || string(a.Output.Data) != "42" {
			t.Errorf("query with a lease = %+v, %v", a, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// common is a store that several nodes share.
type common struct{ store.Store }

func (c common) Info() store.Info {
	i := c.Store.Info()
	i.Shared = true
	return i
}

// Several callers of one process wait for the answer to the same request, whichever node owns its
// execution. If one of them gives up, the others are not affected.
func TestCallersOfOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, hints := common{memory.New(memory.Options{})}, &notify.Local{}
		ctx, cancel := context.WithCancel(t.Context())
		var engines []*engine.Engine
		var workers []*answerer

		done := make(chan error, 2)
		for range 2 {
			e := engine.New(engine.Config{Store: st, Hints: hints})
			go func() { done <- e.Run(ctx) }()
			if err := e.Ready(ctx); err != nil {
				t.Fatal(err)
			}
			engines, workers = append(engines, e), append(workers, newAnswerer(e))
		}

		time.Sleep(time.Minute) // until the shards have moved
		if _, err := engines[0].Send(ctx, start("a")); err != nil {
			t.Fatal(err)
		}
		update := func() *model.Message {
			return &model.Message{Kind: model.MessageUpdate, To: start("a").To, Name: "u", RequestID: "once", Input: model.Payload{Data: []byte("42")}}
		}
		short, end := context.WithTimeout(ctx, 5*time.Second)
		defer end()

		errs := make(chan error, 8)
		for _, e := range engines {
			for _, c := range []context.Context{short, ctx, ctx, short} {
				go func() {
					a, err := e.Send(c, update())
					if c == short {
						if err == nil {
							t.Error("an answer came before it was given")
						}
						err = nil
					} else if string(a.Output.Data) != "42" {
						t.Errorf("the answer is %q", a.Output.Data)
					}
					errs <- err
				}()
			}
		}

		time.Sleep(10 * time.Second)
		for _, w := range workers {
			close(w.may)
		}

		for range 8 {
			select {
			case err := <-errs:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a caller waits forever")
			}
		}

		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// fenced is a store that says once that the node has lost its lease.
type fenced struct {
	store.Store
	once atomic.Bool
}

func (f *fenced) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if f.once.CompareAndSwap(true, false) {
		return store.View{}, store.Errorf(store.Fenced, "renew", "another node was quicker")
	}
	return f.Store.Renew(ctx, r)
}

// slowCode is a worker whose workflow answers its update only when the worker gets the run for the
// second time.
type slowCode struct {
	session *engine.Session
	handed  atomic.Int32
	got     chan struct{} // an update has been delivered
}

func (w *slowCode) Activate(a *model.Activation) {
	n := w.handed.Add(1)
	t := model.Turn{Run: a.Start.Run, Generation: a.Generation, Seen: int64(len(a.Events)), Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}}}
	for i := range a.Events {
		if e := &a.Events[i]; e.Kind == model.EventUpdateReceived && n > 1 {
			t.Commands = append(t.Commands, model.Command{Kind: model.CommandAnswer, Event: model.Event{ID: "answer", Name: e.Name, Ref: e.Seq, Output: model.TextPayload("done")}})
		}
	}
	go func() { _ = w.session.Report(context.Background(), t) }()
}

func (w *slowCode) Deliver(_ model.RunID, _ uint64, events []model.Event) {
	for i := range events {
		if events[i].Kind == model.EventUpdateReceived && w.handed.Load() == 1 {
			close(w.got)
		}
	}
}
func (w *slowCode) Retry(model.RunID, uint64, string)                    {}
func (w *slowCode) Evict(model.RunID, uint64, string)                    {}
func (w *slowCode) Query(model.RunID, uint64, model.Query)               {}
func (*slowCode) Recall(model.Address, model.RunID, uint64, model.Query) {}
func (*slowCode) Taken(model.RunID, uint64)                              {}

// When the node loses its lease, it sends an accepted update again, under the same request id. The
// caller gets the answer and does not notice the loss.
func TestAcceptedUpdateOutlivesTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fenced{Store: memory.New(memory.Options{})}
		e := engine.New(engine.Config{Store: st, LeaseTTL: 500 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()

		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()

		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := &slowCode{got: make(chan struct{})}
		w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
		m := start("a")
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		answer := make(chan error, 1)
		go func() {
			a, err := e.Send(t.Context(), &model.Message{Kind: model.MessageUpdate, To: m.To, Name: "u"})
			if err == nil && string(a.Output.Data) != "done" {
				err = fmt.Errorf("answered %q", a.Output.Data)
			}
			answer <- err
		}()

		<-w.got
		st.once.Store(true)
		select {
		case err := <-answer:
			if err != nil {
				t.Errorf("the accepted update: %v", err)
			}
		case <-time.After(time.Minute): // of virtual time
			t.Error("the accepted update is not answered")
		}

		if n := w.handed.Load(); n < 2 {
			t.Errorf("the run was handed over %d times: the lease was not lost", n)
		}
	})
}
