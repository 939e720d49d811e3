package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// wire is the connection of a node to the shared store. Once the wire is cut, the node can no
// longer register, renew its lease, commit, use settings or exchange messages, as if it were dead
// or paused. Other calls still get through.
type wire struct {
	store.Store
	cut *atomic.Bool
}

func (w wire) Info() store.Info {
	i := w.Store.Info()
	i.Shared = true
	return i
}

func (w wire) away(ctx context.Context, op string) error {
	if !w.cut.Load() {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return store.Errorf(store.Away, op, "the wire is cut")
}

func (w wire) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if err := w.away(ctx, "renew"); err != nil {
		return store.View{}, err
	}
	return w.Store.Renew(ctx, r)
}

func (w wire) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	if err := w.away(ctx, "commit"); err != nil {
		return store.Committed{}, err
	}
	return w.Store.Commit(ctx, b)
}

func (w wire) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	if err := w.away(ctx, "register"); err != nil {
		return store.Registration{}, err
	}
	return w.Store.Register(ctx, n, lanes, ttl)
}

func (w wire) PutSetting(ctx context.Context, s store.Setting, expected int64) (int64, error) {
	if err := w.away(ctx, "put setting"); err != nil {
		return 0, err
	}
	return w.Store.PutSetting(ctx, s, expected)
}

func (w wire) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	if err := w.away(ctx, "load settings"); err != nil {
		return store.SettingChanges{}, err
	}
	return w.Store.LoadSettings(ctx, after)
}

func (w wire) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	if err := w.away(ctx, "put peer mail"); err != nil {
		return err
	}
	return w.Store.PutPeerMail(ctx, rows)
}

func (w wire) TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]store.PeerMail, error) {
	if err := w.away(ctx, "take peer mail"); err != nil {
		return nil, err
	}
	return w.Store.TakePeerMail(ctx, node, limit, maxBytes)
}

// member is a node of a cluster, with a worker.
type member struct {
	*engine.Engine
	cut atomic.Bool
	// nameless says that the node cannot name workers in the store. Only servers use it.
	nameless atomic.Bool

	hand *hand
	stop context.CancelFunc
	done chan error
}

// ring is a cluster on one store.
type ring struct {
	t     *testing.T
	st    store.Store
	hints notify.Hub
	nodes []*member
	lan   *lan.LAN      // connects the nodes; nil if they use only the store
	ahead time.Duration // how far the clocks of all nodes except the first are ahead
	lease time.Duration // 0 for the default
	// gone reports whether the process of a node has ended; nil for the answer of the kernel.
	gone func(store.NodeInfo) bool
	feed feed.Config

	mu   sync.Mutex
	sent []model.Address // tasks that run has sent
}

func newRing(t *testing.T) *ring {
	return &ring{t: t, st: memory.New(memory.Options{}), hints: &notify.Local{}}
}

// join adds a node whose worker calls the given function.
func (r *ring) join(slots int, do func(m *member, c model.Claim) *model.TaskReport) *member {
	r.t.Helper()
	m := &member{done: make(chan error, 1)}
	m.Engine = engine.New(engine.Config{
		Store: wire{r.st, &m.cut}, Hints: r.hints, Lanes: 2, Peers: r.listen(), LeaseTTL: r.lease, Gone: r.gone, Feed: r.feed,
	})
	if len(r.nodes) > 0 {
		m.SkewClock(r.ahead)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	m.stop = cancel
	go func() { m.done <- m.Run(ctx) }()
	if err := m.Ready(ctx); err != nil {
		r.t.Fatal(err)
	}
	m.hand = newHand(m.Engine, slots, func(c model.Claim) *model.TaskReport { return do(m, c) })
	r.nodes = append(r.nodes, m)
	return m
}

// listen returns where a new node listens for the others, or nil if it does not listen.
func (r *ring) listen() *peerlink.Endpoint {
	if r.lan == nil {
		return nil
	}
	end, err := peerlink.Listen(peerlink.Config{Listener: r.lan.Listen(fmt.Sprint("node", len(r.nodes))), Dial: r.lan.Dial})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = end.Close() })
	return end
}

// ofThree is the spec of a task that needs the limit of limitTo3.
var ofThree = model.TaskSpec{Limits: []string{"three"}}

// limitTo3 sets a limit: three of the tasks that name it may run at a time.
func (r *ring) limitTo3(m *member) {
	r.t.Helper()
	l := rule.Limit{Name: "three", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 3}}
	if err := m.Flow().SetLimit(r.t.Context(), model.DefaultTenant, l, true); err != nil {
		r.t.Fatal(err)
	}
}

// await waits at a node until a task has ended. It tries again if the node cannot answer because
// shards move.
func (r *ring) await(m *member, i int) error {
	for {
		res, err := m.Await(r.t.Context(), submit(fmt.Sprint(i), model.TaskSpec{}).To, model.RunID{})
		switch {
		case err != nil:
		case res.Outcome.Status != model.Completed:
			return fmt.Errorf("task %d ended as %s: %w", i, res.Outcome.Status, res.Outcome.Failure)
		default:
			return nil
		}
	}
}

// awaitAll waits until the given number of tasks have ended.
func (r *ring) awaitAll(m *member, tasks int) {
	r.t.Helper()
	for i := range tasks {
		if err := r.await(m, i); err != nil {
			r.t.Error(err)
		}
	}
}

// allFree checks that all permits have come back a while after the last task has ended.
func (r *ring) allFree(m *member) {
	r.t.Helper()
	time.Sleep(30 * time.Second)
	if s, err := m.Flow().StateWithUses(r.t.Context(), model.DefaultTenant); err != nil || !s.Known || len(s.Uses) > 0 {
		r.t.Errorf("permits do not come back: %+v, %v", s, err)
	}
}

func (r *ring) close() {
	r.t.Helper()
	for _, m := range r.nodes {
		m.stop()
	}
	for _, m := range r.nodes {
		if err := <-m.done; err != nil {
			r.t.Error(err)
		}
	}
}

// counter knows which tasks run now, and on which node.
type counter struct {
	mu     sync.Mutex
	now    map[string]*member
	most   int
	by     map[*member]int // tasks that have ended
	lost   int             // tasks of a node that was cut off, until the other nodes can know that
	begins []time.Time
}

func newCounter() *counter { return &counter{now: map[string]*member{}, by: map[*member]int{}} }

// work executes a task that takes the given time. If its node is cut off, the outcome is lost.
func (c *counter) work(m *member, claim model.Claim, long time.Duration) *model.TaskReport {
	key := string(claim.Input.Data)
	c.begin(m, key)
	time.Sleep(long)
	if m.cut.Load() {
		return nil
	}
	c.end(m, key)
	return &model.TaskReport{Output: claim.Input}
}

// worker returns a function for join that calls work.
func (c *counter) worker(long time.Duration) func(*member, model.Claim) *model.TaskReport {
	return func(m *member, claim model.Claim) *model.TaskReport { return c.work(m, claim, long) }
}

// atMost3 checks that the limit was never exceeded, and was reached.
func (c *counter) atMost3(t *testing.T) {
	t.Helper()
	if c.most != 3 {
		t.Errorf("%d tasks at a time, and the limit is 3", c.most)
	}
}

// onceEach checks that no task was executed twice.
func (c *counter) onceEach(t *testing.T, tasks int) {
	t.Helper()
	if len(c.begins) != tasks {
		t.Errorf("%d attempts of %d tasks", len(c.begins), tasks)
	}
}

// allWorked checks that every node has executed tasks.
func (c *counter) allWorked(t *testing.T, nodes ...*member) {
	t.Helper()
	for i, m := range nodes {
		if c.countEnded(m) == 0 {
			t.Errorf("node %d has executed none", i)
		}
	}
}

// outlive first waits for most of the lease of a node that was cut off. Until then, the tasks of
// that node count. Then it waits for the results of the given number of tasks.
func (c *counter) outlive(t *testing.T, tasks int, patience time.Duration, results <-chan error) {
	t.Helper()
	time.Sleep(7 * time.Second) // the other nodes cannot know yet that the node is gone
	c.mu.Lock()
	c.lost = 0
	c.mu.Unlock()
	for range tasks {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatalf("tasks do not get through: %v", c.by)
		}
	}
}

func (c *counter) begin(m *member, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[key] = m
	c.most = max(c.most, len(c.now)+c.lost)
	c.begins = append(c.begins, time.Now())
}

func (c *counter) end(m *member, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now[key] == m {
		delete(c.now, key)
	}
	c.by[m]++
}

// countEnded returns how many tasks a node has executed. countBegun returns how many tasks all
// nodes have started.
func (c *counter) countEnded(m *member) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[m]
}

func (c *counter) countBegun() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.begins)
}

// cut cuts off a node if it executes tasks, and returns how many tasks it executes.
func (c *counter) cut(m *member) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range c.now {
		if n == m {
			delete(c.now, key)
			c.lost++
		}
	}
	m.cut.Store(c.lost > 0)
	return c.lost
}

// Three nodes share a limit of 3. At most 3 tasks run at a time, even while shards move and after a
// node was cut off. The claims of that node count until they are lost. All tasks get through, every
// node executes some, and in the end no node searches for claims of the dead node.
func TestLimitOfSeveralNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		c := newCounter()
		do := c.worker(500 * time.Millisecond)
		first, ctx := r.join(5, do), t.Context()
		r.limitTo3(first)
		const tasks = 200

		results := make(chan error, tasks)
		for i := range tasks {
			go func() {
				m := submit(fmt.Sprint(i), ofThree)
				_, err := first.Send(ctx, m)
				for err == nil {
					var res lane.Result
					if res, err = first.Await(ctx, m.To, model.RunID{}); err == nil {
						if res.Outcome.Status != model.Completed {
							err = fmt.Errorf("task %d ended as %s: %w", i, res.Outcome.Status, res.Outcome.Failure)
						}
						break
					}
				}
				results <- err
			}()
		}

		time.Sleep(time.Second)
		second, third := r.join(5, do), r.join(5, do)
		time.Sleep(10 * time.Second) // tasks run while shards move
		for c.cut(second) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		c.outlive(t, tasks, 5*time.Minute, results)
		if c.most > 3 {
			t.Errorf("%d tasks at a time, and the limit is 3", c.most)
		}
		c.allWorked(t, first, second, third)
		time.Sleep(10 * time.Second)
		if left, err := r.st.ListSettings(ctx, "", "limit_found"); err != nil || len(left) > 0 {
			t.Errorf("the search for claims of the dead node goes on: %v, %v", left, err)
		}
		second.cut.Store(false)
		r.close()
	})
}

// Tasks run for longer than a shard waits for them, so their runs move. The tasks keep their
// permits until they have ended, whichever node records the end.
func TestPermitsOfRunsThatMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		c := newCounter()
		do := c.worker(9 * time.Second)
		first, ctx := r.join(5, do), t.Context()
		r.limitTo3(first)
		const tasks = 40
		sendTasks(t, first.Engine, tasks, "", ofThree)
		second := r.join(5, do)
		time.Sleep(25 * time.Second)
		third := r.join(5, do)
		time.Sleep(3 * time.Second)

		// Ask for the limits in two of the nodes, and in a process that is not a node.
		for i, f := range []*flow.Flow{first.Flow(), second.Flow(), flow.Of(common{r.st})} {
			s, err := f.StateWithUses(ctx, model.DefaultTenant)
			if err != nil || !s.Known || len(s.Uses) != 1 || s.Uses[0].Held != len(s.Uses[0].Holders) || s.Uses[0].Waiting == 0 || len(s.Uses[0].Waiters) == 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			// The last process sends no hints, so nodes answer at different moments.
			if n := s.Uses[0].Held; n != 3 && i < 2 || n == 0 {
				t.Errorf("%d hold it", n)
			}
		}

		r.awaitAll(first, tasks)
		c.atMost3(t)
		c.onceEach(t, tasks)
		c.allWorked(t, first, second, third)
		r.close()
	})
}

// stubborn is a store that refuses to store the ends of some runs.
type stubborn struct {
	store.Store

	mu      sync.Mutex
	refuse  map[model.RunID]bool
	refused int
}

func (s *stubborn) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	s.mu.Lock()
	refused := slices.ContainsFunc(b.Closes, func(c store.CloseRow) bool { return s.refuse[c.Run] })
	if refused {
		s.refused++
	}
	s.mu.Unlock()
	if refused {
		return store.Committed{}, store.Errorf(store.Refused, "commit", "this run must not end")
	}
	return s.Store.Commit(ctx, b)
}

// Some tasks, whose ends cannot be stored, have all permits of a limit. When their bodies have
// ended, the other tasks of the limit run, although the ends are still not stored. There are never
// more running bodies than the limit allows, and every body runs once.
func TestPermitsOfRunsThatCannotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		st := &stubborn{Store: r.st, refuse: map[model.RunID]bool{}}
		r.st = st
		c := newCounter()
		do := c.worker(5 * time.Second)
		first, ctx := r.join(5, do), t.Context()
		r.join(5, do)
		r.limitTo3(first)

		const refused, tasks = 3, 12
		for i := range tasks {
			m := submit(fmt.Sprint(i), ofThree)
			a, err := first.Send(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			if i >= refused {
				continue
			}
			st.mu.Lock()
			st.refuse[a.Run] = true
			st.mu.Unlock()
			for c.countBegun() <= i { // the test sends the other tasks when these have all permits
				time.Sleep(10 * time.Millisecond)
			}
		}

		// The lanes try the refused runs again after a minute. The other tasks do not wait for
		// that.
		wait, cancel := context.WithTimeout(ctx, 45*time.Second)
		defer cancel()
		for i := refused; i < tasks; i++ {
			if _, err := first.Await(wait, submit(fmt.Sprint(i), model.TaskSpec{}).To, model.RunID{}); err != nil {
				t.Fatalf("task %d waits for tasks whose ends cannot be stored: %v", i, err)
			}
		}

		st.mu.Lock()
		if st.refused < refused {
			t.Errorf("the store has refused %d batches, want one for each of %d tasks", st.refused, refused)
		}
		clear(st.refuse)
		st.mu.Unlock()
		r.awaitAll(first, tasks)
		c.atMost3(t)
		c.onceEach(t, tasks)
		r.allFree(first)
		r.close()
	})
}

// Nodes share a rate. In any period, at most the burst plus the tokens that accrue in the period
// may start.
func TestRateOfSeveralNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		c := newCounter()
		do := func(m *member, claim model.Claim) *model.TaskReport {
			c.begin(m, string(claim.Input.Data))
			c.end(m, string(claim.Input.Data))
			return &model.TaskReport{Output: claim.Input}
		}

		ctx := t.Context()
		nodes := []*member{r.join(5, do), r.join(5, do)}
		time.Sleep(15 * time.Second) // until the shards have moved
		n := limit.Numbers{Rate: 20, Per: time.Second, Burst: 4}
		if err := nodes[0].Flow().SetLimit(ctx, model.DefaultTenant, rule.Limit{Name: "rate", Per: rule.PerName, Numbers: n}, true); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second) // until all nodes know the limit
		const tasks = 200
		from := time.Now()

		for i := range tasks {
			if _, err := nodes[i%2].Send(ctx, submit(fmt.Sprint(i), model.TaskSpec{Limits: []string{"rate"}})); err != nil {
				t.Fatal(err)
			}
		}

		for i := range tasks {
			if _, err := nodes[0].Await(ctx, submit(fmt.Sprint(i), model.TaskSpec{}).To, model.RunID{}); err != nil {
				t.Fatal(err)
			}
		}

		for i := range c.begins {
			for j := i; j < len(c.begins); j++ {
				if k, d := int64(j-i+1), c.begins[j].Sub(c.begins[i]); k*int64(n.Per) > n.Burst*int64(n.Per)+n.Rate*int64(d+time.Microsecond) {
					t.Fatalf("%d begin within %v", k, d)
				}
			}
		}

		if took := c.begins[len(c.begins)-1].Sub(from); took > 20*time.Second {
			t.Errorf("%d tasks at %v took %v", tasks, n, took)
		}
		c.allWorked(t, nodes...)
		r.close()
	})
}

// unsure is a store that loses every second answer to a write of a breaker's state. The write
// itself takes effect.
type unsure struct {
	store.Store
	calls atomic.Int64
	lost  atomic.Int64
}

func (u *unsure) PutSetting(ctx context.Context, s store.Setting, expected int64) (int64, error) {
	version, err := u.Store.PutSetting(ctx, s, expected)
	if err == nil && s.Kind == "breaker_state" && u.calls.Add(1)%2 == 1 {
		u.lost.Add(1)
		return 0, store.Errorf(store.Away, "put setting", "the answer is lost")
	}
	return version, err
}

// A failure counts once, although the outcome of its write is unknown. So three failures do not
// open a breaker that needs four.
func TestFailuresOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		st := &unsure{Store: r.st}
		r.st = st
		ctx := t.Context()
		node := r.join(1, func(*member, model.Claim) *model.TaskReport { return failureOf("down") })
		time.Sleep(15 * time.Second)
		config := breaker.Config{Failures: 4, Window: time.Hour, Reset: time.Minute}
		if err := node.Flow().SetBreaker(ctx, model.DefaultTenant, rule.Breaker{Name: "bank", Config: config}); err != nil {
			t.Fatal(err)
		}

		for n := 1; n <= 4; n++ {
			m := submit(fmt.Sprint(n), model.TaskSpec{Breaker: "bank", Retry: model.Retry{MaxAttempts: 1}})
			if _, err := node.Send(ctx, m); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, 30*time.Second)
			_, err := node.Await(short, m.To, model.RunID{})
			cancel()

			if err != nil {
				t.Errorf("failure %d: %v", n, err)
				break
			}

			time.Sleep(15 * time.Second) // until the failure is stored
			s, err := node.Flow().State(ctx, model.DefaultTenant)
			if err != nil || len(s.Breakers) != 1 {
				t.Fatalf("%+v, %v", s.Breakers, err)
			}
			if got, want := s.Breakers[0].State, map[bool]breaker.State{true: breaker.Open}[n == 4]; got != want {
				t.Errorf("after %d failures it is %s", n, got)
			}
		}

		if st.lost.Load() == 0 {
			t.Error("no answer was lost")
		}
		r.close()
	})
}

// Nodes share a breaker. Failures on all nodes together open it for all nodes, and only one probe
// in total goes through.
func TestBreakerOfSeveralNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		c := newCounter()
		var broken atomic.Bool
		broken.Store(true)

		do := func(m *member, claim model.Claim) *model.TaskReport {
			c.begin(m, string(claim.Input.Data))
			time.Sleep(5 * time.Second)
			c.end(m, string(claim.Input.Data))
			if broken.Load() {
				return failureOf("down")
			}
			return &model.TaskReport{Output: claim.Input}
		}

		ctx := t.Context()
		nodes := []*member{r.join(1, do), r.join(1, do)}
		time.Sleep(15 * time.Second)
		id := rule.BreakerID{Tenant: model.DefaultTenant, Name: "bank"}
		config := breaker.Config{Failures: 4, Window: time.Hour, Reset: time.Minute, Successes: 2}
		if err := nodes[0].Flow().SetBreaker(ctx, model.DefaultTenant, rule.Breaker{Name: "bank", Config: config}); err != nil {
			t.Fatal(err)
		}

		const tasks = 40
		for i := range tasks {
			spec := model.TaskSpec{Breaker: "bank", Retry: model.Retry{Initial: time.Second, Max: time.Second}}
			if _, err := nodes[i%2].Send(ctx, submit(fmt.Sprint(i), spec)); err != nil {
				t.Fatal(err)
			}
		}

		state := func(m *member) breaker.Status {
			t.Helper()
			s, err := m.Flow().State(ctx, model.DefaultTenant)
			if err != nil || len(s.Breakers) != 1 || s.Breakers[0].ID != id {
				t.Fatalf("%+v, %v", s.Breakers, err)
			}
			return s.Breakers[0].Status
		}

		time.Sleep(30 * time.Second)
		for i, m := range nodes {
			if s := state(m); s.State != breaker.Open {
				t.Errorf("node %d: %+v", i, s)
			}
			// Each node has a slot. It has executed some of the four tasks, and tasks that had
			// started by then.
			if n := c.countEnded(m); n < 1 || n > 3 {
				t.Errorf("node %d had %d calls", i, n)
			}
		}

		// Each node has a slot, and may start one more task before it knows that the breaker is
		// open.
		if n := c.countBegun(); n > 4+2 {
			t.Errorf("%d calls, and four failures open it", n)
		}
		before := c.countBegun()
		time.Sleep(time.Minute) // one probe, which fails
		if n := c.countBegun() - before; n != 1 {
			t.Errorf("%d probes", n)
		}
		broken.Store(false)

		for i := range tasks {
			for {
				if _, err := nodes[0].Await(ctx, submit(fmt.Sprint(i), model.TaskSpec{}).To, model.RunID{}); err == nil {
					break
				}
			}
		}

		// Two probes, one after the other, close the breaker.
		for k := range 2 {
			if d := c.begins[before+k+2].Sub(c.begins[before+k+1]); d < 5*time.Second {
				t.Errorf("probe %d begins %v after the one before", k+2, d)
			}
		}

		if s := state(nodes[1]); s.State != breaker.Closed {
			t.Errorf("%+v", s)
		}

		// A pause that an operator orders at one node applies to all nodes.
		if err := nodes[1].Flow().Pause(ctx, id, model.Time(time.Now().Add(time.Hour).UnixMicro()), "migration"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if s := state(nodes[0]); !s.Held || s.Why != "migration" {
			t.Errorf("%+v", s)
		}
		r.close()
	})
}
