package chaos_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

const (
	envVictim = "PERDURE_CHAOS_STORE"
	envLedger = "PERDURE_CHAOS_LEDGER"
	envCount  = "PERDURE_CHAOS_COUNT"
	envLease  = "PERDURE_CHAOS_LEASE"
	envProbe  = "PERDURE_CHAOS_PROBE" // repeatedly ask what the execution probe waits for
	envServe  = "PERDURE_CHAOS_SERVE" // work under this prefix until SIGTERM
	envIdle   = "PERDURE_CHAOS_IDLE"  // do nothing until SIGTERM
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envVictim); url != "" {
		if role := os.Getenv(envRole); role != "" {
			os.Exit(play(role, url))
		}
		os.Exit(victim(url))
	}
	// Most of these tests spend their time waiting for a lease or a timer.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m).Run())
}

// victim is the main function of the process that gets killed. It runs the workload once and ends,
// or works until it gets a signal.
func victim(url string) int {
	n, _ := strconv.Atoi(os.Getenv(envCount))
	lease, _ := time.ParseDuration(os.Getenv(envLease))
	ctx := context.Background()
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	cfg := embedded.Config{LeaseTTL: lease}
	if os.Getenv(envProbe) != "" {
		cfg = keeping(lease)
	}
	cfg.AllowUnsafe, cfg.Logger = true, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	l := ledger{os.Getenv(envLedger)}
	defs := definitions(l)
	if os.Getenv(envTasks) != "" {
		defs = taskDefinitions(true, os.Getenv(envNoRest) == "")
	}
	if side := os.Getenv(envLend); side != "" {
		defs = lendDefinitions(side, l)
	}
	if os.Getenv(envBank) != "" {
		defs = bankDefinitions()
	}
	if mode := os.Getenv(envPersisted); mode != "" {
		defs = hookDefinitions(mode == "dies")
	}
	if os.Getenv(envBomb) != "" {
		defs = bombDefinitions()
	}
	if os.Getenv(envInline) != "" {
		defs = heldForever()
	}
	if os.Getenv(envSingleton) != "" {
		defs = perdure.Group{stepper(l)}
	}
	if member := os.Getenv(envDatabase); member != "" {
		defs = purseDefinitions()
		cfg.Databases, cfg.Groups = map[string]string{"eu": member}, []string{"default", "eu"}
	}
	app, err := cfg.Open(ctx, url, defs)
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}

	if os.Getenv(envProbe) != "" {
		if err := watchProbe(ctx, app); err != nil {
			fmt.Println("probe:", err)
			return 1
		}
	}

	fmt.Println("up")
	if mode := os.Getenv(envBomb); mode != "" {
		settle := settleBombs
		if mode == "deposits" {
			settle = settleDeposits
		}
		if err := settle(ctx, app); err != nil {
			fmt.Println("bomb:", err)
			return 1
		}
		<-terminate
	} else if os.Getenv(envIdle) != "" || os.Getenv(envTasks) != "" || os.Getenv(envLend) != "" || os.Getenv(envInline) != "" || os.Getenv(envSingleton) != "" || os.Getenv(envDatabase) != "" {
		<-terminate
	} else if os.Getenv(envPersisted) != "" {
		callAndDie(ctx, app, terminate)
	} else if prefix := os.Getenv(envBank); prefix != "" {
		serveBank(ctx, app, l, prefix, terminate)
	} else if prefix := os.Getenv(envServe); prefix != "" {
		serve(ctx, app, l, prefix, terminate)
	} else if err := drive(ctx, app, l, n); err != nil {
		fmt.Println("drive:", err)
		return 1
	} else if fmt.Println("driven"); os.Getenv(envProbe) != "" {
		<-terminate // the probe goes on
	}

	if err := app.Close(); err != nil {
		fmt.Println("close:", err)
		return 1
	}

	fmt.Println("closed")
	return 0
}

// serve works until it gets a signal. It does not wait for calls that are open at that time.
func serve(ctx context.Context, app *perdure.App, l ledger, prefix string, terminate <-chan os.Signal) {
	w := startLoad(ctx, app, l, prefix, 8)
	for range w.progress {
		fmt.Println("done", w.done.Load())
		select {
		case <-terminate:
			close(w.stopping)
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, err := range w.errs {
				fmt.Println("caller heard:", err)
			}
			fmt.Println("begun", w.begun.Load())
			return
		default:
		}
	}
}

// watchProbe repeatedly asks what the execution probe waits for. It prints the first answer from
// memory. After the process has been stopped and continued, it prints every answer to a later
// question.
func watchProbe(ctx context.Context, app *perdure.App) error {
	probe, err := stages.Start(app.With(ctx), "", perdure.RawKey("probe"))
	if err != nil {
		return err
	}
	var last atomic.Int64
	var woken atomic.Bool
	var said sync.Once
	var answers atomic.Int64
	last.Store(time.Now().UnixNano())

	for range 4 {
		go func() {
			for {
				now := time.Now().UnixNano()
				if now-last.Swap(now) > int64(time.Second) {
					woken.Store(true)
				}
				after := woken.Load()
				info, err := app.Executions().Describe(ctx, probe)
				switch {
				case err == nil && after:
					fmt.Printf("probe after waking %d: %s\n", answers.Add(1), info.Reason)
				case err == nil && strings.Contains(info.Reason, stageOne):
					said.Do(func() { fmt.Println("probe is up") })
				}
			}
		}()
	}

	return nil
}

// process is a running victim.
type process struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	up   chan struct{}
	done chan struct{}
	err  error

	mu   sync.Mutex
	log  strings.Builder
	news chan struct{} // closed and replaced with every line
}

// duty configures a victim: its ledger, how many executions of each kind it drives, and the lease
// of its node.
type duty struct {
	ledger ledger
	count  int
	lease  time.Duration
}

// spawn starts a victim on a store. env has further variables of the form NAME=value.
func spawn(t *testing.T, url string, d duty, env ...string) *process {
	t.Helper()
	return spawnFrom(t, os.Args[0], url, d, env...)
}

// spawnFrom is spawn with the test binary of another build.
//
//arch:parameters these are the parameters of spawn and a binary
func spawnFrom(t *testing.T, binary, url string, d duty, env ...string) *process {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), envVictim+"="+url, envLedger+"="+d.ledger.path, envCount+"="+strconv.Itoa(d.count), envLease+"="+d.lease.String())
	cmd.Env = append(cmd.Env, env...)
	return launch(t, url, cmd)
}

// launch starts a command. url is the store on which the process works.
func launch(t *testing.T, url string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, url: url, cmd: cmd, up: make(chan struct{}), done: make(chan struct{}), news: make(chan struct{})}
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
	close(p.news)
	p.news = make(chan struct{})
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

// awaitLine waits for a line with this prefix and returns the rest of the line.
func (p *process) awaitLine(line string, within time.Duration) string {
	p.t.Helper()
	return p.await("\n"+line, within)
}

// await waits until the process has printed a text, and returns the rest of the line.
func (p *process) await(text string, within time.Duration) string {
	p.t.Helper()
	limit := time.After(within)
	for {
		p.mu.Lock()
		news, all := p.news, "\n"+p.log.String()
		p.mu.Unlock()
		if _, rest, ok := strings.Cut(all, text); ok {
			if rest, _, ok = strings.Cut(rest, "\n"); ok {
				return strings.TrimSpace(rest)
			}
		}
		select {
		case <-news:
		case <-limit:
			p.t.Fatalf("the process did not say %q within %s:\n%s\n%s", strings.TrimSpace(text), within, openExecutions(p.t, p.url), p.text())
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	// The process may have ended already, which is fine.
	_ = p.cmd.Process.Signal(s)
}

// kill ends the process, which has no chance to deregister.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// ending returns how the process has ended.
func (p *process) ending() syscall.WaitStatus {
	<-p.done
	how, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return how
}

// comesUp waits until the process is up and handles signals. It returns false if the process has
// ended.
func (p *process) comesUp(within time.Duration) bool {
	p.t.Helper()
	select {
	case <-p.up:
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("the process did not come up within %s:\n%s", within, p.text())
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// retire asks the process to end, and waits until it has ended.
func (p *process) retire(within time.Duration) {
	p.t.Helper()
	p.comesUp(within)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("the process did not end within %s:\n%s", within, p.text())
	}
}

// finish waits until the process has driven the whole workload.
func (p *process) finish(within time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		stuck := openExecutions(p.t, p.url)
		p.signal(syscall.SIGQUIT) // makes the process print its stacks
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

// A process that is stopped past its lease loses its shards to another process. When it continues,
// it commits nothing, disturbs no other process, and answers no question from its memory, which is
// out of date.
func TestStoppedOwnerIsFenced(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := newLedger(t)
	const n, lease = 40, 2 * time.Second
	first := spawn(t, url, duty{l, n, lease}, envProbe+"=1")
	first.awaitLine("up", 3*time.Minute)
	first.awaitLine("probe is up", 3*time.Minute)
	first.signal(syscall.SIGSTOP) // somewhere in the middle of its work
	second := openAppWith(t, url, l, keeping(lease))
	if err := drive(t.Context(), second.app, l, n); err != nil {
		t.Fatal(err)
	}

	c := second.app.With(t.Context())
	probe := stages.Execution(perdure.RawKey("probe"))
	if err := firstStage.Send(c, probe, ""); err != nil {
		t.Fatal(err)
	}
	describe(t, second.app, probe, stageTwo)
	first.signal(syscall.SIGCONT)
	// The first process finds out that it was fenced, starts over, and finds that everything is
	// done.
	for _, text := range []string{"probe after waking 1:", "the node lost its lease", "driven"} {
		first.await(text, 3*time.Minute)
	}
	first.signal(syscall.SIGTERM)
	first.finish(3 * time.Minute)

	if text := first.text(); regexp.MustCompile(`probe after waking \d+: ` + stageOne).MatchString(text) {
		t.Errorf("the process answered from memory after it had been stopped past its lease:\n%s", text)
	}

	if err := secondStage.Resolve(c, probe, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := probe.Result(c); err != nil {
		t.Fatal(err)
	}
	verify(t, url, n, l)
}

// Two processes on one database share the shards and serve each other's executions.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := newLedger(t)
	const n = 30
	first, second := spawn(t, url, duty{l, n, 10 * time.Second}), spawn(t, url, duty{l, n, 10 * time.Second})
	first.finish(3 * time.Minute)
	second.finish(3 * time.Minute)
	verifyOnce(t, verify(t, url, n, l))
}

// entities-workflows §17.9: three processes start the same executions at the same time, and the
// test kills one of them during the work. The others get the same results.
func TestThreeRunnersOneDies(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := newLedger(t)
	const n = 20
	var all [3]*process
	for i := range all {
		all[i] = spawn(t, url, duty{l, n, 10 * time.Second})
	}
	all[0].awaitLine("up", 3*time.Minute)
	time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // a random time during the work
	all[0].kill()
	all[1].finish(3 * time.Minute)
	all[2].finish(3 * time.Minute)
	verify(t, url, n, l)
}

// The test replaces two processes, one after the other, while both work. The callers of the
// remaining process get no errors, and no step runs twice: the stopping process waits for its
// running steps and hands over the rest (entities-workflows §17.17, §17.8).
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := newLedger(t)
	const lease = 20 * time.Second // long enough that no node loses it on a busy machine
	begun := map[string]int{}
	start := func(prefix string) *process {
		p := spawn(t, url, duty{l, 0, lease}, envServe+"="+prefix)
		p.awaitLine("up", 3*time.Minute)
		return p
	}
	stop := func(prefix string, p *process) {
		t.Helper()
		p.signal(syscall.SIGTERM)
		n, err := strconv.Atoi(p.awaitLine("begun", 3*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		p.finish(3 * time.Minute)
		if strings.Contains(p.text(), "caller heard:") {
			t.Errorf("callers of process %s heard errors:\n%s", prefix, p.text())
		}
		if strings.Contains(p.text(), "lost its lease") {
			t.Errorf("process %s lost its lease:\n%s", prefix, p.text())
		}
		begun[prefix] = n
	}
	a, b := start("a"), start("b")
	a.awaitLine("done 1", 3*time.Minute)
	b.awaitLine("done 1", 3*time.Minute)
	stop("a", a)
	a = start("A")
	a.awaitLine("done 1", 3*time.Minute)
	stop("b", b)
	b = start("B")
	b.awaitLine("done 1", 3*time.Minute)
	stop("A", a)
	stop("B", b)

	// Other callers finish the executions of callers that are gone.
	last := openApp(t, url, l, lease)
	var wg sync.WaitGroup
	total := 0
	for prefix, n := range begun {
		total += n
		for i := range n {
			wg.Go(func() {
				if err := driveOne(last.app.With(t.Context()), l, prefix, i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	verifyOnce(t, verify(t, url, total, l))
}
