// Command bench compares Perdure with its peers, on a PostgreSQL server that it starts itself and
// on SQLite, and checks the results against our bars: the numbers that Perdure must reach. See
// README.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/bench"
	"github.com/perdure/perdure/internal/pgtest"
)

// peers are the systems to compare with, without servers.
var peers = map[string]bench.Peer{
	bench.Bare:  bench.BarePeer,
	bench.Dial:  bench.DialPeer,
	bench.DBOS:  {Workflows: openDBOS},
	bench.River: {Queue: openRiver},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := func() error { return measure(ctx, os.Args[1:]) }
	if bench.IsChild() {
		run = func() error { return bench.Child(ctx, peers) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs the command.
func measure(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	store := flags.String("store", "all", "postgres, sqlite or all")
	with := flags.String("peers", "bare,perdure-dial,dbos,river,restate,temporal", "systems to compare with, separated by commas; empty for none")
	workloads := flags.String("workloads", "", fmt.Sprintf("workloads to measure, some of %v, separated by commas (default all)", bench.Workloads))
	duration := flags.Duration("duration", 3*time.Second, "length of one measurement in which clients repeat something")
	rounds := flags.Int("rounds", 3, "number of measurements of each system")
	clients := flags.Int("clients", 64, "number of clients that wait for results at the same time")
	sleepers := flags.Int("sleepers", 100_000, "number of sleeping executions in the workload open")
	tasks := flags.Int("tasks", 50_000, "number of tasks in the workloads tasks and limit")
	wait := flags.Duration("wait", 0, "longest wait for a quiet machine before each measurement")
	out := flags.String("out", "", "file for the report, as JSON if it ends in .json, else as Markdown (default: Markdown on the standard output)")
	dir := flags.String("dir", "", "directory for the data; decides which disk is measured (default: the temporary directory)")
	profile := flags.String("profile", "", "directory for CPU and allocation profiles of Perdure")
	restate := flags.String("restate", "", "server program of Restate (default: restate-server on $PATH)")
	temporal := flags.String("temporal", "", "program of Temporal (default: temporal on $PATH)")
	gate := flags.Bool("gate", false, "exit with an error if a bar is not met")
	if err := flags.Parse(args); err != nil {
		return err
	}

	o := bench.Options{
		Duration: *duration, Rounds: *rounds, Clients: *clients, Sleepers: *sleepers, Tasks: *tasks, Wait: *wait, Profile: *profile,
		Peers: map[string]bench.Peer{}, Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	}
	for _, w := range list(*workloads) {
		o.Workloads = append(o.Workloads, bench.Workload(w))
	}

	programs, paths := map[string]string{bench.Restate: *restate, bench.Temporal: *temporal}, map[string]string{}
	for _, name := range list(*with) {
		path, served := programs[name]
		p, known := peers[name]
		switch {
		case served:
			paths[name] = path
		case known:
			o.Peers[name] = p
		default:
			return fmt.Errorf("unknown peer %q; there are %v", name, append(slices.Sorted(maps.Keys(peers)), slices.Sorted(maps.Keys(programs))...))
		}
	}
	if !threeSteps(o.Workloads) {
		clear(paths)
	}

	if *profile != "" {
		if err := os.MkdirAll(*profile, 0o755); err != nil {
			return err
		}
	}

	if *dir == "" {
		*dir = os.TempDir()
	}
	o.OwnDirectory = *dir
	missing, remove, err := addServers(ctx, &o, paths)
	defer remove()
	if err != nil {
		return err
	}

	if *store == "postgres" || *store == "all" {
		server, err := startPostgres(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }() // the server also ends with this process
		o.Places = append(o.Places, bench.Server(server.URL("postgres")))
	}

	if *store == "sqlite" || *store == "all" {
		o.Places = append(o.Places, bench.Directory(*dir))
		if river, taking := o.Peers[bench.River]; taking {
			bin, err := os.MkdirTemp("", "bench-river-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(bin)
			o.Progress("sqlite    building River for it")
			command, err := buildRiverLite(ctx, bin)
			if err != nil {
				return err
			}
			river.Commands = map[bench.Kind][]string{bench.SQLite: command}
			o.Peers[bench.River] = river
		}
	}

	report, err := bench.Run(ctx, o)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		report.LeaveOut(name, missing[name])
	}
	report.Judge(o.Workloads)
	if err := write(report, *out); err != nil {
		return err
	}

	if failed := report.Failed(); *gate && len(failed) > 0 {
		lines := make([]string, len(failed))
		for i, b := range failed {
			lines[i] = "\n  " + b.String()
		}
		return fmt.Errorf("%d of %d bars are not met:%s", len(failed), len(report.Bars), strings.Join(lines, ""))
	}

	return nil
}

// threeSteps reports whether the workloads include workflows of three steps. The benchmark measures
// servers with no others.
func threeSteps(workloads []bench.Workload) bool {
	return workloads == nil || slices.Contains(workloads, bench.Throughput) || slices.Contains(workloads, bench.Latency)
}

// startPostgres starts a durable server with nearly the settings of a fresh installation.
func startPostgres(ctx context.Context) (*pgtest.Server, error) {
	return pgtest.Open(ctx, pgtest.Options{Fsync: true, Settings: map[string]string{
		"shared_buffers": "128MB",
		// no checkpoint during a measurement; each measurement starts with one
		"max_wal_size": "4GB",
	}})
}

// write writes the report to a file or to the standard output.
func write(report *bench.Report, file string) (err error) {
	to := io.Writer(os.Stdout)
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer f.Close()
		to = f
	}
	if filepath.Ext(file) == ".json" {
		enc := json.NewEncoder(to)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return report.WriteMarkdown(to)
}

// list splits a list at its commas.
func list(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
