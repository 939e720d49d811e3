package chaos_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// A node that is cut off from PostgreSQL past its lease loses everything to another one. When the network heals, it commits nothing of what it had
// begun and answers no question from memory; it registers anew and serves again (reliability A1, A7).
func TestPartitionedOwnerIsFenced(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := proxied(t, url)
	l := newLedger(t)
	const lease = 2 * time.Second
	first := openAppWith(t, through, l, keeping(lease))
	c := first.app.With(t.Context())
	probe, err := stages.Start(c, "", perdure.RawKey("probe"))
	if err != nil {
		t.Fatal(err)
	}
	describe(t, first.app, probe, stageOne)
	work := startLoad(t.Context(), first.app, "", 6)
	work.more(t, 5, 90*time.Second)

	proxy.Blackhole()
	second := openAppWith(t, url, l, keeping(lease))
	other := startLoad(t.Context(), second.app, "other-", 3)
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
	n := work.finish(t, url, 90*time.Second) // the calls of before came through as well
	n += other.finish(t, url, 90*time.Second)
	verify(t, url, n, l)
}

// A node whose renewals get lost, while everything else goes through, does not know that it has been replaced. It stops answering from memory by its
// own clock, before anybody else can have changed anything (reliability A8, DESIGN §6).
func TestReadsEndWithTheLease(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := proxied(t, url)
	l := newLedger(t)
	const lease = 2 * time.Second
	first := openAppWith(t, through, l, keeping(lease))
	probe, err := stages.Start(first.app.With(t.Context()), "", perdure.RawKey("probe"))
	if err != nil {
		t.Fatal(err)
	}
	describe(t, first.app, probe, stageOne)
	var lost []*pgproxy.Trigger
	for range 1000 {
		lost = append(lost, proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Match: pgproxy.Mentions("nodes set expires")}))
	}
	second := openAppWith(t, url, l, keeping(lease))
	c := second.app.With(t.Context())
	if err := firstStage.Send(c, probe, ""); err != nil { // is taken when the shard has moved
		t.Fatal(err)
	}
	describe(t, second.app, probe, stageTwo)
	answers := map[string]int{}
	for range 50 {
		info, err := first.app.Describe(t.Context(), probe)
		if err != nil {
			t.Fatal(err)
		}
		answers[info.Reason]++
		if strings.Contains(info.Reason, stageOne) {
			t.Fatalf("the node answered from memory after its lease had ended: %s", info.Reason)
		}
	}
	if first.book.count("the node lost its lease") > 0 {
		t.Error("the first node was told that it had lost its lease, so this test shows nothing")
	}
	from := first.book.len()
	for _, l := range lost {
		l.Cancel()
	}
	first.book.await(t, from, "node registered", nil, healing)
	if err := secondStage.Resolve(first.app.With(t.Context()), probe, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := probe.Result(c); err != nil {
		t.Fatal(err)
	}
	t.Logf("the answers were %v", answers)
}

// describe waits until the reason of an execution is the wanted one.
func describe(t *testing.T, app *perdure.App, to perdure.Target, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := app.Describe(ctx, to)
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

// stale asks a node again and again what an execution waits for, and once more at the end, and tells whether it ever gave the answer of before.
func stale(t *testing.T, app *perdure.App, to perdure.Target, enough <-chan struct{}) string {
	for last := false; ; {
		info, err := app.Describe(t.Context(), to)
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
		default:
		}
	}
}
