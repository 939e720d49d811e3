package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// nothing is the body of a step without effect.
func nothing(int) {}

// load measures an operation that each client repeats. A client waits for one result before it
// starts the next operation.
func (j Job) load(ctx context.Context, open Opener, r *Result) error {
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
	m.parts, _ = system.(Parted)
	do, err := j.operation(ctx, system)
	if err != nil {
		return err
	}
	clients := j.clients()

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

// operation returns the function that the clients of a workload repeat. The function gets the
// number of the client, the number of the repetition, and a name, which is different for the
// warm-up and the measurement.
func (j Job) operation(ctx context.Context, system System) (func(c, i int, name string) error, error) {
	switch w := j.Workload; {
	case w == Calls:
		caller, ok := system.(Caller)
		if !ok {
			return nil, fmt.Errorf("%s has no entities", j.System)
		}
		return func(c, _ int, _ string) error { return caller.Call(ctx, strconv.Itoa(c)) }, nil

	case w == TwoCalls || w.transfers():
		mover, ok := system.(Mover)
		if !ok {
			return nil, fmt.Errorf("%s has no workflows that call entities", j.System)
		}
		run := mover.Transfer
		if w == TwoCalls {
			run = mover.CallTwo
		}
		return func(c, i int, name string) error { return run(ctx, keyOf(name, c, i), w.pair(c, i)) }, nil

	case w == Payload:
		carrier, ok := system.(Carrier)
		if !ok {
			return nil, fmt.Errorf("%s has no workflow with large values", j.System)
		}
		body := largeValue()
		return func(c, i int, name string) error { return carrier.Carry(ctx, keyOf(name, c, i), body) }, nil

	default: // three steps
		return func(c, i int, name string) error { return system.Three(ctx, keyOf(name, c, i)) }, nil
	}
}

// keyOf returns the key of a workflow. It makes only one allocation, because the report also counts
// the allocations of clients.
func keyOf(name string, client, i int) string {
	var space [48]byte
	key := append(append(space[:0], name...), '-')
	key = append(strconv.AppendInt(key, int64(client), 10), '-')
	return string(strconv.AppendInt(key, int64(i), 10))
}

// crowdOf is the number of entities that RandomTransfers draws from.
const crowdOf = 100

// pair returns the keys of the two entities of a workflow: the same two for all clients, two of a
// crowd, or two that belong to the client. The random choice is the same in every run.
func (w Workload) pair(client, i int) [2]string {
	first, second := 2*client, 2*client+1
	switch w {
	case HotTransfers:
		first, second = 0, 1
	case RandomTransfers:
		draw := rand.New(rand.NewPCG(uint64(client), uint64(i)))
		first, second = draw.IntN(crowdOf), draw.IntN(crowdOf-1)
		if second >= first {
			second++
		}
	default:
	}
	return [2]string{strconv.Itoa(first), strconv.Itoa(second)}
}

// largeValue returns a text like a typical document: mostly plain, with some characters that JSON
// escapes.
func largeValue() string {
	const line = "an order of 3 items, \"express\", for the usual customer at the usual place\n"
	return strings.Repeat(line, largeBytes/len(line)+1)[:largeBytes]
}

const largeBytes = 64 << 10

// crowd makes clients repeat do for some time, and returns how long each call took. A client
// finishes the call that it has started. do gets the number of the client and the number of the
// repetition.
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

// quantile sorts times and returns a quantile, such as the median for q = 0.5.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))]
}
