package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/cluster/host"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// Many timers that are due at the same moment fire once each. Timers of another workflow fire among
// the first, no matter how long the storm takes while other tests run. TestLongTimerStorm is the
// same test with a million timers, many more than fit into memory, and with a limit in seconds.
func TestTimerStorm(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		s.storm(5_000, 2*time.Second, patience)
	})
}

// stormInput has the number of an execution and when it wakes. Without a time, the execution sleeps
// for a second. Same is set for a calm execution (one outside the storm) that wakes at the moment
// of the storm.
type stormInput struct {
	I    int
	Due  time.Time
	Same bool
}

// weather records what happens in a storm.
type weather struct {
	woken atomic.Int64 // how many executions of the storm have woken
	done  chan struct{}
	all   int64

	mu   sync.Mutex
	late map[string][]time.Duration // how late the calm timers were
	// amid is, for each calm timer of that moment, how many timers of the storm had fired before
	// it.
	amid []int64
}

func (w *weather) hit() {
	if w.woken.Add(1) == w.all {
		close(w.done)
	}
}

func (w *weather) note(which string, late time.Duration, same bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late[which] = append(w.late[which], late)
	if same {
		w.amid = append(w.amid, w.woken.Load())
	}
}

var (
	stormy = perdure.DeclareWorkflow[stormInput, perdure.Void]("stormy")
	calm   = perdure.DeclareWorkflow[stormInput, perdure.Void]("calm")
)

// definitions returns the code of both workflows.
func (w *weather) definitions() perdure.Group {
	sleep := func(ctx perdure.WorkflowCtx, in stormInput) (time.Time, error) {
		if in.Due.IsZero() {
			in.Due = ctx.Now().Add(time.Second)
		}
		return in.Due, ctx.Sleep(in.Due.Sub(ctx.Now()))
	}

	return perdure.Group{
		stormy.Bind(func(ctx perdure.WorkflowCtx, in stormInput) (perdure.Void, error) {
			if _, err := sleep(ctx, in); err != nil {
				return perdure.Void{}, err
			}
			return perdure.Do(ctx, "hit", func(context.Context) (perdure.Void, error) { w.hit(); return perdure.Void{}, nil })
		}),
		calm.Bind(func(ctx perdure.WorkflowCtx, in stormInput) (perdure.Void, error) {
			due, err := sleep(ctx, in)
			if err != nil {
				return perdure.Void{}, err
			}
			which := "started during the storm"
			if !in.Due.IsZero() {
				which = "from before"
			}
			return perdure.Do(ctx, "note", func(context.Context) (perdure.Void, error) {
				w.note(which, time.Since(due), in.Same)
				return perdure.Void{}, nil
			})
		}),
	}
}

// storm lets n timers of one workflow become due at the same moment, while timers of another
// workflow become due all the time. It checks that each timer of the storm fires once. Nine of ten
// calm timers of the same moment must fire before half of the timers of the storm have fired. And
// 99 of 100 calm timers must be late by at most the bound.
func (s *site) storm(n int, lead, bound time.Duration) {
	t := s.t
	t.Helper()
	w := &weather{done: make(chan struct{}), all: int64(n), late: map[string][]time.Duration{}}
	app := s.open(w.definitions()...)
	templates := map[string]model.Address{}
	for _, wf := range []*perdure.Workflow[stormInput, perdure.Void]{stormy, calm} {
		exec := mustStart(t, caller(t, app), wf, stormInput{Due: time.Now().Add(24 * time.Hour)}, perdure.RawKey("template"))
		reason(t, app, exec, "timer")
		templates[exec.Ref.Workflow] = model.Address{Tenant: model.DefaultTenant, Type: exec.Ref.Workflow, Key: exec.Ref.Key}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	// A hundred of the stored calm timers are due at the moment of the storm, and the others after
	// it.
	const others, same = 1000, 100
	begin := time.Now()
	due := s.seed(forecast{stormy: n, calm: others, lead: lead, calmDue: func(due time.Time, i int) time.Time {
		return due.Add(time.Duration(max(0, i-same)) * lead / (others - same))
	}}, templates)
	t.Logf("%s: %d timers stored in %.1f s", s.kind, n+others, time.Since(begin).Seconds())

	app = s.open(w.definitions()...)
	var began sync.WaitGroup
	stream, stop := context.WithCancel(t.Context())
	defer stop()
	began.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stream.Done():
				return
			case <-tick.C:
			}
			if _, err := calm.Start(app.With(t.Context()), stormInput{I: i}, perdure.RawKey("stream-"+strconv.Itoa(i))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	opened, before := time.Now(), processorTime(t)
	storm := due // the storm may start later than planned
	if opened.After(due) {
		storm = opened
	}
	peak := s.awaitStorm(w, storm)
	took, used := time.Since(storm), processorTime(t)-before
	stop()
	began.Wait()
	// By then the last calm timer is due.
	<-time.After(time.Until(due.Add(lead)))
	// Only the two templates still sleep.
	eventually(t, "the calm ones, and the end of all", func() bool { return s.openRuns() == 2 })
	t.Logf("%s: %d timers of one moment in %.1f s, %.0f per second, %.0f µs of CPU of this process each; at most %d MiB of memory",
		s.kind, n, took.Seconds(), float64(n)/took.Seconds(), float64(used.Microseconds())/float64(n), peak>>20)
	for which, late := range w.late {
		slices.Sort(late)
		at := func(q float64) time.Duration { return late[int(q*float64(len(late)-1))].Round(time.Millisecond) }
		t.Logf("%s: %d calm timers %s late: p50 %s, p99 %s, max %s", s.kind, len(late), which, at(0.5), at(0.99), at(1))
		if opened.After(due) {
			// The machine is far too busy for this check.
			t.Logf("%s: they were due %s before the app was open, so that says nothing", s.kind, opened.Sub(due))
			continue
		}
		if got := at(0.99); got > bound {
			t.Errorf("%s: timers %s are late by %s at p99 in a storm of another workflow, want at most %s", s.kind, which, got, bound)
		}
	}
	slices.Sort(w.amid)
	t.Logf("%s: %d others of that moment; nine of ten fired when %d of the storm had", s.kind, len(w.amid), w.amid[len(w.amid)*9/10])
	if fired := w.amid[len(w.amid)*9/10]; fired > int64(n/2) {
		t.Errorf("%s: %d of %d timers of the storm fired before nine of ten of the %d others of that moment", s.kind, fired, n, len(w.amid))
	}
	if got := len(w.late["from before"]); got != others {
		t.Errorf("%d of %d calm timers from before fired", got, others)
	}
	s.wantOnce(n, w)
}

// forecast says which executions to store before a storm.
type forecast struct {
	stormy, calm int                                    // numbers of executions
	lead         time.Duration                          // from the end of seeding to the storm
	calmDue      func(storm time.Time, i int) time.Time // when calm execution i is due
}

// seed stores sleeping executions, in the form in which the engine stored the templates. It returns
// the time at which the executions of the storm are due.
func (s *site) seed(f forecast, templates map[string]model.Address) time.Time {
	t, ctx := s.t, s.t.Context()
	t.Helper()
	st, err := node.OpenStore(ctx, node.Config{URL: s.url, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()

	self := host.Self(model.NodeID(uuid.Must(uuid.NewV7())), "")
	reg, err := st.Register(ctx, self, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	shards := make([]model.ShardID, st.Info().Shards)
	for i := range shards {
		shards[i] = model.ShardID(i)
	}
	if got, err := st.Acquire(ctx, self.ID, reg.Epoch, shards); err != nil || len(got) != len(shards) {
		t.Fatalf("%d of %d shards, %v", len(got), len(shards), err)
	}

	type template struct {
		row   *store.Execution
		timer store.Timer
	}

	of := map[string]template{}
	for wf, a := range templates {
		row, err := st.LoadExecution(ctx, a.Shard(len(shards)), a, model.RunID{})
		if err != nil || row == nil || !row.Parked {
			t.Fatalf("the template %s: %+v, %v", a, row, err)
		}
		timers, err := st.LoadRunTimers(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run})
		if err != nil || len(timers) != 1 {
			t.Fatalf("the timers of %s: %+v, %v", a, timers, err)
		}
		of[wf] = template{row, timers[0]}
	}

	const each = 5000
	// The storm must not start before all rows are stored. This estimates how long storing takes.
	seeding := time.Duration(f.stormy) * 100 * time.Microsecond
	due := time.Now().Add(seeding + f.lead).Truncate(time.Millisecond)
	number := int64(0)
	b := &store.Batch{}

	flush := func() {
		number++
		b.Lane, b.Number, b.At = store.LaneRef{Node: self.ID, Lane: 0, Epoch: reg.Epoch}, number, reg.Now
		if _, err := st.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
		*b = store.Batch{Starts: b.Starts[:0], Marks: b.Marks[:0], Timers: b.Timers[:0]}
	}

	add := func(wf string, i int, at time.Time) {
		tmpl := of[wf]
		x := tmpl.row.Start
		x.Address.Key = "seeded-" + strconv.Itoa(i)
		x.Run = model.RunID(uuid.Must(uuid.NewV7()))
		var err error
		if x.Input.Data, err = json.Marshal(stormInput{i, at, wf == "calm" && at.Equal(due)}); err != nil {
			t.Fatal(err)
		}
		key := store.RunKey{Shard: x.Address.Shard(len(shards)), Run: x.Run}
		b.Starts = append(b.Starts, store.StartRow{Shard: key.Shard, Start: x})
		b.Marks = append(b.Marks, store.MarkRow{RunKey: key, Parked: true, Waits: tmpl.row.Waits})
		b.Timers = append(b.Timers, store.Timer{Shard: key.Shard, Run: x.Run, ID: tmpl.timer.ID, Due: model.TimeOf(at), Address: x.Address})
		if len(b.Starts) == each {
			flush()
		}
	}

	// places are the positions of the calm runs in the order of run ids. Timers of one moment
	// fire in this order.
	places := rand.Perm(f.stormy + f.calm)[:f.calm]
	slices.Sort(places)
	for i, c := 0, 0; i < f.stormy+f.calm; i++ {
		if c < f.calm && places[c] == i {
			add("calm", c, f.calmDue(due, rand.IntN(f.calm)))
			c++
			continue
		}
		add("stormy", i, due)
	}

	flush()
	if err := st.Unregister(ctx, self.ID, reg.Epoch); err != nil {
		t.Fatal(err)
	}
	return due
}

// awaitStorm waits until every timer of the storm has woken its execution. It returns the largest
// amount of memory that this process used until then.
func (s *site) awaitStorm(w *weather, begins time.Time) (peak uint64) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last, moved := int64(0), begins
	for {
		select {
		case <-w.done:
			return max(peak, resident())
		case <-tick.C:
		}
		peak = max(peak, resident())
		if n := w.woken.Load(); n != last {
			last, moved = n, time.Now()
		} else if time.Since(moved) > patience {
			s.t.Fatalf("%d of %d timers have fired, and none within %s", n, w.all, patience)
		}
	}
}

// resident returns the resident memory of this process.
func resident() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		if pages, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return pages * uint64(os.Getpagesize())
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}

// processorTime returns the processor time that this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tableName returns the name of a table for statements.
func (s *site) tableName(table string) string {
	if s.kind == "postgres" {
		return "perdure." + table
	}
	return "perdure_" + table
}

// openRuns counts the runs that have not ended.
func (s *site) openRuns() int {
	s.t.Helper()
	n, err := strconv.Atoi(s.sql("select count(*) from " + s.tableName("executions") + " where closed = 0")[0][0])
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// wantOnce checks that each run of the storm has completed, with one event of its timer and one of
// its step. Only the timers of the templates may be left.
func (s *site) wantOnce(n int, w *weather) {
	t := s.t
	t.Helper()
	if got := w.woken.Load(); got != int64(n) {
		t.Errorf("%d executions of the storm went on, want %d", got, n)
	}
	runs := fmt.Sprintf("(select run from %s where workflow = 'stormy' and key <> 'template' and closed <> 0)", s.tableName("executions"))

	count := func(what, statement string, want int) {
		t.Helper()
		if got := s.sql(statement)[0][0]; got != strconv.Itoa(want) {
			t.Errorf("%s: %s %s, want %d", s.kind, got, what, want)
		}
	}

	history := s.tableName("history")
	count("runs of the storm have ended", "select count(*) from "+runs+" q", n)
	for kind, what := range map[model.EventKind]string{model.EventTimerFired: "timer", model.EventStepCompleted: "step"} {
		of := fmt.Sprintf(" from %s where kind = %d and run in %s", history, kind, runs)
		count("events of a "+what, "select count(*)"+of, n)
		count("runs with an event of a "+what, "select count(distinct run)"+of, n)
	}

	count("timers are left", "select count(*) from "+s.tableName("timers"), 2)
}
