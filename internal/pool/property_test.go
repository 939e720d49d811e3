package pool_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
)

// TestGate checks E44 (see internal/archtest/testdata/invariants.txt): the gate shuts only at the
// high mark and opens only at the low mark. In between nothing changes.
func TestGate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		low := rapid.Float64Range(0, 0.98).Draw(rt, "low")
		high := rapid.Float64Range(math.Nextafter(low, 1), 1).Draw(rt, "high")
		g := pool.NewGate(high, low)

		shut := false
		for _, v := range rapid.SliceOf(rapid.OneOf(rapid.Float64Range(0, 1.2), rapid.SampledFrom([]float64{low, high}))).Draw(rt, "levels") {
			was := shut
			shut = g.Level(v)
			switch {
			case !was && shut && v < high:
				rt.Fatalf("it shuts at %v, below %v", v, high)
			case was && !shut && v > low:
				rt.Fatalf("it opens at %v, above %v", v, low)
			case v >= high && !shut || v <= low && shut:
				rt.Fatalf("at %v it is shut: %v", v, shut)
			}
		}
	})
}

// TestPool does random things to a pool. It checks E43: the load never exceeds the slots and
// returns to 0, whatever handlers do. It also checks E45: A closed pool holds no claim. It has
// given back claims whose time ran out, without using up an attempt. It has reported each claim
// that was not lost exactly once.
func TestPool(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(1, 4).Draw(rt, "slots")
		cfg := pool.Config{Slots: slots, Prefetch: rapid.IntRange(0, 2).Draw(rt, "prefetch")}
		if rapid.Bool().Draw(rt, "marks") {
			cfg.HighLoad, cfg.LowLoad = 0.9, 0.5
		}
		steps := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(rt, "steps")
		last := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(rt, "drain")
		var err error
		synctest.Test(t, func(*testing.T) { err = trial(cfg, slots, steps, last) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func trial(cfg pool.Config, slots int, steps []byte, drain time.Duration) error {
	e := newEngine(cfg)
	outcomes := []func() (model.Payload, error){succeed, fail, panicNow, exitNow, snooze}
	var gone []*job // jobs whose handlers continue after the pool is closed

	for _, b := range steps {
		pick := int(b >> 3)
		switch runs := e.runningClaims(); {
		case b&7 < 2:
			if e.room() > 0 {
				e.claim([]string{"polite", "deaf"}[pick%2], model.TaskSpec{Silence: time.Duration(pick%3) * time.Minute, ToClose: time.Duration(pick%5) * time.Hour})
			}
		case b&7 < 4 && len(runs) > 0:
			e.finish(runs[pick%len(runs)], outcomes[pick%len(outcomes)])
		case b&7 == 4:
			if all := e.all(); len(all) > 0 {
				e.take(all[pick%len(all)])
			}
		case b&7 == 5:
			if all := e.all(); len(all) > 0 {
				e.p.Stop(all[pick%len(all)], model.StopCanceled)
			}
		case b&7 == 6:
			time.Sleep(time.Duration(pick) * time.Minute / 2)
		default:
			if e.p.Pause(); pick%2 == 0 {
				e.p.Resume()
			}
		}

		synctest.Wait()
		if load := e.p.Load(); load < 0 || load > slots {
			return fmt.Errorf("load %d of %d", load, slots)
		}
	}

	before := len(e.reports)
	if err := e.untold(); err != nil {
		return err
	}
	had := e.all()
	_ = e.close(drain) // the error names the abandoned ones
	synctest.Wait()
	if load := e.p.Load(); load != 0 {
		return fmt.Errorf("load %d when it is closed", load)
	}

	if len(e.claims) > 0 {
		return fmt.Errorf("it holds %d claims when it is closed", len(e.claims))
	}

	for _, r := range e.reports[before:] {
		if slices.Contains(had, r.Ref) && !r.Returned && (r.Failure == nil || r.Failure.Kind != model.FailureCanceled && r.Failure.Kind != model.FailureTimeout) {
			return fmt.Errorf("a claim that was open at Close is not given back: %+v", r)
		}
	}

	for _, j := range e.jobs {
		gone = append(gone, j)
	}

	for _, j := range gone {
		if j.t.Claim().Spec.Kind == "deaf" {
			j.do <- succeed
		}
	}

	synctest.Wait()
	for n := range e.handed {
		r := ref(n + 1)
		want := 1
		if e.lost[r] {
			want = 0
		}
		if e.ended[r] != want {
			return fmt.Errorf("%s was reported %d times", r, e.ended[r])
		}
	}

	return e.err()
}

// runningClaims returns the claims whose handlers run, in the order in which they were handed out.
func (e *engine) runningClaims() (rs []model.ClaimRef) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := range e.handed {
		if j := e.jobs[ref(n+1)]; j != nil && (j.ctx.Err() == nil || j.t.Claim().Spec.Kind == "deaf") {
			rs = append(rs, ref(n+1))
		}
	}
	return rs
}

// all returns the claims that the pool has.
func (e *engine) all() (rs []model.ClaimRef) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := range e.handed {
		if e.claims[ref(n+1)] != nil {
			rs = append(rs, ref(n+1))
		}
	}
	return rs
}
