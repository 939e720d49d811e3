package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
)

// The processes of the cluster. These environment variables say what a process does.
const (
	envRole      = "PERDURE_CHAOS_ROLE"
	envCode      = "PERDURE_CHAOS_CODE"      // the code that it runs: parts separated by commas
	envAdvertise = "PERDURE_CHAOS_ADVERTISE" // where other nodes reach this one
	envPeer      = "PERDURE_CHAOS_PEER"      // where this node listens for other nodes
	envListen    = "PERDURE_CHAOS_LISTEN"    // where a server listens

	roleServer   = "server"
	roleEmbedded = "embedded"
	roleWorker   = "worker"
	roleReader   = "reader" // an embedded node that reads cells, and records what it has read

	envReads = "PERDURE_CHAOS_READS" // the file in which a reader writes

	clusterKey = "chaos-admin-key-of-a-test"
)

// play is the main function of a process of the cluster.
func play(role, url string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	lease := os.Getenv(envLease)
	if role == roleServer {
		return cli.Main(ctx, []string{
			"serve", "--listen", os.Getenv(envListen), "--peer-listen", os.Getenv(envPeer), "--peer-advertise", os.Getenv(envAdvertise), "--lease", lease, "--worker-grace", "3s",
		}, cli.Standard())
	}

	l := ledger{os.Getenv(envLedger)}
	if role == roleReader {
		role = roleEmbedded
	}
	defs := clusterDefinitions(os.Getenv(envCode), l)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	app, err := openRole(ctx, role, url, log, defs)
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	fmt.Println("up")
	if path := os.Getenv(envReads); path != "" {
		if err := readCells(ctx, app, path); err != nil {
			fmt.Println("read:", err)
			return 1
		}
	}
	if prefix := os.Getenv(envBank); prefix != "" {
		quiet := make(chan os.Signal, 1)
		signal.Notify(quiet, syscall.SIGUSR1, syscall.SIGTERM)
		serveBank(context.Background(), app, bankLedger(l), prefix, quiet)
	}
	<-ctx.Done()
	if err := app.Close(); err != nil {
		fmt.Println("close:", err)
		return 1
	}
	fmt.Println("closed")
	return 0
}

// bankLedger returns the ledger of the tellers, which is separate from the ledger of the workflows.
func bankLedger(l ledger) ledger { return ledger{l.path + ".bank"} }

// openRole opens the app of an embedded node or of a worker. A worker tries until there is a
// server.
func openRole(ctx context.Context, role, url string, log *slog.Logger, defs perdure.Group) (*perdure.App, error) {
	lease, err := time.ParseDuration(os.Getenv(envLease))
	if err != nil {
		return nil, err
	}
	if role == roleEmbedded {
		cfg := embedded.Config{LeaseTTL: lease, PeerListen: os.Getenv(envPeer), PeerAdvertise: os.Getenv(envAdvertise), Logger: log}
		return cfg.Open(ctx, url, defs)
	}
	for {
		app, err := perdure.Dialer{Token: clusterKey, Logger: log}.Dial(ctx, url, defs)
		if err == nil || ctx.Err() != nil || !errors.Is(err, perdure.ErrUnavailable) {
			return app, err
		}
		fmt.Println("dial:", err)
	}
}

// readCellCount is how many cells a reader reads.
const readCellCount = 24

// cellKey is the key of a cell that a reader reads.
func cellKey(n int) string { return "cell-" + strconv.Itoa(n) }

// readCells reads cells in turn until the process gets the signal to end. It records when it asked,
// the cell, and the value. Between the reads it writes to its own cells. Every request may fail,
// because the process may be cut off.
func readCells(ctx context.Context, app *perdure.App, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var readers sync.WaitGroup
	for first := range 4 {
		readers.Go(func() {
			for n := first; ctx.Err() == nil; n++ {
				short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
				cell, asked := n%readCellCount, time.Now().UnixNano()
				if value, err := peek.Call(app.With(short), cellKey(cell), perdure.Void{}); err == nil {
					fmt.Fprintln(f, asked, cell, value)
				}
				if n%4 == 0 {
					_, _ = swap.Call(app.With(short), "own-"+cellKey(n/4%readCellCount), n)
				}
				cancel()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	readers.Wait()
	return f.Close()
}
