package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/perdure/perdure/bench/riverqueue"
	"github.com/perdure/perdure/internal/bench"
)

// openRiver opens River on PostgreSQL.
func openRiver(ctx context.Context, place bench.Place, o bench.QueueOptions) (bench.Queue, error) {
	pool, err := pgxpool.New(ctx, place.URL)
	if err != nil {
		return nil, err
	}
	count := func(ctx context.Context, query string) (n int, err error) {
		err = pool.QueryRow(ctx, query).Scan(&n)
		return n, err
	}
	return riverqueue.Open(ctx, riverqueue.Database[pgx.Tx]{Driver: riverpgxv5.New(pool), Count: count, Close: pool.Close}, o)
}

// buildRiverLite builds the command that measures River on SQLite into a directory. The built
// command is linked with another version of River than this command.
func buildRiverLite(ctx context.Context, dir string) (command []string, err error) {
	program := filepath.Join(dir, "river-sqlite")
	build := exec.CommandContext(ctx, "go", "build", "-C", "riverqueue", "-o", program, "./sqlite")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build River for SQLite (run this command in the directory bench of the repository, or leave River out with -store postgres or -peers dbos): %w", err)
	}
	return []string{program}, nil
}
