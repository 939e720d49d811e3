package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // registers its SQLite backend

	"github.com/perdure/perdure/internal/bench"
)

// dbosPool is the number of connections to PostgreSQL: one per client. The default of 20 is slower.
const dbosPool = "64"

// dbosSystem is DBOS Transact for Go. Except for the pool, it has the default settings. On SQLite
// these include synchronous=NORMAL, so a power failure may lose acknowledged data. Our store loses
// none.
type dbosSystem struct {
	ctx  dbos.Context
	body func(step int)
}

func openDBOS(ctx context.Context, place bench.Place, body func(int)) (bench.System, error) {
	address := "sqlite:" + place.Path
	if place.Kind == bench.Postgres {
		u, err := url.Parse(place.URL)
		if err != nil {
			return nil, err
		}
		query := u.Query()
		query.Set("pool_max_conns", dbosPool)
		u.RawQuery = query.Encode()
		address = u.String()
	}

	d, err := dbos.NewContext(ctx, dbos.Config{AppName: "bench", DatabaseURL: address, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	s := &dbosSystem{ctx: d, body: body}
	dbos.RegisterWorkflow(d, s.three)
	dbos.RegisterWorkflow(d, s.chain)
	dbos.RegisterWorkflow(d, s.fanOut)
	dbos.RegisterWorkflow(d, s.sleep)

	return s, dbos.Launch(d)
}

func (s *dbosSystem) three(ctx dbos.Context, in int) (out int, err error) {
	for range 3 {
		if out, err = dbos.RunAsStep(ctx, func(context.Context) (int, error) { return in, nil }); err != nil {
			return 0, err
		}
	}
	return out, nil
}

func (s *dbosSystem) chain(ctx dbos.Context, n int) (int, error) {
	for i := range n {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) { s.body(i); return i, nil }); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (s *dbosSystem) fanOut(ctx dbos.Context, n int) (int, error) {
	running := make([]<-chan dbos.StepOutcome[int], n)
	for i := range n {
		var err error
		if running[i], err = dbos.Go(ctx, func(context.Context) (int, error) { return i, nil }); err != nil {
			return 0, err
		}
	}
	for i, outcome := range running {
		if r := <-outcome; r.Err != nil || r.Result != i {
			return 0, fmt.Errorf("step %d: %d, %w", i, r.Result, r.Err)
		}
	}
	return n, nil
}

func (s *dbosSystem) sleep(ctx dbos.Context, d time.Duration) (int, error) {
	_, err := dbos.Sleep(ctx, d)
	return 0, err
}

// Three implements bench.System.
func (s *dbosSystem) Three(_ context.Context, key string) error { return runDBOS(s, s.three, 7, key) }

// Chain implements bench.System.
func (s *dbosSystem) Chain(_ context.Context, key string, n int) error {
	return runDBOS(s, s.chain, n, key)
}

// FanOut implements bench.System.
func (s *dbosSystem) FanOut(_ context.Context, key string, n int) error {
	return runDBOS(s, s.fanOut, n, key)
}

// StartSleep implements bench.System.
func (s *dbosSystem) StartSleep(_ context.Context, key string, d time.Duration) error {
	_, err := dbos.RunWorkflow(s.ctx, s.sleep, d, dbos.WithWorkflowID(key))
	return err
}

// Close implements bench.System.
func (s *dbosSystem) Close() error { return dbos.Shutdown(s.ctx, 5*time.Second) }

// runDBOS runs a workflow and waits for its result.
func runDBOS[I, O any](s *dbosSystem, workflow dbos.Workflow[I, O], in I, key string) error {
	handle, err := dbos.RunWorkflow(s.ctx, workflow, in, dbos.WithWorkflowID(key))
	if err != nil {
		return err
	}
	_, err = handle.GetResult()
	return err
}
