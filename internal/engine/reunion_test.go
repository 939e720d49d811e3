package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// reunionTime is how long a server waits for remote workers that stay away.
const reunionTime = 10 * time.Second

// NameWorkers implements store.Workers. A dead node adds and removes no names.
func (w wire) NameWorkers(ctx context.Context, n store.WorkerNames) error {
	if err := w.away(ctx, "name workers"); err != nil {
		return err
	}
	return w.Store.NameWorkers(ctx, n)
}

// nameless is the store of a node that can do everything except name workers, while it is away.
type nameless struct {
	wire
	away *atomic.Bool
}

// NameWorkers implements store.Workers.
func (n nameless) NameWorkers(ctx context.Context, names store.WorkerNames) error {
	if n.away.Load() {
		return store.Errorf(store.Away, "name workers", "the table is locked")
	}
	return n.wire.NameWorkers(ctx, names)
}

// far is a remote worker. When its server dies, the worker continues its bodies, and tells the next
// server which runs it holds. Each body is the only step of an execution.
type far struct {
	t     *testing.T
	name  string
	flow  string // the workflow whose code it has
	takes time.Duration

	mu    sync.Mutex
	lines int
	line  *line
	named []string     // the names of its sessions, the last one first
	lost  atomic.Int64 // runs that it has lost with their owner
	open  map[model.RunID]*farRun
	begun map[string]time.Time // when the body of a key began for the first time
	times map[string]int       // how often the body of a key began
}

// farRun is a run whose end the worker has not reported.
type farRun struct {
	address    model.Address
	generation uint64
	given      model.Time
	ends       time.Time
}

// line is a session of a remote worker with one server.
type line struct {
	*far
	name    string
	session *engine.Session
}

func newFar(t *testing.T, name string, takes time.Duration) *far {
	return &far{t: t, name: name, flow: "wf", takes: takes, open: map[model.RunID]*farRun{}, begun: map[string]time.Time{}, times: map[string]int{}}
}

// connect joins a server, after the last server was lost.
func (f *far) connect(e *engine.Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines++
	offer := model.Offer{Tenant: model.DefaultTenant, Workflows: []string{f.flow}, Remote: model.RemoteMember{Name: fmt.Sprint(f.name, f.lines)}}
	if f.line != nil {
		offer.Remote.After = slices.Clone(f.named)
	}
	f.named = append([]string{offer.Remote.Name}, f.named...)
	for run, r := range f.open {
		offer.Held = append(offer.Held, model.HeldRun{Address: r.address, Run: run, Given: r.given})
	}
	f.line = &line{far: f, name: offer.Remote.Name}
	f.line.session = e.Join(f.line, offer)
}

func (l *line) Activate(a *model.Activation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.far.line != l {
		return // the server is gone
	}
	run, key := a.Start.Run, a.Start.Address.Key
	r := l.open[run]
	if r == nil {
		r = &farRun{address: a.Start.Address, ends: time.Now().Add(l.takes)}
		l.open[run] = r
		l.times[key]++
		if l.times[key] == 1 {
			l.begun[key] = time.Now()
		}
	}
	r.generation, r.given = a.Generation, a.Now
	time.AfterFunc(time.Until(r.ends), func() { l.end(run, a.Generation) })
}

// end reports the end of a run to the server that has handed it over last.
func (l *line) end(run model.RunID, generation uint64) {
	l.mu.Lock()
	r := l.open[run]
	mine := l.far.line == l && r != nil && r.generation == generation
	if mine {
		delete(l.open, run)
	}
	l.mu.Unlock()
	if mine {
		_ = l.session.Report(l.t.Context(), model.Turn{Run: run, Generation: generation, Close: &model.Close{Status: model.Completed}})
	}
}

func (l *line) Evict(model.RunID, uint64, string)                              {}
func (l *line) Lose(model.RunID, uint64)                                       { l.lost.Add(1) }
func (l *line) Deliver(model.RunID, uint64, []model.Event)                     {}
func (l *line) Retry(model.RunID, uint64, string)                              {}
func (l *line) Taken(model.RunID, uint64)                                      {}
func (l *line) Recall(_ model.Address, _ model.RunID, _ uint64, _ model.Query) {}
func (l *line) Query(model.RunID, uint64, model.Query)                         {}

// bodies returns how many bodies have begun.
func (f *far) bodies() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.times {
		n += times
	}
	return n
}

// since returns when the body of a key began, or zero if it has not begun.
func (f *far) since(key string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun[key]
}

// own is a worker of the server itself. It makes its node a server in the eyes of the other nodes.
type own struct{ line }

func (*own) Activate(*model.Activation) {}

// newServers returns a cluster of servers.
func newServers(t *testing.T) *ring {
	return &ring{t: t, st: memory.New(memory.Options{}), hints: &notify.Local{}, lan: &lan.LAN{}}
}

// serve adds a server.
func (r *ring) serve() *member {
	r.t.Helper()
	m := &member{done: make(chan error, 1)}
	m.Engine = engine.New(engine.Config{
		Store: nameless{wire{r.st, &m.cut}, &m.nameless}, Hints: r.hints, Lanes: 2, Peers: r.listen(), Lane: lane.Config{Reunion: reunionTime},
	})
	ctx, cancel := context.WithCancel(r.t.Context())
	m.stop = func() { m.PrepareStop(); cancel() }
	go func() { m.done <- m.Run(ctx) }()
	if err := m.Ready(ctx); err != nil {
		r.t.Fatal(err)
	}
	m.Join(&own{}, model.Offer{Tenant: model.EveryTenant, Workflows: []string{"perdure.own"}})
	r.nodes = append(r.nodes, m)
	return m
}

// ownAll waits until these nodes own all shards.
func (r *ring) ownAll(nodes ...*member) {
	r.t.Helper()
	for {
		v, err := r.st.Members(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		if !slices.ContainsFunc(v.Owners, func(o store.ShardOwner) bool {
			return !slices.ContainsFunc(nodes, func(m *member) bool { return m.Node() == o.Node && !o.Node.IsZero() })
		}) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// keysOf returns keys of executions that a node owns.
func (r *ring) keysOf(m *member, n int) (keys []string) {
	r.t.Helper()
	v, err := r.st.Members(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; len(keys) < n && i < 10_000; i++ {
		key := fmt.Sprint("k", i)
		if v.Owners[start(key).To.Shard(len(v.Owners))].Node == m.Node() {
			keys = append(keys, key)
		}
	}
	return keys
}

// startKeys starts executions at a node.
func (r *ring) startKeys(m *member, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		if _, err := m.Send(r.t.Context(), start(key)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// finish waits until executions have ended.
func (r *ring) finish(m *member, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		for {
			res, err := m.Await(r.t.Context(), start(key).To, model.RunID{})
			if err == nil && res.Outcome.Status == model.Completed {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// homes returns how many processes have names of workers in the store.
func (r *ring) homes() int {
	r.t.Helper()
	homes, err := r.st.WorkerHomes(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return len(homes)
}

// A server without remote workers has died. The next server gives its runs to the first worker that
// joins.
func TestReunionWithoutWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		first := r.serve()
		r.startKeys(first, "a")
		first.cut.Store(true)
		next := r.serve()
		r.ownAll(next)

		began := time.Now()
		w := newFar(t, "w", time.Second)
		w.connect(next.Engine)
		r.finish(next, "a")
		if d := w.since("a").Sub(began); d > 2*time.Second {
			t.Errorf("the run was given out after %s", d)
		}
		first.cut.Store(false)
		r.close()
	})
}

// A server died while one worker ran a body and another worker was idle. Runs that no worker holds
// wait until both workers have come back, and not longer. The body continues.
func TestReunionEndsWhenAllWorkersAreBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		first := r.serve()
		busy, idle := newFar(t, "busy", 40*time.Second), newFar(t, "idle", time.Second)
		busy.connect(first.Engine)
		time.Sleep(time.Second)
		r.startKeys(first, "held")
		time.Sleep(time.Second)
		idle.connect(first.Engine)
		free := startOf("free", "free") // no worker has its code yet
		if _, err := first.Send(t.Context(), free); err != nil {
			t.Fatal(err)
		}
		first.cut.Store(true)
		next := r.serve()
		r.ownAll(next)

		fresh := newFar(t, "fresh", time.Second)
		fresh.flow = "free"
		fresh.connect(next.Engine)
		time.Sleep(3 * time.Second)
		idle.connect(next.Engine)
		time.Sleep(3 * time.Second)
		if n := fresh.bodies(); n != 0 {
			t.Errorf("%d bodies began before all workers were back", n)
		}
		back := time.Now()
		busy.connect(next.Engine)
		r.finish(next, "held")
		if d := fresh.since("free").Sub(back); d < 0 || d > 2*time.Second {
			t.Errorf("the run that no worker held was given out %s after all workers were back", d)
		}
		if busy.bodies() != 1 || idle.bodies() != 0 {
			t.Errorf("the body that ran was repeated: %v, %v", busy.times, idle.times)
		}
		first.cut.Store(false)
		r.close()
	})
}

// The worker of a server that died does not come back. Its runs go to another worker when the
// reunion is over, and not before. Later the store forgets the worker.
func TestReunionWithAWorkerThatStaysAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		first := r.serve()
		gone, other := newFar(t, "gone", time.Hour), newFar(t, "other", time.Second)
		gone.connect(first.Engine)
		time.Sleep(time.Second)
		r.startKeys(first, "a")
		time.Sleep(time.Second)
		first.cut.Store(true)
		gone.mu.Lock()
		gone.line = nil // the worker died with its server
		gone.mu.Unlock()
		next := r.serve()
		r.ownAll(next)

		owned := time.Now()
		other.connect(next.Engine)
		r.finish(next, "a")
		if d := other.since("a").Sub(owned); d < reunionTime-time.Second || d > reunionTime+2*time.Second {
			t.Errorf("the run went to another worker after %s, want %s", d, reunionTime)
		}
		if n := r.homes(); n != 2 {
			t.Errorf("workers of %d processes are named, want 2", n)
		}
		time.Sleep(2 * reunionTime)
		if n := r.homes(); n != 1 {
			t.Errorf("workers of %d processes are named, want 1", n)
		}
		first.cut.Store(false)
		r.close()
	})
}

// The worker of a server that died comes back to one of two other servers, before or after these
// own the shards of the dead server. Its bodies continue. This includes the bodies of runs that the
// other server owns now, although that server has a worker with the same code.
func TestReunionWithAWorkerAtAnotherServer(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { returnElsewhere(t, late) })
		})
	}
}

func returnElsewhere(t *testing.T, late bool) {
	t.Helper()
	r := newServers(t)
	first, second, third := r.serve(), r.serve(), r.serve()
	time.Sleep(30 * time.Second) // until each server owns a part of the shards
	w := newFar(t, "w", time.Minute)
	w.connect(first.Engine)
	time.Sleep(time.Second)
	keys := r.keysOf(first, 40)
	r.startKeys(first, keys...)
	time.Sleep(time.Second)
	others := []*far{newFar(t, "x", time.Second), newFar(t, "y", time.Second)}
	others[0].connect(second.Engine)
	others[1].connect(third.Engine)

	first.cut.Store(true)
	if late {
		r.ownAll(second, third)
	}
	time.Sleep(2 * time.Second)
	w.connect(second.Engine)
	r.ownAll(second, third)

	r.finish(third, keys...)
	if n := w.bodies(); n != len(keys) {
		t.Errorf("%d bodies of the worker began, want %d", n, len(keys))
	}
	for _, o := range others {
		if n := o.bodies(); n != 0 {
			t.Errorf("%d bodies began on another worker: %v", n, slices.Sorted(maps.Keys(o.times)))
		}
	}
	first.cut.Store(false)
	r.close()
}

// A server waits for the worker of a server that died, and hands over shards to a third server. The
// third server also waits for the worker, although the server that handed over the shards lives.
func TestReunionOfAShardThatMovesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		first := r.serve()
		w := newFar(t, "w", time.Minute)
		w.connect(first.Engine)
		time.Sleep(time.Second)
		var keys []string
		for i := range 40 {
			keys = append(keys, fmt.Sprint("k", i))
		}
		r.startKeys(first, keys...)
		time.Sleep(time.Second)

		first.cut.Store(true)
		second := r.serve()
		other := newFar(t, "other", time.Second)
		r.ownAll(second)
		third := r.serve()
		other.connect(third.Engine)
		time.Sleep(6 * time.Second)
		if n := len(r.keysOf(third, 1)); n != 1 {
			t.Fatal("the third server got no shard")
		}
		w.connect(second.Engine)

		r.finish(third, keys...)
		if w.bodies() != len(keys) || other.bodies() != 0 {
			t.Errorf("%d bodies began on the worker that held them, want %d, and %d on another one", w.bodies(), len(keys), other.bodies())
		}
		first.cut.Store(false)
		r.close()
	})
}

// When a server stops in an orderly way, the store keeps only the names of those workers that still
// hold something. The next server waits only for these workers.
func TestReunionAfterAnOrderlyStop(t *testing.T) {
	t.Parallel()
	for _, holds := range []bool{true, false} {
		t.Run(fmt.Sprint("holds ", holds), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newServers(t)
				first := r.serve()
				w := newFar(t, "w", time.Hour)
				w.connect(first.Engine)
				time.Sleep(time.Second)
				want := 0
				if holds {
					want = 1
					r.startKeys(first, "a")
					time.Sleep(time.Second)
				}

				first.PrepareStop()
				over, cancel := context.WithCancel(t.Context())
				cancel()
				_ = w.line.session.Leave(over) // as a server does when it ends its sessions
				r.close()
				if n := r.homes(); n != want {
					t.Errorf("workers of %d processes are named, want %d", n, want)
				}
			})
		})
	}
}
