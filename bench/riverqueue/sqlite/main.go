// Command sqlite runs the measurements of River on SQLite. The command of the module bench builds
// and starts it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/riverqueue/river/riverdriver/riversqlite"
	_ "modernc.org/sqlite" // registers the driver that River's documentation names

	"github.com/perdure/perdure/bench/riverqueue"
	"github.com/perdure/perdure/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.New("this is a part of the benchmark: cd bench && go run . -store sqlite -peers river")
	if bench.IsChild() {
		err = bench.Child(ctx, map[string]bench.Peer{bench.River: {Queue: open}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "river on SQLite:", err)
		os.Exit(1)
	}
}

// open opens River with synchronous=FULL, so that River survives a power failure as our store does.
// It uses one connection, as the documentation of River advises.
func open(ctx context.Context, place bench.Place, o bench.QueueOptions) (bench.Queue, error) {
	settings := url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"},
		"_txlock": {"immediate"},
	}

	db, err := sql.Open("sqlite", "file:"+place.Path+"?"+settings.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)

	count := func(ctx context.Context, query string) (n int, err error) {
		err = db.QueryRowContext(ctx, query).Scan(&n)
		return n, err
	}

	return riverqueue.Open(ctx, riverqueue.Database[*sql.Tx]{
		Driver: riversqlite.New(db), Count: count, Close: func() { _ = db.Close() },
	}, o)
}
