// Command cluster measures several processes on one PostgreSQL database, and compares the results
// with our bars: the figures that a cluster must reach. It has five workloads:
//
//	steps      workflows of three steps on one, two and three processes, with and without direct
//	           connections between the processes
//	distance   workflows that another process owns, compared with workflows of the own process
//	transfers  locked transfers between accounts on one process and on two
//	recovery   how fast work continues after kill -9
//	rolling    restarts of all processes in turn while clients make calls
//
// The command starts every measured process as a child of its own. It sends orders to the children
// over their standard input, and reads the replies from their standard output.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := measure
	if os.Getenv(childVariable) != "" {
		// A terminal sends an interrupt to all processes. A child ends when its parent ends.
		run = func(context.Context, []string) error { return runChild(context.Background()) }
	}
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// bench is one run of the command.
type bench struct {
	url      string // of the database
	clients  int    // of each process, in the workload steps
	duration time.Duration
	sizes    []int    // numbers of processes, in the workload steps
	links    []string // "on", "off" or both, in the workloads steps and distance
	profile  string   // directory for CPU profiles of the workload steps; empty for none
	schemas  int      // how many schemas exist so far
	verdict  verdict
}

// workload measures something once, prints it, and adds the figures to the verdict.
type workload struct {
	name string
	run  func(*bench, context.Context) error
}

var workloads = []workload{
	{"steps", (*bench).steps},
	{"distance", (*bench).distance},
	{"transfers", (*bench).transfers},
	{"recovery", (*bench).recovery},
	{"rolling", (*bench).rolling},
}

// measure runs the command.
func measure(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	list := flags.String("workloads", "", fmt.Sprintf("workloads to measure, some of %v, separated by commas (default all)", names()))
	clients := flags.Int("clients", 64, "clients of each process in the workload steps")
	duration := flags.Duration("duration", 5*time.Second, "length of one measurement")
	rounds := flags.Int("rounds", 1, "measurements of each case; the median counts")
	sizes := flags.String("processes", "1,2,3", "numbers of processes in the workload steps")
	links := flags.String("links", "on,off", "with and without connections between the processes, in the workloads steps and distance")
	profile := flags.String("profile", "", "directory for CPU profiles of the processes in the workload steps")
	gate := flags.Bool("gate", false, "exit with an error if a bar is not met")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*list)
	if err != nil {
		return err
	}
	b := &bench{clients: *clients, duration: *duration, links: strings.Split(*links, ","), profile: *profile}
	for _, link := range b.links {
		if link != "on" && link != "off" {
			return fmt.Errorf("links are %q, must be on or off", link)
		}
	}
	if b.sizes, err = numbers(*sizes); err != nil {
		return err
	}

	// There is no checkpoint during a measurement.
	server, err := pgtest.Open(ctx, pgtest.Options{Fsync: true, Settings: map[string]string{"max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // the server also ends with this process
	b.url = server.URL("postgres")

	for range *rounds {
		for _, w := range chosen {
			fmt.Printf("\n%s\n", w.name)
			if err := w.run(b, ctx); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return b.verdict.print(*gate)
}

// names returns the names of all workloads.
func names() (all []string) {
	for _, w := range workloads {
		all = append(all, w.name)
	}
	return all
}

// choose returns the workloads of a list of names, or all workloads if the list is empty.
func choose(list string) (chosen []workload, err error) {
	if list == "" {
		return workloads, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("unknown workload %q; there are %v", name, names())
		}
		chosen = append(chosen, workloads[i])
	}
	return chosen, nil
}

// numbers reads a list of numbers.
func numbers(text string) (all []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number from 1 on", part)
		}
		all = append(all, n)
	}
	return all, nil
}

// settings returns the settings of processes that share a new schema.
func (b *bench) settings() settings {
	b.schemas++
	return settings{URL: b.url, Schema: "c" + strconv.Itoa(b.schemas)}
}

// warmUp is how long clients make calls before a measurement starts.
func (b *bench) warmUp() time.Duration { return b.duration / 5 }
