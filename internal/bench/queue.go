package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Queue is a system that executes tasks from a queue. Many goroutines may call its methods.
type Queue interface {
	// SubmitMany submits n tasks with numbers from first on, in one call. The tasks are durable
	// when SubmitMany returns.
	SubmitMany(ctx context.Context, first, n int) error
	// Submit submits one task. The task is durable when Submit returns.
	Submit(ctx context.Context, task int) error
	// Open returns how many submitted tasks the store does not yet record as completed.
	Open(ctx context.Context) (int, error)
	// Close releases everything.
	Close() error
}

// QueueOptions are the options for opening a queue.
type QueueOptions struct {
	Slots int            // for tasks; 0 for a process that only submits
	Limit int            // how many tasks run at a time in all processes together; 0 for no limit
	Body  func(task int) // each task calls it with its number and does nothing else
}

// QueueOpener opens a queue on a store.
type QueueOpener func(ctx context.Context, place Place, o QueueOptions) (Queue, error)

const (
	slots      = 64                    // slots of the worker in Tasks, Limited and Pickup
	atOnce     = 40                    // tasks that may run at a time in Limited
	bulk       = 5000                  // tasks per call of SubmitMany
	warmTasks  = 5000                  // tasks before the measurement
	warmPickup = 20                    // the same for Pickup
	pickupGap  = 50 * time.Millisecond // between two tasks of Pickup
	// look is the pause between two checks whether all tasks are recorded as completed.
	look = 5 * time.Millisecond
)

// bodies counts the tasks that have started.
type bodies struct {
	begun atomic.Int64
	news  chan struct{} // capacity 1
	want  atomic.Int64  // the number that the waiter waits for
}

func (b *bodies) body(int) {
	if b.begun.Add(1) == b.want.Load() {
		b.news <- struct{}{}
	}
}

// drain submits n tasks in bulks and waits until all are recorded as completed.
func (b *bodies) drain(ctx context.Context, q Queue, first, n int) error {
	b.want.Store(int64(first + n))
	for done := 0; done < n; done += bulk {
		if err := q.SubmitMany(ctx, first+done, min(bulk, n-done)); err != nil {
			return err
		}
	}
	return b.wait(ctx, q)
}

// wait waits until all tasks are recorded as completed. It does not read the store before the last
// task has started, so that its reads do not slow the tasks down.
func (b *bodies) wait(ctx context.Context, q Queue) error {
	select {
	case <-b.news:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	for {
		open, err := q.Open(ctx)
		if err != nil || open == 0 {
			return err
		}
		time.Sleep(look)
	}
}

// tasks measures the throughput of many tasks from submission to recorded completion. In Limited
// they share a limit that is smaller than the number of slots.
func (j Job) tasks(ctx context.Context, open QueueOpener, r *Result) error {
	m, err := openMeter(ctx, j.Place)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	b := &bodies{news: make(chan struct{}, 1)}
	o := QueueOptions{Slots: slots, Body: b.body}
	if j.Workload == Limited {
		o.Limit = atOnce
	}
	q, err := open(ctx, j.Place, o)
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			_ = q.Close() // the first error matters more
		}
	}()
	m.parts, _ = q.(Parted)
	created := sqliteCommits(j.Place.Path)
	if err := b.drain(ctx, q, 0, warmTasks); err != nil {
		return err
	}
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	if perr := j.profiled(func() { err = b.drain(ctx, q, warmTasks, j.Tasks) }); err != nil || perr != nil {
		return errors.Join(err, perr)
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	r.Usage = between(before, after)
	r.Operations, r.Elapsed = j.Tasks, after.at.Sub(before.at)
	r.Repeated = int(b.begun.Load()) - warmTasks - j.Tasks

	closed = true
	if err := q.Close(); err != nil {
		return err
	}
	flushes, err := m.lifeFlushes(ctx)
	if err != nil {
		return err
	}
	if m.conn == nil {
		flushes = after.commits - created
	}
	all := float64(warmTasks + j.Tasks)
	r.Usage.Flushes = float64(flushes) / all
	rows, err := m.lifeRows(ctx)
	r.Usage.Rows = float64(rows) / all
	return err
}

// backlog measures how fast a process completes tasks that were submitted before it was opened.
func (j Job) backlog(ctx context.Context, open QueueOpener, r *Result) error {
	m, err := openMeter(ctx, j.Place)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	b := &bodies{news: make(chan struct{}, 1)}
	b.want.Store(int64(j.Tasks))
	q, err := open(ctx, j.Place, QueueOptions{Body: b.body})
	if err != nil {
		return err
	}
	for done := 0; done < j.Tasks && err == nil; done += bulk {
		err = q.SubmitMany(ctx, done, min(bulk, j.Tasks-done))
	}
	if err := errors.Join(err, q.Close()); err != nil {
		return err
	}

	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	perr := j.profiled(func() {
		if q, err = open(ctx, j.Place, QueueOptions{Slots: slots, Body: b.body}); err == nil {
			err = b.wait(ctx, q)
		}
	})
	if err != nil || perr != nil {
		return errors.Join(err, perr)
	}
	after, err := m.read(ctx)
	r.Usage = between(before, after)
	r.Operations, r.Elapsed = j.Tasks, after.at.Sub(before.at)
	r.Repeated = int(b.begun.Load()) - j.Tasks
	return errors.Join(err, q.Close())
}

// pickup measures how soon a task starts on an idle system.
func (j Job) pickup(ctx context.Context, open QueueOpener, r *Result) error {
	m, err := openMeter(ctx, j.Place)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	type start struct {
		task int
		at   time.Time
	}

	starts := make(chan start, 1)
	q, err := open(ctx, j.Place, QueueOptions{Slots: slots, Body: func(task int) { starts <- start{task, time.Now()} }})
	if err != nil {
		return err
	}
	m.parts, _ = q.(Parted)
	next := 0

	once := func() (fromCall, fromCommit time.Duration, err error) {
		next++
		call := time.Now()
		if err := q.Submit(ctx, next); err != nil {
			return 0, 0, err
		}
		durable := time.Now()
		select {
		case s := <-starts:
			if s.task != next {
				return 0, 0, fmt.Errorf("task %d began, want %d", s.task, next)
			}
			return s.at.Sub(call), max(0, s.at.Sub(durable)), nil
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}

	err = func() error {
		for range warmPickup {
			if _, _, err := once(); err != nil {
				return err
			}
		}

		before, err := m.read(ctx)
		if err != nil {
			return err
		}
		var fromCall, fromCommit []time.Duration

		perr := j.profiled(func() {
			tick := time.NewTicker(pickupGap)
			defer tick.Stop()
			for end := time.Now().Add(j.Duration); err == nil && time.Now().Before(end); <-tick.C {
				var whole, rest time.Duration
				if whole, rest, err = once(); err == nil {
					fromCall, fromCommit = append(fromCall, whole), append(fromCommit, rest)
				}
			}
		})
		if err != nil || perr != nil {
			return errors.Join(err, perr)
		}

		after, err := m.read(ctx)
		if err != nil {
			return err
		}
		r.Usage = between(before, after)
		r.Operations, r.Elapsed = len(fromCall), after.at.Sub(before.at)
		r.P50, r.P99 = quantile(fromCommit, 0.5), quantile(fromCommit, 0.99)
		r.FromCall50, r.FromCall99 = quantile(fromCall, 0.5), quantile(fromCall, 0.99)

		return nil
	}()

	return errors.Join(err, q.Close())
}
