package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func request(a model.Address, name, id string) model.Message {
	return model.Message{Kind: model.MessageSignal, To: a, Name: name, RequestID: id}
}

// The lane remembers request ids. A repetition of a request gets the first answer and changes
// nothing, whenever it comes.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	a := key("a")
	repeat := map[string]func(r *rig){
		"in the same batch":             func(*rig) {},
		"while the first is in flight":  func(r *rig) { r.read(); r.flush() },
		"after the first":               func(r *rig) { r.settle() },
		"after the run left the memory": func(r *rig) { r.settle(); r.release(a, "s"); r.settle() },
		"after a restart":               func(r *rig) { r.settle(); r.restart(); r.settle(); r.join(1) },
	}
	for name, between := range repeat {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.startRun(a)
			r.send(request(a, "s", "req-1"), "first")
			between(r)
			r.send(request(a, "s", "req-1"), "second")
			r.send(request(a, "t", "req-2"), "other")
			r.settle()
			r.send(request(a, "s", "req-1"), "third")
			r.settle()

			for _, token := range []any{"first", "second", "third", "other"} {
				r.wantAnswer(token, "")
				if got, want := r.answers[token].Answer.Run, r.answers["first"].Answer.Run; got != want {
					t.Errorf("%v names %s, want %s", token, got, want)
				}
			}

			if !r.answers["first"].Committed || !r.answers["other"].Committed {
				t.Error("an answer does not say that its batch is committed")
			}
			r.wantEvents(a, "signal_received s", "signal_received t")
			if r.l.PendingBytes() != 0 {
				t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
			}
		})
	}
}

// The lane remembers the refusal of a request if the request wrote something. If it wrote nothing,
// the lane decides about a repetition again.
func TestRepeatedSignalWithStart(t *testing.T) {
	t.Parallel()
	a := key("a")
	start := model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1", With: []model.Event{{Name: "s"}}}
	for name, prepare := range map[string]func(r *rig){
		"new":      func(*rig) {},
		"existing": func(r *rig) { r.startRun(a) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			prepare(r)
			r.send(start, "first")
			r.send(start, "second")
			r.flush()
			r.send(start, "third")
			r.settle()
			r.send(start, "fourth")
			r.settle()
			for _, token := range []any{"first", "second", "third", "fourth"} {
				r.wantAnswer(token, "")
			}
			r.wantEvents(a, "signal_received s")
		})
	}
}

// The same request arrives twice: directly, and from another node through the inbox.
func TestRequestByBothWays(t *testing.T) {
	t.Parallel()
	a := key("a")
	for _, inboxFirst := range []bool{true, false} {
		r := newRig(t)
		r.join(1)
		r.startRun(a)
		row := store.InboxRow{Shard: a.Shard(shards), ID: r.newRun(), Message: request(a, "s", "req-1")}
		if err := r.st.PutInbox(t.Context(), []store.InboxRow{row}); err != nil {
			t.Fatal(err)
		}

		if inboxFirst {
			r.l.MailWaits()
			r.flush()
			r.read() // the lane has taken the row, and has committed nothing
			r.send(request(a, "s", "req-1"), "direct")
		} else {
			r.send(request(a, "s", "req-1"), "direct")
			r.l.MailWaits()
		}

		r.settle()
		r.wantAnswer("direct", "")
		r.wantEvents(a, "signal_received s")
		left, _, err := r.st.LoadInbox(t.Context(), []model.ShardID{0, 1, 2, 3}, r.now, 10, 1<<30)
		if err != nil || len(left) != 0 {
			t.Errorf("inbox = %+v, %v, want it served", left, err)
		}
	}
}

// The sender of a request has lost its connection to the owner, and sends the request again through
// the store. The first copy arrives later, and says that its id was never used before.
func TestLateCopyOfALostConnection(t *testing.T) {
	t.Parallel()
	a := key("a")
	r := newRig(t)
	r.join(1)
	r.startRun(a)
	link, other := r.newRun(), r.newRun()
	late := request(a, "s", "req-1")
	late.Linked = link
	row := store.InboxRow{Shard: a.Shard(shards), ID: r.newRun(), Message: late}
	if err := r.st.PutInbox(t.Context(), []store.InboxRow{row}); err != nil {
		t.Fatal(err)
	}
	r.l.MailWaits()
	r.settle()

	r.l.Deliver(r.now, &late, true, "late")
	fresh := request(a, "t", "req-2")
	fresh.Linked = other
	r.l.Deliver(r.now, &fresh, true, "fresh")
	r.take()
	r.settle()
	r.wantAnswer("late", "")
	r.wantAnswer("fresh", "")
	r.wantEvents(a, "signal_received s", "signal_received t")
}

// A lane remembers a bounded number of lost connections. When there are more, the lane forgets
// them. It then looks up the ids of all requests that have arrived up to that time.
func TestManyLostConnections(t *testing.T) {
	t.Parallel()
	var ls lane.LostLinks
	now := model.Time(1_000_000)
	id := func(n int) model.RunID { return model.RunID{byte(n >> 16), byte(n >> 8), byte(n)} }
	for n := range lane.MaxLostLinks {
		ls.Add(now, id(n))
	}
	if !ls.Has(id(0)) || !ls.Has(id(lane.MaxLostLinks-1)) || ls.Has(id(lane.MaxLostLinks)) || ls.Forgot() != 0 {
		t.Error("the lane does not know exactly the connections that were lost")
	}
	ls.Add(now, id(lane.MaxLostLinks))
	if ls.Has(id(0)) || !ls.Has(id(lane.MaxLostLinks)) || ls.Forgot() != now.Add(lane.LinkGrace) {
		t.Errorf("after one more, the lane distrusts requests until %d", ls.Forgot())
	}
}

// Two copies of a request are in one page of the inbox, or the lane answers the first copy while it
// reads the page. The page says that the id was not used before, which is no longer true.
func TestCopiesInOnePageOfRequests(t *testing.T) {
	t.Parallel()
	a := key("a")
	for _, during := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		r.startRun(a)
		var rows []store.InboxRow
		for range 2 {
			rows = append(rows, store.InboxRow{Shard: a.Shard(shards), ID: r.newRun(), Message: request(a, "s", "req-1")})
		}
		if err := r.st.PutInbox(t.Context(), rows); err != nil {
			t.Fatal(err)
		}

		if during {
			r.send(request(a, "s", "req-1"), "direct")
			r.flush()
		}

		r.l.MailWaits()
		r.settle()
		r.wantEvents(a, "signal_received s")
		left, _, err := r.st.LoadInbox(t.Context(), []model.ShardID{0, 1, 2, 3}, r.now, 10, 1<<30)
		if err != nil || len(left) != 0 {
			t.Errorf("inbox = %+v, %v, want it served", left, err)
		}
	}
}

// If the lane answers after a commit, the answer says so. An answer from memory does not say so,
// because another node may own the shard and know better.
func TestDurableAnswers(t *testing.T) {
	t.Parallel()
	a := key("a")
	r := newRig(t)
	r.join(1)
	r.startRun(a)
	r.send(model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1", With: []model.Event{{Name: "s"}}}, "with a signal")
	r.settle()
	r.send(model.Message{Kind: model.MessageStart, To: a}, "again")
	r.send(request(key("none"), "s", "req-2"), "to nothing")
	r.settle()
	for token, durable := range map[any]bool{"with a signal": true, "again": false, "to nothing": false} {
		if got := r.answers[token]; got.Committed != durable {
			t.Errorf("%s is answered %+v, want durable: %t", token, got, durable)
		}
	}
}
