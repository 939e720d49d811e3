package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/perdure/perdure/internal/bench"
)

// riverQueue is River with the settings of its own benchmark: it fetches every 2 ms instead of every 100 ms, which is what limits it as shipped.
type riverQueue struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// noopArgs are the arguments of a job.
type noopArgs struct {
	Task int `json:"task"`
}

// Kind names the job.
func (noopArgs) Kind() string { return "noop" }

// noopWorker executes it.
type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	body func(int)
}

// Work implements river.Worker.
func (w *noopWorker) Work(_ context.Context, job *river.Job[noopArgs]) error {
	w.body(job.Args.Task)
	return nil
}

// A limit over processes is not part of what is free of River. In one process its workers are the limit.
func openRiver(ctx context.Context, place bench.Place, o bench.QueueOptions) (_ bench.Queue, err error) {
	slots := o.Slots
	if o.Limit > 0 {
		slots = min(slots, o.Limit)
	}
	q := &riverQueue{}
	if q.pool, err = pgxpool.New(ctx, place.URL); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			q.pool.Close()
		}
	}()
	driver := riverpgxv5.New(q.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{body: o.Body})
	q.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	return q, q.client.Start(ctx)
}

// SubmitMany implements bench.Queue.
func (q *riverQueue) SubmitMany(ctx context.Context, first, n int) error {
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = noopArgs{first + i}
	}
	_, err := q.client.InsertManyFast(ctx, jobs)
	return err
}

// Submit implements bench.Queue.
func (q *riverQueue) Submit(ctx context.Context, task int) error {
	_, err := q.client.Insert(ctx, noopArgs{task}, nil)
	return err
}

// Open implements bench.Queue.
func (q *riverQueue) Open(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from river_job where state <> 'completed'").Scan(&n)
	return n, err
}

// Close implements bench.Queue.
func (q *riverQueue) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := q.client.Stop(ctx)
	q.pool.Close()
	if errors.Is(err, context.Canceled) { // it stops with the context that it was started with
		return nil
	}
	return err
}
