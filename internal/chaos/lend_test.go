package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// envLend names the side that a process takes until SIGTERM. The side "owner" runs the workflow.
// The side "worker" executes the tasks of the workflow.
const envLend = "PERDURE_CHAOS_LEND"

// distant is an activity whose code only the worker has.
var distant = perdure.DeclareActivity[string, string]("distant", perdure.OnQueue("distant"), perdure.Constant(10, 5*time.Millisecond))

// errand runs four distant activities, two at a time.
var errand = perdure.NewWorkflow("errand", func(ctx perdure.WorkflowCtx, key string) (string, error) {
	var all []string
	for i := range 2 {
		a, b := distant.Go(ctx, fmt.Sprint(key, ".", i, "a")), distant.Go(ctx, fmt.Sprint(key, ".", i, "b"))
		both, err := perdure.All(ctx, a, b)
		if err != nil {
			return "", err
		}
		all = append(all, both...)
	}
	return strings.Join(all, " "), nil
}, perdure.Uses(distant))

// lendDefinitions returns the definitions of the owner or of the worker. The worker records each
// attempt when the attempt begins.
func lendDefinitions(side string, l ledger) perdure.Group {
	if side == "owner" {
		return perdure.Group{errand}
	}
	return perdure.Group{distant.Bind(func(ctx context.Context, what string) (string, error) {
		if err := l.note(fmt.Sprint(what, " ", perdure.Attempt(ctx))); err != nil {
			return "", err
		}
		time.Sleep(5 * time.Millisecond)
		return strings.ToUpper(what), nil
	})}
}

// The test alternately kills the process that executes tasks and the process that owns their
// workflows, in the middle of their work. Everything completes. A task is executed again only if
// its attempt was lost, and each repetition has a new attempt number.
func TestKilledLendersAndOwners(t *testing.T) {
	t.Parallel()
	url, l := pgtest.URL(t), newLedger(t)
	const lease, n = 2 * time.Second, 150

	raise := func(side string) *process {
		p := spawn(t, url, duty{l, 0, lease}, envLend+"="+side)
		p.awaitLine("up", 3*time.Minute)
		return p
	}

	ps := map[string]*process{"worker": raise("worker"), "owner": raise("owner")}
	app, err := embedded.Config{AllowUnsafe: true, LeaseTTL: lease}.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := app.With(ctx)
	run := perdure.DeclareWorkflow[string, string]("errand")

	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			key := fmt.Sprint("e", i)
			got, err := run.Run(c, key, perdure.RawKey(key))
			want := strings.ToUpper(fmt.Sprintf("%[1]s.0a %[1]s.0b %[1]s.1a %[1]s.1b", key))
			if err != nil || got != want {
				t.Errorf("%s: %q, %v", key, got, err)
			}
		})
	}

	for i, side := range []string{"worker", "owner", "worker"} {
		ps[side].until("entries in the ledger", l, 100*(i+1))
		ps[side].kill()
		ps[side] = raise(side)
	}

	wg.Wait()
	attempts := map[string][]string{}
	for _, line := range l.bodies(t) {
		what, attempt, _ := strings.Cut(line, " ")
		attempts[what] = append(attempts[what], attempt)
	}

	again := 0
	for what, as := range attempts {
		again += len(as) - 1
		if slices.Sort(as); len(slices.Compact(as)) != len(as) {
			t.Errorf("%s was executed twice in one attempt: %v", what, as)
		}
	}

	t.Logf("%d tasks, %d executed again", len(attempts), again)
	if len(attempts) != 4*n {
		t.Errorf("%d tasks were executed, want %d", len(attempts), 4*n)
	}

	// On a busy machine, a process that was not killed may lose its lease too, and with the lease
	// the tasks that it executes.
	if again > 3*100 && quiet() {
		t.Errorf("%d tasks were executed again, want at most 300: the test killed three processes, and each had at most 100 tasks", again)
	}
}
