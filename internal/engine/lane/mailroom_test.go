package lane_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const messageBytes = 5_000 // the size of a message in these tests

// largeSignals are signals of messageBytes each.
func largeSignals(a model.Address, from, to int) []model.Message {
	ms := signals(a, from, to)
	for i := range ms {
		ms[i].Input = data(messageBytes)
	}
	return ms
}

// settleWithin lets the lane come to rest. In each round it checks that the messages in memory have
// at most the given number of bytes.
func (r *rig) settleWithin(most int) {
	r.t.Helper()
	r.flush()
	for {
		if held := r.l.MailHeld(); held > most {
			r.t.Fatalf("messages of %d bytes wait in memory, at most %d may", held, most)
		}
		switch {
		case len(r.loads) > 0:
			r.read()
		case r.commit != nil:
			r.commitNow()
		default:
			return
		}
	}
}

// Messages that wait in memory are bounded in bytes, whether other lanes hand them over or the lane
// reads them. Each takes effect once and in order, although the lane gets no second notice.
func TestMessagesInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	hints := map[string]func(r *rig, rows []store.MessageRow){
		"handed over": func(r *rig, rows []store.MessageRow) { r.l.Messages(rows) },
		"one by one": func(r *rig, rows []store.MessageRow) {
			for i := range rows {
				r.l.Messages(rows[i : i+1])
			}
		},
		"read": func(r *rig, _ []store.MessageRow) { r.l.MailWaits() },
	}
	for name, hint := range hints {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const room = 4 * messageBytes
			r, f := foreignRig(t, func(c *lane.Config) { c.MaxMail, c.PerKey = room, 2 })
			r.join(1)
			a, b := in(0, 0), in(1, 0)
			r.startRun(a)
			r.startRun(b)

			rows := f.send(append(largeSignals(a, 1, 30), largeSignals(b, 1, 5)...)...)
			hint(r, rows)
			r.settleWithin(room + 2*messageBytes)
			r.wantEvents(a, receivedNames(1, 30)...)
			r.wantEvents(b, receivedNames(1, 5)...)
			if n := r.l.MailHeld(); n != 0 {
				t.Errorf("%d bytes of no message are counted", n)
			}
		})
	}
}

// When a shard moves, the room that its messages took is free again.
func TestShardsThatMoveMakeRoomForMessages(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t, func(c *lane.Config) { c.MaxMail = 2 * messageBytes })
	r.join(1)
	a, b := in(0, 0), in(1, 0)
	r.startRun(a)
	r.startRun(b)
	r.l.Messages(f.send(largeSignals(a, 1, 4)...))
	r.l.GiveUp(r.now, []model.ShardID{0})
	if n := r.l.MailHeld(); n != 0 {
		t.Errorf("%d bytes wait for a shard that moves", n)
	}
	r.l.Messages(f.send(largeSignals(b, 1, 4)...))
	r.settleWithin(4 * messageBytes)
	r.wantEvents(b, receivedNames(1, 4)...)
}

// The lane reads requests of other processes in pages with a bounded number of bytes, until the
// last page.
func TestRequestsAreReadInPagesOfBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxMail = 4 * 3 * messageBytes })
	r.join(1)
	a := key("a")
	r.startRun(a)
	for i, m := range largeSignals(a, 1, 20) {
		r.put(m, fmt.Sprint("req-", i))
	}
	r.l.MailWaits()
	r.flush()

	for {
		if held := r.l.PendingBytes(); held > 5*messageBytes {
			t.Fatalf("the lane has requests of %d bytes, more than a page", held)
		}
		if len(r.loads) > 0 {
			r.read()
		} else if r.commit != nil {
			r.commitNow()
		} else {
			break
		}
	}

	r.wantEvents(a, receivedNames(1, 20)...)
}

// Queries of other processes that wait for an answer stay in the inbox. Their number is bounded,
// and the lane reads the requests behind them, however large the queries are.
func TestLargeQueriesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxMail = 4 * 2 * messageBytes })
	r.join(1)
	a, b := key("a"), key("b")
	r.park(a)
	r.startRun(b)
	huge := model.Message{Kind: model.MessageQuery, To: a, Name: "q", Input: data(4 * messageBytes)}

	first := r.put(huge, "first")
	second := r.post(huge, "second")
	r.settle()
	r.post(largeSignals(b, 1, 1)[0], "signal")
	r.settle()
	r.wantEvents(b, receivedNames(1, 1)...)
	if ans := r.rememberedAnswer(second); ans == nil || ans.Failure == nil || ans.Failure.Kind != "exhausted" {
		t.Errorf("the second query is answered %+v, want a refusal", ans)
	}
	if n := r.reply(a, "42"); n != 1 {
		t.Errorf("the code was asked %d times", n)
	}
	r.settle()
	if ans := r.rememberedAnswer(first); ans == nil || string(ans.Output.Data) != "42" {
		t.Errorf("the first query is answered %+v", ans)
	}

	third := r.post(huge, "third")
	r.settle()
	if ans := r.rememberedAnswer(third); ans != nil {
		t.Errorf("a query is refused although none waits: %+v", ans)
	}
}

// While the lane is full of inputs, it reads no mail. It reads mail when it has room again.
func TestFullLaneReadsMailLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBytes = 20_000 })
	r.join(1)
	a, b := key("a"), key("b")
	r.startRun(a)
	r.startRun(b)
	for i := range 5 {
		r.send(model.Message{Kind: model.MessageSignal, To: a, Name: "s", Input: data(messageBytes)}, i)
	}
	r.flush()
	r.put(largeSignals(b, 1, 1)[0], "signal")
	r.l.MailWaits()
	r.flush()
	if len(r.loads) != 0 {
		t.Errorf("a full lane reads %+v", r.loads)
	}
	r.settle()
	r.wantEvents(b, receivedNames(1, 1)...)
}
