// Command cluster measures several processes on one PostgreSQL database. They run workflows of
// three steps in a closed loop, with and without direct connections between the processes. The
// shards are spread over all n processes, so only one request in n is for a shard of the process
// that makes it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

func main() {
	run := measure
	if os.Getenv(childVariable) != "" {
		run = child
	}
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// childVariable is the environment variable with the settings of a process that this command
// starts.
const childVariable = "PERDURE_CLUSTER_BENCH"

// settings configure one process.
type settings struct {
	URL, Schema, Profile string
	Clients              int
	Duration             time.Duration
	NoLink               bool
	// Settle is how long the process waits before it measures. By then the shards no longer move.
	Settle time.Duration
}

// outcome is what one process has measured.
type outcome struct {
	Done     int64
	P50, P99 time.Duration
	CPU      time.Duration
}

// measure runs the command.
func measure(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	clients := flags.Int("clients", 64, "clients of each process")
	duration := flags.Duration("duration", 5*time.Second, "length of one measurement")
	rounds := flags.Int("rounds", 1, "measurements of each case")
	sizes := flags.String("processes", "1,2,3", "numbers of processes")
	links := flags.String("links", "on,off", "with and without connections between the processes")
	profile := flags.String("profile", "", "directory for CPU profiles")
	if err := flags.Parse(args); err != nil {
		return err
	}

	server, err := pgtest.Open(ctx, pgtest.Options{Fsync: true})
	if err != nil {
		return err
	}
	defer server.Close()
	for round := range *rounds {
		var base float64
		for _, size := range strings.Split(*sizes, ",") {
			for _, link := range strings.Split(*links, ",") {
				n := 0
				if _, err := fmt.Sscan(size, &n); err != nil {
					return err
				}
				if n == 1 && link == "off" {
					continue
				}
				s := settings{
					URL: server.URL("postgres"), Schema: fmt.Sprintf("c%d_%d_%s", round, n, link), Clients: *clients, Duration: *duration, NoLink: link == "off",
					Settle: 6 * time.Second,
				}
				if *profile != "" {
					s.Profile = fmt.Sprintf("%s/%s", *profile, s.Schema)
				}
				all, err := together(n, s)
				if err != nil {
					return err
				}
				rate := report(n, link, all, *duration)
				if n == 1 {
					base = rate
				} else if base > 0 {
					fmt.Printf("    %.0f %% of one process\n", 100*rate/base)
				}
			}
		}
	}
	return nil
}

// report prints the rate and the CPU time of all processes together, and the percentiles of the
// slowest process. It returns the rate in workflows per second.
func report(n int, link string, all []outcome, d time.Duration) float64 {
	var sum outcome
	for _, o := range all {
		sum.Done += o.Done
		sum.CPU += o.CPU
		sum.P50, sum.P99 = max(sum.P50, o.P50), max(sum.P99, o.P99)
	}
	rate := float64(sum.Done) / d.Seconds()
	fmt.Printf("%d processes, links %s: %.0f workflows/s, p50 %s, p99 %s, %.3f ms CPU of the processes per workflow\n",
		n, link, rate, sum.P50.Round(10*time.Microsecond), sum.P99.Round(10*time.Microsecond), float64(sum.CPU.Microseconds())/1000/float64(max(1, sum.Done)))
	return rate
}

// together runs n processes at the same time, and returns what each of them has measured.
func together(n int, s settings) ([]outcome, error) {
	all := make([]outcome, n)
	type process struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var running []process
	defer func() {
		for _, p := range running {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	}()
	for i := range n {
		own := s
		if s.Profile != "" {
			own.Profile = fmt.Sprintf("%s_%d.pprof", s.Profile, i)
		}
		text, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(os.Args[0]) //nolint:gosec // this program
		cmd.Env = append(os.Environ(), childVariable+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		running = append(running, process{cmd, in, bufio.NewReader(out)})
		// The process prints a line when it is ready.
		if _, err := running[i].out.ReadString('\n'); err != nil {
			return nil, err
		}
	}

	for _, p := range running {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			return nil, err
		}
	}
	for i, p := range running {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(line, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

var double = perdure.NewActivity("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

var three = perdure.NewWorkflow("three", func(ctx perdure.WorkflowCtx, n int) (int, error) {
	for range 3 {
		var err error
		if n, err = double.Run(ctx, n); err != nil {
			return 0, err
		}
	}
	return n, nil
})

// child runs as one of the measured processes.
func child(ctx context.Context, _ []string) error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &s); err != nil {
		return err
	}
	app, err := embedded.Config{Schema: s.Schema, NoPeerLink: s.NoLink}.Open(ctx, s.URL, three, double)
	if err != nil {
		return err
	}
	defer app.Close()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	time.Sleep(s.Settle)
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
	}

	begun := cpu()
	all, err := load(app.With(ctx), s)
	if err != nil {
		return err
	}
	pprof.StopCPUProfile()
	slices.Sort(all)
	o := outcome{Done: int64(len(all)), CPU: cpu() - begun}
	if len(all) > 0 {
		o.P50, o.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	_, _ = io.Copy(io.Discard, os.Stdin) // the other processes still need this one
	return nil
}

// load runs the clients of a process.
func load(c perdure.Client, s settings) ([]time.Duration, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	times := make([][]time.Duration, s.Clients)
	end := time.Now().Add(s.Duration)
	for i := range s.Clients {
		wg.Go(func() {
			for n := 0; failed.Load() == nil && time.Now().Before(end); n++ {
				begun := time.Now()
				if _, err := three.Run(c, 1, perdure.RawKey(fmt.Sprintf("%d-%d-%d", os.Getpid(), i, n))); err != nil {
					failed.Store(&err)
					return
				}
				times[i] = append(times[i], time.Since(begun))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return slices.Concat(times...), nil
}

// cpu returns the processor time that the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
