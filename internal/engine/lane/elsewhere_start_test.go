package lane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// A process starts a run of this lane, and waits for its end. It gets one hint, at the end. When it
// starts the run again, it gets its hint at once, because the run has ended.
func TestWatchedStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	start := model.Message{Kind: model.MessageStart, To: a, Watches: true}

	for _, id := range []string{"1", "2"} { // the second start finds the open run
		k := r.post(start, id)
		r.settle()
		if len(r.hints) != 0 || r.rememberedAnswer(k) == nil {
			t.Errorf("start %s: hints %+v, answer %+v", id, r.hints, r.rememberedAnswer(k))
		}
	}
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if len(r.hints) != 1 || r.hints[0].Node != guest {
		t.Errorf("hints at the end: %+v", r.hints)
	}
	r.post(start, "3")
	r.settle()
	if len(r.hints) != 2 || r.l.Waiters() != 0 {
		t.Errorf("hints after a start of the closed run: %+v, %d waiters", r.hints, r.l.Waiters())
	}
}

// The lane reads the mail of the shards for which mail was announced, and messages of other shards
// only if they were announced.
func TestReadsAnnouncedMail(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := func(messages, requests []model.ShardID) {
		t.Helper()
		r.take()
		if len(r.loads) != 1 || !slices.Equal(r.loads[0].Shards, messages) || !slices.Equal(r.loads[0].Leaving, requests) {
			t.Errorf("reads %+v, want messages of %v and requests of %v", r.loads, messages, requests)
		}
	}

	r.l.RequestsWait(2)
	r.flush()
	want(nil, []model.ShardID{2})
	// These are announced during the read.
	r.l.RequestsWait(3)
	r.l.RequestsWait(1)
	r.l.MailWaitsFor(3)
	r.read()
	want([]model.ShardID{3}, []model.ShardID{1})
	r.l.RequestsWait(1)
	r.l.MailWaits()
	r.read()
	want([]model.ShardID{0, 1, 2, 3}, nil)
	r.read()
	r.l.RequestsWait(99)
	r.flush()
	if len(r.loads) != 0 {
		t.Errorf("reads for a shard of another owner: %+v", r.loads)
	}
}

// The read of a start of another process says that the address has no run. So the lane reads
// nothing more, unless it has written a start since that read began.
func TestVacantAddress(t *testing.T) {
	t.Parallel()
	// These are the moments at which a caller of this process starts a run at the same address.
	for _, other := range []string{"never", "open", "in flight", "during the read", "committed during the read", "ended during the read"} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := key("a")
			switch other {
			case "open": // another batch is in flight, so the start is in the open batch
				r.start(key("another"), "another")
				r.flush()
				r.start(a, "local")
			case "in flight":
				r.start(a, "local")
			}
			k := r.post(model.Message{Kind: model.MessageStart, To: a}, "r")
			r.flush()
			if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadMail {
				t.Fatalf("reads %+v", r.loads)
			}
			ld := r.loads[0]
			r.loads = nil
			page := engine.Read(t.Context(), r.st, ld, r.now)
			if len(page.Inbox) != 1 || !page.Inbox[0].Vacant {
				t.Fatalf("the page is %+v", page.Inbox)
			}

			switch other {
			case "during the read":
				r.start(a, "local")
			case "committed during the read", "ended during the read":
				r.start(a, "local")
				r.settle()
				if other != "committed during the read" {
					r.turn(a, model.Turn{Close: done()})
					r.settle()
				}
			}
			r.l.FinishLoad(r.now, ld.ID, page)
			r.flush()
			if other == "never" && len(r.loads) != 0 {
				t.Errorf("the lane reads %+v", r.loads)
			}
			r.settle()

			answer := r.rememberedAnswer(k)
			if answer == nil || answer.Failure != nil || answer.Existing != (other != "never") {
				t.Errorf("the answer is %+v", answer)
			}
			if local, ok := r.answers["local"]; ok && (answer == nil || local.Answer.Run != answer.Run) {
				t.Errorf("two runs: %+v and %+v", local.Answer, answer)
			}
			if fmt.Sprint(r.answers["local"].Err) != "<nil>" {
				t.Errorf("the local caller got %v", r.answers["local"].Err)
			}
		})
	}
}

// A page of the inbox has an order that ends a run. A query of another process waits for the code
// of that run, so the lane wants to read the inbox again. It begins that read after the page, and
// knows that the read may miss the answer to the order.
func TestReadAfterAPage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "query")
	r.settle()
	read := func() (loads []lane.Load, pages []lane.LoadResult) {
		loads, r.loads = r.loads, nil
		for _, ld := range loads {
			pages = append(pages, engine.Read(t.Context(), r.st, ld, r.now))
		}
		return loads, pages
	}
	end := model.Message{Kind: model.MessageTerminate, To: a}

	k := r.post(end, "end")
	r.flush()
	loads, pages := read()
	r.put(end, "end") // a copy of the order, which the page does not have
	for i := range loads {
		r.l.FinishLoad(r.now, loads[i].ID, pages[i])
	}
	r.flush()
	loads, pages = read() // before the commit of the answer
	if len(pages) != 1 || len(pages[0].Inbox) < 2 || r.commit == nil {
		t.Fatalf("the lane reads %+v, want one page with the copy, and a batch in flight", pages)
	}
	r.commitNow()
	r.l.FinishLoad(r.now, loads[0].ID, pages[0])
	r.settle()
	if answer := r.rememberedAnswer(k); answer == nil || answer.Failure != nil || len(r.turnedDown) > 0 {
		t.Errorf("the answer is %+v, and the store has refused %v", answer, r.turnedDown)
	}
}
