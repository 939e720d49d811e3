package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

const day = 24 * time.Hour

// watched is a store that counts the calls of retention.
type watched struct {
	*memory.Store
	mu    sync.Mutex
	looks int
	pages []int       // runs that each commit removed
	fail  func() bool // whether the next commit that removes something fails
}

func (w *watched) LoadExpired(ctx context.Context, r store.ExpiredRequest) (store.Expired, error) {
	w.mu.Lock()
	w.looks++
	w.mu.Unlock()
	return w.Store.LoadExpired(ctx, r)
}

func (w *watched) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(b.Deletes); n > 0 {
		if w.fail != nil && w.fail() {
			return store.Committed{}, store.Errorf(store.Away, "commit", "injected")
		}
		w.pages = append(w.pages, n)
	}
	return w.Store.Commit(ctx, b)
}

// lookedAt returns how often retention has looked, and how many runs each commit has removed.
func (w *watched) lookedAt() (looks int, pages []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks, slices.Clone(w.pages)
}

func (w *watched) count(t interface{ Fatal(...any) }) int {
	n, err := w.Count(context.Background(), store.Query{Tenant: model.DefaultTenant, AllRuns: true})
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// serve runs an engine until the returned function is called. The engine renews its lease and reads
// timers only every few years of virtual time, so that days pass quickly.
func serve(t interface{ Fatal(...any) }, cfg engine.Config) (*engine.Engine, func()) {
	cfg.LeaseTTL, cfg.SweepEvery = 10*365*day, time.Hour
	cfg.Lane.TimerHorizon = 10 * 365 * day
	ctx, cancel := context.WithCancel(context.Background())
	e, done := engine.New(cfg), make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	if err := e.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return e, func() {
		cancel()
		<-done
	}
}

func send(t interface{ Fatal(...any) }, e *engine.Engine, m *model.Message) model.Answer {
	a, err := e.Send(context.Background(), m)
	if err != nil {
		t.Fatal(m.Kind, err)
	}
	return a
}

func runToEnd(t interface{ Fatal(...any) }, e *engine.Engine, key string) {
	m := start(key)
	send(t, e, m)
	if _, err := e.Await(context.Background(), m.To, model.RunID{}); err != nil {
		t.Fatal(err)
	}
}

// Closed runs are removed when their time is over and not before, a bounded page at a time, with
// their events. Other runs stay, and live work continues.
func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &watched{Store: memory.New(memory.Options{Shards: 16})}
		e, stop := serve(t, engine.Config{Store: st})
		defer stop()
		open := start("open")
		open.To.Type = "other" // no worker runs it
		send(t, e, open)
		w := join(e, 1)
		const runs = 250
		for i := range runs {
			runToEnd(t, e, fmt.Sprint(i))
		}
		_ = w.session.Leave(t.Context())
		old := start("0").To
		time.Sleep(30*day - time.Minute)
		if n := st.count(t); n != runs+1 {
			t.Errorf("%d runs a minute before their time, want %d", n, runs+1)
		}
		if _, pages := st.lookedAt(); len(pages) != 0 {
			t.Errorf("pages %v before their time", pages)
		}
		time.Sleep(3 * time.Minute)
		if n := st.count(t); n != 1 {
			t.Errorf("%d runs are left after their time, want the open one", n)
		}
		total := 0

		_, pages := st.lookedAt()
		for _, n := range pages {
			if total += n; n > 100 {
				t.Errorf("a commit removed %d runs", n)
			}
		}

		if total != runs {
			t.Errorf("%d runs were removed in pages of %v", total, pages)
		}
		if _, err := e.Await(context.Background(), old, model.RunID{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("the end of a run that is gone: %v", err)
		}

		// A new run can use the key.
		join(e, 1)
		runToEnd(t, e, "0")

		// While there is nothing to do, the engine asks the store about once a minute.
		before, _ := st.lookedAt()
		time.Sleep(time.Hour)
		if looks, _ := st.lookedAt(); looks-before > 125 {
			t.Errorf("%d looks in an hour", looks-before)
		}
	})
}

// Retention skips old runs that stay, a read at a time, and finds the runs behind them within a few
// looks.
func TestRetentionBehindOpenRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &watched{Store: memory.New(memory.Options{Shards: 16})}
		e, stop := serve(t, engine.Config{Store: st, Retention: day})
		defer stop()

		const open, runs = 3500, 40
		for i := range open {
			m := start(fmt.Sprint("open ", i))
			m.To.Type = "other" // no worker runs it
			send(t, e, m)
		}

		w := join(e, 1)
		for i := range runs {
			runToEnd(t, e, fmt.Sprint(i))
		}
		_ = w.session.Leave(t.Context())

		for round := 1; round <= 2; round++ {
			time.Sleep(day + 6*time.Minute)
			if n := st.count(t); n != open {
				t.Errorf("round %d: %d runs, want the %d open ones", round, n, open)
			}
			w := join(e, 1)
			for i := range runs { // the keys are free
				runToEnd(t, e, fmt.Sprint(i))
			}
			_ = w.session.Leave(t.Context())
		}

		before, _ := st.lookedAt()
		time.Sleep(time.Hour)
		if looks, _ := st.lookedAt(); looks-before > 125*3 {
			t.Errorf("%d reads in an hour", looks-before)
		}
	})
}

// If the address of a run is busy, the removal of the run waits until the address is idle. If an
// input arrives during the removal of a run, the input waits for the removal.
func TestRetentionBesideLiveWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &watched{Store: memory.New(memory.Options{Shards: 16})}
		e, stop := serve(t, engine.Config{Store: st, Retention: time.Hour})
		defer stop()
		join(e, 1)
		stopped, done := make(chan struct{}), make(chan int)

		go func() { // the same key again and again; each run replaces the previous one
			n := 0
			for {
				select {
				case <-stopped:
					done <- n
					return
				default:
				}
				m := start("busy")
				m.Reuse = model.ReuseAlways
				send(t, e, m)
				if _, err := e.Await(context.Background(), m.To, model.RunID{}); err != nil {
					t.Error(err)
				}
				n++
				time.Sleep(7 * time.Second)
			}
		}()

		time.Sleep(3 * time.Hour)
		close(stopped)
		if n := <-done; n < 3*3600/8 {
			t.Errorf("%d runs in three hours: live work was held up", n)
		}
		if n := st.count(t); n < 3600/8 || n > 3600/7+20 {
			t.Errorf("%d runs, want those of the last hour", n)
		}
		time.Sleep(2 * time.Hour)
		if n := st.count(t); n != 0 {
			t.Errorf("%d runs are left", n)
		}
	})
}

// If a process dies between two pages, or the commit of a page fails, the next process removes the
// rest.
func TestRetentionAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{Shards: 16})
		first := &watched{Store: mem}
		first.fail = func() bool { return len(first.pages) == 1 }
		e, stop := serve(t, engine.Config{Store: first, Retention: day})
		w := join(e, 1)
		const runs = 350
		for i := range runs {
			runToEnd(t, e, fmt.Sprint(i))
		}
		_ = w.session.Leave(t.Context())
		time.Sleep(2 * day)
		_, pages := first.lookedAt()
		if n := first.count(t); len(pages) != 1 || n != runs-pages[0] {
			t.Errorf("%d runs after pages of %v", n, pages)
		}
		stop()
		second := &watched{Store: mem}
		_, stop = serve(t, engine.Config{Store: second, Retention: day})
		defer stop()
		time.Sleep(15 * time.Minute) // nothing is removed in the first ten

		if n := second.count(t); n != 0 {
			_, pages := second.lookedAt()
			t.Errorf("%d runs are left; pages %v", n, pages)
		}
	})
}

// The retention Forever keeps all runs except runs with a retention time of their own. That time
// applies however long other runs are kept.
func TestRetentionOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &watched{Store: memory.New(memory.Options{Shards: 16})}
		e, stop := serve(t, engine.Config{Store: st, Retention: 1<<63 - 1})
		defer stop()
		w := &stepper{steps: 1, ran: map[string]int{}}
		w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
		runToEnd(t, e, "kept")
		w.retain = day
		runToEnd(t, e, "short")
		time.Sleep(day - time.Minute)
		if n := st.count(t); n != 2 {
			t.Errorf("%d runs before the time of one", n)
		}
		time.Sleep(3 * time.Minute)
		if n := st.count(t); n != 1 {
			t.Errorf("%d runs after the time of one", n)
		}
		time.Sleep(20 * day)
		if n := st.count(t); n != 1 {
			t.Errorf("%d runs much later", n)
		}
	})
}

// Whatever the steps and the retention time are, retention never removes an open run. It removes a
// closed run soon after its time is over, and never before.
func TestRetentionProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		keep := time.Duration(rapid.IntRange(1, 20).Draw(rt, "hours")) * time.Hour
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) retentionStep {
			return retentionStep{
				key:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"),
				what: rapid.SampledFrom([]string{"start", "start", "terminate", "sleep"}).Draw(rt, "what"),
				time: time.Duration(rapid.Int64Range(0, int64(15*time.Hour)).Draw(rt, "time")),
			}
		}), 1, 40).Draw(rt, "steps")
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = leaveByPolicy(t, keep, steps) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

type retentionStep struct {
	key, what string
	time      time.Duration
}

// leaveByPolicy executes the steps and returns what is wrong.
func leaveByPolicy(t *testing.T, keep time.Duration, steps []retentionStep) string {
	const shards = 4
	st := &watched{Store: memory.New(memory.Options{Shards: shards})}
	e, stop := serve(t, engine.Config{Store: st, Retention: keep, Lane: lane.Config{RetainEvery: 5 * time.Minute}})
	defer stop()

	closed, open := map[store.RunKey]time.Time{}, map[model.Address]store.RunKey{}
	for i, s := range steps {
		m := start(s.key)
		switch run, running := open[m.To]; {
		case s.what == "sleep":
			time.Sleep(s.time)
		case s.what == "start" && !running:
			m.Reuse = model.ReuseAlways
			open[m.To] = store.RunKey{Shard: m.To.Shard(shards), Run: send(t, e, m).Run}
		case s.what == "terminate" && running:
			send(t, e, &model.Message{Kind: model.MessageTerminate, To: m.To})
			delete(open, m.To)
			closed[run] = time.Now()
		}

		for a, run := range open {
			if row, err := st.LoadExecution(t.Context(), run.Shard, a, run.Run); err != nil || row == nil || row.Outcome.Status.Closed() {
				return fmt.Sprintf("step %d: the open run of %s is gone: %v, %v", i, a, row, err)
			}
		}

		for run, at := range closed {
			found, err := st.LoadAnswers(t.Context(), store.Awaited{Runs: []store.RunKey{run}})
			if age, there := time.Since(at), len(found.Ended) > 0; err != nil || there && age > keep+6*time.Minute || !there && age < keep {
				return fmt.Sprintf("step %d: a run that was closed %s ago and is kept for %s: is it there? %v; %v", i, age, keep, there, err)
			}
		}
	}

	return ""
}
