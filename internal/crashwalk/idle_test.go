package crashwalk_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// A process that has nothing to do makes at most one call to the store per second, with the default
// lease. Waiting executions and other processes do not change that. The test counts the calls of an
// hour, and of every ten seconds in it. The same holds with a thousand free slots for tasks of ten
// queues, with limits, breakers, a paused queue and schedules: no worker polls for work.
func TestIdleProcessesAreQuiet(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 3} {
		for _, equipped := range []bool{false, true} {
			name := fmt.Sprintf("%d processes", processes)
			if equipped {
				name += " with slots"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { idleHour(t, processes, equipped) })
			})
		}
	}
}

// An idle hour takes little processor time, because no goroutine spins or wakes up often. The test
// is not parallel, because it measures the processor time of the whole process.
//
//nolint:paralleltest // see above
func TestIdleProcessNeedsNoProcessor(t *testing.T) {
	before := processorTime(t)
	synctest.Test(t, func(t *testing.T) { idleHour(t, 1, true) })
	used := processorTime(t) - before
	t.Logf("an idle hour and what comes before it took %s of processor time", used)
	if used > 500*time.Millisecond { // ten times the usual amount
		t.Errorf("an idle hour took %s of processor time", used)
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const (
	idleQueues = 10
	idleSlots  = 1000
)

// idler is a task of one of the queues.
func idler(i int) *perdure.Activity[int, int] {
	return perdure.NewActivity(fmt.Sprint("idler-", i), func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue(fmt.Sprint("queue-", i)))
}

// equip gives an app limits, a breaker and a paused queue, and runs a task on every queue, so that
// everything is set up.
func equip(t *testing.T, app *perdure.App) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	check(app.Limits().Set(t.Context(), perdure.LimitRule{Name: "all", Queue: "*", Concurrency: 40}))
	check(app.Limits().Set(t.Context(), perdure.LimitRule{Name: "slow", Queue: "queue-1", Rate: 5, Period: time.Second}))
	check(app.Limits().Set(t.Context(), perdure.LimitRule{Name: "keyed", Queue: "queue-2", Key: "input", Concurrency: 1}))
	check(app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "activity:idler-3"}))

	var last []perdure.Execution[int]
	for i := range idleQueues {
		xs, err := idler(i).SubmitMany(app.With(t.Context()), []int{1, 2, 3})
		check(err)
		last = append(last, xs...)
	}

	for _, x := range last {
		_, err := x.Result(app.With(t.Context()))
		check(err)
	}

	check(app.Queues().Pause(t.Context(), "queue-4", "for a while"))
	_, err := idler(4).Submit(app.With(t.Context()), 4) // it waits in the paused queue
	check(err)
}

func idleHour(t *testing.T, processes int, equipped bool) {
	const waiting = 40
	define := func(*world) perdure.Group {
		g := perdure.Group{sleeper.Bind(func(ctx perdure.WorkflowCtx, i int) (string, error) {
			if i%2 == 0 {
				return "", ctx.Sleep(24 * time.Hour)
			}
			return hurry.Receive(ctx)
		})}
		if equipped {
			for i := range idleQueues {
				g = append(g, idler(i))
			}
			g = append(g, perdure.NewSchedule("nightly", perdure.Every(24*time.Hour).Offset(12*time.Hour), sleeper.Job(0)))
		}
		return g
	}

	s := &scenario{name: "idle", lease: 10 * time.Second, idleAfter: time.Second, stages: []stage{{define: define, processes: processes}}}
	if equipped {
		s.tasks = perdure.TaskConfig{Slots: idleSlots}
	}
	w := newWorld(s, &strike{})
	ps := make([]*process, processes)
	if alive, err := w.populate(&w.s.stages[0], ps); err != nil || !alive {
		t.Fatal(alive, err)
	}

	for i := range waiting {
		if _, err := sleeper.Start(ps[0].App.With(t.Context()), i, perdure.RawKey(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}

	if equipped {
		equip(t, ps[0].App)
	}
	// After this virtual time all executions are parked and unloaded, and all shards are balanced.
	time.Sleep(time.Minute)
	const lasting, window = time.Hour, 10 * time.Second
	from, began := len(w.trace.Since(0)), w.trace.Elapsed()
	time.Sleep(lasting)
	calls := w.trace.Since(from)
	type slot struct {
		process int
		window  time.Duration
	}

	counts, total, methods := map[slot]int{}, map[int]int{}, map[string]int{}
	for _, c := range calls {
		counts[slot{c.Process, (c.At - began) / window}]++
		total[c.Process]++
		methods[fmt.Sprintf("%s of process %d", c.Method, c.Process)]++
	}

	for s, n := range counts {
		if n > int(window/time.Second) {
			t.Errorf("process %d made %d calls in %s", s.process, n, window)
		}
	}

	for i := range processes {
		// A process renews its lease every two seconds.
		if n := total[i+1]; n < int(lasting/(4*time.Second)) || n > int(lasting/time.Second) {
			t.Errorf("process %d made %d calls in %s", i+1, n, lasting)
		}
	}

	t.Logf("calls in %s: %v: %v", lasting, total, methods)
	// The executions are idle, not dead.
	to := sleeper.Execution(perdure.RawKey("1"))
	if err := hurry.Send(ps[processes-1].App.With(t.Context()), to, "up"); err != nil {
		t.Fatal(err)
	}
	if got, err := to.Result(ps[0].App.With(t.Context())); err != nil || got != "up" {
		t.Errorf("result %q, %v", got, err)
	}
	if orderly, err := w.closeAll(ps); err != nil || !orderly {
		t.Error(orderly, err)
	}
}
