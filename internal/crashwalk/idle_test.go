package crashwalk_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// A process that has nothing to do makes at most one call to the store per second, with the lease that is the default, whatever waits in it and
// whoever else there is. That is counted over an hour, and in every ten seconds of it.
func TestIdleProcessesAreQuiet(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { idleHour(t, processes) })
		})
	}
}

func idleHour(t *testing.T, processes int) {
	const waiting = 40
	define := func(*world) perdure.Group {
		return perdure.Group{sleeper.Bind(func(ctx perdure.WorkflowCtx, i int) (string, error) {
			if i%2 == 0 {
				return "", ctx.Sleep(24 * time.Hour)
			}
			return hurry.Receive(ctx)
		})}
	}
	w := newWorld(&scenario{name: "idle", lease: 10 * time.Second, idleAfter: time.Second, stages: []stage{{define: define, processes: processes}}}, &strike{})
	ps := make([]*process, processes)
	if alive, err := w.populate(&w.s.stages[0], ps); err != nil || !alive {
		t.Fatal(alive, err)
	}
	for i := range waiting {
		if _, err := sleeper.Start(ps[0].App.With(t.Context()), i, perdure.RawKey(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute) // of virtual time: all are parked, unloaded, and each shard is where it belongs
	const lasting, window = time.Hour, 10 * time.Second
	from, began := len(w.trace.Since(0)), w.trace.Elapsed()
	time.Sleep(lasting)
	calls := w.trace.Since(from)
	type slot struct {
		process int
		window  time.Duration
	}
	counts, total := map[slot]int{}, map[int]int{}
	for _, c := range calls {
		counts[slot{c.Process, (c.At - began) / window}]++
		total[c.Process]++
	}
	for s, n := range counts {
		if n > int(window/time.Second) {
			t.Errorf("process %d made %d calls in %s", s.process, n, window)
		}
	}
	for i := range processes {
		// It renews its lease every two seconds.
		if n := total[i+1]; n < int(lasting/(4*time.Second)) || n > int(lasting/time.Second) {
			t.Errorf("process %d made %d calls in %s", i+1, n, lasting)
		}
	}
	t.Logf("calls in %s: %v", lasting, total)
	// They are idle, not dead.
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
