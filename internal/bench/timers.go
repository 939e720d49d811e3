package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	alarms     = 10_000                 // workflows that sleep
	alarmsIn   = 600 * time.Millisecond // the time in which all of them are due
	alarmsWarm = 500                    // workflows that show how long starts take
)

// timers lets many workflows sleep until almost the same moment, and measures how late they
// continue.
func (j Job) timers(ctx context.Context, open Opener, r *Result) error {
	m, err := openMeter(ctx, j.Place)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	system, err := open(ctx, j.Place, nothing)
	if err != nil {
		return err
	}
	a, ok := system.(Alarm)
	if !ok {
		return errors.Join(fmt.Errorf("%s has no alarms", j.System), system.Close())
	}

	begin := time.Now()
	if err := a.SleepMany(ctx, make([]time.Time, alarmsWarm), nothing); err != nil {
		return errors.Join(err, system.Close())
	}
	first := time.Now().Add(time.Second + 2*alarms/alarmsWarm*time.Since(begin))
	until, late := make([]time.Time, alarms), make([]time.Duration, alarms)
	for i := range until {
		until[i] = first.Add(alarmsIn * time.Duration(i) / alarms)
	}
	var count atomic.Int64
	all := make(chan struct{})
	woken := func(i int) {
		late[i] = time.Since(until[i])
		if count.Add(1) == alarms {
			close(all)
		}
	}

	if err := a.SleepMany(ctx, until, woken); err != nil {
		return errors.Join(err, system.Close())
	}
	if time.Now().After(first) {
		return errors.Join(errors.New("the first timer was due before the last was set"), system.Close())
	}
	time.Sleep(time.Until(first.Add(-100 * time.Millisecond)))
	before, err := m.read(ctx)
	if err != nil {
		return errors.Join(err, system.Close())
	}

	perr := j.profiled(func() {
		select {
		case <-all:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	})
	after, merr := m.read(ctx)
	if err := errors.Join(err, perr, merr); err != nil {
		return errors.Join(err, system.Close())
	}
	r.Usage = between(before, after)
	r.Operations, r.Elapsed = alarms, after.at.Sub(first)
	r.P50, r.P99 = quantile(late, 0.5), quantile(late, 0.99)
	return system.Close()
}
