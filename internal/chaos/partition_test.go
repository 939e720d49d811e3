package chaos_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// A node that is cut off from PostgreSQL past its lease loses all shards to another node. When the
// network heals, the node commits nothing of its old work and answers no question from memory. It
// registers again and serves (reliability A1, A7).
func TestPartitionedOwnerIsFenced(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := startProxy(t, url)
	l := newLedger(t)
	const lease = 2 * time.Second
	first := openAppWith(t, through, l, keeping(lease))
	c := first.app.With(t.Context())
	probe, err := stages.Start(c, "", perdure.RawKey("probe"))
	if err != nil {
		t.Fatal(err)
	}
	describe(t, first.app, probe, stageOne)
	work := startLoad(t.Context(), first.app, l, "", 6)
	work.more(t, 5, 3*time.Minute)

	proxy.Blackhole()
	second := openAppWith(t, url, l, keeping(lease))
	other := startLoad(t.Context(), second.app, l, "other-", 3)
	other.more(t, 4, lease+healing) // all shards have moved
	c = second.app.With(t.Context())
	if err := firstStage.Send(c, probe, ""); err != nil {
		t.Fatal(err)
	}
	describe(t, second.app, probe, stageTwo)

	from := first.book.len()
	asked, enough := make(chan string, 1), make(chan struct{})
	go func() { asked <- stale(t, first.app, probe, enough) }()
	proxy.Heal()
	first.book.await(t, from, "node registered", nil, healing)
	close(enough)
	if text := <-asked; text != "" {
		t.Error(text)
	}
	if first.book.count("the node lost its lease") == 0 {
		t.Error("the first node does not say that it lost its lease")
	}
	if err := secondStage.Resolve(c, probe, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := probe.Result(c); err != nil {
		t.Fatal(err)
	}
	n := work.finish(t, url, 3*time.Minute) // the earlier calls have also succeeded
	n += other.finish(t, url, 3*time.Minute)
	verify(t, url, n, l)
}

// A node whose renewals get lost, while all other traffic passes, does not know that it has been
// replaced. But its own clock tells it when its lease ends, so it stops answering from memory
// before another node can have changed anything.
func TestReadsEndWithTheLease(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := startProxy(t, url)
	l := newLedger(t)
	const lease = 2 * time.Second
	first := openAppWith(t, through, l, keeping(lease))
	probe, err := stages.Start(first.app.With(t.Context()), "", perdure.RawKey("probe"))
	if err != nil {
		t.Fatal(err)
	}

	describe(t, first.app, probe, stageOne)
	found := loseRenewals(proxy)
	second := openAppWith(t, url, l, keeping(lease))
	ownsAll(t, url, second)
	c := second.app.With(t.Context())
	if err := firstStage.Send(c, probe, ""); err != nil {
		t.Fatal(err)
	}

	describe(t, second.app, probe, stageTwo)
	answers := map[string]int{}
	for range 50 {
		info, err := first.app.Executions().Describe(t.Context(), probe)
		if err != nil {
			t.Fatal(err)
		}
		answers[info.Reason]++
		if strings.Contains(info.Reason, stageOne) {
			t.Fatalf("the node answered from memory after its lease had ended: %s", info.Reason)
		}
	}

	for range 5 {
		soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		stage, err := whichStage.Ask(first.app.With(soon), probe, perdure.Void{})
		cancel()
		if err == nil && stage != stageTwo {
			t.Fatalf("the code on the node answered after the lease had ended: %s", stage)
		}
	}

	if first.book.count("the node lost its lease") > 0 {
		t.Error("the first node was told that it had lost its lease, so this test shows nothing")
	}
	from := first.book.len()
	found()
	first.book.await(t, from, "node registered", nil, healing)
	if err := secondStage.Resolve(first.app.With(t.Context()), probe, ""); err != nil {
		t.Fatal(err)
	}

	if _, err := probe.Result(c); err != nil {
		t.Fatal(err)
	}
	t.Logf("the answers were %v", answers)
}

// A process is stopped past its lease, and its renewals get lost when it wakes: it gets no message
// that it has been replaced. Its own clock continued, so it knows that its lease has ended and
// answers nothing from memory, not even the first question (reliability A1, A8).
func TestStoppedOwnerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := startProxy(t, url)
	l := newLedger(t)
	const lease, questions = 2 * time.Second, 50
	first := spawn(t, through, duty{l, 0, lease}, envProbe+"=1", envIdle+"=1")
	first.awaitLine("probe is up", 3*time.Minute)
	first.signal(syscall.SIGSTOP)
	found := loseRenewals(proxy)
	second := openAppWith(t, url, l, keeping(lease))
	ownsAll(t, url, second)
	c := second.app.With(t.Context())
	probe := stages.Execution(perdure.RawKey("probe"))
	if err := firstStage.Send(c, probe, ""); err != nil {
		t.Fatal(err)
	}

	describe(t, second.app, probe, stageTwo)
	first.signal(syscall.SIGCONT)
	first.awaitLine(fmt.Sprintf("probe after waking %d:", questions), 3*time.Minute)
	text := first.text()
	if strings.Contains(text, "lost its lease") {
		t.Errorf("the process was told that it had lost its lease, so this test shows nothing:\n%s", text)
	}

	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "probe after waking") && strings.Contains(line, stageOne) {
			t.Fatalf("the process answered from memory after it had been stopped past its lease:\n%s", text)
		}
	}

	found()
	first.awaitLine("probe after waking "+strconv.Itoa(questions+1), 3*time.Minute)
	first.signal(syscall.SIGTERM)
	first.finish(3 * time.Minute)
	if err := secondStage.Resolve(c, probe, ""); err != nil {
		t.Fatal(err)
	}

	if _, err := probe.Result(c); err != nil {
		t.Fatal(err)
	}
}

// loseRenewals makes the proxy drop every renewal of a lease. The returned function ends that.
func loseRenewals(proxy *pgproxy.Proxy) (found func()) {
	lost := make([]*pgproxy.Trigger, 1000)
	for i := range lost {
		lost[i] = proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Match: pgproxy.Mentions("nodes set expires")})
	}
	return func() {
		for _, l := range lost {
			l.Cancel()
		}
	}
}

// ownsAll waits until the node is the only one left, owns all shards and knows it. From then on, it
// answers all requests itself. A node that does not know yet that it owns all shards would leave a
// request in the inbox, where the former owner would find it.
func ownsAll(t *testing.T, url string, node *bench) {
	t.Helper()
	node.book.await(t, 0, "acquired shards", nil, healing)
	conn := connect(t, url)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()

	for limit := time.After(healing); ; {
		var nodes, others int
		err := conn.QueryRow(t.Context(), `select (select count(*) from perdure.nodes),
(select count(*) from perdure.shards where node is null or node not in (select node from perdure.nodes))`).Scan(&nodes, &others)
		switch {
		case err != nil:
			t.Fatal(err)
		case nodes == 1 && others == 0:
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("after %s there are %d nodes, and %d shards without an owner", healing, nodes, others)
		}
	}
}

// describe waits until an execution has the wanted reason.
func describe(t *testing.T, app *perdure.App, to perdure.Target, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healing)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()

	for {
		info, err := app.Executions().Describe(ctx, to)
		if err == nil && strings.Contains(info.Reason, want) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("described as %+v, %v; want %q", info, err, want)
		}
	}
}

// stale repeatedly asks a node what an execution waits for, and once more at the end. It returns a
// reply that is out of date, if the node ever gave one.
func stale(t *testing.T, app *perdure.App, to perdure.Target, enough <-chan struct{}) string {
	for last := false; ; {
		info, err := app.Executions().Describe(t.Context(), to)
		switch {
		case err == nil && strings.Contains(info.Reason, stageOne):
			return "the node answered from memory after it had lost its lease: " + info.Reason
		case last && err != nil:
			return "the question was not answered: " + err.Error()
		case last:
			return ""
		}
		select {
		case <-enough:
			last = true
		case <-time.After(time.Millisecond):
		}
	}
}
