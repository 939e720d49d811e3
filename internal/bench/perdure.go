package bench

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// perdureSystem is Perdure, used as in any program.
type perdureSystem struct {
	app    *perdure.App
	three  *perdure.Workflow[int, int]
	chain  *perdure.Workflow[int, int]
	fanOut *perdure.Workflow[int, int]
	sleep  *perdure.Workflow[time.Duration, perdure.Void]
	noop   *perdure.Activity[int, int]
	carry  *perdure.Workflow[string, string]
	alarm  *perdure.Workflow[alarm, perdure.Void]
	woken  atomic.Pointer[func(int)]

	counter  *perdure.Entity[int]
	add      *perdure.Operation[int, int]
	callTwo  *perdure.Workflow[[2]string, perdure.Void]
	transfer *perdure.Workflow[[2]string, perdure.Void]
}

// newPerdureSystem defines the code of the workloads.
func newPerdureSystem(body func(int)) *perdureSystem {
	noop := perdure.NewActivity("noop", func(_ context.Context, in int) (int, error) { return in, nil })
	counter := perdure.NewEntity[int]("counter")

	s := &perdureSystem{
		noop: noop, counter: counter,
		add: perdure.NewOperation(counter, "add", func(_ perdure.EntityCtx, sum *int, n int) (int, error) {
			*sum += n
			return *sum, nil
		}),
		three: perdure.NewWorkflow("three", func(ctx perdure.WorkflowCtx, in int) (out int, err error) {
			for _, name := range [...]string{"first", "second", "third"} {
				if out, err = perdure.Do(ctx, name, func(context.Context) (int, error) { return in, nil }); err != nil {
					return 0, err
				}
			}
			return out, nil
		}),
		chain: perdure.NewWorkflow("chain", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			for i := range n {
				step := func(context.Context) (int, error) { body(i); return i, nil }
				if _, err := perdure.Do(ctx, "step", step, perdure.StepKey(strconv.Itoa(i))); err != nil {
					return 0, err
				}
			}
			return n, nil
		}),
		fanOut: perdure.NewWorkflow("fan-out", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			running := make([]*perdure.Future[int], n)
			for i := range n {
				running[i] = noop.Go(ctx, i)
			}
			_, err := perdure.All(ctx, running...)
			return n, err
		}),
		sleep: perdure.NewWorkflow("sleep", func(ctx perdure.WorkflowCtx, d time.Duration) (perdure.Void, error) {
			return perdure.Void{}, ctx.Sleep(d)
		}),
		carry: perdure.NewWorkflow("carry", func(ctx perdure.WorkflowCtx, value string) (out string, err error) {
			for _, name := range [...]string{"first", "second", "third"} {
				if out, err = perdure.Do(ctx, name, func(context.Context) (string, error) { return value, nil }); err != nil {
					return "", err
				}
			}
			return out, nil
		}),
	}

	callBoth := func(ctx perdure.WorkflowCtx, pair [2]string) error {
		if _, err := s.add.Call(ctx, pair[0], -1); err != nil {
			return err
		}
		_, err := s.add.Call(ctx, pair[1], 1)
		return err
	}
	s.callTwo = perdure.NewWorkflow("call-two", func(ctx perdure.WorkflowCtx, pair [2]string) (perdure.Void, error) {
		return perdure.Void{}, callBoth(ctx, pair)
	})
	s.transfer = perdure.NewWorkflow("transfer", func(ctx perdure.WorkflowCtx, pair [2]string) (perdure.Void, error) {
		set := perdure.LockSet{counter.Ref(pair[0]), counter.Ref(pair[1])}
		return perdure.Void{}, ctx.Lock(set, func(ctx perdure.WorkflowCtx) error { return callBoth(ctx, pair) })
	})

	s.alarm = perdure.NewWorkflow("alarm", func(ctx perdure.WorkflowCtx, a alarm) (perdure.Void, error) {
		err := ctx.Sleep(a.Due.Sub(ctx.Now()))
		if woken := s.woken.Load(); woken != nil {
			(*woken)(a.Nr)
		}
		return perdure.Void{}, err
	})
	return s
}

// alarm is the input of a workflow that sleeps until a time.
type alarm struct {
	Nr  int
	Due time.Time
}

// Carry implements Carrier.
func (s *perdureSystem) Carry(ctx context.Context, key, value string) error {
	_, err := s.carry.Run(s.app.With(ctx), value, perdure.RawKey(key))
	return err
}

// SleepMany implements Alarm.
func (s *perdureSystem) SleepMany(ctx context.Context, until []time.Time, woken func(int)) error {
	s.woken.Store(&woken)
	ins := make([]alarm, len(until))
	for i := range ins {
		ins[i] = alarm{i, until[i]}
	}
	_, err := s.alarm.StartMany(s.app.With(ctx), ins)
	return err
}

// definitions returns all of the code.
func (s *perdureSystem) definitions() []perdure.Definition {
	return []perdure.Definition{s.three, s.chain, s.fanOut, s.sleep, s.noop, s.counter, s.carry, s.alarm, s.callTwo, s.transfer}
}

// openPerdure opens Perdure with its defaults.
func openPerdure(ctx context.Context, place Place, body func(int)) (System, error) {
	s := newPerdureSystem(body)
	var err error
	s.app, err = embedded.Open(ctx, address(place), s.definitions()...)
	return s, err
}

// address returns the URL of a store for Perdure.
func address(place Place) string {
	if place.Kind == SQLite {
		return (&url.URL{Scheme: "file", Path: place.Path}).String()
	}
	return place.URL
}

// Three implements System.
func (s *perdureSystem) Three(ctx context.Context, key string) error {
	_, err := s.three.Run(s.app.With(ctx), 7, perdure.RawKey(key))
	return err
}

// Call implements Caller.
func (s *perdureSystem) Call(ctx context.Context, key string) error {
	_, err := s.add.Call(s.app.With(ctx), key, 1)
	return err
}

// CallTwo implements Mover.
func (s *perdureSystem) CallTwo(ctx context.Context, key string, pair [2]string) error {
	_, err := s.callTwo.Run(s.app.With(ctx), pair, perdure.RawKey(key))
	return err
}

// Transfer implements Mover.
func (s *perdureSystem) Transfer(ctx context.Context, key string, pair [2]string) error {
	_, err := s.transfer.Run(s.app.With(ctx), pair, perdure.RawKey(key))
	return err
}

// Chain implements System.
func (s *perdureSystem) Chain(ctx context.Context, key string, n int) error {
	_, err := s.chain.Run(s.app.With(ctx), n, perdure.RawKey(key))
	return err
}

// FanOut implements System.
func (s *perdureSystem) FanOut(ctx context.Context, key string, n int) error {
	_, err := s.fanOut.Run(s.app.With(ctx), n, perdure.RawKey(key))
	return err
}

// StartSleep implements System.
func (s *perdureSystem) StartSleep(ctx context.Context, key string, d time.Duration) error {
	_, err := s.sleep.Start(s.app.With(ctx), d, perdure.RawKey(key))
	return err
}

// Close implements System.
func (s *perdureSystem) Close() error { return s.app.Close() }

// perdureQueue is Perdure with an activity that has a queue.
type perdureQueue struct {
	app  *perdure.App
	noop *perdure.Activity[int, perdure.Void]
}

// newPerdureQueue defines the code of tasks.
func newPerdureQueue(body func(int)) *perdureQueue {
	return &perdureQueue{noop: perdure.NewActivity("task", func(_ context.Context, task int) (perdure.Void, error) {
		body(task)
		return perdure.Void{}, nil
	}, perdure.OnQueue("bench"))}
}

// openPerdureQueue opens Perdure with its defaults and the given slots. If there is a limit, it
// sets the rule.
func openPerdureQueue(ctx context.Context, place Place, o QueueOptions) (Queue, error) {
	q := newPerdureQueue(o.Body)
	if o.Slots == 0 {
		o.Slots = -1
	}
	var err error
	if q.app, err = (embedded.Config{Tasks: perdure.TaskConfig{Slots: o.Slots}}).Open(ctx, address(place), q.noop); err != nil {
		return nil, err
	}
	if o.Limit > 0 {
		if err := q.app.Limits().Set(ctx, perdure.LimitRule{Name: "bench", Queue: "bench", Concurrency: o.Limit}); err != nil {
			return nil, errors.Join(err, q.app.Close())
		}
	}
	return q, nil
}

// SubmitMany implements Queue.
func (q *perdureQueue) SubmitMany(ctx context.Context, first, n int) error {
	ins := make([]int, n)
	for i := range ins {
		ins[i] = first + i
	}
	_, err := q.noop.SubmitMany(q.app.With(ctx), ins)
	return err
}

// Submit implements Queue.
func (q *perdureQueue) Submit(ctx context.Context, task int) error {
	_, err := q.noop.Submit(q.app.With(ctx), task)
	return err
}

// Open implements Queue.
func (q *perdureQueue) Open(ctx context.Context) (int, error) {
	n, err := q.app.Executions().Count(ctx, `status = "open"`)
	return int(n), err
}

// Close implements Queue.
func (q *perdureQueue) Close() error { return q.app.Close() }
