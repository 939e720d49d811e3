package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

const (
	envVictim = "PERDURE_CHAOS_STORE"
	envLedger = "PERDURE_CHAOS_LEDGER"
	envCount  = "PERDURE_CHAOS_COUNT"
	envLease  = "PERDURE_CHAOS_LEASE"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envVictim); url != "" {
		os.Exit(victim(url))
	}
	os.Exit(pgtest.Main(m).Run())
}

// victim is the process that gets killed: it drives the workload once and ends.
func victim(url string) int {
	n, _ := strconv.Atoi(os.Getenv(envCount))
	lease, _ := time.ParseDuration(os.Getenv(envLease))
	ctx := context.Background()
	app, err := embedded.Config{
		LeaseTTL: lease, AllowUnsafe: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}.Open(ctx, url, definitions(ledger{os.Getenv(envLedger)}))
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	fmt.Println("up")
	if err := drive(ctx, app, n); err != nil {
		fmt.Println("drive:", err)
		return 1
	}
	fmt.Println("driven")
	if err := app.Close(); err != nil {
		fmt.Println("close:", err)
		return 1
	}
	return 0
}

// process is a running victim.
type process struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	up   chan struct{}
	done chan struct{}
	err  error

	mu  sync.Mutex
	log strings.Builder
}

func spawn(t *testing.T, url string, l ledger, n int, lease time.Duration) *process {
	t.Helper()
	p := &process{t: t, url: url, cmd: exec.Command(os.Args[0]), up: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envVictim+"="+url, envLedger+"="+l.path, envCount+"="+strconv.Itoa(n), envLease+"="+lease.String())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(out)
	t.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.done })
	return p
}

// Write collects the log of the process.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "up" {
			close(p.up)
		}
		fmt.Fprintln(p, lines.Text())
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) signal(s syscall.Signal) {
	// The process may have ended already, which is as good.
	_ = p.cmd.Process.Signal(s)
}

// kill ends the process without a chance to say goodbye.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// finish waits until the process has driven the whole workload.
func (p *process) finish(within time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		stuck := openExecutions(p.t, p.url)
		p.signal(syscall.SIGQUIT) // shows where it hangs
		<-p.done
		p.t.Fatalf("the workload did not end within %s:\n%s\n%s", within, stuck, p.text())
	}
	if p.err != nil {
		p.t.Fatalf("victim: %v\n%s", p.err, p.text())
	}
	for _, bad := range []string{"panic:", "DATA RACE"} {
		if strings.Contains(p.text(), bad) {
			p.t.Fatalf("victim said %q:\n%s", bad, p.text())
		}
	}
}

// killRounds kills a process again and again while it works, then lets one finish.
func killRounds(t *testing.T, url string, rounds, n int) {
	t.Helper()
	l := ledger{filepath.Join(t.TempDir(), "ledger")}
	for r := range rounds {
		p := spawn(t, url, l, n, 10*time.Second)
		select {
		case <-p.up:
		case <-p.done:
		}
		select {
		case <-p.done: // it was quick
		case <-time.After(time.Duration(rand.IntN(120)) * time.Millisecond):
			p.kill()
		}
		if t.Failed() {
			t.Fatalf("round %d", r)
		}
	}
	spawn(t, url, l, n, 10*time.Second).finish(15 * time.Second)
	verify(t, url, n, l)
}

func TestKillRoundsSQLite(t *testing.T) {
	t.Parallel()
	killRounds(t, "file:"+filepath.Join(t.TempDir(), "chaos.db"), 5, 20)
}

func TestKillRoundsPostgres(t *testing.T) {
	t.Parallel()
	killRounds(t, pgtest.URL(t), 5, 20)
}

// A process that is stopped past its lease loses its shards to another one. When it wakes, it neither commits nor disturbs.
func TestStoppedOwnerIsFenced(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := ledger{filepath.Join(t.TempDir(), "ledger")}
	const n, lease = 60, 2 * time.Second
	first := spawn(t, url, l, n, lease)
	<-first.up
	time.Sleep(30 * time.Millisecond) // somewhere in the middle of its work
	first.signal(syscall.SIGSTOP)
	second := spawn(t, url, l, n, lease)
	second.finish(15 * time.Second)
	first.signal(syscall.SIGCONT)
	first.finish(15 * time.Second) // finds itself fenced, starts over, and hears that all is done
	verify(t, url, n, l)
}

// Two processes on one database share the shards and serve each other's executions.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := ledger{filepath.Join(t.TempDir(), "ledger")}
	const n = 30
	first, second := spawn(t, url, l, n, 10*time.Second), spawn(t, url, l, n, 10*time.Second)
	first.finish(15 * time.Second)
	second.finish(15 * time.Second)
	verify(t, url, n, l)
}
