package engine_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
)

// viewer is a watcher that does what docs/watching.md advises: it reads a list after its first page
// and after each gap notice, and applies the changes that follow. It fails the test if changes of
// one run come twice or out of order without a gap notice in between.
type viewer struct {
	r      *ring
	tenant string
	stop   context.CancelFunc
	done   chan error

	mu        sync.Mutex
	pages     int
	partial   bool
	gaps      int
	changes   int
	completed map[string]bool // keys of tasks that have ended
	last      map[model.RunID]int64
}

// view begins a watch of a tenant in a bubble of synctest.
func (r *ring) view(m *member, tenant string) *viewer {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	v := &viewer{r: r, tenant: tenant, stop: cancel, done: make(chan error, 1), completed: map[string]bool{}, last: map[model.RunID]int64{}}
	go func() { v.done <- m.Watch(ctx, tenant, model.ChangeFilter{}, "", v.take) }()

	time.Sleep(50 * time.Millisecond)
	return v
}

func (v *viewer) take(p model.ChangePage) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pages == 0 || p.Gap {
		clear(v.last)
		v.readList()
	}
	if p.Gap {
		v.gaps++
	}
	v.pages++
	v.partial = p.Partial

	for i := range p.Changes {
		if c := &p.Changes[i]; c.Class == model.ClassTask {
			v.apply(c)
		}
	}
	return nil
}

// apply takes a change of a task.
func (v *viewer) apply(c *model.Change) {
	if c.Address.Tenant != v.tenant {
		v.r.t.Errorf("a watcher of %s gets a change of %s", v.tenant, c.Address.Tenant)
	}
	v.changes++
	last, known := v.last[c.Run]
	if c.Kind == model.ChangeScheduled && known || c.Seq > 0 && c.Seq <= last {
		v.r.t.Errorf("%s: %s at %d comes after %d", c.Address, c.Kind, c.Seq, last)
	}

	v.last[c.Run] = max(last, c.Seq)
	if c.Kind == model.ChangeCompleted {
		v.completed[c.Address.Key] = true
	}
}

// readList reads which tasks have ended.
func (v *viewer) readList() {
	for _, a := range v.r.known() {
		row, err := v.r.st.LoadExecution(v.r.t.Context(), a.Shard(v.r.st.Info().Shards), a, model.RunID{})
		if err != nil {
			v.r.t.Error(err)
		}
		if row != nil && row.Outcome.Status.Closed() {
			v.completed[a.Key] = true
		}
	}
}

// is checks whether the feed is partial now, and how many gap notices there were since the last
// call.
func (v *viewer) is(when string, partial bool, leastGaps, mostGaps int) {
	v.r.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.partial != partial || v.gaps < leastGaps || v.gaps > mostGaps {
		v.r.t.Errorf("%s: partial %t, %d gap notices; want partial %t, %d to %d", when, v.partial, v.gaps, partial, leastGaps, mostGaps)
	}
	v.gaps = 0
}

// has checks that the watcher knows the ends of all tasks.
func (v *viewer) has(when string) {
	v.r.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	var missing []string
	for _, a := range v.r.known() {
		if !v.completed[a.Key] {
			missing = append(missing, a.Key)
		}
	}
	if len(missing) > 0 {
		v.r.t.Errorf("%s: the watcher does not know the ends of %d tasks: %v", when, len(missing), missing)
	}
}

func (v *viewer) end() {
	v.stop()
	<-v.done
}

// endAll ends watchers and nodes.
func (r *ring) endAll(all []*viewer) {
	r.t.Helper()
	for _, v := range all {
		v.end()
	}
	r.close()
}

// newLinked opens nodes that are connected with each other, and waits until they have divided the
// shards.
func newLinked(t *testing.T, nodes int, cfg feed.Config) *ring {
	t.Helper()
	r := newRing(t)
	r.lan, r.feed = &lan.LAN{}, cfg
	for range nodes {
		r.join(4, echo)
	}
	time.Sleep(30 * time.Second)
	return r
}

// echo completes a task immediately.
func echo(_ *member, c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} }

// viewAll begins a watch on each node.
func (r *ring) viewAll() (all []*viewer) {
	r.t.Helper()
	for _, m := range r.nodes {
		all = append(all, r.view(m, model.DefaultTenant))
	}
	return all
}

// known returns the addresses of the tasks that run has sent.
func (r *ring) known() []model.Address {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// run sends tasks to the given nodes in turn, and waits until they have ended.
func (r *ring) run(prefix string, tasks int, nodes ...*member) {
	r.t.Helper()
	var wg sync.WaitGroup
	for i := range tasks {
		m, node := submit(fmt.Sprint(prefix, i), model.TaskSpec{}), nodes[i%len(nodes)]
		r.mu.Lock()
		r.sent = append(r.sent, m.To)
		r.mu.Unlock()
		wg.Go(func() {
			if _, err := node.Send(r.t.Context(), m); err != nil {
				r.t.Error(err)
				return
			}
			for {
				if _, err := node.Await(r.t.Context(), m.To, model.RunID{}); err == nil || r.t.Context().Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

// A watcher on any node gets the changes of all nodes, in order and each once. Its first page says
// that the feed is complete. While nothing moves, there is no gap notice.
func TestFeedOfTheWholeCluster(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{2, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testFeedOfTheWholeCluster(t, nodes) })
		})
	}
}

func testFeedOfTheWholeCluster(t *testing.T, nodes int) {
	t.Helper()
	r := newLinked(t, nodes, feed.Config{})
	all := r.viewAll()
	for _, v := range all {
		v.is("at first", false, 0, 0)
		if v.pages != 1 {
			t.Errorf("it begins with %d pages", v.pages)
		}
	}

	const tasks = 60
	for round := range 3 {
		r.run(fmt.Sprint("r", round, "-"), tasks, r.nodes...)
		time.Sleep(time.Second)
		for i, v := range all {
			v.has(fmt.Sprint("node ", i))
		}
	}

	for _, v := range all {
		v.is("at the end", false, 0, 0)
		if v.changes != 3*3*tasks { // scheduled, claimed, completed
			t.Errorf("a watcher has got %d changes, want %d", v.changes, 3*3*tasks)
		}
	}
	r.endAll(all)
}

// Links break. Watchers get a gap notice and learn that the feed is partial. When the nodes have
// connected again, the feed is complete after another gap notice.
func TestFeedWithoutLinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLinked(t, 2, feed.Config{})
		all := r.viewAll()
		r.run("before", 20, r.nodes...)
		time.Sleep(time.Second)

		r.lan.Bend(func(c net.Conn) net.Conn {
			_ = c.Close()
			return c
		})
		r.lan.Break()
		time.Sleep(time.Second)
		for _, v := range all {
			v.is("without links", true, 1, 1)
			v.has("without links")
		}
		r.run("while", 20, r.nodes...)
		late := r.view(r.nodes[0], model.DefaultTenant)
		time.Sleep(2 * time.Second)
		late.is("a watch that begins without links", true, 0, 0)
		for _, v := range all {
			v.is("still without links", true, 0, 0)
		}

		r.lan.Bend(nil)
		time.Sleep(20 * time.Second)
		all = append(all, late)
		for _, v := range all {
			v.is("with links again", false, 1, 1)
			v.has("with links again")
		}
		r.run("after", 20, r.nodes...)
		time.Sleep(time.Second)
		for _, v := range all {
			v.is("after that", false, 0, 0)
			v.has("after that")
		}
		r.endAll(all)
	})
}

// A node that watches does not read for a while. The owner commits as fast as before. Then the
// watchers get one gap notice. Watchers of the owner miss nothing.
func TestFeedOfANodeThatIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := &lan.Late{}
		r := newRing(t)
		r.lan, r.feed = &lan.LAN{}, feed.Config{Changes: 100}
		r.lan.Bend(late.Wrap)
		r.join(4, echo)
		r.join(4, echo)
		time.Sleep(30 * time.Second)
		owner := r.nodes[0] // it dials the other node, so the LAN delays what it sends
		all := r.viewAll()

		late.Hold()
		begun := time.Now()
		for i := 0; len(r.known()) < 200; i++ {
			if key := fmt.Sprint("k", i, "-"); owner.Owns(submit(key+"0", model.TaskSpec{}).To) {
				r.run(key, 1, owner)
				synctest.Wait() // until the watchers of the owner have read all changes
			}
		}
		if d := time.Since(begun); d > 100*time.Millisecond {
			t.Errorf("the owner took %s while another node did not read", d)
		}
		all[0].is("the owner", false, 0, 0)
		all[0].has("the owner")
		late.Release()
		time.Sleep(3 * time.Second)

		all[1].is("the slow node", false, 1, 2)
		all[1].has("the slow node")
		r.run("after", 20, r.nodes...)
		time.Sleep(time.Second)
		for _, v := range all {
			v.is("after that", false, 0, 0)
			v.has("after that")
		}
		r.endAll(all)
	})
}

// Shards move while tasks run, because nodes join, leave and die. Watchers get gap notices and miss
// nothing. In the end the feed is complete.
func TestFeedWhileShardsMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLinked(t, 2, feed.Config{})
		all, first := r.viewAll(), r.nodes[0]
		stop := make(chan struct{})
		var load sync.WaitGroup
		var rounds atomic.Int64
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.run(fmt.Sprint("n", rounds.Add(1), "-"), 4, first)
					time.Sleep(300 * time.Millisecond)
				}
			}
		})
		settled := func(when string, mostGaps int) {
			t.Helper()
			time.Sleep(30 * time.Second)
			for _, v := range all {
				v.is(when, false, 1, mostGaps)
			}
			time.Sleep(20 * time.Second)
			for _, v := range all {
				v.is(when+", later", false, 0, 0)
			}
		}

		third := r.join(4, echo)
		all = append(all, r.view(third, model.DefaultTenant))
		settled("with a third node", 10)

		all[2].end()
		all = all[:2]
		third.stop()
		if err := <-third.done; err != nil {
			t.Error(err)
		}
		r.nodes = r.nodes[:2]
		settled("without the third node", 10)

		// The second node can no longer reach the store. Its lease ends, and the first node takes
		// over.
		r.nodes[1].cut.Store(true)
		time.Sleep(30 * time.Second)
		all[0].is("without the second node", false, 1, 10)
		all[1].is("the node without a lease", true, 0, 10)
		r.nodes[1].cut.Store(false)
		settled("with the second node again", 10)

		close(stop)
		load.Wait()
		time.Sleep(time.Second)
		for _, v := range all {
			v.has("in the end")
		}
		t.Logf("%d rounds of tasks", rounds.Load())
		r.endAll(all)
	})
}

// A watch of a tenant brings the changes of that tenant only. A watch of a second tenant leaves no
// gap in the first.
func TestFeedOfSeveralTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLinked(t, 2, feed.Config{})
		first := r.view(r.nodes[0], model.DefaultTenant)
		other := r.view(r.nodes[0], "acme")
		quiet := r.view(r.nodes[1], "quiet")
		for i := range 40 {
			m := submit(fmt.Sprint("acme", i), model.TaskSpec{})
			m.To.Tenant = "acme" // no worker runs these tasks
			if _, err := r.nodes[i%2].Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.run("default", 40, r.nodes...)
		time.Sleep(time.Second)

		for v, want := range map[*viewer]int{first: 120, other: 40, quiet: 0} {
			v.is(v.tenant, false, 0, 0)
			if v.changes != want {
				t.Errorf("a watcher of %s has got %d changes, want %d", v.tenant, v.changes, want)
			}
		}
		r.endAll([]*viewer{first, other, quiet})
	})
}

// While no caller watches, no node has to say what it changes. When the last watcher has left, its
// node keeps the changes for a minute, and then ends its subscriptions at the other nodes.
func TestFeedThatIsNotWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLinked(t, 3, feed.Config{})
		wanted := func(when string, want bool) {
			t.Helper()
			for i, m := range r.nodes {
				if m.WantsChanges() != want {
					t.Errorf("%s: node %d wants changes: %t", when, i, !want)
				}
			}
		}
		wanted("at first", false)

		v := r.view(r.nodes[1], model.DefaultTenant)
		wanted("while a caller watches", true)
		v.end()
		time.Sleep(30 * time.Second)
		wanted("soon after that", true)
		time.Sleep(time.Minute)
		wanted("a while after that", false)

		v = r.view(r.nodes[1], model.DefaultTenant)
		v.is("the next watch", false, 0, 0)
		r.run("again", 10, r.nodes...)
		time.Sleep(time.Second)
		v.has("the next watch")
		r.endAll([]*viewer{v})
	})
}

// oldBuild answers requests as a build that does not know demands for changes.
type oldBuild struct{ asked atomic.Int64 }

func (o *oldBuild) HandleRequest(_ context.Context, r *peerlink.Request, taken func()) {
	defer taken()
	o.asked.Add(1)
	moved := []byte{0xa2, 0x01, 0xf5, 0x02, 0xf5} // told{Moved: true, Taken: true}
	r.Reply(0, func(dst []byte) []byte { return append(dst, moved...) })
}

func (*oldBuild) HandleNote(_ context.Context, _ model.NodeID, _ []byte, taken func()) { taken() }

func (*oldBuild) HandleLoss(model.NodeID) {}

// beMember renews the lease of a node that runs no engine, and takes the shards that become free.
//
//arch:parameters a context, a test, and what a member consists of
func beMember(ctx context.Context, t *testing.T, st store.Store, links *peerlink.Net, r store.RenewRequest) {
	t.Helper()
	for ; ctx.Err() == nil; time.Sleep(2 * time.Second) {
		v, err := st.Renew(ctx, r)
		if err != nil {
			t.Error(err)
			return
		}
		var peers []peerlink.Peer
		for _, m := range v.Members {
			peers = append(peers, peerlink.Peer{Node: m.ID, Address: m.LinkAddress, Fingerprint: m.LinkKey})
		}
		links.SetPeers(peers)

		r.Serves = v.Members[0].Serves // it gets shards only if it offers as much as the others
		var free []model.ShardID
		for _, o := range v.Owners {
			if o.Node.IsZero() {
				free = append(free, o.Shard)
			}
		}
		if _, err := st.Acquire(ctx, r.Node, r.Epoch, free); err != nil {
			t.Error(err)
		}
	}
}

// A node of an older build refuses to send changes. Watches stay partial, and the old node is asked
// once, because it logs what it does not know.
func TestFeedWithAnOlderBuild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLinked(t, 2, feed.Config{})
		old, shared := &oldBuild{}, common{r.st}
		end := r.listen()
		self := store.NodeInfo{ID: model.NodeID(uuid.Must(uuid.NewV7())), LinkAddress: end.Address(), LinkKey: end.Fingerprint(), Weight: 100}
		reg, err := shared.Register(t.Context(), self, 1, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		info := shared.Info()
		links := end.Join(peerlink.Member{Self: self.ID, Cluster: info.Cluster, Schema: info.Version, Handler: old, LookAround: func() {}})

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { links.Run(ctx) })
		mine := store.RenewRequest{Node: self.ID, Epoch: reg.Epoch, TTL: 10 * time.Second}
		wg.Go(func() { beMember(ctx, t, shared, links, mine) })

		time.Sleep(30 * time.Second)
		asked := old.asked.Load()
		all := r.viewAll()
		time.Sleep(time.Hour)
		for _, v := range all {
			v.is("with an older build", true, 0, 0)
		}
		if n := old.asked.Load() - asked; n != 2 {
			t.Errorf("two nodes have asked the older one %d times in an hour, want once each", n)
		}

		cancel()
		wg.Wait()
		time.Sleep(time.Minute)
		for _, v := range all {
			v.is("without the older build", false, 1, 10)
		}
		r.endAll(all)
	})
}
