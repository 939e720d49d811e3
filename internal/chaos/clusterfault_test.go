//go:build long

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// blow is one fault, with everything that the seed decides about it.
type blow struct {
	kind   string
	target int           // selects one of the nodes or of the workers
	lasts  time.Duration // up to twice the lease
	dice   int           // 0 to 5
}

// faults are the kinds of faults, and what each of them does.
var faults = map[string]func(f *clusterFire, b blow){
	"kill node":         func(f *clusterFire, b blow) { f.kill(f.node(b), b) },
	"stop node":         func(f *clusterFire, b blow) { f.stop(f.node(b), b) },
	"restart node":      func(f *clusterFire, b blow) { f.restart(f.node(b)) },
	"rolling restart":   func(f *clusterFire, _ blow) { f.roll() },
	"cut from database": func(f *clusterFire, b blow) { f.cutFromDatabase(f.node(b), b) },
	"drop replies":      func(f *clusterFire, b blow) { f.hurt(f.node(b), b, pgproxy.Rule{Fault: pgproxy.DropReply}) },
	"reset commits":     func(f *clusterFire, b blow) { f.hurt(f.node(b), b, pgproxy.Rule{Fault: pgproxy.Reset}) },
	"orphan commits": func(f *clusterFire, b blow) {
		f.hurt(f.node(b), b, pgproxy.Rule{Fault: pgproxy.Orphan, Delay: b.lasts / 4, Hold: pgproxy.HoldCommit})
	},
	"slow commits":       func(f *clusterFire, b blow) { f.slowCommits(f.node(b), b) },
	"cut from nodes":     func(f *clusterFire, b blow) { disturb(f.node(b).peers, b) },
	"slow between nodes": func(f *clusterFire, b blow) { drag(f.node(b).peers, b) },
	"late between nodes": func(f *clusterFire, b blow) { f.node(b).peers.bereave(b.lasts / 2) },
	"cut clients":        func(f *clusterFire, b blow) { disturb(f.server(b).clients, b) },
	"late clients":       func(f *clusterFire, b blow) { f.server(b).clients.bereave(b.lasts / 2) },
	"cut workers":        func(f *clusterFire, b blow) { disturb(f.server(b).workers, b) },
	"slow workers":       func(f *clusterFire, b blow) { drag(f.server(b).workers, b) },
	"kill worker":        func(f *clusterFire, b blow) { f.kill(f.worker(b), b) },
	"stop worker":        func(f *clusterFire, b blow) { f.stop(f.worker(b), b) },
	"restart worker":     func(f *clusterFire, b blow) { f.restart(f.worker(b)) },
	"restart database":   func(f *clusterFire, b blow) { f.restartDatabase(pgtest.Fast) },
	"crash database":     func(f *clusterFire, b blow) { f.restartDatabase(pgtest.Immediate) },
	"kill backend":       func(f *clusterFire, _ blow) { f.killBackend() },
	"fail over":          func(f *clusterFire, _ blow) { f.failOver() },
	"step clock":         func(f *clusterFire, b blow) { f.stepClock(b) },
	"slow sync":          func(f *clusterFire, b blow) { f.slowSync(b) },
	"freeze database":    func(f *clusterFire, b blow) { f.freezeDatabase(b) },
	"drain":              func(f *clusterFire, b blow) { f.drain(f.node(b), b) },
}

func (f *clusterFire) node(b blow) *member   { return f.nodes[b.target%len(f.nodes)] }
func (f *clusterFire) server(b blow) *member { return f.nodes[b.target%2] }
func (f *clusterFire) worker(b blow) *member { return f.hands[b.target%len(f.hands)] }

// strikeAll makes all faults happen, at most two at a time. No kind is repeated before every kind
// has happened.
func (f *clusterFire) strikeAll(rnd *rand.Rand) {
	f.t.Helper()
	f.awaitWork(2 * time.Minute)
	f.say("the cluster works: %s", f.crowd.progress())
	var kinds []string
	for kind := range faults {
		if *clusterKinds == "" || strings.Contains(","+*clusterKinds+",", ","+kind+",") {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)

	var running sync.WaitGroup
	two := make(chan struct{}, 2)
	for i := range *clusterFaults {
		if i%len(kinds) == 0 {
			rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		b := blow{kinds[i%len(kinds)], rnd.IntN(12), time.Duration(1+rnd.IntN(int(2*clusterLease/time.Millisecond))) * time.Millisecond, rnd.IntN(6)}
		pause := time.Duration(500+rnd.IntN(4500)) * time.Millisecond
		two <- struct{}{}
		running.Go(func() {
			defer func() { <-two }()
			from := time.Now()
			f.say("fault %d: %s %d, %s, %d", i+1, b.kind, b.target, b.lasts, b.dice)
			faults[b.kind](f, b)
			f.say("fault %d is over after %s", i+1, time.Since(from).Round(time.Millisecond))
		})
		f.mu.Lock()
		f.struck[b.kind]++
		f.mu.Unlock()
		time.Sleep(pause)
		if i%5 == 4 {
			f.say("%s", f.crowd.progress())
		}
	}
	running.Wait()
	for _, w := range f.wounds {
		w.Cancel()
	}
}

// kill ends a process with signal 9, and starts it again after a while.
func (f *clusterFire) kill(m *member, b blow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process.kill()
	time.Sleep(b.lasts / 2)
	f.raise(m)
}

// stop stops a process for up to twice the lease. In half of the cases that is longer than the
// lease.
func (f *clusterFire) stop(m *member, b blow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signal(syscall.SIGSTOP)
	if b.dice%2 == 0 {
		b.lasts = max(b.lasts, clusterLease+time.Second/2)
	}
	time.Sleep(b.lasts)
	m.signal(syscall.SIGCONT)
}

// restart ends a process cleanly, and starts it again.
func (f *clusterFire) restart(m *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signal(syscall.SIGTERM)
	select {
	case <-m.done:
	case <-time.After(time.Minute):
		f.t.Errorf("%s did not end within a minute after SIGTERM", m.name)
		m.signal(syscall.SIGQUIT)
		<-m.done
	}
	f.raise(m)
}

// roll restarts the nodes one after the other.
func (f *clusterFire) roll() {
	for _, m := range f.nodes {
		f.restart(m)
		time.Sleep(clusterLease / 2)
	}
}

// cutFromDatabase cuts a node off, in one direction or both.
func (f *clusterFire) cutFromDatabase(m *member, b blow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.dice%2 == 0 {
		b.lasts = max(b.lasts, clusterLease+time.Second/2)
	}
	m.pg.Blackhole([][]pgproxy.Direction{{}, {pgproxy.ToServer}, {pgproxy.ToClient}}[b.dice%3]...)
	time.Sleep(b.lasts)
	m.pg.Heal()
}

// hurt breaks some of the next commits of a node.
func (f *clusterFire) hurt(m *member, b blow, r pgproxy.Rule) {
	r.Match = ofLane
	for i := range 1 + b.dice {
		r.Nth = 1 + 3*i
		trigger := m.pg.Inject(r)
		f.mu.Lock()
		f.wounds = append(f.wounds, trigger)
		f.mu.Unlock()
	}
}

func (f *clusterFire) slowCommits(m *member, b blow) {
	m.pg.DelayCommits(time.Duration(1+b.dice) * 100 * time.Millisecond)
	time.Sleep(b.lasts)
	m.pg.DelayCommits(0)
}

// disturb breaks a link: it resets the connections, or lets nothing pass for a while, or drops the
// replies.
func disturb(w *wire, b blow) {
	switch b.dice {
	case 0:
		w.cut()
	case 1:
		w.hold(onward)
	case 2:
		w.hold(back)
	case 3, 4:
		w.hold(onward, back)
	default:
		w.deafen(b.lasts)
		return
	}
	time.Sleep(b.lasts)
	w.heal()
}

// drag delays the data that passes a link.
func drag(w *wire, b blow) {
	w.slow(time.Duration(1+b.dice) * 20 * time.Millisecond)
	time.Sleep(b.lasts)
	w.heal()
}

func (f *clusterFire) restartDatabase(m pgtest.Mode) {
	f.wal.Lock()
	defer f.wal.Unlock()
	if err := f.pg.Restart(f.t.Context(), m); err != nil {
		f.t.Error(err)
	}
}

// killBackend ends one session of the database with signal 9. The database then ends all other
// sessions and recovers.
func (f *clusterFire) killBackend() {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, f.direct())
	if err != nil {
		f.say("no backend is killed: %v", err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pid int
	if err := conn.QueryRow(ctx, `select pid from pg_stat_activity where application_name like '% lane %' limit 1`).Scan(&pid); err != nil {
		f.say("no backend is killed: %v", err)
		return
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.say("no backend is killed: %v", err)
	}
}

// failOver replaces the database by a standby, which has everything that the database has
// confirmed.
func (f *clusterFire) failOver() {
	f.wal.Lock()
	defer f.wal.Unlock()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	standby, err := f.pg.OpenStandby(ctx)
	if err != nil {
		f.t.Errorf("a standby: %v", err)
		return
	}
	f.t.Cleanup(func() { _ = standby.Close() })
	time.Sleep(time.Second)
	if err := f.pg.Stop(pgtest.Immediate); err != nil {
		f.t.Error(err)
	}
	if err := standby.Promote(ctx); err != nil {
		f.t.Errorf("promote: %v", err)
		return
	}
	f.pg = standby
	for _, m := range f.nodes {
		m.pg.Retarget(standby.Addr())
		m.pg.CutAll()
	}
}

// drain asks a node to hand its shards over, and later lets it take shards again.
func (f *clusterFire) drain(m *member, b blow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	order := func(undo bool) error {
		ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
		defer cancel()
		nd, err := node.Open(ctx, node.Config{URL: f.direct(), Guest: true})
		if err != nil {
			return err
		}
		defer nd.Close()
		conn, err := pgx.Connect(ctx, f.direct())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))

		var id [16]byte
		if err := conn.QueryRow(ctx, `select node from perdure.nodes where pid = $1 order by epoch desc limit 1`, m.cmd.Process.Pid).Scan(&id); err != nil {
			return fmt.Errorf("%s is not registered: %w", m.name, err)
		}
		return nd.Admin(model.DefaultTenant).DrainNode(ctx, api.NodeDrain{Node: id, Undo: undo})
	}

	if err := order(false); err != nil {
		f.say("%s is not drained: %v", m.name, err)
		return
	}
	time.Sleep(b.lasts)
	// The order to drain belongs to the process. It survives the end of the lease, but not the end
	// of the process.
	for err := order(true); err != nil && f.t.Context().Err() == nil; err = order(true) {
		f.say("%s is not undrained: %v", m.name, err)
		time.Sleep(time.Second)
	}
}
