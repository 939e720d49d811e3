package txtest_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/embedded"
)

// Environment variables that configure a victim, which is a process that the test kills.
const (
	envEngine = "PERDURE_TX_ENGINE"
	envBank   = "PERDURE_TX_BANK"
	envKind   = "PERDURE_TX_KIND"
	envCount  = "PERDURE_TX_COUNT"
)

// transfers returns the transfers that every victim starts. Starting a transfer again has no
// effect.
func transfers(n int) (all []transfer) {
	for i := range n {
		all = append(all, transfer{fmt.Sprintf("t%d", i), i % accounts, (i*7 + 1) % accounts, 1 + i%50})
	}
	return all
}

// stage replaces the testing.T in a victim, because the main function of a process has no
// testing.T.
type stage struct{ testing.TB }

func (stage) Helper()                  {}
func (stage) Context() context.Context { return context.Background() }
func (stage) Cleanup(func())           {}
func (stage) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }

// victim is the main function of a process that works until everything is done or it is killed.
func victim() int {
	b := &bank{t: stage{}, kind: os.Getenv(envKind), url: os.Getenv(envBank)}
	n, _ := strconv.Atoi(os.Getenv(envCount))
	app, err := embedded.Config{AllowUnsafe: true, LeaseTTL: time.Second}.Open(context.Background(), os.Getenv(envEngine), quick, b.bind(settle, newFaults(), move))
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}

	fmt.Println("up")
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, x := range transfers(n) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for {
				if _, err := quick.Run(app.With(context.Background()), x); err == nil {
					return
				}
			}
		})
	}

	wg.Wait()
	fmt.Println("done")
	return 0
}

// process is a running victim.
type process struct {
	cmd   *exec.Cmd
	lines chan string
}

func spawn(t *testing.T, engine string, b *bank, n int) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), envEngine+"="+engine, envBank+"="+b.url, envKind+"="+b.kind, envCount+"="+strconv.Itoa(n))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	check(t, err, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// awaitLine waits until the victim prints the word. It returns false if the victim has ended.
func (p *process) awaitLine(t *testing.T, word string) bool {
	t.Helper()
	for end := time.After(4 * patience); ; {
		select {
		case line, ok := <-p.lines:
			if !ok || line == word {
				return ok
			}
			t.Logf("victim: %s", line)
		case <-end:
			t.Fatalf("a victim does not say %q", word)
		}
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) end(s syscall.Signal) {
	p.signal(s)
	p.signal(syscall.SIGCONT)
	_ = p.cmd.Wait()
}

// massacre starts processes and kills them at random moments. On PostgreSQL it only stops two of
// the processes, and wakes them when other processes have taken over.
func massacre(t *testing.T, n, kills int) {
	t.Parallel()
	for _, c := range []struct{ engine, bank string }{{"postgres", "pgx"}, {"postgres", "sqlite"}, {"sqlite", "pgsql"}, {"sqlite", "sqlite"}} {
		t.Run(c.engine+"/"+c.bank, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, c.bank)
			engine := storeURL(t, c.engine)
			rnd := rand.New(rand.NewPCG(7, uint64(n)))

			var asleep []*process
			for range kills {
				p := spawn(t, engine, b, n)
				if !p.awaitLine(t, "up") {
					t.Fatal("the victim did not start")
				}
				// a random moment for the kill
				time.Sleep(time.Duration(20+rnd.IntN(200)) * time.Millisecond)
				if c.engine == "postgres" && len(asleep) < 2 {
					p.signal(syscall.SIGSTOP)
					asleep = append(asleep, p)
					continue
				}
				p.end(syscall.SIGKILL)
			}

			last := spawn(t, engine, b, n)
			if len(asleep) > 0 { // wait until their leases have expired
				time.Sleep(1500 * time.Millisecond)
				for _, p := range asleep {
					p.signal(syscall.SIGCONT)
				}
			}

			if !last.awaitLine(t, "done") {
				t.Fatal("the last process has not finished all transfers")
			}

			for _, p := range asleep {
				if !p.awaitLine(t, "done") {
					t.Error("a process that was woken ended before it had finished all transfers")
				}
			}

			b.check(transfers(n))
		})
	}
}

func TestKilledProcesses(t *testing.T) { massacre(t, 300, 4) }

func isVictim() bool { return strings.TrimSpace(os.Getenv(envEngine)) != "" }
