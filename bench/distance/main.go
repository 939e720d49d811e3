// Command distance measures one process whose PostgreSQL is some milliseconds away. The process
// runs workflows of three steps in a closed loop, for several distances, numbers of clients and
// numbers of lanes. The command also shows what bounds the rate: how long commits take, how much
// time passes between two commits of a lane, and how many rows a commit has.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
)

func main() {
	run := measure
	if os.Getenv(childVariable) != "" {
		run = forward
	}
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "distance:", err)
		os.Exit(1)
	}
}

// childVariable is the environment variable with the address of the database and the delay, for the
// process that forwards connections. Forwarding runs in a separate process, so that the measurement
// does not include the processor time of forwarding.
const childVariable = "PERDURE_DISTANCE_BENCH"

// settings are the settings of one measurement.
type settings struct {
	url, schema    string
	clients, lanes int
	duration       time.Duration
}

// measure runs the command: it measures every combination of the settings and prints a table.
func measure(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("distance", flag.ExitOnError)
	delays := flags.String("delays", "0s,1ms,5ms", "delays to add to each round trip to the database")
	clients := flags.String("clients", "64,1024", "numbers of clients that wait for results")
	lanes := flags.String("lanes", "1,2,4", "numbers of lanes")
	rounds := flags.Int("rounds", 3, "number of measurements for each line of the table, which shows their medians")
	duration := flags.Duration("duration", 5*time.Second, "length of one measurement")
	if err := flags.Parse(args); err != nil {
		return err
	}
	counts, err := numbers(*clients)
	if err != nil {
		return err
	}
	widths, err := numbers(*lanes)
	if err != nil {
		return err
	}

	server, err := pgtest.Open(ctx, pgtest.Options{Fsync: true, Settings: map[string]string{"max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // the server also ends with this process
	fmt.Println("| round trip | clients | lanes | workflows/s | p50, p99 ms | CPU ms per workflow | rows per commit | commit p50 ms | between commits p50 ms | a commit in flight |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")

	schema := 0
	for text := range strings.SplitSeq(*delays, ",") {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		way, err := openWay(server, delay)
		if err != nil {
			return err
		}
		for _, n := range counts {
			// The measurements with different numbers of lanes take turns, so that a busy machine
			// affects all of them in the same way.
			all := map[int][]outcome{}
			for range *rounds {
				for _, l := range widths {
					schema++
					o, err := load(ctx, settings{url: way.url, schema: "d" + strconv.Itoa(schema), clients: n, lanes: l, duration: *duration})
					if err != nil {
						way.close()
						return err
					}
					all[l] = append(all[l], o)
				}
			}
			for _, l := range widths {
				printLine(delay, settings{clients: n, lanes: l}, all[l])
			}
		}
		way.close()
	}
	return nil
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

// outcome is one measurement.
type outcome struct {
	rate        float64
	p50, p99    time.Duration
	cpu         time.Duration // of this process, per workflow
	rows        float64       // per commit
	commit, gap time.Duration // medians: how long a commit takes, and the time between two commits
	flight      float64       // share of the time in which a lane has a commit in flight
}

// printLine prints a line of the table: the median of each column.
func printLine(delay time.Duration, s settings, all []outcome) {
	of := func(value func(*outcome) float64) float64 {
		values := make([]float64, len(all))
		for i := range all {
			values[i] = value(&all[i])
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	ms := func(value func(*outcome) time.Duration) float64 {
		return of(func(o *outcome) float64 { return value(o).Seconds() * 1000 })
	}
	fmt.Printf("| %s | %d | %d | %.0f | %.1f, %.1f | %.3f | %.0f | %.2f | %.2f | %.0f %% |\n",
		delay, s.clients, s.lanes, of(func(o *outcome) float64 { return o.rate }),
		ms(func(o *outcome) time.Duration { return o.p50 }), ms(func(o *outcome) time.Duration { return o.p99 }),
		ms(func(o *outcome) time.Duration { return o.cpu }), of(func(o *outcome) float64 { return o.rows }),
		ms(func(o *outcome) time.Duration { return o.commit }), ms(func(o *outcome) time.Duration { return o.gap }),
		100*of(func(o *outcome) float64 { return o.flight }))
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

// load opens a node and lets clients run workflows.
func load(ctx context.Context, s settings) (o outcome, err error) {
	watch := &watch{lanes: make([]laneTimes, s.lanes)}
	n, err := node.Open(ctx, node.Config{
		URL: s.url, Schema: s.schema, Lanes: s.lanes, NoPeerLink: true,
		Wrap: func(st store.Store) store.Store { watch.Store = st; return watch },
	})
	if err != nil {
		return o, err
	}
	app, err := attach.Embed(ctx, attach.Config{Backend: n.Backend(), Tenant: model.DefaultTenant, OnClosing: n.Stopping, OnClose: n.Close}, three, double)
	if err != nil {
		return o, err
	}
	defer func() {
		if closed := app.Close(); err == nil {
			err = closed
		}
	}()

	run := func(d time.Duration, name string) ([]time.Duration, error) {
		return clients(app.With(ctx), s.clients, d, name)
	}
	if _, err := run(s.duration/5, "warm"); err != nil {
		return o, err
	}
	watch.reset()
	before := cpu()
	times, err := run(s.duration, "run")
	if err != nil {
		return o, err
	}
	used := cpu() - before
	slices.Sort(times)
	o = watch.outcome(s.duration)
	o.rate, o.cpu = float64(len(times))/s.duration.Seconds(), used/time.Duration(max(1, len(times)))
	o.p50, o.p99 = times[len(times)/2], times[len(times)*99/100]
	return o, nil
}

// clients runs workflows in n closed loops for the duration d, and returns how long each workflow
// took.
func clients(c perdure.Client, n int, d time.Duration, name string) ([]time.Duration, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	times := make([][]time.Duration, n)
	end := time.Now().Add(d)
	for i := range n {
		wg.Go(func() {
			for k := 0; failed.Load() == nil && time.Now().Before(end); k++ {
				begun := time.Now()
				if _, err := three.Run(c, 1, perdure.RawKey(fmt.Sprintf("%s-%d-%d", name, i, k))); err != nil {
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
	all := slices.Concat(times...)
	if len(all) == 0 {
		return nil, fmt.Errorf("no workflow has ended within %s", d)
	}
	return all, nil
}

// watch is a store that measures how long commits take.
type watch struct {
	store.Store

	mu    sync.Mutex
	lanes []laneTimes
}

// laneTimes are the times and rows of the commits of one lane.
type laneTimes struct {
	ended  time.Time       // when the last commit ended
	took   []time.Duration // how long each commit took
	before []time.Duration // the time before each commit, since the end of the previous commit
	rows   int             // of all commits
}

// Commit commits, and records when the commit started and ended.
func (w *watch) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	begun, index, rows := time.Now(), b.Lane.Lane, b.Rows()
	res, err := w.Store.Commit(ctx, b)
	ended := time.Now()

	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.lanes[index]
	if !l.ended.IsZero() {
		l.before = append(l.before, begun.Sub(l.ended))
	}
	l.took, l.ended = append(l.took, ended.Sub(begun)), ended
	l.rows += rows
	return res, err
}

// reset forgets what was measured so far.
func (w *watch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.lanes)
}

// outcome sums up the commits of all lanes.
func (w *watch) outcome(d time.Duration) (o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took, gaps []time.Duration
	rows, sum := 0, time.Duration(0)
	for i := range w.lanes {
		l := &w.lanes[i]
		took, gaps, rows = append(took, l.took...), append(gaps, l.before...), rows+l.rows
		for _, t := range l.took {
			sum += t
		}
	}
	if len(took) == 0 || len(gaps) == 0 {
		return o
	}
	slices.Sort(took)
	slices.Sort(gaps)
	o.commit, o.gap = took[len(took)/2], gaps[len(gaps)/2]
	o.rows = float64(rows) / float64(len(took))
	o.flight = sum.Seconds() / d.Seconds() / float64(len(w.lanes))
	return o
}

// cpu returns the processor time that the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// way is a process that forwards connections to the database.
type way struct {
	url   string
	close func()
}

// openWay starts the process that forwards connections.
func openWay(server *pgtest.Server, delay time.Duration) (*way, error) {
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), childVariable+"="+server.Addr()+" "+delay.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // the process ends when this pipe closes
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

	w := &way{close: func() {
		_ = in.Close()
		_ = cmd.Wait()
	}}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.close()
		return nil, err
	}
	u.Host = strings.TrimSpace(line)
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	w.url = u.String()
	return w, nil
}

// forward is the code of the process that forwards connections. It runs until its standard input
// ends.
func forward(context.Context, []string) error {
	target, text, _ := strings.Cut(os.Getenv(childVariable), " ")
	delay, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		database, err := net.Dial("tcp", target)
		if err != nil {
			return err
		}
		go carry(client, database, delay/2)
		go carry(database, client, delay/2)
	}
}

// carry forwards the bytes that one side sends. Each piece arrives after the delay, no matter how
// many pieces are on their way.
func carry(from, to net.Conn, delay time.Duration) {
	type piece struct {
		data []byte
		at   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{data[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()

	for p := range pieces {
		if delay > 0 {
			time.Sleep(time.Until(p.at))
		}
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}
