package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/perdure/perdure/internal/bench"
)

// temporalPollers is how many goroutines of the worker wait for tasks of workflows, and how many
// wait for tasks of activities. The default of 2 is few for 64 clients.
const temporalPollers = 16

// temporalQueue is the task queue of the worker.
const temporalQueue = "bench"

// temporalSystem is Temporal's server for development, with clients and a worker in this process.
type temporalSystem struct {
	onlyThree
	*bench.ServerProcess
	client client.Client
	worker worker.Worker
}

// openTemporal starts a server on free ports, with a SQLite file in a directory.
func openTemporal(ctx context.Context, program bench.Program, dir string) (bench.System, error) {
	ports, err := bench.FreePorts(1)
	if err != nil {
		return nil, err
	}
	s := &temporalSystem{}
	options := client.Options{
		HostPort: "127.0.0.1:" + strconv.Itoa(ports[0]),
		Logger:   log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	}

	s.ServerProcess, err = program.Start(ctx, bench.Start{
		Args: temporalArgs(dir, ports[0]), Hidden: []string{"TEMPORAL_"}, Log: filepath.Join(dir, "server.log"),
		Ready: func(ctx context.Context) (err error) {
			s.client, err = client.DialContext(ctx, options)
			return err
		},
	})
	if err != nil {
		return nil, err
	}

	s.worker = worker.New(s.client, temporalQueue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: temporalPollers, MaxConcurrentActivityTaskPollers: temporalPollers,
	})
	s.worker.RegisterWorkflow(temporalThree)
	s.worker.RegisterActivity(temporalStep)
	if err := s.worker.Start(); err != nil {
		s.client.Close()
		return nil, errors.Join(err, s.ServerProcess.Close())
	}

	return s, nil
}

// temporalArgs returns the arguments of a server that keeps its data in a file with a write-ahead
// log. Without the log, the file has a rollback journal, which takes about four times as many
// flushes.
func temporalArgs(dir string, port int) []string {
	return []string{
		"server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", strconv.Itoa(port),
		"--db-filename", filepath.Join(dir, "temporal.db"), "--sqlite-pragma", "journal_mode=wal",
	}
}

// temporalThree is a workflow of three activities, one after the other.
func temporalThree(ctx workflow.Context, in int) (out int, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	for range 3 {
		if err = workflow.ExecuteActivity(ctx, temporalStep, in).Get(ctx, &out); err != nil {
			return 0, err
		}
	}
	return out, nil
}

func temporalStep(_ context.Context, in int) (int, error) { return in, nil }

// Three implements bench.System. The server may give the first task of the workflow to the worker
// of this process in its answer to the start.
func (s *temporalSystem) Three(ctx context.Context, key string) error {
	run, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: key, TaskQueue: temporalQueue, EnableEagerStart: true,
	}, temporalThree, 7)
	if err != nil {
		return err
	}
	var out int
	return run.Get(ctx, &out)
}

// Close implements bench.System.
func (s *temporalSystem) Close() error {
	s.worker.Stop()
	s.client.Close()
	return s.ServerProcess.Close()
}
