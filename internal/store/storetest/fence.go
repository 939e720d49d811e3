package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var fenceTests = []test{
	{name: "a batch with a wrong number or lane commits nothing", run: testFence},
	{name: "a refused batch leaves the fence where it was", run: testFenceAfterRefusal},
	{name: "lanes of a node are independent", run: testLanes},
	{name: "a batch cannot overtake the one before", run: testOvertake},
	{name: "refence returns the last batch and ends the old epoch", run: testRefence},
	{name: "refence of a lane that is not ours", run: testRefenceFenced},
	{name: "a fenced node does nothing", run: testFencedNode},
}

func testFence(x *suite) {
	c := newScene(x)
	good := c.lane.Batch()
	type change struct {
		name string
		do   func(b *store.Batch)
	}

	wrong := []change{
		{"the number of the batch before", func(b *store.Batch) { b.Number-- }},
		{"the first number", func(b *store.Batch) { b.Number = 1 }},
		{"number zero", func(b *store.Batch) { b.Number = 0 }},
		{"a negative number", func(b *store.Batch) { b.Number = -1 }},
		{"the number after the next", func(b *store.Batch) { b.Number++ }},
		{"an older epoch", func(b *store.Batch) { b.Lane.Epoch-- }},
		{"a newer epoch", func(b *store.Batch) { b.Lane.Epoch += 1000 }},
		{"epoch zero", func(b *store.Batch) { b.Lane.Epoch = 0 }},
		{"the epoch of another node", func(b *store.Batch) { b.Lane.Epoch = c.other.Epoch }},
		{"an unknown lane", func(b *store.Batch) { b.Lane.Lane = 1 }},
		{"a negative lane", func(b *store.Batch) { b.Lane.Lane = -1 }},
		{"the lane of another node", func(b *store.Batch) { b.Lane.Node = c.other.ID }},
		{"an unknown node", func(b *store.Batch) { b.Lane.Node = x.NodeID() }},
		{"no node", func(b *store.Batch) { b.Lane.Node = model.NodeID{} }},
	}

	x.Note(c.batch())
	before := x.Contents()
	for _, w := range wrong {
		for _, b := range []struct {
			kind  string
			batch *store.Batch
		}{{"good rows", c.batch()}, {"no rows", c.lane.Batch()}, {"bad rows", c.badBatch()}} {
			w.do(b.batch)
			_, err := x.Store.Commit(x.Context(), b.batch)
			if err == nil {
				x.Fatalf("%s, %s: committed", w.name, b.kind)
			}
			if store.ClassOf(err) != store.Fenced || !errors.Is(err, store.ErrFenced) {
				x.Errorf("%s, %s: class %s, want fenced: %v", w.name, b.kind, store.ClassOf(err), err)
			}
			if d := Diff(before, x.Contents()); d != "" {
				x.Fatalf("%s, %s: something was applied (-before +after):\n%s", w.name, b.kind, d)
			}
		}
	}

	if got := c.batch(); got.Number != good.Number {
		x.Fatalf("the lane moved to %d", got.Number)
	}
	c.lane.Commit(c.batch())
	repeated := c.batch()
	repeated.Number--
	c.lane.Refuse(repeated, store.Fenced)
}

// badBatch returns the next batch with a row that the store refuses.
func (c *scene) badBatch() *store.Batch {
	b := c.batch()
	b.Closes = append(b.Closes, c.closed.Close(model.Failed))
	return b
}

func testFenceAfterRefusal(x *suite) {
	c := newScene(x)
	c.lane.Refuse(c.badBatch(), store.Refused)
	skipped := c.batch()
	skipped.Number++
	c.lane.Refuse(skipped, store.Fenced) // a refused batch does not move the fence
	c.lane.Refuse(c.badBatch(), store.Refused)
	c.lane.Commit(c.batch())
	_, landed, err := x.Store.Refence(x.Context(), c.lane.Ref)
	if err != nil || landed != c.lane.Landed {
		x.Errorf("landed %d, %v; want %d", landed, err, c.lane.Landed)
	}
}

func testLanes(x *suite) {
	n := x.Join(3)
	for i := range 6 {
		l := n.Lanes[i%2]
		a := x.Subject()
		l.Write(func(b *store.Batch) { b.Starts = append(b.Starts, a.StartRow()) })
	}
	n.Lanes[2].Write(func(*store.Batch) {})
	for i, want := range []int64{3, 3, 1} {
		_, landed, err := x.Store.Refence(x.Context(), n.Lanes[i].Ref)
		if err != nil || landed != want {
			x.Errorf("lane %d landed %d, %v; want %d", i, landed, err, want)
		}
	}
}

func testOvertake(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.Subject()
	l.Write(func(b *store.Batch) { b.Starts = append(b.Starts, a.StartRow()) })

	for range 12 {
		first, second := l.Batch(), l.Batch()
		first.Events = []store.EventRow{a.Event(first.Number)}
		second.Number++
		second.Events = []store.EventRow{a.Event(second.Number)}
		var wg sync.WaitGroup
		var firstErr, secondErr error
		wg.Go(func() { _, secondErr = x.Store.Commit(x.Context(), second) })
		wg.Go(func() { _, firstErr = x.Store.Commit(x.Context(), first) })
		wg.Wait()
		if firstErr != nil {
			x.Fatalf("batch %d: %v", first.Number, firstErr)
		}

		l.Landed = first.Number
		if secondErr == nil {
			l.Landed = second.Number
		} else if store.ClassOf(secondErr) != store.Fenced {
			x.Fatalf("batch %d before its time: %v", second.Number, secondErr)
		}

		events := try(x.Store.LoadEvents(x.Context(), a.RunKey, 0, 1000, 1<<20)).or(x)
		if len(events) != int(l.Landed-1) {
			x.Fatalf("%d events after batch %d", len(events), l.Landed)
		}
	}

	x.Note(&store.Batch{Events: []store.EventRow{a.Event(1)}})
}

func testRefence(x *suite) {
	n := x.Join(2)
	l, a := n.Lanes[0], x.Subject()
	epoch, landed, err := x.Store.Refence(x.Context(), l.Ref)
	if err != nil || landed != 0 || epoch <= l.Ref.Epoch {
		x.Fatalf("refence of a fresh lane: epoch %d, landed %d, %v; had epoch %d", epoch, landed, err, l.Ref.Epoch)
	}
	old := l.Batch()
	old.Starts = append(old.Starts, a.StartRow())
	l.Refuse(old, store.Fenced)
	l.Ref.Epoch = epoch
	l.Write(func(b *store.Batch) { b.Starts = append(b.Starts, a.StartRow()) })
	l.Write(func(b *store.Batch) { b.Events = append(b.Events, a.Event(1)) })
	was := l.Ref
	epoch, landed, err = x.Store.Refence(x.Context(), l.Ref)
	if err != nil || landed != 2 || epoch <= was.Epoch {
		x.Fatalf("refence: epoch %d, landed %d, %v; want a later epoch than %d and batch 2", epoch, landed, err, was.Epoch)
	}

	// The store refuses every batch of the old epoch: the batch that would have been next, and
	// batches with any other number.
	for number := range int64(5) {
		b := l.Batch()
		b.Number, b.Events = number, []store.EventRow{a.Event(number + 2)}
		l.Refuse(b, store.Fenced)
	}

	l.Ref.Epoch = epoch
	l.Write(func(b *store.Batch) { b.Events = append(b.Events, a.Event(2)) })
	// The other lane and the lease are not affected.
	n.Lanes[1].Write(func(*store.Batch) {})
	n.Renew(time.Hour)
	if got := n.Acquire(5); len(got) != 1 {
		x.Errorf("acquired %v after a refence, want shard 5", got)
	}
	l.Write(func(b *store.Batch) { b.Free = []model.ShardID{5} })

	// Epochs come from one counter.
	if later := x.Join(1); later.Epoch <= epoch {
		x.Errorf("a later node has epoch %d, not above %d", later.Epoch, epoch)
	}
}

func testRefenceFenced(x *suite) {
	n := x.Join(1)
	ref := n.Lanes[0].Ref
	for name, change := range map[string]func(r *store.LaneRef){
		"older epoch":  func(r *store.LaneRef) { r.Epoch-- },
		"newer epoch":  func(r *store.LaneRef) { r.Epoch++ },
		"unknown lane": func(r *store.LaneRef) { r.Lane = 7 },
		"unknown node": func(r *store.LaneRef) { r.Node = x.NodeID() },
	} {
		r := ref
		change(&r)
		if _, _, err := x.Store.Refence(x.Context(), r); !errors.Is(err, store.ErrFenced) {
			x.Errorf("%s: %v, want fenced", name, err)
		}
	}

	n.Lanes[0].Write(func(*store.Batch) {}) // none of these calls moved the fence
	n.Fence()
	if _, _, err := x.Store.Refence(x.Context(), ref); !errors.Is(err, store.ErrFenced) {
		x.Errorf("refence of a fenced node: %v, want fenced", err)
	}
}

func testFencedNode(x *suite) {
	c := newScene(x)
	x.Note(c.batch())
	c.node.Fence()
	before := x.Contents()
	if b := before.Members; len(b) != 1 || b[0] != c.other.ID {
		x.Errorf("members after the fence: %v", b)
	}
	c.lane.Refuse(c.batch(), store.Fenced)
	c.lane.Refuse(c.lane.Batch(), store.Fenced)
	ctx := x.Context()
	_, err := x.Store.Renew(ctx, store.RenewRequest{Node: c.node.ID, Epoch: c.node.Epoch, TTL: time.Hour})
	x.WantClass(err, store.Fenced)
	_, err = x.Store.Acquire(ctx, c.node.ID, c.node.Epoch, []model.ShardID{9})
	x.WantClass(err, store.Fenced)
	_, _, err = x.Store.Refence(ctx, c.lane.Ref)
	x.WantClass(err, store.Fenced)
	if err = x.Store.Unregister(ctx, c.node.ID, c.node.Epoch); err != nil {
		x.WantClass(err, store.Fenced)
	}
	ok, err := x.Store.FenceNode(ctx, store.FenceRequest{Node: c.node.ID, Epoch: c.node.Epoch})
	if err != nil || !ok {
		x.Errorf("fencing a node that is gone: %v, %v; want true", ok, err)
	}

	// A fenced node also cannot free a shard that has a new owner.
	if got := c.other.Acquire(1, 2, 3); len(got) != 3 {
		x.Fatalf("acquired %v, want the three shards of the fenced node", got)
	}
	if err = x.Store.Unregister(ctx, c.node.ID, c.node.Epoch); err != nil {
		x.WantClass(err, store.Fenced)
	}

	after := x.Contents()
	for _, o := range after.Owners {
		if o.Node != c.other.ID || o.Epoch != c.other.Epoch {
			x.Errorf("shard %d belongs to %s at epoch %d", o.Shard, o.Node, o.Epoch)
		}
	}

	before.Owners, after.Owners = nil, nil
	x.Want("contents after the calls of the fenced node", before, after)
}
