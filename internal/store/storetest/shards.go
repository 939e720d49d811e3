package storetest

import (
	"errors"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var shardTests = []test{
	{name: "acquire takes what is free", run: testAcquire},
	{name: "acquire may be repeated", run: testAcquireAgain},
	{name: "acquire of a node that is not ours", run: testAcquireFenced},
	{name: "state travels with a shard", run: testTravel},
	{name: "a batch frees a shard with its last rows", run: testFree},
	{name: "the mark of tokens travels with a shard and only rises", run: testTokens},
	{name: "nodes that race for shards get disjoint sets", run: testAcquireRace},
}

// shardsOf returns the shards of an answer, in order.
func shardsOf(got []store.AcquiredShard) []model.ShardID {
	var out []model.ShardID
	for _, a := range got {
		out = append(out, a.Shard)
	}
	slices.Sort(out)
	return out
}

func testAcquire(x *suite) {
	a, b := x.Join(1), x.Join(1)
	x.Want("first", []model.ShardID{2, 7}, shardsOf(a.Acquire(7, 2)))
	x.Want("second gets the rest", []model.ShardID{1, 3}, shardsOf(b.Acquire(1, 2, 3, 7)))
	x.Want("nothing asked", []model.ShardID(nil), shardsOf(b.Acquire()))
	x.Want("owners", []store.ShardOwner{
		{Shard: 1, Node: b.ID, Epoch: b.Epoch},
		{Shard: 2, Node: a.ID, Epoch: a.Epoch},
		{Shard: 3, Node: b.ID, Epoch: b.Epoch},
		{Shard: 7, Node: a.ID, Epoch: a.Epoch},
	}, x.Contents().Owners)
	a.Fence()
	c := x.Join(1)
	x.Want("those of a fenced node", []model.ShardID{2, 7}, shardsOf(c.Acquire(7, 3, 2, 1)))
}

func testAcquireAgain(x *suite) {
	n := x.Join(1)
	n.Acquire(2, 7)
	n.Lanes[0].Write(func(b *store.Batch) { b.Messages = rows(1, 2, 1, 3) })
	got := n.Acquire(2, 7, 8)
	x.Want("what is ours comes again", []model.ShardID{2, 7, 8}, shardsOf(got))
	for _, a := range got {
		if a.Shard == 2 {
			x.Want("with its state", store.AcquiredShard{Shard: 2, Sent: map[model.ShardID]int64{1: 3}}, movedState(a))
		}
	}
}

func testAcquireFenced(x *suite) {
	n := x.Join(1)
	for name, call := range map[string]func() error{
		"older epoch": func() error {
			_, err := x.Store.Acquire(x.Context(), n.ID, n.Epoch-1, []model.ShardID{1})
			return err
		},
		"unknown node": func() error {
			_, err := x.Store.Acquire(x.Context(), x.NodeID(), n.Epoch, []model.ShardID{1})
			return err
		},
	} {
		if err := call(); !errors.Is(err, store.ErrFenced) {
			x.Errorf("%s: %v, want fenced", name, err)
		}
	}

	x.Want("owners", []store.ShardOwner(nil), x.Contents().Owners)
	n.Acquire(1)
	n.Fence()
	_, err := x.Store.Acquire(x.Context(), n.ID, n.Epoch, []model.ShardID{1, 2})
	x.WantClass(err, store.Fenced)
}

func testTravel(x *suite) {
	n := x.Join(1)
	l := n.Lanes[0]
	l.Write(func(b *store.Batch) {
		b.Messages = slices.Concat(rows(1, 2, 1, 5), rows(2, 1, 1, 2), rows(1, 1, 1, 1), rows(9, 1, 1, 4))
	})
	l.Write(func(b *store.Batch) {
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 4}, {To: 9, From: 1, Next: 4}}
	})

	for _, w := range []store.AcquiredShard{
		{Shard: 1, Received: map[model.ShardID]int64{2: 4}, Sent: map[model.ShardID]int64{1: 1, 2: 2, 9: 4}},
		{Shard: 2, Sent: map[model.ShardID]int64{1: 5}},
		{Shard: 9, Received: map[model.ShardID]int64{1: 4}},
		{Shard: 5},
	} {
		x.Want("state", w, x.state(w.Shard))
	}

	// Acquiring all shards in one call has the same result as acquiring them one by one.
	other := x.Join(1)
	got := other.Acquire(1, 2, 9, 5)
	slices.SortFunc(got, func(a, b store.AcquiredShard) int { return int(a.Shard) - int(b.Shard) })
	for i := range got {
		got[i] = movedState(got[i])
	}

	x.Want("state of all", []store.AcquiredShard{
		{Shard: 1, Received: map[model.ShardID]int64{2: 4}, Sent: map[model.ShardID]int64{1: 1, 2: 2, 9: 4}},
		{Shard: 2, Sent: map[model.ShardID]int64{1: 5}},
		{Shard: 5},
		{Shard: 9, Received: map[model.ShardID]int64{1: 4}},
	}, got)
}

func testFree(x *suite) {
	a, b := x.Join(2), x.Join(1)
	a.Acquire(1, 2, 3)
	s := x.SubjectIn(1)

	a.Lanes[1].Write(func(w *store.Batch) {
		w.Starts = []store.StartRow{s.StartRow()}
		w.Messages = rows(4, 1, 1, 2)
		w.Free = []model.ShardID{1, 3}
	})

	x.Want("owners", []store.ShardOwner{{Shard: 2, Node: a.ID, Epoch: a.Epoch}}, x.Contents().Owners)
	got := b.Acquire(1, 2, 3)
	x.Want("acquired", []model.ShardID{1, 3}, shardsOf(got))
	again := a.Lanes[1].Batch()
	again.Free = []model.ShardID{2, 1}
	a.Lanes[1].Refuse(again, store.Refused)

	// After a refence the lane has another epoch than the node. The node still owns its shards.
	epoch, _, err := x.Store.Refence(x.Context(), a.Lanes[0].Ref)
	if err != nil {
		x.Fatalf("refence: %v", err)
	}
	a.Lanes[0].Ref.Epoch = epoch
	a.Lanes[0].Write(func(w *store.Batch) { w.Free = []model.ShardID{2} })
	x.Want("acquired at last", []model.ShardID{2}, shardsOf(b.Acquire(2)))
}

func testTokens(x *suite) {
	const mark = 1_790_000_000_000_000
	a := x.Join(1)
	x.Want("a new store", int64(0), a.Acquire(2)[0].Tokens)
	a.Acquire(3)
	a.Lanes[0].Write(func(b *store.Batch) { b.Tokens = []store.TokenMark{{Shard: 3, Mark: 7}, {Shard: 2, Mark: mark}} })
	a.Lanes[0].Write(func(b *store.Batch) { b.Tokens = []store.TokenMark{{Shard: 2, Mark: mark - 1}} })
	x.Want("a lower mark changes nothing", int64(mark), a.Acquire(2)[0].Tokens)

	// A refused batch does not raise a mark. The store refuses a batch for a shard that does not
	// exist.
	w := a.Lanes[0].Batch()
	w.Tokens, w.Free = []store.TokenMark{{Shard: 2, Mark: mark + 5}}, []model.ShardID{model.MaxShards - 1}
	a.Lanes[0].Refuse(w, store.Refused)
	w = a.Lanes[0].Batch()
	w.Tokens = []store.TokenMark{{Shard: model.MaxShards - 1, Mark: 1}}
	a.Lanes[0].Refuse(w, store.Refused)

	a.Fence()
	b := x.Join(1)
	got := b.Acquire(2, 3)
	x.Want("the next owner", []int64{mark, 7}, []int64{got[0].Tokens, got[1].Tokens})
	b.Lanes[0].Write(func(w *store.Batch) {
		w.Tokens, w.Free = []store.TokenMark{{Shard: 2, Mark: mark + 1}}, []model.ShardID{2}
	})
	x.Want("of a shard that was freed", int64(mark+1), x.Join(1).Acquire(2)[0].Tokens)
}

func testAcquireRace(x *suite) {
	const nodes = 4
	all := x.Shards()
	handles := []store.Store{x.Store}

	if x.o.Second != nil {
		second := x.o.Second(x.t, x.Store)
		x.Cleanup(func() { _ = second.Close() })
		handles = append(handles, second)
	}

	var members []*Node
	for range nodes {
		members = append(members, x.Join(1))
	}
	dead := x.Join(1)
	dead.Acquire(all[:len(all)/2]...) // half of them from a dead node, half of them free
	dead.Fence()
	got := make([][]model.ShardID, nodes)
	errs := make([]error, nodes)

	var wg sync.WaitGroup
	for i, n := range members {
		wg.Go(func() {
			ask := slices.Clone(all)
			if i%2 == 1 {
				slices.Reverse(ask) // each node asks in another order
			}
			for part := range slices.Chunk(ask, 5) {
				acquired, err := handles[i%len(handles)].Acquire(x.Context(), n.ID, n.Epoch, part)
				for err != nil && store.ClassOf(err) == store.Retryable {
					acquired, err = handles[i%len(handles)].Acquire(x.Context(), n.ID, n.Epoch, part)
				}
				if err != nil {
					errs[i] = err
					return
				}
				got[i] = append(got[i], shardsOf(acquired)...)
			}
		})
	}

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		x.Fatal(err)
	}

	owner := make(map[model.ShardID]model.NodeID)
	for i, shards := range got {
		for _, s := range shards {
			if before, taken := owner[s]; taken {
				x.Errorf("shard %d was given to %s and to %s", s, before, members[i].ID)
			}
			owner[s] = members[i].ID
		}
	}

	if len(owner) != len(all) {
		x.Errorf("%d shards were given away, want %d", len(owner), len(all))
	}

	for _, o := range x.Contents().Owners {
		if owner[o.Shard] != o.Node {
			x.Errorf("shard %d is recorded for %s, but was given to %s", o.Shard, o.Node, owner[o.Shard])
		}
	}
}
