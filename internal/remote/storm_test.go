package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// storm is a program whose server dies again and again. The program records every run of a body.
type storm struct {
	slow time.Duration // the longest time that a body takes
	defs []perdure.Definition
	mix  *perdure.Workflow[int, int]
	fund *perdure.Entity[int]

	mu      sync.Mutex
	runs    map[string]int  // how often each body began
	running map[string]bool // bodies that run
	caught  map[string]bool // bodies that ran when a server died
}

const accounts = 20

var stormGo = perdure.NewSignal[int]("go")

func newStorm(slow time.Duration) *storm {
	s := &storm{slow: slow, runs: map[string]int{}, running: map[string]bool{}, caught: map[string]bool{}}
	once := perdure.RetryPolicy{MaxAttempts: 1}
	body := func(name string, opts ...perdure.ActivityOption) *perdure.Activity[int, int] {
		return perdure.NewActivity(name, func(ctx context.Context, n int) (int, error) { return n + 1, s.body(ctx, fmt.Sprint(name, n)) }, append(opts, once)...)
	}
	one, left, right, task := body("one"), body("left"), body("right"), body("task", perdure.OnQueue("slow"))
	s.fund = perdure.NewEntity[int]("fund")
	deposit := perdure.NewOperation(s.fund, "deposit", func(_ perdure.EntityCtx, balance *int, n int) (int, error) {
		*balance++
		return n + 1, s.body(context.Background(), fmt.Sprint("deposit", n)) //perdure:allow clock the call must take some time
	})
	child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if err := ctx.Sleep(time.Millisecond); err != nil {
			return 0, err
		}
		return task.Run(ctx, n)
	})

	s.mix = perdure.NewWorkflow("mix", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		sum, err := one.Run(ctx, n)
		if err != nil {
			return 0, err
		}
		kid, err := child.Start(ctx, n)
		if err != nil {
			return 0, err
		}

		for _, f := range []*perdure.Future[int]{left.Go(ctx, n), right.Go(ctx, n), kid.Future(ctx)} {
			m, err := f.Get(ctx)
			if err != nil {
				return 0, err
			}
			sum += m
		}

		extra, err := stormGo.Receive(ctx)
		if err != nil {
			return 0, err
		}
		m, err := deposit.Call(ctx, fmt.Sprint(n%accounts), n)

		return sum + m + extra, err
	})
	s.defs = []perdure.Definition{one, left, right, task, s.fund, child, s.mix}
	return s
}

// body takes some time. storm records that it runs.
func (s *storm) body(ctx context.Context, id string) error {
	s.mu.Lock()
	s.runs[id]++
	s.running[id] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, id)
	}()
	select {
	case <-time.After(rand.N(s.slow)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// strike ends a server. No body ends between the count of running bodies and the signal.
func (s *storm) strike(t *testing.T, p *process, sig os.Signal) {
	t.Helper()
	s.mu.Lock()
	for id := range s.running {
		s.caught[id] = true
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Error(err)
	}
	s.mu.Unlock()
	_ = p.cmd.Wait()
}

// storms configures a storm.
type storms struct {
	workers, executions, rounds int
	slow, calm                  time.Duration // longest body; average pause before the server dies
	seed                        uint64
}

// blow runs executions on workers while the server is killed and restarted. It checks the results,
// that each deposit took effect once, and that no running activity was repeated.
func blow(t *testing.T, store string, c storms) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(c.seed, 1))
	s := newStorm(c.slow)
	p := &process{store: store, listen: freePort(t)}
	p.start(t)
	defer func() { p.stop(t, syscall.SIGKILL) }()
	rejoined := newCounter()
	dial := func(defs ...perdure.Definition) *perdure.App {
		d := perdure.Dialer{Logger: slog.New(rejoined)}
		app, err := d.Dial(t.Context(), "grpc://"+p.listen, defs...)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	client := dial()
	defer func() { _ = client.Close() }()
	apps := make([]*perdure.App, c.workers)
	var all sync.WaitGroup
	for i := range apps {
		apps[i] = dial(s.defs...)
	}
	defer func() {
		for _, a := range apps {
			all.Go(func() { _ = a.Close() })
		}
		all.Wait()
	}()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	errs := make(chan error, c.executions)
	for n := range c.executions {
		all.Go(func() { errs <- s.execute(client.With(ctx), n) })
	}
	for range c.rounds {
		time.Sleep(c.calm/2 + time.Duration(rnd.Int64N(int64(c.calm))))
		sig := []os.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}[rnd.IntN(3)]
		rejoined.reset()
		begun := time.Now()
		s.strike(t, p, sig)
		gone := time.Since(begun)
		p.start(t)
		up := time.Since(begun)
		if err := rejoined.wait(ctx, c.workers); err != nil {
			t.Fatalf("%v after %v: %d of %d workers have come back", err, sig, rejoined.count(), c.workers)
		}
		t.Logf("%v: the server was gone after %s and up after %s; all %d workers were back after %s", sig, gone.Round(time.Millisecond), up.Round(time.Millisecond), c.workers, time.Since(begun).Round(time.Millisecond))
	}

	for range c.executions {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s.check(ctx, t, client, c.executions)
}

// execute runs one execution.
func (s *storm) execute(ctx perdure.Client, n int) error {
	e, err := s.mix.Start(ctx, n, perdure.HashKey(n))
	if err != nil {
		return fmt.Errorf("start %d: %w", n, err)
	}
	if err := stormGo.Send(ctx, e, 7); err != nil {
		return fmt.Errorf("signal %d: %w", n, err)
	}
	if got, err := e.Result(ctx); err != nil || got != 5*(n+1)+7 {
		return fmt.Errorf("execution %d: %d, %w; want %d", n, got, err, 5*(n+1)+7)
	}
	return nil
}

// check counts the bodies, and the deposits that took effect.
func (s *storm) check(ctx context.Context, t *testing.T, client *perdure.App, executions int) {
	t.Helper()
	total := 0
	for i := range accounts {
		balance, _, err := s.fund.Get(client.With(ctx), fmt.Sprint(i))
		if err != nil {
			t.Error(err)
		}
		total += balance
	}
	if total != executions {
		t.Errorf("%d deposits took effect, want %d", total, executions)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	twice, again := 0, 0
	for id, n := range s.runs {
		switch {
		case n > 1 && s.caught[id] && strings.HasPrefix(id, "deposit"):
			again++ // the next server may group the calls differently, so some run again
		case n > 1 && s.caught[id]:
			t.Errorf("body %s ran when the server died, and ran %d times", id, n)
		case n > 1:
			twice++
		}
	}
	t.Logf("%d bodies, %d of them ran when a server died; repeated: %d bodies that had ended, %d deposits that ran", len(s.runs), len(s.caught), twice, again)
	if len(s.caught) == 0 {
		t.Error("no server died while a body ran")
	}
}

// counter reads the log, and counts the workers that have joined again.
type counter struct {
	slog.Handler

	mu   sync.Mutex
	n    int
	news chan struct{}
}

func newCounter() *counter {
	return &counter{Handler: slog.DiscardHandler, news: make(chan struct{}, 1)}
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *counter) WithGroup(string) slog.Handler            { return c }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "the server has lost the session of this worker; the worker joins again" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n++
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
	return nil
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = 0
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) wait(ctx context.Context, n int) error {
	for c.count() < n {
		select {
		case <-c.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// A server dies twice while three workers are busy. Each execution ends with the right result, and
// each deposit takes effect once. No running activity is repeated; a running operation may be.
func TestServerDiesUnderLoad(t *testing.T) {
	t.Parallel()
	blow(t, "file:"+filepath.Join(t.TempDir(), "server.db"), storms{workers: 3, executions: 60, rounds: 2, slow: 300 * time.Millisecond, calm: 200 * time.Millisecond, seed: 1})
}
