package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/bench"
	"github.com/perdure/perdure/internal/fault"
)

func newBench(o *options) *cobra.Command {
	opts := bench.Options{}
	var workloads []string
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure throughput, latency and cost on a store",
		Long: `Measure how this machine and a store run workflows: throughput and latency, CPU time, rows, bytes and flushes per step, and
memory per sleeping execution. The report also shows the raw limits of the store. The command creates fresh stores next to
the one that --store names (files in its directory, databases on its server) and removes them. It does not touch the store itself.`,
		Example: "  perdure bench --store file:perdure.db --workloads throughput,latency\n  perdure bench --store postgres://localhost/app",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			place, err := benchPlace(o.store)
			if err != nil {
				return err
			}
			opts.Places = []bench.Provider{place}
			for _, w := range workloads {
				opts.Workloads = append(opts.Workloads, bench.Workload(w))
			}
			opts.Progress = func(line string) { fmt.Fprintln(o.Err, line) }
			report, err := bench.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return o.printBench(report)
		},
	}

	cmd.Flags().StringSliceVar(&workloads, "workloads", nil, fmt.Sprintf("workloads to measure, some of %v (default all)", bench.Workloads))
	cmd.Flags().DurationVar(&opts.Duration, "duration", 3*time.Second, "length of one measurement in which clients repeat something")
	cmd.Flags().IntVar(&opts.Rounds, "rounds", 3, "number of measurements of each workload")
	cmd.Flags().IntVar(&opts.Clients, "clients", 64, "number of clients that wait for results at the same time")
	cmd.Flags().IntVar(&opts.Sleepers, "sleepers", 100_000, "number of sleeping executions in the workload open")
	cmd.Flags().IntVar(&opts.Tasks, "tasks", 50_000, "number of tasks in the workloads tasks and limit")

	return cmd
}

// printBench prints a report.
func (o *options) printBench(r *bench.Report) error {
	if o.structured() {
		return o.json(benchLineOf(r))
	}
	return r.WriteMarkdown(o.Out)
}

// benchPlace returns the place in which a measurement creates its fresh stores.
func benchPlace(url string) (bench.Provider, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "file":
		dir := filepath.Dir(rest)
		if _, err := os.Stat(dir); err != nil {
			return nil, fault.New(fault.NotFound, "--store: %w", err)
		}
		return bench.Directory(dir), nil
	case "postgres", "postgresql":
		return bench.Server(url), nil
	}
	return nil, fault.New(fault.Invalid, "--store has the scheme %s, which cannot be measured: use file:<path> or postgres://…", scheme)
}
