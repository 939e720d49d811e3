// Package riverqueue implements a queue of the benchmark with [River], on any driver of River.
//
// It is a separate module because River's drivers have different versions. The module bench uses it
// with v0.50.0 on PostgreSQL. The command in sqlite uses v0.47.0, which was the newest version with
// a SQLite driver.
//
// [River]: https://github.com/riverqueue/river
package riverqueue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/perdure/perdure/internal/bench"
)

// Database is where River stores its jobs.
type Database[Tx any] struct {
	Driver riverdriver.Driver[Tx]
	Count  func(ctx context.Context, query string) (int, error) // runs a query for a single number
	Close  func()
}

// queue is River with the settings of its own benchmark. It fetches every 2 ms instead of every 100
// ms, because the default interval limits its throughput.
type queue[Tx any] struct {
	db     Database[Tx]
	client *river.Client[Tx]
	works  bool // false if the queue only submits
}

// noopArgs are the arguments of a job.
type noopArgs struct {
	Task int `json:"task"`
}

// Kind names the job.
func (noopArgs) Kind() string { return "noop" }

// noopWorker executes the job.
type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	body func(int)
}

// Work implements river.Worker.
func (w *noopWorker) Work(_ context.Context, job *river.Job[noopArgs]) error {
	w.body(job.Args.Task)
	return nil
}

// Open migrates the database and starts to execute jobs. The method Close also closes the database.
// If Open fails, it has closed the database.
//
// The free version of River cannot limit how many jobs run in all processes together. In one
// process, the number of workers is the limit.
func Open[Tx any](ctx context.Context, db Database[Tx], o bench.QueueOptions) (_ bench.Queue, err error) {
	defer func() {
		if err != nil {
			db.Close()
		}
	}()

	migrator, err := rivermigrate.New(db.Driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}

	slots := o.Slots
	if o.Limit > 0 {
		slots = min(slots, o.Limit)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{body: o.Body})

	config := &river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	if slots > 0 {
		config.Queues, config.Workers = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, workers
	}
	client, err := river.NewClient(db.Driver, config)
	if err != nil || slots == 0 {
		return &queue[Tx]{db: db, client: client}, err
	}

	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return &queue[Tx]{db: db, client: client, works: true}, nil
}

// SubmitMany implements bench.Queue.
func (q *queue[Tx]) SubmitMany(ctx context.Context, first, n int) error {
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = noopArgs{first + i}
	}
	_, err := q.client.InsertManyFast(ctx, jobs)
	return err
}

// Submit implements bench.Queue.
func (q *queue[Tx]) Submit(ctx context.Context, task int) error {
	_, err := q.client.Insert(ctx, noopArgs{task}, nil)
	return err
}

// Open implements bench.Queue.
func (q *queue[Tx]) Open(ctx context.Context) (int, error) {
	return q.db.Count(ctx, "select count(*) from river_job where state <> 'completed'")
}

// Close implements bench.Queue.
func (q *queue[Tx]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := error(nil)
	if q.works {
		err = q.client.Stop(ctx)
	}
	q.db.Close()
	if errors.Is(err, context.Canceled) { // River stops when the context of its start ends
		return nil
	}
	return err
}
