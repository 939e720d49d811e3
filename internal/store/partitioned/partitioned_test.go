package partitioned_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/partitioned"
	"github.com/perdure/perdure/internal/store/storetest"
)

// shards is the number of shards of all stores in the conformance tests.
const shards = 16

// A clocked store is a partitioned store on memory stores, with a clock that the test moves.
type clocked struct {
	store.Store
	now *atomic.Int64
}

func advance(s store.Store, d time.Duration) {
	s.(interface{ clock() *atomic.Int64 }).clock().Add(int64(d))
}

func (c clocked) clock() *atomic.Int64 { return c.now }

func (c clocked) inner() store.Store { return c.Store }

// Search looks for values, as the suite expects of every store.
func (c clocked) Search(ctx context.Context, text string, found func([]byte) error) error {
	return c.Store.(store.Searcher).Search(ctx, text, found)
}

// open opens two memory stores with these groups as one. The member has the given groups.
func open(t testing.TB, groups []model.Group, inMember ...string) clocked {
	t.Helper()
	now := &atomic.Int64{}
	now.Store(int64(time.Hour))
	o := memory.Options{Shards: shards, Groups: groups, Now: func() time.Time { return time.Unix(0, now.Load()) }}
	s, err := partitioned.New(memory.New(o), []partitioned.Member{{Name: "eu", Groups: inMember, Store: memory.New(o)}})
	if err != nil {
		t.Fatal(err)
	}
	return clocked{s, now}
}

// pinned lets the lanes of the conformance suite write to one part. Lane i of the suite becomes the
// i-th lane of that part.
type pinned struct {
	clocked
	part int
}

func (p pinned) lane(l store.LaneRef) store.LaneRef {
	if l.Lane >= 0 {
		l.Lane = l.Lane*2 + p.part
	}
	return l
}

func (p pinned) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	return p.Store.Register(ctx, n, lanes*2, ttl)
}

func (p pinned) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	mine := *b
	mine.Lane = p.lane(b.Lane)
	return p.Store.Commit(ctx, &mine)
}

func (p pinned) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	return p.Store.Refence(ctx, p.lane(l))
}

// groupsToRun returns the groups of the conformance suite to run. In short mode, which is used with
// the race detector, it returns only some groups.
func groupsToRun() []string {
	if testing.Short() {
		return storetest.Overlapping()
	}
	return nil
}

// Everything that a store promises holds if all shards are in the home.
func TestConformanceOfTheHome(t *testing.T) {
	t.Parallel()
	storetest.RunWith(t, storetest.Options{Advance: advance, Only: groupsToRun(), Open: func(t *testing.T) store.Store {
		return pinned{open(t, []model.Group{{Name: "eu"}}, "eu"), 0}
	}})
}

// Everything that a store promises holds if all shards are in a member.
func TestConformanceOfAMember(t *testing.T) {
	t.Parallel()
	storetest.RunWith(t, storetest.Options{Advance: advance, Only: groupsToRun(), Open: func(t *testing.T) store.Store {
		return pinned{open(t, []model.Group{{Name: "eu", Shards: shards}}, "eu"), 1}
	}})
}

// spread divides the batches of the conformance suite between the parts. A lane of the suite is
// then a lane of each part, and each batch is a batch of each part. The commits of both parts
// together are not atomic, so the suite leaves out the tests that need atomic commits (see
// notAtomic).
type spread struct {
	pinned
	mu     *sync.Mutex
	landed map[store.LaneRef]int64
}

func (s spread) Commit(ctx context.Context, b *store.Batch) (all store.Committed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := s.Info()
	of := info.PartsOfShards()

	for part := range 2 {
		starts, mine := cut(b, func(id model.ShardID) bool {
			return int(id) < len(of) && of[id] == part || int(id) >= len(of) && part == 0
		})
		mine.Lane.Lane = b.Lane.Lane*2 + part
		// Normally this is the number that the suite uses. The numbers differ after one part has
		// refused a batch that the other part has applied.
		mine.Number = s.landed[mine.Lane] + 1
		if mine.Empty() && mine.Number > b.Number {
			continue
		}

		c, err := s.Store.Commit(ctx, mine)
		if err != nil {
			return all, err
		}
		s.landed[mine.Lane] = mine.Number
		for _, e := range c.Existing {
			e.Index = starts[e.Index]
			all.Existing = append(all.Existing, e)
		}
	}
	slices.SortFunc(all.Existing, func(a, b store.ExistingStart) int { return a.Index - b.Index })
	return all, nil
}

// cut returns a batch with the rows whose shards are ours, and the indexes that its starts had in
// the whole batch.
func cut(b *store.Batch, ours func(model.ShardID) bool) (starts []int, mine *store.Batch) {
	mine = b.Clone()
	for i := range b.Starts {
		if ours(b.Starts[i].Shard) {
			starts = append(starts, i)
		}
	}

	mine.Deletes = keep(mine.Deletes, func(r *store.RunKey) bool { return ours(r.Shard) })
	mine.Removes = keep(mine.Removes, func(r *store.RunKey) bool { return ours(r.Shard) })
	mine.EntityRemoves = keep(mine.EntityRemoves, func(r *store.EntityKey) bool { return ours(r.Shard) })
	mine.Starts = keep(mine.Starts, func(r *store.StartRow) bool { return ours(r.Shard) })
	mine.Closes = keep(mine.Closes, func(r *store.CloseRow) bool { return ours(r.Shard) })
	mine.Marks = keep(mine.Marks, func(r *store.MarkRow) bool { return ours(r.Shard) })
	mine.Labels = keep(mine.Labels, func(r *store.LabelRow) bool { return ours(r.Shard) })
	mine.Events = keep(mine.Events, func(r *store.EventRow) bool { return ours(r.Shard) })
	mine.Dead = keep(mine.Dead, func(r *store.DeadRow) bool { return ours(r.Shard) })
	mine.DeadMarks = keep(mine.DeadMarks, func(r *store.DeadMark) bool { return ours(r.Shard) })
	mine.DeadDeletes = keep(mine.DeadDeletes, func(r *store.DeadKey) bool { return ours(r.Shard) })
	mine.TaskData = keep(mine.TaskData, func(r *store.TaskDatum) bool { return ours(r.Shard) })
	mine.Logs = keep(mine.Logs, func(r *store.LogRow) bool { return ours(r.Shard) })
	mine.StopTimers = keep(mine.StopTimers, func(r *store.TimerKey) bool { return ours(r.Shard) })
	mine.Timers = keep(mine.Timers, func(r *store.Timer) bool { return ours(r.Shard) })
	mine.StopAll = keep(mine.StopAll, func(r *store.RunKey) bool { return ours(r.Shard) })
	mine.Taken = keep(mine.Taken, func(r *store.MailboxKey) bool { return ours(r.Shard) })
	mine.Mailbox = keep(mine.Mailbox, func(r *store.MailboxRow) bool { return ours(r.Shard) })
	mine.Entities = keep(mine.Entities, func(r *store.EntityRow) bool { return ours(r.Shard) })
	mine.Messages = keep(mine.Messages, func(r *store.MessageRow) bool { return ours(r.From) })
	mine.Cursors = keep(mine.Cursors, func(r *store.CursorRow) bool { return ours(r.To) })
	mine.Inbox = keep(mine.Inbox, func(r *store.InboxKey) bool { return ours(r.Shard) })
	mine.Deferred = keep(mine.Deferred, func(r *store.InboxRow) bool { return ours(r.Shard) })
	mine.Requests = keep(mine.Requests, func(r *store.Reply) bool { return ours(r.Shard) })
	mine.Forgets = keep(mine.Forgets, func(r *store.RequestKey) bool { return ours(r.Shard) })
	mine.Tokens = keep(mine.Tokens, func(r *store.TokenMark) bool { return ours(r.Shard) })
	mine.Free = keep(mine.Free, func(r *model.ShardID) bool { return ours(*r) })
	return starts, mine
}

func keep[T any](rows []T, ours func(*T) bool) []T {
	return slices.DeleteFunc(rows, func(r T) bool { return !ours(&r) })
}

// notAtomic are the tests in which the store refuses a batch. It also has a test that expects an
// exact answer about waiting mail, where a partitioned store may report mail too early.
var notAtomic = []string{
	"a refused batch deletes nothing",
	"an open run is not deleted",
	"a batch frees a shard with its last rows",
	"an item is there once and is taken once",
	"a refused batch leaves entities and mailboxes alone",
	"a view tells of mail",
}

// Reads, listings, messages and retention give the same results if every second shard is in a
// member.
func TestConformanceAcrossParts(t *testing.T) {
	t.Parallel()
	groups, inMember := alternating()
	storetest.RunWith(t, storetest.Options{
		Advance: advance,
		Open: func(t *testing.T) store.Store {
			return spread{pinned{open(t, groups, inMember...), 0}, &sync.Mutex{}, map[store.LaneRef]int64{}}
		},
		Skip: notAtomic,
		Only: []string{
			"runs", "events", "timers", "deletes", "removes", "retention", "messages", "inbox", "damaged rows", "texts", "list", "search", "labels", "queries",
			"dead tasks", "data of tasks", "entities", "settings", "remote workers", "audit", "reports", "leases",
		},
	})
}
