package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
)

const (
	envTasks  = "PERDURE_CHAOS_TASKS"  // execute tasks until SIGTERM
	envNoRest = "PERDURE_CHAOS_NOREST" // the process does not bind the kind rest
)

// jobs and rest are two kinds of tasks. One in twenty jobs is poison: it always fails, panics, or
// kills its process.
func taskDefinitions(victim, both bool) perdure.Group {
	jobs := perdure.NewActivity("jobs", func(ctx context.Context, n int) (int, error) {
		switch {
		case n%20 != 0:
		case n%60 == 0:
			return 0, fmt.Errorf("job %d always fails", n)
		case n%60 == 20:
			panic(fmt.Sprint("job ", n, " panics"))
		case n%600 == 40 && victim:
			os.Exit(3)
		default:
			return 0, perdure.Permanent(errors.New("no use"))
		}

		select {
		case <-time.After(time.Duration(n%7) * time.Millisecond):
			return n, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}, perdure.OnQueue("work"), perdure.Constant(3, 5*time.Millisecond), perdure.AttemptTimeout(fireTimeout), perdure.HeartbeatTimeout(5*time.Second))

	rest := perdure.NewActivity("rest", func(context.Context, int) (int, error) { return 0, nil }, perdure.OnQueue("work"), perdure.AttemptTimeout(fireTimeout))
	if !both {
		return perdure.Group{jobs}
	}
	return perdure.Group{jobs, rest}
}

func TestTasksUnderFire(t *testing.T) {
	t.Parallel()
	tasksUnderFire(t, 2000, 6)
}

// fire has the processes that execute tasks, and counts the strikes.
type fire struct {
	t      *testing.T
	url    string
	ledger ledger
	clock  *shakyClock
	rand   *rand.Rand

	procs, all []*process
	killed     map[*process]bool
	struck     map[string]int
}

const (
	fireLease   = 2 * time.Second
	fireTimeout = 20 * time.Second // time limit of an attempt
)

// tasksUnderFire submits tasks to processes. It kills processes, stops them past their lease,
// drains them, or replaces them by processes that lack the code of one kind of task. It also moves
// the clock of the store forward and back. In the end every task has ended once, all failed tasks
// are dead tasks, no worker has a claim, and no claim has outlived its deadline. A process ends
// only if the test or a job ends it.
func tasksUnderFire(t *testing.T, n, strikes int) {
	t.Helper()
	url := pgtest.URL(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &fire{t: t, ledger: newLedger(t), rand: rand.New(rand.NewPCG(seed, 1)), killed: map[*process]bool{}, struck: map[string]int{}}
	f.clock, f.url = newShakyClock(t, url)
	for range 3 {
		f.procs = append(f.procs, f.raise())
	}
	app, err := embedded.Config{AllowUnsafe: true, LeaseTTL: fireLease}.Open(t.Context(), f.url, taskDefinitions(false, true))
	if err != nil {
		t.Fatal(err)
	}

	defer app.Close()
	for s := range strikes {
		f.submit(app, n*s/strikes, n*(s+1)/strikes)
		f.strike(s)
	}

	for _, p := range f.procs {
		p.retire(3 * time.Minute)
	}
	endings := wantEndings(t, f.all, f.killed)
	conn := connect(t, url)

	count := func(sql string, args ...any) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	status := func(s model.Status) int {
		return count(`select count(*) from perdure.executions where state = $1`, int(s))
	}
	running := func() int { return count(`select count(*) from perdure.executions where state < 2`) }
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	// The engine finds lost tasks when a lease or a grace period is over.
	for end := time.Now().Add(2 * time.Minute); running() > 0; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%d tasks do not end:\n%s", running(), openExecutions(t, url))
		}
	}

	completed, failed, canceled := status(model.Completed), status(model.Failed), status(model.Canceled)
	dead := count(`select count(*) from perdure.dead`)
	t.Logf("%d completed, %d failed, %d canceled, %d dead tasks; struck %v; processes: %v", completed, failed, canceled, dead, f.struck, endings)
	if completed+failed+canceled != n {
		t.Errorf("%d of %d tasks have ended", completed+failed+canceled, n)
	}
	if dead != failed || failed < n/20*8/10 {
		t.Errorf("%d tasks failed, and there are %d dead tasks", failed, dead)
	}
	if endings["killed"] != f.struck["kill"] {
		t.Errorf("%d processes were killed, and %d ended so", f.struck["kill"], endings["killed"])
	}
	f.wantDeadlines()
}

func (f *fire) raise(env ...string) *process {
	f.t.Helper()
	p := spawn(f.t, f.url, duty{f.ledger, 0, fireLease}, append(env, envTasks+"=1")...)
	f.all = append(f.all, p)
	return p
}

// submit submits tasks from one number up to another. One in ten is of the kind rest, and the test
// cancels one in ten of these.
func (f *fire) submit(app *perdure.App, from, to int) {
	f.t.Helper()
	c := app.With(f.t.Context())
	key := func(i int) perdure.Key { return perdure.RawKey(fmt.Sprint(i)) }
	jobs := perdure.DeclareActivity[int, int]("jobs", perdure.OnQueue("work"), perdure.Constant(3, 5*time.Millisecond), perdure.AttemptTimeout(fireTimeout),
		perdure.HeartbeatTimeout(5*time.Second)).KeyedBy(key)

	rest := perdure.DeclareActivity[int, int]("rest", perdure.OnQueue("work"), perdure.AttemptTimeout(fireTimeout)).KeyedBy(key)
	for ; from < to; from += 500 {
		var a, b []int
		for i := from; i < min(from+500, to); i++ {
			if i%10 == 7 {
				b = append(b, i)
			} else {
				a = append(a, i)
			}
		}

		if _, err := jobs.SubmitMany(c, a); err != nil {
			f.t.Fatal(err)
		}
		xs, err := rest.SubmitMany(c, b)
		if err != nil {
			f.t.Fatal(err)
		}

		for i := range xs[:len(xs)/10] {
			if err := xs[i].Cancel(c, "not needed"); err != nil && !errors.Is(err, perdure.ErrConflict) {
				f.t.Fatal(err)
			}
		}
	}
}

// strike strikes a running process. The number of the strike selects the kind of fault.
func (f *fire) strike(n int) {
	f.t.Helper()
	i := f.rand.IntN(len(f.procs))
	for {
		if p := f.procs[i]; p.comesUp(3 * time.Minute) {
			break
		}
		f.procs[i] = f.raise() // a job has ended the process
	}

	p := f.procs[i]
	kind := []string{"kill", "forth", "deploy", "stop", "back", "drain"}[n%6]
	switch f.struck[kind]++; kind {
	case "kill":
		p.kill()
		f.procs[i] = f.raise()
		if p.ending().Exited() { // a job ended the process before the kill
			f.struck[kind]--
			f.strike(n)
			return
		}
		f.killed[p] = true
	case "deploy": // a deployment of code that lacks one kind of task
		p.retire(3 * time.Minute)
		f.procs[i] = f.raise(envNoRest + "=1")
	case "stop":
		p.signal(syscall.SIGSTOP)
		<-time.After(fireLease + time.Second)
		p.signal(syscall.SIGCONT)
	case "drain":
		p.retire(3 * time.Minute)
		f.procs[i] = f.raise()
	case "forth": // by more than a lease, sometimes by more than the time-out of an attempt
		f.clock.step(fireLease + f.upTo(2*fireTimeout))
	case "back":
		f.clock.step(-f.upTo(2 * fireLease))
	}

	for i, p := range f.procs {
		select {
		case <-p.done: // a job has ended the process
			f.procs[i] = f.raise()
		default:
		}
	}
}

func (f *fire) upTo(d time.Duration) time.Duration { return time.Duration(f.rand.Int64N(int64(d))) }

// wantDeadlines checks that no claim outlived its deadline. If a process did not end a claim in
// time, the engine ended the claim as soon as its run had an owner. The check subtracts the times
// by which the test has moved the clock.
func (f *fire) wantDeadlines() {
	f.t.Helper()
	nd, err := node.Open(f.t.Context(), node.Config{URL: f.url, ReadOnly: true})
	if err != nil {
		f.t.Fatal(err)
	}
	defer nd.Close()
	looked, longest := 0, time.Duration(0)
	late := fireTimeout + 3*fireLease
	if !quiet() {
		late += time.Minute // processes that end a claim may have to wait for a processor
	}

	req := api.ListRequest{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000}
	for {
		page, err := nd.Backend().List(f.t.Context(), req)
		if err != nil {
			f.t.Fatal(err)
		}

		for i := range page.Executions {
			d := &page.Executions[i]
			// The whole task took less time than an attempt may take, so its claims did too.
			if d.Outcome.At.Sub(d.Start.At) < fireTimeout {
				continue
			}
			looked++
			h, err := nd.Backend().History(f.t.Context(), api.HistoryRequest{Target: api.Target{Address: d.Start.Address, Run: d.Start.Run}, After: -1})
			if err != nil {
				f.t.Fatal(err)
			}

			var claimed model.Time
			for _, e := range h.Events {
				if !claimed.IsZero() {
					took := e.At.Sub(claimed) - f.clock.within(claimed, e.At)
					longest = max(longest, took)
					if took > late {
						f.t.Errorf("%s: a claim from %s ended at %s, after %s: %s", d.Start.Address, claimed, e.At, took, e.Kind)
					}
				}
				if claimed = 0; e.Kind == model.EventTaskClaimed || e.Kind == model.EventTaskScheduled && e.Worker != "" {
					claimed = e.At
				}
			}
		}

		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	f.t.Logf("%d tasks took longer than an attempt may; the longest attempt took %s", looked, longest)
}

// shakyClock is a store clock that the test moves forward and back.
type shakyClock struct {
	t     *testing.T
	conn  *pgx.Conn
	steps []clockStep
}

type clockStep struct {
	at model.Time // before the step
	by time.Duration
}

// newShakyClock starts a proxy that replaces the clock of the server by a clock that the test can
// set. Only clients that use the returned URL see this clock.
func newShakyClock(t *testing.T, server string) (c *shakyClock, through string) {
	t.Helper()
	c = &shakyClock{t: t, conn: connect(t, server)}
	if _, err := c.conn.Exec(t.Context(), `
		create schema shaky;
		create table shaky.step (by interval not null);
		insert into shaky.step values ('0');
		create function shaky.clock_timestamp() returns timestamptz volatile parallel safe language sql
			return (select pg_catalog.clock_timestamp() + by from shaky.step)`); err != nil {
		t.Fatal(err)
	}

	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", "shaky,pg_catalog,public")
	u.RawQuery = q.Encode()

	return c, u.String()
}

func (c *shakyClock) step(by time.Duration) {
	c.t.Helper()
	var before time.Time
	if err := c.conn.QueryRow(c.t.Context(), `select shaky.clock_timestamp()`).Scan(&before); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Exec(c.t.Context(), `update shaky.step set by = by + $1 * interval '1 microsecond'`, by.Microseconds()); err != nil {
		c.t.Fatal(err)
	}
	c.steps = append(c.steps, clockStep{model.TimeOf(before), by})
}

// within returns how far the clock was moved forward between two times.
func (c *shakyClock) within(from, to model.Time) (by time.Duration) {
	for _, s := range c.steps {
		if s.by > 0 && s.at.Add(s.by) >= from && s.at <= to {
			by += s.by
		}
	}
	return by
}

// wantEndings checks that each process ended as expected: it was killed, a job ended it, or it shut
// down cleanly. It returns the number of each.
func wantEndings(t *testing.T, all []*process, killed map[*process]bool) map[string]int {
	t.Helper()
	endings := map[string]int{}
	for _, p := range all {
		how := p.ending()
		switch {
		case how.Signaled() && how.Signal() == syscall.SIGKILL && killed[p]:
			endings["killed"]++
		case how.Exited() && how.ExitStatus() == 3:
			endings["ended by a job"]++
		case how.Exited() && how.ExitStatus() == 0:
			endings["cleanly"]++
		default:
			t.Errorf("a process ended by itself: %s\n%s", p.cmd.ProcessState, p.text())
		}
	}

	return endings
}
