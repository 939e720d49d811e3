package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// program is code that only one process has: a workflow with an activity, a query, an update and a
// signal, an entity, and an activity on its own queue.
type program struct {
	flow   *perdure.Workflow[int, int]
	stage  *perdure.Query[perdure.Void, string]
	add    *perdure.Update[int, int]
	finish *perdure.Signal[int]

	counters *perdure.Entity[int]
	count    *perdure.Operation[int, int]
	look     *perdure.Operation[perdure.Void, int]

	bodies atomic.Int64
	begun  chan int      // gets a value for each body that begins; nil if no test reads it
	goOn   chan struct{} // lets bodies end; nil lets them end immediately
	own    *perdure.Activity[int, int]
}

func newProgram(name string) *program {
	p := &program{
		stage: perdure.NewQuery[perdure.Void, string]("stage"), add: perdure.NewUpdate[int, int]("add"), finish: perdure.NewSignal[int]("finish"),
		counters: perdure.NewEntity[int]("counter-"+name, perdure.OperationTimeout(time.Hour)),
	}
	p.count = perdure.NewOperation(p.counters, "count", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	p.look = perdure.NewView(p.counters, "look", func(s int, _ perdure.Void) (int, error) { return s, nil })
	p.own = perdure.NewActivity("double-"+name, func(_ context.Context, n int) (int, error) { return 2 * n, nil }, perdure.OnQueue("queue-"+name))
	step := perdure.NewActivity("step-"+name, func(_ context.Context, n int) (int, error) {
		p.bodies.Add(1)
		if p.begun != nil {
			p.begun <- n
			<-p.goOn
		}
		return n + 1, nil
	})

	p.flow = perdure.NewWorkflow("flow-"+name, func(ctx perdure.WorkflowCtx, n int) (int, error) {
		sum := 0
		p.stage.Handle(ctx, func(perdure.Void) (string, error) { return fmt.Sprint("sum ", sum), nil })
		p.add.Handle(ctx, func(_ perdure.WorkflowCtx, n int) (int, error) {
			sum += n
			return sum, nil
		})
		a, err := step.Run(ctx, n)
		if err != nil {
			return 0, err
		}
		b, err := p.own.Run(ctx, a)
		if err != nil {
			return 0, err
		}
		sum += b
		c, err := p.finish.Receive(ctx)
		return sum + c, err
	}, perdure.Uses(step, p.own))
	return p
}

func (p *program) definitions() []perdure.Definition {
	return []perdure.Definition{p.flow, p.counters, p.own}
}

// Two programs without common code share a database. Everything works from both programs, no matter
// which process owns the shard: over connections, and through the store without connections.
func TestDifferentCode(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprint("linked ", linked), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "postgres")
			s.cfg.NoPeerLink = !linked
			programs := []*program{newProgram("a"), newProgram("b")}
			var apps []*perdure.App
			for _, p := range programs {
				apps = append(apps, s.open(p.definitions()...))
			}

			const each = 12
			var wg sync.WaitGroup
			for i := range each {
				for j, p := range programs {
					wg.Go(func() { p.exercise(t, apps[(i+j)%2], fmt.Sprint("k", i), i) })
				}
			}
			wg.Wait()
			for _, p := range programs {
				if n := p.bodies.Load(); n != each {
					t.Errorf("%d bodies ran, want %d", n, each)
				}
			}
		})
	}
}

// exercise uses everything that a program has, from an app.
func (p *program) exercise(t *testing.T, app *perdure.App, key string, n int) {
	c := caller(t, app)
	exec, err := p.flow.Start(c, n, perdure.RawKey(key))
	if err != nil {
		t.Error(key, err)
		return
	}
	got, err := p.add.Call(c, exec, 5)
	if err != nil || got != 5 && got != 5+2*(n+1) {
		t.Errorf("%s: an update returned %d, %v", key, got, err)
	}
	if text, err := p.stage.Ask(c, exec, perdure.Void{}); err != nil || text == "" {
		t.Errorf("%s: a query returned %q, %v", key, text, err)
	}
	if err := p.finish.Send(c, exec, 100); err != nil {
		t.Errorf("%s: %v", key, err)
	}
	sum, err := exec.Result(c)
	equal(t, key+": the result", sum, err, 105+2*(n+1))
	if _, err := p.stage.Ask(c, exec, perdure.Void{}); err != nil {
		t.Errorf("%s: a query after the end: %v", key, err)
	}

	for i := range 3 {
		sum, err := p.count.Call(c, key, 2)
		equal(t, key+": a call", sum, err, 2*(i+1))
	}
	sum, err = p.look.Call(c, key, perdure.Void{})
	equal(t, key+": a view", sum, err, 6)
}

// envCrew has the URL of the store for TestCrewProcess.
const envCrew = "PERDURE_E2E_CREW"

// TestCrewProcess is a process with the code of program b. It serves until it is killed.
func TestCrewProcess(t *testing.T) {
	url := os.Getenv(envCrew)
	if url == "" {
		t.Skip("it is a process of TestKilledProcessWithOtherCode")
	}
	s := &site{t: t, kind: "postgres", url: url}
	s.cfg.AllowUnsafe = true
	s.open(newProgram("b").definitions()...)
	fmt.Println("\nready")
	select {}
}

// spawn starts a process with the code of program b, and returns when it serves. The returned
// function kills the process with signal 9.
func (s *site) spawn() (kill func()) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), os.Args[0], "-test.run=^TestCrewProcess$")
	cmd.Env = append(os.Environ(), envCrew+"="+s.url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	if err := lines.Err(); err != nil {
		s.t.Fatal(err)
	}

	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // fails, because the process was killed
		})
	}
	s.t.Cleanup(kill)
	return kill
}

// Two real processes have different code. The test kills one process while the other one runs
// bodies for runs that the killed process owns. No body starts a second time. The executions of the
// killed process say that no process has their code. They end when the process is back.
func TestKilledProcessWithOtherCode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	a, b := newProgram("a"), newProgram("b")
	const each = 12
	a.begun, a.goOn = make(chan int, 2*each), make(chan struct{})
	app := s.open(a.definitions()...)
	kill := s.spawn()
	b.exercise(t, app, "before", 1)

	// Which process owns which execution is random; with 12 keys each process owns some.
	var here, there []perdure.Execution[int]
	for i := range each {
		here = append(here, mustStart(t, caller(t, app), a.flow, i, perdure.RawKey(fmt.Sprint("k", i))))
		there = append(there, mustStart(t, caller(t, app), b.flow, i, perdure.RawKey(fmt.Sprint("k", i))))
	}
	for range each {
		<-a.begun
	}
	kill()

	for _, exec := range there {
		eventually(t, "the reason says that no process has the code", func() bool {
			d, err := app.Executions().Describe(t.Context(), exec)
			return err == nil && strings.Contains(d.Reason, "no live process")
		})
	}
	close(a.goOn)
	finish(t, app, a, here)
	if n := a.bodies.Load(); n != each {
		t.Errorf("%d bodies of program a began, want %d", n, each)
	}
	s.spawn()
	finish(t, app, b, there)
}

// finish lets executions end and checks their results.
func finish(t *testing.T, app *perdure.App, p *program, all []perdure.Execution[int]) {
	t.Helper()
	for i, exec := range all {
		if err := p.finish.Send(caller(t, app), exec, 100); err != nil {
			t.Error(err)
		}
		sum, err := exec.Result(caller(t, app))
		equal(t, exec.Ref.Workflow, sum, err, 100+2*(i+1))
	}
}
