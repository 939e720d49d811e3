package partitioned_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/partitioned"
)

// silent is a member whose reads hang for two seconds while the test says so, and then fail.
type silent struct {
	store.Part
	down, slow atomic.Bool // slow affects counts only
	reads      atomic.Int64
}

func (s *silent) hang(ctx context.Context, now bool) error {
	if !now {
		return nil
	}
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	return store.Errorf(store.Away, "test", "no answer")
}

func (s *silent) Members(ctx context.Context) (store.View, error) {
	if err := s.hang(ctx, s.down.Load()); err != nil {
		return store.View{}, err
	}
	return s.Part.Members(ctx)
}

func (s *silent) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if err := s.hang(ctx, s.down.Load()); err != nil {
		return store.View{}, err
	}
	return s.Part.Renew(ctx, r)
}

func (s *silent) Count(ctx context.Context, q store.Query) (int64, error) {
	s.reads.Add(1)
	if err := s.hang(ctx, s.down.Load() || s.slow.Load()); err != nil {
		return 0, err
	}
	return s.Part.Count(ctx, q)
}

func (s *silent) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	s.reads.Add(1)
	if err := s.hang(ctx, s.down.Load()); err != nil {
		return nil, err
	}
	return s.Part.LoadExecution(ctx, shard, a, run)
}

func (s *silent) LoadReplies(ctx context.Context, keys []store.RequestKey) ([]store.Reply, error) {
	s.reads.Add(1)
	if err := s.hang(ctx, s.down.Load()); err != nil {
		return nil, err
	}
	return s.Part.LoadReplies(ctx, keys)
}

// silentScene is a home and two members, eu and us, with one shard each.
type silentScene struct {
	*testing.T
	store  *partitioned.Store
	eu, us *silent
}

func newSilentScene(t *testing.T) *silentScene {
	t.Helper()
	o := memory.Options{Shards: 3, Groups: []model.Group{{Name: "eu", Shards: 1}, {Name: "us", Shards: 1}}}
	c := &silentScene{T: t, eu: &silent{Part: memory.New(o)}, us: &silent{Part: memory.New(o)}}
	s, err := partitioned.New(memory.New(o), []partitioned.Member{{Name: "eu", Groups: []string{"eu"}, Store: c.eu}, {Name: "us", Groups: []string{"us"}, Store: c.us}})
	if err != nil {
		t.Fatal(err)
	}
	c.store = s
	t.Cleanup(func() { _ = s.Close() })
	return c
}

// load reads an execution of eu, which does not exist.
func (c *silentScene) load() (time.Duration, error) {
	begun := time.Now()
	_, err := c.store.LoadExecution(c.Context(), 1, model.Address{Tenant: "a", Type: "wf", Key: "k"}, model.RunID{})
	return time.Since(begun), err
}

func (c *silentScene) count() (time.Duration, error) {
	begun := time.Now()
	_, err := c.store.Count(c.Context(), store.Query{Tenant: model.DefaultTenant})
	return time.Since(begun), err
}

// refused checks that a read has failed at once, with an error that names the databases.
func (c *silentScene) refused(what string, took time.Duration, err error, names ...string) {
	c.Helper()
	if took > 0 {
		c.Errorf("%s took %s, want no wait", what, took)
	}
	if store.ClassOf(err) != store.Away || fault.KindOf(err) != fault.Unavailable {
		c.Errorf("%s: %v, want an error of class away", what, err)
		return
	}
	for _, name := range names {
		if n := strings.Count(err.Error(), "database "+name+" (shard groups "+name+")"); n != 1 {
			c.Errorf("%s: %v, names the database %s %d times, want once", what, err, name, n)
		}
	}
}

// While a member is away, only one read waits for it. The others fail at once, and the next
// attempts come after pauses that grow up to 30 s. The first success ends that.
func TestReadsOfAMemberThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		c.eu.down.Store(true)
		if took, err := c.load(); took != 2*time.Second || !strings.Contains(err.Error(), "database eu") {
			t.Errorf("the first read took %s: %v", took, err)
		}
		time.Sleep(2 * time.Second) // the probe ends
		for range 3 {
			took, err := c.load()
			c.refused("a read", took, err, "eu")
			took, err = c.count()
			c.refused("a count of all databases", took, err, "eu")
			begun := time.Now()
			_, err = c.store.LoadReplies(t.Context(), []store.RequestKey{{Shard: 1}})
			c.refused("a read of answers", time.Since(begun), err, "eu")
		}
		if n := c.eu.reads.Load(); n != 1 {
			t.Errorf("%d reads of a database that is away, want 1", n)
		}
		if n := c.us.reads.Load(); n != 0 {
			t.Errorf("%d reads of another database for a list that fails, want none", n)
		}

		// A read every 100 ms: how far are the attempts apart?
		var last time.Time
		var pauses []time.Duration
		for len(pauses) < 6 {
			before := c.eu.reads.Load()
			begun := time.Now()
			if _, err := c.load(); err == nil {
				t.Fatal("a database that is away has answered")
			}
			if c.eu.reads.Load() > before {
				if !last.IsZero() {
					pauses = append(pauses, begun.Sub(last).Round(time.Second))
				}
				last = begun
			}
			time.Sleep(100 * time.Millisecond)
		}
		for i, p := range pauses {
			// Between two attempts are an attempt and a probe of 2 s each, and the pause.
			if p < 6*time.Second || p > 35*time.Second || i > 0 && p < pauses[i-1] {
				t.Errorf("the attempts are %v apart, want growing pauses up to 30 s", pauses)
				break
			}
		}
		if pauses[len(pauses)-1] < 30*time.Second {
			t.Errorf("the attempts are %v apart, want 30 s in the end", pauses)
		}

		// The next attempt succeeds.
		c.eu.down.Store(false)
		time.Sleep(35 * time.Second)
		for range 2 {
			if took, err := c.load(); err != nil || took > 0 {
				t.Errorf("after the database is back: %v after %s", err, took)
			}
		}
	})
}

// A list over several databases names all of them that are away.
func TestListsNameAllMembersThatAreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		c.eu.down.Store(true)
		c.us.down.Store(true)
		var both sync.WaitGroup
		for shard := range model.ShardID(2) {
			both.Go(func() {
				if _, err := c.store.LoadExecution(t.Context(), 1+shard, model.Address{Tenant: "a", Type: "wf", Key: "k"}, model.RunID{}); err == nil {
					t.Error("a database that is away has answered")
				}
			})
		}
		both.Wait()
		time.Sleep(2500 * time.Millisecond) // the probes end
		took, err := c.count()
		c.refused("a count", took, err, "eu", "us")
	})
}

// The renewal of a lease that succeeds proves that a member is back, before the pause has ended.
func TestARenewalEndsTheAbsenceOfAMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		node := store.NodeInfo{ID: model.NodeID{1}}
		r, err := c.store.Register(t.Context(), node, 3, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		renew := func() {
			t.Helper()
			if _, err := c.store.Renew(t.Context(), store.RenewRequest{Node: node.ID, Epoch: r.Epoch, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}

		// A renewal notices the absence before a read does.
		c.eu.down.Store(true)
		renew()
		time.Sleep(2500 * time.Millisecond) // the probe ends
		took, err := c.load()
		c.refused("a read", took, err, "eu")
		if n := c.eu.reads.Load(); n != 0 {
			t.Errorf("%d reads of a database that is away, want none", n)
		}

		c.eu.down.Store(false)
		renew()
		synctest.Wait()
		if _, err := c.load(); err != nil {
			t.Errorf("after a renewal has reached the database: %v", err)
		}
	})
}

// A query that takes too long does not make other reads of its database fail.
func TestASlowQueryIsNoAbsence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		c.eu.slow.Store(true)
		if _, err := c.count(); err == nil {
			t.Fatal("a count that takes too long has succeeded")
		}
		for range 3 {
			if took, err := c.load(); err != nil || took > 0 {
				t.Errorf("a read beside a slow query: %v after %s", err, took)
			}
		}
	})
}

// A call of any kind that succeeds proves that a member is back. So a process without a lease that
// puts a request into the member can read the answer at once.
func TestEveryAnswerEndsTheAbsenceOfAMember(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, s *partitioned.Store) error{
		"put inbox": func(ctx context.Context, s *partitioned.Store) error {
			return s.PutInbox(ctx, []store.InboxRow{requestTo(1)})
		},
		"sweep": func(ctx context.Context, s *partitioned.Store) error {
			_, err := s.Sweep(ctx, store.SweepRequest{Shards: []model.ShardID{1}, Limit: 1})
			return err
		},
		"messages to another database": func(ctx context.Context, s *partitioned.Store) error {
			_, _, err := s.LoadMessages(ctx, []model.ShardID{0}, 1, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newSilentScene(t)
				c.leave()
				c.eu.down.Store(false)
				took, err := c.load()
				c.refused("a read before the pause has ended", took, err, "eu")

				if err := call(t.Context(), c.store); err != nil {
					t.Fatal(err)
				}
				if _, err := c.load(); err != nil {
					t.Errorf("after the database has answered: %v", err)
				}
			})
		})
	}
}

// leave makes the database eu go away, and waits until the store knows it.
func (c *silentScene) leave() {
	c.Helper()
	c.eu.down.Store(true)
	if _, err := c.load(); err == nil {
		c.Fatal("a database that is away has answered")
	}
	time.Sleep(2 * time.Second) // the probe ends
	synctest.Wait()
}

// requestTo returns a request to a shard.
func requestTo(shard model.ShardID) store.InboxRow {
	id := model.RunID{1}
	return store.InboxRow{Shard: shard, ID: id, Message: model.Message{
		Kind: model.MessageSignal, ID: "request", To: model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: "k"},
	}}
}

// A probe that began before a member came back, and fails after that, does not make reads fail.
func TestAProbeThatFailsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		c.eu.down.Store(true)
		if _, err := c.load(); err == nil {
			t.Fatal("a database that is away has answered")
		}
		time.Sleep(time.Second) // the probe hangs
		c.eu.down.Store(false)
		if err := c.store.PutInbox(t.Context(), []store.InboxRow{requestTo(1)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // the probe fails
		if took, err := c.load(); err != nil || took > 0 {
			t.Errorf("a read after the database is back: %v after %s", err, took)
		}
	})
}

// If the caller of the one read that tries again gives up, others need not wait for the next pause.
func TestAnAttemptWhoseCallerGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		c.leave()
		time.Sleep(2 * time.Second) // the pause ends
		ctx, cancel := context.WithCancel(t.Context())
		var attempt sync.WaitGroup
		attempt.Go(func() {
			if _, err := c.store.LoadExecution(ctx, 1, model.Address{Tenant: "a", Type: "wf", Key: "k"}, model.RunID{}); err == nil {
				t.Error("a database that is away has answered")
			}
		})
		synctest.Wait()
		c.eu.down.Store(false)
		cancel()
		attempt.Wait()
		if took, err := c.load(); err != nil || took > 0 {
			t.Errorf("a read after an attempt was given up: %v after %s", err, took)
		}
	})
}

// Describing the cluster does not wait for a member that is known to be away. The view says that it
// may not know the owners of the shards of that member.
func TestMembersDoNotWaitForAMemberThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		c.leave()
		for range 3 {
			begun := time.Now()
			v, err := c.store.Members(t.Context())
			if err != nil || time.Since(begun) > 0 {
				t.Errorf("%v after %s, want a view at once", err, time.Since(begun))
			}
			if n := countOld(&v); n == 0 || n == len(v.Owners) {
				t.Errorf("%d of %d owners are old, want the ones of the member", n, len(v.Owners))
			}
		}

		// After the pause, Members is the attempt that finds the member.
		c.eu.down.Store(false)
		time.Sleep(2 * time.Second)
		if v, err := c.store.Members(t.Context()); err != nil || countOld(&v) > 0 {
			t.Errorf("%v, %d owners are old", err, countOld(&v))
		}
		if _, err := c.load(); err != nil {
			t.Errorf("after the database has answered: %v", err)
		}
	})
}

func countOld(v *store.View) (n int) {
	for _, o := range v.Owners {
		if o.Old {
			n++
		}
	}
	return n
}

// lagging is a member that takes a while for each renewal.
type lagging struct {
	store.Part
	takes  time.Duration
	renews atomic.Int64
}

func (l *lagging) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	l.renews.Add(1)
	time.Sleep(l.takes)
	return l.Part.Renew(ctx, r)
}

// A member is not slow because a renewal always visits it. Only the time of each visit counts.
func TestOverlappingVisits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := memory.Options{Shards: 2, Groups: []model.Group{{Name: "eu", Shards: 1}}}
		eu := &lagging{Part: memory.New(o), takes: 800 * time.Millisecond}
		s, err := partitioned.New(memory.New(o), []partitioned.Member{{Name: "eu", Groups: []string{"eu"}, Store: eu}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		node := model.NodeID{1}
		reg, err := s.Register(t.Context(), store.NodeInfo{ID: node}, 2, time.Minute)
		if err != nil {
			t.Fatal(err)
		}

		const rounds = 10
		var wg sync.WaitGroup
		for range rounds {
			wg.Go(func() {
				if _, err := s.Renew(t.Context(), store.RenewRequest{Node: node, Epoch: reg.Epoch, TTL: time.Minute}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(500 * time.Millisecond)
		}
		wg.Wait()
		if n := eu.renews.Load(); n != rounds {
			t.Errorf("%d of %d renewals visited the member", n, rounds)
		}
	})
}

// A member has failed, and then answers a read. So it is there, and a node takes its shards.
func TestMemberIsBackAfterARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSilentScene(t)
		node, ctx := model.NodeID{1}, t.Context()
		reg, err := c.store.Register(ctx, store.NodeInfo{ID: node}, 3, time.Minute)
		if err != nil {
			t.Fatal(err)
		}

		// The member does not answer this renewal. Then it is there again.
		c.eu.down.Store(true)
		renewed := make(chan error)
		go func() {
			_, err := c.store.Renew(ctx, store.RenewRequest{Node: node, Epoch: reg.Epoch, TTL: time.Minute})
			renewed <- err
		}()
		synctest.Wait()
		c.eu.down.Store(false)
		if err := <-renewed; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := c.load(); err != nil {
			t.Fatal(err)
		}

		got, err := c.store.Acquire(ctx, node, reg.Epoch, []model.ShardID{0, 1})
		if err != nil || len(got) != 2 {
			t.Errorf("the node takes %+v, %v, want both shards", got, err)
		}
	})
}
