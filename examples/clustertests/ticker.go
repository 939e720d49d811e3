package main

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// tickerName is the name of the singleton, and the key of its row.
const tickerName = "cluster-tests/singleton-test"

// tickerState is the row of the singleton.
type tickerState struct {
	Node       string     `json:"runner_id"`
	Ticks      int64      `json:"tick_count"`
	LastTick   time.Time  `json:"last_tick_at"`
	Since      time.Time  `json:"became_leader_at"`
	GracefulAt *time.Time `json:"graceful_shutdown_at"`
}

// ticker is a singleton: one node counts seconds in a row of a table. Every node that takes over
// gets a higher epoch. Each write to the row carries the epoch of its node, and does nothing if the
// row has a higher epoch. So if a node was paused for longer than its lease and does not know yet
// that it has lost the lease, its writes change nothing.
type ticker struct {
	pool      *pgxpool.Pool
	runner    string
	singleton *perdure.Singleton[perdure.Void]
}

func newTicker(pool *pgxpool.Pool, cfg config) *ticker {
	t := &ticker{pool: pool, runner: cfg.runner}
	var opts []perdure.SingletonOption
	if cfg.lease > 0 {
		opts = append(opts, perdure.SingletonLease(cfg.lease))
	}
	t.singleton = perdure.NewSingleton(tickerName, t.run, opts...)
	return t
}

// run ticks until its context ends. That happens when the app closes, and before another node may
// take over.
func (t *ticker) run(ctx context.Context, at *perdure.Position[perdure.Void]) error {
	epoch := at.Epoch()
	_, err := t.pool.Exec(ctx, `insert into cluster_tests.singleton as s (name, epoch, runner_id, tick_count, last_tick_at, became_leader_at)
		values ($1, $2, $3, 0, now(), now()) on conflict (name) do update
		set epoch = excluded.epoch, runner_id = excluded.runner_id, became_leader_at = now(), graceful_shutdown_at = null
		where s.epoch <= excluded.epoch`, tickerName, epoch, t.runner)
	if err != nil {
		return err
	}

	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return t.leave(context.WithoutCancel(ctx), epoch)
		case <-second.C:
		}

		// A reset may have removed the row.
		_, err := t.pool.Exec(ctx, `insert into cluster_tests.singleton as s (name, epoch, runner_id, tick_count, last_tick_at, became_leader_at)
			values ($1, $2, $3, 1, now(), now()) on conflict (name) do update
			set tick_count = s.tick_count + 1, last_tick_at = now(), runner_id = excluded.runner_id, epoch = excluded.epoch
			where s.epoch <= excluded.epoch`, tickerName, epoch, t.runner)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// leave records that the runner has stopped on purpose.
func (t *ticker) leave(ctx context.Context, epoch int64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := t.pool.Exec(ctx, `update cluster_tests.singleton set graceful_shutdown_at = now() where name = $1 and epoch = $2`, tickerName, epoch)
	return err
}

func (t *ticker) definitions() perdure.Group { return perdure.Group{t.singleton} }

// read returns the row, or nil.
func (t *ticker) read(ctx context.Context) (*tickerState, error) {
	var s tickerState
	err := t.pool.QueryRow(ctx, `select runner_id, tick_count, last_tick_at at time zone 'UTC', became_leader_at at time zone 'UTC',
		graceful_shutdown_at at time zone 'UTC' from cluster_tests.singleton where name = $1`, tickerName).
		Scan(&s.Node, &s.Ticks, &s.LastTick, &s.Since, &s.GracefulAt)
	if ok, err := exists(err); !ok || err != nil {
		return nil, err
	}
	return &s, nil
}

func (t *ticker) routes(_ *node, mux *http.ServeMux) {
	mux.Handle("GET /singleton/state", answer(func(r *http.Request) (*tickerState, error) { return t.read(r.Context()) }))
	mux.Handle("GET /singleton/tick-count", answer(func(r *http.Request) (int64, error) {
		s, err := t.read(r.Context())
		if s == nil {
			return 0, err
		}
		return s.Ticks, nil
	}))

	mux.Handle("GET /singleton/current-runner", answer(func(r *http.Request) (string, error) {
		s, err := t.read(r.Context())
		if s == nil {
			return "", err
		}
		return s.Node, nil
	}))

	mux.Handle("POST /singleton/reset", answer(func(r *http.Request) (unit, error) {
		_, err := t.pool.Exec(r.Context(), `delete from cluster_tests.singleton where name = $1`, tickerName)
		return unit{}, err
	}))
}
