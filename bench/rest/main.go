// Command rest measures how fast a server on SQLite describes one execution over REST, to clients
// that keep their connections open. It measures an execution that has ended, one whose code no
// process has, one that executes a step, and one that sleeps and has left memory. Several builds of
// the server take turns:
//
//	go run ./rest -server /tmp/before,/tmp/after
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rest:", err)
		os.Exit(1)
	}
}

// settings are the settings of a measurement.
type settings struct {
	clients  int
	duration time.Duration
	rounds   int
	cases    []string
	park     time.Duration
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("rest", flag.ExitOnError)
	var s settings
	flags.IntVar(&s.clients, "clients", 64, "connections that make requests")
	flags.DurationVar(&s.duration, "duration", 3*time.Second, "length of one measurement")
	flags.IntVar(&s.rounds, "rounds", 3, "measurements of each case")
	flags.DurationVar(&s.park, "park", 15*time.Second, "how long to wait until a sleeping execution has left the memory of the server")
	servers := flags.String("server", "", "builds of the command perdure, separated by commas; built from this repository if empty")
	cases := flags.String("cases", "closed,no-code,busy,sleeping", "what to measure")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s.cases = strings.Split(*cases, ",")

	dir, err := os.MkdirTemp("", "perdure-rest-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	builds := strings.Split(*servers, ",")
	if *servers == "" {
		builds = []string{filepath.Join(dir, "perdure")}
		// The server has dependencies that this module does not have, so go build runs in the
		// module of the server.
		build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", builds[0], "./cmd/perdure")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the server: %w\n%s", err, out)
		}
	}
	return compare(ctx, dir, builds, &s)
}

// compare starts a server of each build, and measures them in turns.
func compare(ctx context.Context, dir string, builds []string, s *settings) error {
	var all []*server
	defer func() {
		for _, p := range all {
			p.stop()
		}
	}()
	for i, build := range builds {
		p, err := start(ctx, build, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		all = append(all, p)
		if err := p.prepare(ctx); err != nil {
			return fmt.Errorf("%s: %w", build, err)
		}
	}
	time.Sleep(s.park)

	fmt.Printf("%d clients, %s for each measurement\n\n", s.clients, s.duration)
	fmt.Println("| round | execution | server | requests/s | p50, p99 ms | CPU of the server + clients per request, µs |")
	fmt.Println("|---|---|---|---|---|---|")
	for round := range s.rounds {
		for _, what := range s.cases {
			for _, p := range all {
				o, err := p.measure(ctx, what, s)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, what, err)
				}
				fmt.Printf("| %d | %s | %s | %.0f | %.2f, %.2f | %.0f + %.0f |\n", round+1, what, p.name, o.rate, o.p50, o.p99, o.server, o.clients)
			}
		}
	}
	return nil
}

// server is a running server.
type server struct {
	name, address string
	cmd           *exec.Cmd
	app           *perdure.App
}

const adminKey = "a7Qk20xN4mZs81Lw93Vb65Ty"

var listening = regexp.MustCompile(`msg=serving address=([0-9.:]+)`)

// start starts a server and waits until it prints its address.
func start(ctx context.Context, build, dir string) (*server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(adminKey), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, build, "serve", "--store", "file:"+filepath.Join(dir, "perdure.db"), "--listen", "127.0.0.1:0", "--admin-key-file", key)
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	p := &server{name: filepath.Base(build), cmd: cmd}
	var log strings.Builder
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			p.address = found[1]
			go func() { _, _ = io.Copy(io.Discard, said) }() // discards the log of the server
			return p, nil
		}
		fmt.Fprintln(&log, lines.Text())
	}
	p.stop()
	return nil, fmt.Errorf("%s has ended: %s", build, log.String())
}

func (p *server) stop() {
	if p.app != nil {
		_ = p.app.Close() // an error does not matter: the server ends next
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	_ = p.cmd.Wait() // its exit status says nothing about the figures
}

// prepare starts one execution for each case, and a worker that has the code of two of them.
func (p *server) prepare(ctx context.Context) (err error) {
	endless := perdure.NewActivity("endless", func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	busy := perdure.NewWorkflow("busy", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return endless.Run(ctx, 0) })
	sleeping := perdure.NewWorkflow("sleeping", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return 0, ctx.Sleep(24 * time.Hour) })
	p.app, err = perdure.Dialer{Token: adminKey, DrainTimeout: time.Millisecond}.Dial(ctx, "grpc://"+p.address, endless, busy, sleeping)
	if err != nil {
		return err
	}

	for _, workflow := range []string{"closed", "no-code", "busy", "sleeping"} {
		if err := p.post(ctx, "/executions", fmt.Sprintf(`{"workflow": %q, "key": "1", "input": 1}`, workflow)); err != nil {
			return err
		}
	}
	return p.post(ctx, "/executions/closed/1/terminate", `{"reason": "measured"}`)
}

// describe is the request that is measured.
func (p *server) describe(workflow string) string {
	return fmt.Sprintf("GET /v1/executions/%s/1 HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", workflow, p.address, adminKey)
}

// post makes a request that must succeed.
func (p *server) post(ctx context.Context, path, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.address+"/v1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+adminKey)
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s: %s", path, got.Status, text)
	}
	return err
}

// outcome is what a measurement has found.
type outcome struct {
	rate, p50, p99  float64
	server, clients float64 // µs
}

// measure makes requests for a while.
func (p *server) measure(ctx context.Context, what string, s *settings) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	var mu sync.Mutex
	var times []time.Duration
	var wg sync.WaitGroup
	begun, serverCPU, ownCPU := time.Now(), cpuOf(p.cmd.Process.Pid), cpuOf(os.Getpid())
	for range s.clients {
		wg.Go(func() {
			took, failed := repeat(ctx, p.address, p.describe(what))
			mu.Lock()
			defer mu.Unlock()
			times, err = append(times, took...), errors.Join(err, failed)
		})
	}
	wg.Wait()

	if err != nil || len(times) == 0 {
		return o, errors.Join(err, errors.New("no request was answered"))
	}
	n := float64(len(times))
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(q*(n-1))].Seconds() * 1e3 }
	return outcome{
		rate: n / time.Since(begun).Seconds(), p50: at(0.5), p99: at(0.99),
		server: float64((cpuOf(p.cmd.Process.Pid) - serverCPU).Microseconds()) / n, clients: float64((cpuOf(os.Getpid()) - ownCPU).Microseconds()) / n,
	}, nil
}

// repeat makes one request after the other on one connection until ctx ends. It does little else,
// so that the figures show the cost of the server.
func repeat(ctx context.Context, address, request string) (times []time.Duration, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in, raw := bufio.NewReader(conn), []byte(request)
	for ctx.Err() == nil {
		begun := time.Now()
		if _, err := conn.Write(raw); err != nil {
			return times, err
		}
		got, err := http.ReadResponse(in, nil)
		if err != nil {
			return times, err
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil {
			return times, err
		}
		if got.StatusCode != http.StatusOK {
			return times, errors.New(got.Status)
		}
		times = append(times, time.Since(begun))
	}
	return times, nil
}

// ticks is how many units of processor time in /proc make a second.
const ticks = 100

// cpuOf returns the processor time of a process.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks
}
