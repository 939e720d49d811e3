package perduretest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

const year = 365 * 24 * time.Hour

var sleeper = perdure.NewWorkflow("sleeper", func(ctx perdure.WorkflowCtx, d time.Duration) (time.Duration, error) {
	began := ctx.Now()
	err := ctx.Sleep(d)
	return ctx.Now().Sub(began), err
})

// TestAYearIsCheap bounds the cost of virtual time: a year costs about as much as a day, usually a
// few milliseconds. If a node did something every minute, a year would cost 365 times as much as a
// day. On a busy machine the measurement may be slow once, but not ten times in a row.
func TestAYearIsCheap(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		var ofDay, ofYear time.Duration
		for range 10 {
			ofDay, ofYear = costOf(t, once, 24*time.Hour), costOf(t, once, year)
			if ofYear < max(time.Second, 10*ofDay) {
				break
			}
		}

		t.Logf("a year took %s, and a day %s (once: %v)", ofYear, ofDay, once)
		if ofYear >= max(time.Second, 10*ofDay) {
			t.Error("that is too long")
		}
	}
}

// costOf returns the real time that an execution takes if it sleeps for d in virtual time.
func costOf(t *testing.T, once bool, d time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	perduretest.Config{Once: once}.Run(t, sleeper, func(t *testing.T, env *perduretest.Env) {
		start := time.Now()
		if got, err := sleeper.Run(env.With(), d); got != d || err != nil {
			t.Errorf("slept %s, %v", got, err)
		}
		if passed := time.Since(start); passed != d {
			t.Errorf("%s passed", passed)
		}
	})
	return time.Since(began)
}

// TestManyTimersInAYear spreads executions over a year, and then ten times as many. With ten times
// as many, each execution may cost three times as much, but not ten times as much. On a busy
// machine the measurement may be slow once, but not five times in a row.
func TestManyTimersInAYear(t *testing.T) {
	t.Parallel()
	n := 10_000
	if testing.Short() || raceEnabled {
		n = 400
	}
	for range 5 {
		few, many := spread(t, n/10), spread(t, n)
		t.Logf("%d timers in a year took %s, %d took %s", n/10, few, n, many)
		if many <= 30*max(few, 100*time.Millisecond) {
			return
		}
	}
	t.Errorf("%d timers cost more than three times as much each as %d do", n, n/10)
}

// spread starts n executions that end in the course of a year, and returns how long that took.
func spread(t *testing.T, n int) time.Duration {
	t.Helper()
	began := time.Now()
	perduretest.Run(t, sleeper, func(t *testing.T, env *perduretest.Env) {
		var all []perdure.Execution[time.Duration]
		for i := range n {
			x, err := sleeper.Start(env.With(), year/time.Duration(n)*time.Duration(i+1), perdure.RawKey(strconv.Itoa(i)))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}

		env.Advance(year / 2)
		done := 0
		for _, x := range all {
			if o, err := x.Poll(env.With()); err != nil {
				t.Fatal(err)
			} else if !o.Status.Open() {
				done++
			}
		}

		if done != n/2 {
			t.Errorf("after half of the time %d of %d have ended", done, n)
		}
		env.Advance(year / 2)

		for _, x := range all {
			if _, err := x.Result(env.With()); err != nil {
				t.Fatal(err)
			}
		}
	})

	return time.Since(began)
}
