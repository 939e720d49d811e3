package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// nothing is the body of a step without effect.
func nothing(int) {}

// load measures workflows of three steps, with small or large values, or calls of entities. Each
// client waits for one result before it starts the next workflow or call.
func (j Job) load(ctx context.Context, open Opener, clients int, r *Result) error {
	m, err := openMeter(ctx, j.Place)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	system, err := open(ctx, j.Place, nothing)
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			_ = system.Close() // the first error matters more
		}
	}()
	m.parts, _ = system.(parted)
	do := func(c, i int, name string) error { return system.Three(ctx, fmt.Sprintf("%s-%d-%d", name, c, i)) }
	switch j.Workload {
	case Calls:
		caller, ok := system.(Caller)
		if !ok {
			return fmt.Errorf("%s has no entities", j.System)
		}
		do = func(c, _ int, _ string) error { return caller.Call(ctx, fmt.Sprint(c)) }
	case Payload:
		carrier, ok := system.(Carrier)
		if !ok {
			return fmt.Errorf("%s has no workflow with large values", j.System)
		}
		body := largeValue()
		do = func(c, i int, name string) error {
			return carrier.Carry(ctx, fmt.Sprintf("%s-%d-%d", name, c, i), body)
		}
	default: // three steps
	}

	created := sqliteCommits(j.Place.Path)
	warm, err := crowd("warm", clients, min(j.Duration/3, time.Second), do)
	if err != nil {
		return err
	}
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	var times []time.Duration
	err = j.profiled(func() { times, err = crowd("run", clients, j.Duration, do) })
	if err != nil {
		return err
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	r.Usage = between(before, after)
	r.Operations, r.Elapsed = len(times), after.at.Sub(before.at)
	r.P50, r.P99 = quantile(times, 0.5), quantile(times, 0.99)

	closed = true
	if err := system.Close(); err != nil {
		return err
	}
	flushes, err := m.lifeFlushes(ctx)
	if m.conn == nil {
		flushes = after.commits - created
	}
	r.Usage.Flushes = float64(flushes) / float64(len(times)+len(warm))
	return err
}

// largeValue returns a text as it is common in documents: mostly plain, with some characters that
// JSON escapes.
func largeValue() string {
	const line = "an order of 3 items, \"express\", for the usual customer at the usual place\n"
	return strings.Repeat(line, largeBytes/len(line)+1)[:largeBytes]
}

const largeBytes = 64 << 10

// crowd lets clients do something again and again for some time, and returns how long each took. A
// client finishes what it has started. do gets the numbers of the client and of the repetition.
func crowd(name string, clients int, d time.Duration, do func(client, i int, name string) error) ([]time.Duration, error) {
	end := time.Now().Add(d)
	var (
		mu   sync.Mutex
		all  []time.Duration
		errs []error
		wg   sync.WaitGroup
	)
	for c := range clients {
		wg.Go(func() {
			times, err := []time.Duration(nil), error(nil)
			for i := 0; err == nil && time.Now().Before(end); i++ {
				begin := time.Now()
				err = do(c, i, name)
				times = append(times, time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, times...), append(errs, err)
		})
	}

	wg.Wait()
	err := errors.Join(errs...)
	if err == nil && len(all) == 0 {
		err = errors.New("nothing ended")
	}

	return all, err
}

// fanOut measures a workflow of many parallel steps, a few times.
func (j Job) fanOut(ctx context.Context, open Opener, r *Result) error {
	const width, times = 1000, 7
	system, err := open(ctx, j.Place, nothing)
	if err != nil {
		return err
	}

	once := func(i int) (time.Duration, error) {
		begin := time.Now()
		err := system.FanOut(ctx, fmt.Sprintf("fan-%d", i), width)
		return time.Since(begin), err
	}
	if _, err := once(times); err != nil { // to warm up
		return errors.Join(err, system.Close())
	}

	all := make([]time.Duration, times)
	perr := j.profiled(func() {
		for i := 0; i < times && err == nil; i++ {
			all[i], err = once(i)
		}
	})

	r.Operations, r.P50, r.P99, r.Usage.RSS = times, quantile(all, 0.5), slices.Max(all), residentMemory()
	return errors.Join(err, perr, system.Close())
}

// quantile sorts times and returns the one at q of the way from the shortest to the longest.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))]
}
