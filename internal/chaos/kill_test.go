package chaos_test

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
)

func TestKillRoundsSQLite(t *testing.T) {
	t.Parallel()
	killRounds(t, "file:"+filepath.Join(t.TempDir(), "chaos.db"), 5)
}

func TestKillRoundsPostgres(t *testing.T) {
	t.Parallel()
	killRounds(t, pgtest.URL(t), 5)
}

// killRounds kills a process in the middle of its work in each round, and checks that the store has
// everything that the process had confirmed to its callers. After all rounds it lets one process
// finish. Each round has more work than the previous round.
func killRounds(t *testing.T, url string, rounds int) {
	t.Helper()
	const first, more = 10, 5
	l := newLedger(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	a := audit{t: t, url: url, ledger: l}

	n, entries := first, 0
	for r := range rounds {
		n += more
		p := spawn(t, url, duty{l, n, 10 * time.Second})
		if r%5 == 4 { // kill the process while it starts or recovers from the previous round
			<-time.After(time.Duration(rnd.IntN(60)) * time.Millisecond)
		} else {
			// A round writes at least 18 entries for each new execution. So some work is left, even
			// on a fast machine.
			p.until("entries in the ledger", l, entries+rnd.IntN(15*more))
		}

		select {
		case <-p.done:
			t.Fatalf("round %d: the process ended before it could be killed: %v\n%s", r, p.err, p.text())
		default:
			p.kill()
		}

		entries = len(l.bodies(t)) + len(l.answers(t))
		if a.round(); t.Failed() {
			t.Fatalf("round %d; the process said:\n%s", r, p.text())
		}
	}

	spawn(t, url, duty{l, n, 10 * time.Second}).finish(3 * time.Minute)
	verify(t, url, n, l)
	a.bodies, a.answers = 0, 0 // check everything once more
	a.round()
	t.Logf("%d bodies ran, callers were told %d things", len(l.bodies(t)), len(l.answers(t)))
}

// until waits until the ledger has more than n entries, or the process has ended.
func (p *process) until(what string, l ledger, n int) {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * time.Minute)
	for len(l.bodies(p.t))+len(l.answers(p.t)) <= n {
		select {
		case <-tick.C:
		case <-p.done:
			return
		case <-limit:
			p.t.Fatalf("not %d %s within a minute:\n%s\n%s", n, what, openExecutions(p.t, p.url), p.text())
		}
	}
}

// audit compares the store with the ledger while no process works.
type audit struct {
	t   *testing.T
	url string
	ledger
	bodies, answers int // how many entries were already checked
}

// round checks the entries that were added since the last round.
func (a *audit) round() {
	a.t.Helper()
	nd, err := node.Open(a.t.Context(), node.Config{URL: a.url, ReadOnly: true})
	if err != nil {
		a.t.Fatal(err)
	}
	defer nd.Close()
	b := nd.Backend()
	answers := a.ledger.answers(a.t)
	for _, line := range answers[a.answers:] {
		a.answer(b, strings.Fields(line))
	}
	a.answers = len(answers)
	a.steps(b)
}

// answer checks that the store agrees with one reply that a caller got.
func (a *audit) answer(b api.Backend, told []string) {
	a.t.Helper()
	what := told[0]
	target := targetOf(told[1])
	d, err := b.Describe(a.t.Context(), target)
	if err != nil {
		a.t.Errorf("a caller was told %v: %v", told, err)
		return
	}

	has := func(match func(*model.Event) bool) bool {
		page, err := b.History(a.t.Context(), api.HistoryRequest{Target: target, After: -1})
		if err != nil {
			a.t.Fatal(err)
		}
		for i := range page.Events {
			if match(&page.Events[i]) {
				return true
			}
		}
		return false
	}

	ok := false
	switch what {
	case "started":
		ok = true // the execution exists
	case "signal":
		ok = has(func(e *model.Event) bool { return e.Kind == model.EventSignalReceived && e.RequestID == told[2] })
	case "promise":
		ok = has(func(e *model.Event) bool { return e.Kind == model.EventPromiseSettled && e.Name == told[2] })
	case "ended":
		ok = d.Outcome.Status == model.Completed
	}

	if !ok {
		a.t.Errorf("a caller was told %v, but the store has %+v", told, d)
	}
}

// steps checks that a body ran only after the outcome of the previous step was stored, and never
// again after its own outcome was stored.
func (a *audit) steps(b api.Backend) {
	a.t.Helper()
	latest := map[string]int{}
	bodies := a.ledger.bodies(a.t)
	for i, id := range bodies {
		key, text, _ := strings.Cut(id, "#")
		step, err := strconv.Atoi(text)
		if err != nil {
			a.t.Fatal(err)
		}
		if before, ok := latest[key]; ok && step < before {
			a.t.Errorf("step %d of %s ran again after step %d had begun", step, key, before)
		}
		latest[key] = step

		if i >= a.bodies && step > 0 {
			target := targetOf("chain/" + key)
			page, err := b.History(a.t.Context(), api.HistoryRequest{Target: target, After: -1})
			if err != nil {
				a.t.Errorf("step %d of %s ran: %v", step, key, err)
			} else if n := countKind(page.Events, model.EventStepCompleted); n < step {
				a.t.Errorf("step %d of %s ran, but only %d outcomes are stored", step, key, n)
			}
		}
	}

	a.bodies = len(bodies)
}

// targetOf parses "workflow/key".
func targetOf(text string) api.Target {
	workflow, key, _ := strings.Cut(text, "/")
	return api.Target{Address: model.Address{Tenant: model.DefaultTenant, Type: workflow, Key: key}}
}
