package partitioned_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/partitioned"
	"github.com/perdure/perdure/internal/store/storetest"
)

// flaky is a member whose calls fail while the test says so.
type flaky struct {
	store.Part
	down atomic.Bool
	// noFence makes only the removal of nodes fail, and noCursors makes only the reading of cursors
	// fail.
	noFence, noCursors atomic.Bool
	// late holds the first registration back, as a slow network does, until the channel is closed.
	late          chan struct{}
	registrations atomic.Int32 // registrations that are under way
	arrived       chan struct{}
	refuses       atomic.Bool // makes registrations fail with a refusal
	lost          atomic.Bool // loses the answers of commits
	// held holds the next view back, after the member has made it, until the test lets it arrive.
	held atomic.Pointer[heldView]
	// within is the time limit that the last call of LoadReplies or Sweep had; 0 means that it had
	// none.
	within atomic.Int64
}

func (f *flaky) noteLimit(ctx context.Context) {
	f.within.Store(0)
	if end, ok := ctx.Deadline(); ok {
		f.within.Store(int64(time.Until(end)))
	}
}

func (f *flaky) broken() error {
	if f.down.Load() {
		return store.Errorf(store.Away, "test", "connection refused")
	}
	return nil
}

func (f *flaky) FenceNode(ctx context.Context, r store.FenceRequest) (bool, error) {
	if f.noFence.Load() || f.down.Load() {
		return false, store.Errorf(store.Away, "test", "connection refused")
	}
	return f.Part.FenceNode(ctx, r)
}

func (f *flaky) RegisterAt(ctx context.Context, r store.PartRegistration) error {
	if f.refuses.Load() {
		return store.Errorf(store.Refused, "test", "the groups have changed")
	}
	defer f.registrations.Add(-1)
	if f.registrations.Add(1) == 1 && f.late != nil {
		<-f.late
		defer close(f.arrived)
		f.late = nil
		ctx = context.WithoutCancel(ctx) // the registration arrives even if its sender has given up
	}
	return cmpErr(f.broken(), func() error { return f.Part.RegisterAt(ctx, r) })
}

func (f *flaky) Unregister(ctx context.Context, n model.NodeID, epoch int64) error {
	return cmpErr(f.broken(), func() error { return f.Part.Unregister(ctx, n, epoch) })
}

func (f *flaky) Renew(ctx context.Context, r store.RenewRequest) (v store.View, err error) {
	err = cmpErr(f.broken(), func() error { v, err = f.Part.Renew(ctx, r); return err })
	return v, err
}

func (f *flaky) Members(ctx context.Context) (v store.View, err error) {
	err = cmpErr(f.broken(), func() error { v, err = f.Part.Members(ctx); return err })
	if h := f.held.Swap(nil); h != nil {
		close(h.made)
		<-h.arrive
	}
	return v, err
}

// heldView is a view that is made and has not arrived.
type heldView struct{ made, arrive chan struct{} }

func (f *flaky) Commit(ctx context.Context, b *store.Batch) (c store.Committed, err error) {
	err = cmpErr(f.broken(), func() error { c, err = f.Part.Commit(ctx, b); return err })
	if err == nil && f.lost.Load() {
		return store.Committed{}, store.Errorf(store.Unknown, "test", "connection reset")
	}
	return c, err
}

func (f *flaky) LoadReplies(ctx context.Context, k []store.RequestKey) (r []store.Reply, err error) {
	f.noteLimit(ctx)
	err = cmpErr(f.broken(), func() error { r, err = f.Part.LoadReplies(ctx, k); return err })
	return r, err
}

func (f *flaky) LoadCursors(ctx context.Context, c []store.Channel) (r []store.ChannelCursor, err error) {
	if f.noCursors.Load() {
		return nil, store.Errorf(store.Away, "test", "connection refused")
	}
	err = cmpErr(f.broken(), func() error { r, err = f.Part.LoadCursors(ctx, c); return err })
	return r, err
}

func (f *flaky) LoadMessages(ctx context.Context, s []model.ShardID, limit, maxBytes int) (r []store.MessageRow, more bool, err error) {
	err = cmpErr(f.broken(), func() error { r, more, err = f.Part.LoadMessages(ctx, s, limit, maxBytes); return err })
	return r, more, err
}

func (f *flaky) Sweep(ctx context.Context, r store.SweepRequest) (n int, err error) {
	f.noteLimit(ctx)
	err = cmpErr(f.broken(), func() error { n, err = f.Part.Sweep(ctx, r); return err })
	return n, err
}

func (f *flaky) LoadChannels(ctx context.Context, s []model.ShardID) (c []store.Channel, err error) {
	err = cmpErr(f.broken(), func() error { c, err = f.Part.LoadChannels(ctx, s); return err })
	return c, err
}

func (f *flaky) LoadDeadBefore(ctx context.Context, s []model.ShardID, before model.Time, after store.DeadPlace, limit int) (r []store.DeadRow, err error) {
	err = cmpErr(f.broken(), func() error { r, err = f.Part.LoadDeadBefore(ctx, s, before, after, limit); return err })
	return r, err
}

func cmpErr(err error, call func() error) error {
	if err != nil {
		return err
	}
	return call()
}

// scene is two parts with one shard each. Shard 0 is in the home, and shard 1 is in the member eu.
type scene struct {
	*storetest.Fixture
	home   store.Part
	member *flaky
}

func newScene(t *testing.T, home, member store.Part) *scene {
	t.Helper()
	c := &scene{home: home, member: &flaky{Part: member}}
	s, err := partitioned.New(c.home, []partitioned.Member{{Name: "eu", Groups: []string{"eu"}, Store: c.member}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c.Fixture = storetest.New(t, s)
	return c
}

// A process may die after every step between the home and a member, and a member may be away.
// Nevertheless two nodes never write to one shard, and no message is lost or consumed twice.
func TestStepsBetweenDatabases(t *testing.T) {
	t.Parallel()
	copies := divided([]model.Group{{Name: "eu", Shards: 1}}, "eu")
	for name, run := range map[string]func(*testing.T, *scene){
		"fence that ends after the home":         testFenceThatEndsAfterTheHome,
		"register while a member is away":        testRegisterWhileAMemberIsAway,
		"registration that arrives late":         testRegistrationThatArrivesLate,
		"registration that arrives last":         testRegistrationThatArrivesLast,
		"unregister that ends after the members": testUnregisterThatEndsAfterTheMembers,
		"refence in a member":                    testRefenceInAMember,
		"batch of two parts":                     testBatchOfTwoParts,
		"message to another part":                testMessageToAnotherPart,
		"member that is away":                    testMemberThatIsAway,
		"sweep while a member is away":           testSweepWhileAMemberIsAway,
		"receiver that fails":                    testReceiverThatFails,
		"registration that a member refuses":     testRegistrationThatAMemberRefuses,
		"freed shard while a member is away":     testFreedShardWhileAMemberIsAway,
		"freed shard without an answer":          testFreedShardWithoutAnAnswer,
		"time of a member":                       testTimeOfAMember,
		"view that arrives late":                 testViewThatArrivesLate,
		"nodes that end without leaving":         testNodesThatEndWithoutLeaving,
	} {
		t.Run(name+"/memory", func(t *testing.T) {
			t.Parallel()
			o := memory.Options{Shards: 2, Groups: []model.Group{{Name: "eu", Shards: 1}}}
			run(t, newScene(t, memory.New(o), memory.New(o)))
		})

		t.Run(name+"/postgres", func(t *testing.T) {
			t.Parallel()
			home, member := copies(t).parts(t)
			run(t, newScene(t, home, member))
		})
	}
}

// row returns the start of a run in a shard.
func (c *scene) row(shard model.ShardID) store.StartRow {
	s := c.Subject()
	s.RunKey.Shard = shard
	return store.StartRow{Shard: shard, Start: s.Start}
}

// mayWrite reports whether a lane of a node can commit rows of its shard.
func (c *scene) mayWrite(n *storetest.Node, part int) bool {
	l := n.Lanes[part]
	b := l.Batch()
	b.Starts = []store.StartRow{c.row(model.ShardID(part))}
	_, err := l.Try(c.Context(), b)
	if err != nil && store.ClassOf(err) != store.Fenced {
		c.Fatalf("commit: %v", err)
	}
	return err == nil
}

func shardsOf(got []store.AcquiredShard) (out []model.ShardID) {
	for _, g := range got {
		out = append(out, g.Shard)
	}
	return out
}

// A node was fenced only in the home, because the node that fenced it died or the member was away.
// The fenced node keeps its shard in the member until another node has fenced it there.
func testFenceThatEndsAfterTheHome(t *testing.T, c *scene) {
	t.Helper()
	a, b := c.Join(2), c.Join(2)
	a.Acquire(0, 1)
	if ok, err := c.home.FenceNode(t.Context(), store.FenceRequest{Node: a.ID, Epoch: a.Epoch, Proven: true}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if c.mayWrite(a, 0) {
		t.Error("a fenced node has written to the home")
	}
	if !c.mayWrite(a, 1) {
		t.Error("the owner of a shard of the member cannot write, and no other node owns it")
	}

	// While the node cannot be fenced in the member, no other node gets the shard.
	c.member.noFence.Store(true)
	if got, err := c.Store.Acquire(t.Context(), b.ID, b.Epoch, []model.ShardID{1}); err == nil {
		t.Errorf("acquired %v from an owner that could not be fenced", shardsOf(got))
	}
	if !c.mayWrite(a, 1) {
		t.Error("the owner was fenced by a call that failed")
	}

	c.member.noFence.Store(false)
	c.eventually("the shard to move", func() bool {
		got, err := c.Store.Acquire(t.Context(), b.ID, b.Epoch, []model.ShardID{0, 1})
		return err == nil && slices.Equal(shardsOf(got), []model.ShardID{0, 1})
	})
	if c.mayWrite(a, 1) {
		t.Error("two nodes write to one shard")
	}
	if !c.mayWrite(b, 1) || !c.mayWrite(b, 0) {
		t.Error("the new owner cannot write")
	}
}

// eventually waits for a condition. The time limit only ends a test that hangs.
func (c *scene) eventually(what string, done func() bool) {
	c.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(3 * time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-limit:
			c.Fatalf("waited three minutes for %s", what)
		}
	}
}

// A node that is registered only in the home gets shards of the member when the member is back.
func testRegisterWhileAMemberIsAway(t *testing.T, c *scene) {
	t.Helper()
	c.member.down.Store(true)
	n := c.Join(2)
	if got := n.Acquire(0, 1); !slices.Equal(shardsOf(got), []model.ShardID{0}) {
		t.Errorf("acquired %v, want shard 0", shardsOf(got))
	}
	if !c.mayWrite(n, 0) {
		t.Error("a member that is away keeps a node from writing to the home")
	}

	c.member.down.Store(false)
	c.eventually("the shard of the member", func() bool {
		n.Renew(time.Hour, 0, 1) // as the engine does
		got, err := c.Store.Acquire(t.Context(), n.ID, n.Epoch, []model.ShardID{1})
		return err == nil && slices.Equal(shardsOf(got), []model.ShardID{1})
	})
	if !c.mayWrite(n, 1) {
		t.Error("the owner cannot write")
	}
}

// A registration in the member arrives after the node was fenced everywhere. Another node can still
// take every shard that the late node might seem to own.
func testRegistrationThatArrivesLate(t *testing.T, c *scene) {
	t.Helper()
	a := c.Join(2)
	a.Fence()
	late := store.PartRegistration{Node: a.Info, Lanes: 2, TTL: time.Hour, Epoch: a.Epoch}
	if err := c.member.RegisterAt(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Store.Acquire(t.Context(), a.ID, a.Epoch, []model.ShardID{1}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a fenced node has acquired %v, %v", shardsOf(got), err)
	}
	b := c.Join(2)
	if got := b.Acquire(1); !slices.Equal(shardsOf(got), []model.ShardID{1}) {
		t.Errorf("acquired %v, want shard 1", shardsOf(got))
	}
	if c.mayWrite(a, 1) {
		t.Error("a fenced node writes to the member")
	}
}

// A registration takes a long time. During that time another call must not register the node, let
// it take a shard, and see it fenced, because the late registration would give the node its fences
// back. So the node takes no shard of the member while the registration is under way.
func testRegistrationThatArrivesLast(t *testing.T, c *scene) {
	t.Helper()
	late, arrived := make(chan struct{}), make(chan struct{})
	c.member.late, c.member.arrived = late, arrived
	a := c.Join(2)
	a.Renew(time.Hour, 0, 1) // this also tries to register the node
	got := a.Acquire(0, 1)
	if n := c.member.registrations.Load(); n != 1 {
		t.Errorf("%d registrations of the node are under way, want 1", n)
	}
	owns := slices.Contains(shardsOf(got), 1)

	a.Fence()
	b := c.Join(2)
	c.eventually("the shard to move", func() bool {
		got, err := c.Store.Acquire(t.Context(), b.ID, b.Epoch, []model.ShardID{1})
		return err == nil && len(got) == 1
	})
	close(late)
	<-arrived
	if owns && c.mayWrite(a, 1) {
		t.Error("two nodes write to one shard")
	}
	if !c.mayWrite(b, 1) {
		t.Error("the owner cannot write")
	}

	// The next node that takes a shard removes the late registration.
	c.eventually("the late registration to be removed", func() bool {
		b.Acquire(1)
		return !c.mayWrite(a, 1)
	})
}

// A node that has left the members, and then could not leave the home, owns nothing in the members.
func testUnregisterThatEndsAfterTheMembers(t *testing.T, c *scene) {
	t.Helper()
	a, b := c.Join(2), c.Join(2)
	a.Acquire(0, 1)
	if err := c.member.Part.Unregister(t.Context(), a.ID, a.Epoch); err != nil {
		t.Fatal(err)
	}
	if c.mayWrite(a, 1) {
		t.Error("a node that has left the member writes to it")
	}
	if got := b.Acquire(0, 1); !slices.Equal(shardsOf(got), []model.ShardID{1}) {
		t.Errorf("acquired %v, want shard 1", shardsOf(got))
	}
	a.Fence()
	if got := b.Acquire(0, 1); !slices.Equal(shardsOf(got), []model.ShardID{0, 1}) {
		t.Errorf("acquired %v, want both shards", shardsOf(got))
	}
}

// After the fence of a lane in the member has moved, the lane commits with the new epoch, which the
// home has drawn.
func testRefenceInAMember(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	if !c.mayWrite(n, 1) {
		t.Fatal("the owner cannot write")
	}
	epoch, landed, err := c.Store.Refence(t.Context(), n.Lanes[1].Ref)
	if err != nil || landed != 1 || epoch <= n.Epoch {
		t.Fatalf("epoch %d, landed %d, %v", epoch, landed, err)
	}
	if c.mayWrite(n, 1) {
		t.Error("the old epoch still writes")
	}
	n.Lanes[1].Ref.Epoch = epoch
	if !c.mayWrite(n, 1) || !c.mayWrite(n, 0) {
		t.Error("a lane cannot write after its fence has moved")
	}
	if next := c.Join(2); next.Epoch <= epoch {
		t.Errorf("epoch %d after epoch %d", next.Epoch, epoch)
	}
}

// A batch with rows of two parts is refused before anything is written.
func testBatchOfTwoParts(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	for lane := range 2 {
		b := n.Lanes[lane].Batch()
		b.Starts = []store.StartRow{c.row(0), c.row(1)}
		n.Lanes[lane].Refuse(b, store.Refused)
		b = n.Lanes[lane].Batch()
		b.Messages = []store.MessageRow{storetest.Message(0, model.ShardID(1-lane), 1)}
		n.Lanes[lane].Refuse(b, store.Refused)
		b = n.Lanes[lane].Batch()
		b.Cursors = []store.CursorRow{{To: model.ShardID(1 - lane), From: 0, Next: 1}}
		n.Lanes[lane].Refuse(b, store.Refused)
	}
	if total, err := c.Store.Count(t.Context(), store.Query{Tenant: model.DefaultTenant, AllRuns: true}); total != 0 || err != nil {
		t.Errorf("%d runs, %v", total, err)
	}
}

// A message to another part stays until the receiver has consumed it, even if both shards get new
// owners. Its position is never used again.
func testMessageToAnotherPart(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	home, member := n.Lanes[0], n.Lanes[1]
	load := func() (seqs []int64) {
		t.Helper()
		rows, _, err := c.Store.LoadMessages(t.Context(), []model.ShardID{0, 1}, 100, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			seqs = append(seqs, rows[i].Seq)
		}
		return seqs
	}
	sweep := func(want int) {
		t.Helper()
		if got, err := c.Store.Sweep(t.Context(), store.SweepRequest{Shards: []model.ShardID{0, 1}, Limit: 100}); got != want || err != nil {
			t.Errorf("swept %d rows, %v; want %d", got, err, want)
		}
	}

	home.Write(func(b *store.Batch) {
		b.Messages = []store.MessageRow{storetest.Message(1, 0, 1), storetest.Message(1, 0, 2), storetest.Message(1, 0, 3)}
	})
	sweep(0)
	if got := load(); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("messages %v, want three", got)
	}
	member.Write(func(b *store.Batch) { b.Cursors = []store.CursorRow{{To: 1, From: 0, Next: 2}} })
	if got := load(); !slices.Equal(got, []int64{3}) {
		t.Errorf("messages %v, want the third", got)
	}
	sweep(2)
	member.Write(func(b *store.Batch) { b.Cursors = []store.CursorRow{{To: 1, From: 0, Prev: 2, Next: 3}} })
	sweep(1)
	if got := load(); len(got) != 0 {
		t.Errorf("messages %v, want none", got)
	}

	// The next owner of the sender's shard finds the last position without asking the member.
	n.Fence()
	c.member.down.Store(true)
	next := c.Join(2)
	got := next.Acquire(0)
	if len(got) != 1 || got[0].Sent[1] != 3 {
		t.Fatalf("acquired %+v, want position 3 as sent to shard 1", got)
	}
}

// While a member is away, calls of the member fail with an error that names it, and the home still
// works.
func testMemberThatIsAway(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	c.member.down.Store(true)

	b := n.Lanes[1].Batch()
	b.Starts = []store.StartRow{c.row(1)}
	_, err := n.Lanes[1].Try(t.Context(), b)
	if store.ClassOf(err) != store.Away || fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "database eu (shard groups eu)") {
		t.Errorf("commit: %v, want an error of class away that names the database", err)
	}
	if !c.mayWrite(n, 0) {
		t.Error("the home cannot be written")
	}
	v := n.Renew(time.Hour, 0, 1)
	if len(v.Owners) != 2 || v.Owners[1].Node != n.ID {
		t.Errorf("owners %+v, want the node as the last known owner", v.Owners)
	}

	// Callers that wait for answers of both parts get the answers of the home.
	s := c.Subject()
	reply := s.Reply("r", 1)
	reply.Shard = 0
	n.Lanes[0].Write(func(b *store.Batch) { b.Requests = []store.Reply{reply} })
	away := reply.RequestKey
	away.Shard = 1
	found, err := c.Store.LoadReplies(t.Context(), []store.RequestKey{reply.RequestKey, away})
	if len(found) != 1 || err == nil {
		t.Errorf("%d answers, %v; want one and an error", len(found), err)
	}
}

// Sweeps leave a member that is away alone, and sweep the home.
func testSweepWhileAMemberIsAway(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	s := c.Subject()
	reply := func(shard model.ShardID) store.Reply {
		r := s.Reply("r", 1)
		r.Shard = shard
		return r
	}
	home, member := reply(0), reply(1)
	n.Lanes[0].Write(func(b *store.Batch) { b.Requests = []store.Reply{home} })
	n.Lanes[1].Write(func(b *store.Batch) { b.Requests = []store.Reply{member} })

	c.member.down.Store(true)
	all := []model.ShardID{0, 1}
	if _, err := c.Store.LoadDeadBefore(t.Context(), all, model.MaxTime, store.DeadPlace{}, 10); err != nil {
		t.Errorf("a member that is not yet known to be away: %v", err)
	}
	for range 2 {
		swept, err := c.Store.Sweep(t.Context(), store.SweepRequest{Shards: all, Answered: []store.RequestKey{home.RequestKey, member.RequestKey}, Limit: 10})
		if err != nil {
			t.Errorf("swept %d rows, %v", swept, err)
		}
		if _, err := c.Store.LoadDeadBefore(t.Context(), all, model.MaxTime, store.DeadPlace{}, 10); err != nil {
			t.Error(err)
		}
	}
	if found, err := c.home.LoadReplies(t.Context(), []store.RequestKey{home.RequestKey}); len(found) != 0 || err != nil {
		t.Errorf("%d answers in the home after a sweep, %v", len(found), err)
	}

	// When the member is back, a sweep does what the earlier sweep has left out.
	c.member.down.Store(false)
	c.eventually("the answer in the member to be removed", func() bool {
		if _, err := c.Store.Sweep(t.Context(), store.SweepRequest{Shards: all, Limit: 10}); err != nil {
			t.Fatal(err)
		}
		found, err := c.member.LoadReplies(t.Context(), []store.RequestKey{member.RequestKey})
		return len(found) == 0 && err == nil
	})
}

// If the part of a receiver fails while the store looks for messages, the store still asks the part
// of the senders. So shards of the home still get the messages that the member has for them.
func testReceiverThatFails(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	n.Lanes[0].Write(func(b *store.Batch) { b.Messages = []store.MessageRow{storetest.Message(1, 0, 1)} })
	n.Lanes[1].Write(func(b *store.Batch) { b.Messages = []store.MessageRow{storetest.Message(0, 1, 1)} })
	load := func(to model.ShardID) int {
		t.Helper()
		rows, _, err := c.Store.LoadMessages(t.Context(), []model.ShardID{to}, 10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return len(rows)
	}

	c.member.noCursors.Store(true)
	if got := load(1); got != 0 {
		t.Errorf("%d messages for the member without its cursors", got)
	}
	c.member.noCursors.Store(false)
	if got := load(1); got != 1 {
		t.Errorf("%d messages for the member, want 1: the home was taken for away", got)
	}
}

// If a member refuses a node, the node does not stay registered in the home. Otherwise other nodes
// would leave shards to that node.
func testRegistrationThatAMemberRefuses(t *testing.T, c *scene) {
	t.Helper()
	c.member.refuses.Store(true)
	_, err := c.Store.Register(t.Context(), store.NodeInfo{ID: c.NodeID(), Host: "host-a"}, 2, time.Hour)
	c.WantClass(err, store.Refused)
	v, err := c.home.Members(t.Context())
	if err != nil || len(v.Members) > 0 {
		t.Errorf("%d nodes in the home, %v; want none", len(v.Members), err)
	}
}

// If a member does not answer after a node has freed a shard there, the view of the node does not
// say that the node still owns the shard. Otherwise a node that stops would take the shard again.
func testFreedShardWhileAMemberIsAway(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	c.eventually("the owner of the shard in the view", func() bool { return n.Renew(time.Hour, 0, 1).Owners[1].Node == n.ID })
	n.Lanes[1].Write(func(b *store.Batch) { b.Free = []model.ShardID{1} })
	c.member.down.Store(true)
	if v := n.Renew(time.Hour, 0); v.Owners[0].Node != n.ID || !v.Owners[1].Node.IsZero() {
		t.Errorf("owners %+v, want the node for shard 0, and none for shard 1", v.Owners)
	}
}

// The same if the answer to the commit that has freed the shard is lost.
func testFreedShardWithoutAnAnswer(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	c.eventually("the owner of the shard in the view", func() bool { return n.Renew(time.Hour, 0, 1).Owners[1].Node == n.ID })
	c.member.lost.Store(true)
	b := n.Lanes[1].Batch()
	b.Free = []model.ShardID{1}
	n.Lanes[1].Refuse(b, store.Unknown)
	_, landed, err := c.Store.Refence(t.Context(), n.Lanes[1].Ref)
	if err != nil || landed != b.Number {
		t.Fatalf("the batch is at %d, %v; want %d", landed, err, b.Number)
	}
	c.member.down.Store(true)
	if v := n.Renew(time.Hour, 0); !v.Owners[1].Node.IsZero() {
		t.Errorf("owners %+v, want none for shard 1", v.Owners)
	}
}

// A view of the member that was made before a node has freed a shard, and arrives after that, does
// not bring the node back as the owner. Neither does it hide a shard that the node has taken since.
func testViewThatArrivesLate(t *testing.T, c *scene) {
	t.Helper()
	n := c.Join(2)
	n.Acquire(0, 1)
	ownsAway := func(change func()) bool {
		t.Helper()
		h := &heldView{make(chan struct{}), make(chan struct{})}
		c.member.held.Store(h)
		late := make(chan struct{})
		go func() {
			defer close(late)
			// Members makes the view here, and not a renewal: while a renewal hangs for a second,
			// the store acquires nothing in that member.
			_, _ = c.Store.Members(t.Context())
		}()
		<-h.made
		change()
		close(h.arrive)
		<-late

		c.member.down.Store(true) // so the next view has the owners that were seen last
		defer c.member.down.Store(false)
		return n.Renew(time.Hour, 0, 1).Owners[1].Node == n.ID
	}

	if ownsAway(func() { n.Lanes[1].Write(func(b *store.Batch) { b.Free = []model.ShardID{1} }) }) {
		t.Error("a late view says that the node owns the shard that it has freed")
	}
	c.eventually("the shard", func() bool {
		n.Renew(time.Hour, 0, 1)
		got, err := c.Store.Acquire(t.Context(), n.ID, n.Epoch, []model.ShardID{1})
		return err == nil && len(got) == 1
	})
	n.Lanes[1].Write(func(b *store.Batch) { b.Free = []model.ShardID{1} })
	if !ownsAway(func() { n.Acquire(1) }) {
		t.Error("a late view hides the shard that the node has taken")
	}
}

// A node that ends without leaving, and was fenced by another one, is forgotten.
func testNodesThatEndWithoutLeaving(t *testing.T, c *scene) {
	t.Helper()
	last := c.Join(2)
	for range 5 {
		next := c.Join(2)
		last.Fence()
		last = next
	}
	if n := c.Store.(*partitioned.Store).Registrations(); n != 6 {
		t.Errorf("%d registrations before a renewal, want 6: the test proves nothing", n)
	}
	last.Renew(time.Hour, 0, 1)
	if n := c.Store.(*partitioned.Store).Registrations(); n != 1 {
		t.Errorf("%d registrations are kept, want 1", n)
	}

	// The node that lives can still register where it is missing.
	c.eventually("the shards", func() bool {
		got, err := c.Store.Acquire(t.Context(), last.ID, last.Epoch, []model.ShardID{0, 1})
		return err == nil && len(got) == 2
	})
	if !c.mayWrite(last, 0) || !c.mayWrite(last, 1) {
		t.Error("the node that lives cannot write")
	}
}

// While the store looks for answers, all callers of the process wait. So a member has a limited
// time to return its answers, even if only answers of that member are wanted. A sweep has more
// time.
func testTimeOfAMember(t *testing.T, c *scene) {
	t.Helper()
	key := c.Subject().Reply("r", 1).RequestKey
	key.Shard = 1
	if _, err := c.Store.LoadReplies(t.Context(), []store.RequestKey{key}); err != nil {
		t.Fatal(err)
	}
	const brief = 5 * time.Second
	if got := time.Duration(c.member.within.Load()); got == 0 || got > brief {
		t.Errorf("the member may take %s to find answers, want at most %s", got, brief)
	}

	sweep := func(r store.SweepRequest) time.Duration {
		t.Helper()
		if _, err := c.Store.Sweep(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(c.member.within.Load())
	}
	if got := sweep(store.SweepRequest{Answered: []store.RequestKey{key}}); got == 0 || got > brief {
		t.Errorf("the member may take %s to forget answers, want at most %s", got, brief)
	}
	if got := sweep(store.SweepRequest{Shards: []model.ShardID{0, 1}, Limit: 10}); got <= brief {
		t.Errorf("a sweep of the member may take %s, want more than %s", got, brief)
	}
}

// New refuses members that do not fit the home.
func TestNewRefusesMembersThatDoNotFit(t *testing.T) {
	t.Parallel()
	o := memory.Options{Shards: 4, Groups: []model.Group{{Name: "eu", Shards: 1}, {Name: "us", Shards: 1}}}
	other := memory.Options{Shards: 5, Groups: o.Groups}
	for want, members := range map[string][]partitioned.Member{
		"needs a member":         nil,
		"needs a name":           {{Groups: []string{"eu"}, Store: memory.New(o)}},
		"needs a shard group":    {{Name: "eu", Store: memory.New(o)}},
		"does not have":          {{Name: "eu", Groups: []string{"asia"}, Store: memory.New(o)}},
		"always in the first":    {{Name: "eu", Groups: []string{"default"}, Store: memory.New(o)}},
		"in two databases":       {{Name: "a", Groups: []string{"eu"}, Store: memory.New(o)}, {Name: "b", Groups: []string{"eu"}, Store: memory.New(o)}},
		"has other shard groups": {{Name: "a", Groups: []string{"eu"}, Store: memory.New(other)}},
	} {
		if _, err := partitioned.New(memory.New(o), members); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
