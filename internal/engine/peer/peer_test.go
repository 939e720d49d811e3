package peer_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// echo repeats each question in its answer. It does not answer an empty question. It passes notes
// on to the test.
type echo struct{ words chan string }

func (e echo) HandleQuestion(_ model.NodeID, q []byte, answer func([]byte)) {
	if len(q) > 0 {
		answer(append([]byte("re "), q...))
	}
}

func (e echo) HandleNote(_ model.NodeID, w []byte) { e.words <- string(w) }

// Two nodes ask each other. With hints the answers come immediately, without hints soon. A node
// that gets no answer gives up. A node that sends nothing does not read the store.
func TestPost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hints notify.Hub
		limit time.Duration
	}{"with hints": {&notify.Local{}, 0}, "without hints": {notify.NoHub{}, 2 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(memory.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var posts []*peer.Post
				heard := make(chan string, 10)

				ids := []model.NodeID{{1}, {2}}
				for _, id := range ids {
					p := peer.New(peer.Config{Self: id, Mail: st, Hints: c.hints, Log: slog.New(slog.DiscardHandler), Handler: echo{heard}})
					defer c.hints.Subscribe(func(h notify.Hint) {
						if h.Kind == notify.Peer && h.Node == id {
							p.LookNow()
						}
					})()
					go p.Run(ctx)
					posts = append(posts, p)
				}

				// a node that has not sent anything learns about mail with its renewal
				if c.limit > 0 {
					go func() {
						for ctx.Err() == nil {
							time.Sleep(time.Second)
							posts[1].LookNow()
						}
					}()
				}

				began := time.Now()
				a, err := posts[0].Call(ctx, ids[1], []byte("hello"))
				if err != nil || string(a) != "re hello" {
					t.Errorf("answered %q, %v", a, err)
				}
				if took := time.Since(began); took > c.limit {
					t.Errorf("the answer took %s", took)
				}
				posts[0].Tell(ids[1], []byte("a word"))
				if w := <-heard; w != "a word" {
					t.Errorf("heard %q", w)
				}
				brief, stop := context.WithTimeout(ctx, 3*time.Second)
				defer stop()
				if _, err := posts[0].Call(brief, ids[1], nil); !fault.Is(err, fault.Timeout) {
					t.Errorf("a question without an answer: %v", err)
				}
				cancel()
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// A node asks another one over their connection, and the connection breaks. The answer comes
// through the store, without a hint. The node that asks reads the store once a second, so it soon
// gets the answer. While the connection lasts, that node does not read the store.
func TestAnswerAfterTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &readCounter{Store: memory.New(memory.Options{})}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ids := []model.NodeID{{1}, {2}}
		asked := make(chan *store.PeerMail, 1)
		asker := peer.New(peer.Config{
			Self: ids[0], Mail: st, Hints: notify.NoHub{}, Log: slog.New(slog.DiscardHandler), Handler: echo{},
			Direct: func(m *store.PeerMail) bool {
				asked <- m
				return true
			},
		})
		other := peer.New(peer.Config{Self: ids[1], Mail: st.Store, Hints: notify.NoHub{}, Log: slog.New(slog.DiscardHandler), Handler: echo{}})
		go asker.Run(ctx)
		go other.Run(ctx)
		synctest.Wait() // until both nodes expect nothing

		answered := make(chan string)
		go func() {
			brief, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			a, err := asker.Call(brief, ids[1], []byte("hello"))
			if err != nil {
				t.Error(err)
			}
			answered <- string(a)
		}()
		question := <-asked
		time.Sleep(10 * time.Second)
		if n := st.reads.Load(); n != 0 {
			t.Errorf("the node read the store %d times while it had a connection", n)
		}

		began := time.Now()
		asker.HandleLoss()
		other.Hear(question)
		if a := <-answered; a != "re hello" || time.Since(began) > 2*time.Second {
			t.Errorf("answered %q after %s", a, time.Since(began))
		}
		cancel()
	})
}

// readCounter counts how often a node reads its messages.
type readCounter struct {
	*memory.Store
	reads atomic.Int64
}

func (c *readCounter) TakePeerMail(ctx context.Context, to model.NodeID, page, bytes int) ([]store.PeerMail, error) {
	c.reads.Add(1)
	return c.Store.TakePeerMail(ctx, to, page, bytes)
}

// counting counts the messages that it gets.
type counting struct {
	*memory.Store
	got chan int
}

func (c counting) PutPeerMail(_ context.Context, rows []store.PeerMail) error {
	c.got <- len(rows)
	return nil
}

// Messages that wait for the store are bounded in number and in bytes. Further messages are lost.
func TestPostIsBounded(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{1: 4096, 1 << 20: 64} {
		synctest.Test(t, func(t *testing.T) {
			st := counting{memory.New(memory.Options{}), make(chan int, 2)}
			p := peer.New(peer.Config{Self: model.NodeID{1}, Mail: st, Hints: notify.NoHub{}, Log: slog.New(slog.DiscardHandler)})
			body := make([]byte, size-1) // the message has one more byte, for its kind
			for range want + want/4 {
				p.Tell(model.NodeID{2}, body)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go p.Run(ctx)
			if got := <-st.got; got != want {
				t.Errorf("%d messages of %d bytes wait", got, size)
			}

			p.Tell(model.NodeID{2}, body)
			if got := <-st.got; got != 1 {
				t.Errorf("then %d", got)
			}
		})
	}
}

func TestLoanValues(t *testing.T) {
	t.Parallel()
	ref := model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: "t", Type: "x", Key: "k"}, Run: model.RunID{1}, ID: "task"}, Claim: 3}
	in := peer.PollReply{Seq: 1, Stream: model.RunID{2}, Entries: []peer.Entry{
		{N: 1, Worker: "w", Claim: &model.Claim{Ref: ref, Spec: &model.TaskSpec{Kind: "k"}, Input: model.Payload{Data: []byte("\xff")}, Attempt: 2, Canceled: true}},
		{N: 2, Worker: "w", Settled: &ref, Refusal: &model.Failure{Kind: "not_owned", Message: "late"}},
	}}
	out, err := peer.Decode[peer.PollReply](peer.Encode(&in))
	if err != nil || out.Entries[0].Claim.Ref != ref || string(out.Entries[0].Claim.Input.Data) != "\xff" || !out.Entries[0].Claim.Canceled || *out.Entries[1].Settled != ref || out.Entries[1].Refusal.Message != "late" {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := peer.Decode[peer.Poll]([]byte("\x01")); err == nil {
		t.Error("what cannot be read is an error")
	}
}

// informant knows one address, and one queue.
type informant struct {
	echo
	known model.Address
}

func (i informant) HandleInquiry(all []model.Address, answer func(map[model.Address][]model.Reason)) {
	found := map[model.Address][]model.Reason{}
	for _, a := range all {
		if a == i.known {
			found[a] = []model.Reason{{Code: model.WaitSignal, Name: "word"}}
		}
	}
	answer(found)
}

func (informant) Queues() ([]peer.QueueCount, bool) {
	return []peer.QueueCount{{Tenant: "default", Queue: "mails", Waiting: 3, Abandoned: []string{"mail"}}}, true
}

func (informant) Series(q series.Question) (series.Counts, bool) {
	c := series.Counts{Since: 5, Last: 7, Points: [][]uint32{{1, 2}}}
	if q.Levels {
		c.Levels = &series.Levels{Last: int64(q.Step / time.Minute), Cut: true, Subjects: []series.OfSubject{{Kind: series.Limit, Name: "smtp", Points: [][]uint32{{3}}}}}
	}
	return c, q.Tenant == "default"
}

// A process that is not a node asks a node why runs do not move. If the node answers no inquiries,
// for example because it has an older version, the asker waits until its deadline.
func TestInquiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, hints := memory.New(memory.Options{}), &notify.Local{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		known, strange := model.Address{Tenant: "default", Type: "order", Key: "1"}, model.Address{Tenant: "default", Type: "order", Key: "2"}
		words := make(chan string, 1)
		node, older := model.NodeID{1}, model.NodeID{2}
		for id, h := range map[model.NodeID]peer.Handler{node: informant{echo{words}, known}, older: echo{words}} {
			p := peer.New(peer.Config{Self: id, Mail: st, Hints: hints, Log: slog.New(slog.DiscardHandler), Handler: h})
			defer hints.Subscribe(func(h notify.Hint) {
				if h.Kind == notify.Peer && h.Node == id {
					p.LookNow()
				}
			})()
			go p.Run(ctx)
		}

		asker := peer.Asker{Mail: st, Hints: hints}
		found, err := asker.Ask(ctx, node, []model.Address{strange, known})
		if err != nil || len(found) != 1 || len(found[known]) != 1 || found[known][0].Name != "word" {
			t.Errorf("found %v, %v", found, err)
		}
		counts, err := asker.AskQueues(ctx, node)
		if err != nil || len(counts) != 1 || counts[0].Waiting != 3 || len(counts[0].Abandoned) != 1 {
			t.Errorf("counts %+v, %v", counts, err)
		}
		numbers, err := asker.AskSeries(ctx, node, series.Question{Tenant: "default"})
		if err != nil || numbers.Levels != nil || numbers.Since != 5 || numbers.Last != 7 || len(numbers.Points) != 1 || len(numbers.Points[0]) != 2 {
			t.Errorf("series %+v, %v", numbers, err)
		}
		numbers, err = asker.AskSeries(ctx, node, series.Question{Tenant: "default", Levels: true, Step: 5 * time.Minute})
		if l := numbers.Levels; err != nil || l == nil || l.Last != 5 || !l.Cut || len(l.Subjects) != 1 || l.Subjects[0].Kind != series.Limit || l.Subjects[0].Points[0][0] != 3 {
			t.Errorf("levels %+v, %v", numbers.Levels, err)
		}
		if _, err := asker.AskSeries(ctx, node, series.Question{Tenant: "uncounted"}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a node that does not count: %v", err)
		}
		brief, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if _, err := asker.Ask(brief, older, []model.Address{known}); !fault.Is(err, fault.Timeout) {
			t.Errorf("a node that does not answer: %v", err)
		}
	})
}
