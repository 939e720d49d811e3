package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

var randomTests = []test{
	{name: "the same calls as on the memory store, seed 1", run: func(x *suite) { testRandom(x, 1) }},
	{name: "the same calls as on the memory store, seed 2", run: func(x *suite) { testRandom(x, 2) }},
}

// duel makes the same random calls on two stores, and compares their answers and their contents.
// Most rows are valid. Whether a row is valid is up to the second store: the store under test must
// accept and refuse the same rows.
type duel struct {
	*suite
	rng *rand.Rand
	// stores are the store under test and the store to compare it with.
	stores [2]*contender
	shards []model.ShardID
	// The rows of the batches belong to these addresses and runs.
	addresses []model.Address
	runs      []Subject
	nodes     []model.NodeID
	// sent and received are positions of pairs after the last commit.
	sent, received map[[2]model.ShardID]int64
	accepted       int
	refused        int
}

// contender is one of the two stores, with its epochs. The numbers of epochs may differ between the
// stores.
type contender struct {
	s     store.Store
	nodes map[model.NodeID]int64
	lanes map[laneKey]int64
}

type laneKey struct {
	node model.NodeID
	lane int
}

const duelLanes = 2

func testRandom(x *suite, seed uint64) {
	d := &duel{
		suite: x, rng: rand.New(rand.NewPCG(seed, 1)), shards: x.Shards()[2:6],
		sent: make(map[[2]model.ShardID]int64), received: make(map[[2]model.ShardID]int64),
	}

	oracle := memory.New(memory.Options{Shards: x.Store.Info().Shards})
	for i, s := range []store.Store{x.Store, oracle} {
		d.stores[i] = &contender{s: s, nodes: make(map[model.NodeID]int64), lanes: make(map[laneKey]int64)}
	}
	for _, s := range d.shards {
		d.addresses = append(d.addresses, x.AddressIn(s), x.AddressIn(s))
	}
	landed := make(map[laneKey]int64)
	d.join()
	d.join()

	const steps = 300
	for step := range steps {
		switch n := d.rng.IntN(40); {
		case n == 0:
			d.replace()
		case n == 1:
			d.refence(landed)
		case n == 2:
			d.sweep()
		case n < 6:
			d.put()
		case n < 8:
			d.acquire()
		default:
			d.commit(landed)
		}

		if step%30 == 29 || step == steps-1 {
			if d.o.Reopen != nil && step%60 == 59 {
				d.reopen()
				d.stores[0].s = d.Store
			}
			d.compare(fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}

	if d.accepted < steps/4 || d.refused < steps/20 {
		x.Errorf("%d batches committed and %d refused: this test proves nothing", d.accepted, d.refused)
	}
}

// both makes a call on both stores and compares the errors. If there is no error, it also compares
// the answers.
func both[T any](d *duel, what string, call func(ctx context.Context, c *contender) (T, error)) (T, error) {
	d.Helper()
	got, err := call(d.Context(), d.stores[0])
	want, wantErr := call(d.Context(), d.stores[1])
	if (err == nil) != (wantErr == nil) || (err != nil && store.ClassOf(err) != store.ClassOf(wantErr)) {
		d.Fatalf("%s: got %v, the memory store says %v", what, err, wantErr)
	}
	if err == nil {
		if diff := Diff(want, got); diff != "" {
			d.Fatalf("%s (-memory +got):\n%s", what, diff)
		}
	}
	return want, wantErr
}

// compare compares the contents of both stores, except for epochs.
func (d *duel) compare(when string) {
	d.Helper()
	got, want := d.Contents(), try(Read(d.Context(), d.stores[1].s, d.scope)).or(d)
	for _, c := range []Contents{got, want} {
		for i := range c.Owners {
			c.Owners[i].Epoch = 0
		}
		for i := range c.Logs {
			c.Logs[i].Epoch = 0
		}
	}
	if diff := Diff(want, got); diff != "" {
		d.Fatalf("%s (-memory +got):\n%s", when, diff)
	}
}

func (d *duel) join() {
	id := d.NodeID()
	d.nodes = append(d.nodes, id)
	for _, c := range d.stores {
		r := try(c.s.Register(d.Context(), store.NodeInfo{ID: id}, duelLanes, time.Hour)).or(d)
		c.nodes[id] = r.Epoch
		for lane := range duelLanes {
			c.lanes[laneKey{id, lane}] = r.Epoch
		}
	}
}

// replace removes a node, in a random way, and adds a new node. The old node continues to send
// batches, as a zombie.
func (d *duel) replace() {
	id := d.nodes[len(d.nodes)-1-d.rng.IntN(2)]
	if d.rng.IntN(2) == 0 {
		_, _ = both(d, "fence", func(ctx context.Context, c *contender) (bool, error) {
			return c.s.FenceNode(ctx, store.FenceRequest{Node: id, Epoch: c.nodes[id], Proven: true})
		})
	} else {
		for _, c := range d.stores { // adapters may return different errors for a node that is gone
			if err := c.s.Unregister(d.Context(), id, c.nodes[id]); err != nil {
				d.WantClass(err, store.Fenced)
			}
		}
	}
	d.join()
}

func (d *duel) refence(landed map[laneKey]int64) {
	key := d.lane()
	epochs := [2]int64{}
	got, err := both(d, "refence", func(ctx context.Context, c *contender) (int64, error) {
		epoch, landed, err := c.s.Refence(ctx, store.LaneRef{Node: key.node, Lane: key.lane, Epoch: c.lanes[key]})
		if c == d.stores[0] {
			epochs[0] = epoch
		} else {
			epochs[1] = epoch
		}
		return landed, err
	})
	if err != nil {
		return
	}

	if got != landed[key] {
		d.Fatalf("refence says %d landed, %d were acknowledged", got, landed[key])
	}
	for i, c := range d.stores {
		c.lanes[key] = epochs[i]
	}
}

func (d *duel) sweep() {
	r := store.SweepRequest{Shards: d.shards[:1+d.rng.IntN(len(d.shards))], RequestsBefore: Noon + model.Time(d.rng.IntN(50)), LogsBefore: Noon + model.Time(d.rng.IntN(10)), Limit: 1000}
	_, _ = both(d, "sweep", func(ctx context.Context, c *contender) (int, error) { return c.s.Sweep(ctx, r) })
}

func (d *duel) put() {
	s := d.run()
	rows := []store.InboxRow{s.Request(d.RunID(), fmt.Sprint("request ", d.rng.IntN(20)))}
	_, _ = both(d, "put inbox", func(ctx context.Context, c *contender) (struct{}, error) {
		return struct{}{}, c.s.PutInbox(ctx, rows)
	})
}

func (d *duel) acquire() {
	id := d.nodes[d.rng.IntN(len(d.nodes))]
	_, _ = both(d, "acquire", func(ctx context.Context, c *contender) ([]store.AcquiredShard, error) {
		got, err := c.s.Acquire(ctx, id, c.nodes[id], d.shards)
		for i := range got {
			got[i] = movedState(got[i])
		}
		slices.SortFunc(got, func(a, b store.AcquiredShard) int { return int(a.Shard) - int(b.Shard) })
		return got, err
	})
}

// lane returns one of the lanes of the last few nodes, including zombies.
func (d *duel) lane() laneKey {
	recent := d.nodes[max(0, len(d.nodes)-3):]
	return laneKey{recent[d.rng.IntN(len(recent))], d.rng.IntN(duelLanes)}
}

// run returns a run that may exist.
func (d *duel) run() Subject {
	if len(d.runs) == 0 {
		d.runs = append(d.runs, d.SubjectOf(d.addresses[0]))
	}
	return d.runs[max(0, len(d.runs)-12)+d.rng.IntN(min(12, len(d.runs)))]
}

// commit sends a random batch to both stores.
func (d *duel) commit(landed map[laneKey]int64) {
	key := d.lane()
	b := &store.Batch{Number: landed[key] + 1, At: Noon}
	if d.rng.IntN(25) == 0 {
		b.Number += int64(d.rng.IntN(3) - 1)
	}
	m := mixer{duel: d, b: b, node: key.node, sent: make(map[[2]model.ShardID]int64), received: make(map[[2]model.ShardID]int64)}
	for range 1 + d.rng.IntN(5) {
		m.add()
	}
	d.Note(b)

	_, err := both(d, "commit", func(ctx context.Context, c *contender) (store.Committed, error) {
		mine := *b
		mine.Lane = store.LaneRef{Node: key.node, Lane: key.lane, Epoch: c.lanes[key]}
		return c.s.Commit(ctx, &mine)
	})
	if err != nil {
		if store.ClassOf(err) == store.Refused {
			d.refused++
		}
		return
	}

	d.accepted++
	landed[key] = b.Number
	maps.Copy(d.sent, m.sent)
	maps.Copy(d.received, m.received)
}
