package peer_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store/memory"
)

// echo answers with what it was asked, unless that is empty, and keeps what it is told.
type echo struct{ words chan string }

func (e echo) Asked(_ model.NodeID, q []byte, answer func([]byte)) {
	if len(q) > 0 {
		answer(append([]byte("re "), q...))
	}
}

func (e echo) Told(_ model.NodeID, w []byte) { e.words <- string(w) }

// Two nodes ask each other, with hints at once and without them soon; who is not answered gives up; who says nothing asks the store nothing.
func TestPost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hints notify.Hub
		limit time.Duration
	}{"with hints": {&notify.Local{}, 0}, "without hints": {notify.Nobody{}, 2 * time.Second}} {
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
					p := peer.New(id, st, c.hints, slog.New(slog.DiscardHandler), echo{heard})
					defer c.hints.Subscribe(func(h notify.Hint) {
						if h.Kind == notify.Peer && h.Node == id {
							p.Nudge()
						}
					})()
					go p.Run(ctx)
					posts = append(posts, p)
				}
				if c.limit > 0 { // whoever has not spoken hears of mail with its renewal
					go func() {
						for ctx.Err() == nil {
							time.Sleep(time.Second)
							posts[1].Nudge()
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

func TestLoanValues(t *testing.T) {
	t.Parallel()
	ref := model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: "t", Type: "x", Key: "k"}, Run: model.RunID{1}, ID: "task"}, Claim: 3}
	in := peer.Answer{Seq: 1, Stream: model.RunID{2}, Entries: []peer.Entry{
		{N: 1, Worker: "w", Claim: &model.Claim{Ref: ref, Spec: &model.TaskSpec{Kind: "k"}, Input: model.Payload{Data: []byte("\xff")}, Attempt: 2, Canceled: true}},
		{N: 2, Worker: "w", Settled: &ref, Refusal: &model.Failure{Kind: "not_owned", Message: "late"}},
	}}
	out, err := peer.Decode[peer.Answer](peer.Encode(&in))
	if err != nil || out.Entries[0].Claim.Ref != ref || string(out.Entries[0].Claim.Input.Data) != "\xff" || !out.Entries[0].Claim.Canceled || *out.Entries[1].Settled != ref || out.Entries[1].Refusal.Message != "late" {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := peer.Decode[peer.Poll]([]byte("\x01")); err == nil {
		t.Error("what cannot be read is an error")
	}
}
