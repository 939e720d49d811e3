// Command clustertests is an application that runs on one or more nodes behind any HTTP balancer.
// It has entities, persisted and plain RPCs, workflows, groups of activities, transactional
// activities, timers, messages between entities, and a singleton. Every node answers every request.
//
//	go run ./examples/clustertests -postgres postgres://localhost/db -listen :8080
//
// To get a second node on the same database, start the program again with another -listen. While
// you use the application, kill nodes and start them again.
//
// Each flag can also be set as an environment variable:
//
//	-postgres POSTGRES_URL    the database; required
//	-listen   LISTEN_ADDR     where HTTP listens; default 0.0.0.0:8080
//	-runner   RUNNER_ADDRESS  the name of this node, as /singleton/state shows it; default -listen
//	-unsafe   ALLOW_UNSAFE    accept a database with fsync off, for tests
//
// ETCD_ENDPOINTS and GRPC_PORT are accepted and ignored: nodes find each other in the database.
//
// A request with the header Idempotency-Key takes effect once, no matter how often and through
// which nodes a client sends it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// config has the values of the flags.
type config struct {
	postgres string
	listen   string
	runner   string // name of this node
	unsafe   bool
	lease    time.Duration // of the node and of its singleton; zero for the default
	logger   *slog.Logger
}

// readConfig reads flags. Their defaults come from environment variables.
func readConfig(args []string, getenv func(string) string) (config, error) {
	cfg := config{logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	unsafe, _ := strconv.ParseBool(getenv("ALLOW_UNSAFE")) // any other text means false
	flags := flag.NewFlagSet("clustertests", flag.ContinueOnError)
	flags.StringVar(&cfg.postgres, "postgres", getenv("POSTGRES_URL"), "URL of the database (POSTGRES_URL)")
	flags.StringVar(&cfg.listen, "listen", getenv("LISTEN_ADDR"), "address of the HTTP server (LISTEN_ADDR)")
	flags.StringVar(&cfg.runner, "runner", getenv("RUNNER_ADDRESS"), "name of this node (RUNNER_ADDRESS)")
	flags.BoolVar(&cfg.unsafe, "unsafe", unsafe, "accept a database without fsync (ALLOW_UNSAFE)")
	flags.String("etcd", "", "ignored (ETCD_ENDPOINTS)")
	flags.String("grpc-port", "", "ignored (GRPC_PORT)")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}

	if cfg.postgres == "" {
		return cfg, errors.New("no database: set -postgres or POSTGRES_URL")
	}
	if cfg.listen == "" {
		cfg.listen = "0.0.0.0:8080"
	}
	if cfg.runner == "" {
		cfg.runner = cfg.listen
	}
	return cfg, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := readConfig(os.Args[1:], os.Getenv)
	if err == nil {
		err = run(ctx, cfg, func(address string) { fmt.Println("listening on", address) })
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run opens the node, serves HTTP until ctx ends, and then stops HTTP before the node.
func run(ctx context.Context, cfg config, listening func(address string)) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.listen)
	if err != nil {
		return err
	}
	n, err := openNode(ctx, cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}

	server := &http.Server{Handler: n.routes(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	listening(l.Addr().String())

	select {
	case err = <-served:
	case <-ctx.Done():
		// Let open requests end first. A request that waits for a long timer is cut off, but its
		// workflow continues, and the client can ask again.
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(patience) != nil {
			err = server.Close()
		}
	}
	return errors.Join(err, n.close())
}
