package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
)

const (
	envTasks  = "PERDURE_CHAOS_TASKS"  // execute tasks until SIGTERM
	envNoRest = "PERDURE_CHAOS_NOREST" // without those of the kind rest
)

// jobs and rest are two kinds of tasks. One in twenty jobs is poison: it always fails, panics, or takes its process with it.
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
	}, perdure.OnQueue("work"), perdure.Constant(3, 5*time.Millisecond), perdure.AttemptTimeout(20*time.Second), perdure.HeartbeatTimeout(5*time.Second))
	rest := perdure.NewActivity("rest", func(context.Context, int) (int, error) { return 0, nil }, perdure.OnQueue("work"))
	if !both {
		return perdure.Group{jobs}
	}
	return perdure.Group{jobs, rest}
}

func TestTasksUnderFire(t *testing.T) {
	t.Parallel()
	tasksUnderFire(t, 2000, 3)
}

// tasksUnderFire submits tasks to processes that are killed, stopped past their lease, drained, and replaced by ones that lack a kind. In the end every
// task has ended once: those that failed are the dead letters, and nobody has a claim. No process has ended but those that were killed, told to, or ended by a job.
func tasksUnderFire(t *testing.T, n, strikes int) {
	t.Helper()
	url, l := pgtest.URL(t), newLedger(t)
	const lease = 2 * time.Second
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var ps, all []*process
	killed := map[*process]bool{}
	raise := func(env ...string) *process {
		p := spawn(t, url, l, 0, lease, append(env, envTasks+"=1")...)
		all = append(all, p)
		return p
	}
	for range 3 {
		ps = append(ps, raise())
	}
	for _, p := range ps {
		p.says("up", 60*time.Second)
	}
	app, err := embedded.Config{AllowUnsafe: true, LeaseTTL: lease}.Open(t.Context(), url, taskDefinitions(false, true))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	c := app.With(t.Context())
	jobs, rest := perdure.DeclareActivity[int, int]("jobs", perdure.OnQueue("work"), perdure.Constant(3, 5*time.Millisecond), perdure.AttemptTimeout(20*time.Second),
		perdure.HeartbeatTimeout(5*time.Second)), perdure.DeclareActivity[int, int]("rest", perdure.OnQueue("work"))
	submit := func(from, to int) {
		for ; from < to; from += 500 {
			var a, b []int
			for i := from; i < min(from+500, to); i++ {
				if i%10 == 7 {
					b = append(b, i)
				} else {
					a = append(a, i)
				}
			}
			key := func(i int) perdure.Key { return perdure.RawKey(fmt.Sprint(i)) }
			if _, err := jobs.KeyedBy(key).SubmitMany(c, a); err != nil {
				t.Fatal(err)
			}
			xs, err := rest.KeyedBy(key).SubmitMany(c, b)
			if err != nil {
				t.Fatal(err)
			}
			for i := range xs[:len(xs)/10] {
				if err := xs[i].Cancel(c, "not needed"); err != nil && !errors.Is(err, perdure.ErrConflict) {
					t.Fatal(err)
				}
			}
		}
	}
	for s := range strikes {
		submit(n*s/strikes, n*(s+1)/strikes)
		i := rnd.IntN(len(ps))
		switch p := ps[i]; s % 4 {
		case 0:
			killed[p] = true
			p.kill()
			ps[i] = raise()
		case 1: // a deploy that lacks a kind
			p.signal(syscall.SIGTERM)
			<-p.done
			ps[i] = raise(envNoRest + "=1")
		case 2:
			p.signal(syscall.SIGSTOP)
			<-time.After(lease + time.Second)
			p.signal(syscall.SIGCONT)
		default:
			p.signal(syscall.SIGTERM)
			<-p.done
			ps[i] = raise()
		}
		for i, p := range ps {
			select {
			case <-p.done: // a job has ended it
				ps[i] = raise()
			default:
			}
		}
	}
	for _, p := range ps {
		p.signal(syscall.SIGTERM)
		<-p.done
	}
	endings := wantEndings(t, all, killed)
	conn := connect(t, url)
	defer conn.Close(context.Background())
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
	for end := time.Now().Add(2 * time.Minute); running() > 0; <-tick.C { // what was lost is found when its lease or its grace is over
		if time.Now().After(end) {
			t.Fatalf("%d tasks do not end:\n%s", running(), openExecutions(t, url))
		}
	}
	completed, failed, canceled := status(model.Completed), status(model.Failed), status(model.Canceled)
	dead := count(`select count(*) from perdure.dead`)
	t.Logf("%d completed, %d failed, %d canceled, %d dead letters; processes: %v", completed, failed, canceled, dead, endings)
	if completed+failed+canceled != n {
		t.Errorf("%d of %d tasks have ended", completed+failed+canceled, n)
	}
	if dead != failed || failed < n/20*8/10 {
		t.Errorf("%d tasks failed, and there are %d dead letters", failed, dead)
	}
}

// wantEndings demands that each process has ended as it was made to: by the kill, by a job that takes its process with it, or in good order. It returns how many
// ended how.
func wantEndings(t *testing.T, all []*process, killed map[*process]bool) map[string]int {
	t.Helper()
	endings := map[string]int{}
	for _, p := range all {
		<-p.done
		how, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case how.Signaled() && how.Signal() == syscall.SIGKILL && killed[p]:
			endings["killed"]++
		case how.Exited() && how.ExitStatus() == 3:
			endings["ended by a job"]++
		case how.Exited() && how.ExitStatus() == 0:
			endings["in good order"]++
		default:
			t.Errorf("a process ended by itself: %s\n%s", p.cmd.ProcessState, p.text())
		}
	}
	return endings
}
