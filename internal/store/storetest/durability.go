package storetest

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var durabilityTests = []test{
	{name: "everything survives", run: testSurvive, needs: durable},
	{name: "fences and epochs survive", run: testSurviveFences, needs: durable},
}

var sharedTests = []test{
	{name: "two handles see each other", run: testTwoHandles, needs: isShared},
	{name: "one handle fences what another one owns", run: testFenceAcross, needs: isShared},
}

// reopen closes the store and opens it again.
func (x *suite) reopen() {
	x.Helper()
	x.Store = x.o.Reopen(x.t, x.Store)
}

func testSurvive(x *suite) {
	c := newScene(x)
	x.Note(c.batch())
	info := x.Store.Info()
	before := x.Contents()
	x.reopen()
	x.Want("info", info, x.Store.Info())
	x.Want("contents of an open scene", before, x.Contents())
	c.lane.Commit(c.batch())
	before = x.Contents()
	x.reopen()
	x.Want("contents after a batch that touched every table", before, x.Contents())
	c.lane.Refuse(c.badBatch(), store.Refused)
	x.reopen()
	x.Want("contents after a refused batch", before, x.Contents())
	swept := try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: x.Shards(), RequestsBefore: model.MaxTime, Limit: 1000})).or(x)
	if swept == 0 {
		x.Error("nothing to sweep")
	}
	x.reopen()
	want := store.AcquiredShard{Shard: 1, Received: map[model.ShardID]int64{2: 2}}
	c.node.Fence()
	x.Want("state of shard 1", want, x.state(1))
	want = store.AcquiredShard{Shard: 2, Sent: map[model.ShardID]int64{1: 3, 3: 1}}
	x.Want("state of shard 2", want, x.state(2))
}

func testSurviveFences(x *suite) {
	n := x.Join(2)
	n.Acquire(3)
	n.Lanes[0].Write(func(*store.Batch) {})
	x.reopen()
	n.Lanes[0].Refuse(&store.Batch{Lane: n.Lanes[0].Ref, Number: 1}, store.Fenced)
	n.Lanes[0].Write(func(*store.Batch) {})
	n.Lanes[1].Write(func(*store.Batch) {})
	n.Renew(time.Hour)
	epoch, landed, err := x.Store.Refence(x.Context(), n.Lanes[0].Ref)
	if err != nil || landed != 2 {
		x.Fatalf("refence: landed %d, %v; want 2", landed, err)
	}

	x.reopen()
	n.Lanes[0].Refuse(n.Lanes[0].Batch(), store.Fenced)
	n.Lanes[0].Ref.Epoch = epoch
	n.Lanes[0].Write(func(*store.Batch) {})
	n.Fence()
	x.reopen()
	for _, l := range n.Lanes {
		l.Refuse(l.Batch(), store.Fenced)
	}
	if later := x.Join(1); later.Epoch <= epoch {
		x.Errorf("epoch %d after epoch %d", later.Epoch, epoch)
	}
}

func testTwoHandles(x *suite) {
	second := New(x, x.o.Second(x.t, x.Store))
	x.Cleanup(func() { _ = second.Store.Close() })
	x.Want("info", x.Store.Info(), second.Store.Info())
	second.ids.Store(1 << 32) // the ids of the two fixtures must differ
	a, b := x.Join(1), second.Join(1)
	s, r := x.Subject(), second.Subject()

	a.Lanes[0].Write(func(w *store.Batch) {
		w.Starts, w.Events = []store.StartRow{s.StartRow()}, []store.EventRow{s.Event(1)}
		w.Messages = rows(1, 2, 1, 1)
	})

	b.Lanes[0].Write(func(w *store.Batch) {
		w.Starts = []store.StartRow{r.StartRow()}
		w.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 1}}
	})

	x.Want("acquired by the first", []model.ShardID{1, 2}, shardsOf(a.Acquire(1, 2)))
	x.Want("acquired by the second", []model.ShardID{3}, shardsOf(b.Acquire(1, 2, 3)))
	if err := second.Store.PutInbox(x.Context(), []store.InboxRow{s.Request(second.RunID(), "r")}); err != nil {
		x.Fatal(err)
	}
	if !a.Renew(time.Hour, s.Shard).Mail {
		x.Error("no mail from the other handle")
	}
	x.Note(&store.Batch{Starts: []store.StartRow{s.StartRow(), r.StartRow()}})
	second.Note(&store.Batch{Starts: []store.StartRow{s.StartRow(), r.StartRow()}})
	x.Want("contents seen by both", x.Contents(), second.Contents())
	if n := len(x.Contents().Members); n != 2 {
		x.Errorf("%d members, want 2", n)
	}
}

func testFenceAcross(x *suite) {
	second := New(x, x.o.Second(x.t, x.Store))
	x.Cleanup(func() { _ = second.Store.Close() })
	second.ids.Store(1 << 32)
	victim, successor := x.JoinFor(1, brief), second.Join(1)
	victim.Acquire(4)
	s := x.SubjectIn(4)
	victim.Lanes[0].Write(func(w *store.Batch) { w.Starts = []store.StartRow{s.StartRow()} })
	x.expire(victim)
	if ok, err := second.Store.FenceNode(x.Context(), store.FenceRequest{Node: victim.ID, Epoch: victim.Epoch}); !ok || err != nil {
		x.Fatalf("fence: %v, %v", ok, err)
	}

	x.Want("acquired", []model.ShardID{4}, shardsOf(successor.Acquire(4)))
	b := victim.Lanes[0].Batch()
	b.Events = []store.EventRow{s.Event(1)}
	victim.Lanes[0].Refuse(b, store.Fenced)
	successor.Lanes[0].Write(func(w *store.Batch) { w.Events = []store.EventRow{s.Event(1)} })
	x.Want("events", []model.Event{s.Event(1).Event}, x.events(s.RunKey))
}
