package engine_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// inboxes is a store that counts the requests that go through it, and notes the answers that it
// remembers.
type inboxes struct {
	store.Store
	puts *atomic.Int64
	// again counts the requests that name a lost connection.
	again atomic.Int64

	mu   sync.Mutex
	keys []store.RequestKey
}

func (s *inboxes) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	s.mu.Lock()
	for i := range b.Requests {
		s.keys = append(s.keys, b.Requests[i].RequestKey)
	}
	s.mu.Unlock()
	return s.Store.Commit(ctx, b)
}

// remembered counts the answers that the store remembers.
func (s *inboxes) remembered(t *testing.T) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	replies, err := s.LoadReplies(t.Context(), s.keys)
	if err != nil {
		t.Fatal(err)
	}
	return len(replies)
}

func (s *inboxes) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	s.puts.Add(int64(len(rows)))
	for i := range rows {
		if !rows[i].Message.Linked.IsZero() {
			s.again.Add(1)
		}
	}
	return s.Store.PutInbox(ctx, rows)
}

// pairOf is two connected nodes with workers.
type pairOf struct {
	t     *testing.T
	st    *inboxes
	lan   *lan.LAN
	puts  atomic.Int64
	nodes []*member
}

// newPair opens two nodes and waits until each owns a part of the shards. Close ends them.
func newPair(t *testing.T) *pairOf { return newSkewedPair(t, 0) }

// newSkewedPair opens two nodes. The clock of the second is ahead.
func newSkewedPair(t *testing.T, ahead time.Duration) *pairOf {
	t.Helper()
	p := &pairOf{t: t, lan: &lan.LAN{}}
	p.st = &inboxes{Store: memory.New(memory.Options{}), puts: &p.puts}
	r := &ring{t: t, st: p.st, hints: &notify.Local{}, lan: p.lan, ahead: ahead}
	for range 2 {
		m := r.join(0, nil)
		w := newAnswerer(m.Engine)
		close(w.may)
		joinClerks(m.Engine, &clerks{mu: &sync.Mutex{}, rang: map[string]int{}})
	}
	p.nodes = r.nodes
	time.Sleep(15 * time.Second)
	return p
}

func (p *pairOf) close() {
	for _, m := range p.nodes {
		m.stop()
		if err := <-m.done; err != nil {
			p.t.Error(err)
		}
	}
}

// events counts the events of the current run of a key by kind and name.
func (p *pairOf) events(key string) map[string]int {
	p.t.Helper()
	a := start(key).To
	row, err := p.st.LoadExecution(p.t.Context(), a.Shard(p.st.Info().Shards), a, model.RunID{})
	if err != nil || row == nil {
		p.t.Fatalf("%s: %v", key, err)
	}
	events, err := p.st.LoadEvents(p.t.Context(), store.RunKey{Shard: row.Shard, Run: row.Start.Run}, 0, 10_000, 1<<30)
	if err != nil {
		p.t.Fatal(err)
	}
	n := map[string]int{}
	for i := range events {
		n[events[i].Kind.String()+" "+events[i].Name]++
	}
	return n
}

// Every request of a client works at any node, without a row in the inbox. Two nodes can connect
// even if their clocks differ by an hour.
func TestDirectRequests(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("ahead ", ahead), func(t *testing.T) {
			t.Parallel()
			testDirectRequests(t, ahead)
		})
	}
}

func testDirectRequests(t *testing.T, ahead time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newSkewedPair(t, ahead)
		defer p.close()
		p.puts.Store(0)
		ctx := t.Context()
		for i := range 24 {
			key, n := fmt.Sprint("k", i), p.nodes[i%2]
			if a, err := n.Send(ctx, start(key)); err != nil || a.Existing {
				t.Fatalf("start: %+v, %v", a, err)
			}
			if a, err := n.Query(ctx, query(key)); err != nil || string(a.Output.Data) != "42" {
				t.Errorf("query: %+v, %v", a, err)
			}
			update := &model.Message{Kind: model.MessageUpdate, To: start(key).To, Name: "u", Input: model.TextPayload("7")}
			if a, err := n.Send(ctx, update); err != nil || string(a.Output.Data) != "7" {
				t.Errorf("update: %+v, %v", a, err)
			}
			signal := &model.Message{Kind: model.MessageSignal, To: start(key).To, Name: "s", RequestID: "once"}
			for range 2 {
				if _, err := n.Send(ctx, signal); err != nil {
					t.Errorf("signal: %v", err)
				}
			}
			misused := *signal
			misused.Name = "other"
			if _, err := n.Send(ctx, &misused); !fault.Is(err, fault.Conflict) {
				t.Errorf("the id of another request: %v", err)
			}
			if _, err := n.Send(ctx, &model.Message{Kind: model.MessageSignal, To: start("none" + key).To, Name: "s"}); !fault.Is(err, fault.NotFound) {
				t.Errorf("signal to an execution that does not exist: %v", err)
			}
			add := &model.Message{Kind: model.MessageCall, To: list(key), Name: "add", Input: model.TextPayload("x")}
			if _, err := n.Call(ctx, add, false); err != nil {
				t.Errorf("call: %v", err)
			}
			read := &model.Message{Kind: model.MessageCall, To: list(key), Name: "read", Brief: true}
			if a, err := n.Call(ctx, read, true); err != nil || string(a.Output.Data) != "x;" {
				t.Errorf("view: %+v, %v", a, err)
			}
			bell := &model.Message{Kind: model.MessageCall, To: model.Address{Tenant: model.DefaultTenant, Type: "service:bell", Key: key}, Name: "ring", Brief: true}
			if _, err := n.Call(ctx, bell, false); err != nil {
				t.Errorf("brief call: %v", err)
			}

			ended := make(chan error, 2)
			await := func(res lane.Result, err error) {
				if err == nil && res.Outcome.Status != model.Terminated {
					err = fmt.Errorf("ended as %s", res.Outcome.Status)
				}
				ended <- err
			}
			go func() { await(n.Await(ctx, start(key).To, model.RunID{})) }()
			go func() { await(n.ExecuteToEnd(ctx, start(key))) }()
			synctest.Wait()
			if _, err := n.Send(ctx, &model.Message{Kind: model.MessageTerminate, To: start(key).To}); err != nil {
				t.Errorf("terminate: %v", err)
			}
			for range 2 {
				if err := <-ended; err != nil {
					t.Errorf("await: %v", err)
				}
			}
			// This execution has already ended.
			if _, err := n.Await(ctx, start(key).To, model.RunID{}); err != nil {
				t.Errorf("await: %v", err)
			}
			if _, err := n.Await(ctx, start("none"+key).To, model.RunID{}); !fault.Is(err, fault.NotFound) {
				t.Errorf("await of nothing: %v", err)
			}
			if e := p.events(key); e["signal_received s"] != 1 || e["update_received u"] != 1 {
				t.Errorf("%s has %v", key, e)
			}
		}
		if n := p.puts.Load(); n > 0 {
			t.Errorf("%d requests went through the store", n)
		}

		// If a node has drawn the id of a request, the owner removes the answer when the caller has
		// it. One signal per key has an id that the caller gave, and each of four lanes may keep
		// one answer for its next batch.
		time.Sleep(5 * time.Second)
		if n := p.st.remembered(t); n < 24 || n > 28 {
			t.Errorf("%d answers are remembered", n)
		}
	})
}

// weak is a connection that breaks after a number of writes.
type weak struct {
	net.Conn
	left atomic.Int64
}

func (w *weak) Write(b []byte) (int, error) {
	switch n := w.left.Add(-1); {
	case n > 0:
		return w.Conn.Write(b)
	case n == 0:
		_, _ = w.Conn.Write(b) // the request arrives, and the reply does not
	}
	_ = w.Conn.Close()
	return 0, io.ErrClosedPipe
}

// Connections break all the time. Every signal and every call takes effect once, although some of
// them are sent twice.
func TestDirectRequestsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.close()
		var n atomic.Int64
		p.lan.Bend(func(c net.Conn) net.Conn {
			w := &weak{Conn: c}
			w.left.Store(4 + n.Add(1)%5)
			return w
		})
		ctx := t.Context()
		for i := range 4 {
			if _, err := p.nodes[0].Send(ctx, start(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		p.lan.Break()

		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				n := p.nodes[i%2]
				signal := &model.Message{Kind: model.MessageSignal, To: start(fmt.Sprint(i % 4)).To, Name: fmt.Sprint(i)}
				if _, err := n.Send(ctx, signal); err != nil {
					t.Errorf("signal %d: %v", i, err)
				}
				add := &model.Message{Kind: model.MessageCall, To: list(fmt.Sprint(i)), Name: "add", Input: model.TextPayload("x")}
				if _, err := n.Call(ctx, add, false); err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		wg.Wait()

		for i := range 400 {
			if got := p.events(fmt.Sprint(i % 4))[fmt.Sprint("signal_received ", i)]; got != 1 {
				t.Errorf("signal %d has %d events", i, got)
			}
			if got := stateOf(t, p.st, list(fmt.Sprint(i))); got != "x;" {
				t.Errorf("call %d was made %q", i, got)
			}
		}
		// Whether a request is on a connection that breaks depends on the order of goroutines. It
		// nearly always happens, but may not happen on a busy machine.
		t.Logf("%d requests named one of %d lost connections", p.st.again.Load(), n.Load())
		if n.Load() < 10 {
			t.Errorf("only %d connections were lost", n.Load())
		}
	})
}

// A node can no longer reach the store. When its lease may be over, it answers nothing over its
// connections, and the other node serves all requests.
func TestDirectWithoutLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		ctx := t.Context()
		for i := range 16 {
			if _, err := p.nodes[0].Send(ctx, start(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}

		p.nodes[1].cut.Store(true)
		time.Sleep(9 * time.Second) // the lease of the other node is about to end
		for i := range 16 {
			short, end := context.WithTimeout(ctx, time.Minute)
			if _, err := p.nodes[0].Query(short, query(fmt.Sprint(i))); err != nil {
				t.Errorf("query %d: %v", i, err)
			}
			signal := &model.Message{Kind: model.MessageSignal, To: start(fmt.Sprint(i)).To, Name: "s"}
			if _, err := p.nodes[0].Send(short, signal); err != nil {
				t.Errorf("signal %d: %v", i, err)
			}
			end()
			if got := p.events(fmt.Sprint(i))["signal_received s"]; got != 1 {
				t.Errorf("signal %d has %d events", i, got)
			}
		}
		p.nodes[1].cut.Store(false)
		p.close()
	})
}
