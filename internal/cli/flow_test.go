package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// On PostgreSQL a command changes limits and breakers for tasks of a running program.
func TestFlowBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	ship := perdure.NewActivity("ship", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue("ship"), perdure.Limit("dock"), perdure.Breaker("carrier"))
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, ship)
	if err != nil {
		t.Fatal(err)
	}

	defer app.Close()
	do := func(want string, args ...string) {
		t.Helper()
		out, complaints, code := perdureOn(t, url, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("perdure %s: exit %d, %s%s\nwant %q", strings.Join(args, " "), code, out, complaints, want)
		}
	}

	x, err := ship.Submit(app.With(t.Context()), 5)
	if err != nil {
		t.Fatal(err)
	}

	until := func(want string) {
		t.Helper()
		// Wait until the node has read the rule.
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			info, err := app.Executions().Describe(t.Context(), x)
			if err == nil && strings.Contains(info.Reason, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it %s, %v; want %q", info.Reason, err, want)
			}
		}
	}

	explained := func(want string) {
		t.Helper()
		until(want)
		// The command asks the owner, which knows the state without reading the store.
		do(want, "workflow", "explain", "task:ship/"+x.Ref.Key)
		do(want, "task", "list", "--activity", "ship", "-o", "json")
		for info, err := range app.Executions().List(t.Context(), `key = "`+x.Ref.Key+`"`) {
			if err != nil || !strings.Contains(info.Reason, want) {
				t.Errorf("listed by its owner: it %s, %v; want %q", info.Reason, err, want)
			}
		}
	}

	explained("no limit of that name")
	for { // a node publishes the names in its activities when it next renews its lease
		if out, _, _ := perdureOn(t, url, "worker", "list", "-o", "json"); strings.Contains(out, "carrier") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}

	if _, complaints, code := perdureOn(t, url, "breaker", "trip", "carier"); code != 3 || !strings.Contains(complaints, "did you mean carrier?") {
		t.Errorf("a misspelt breaker: exit %d, %s", code, complaints)
	}
	do("tripped breaker carrier", "breaker", "trip", "carrier", "--reason", "strike")
	do("set limit dock", "limit", "set", "dock", "--concurrency", "1")
	explained("strike")
	do("open", "breaker", "list")
	do("paused queue ship", "queue", "pause", "ship", "--reason", "inventory")
	explained("in queue ship, which is paused: inventory")
	told := on(t, url)
	told("No running worker serves queue shop", 0, "queue", "pause", "shop")
	do("resumed queue shop", "queue", "resume", "shop")
	if out, complaints, _ := perdureOn(t, url, "queue", "pause", "ship", "--reason", "inventory"); complaints != "" {
		t.Errorf("a queue that is served: %s%s", out, complaints)
	}
	told("limit typo: there is no queue shop (queues that have workers, or waiting tasks here: default, ship)", 3, "limit", "set", "typo", "--queue", "shop", "--concurrency", "1")
	do("set limit later", "limit", "set", "later", "--queue", "shop", "--concurrency", "1", "--any-queue")
	do("set limit ships", "limit", "set", "ships", "--queue", "sh*", "--concurrency", "9")
	do("task:ship/typed", "task", "submit", "ship", "--queue", "ship", "--key", "typed", "--input", "1", "--limit", "dock,crane", "--breaker", "carrier", "--schedule-to-start", "1h",
		"--schedule-to-close", "2h", "--heartbeat-timeout", "10s", "--fair-key", "a", "--fair-weight", "2")
	do("resumed queue ship", "queue", "resume", "ship")

	// After a moment the node learns that the queue is no longer paused.
	for end := time.Now().Add(2 * time.Minute); ; {
		out, _, _ := perdureOn(t, url, "workflow", "explain", "task:ship/typed")
		if strings.Contains(out, "waits for limit crane: no limit of that name is defined") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the task that names a limit that is not defined: %s", out)
		}
	}

	do("paused queue ship", "queue", "pause", "ship", "--reason", "inventory")
	do("reset breaker carrier", "breaker", "reset", "carrier")
	do("resumed queue ship", "queue", "resume", "ship")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if got, err := x.Result(app.With(ctx)); err != nil || got != 5 {
		t.Errorf("result %d, %v", got, err)
	}
}

// The nodes report the holders and the waiters of a limit, and every request gets a fresh answer.
func TestLimitBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	begun, end := make(chan struct{}, 10), make(chan struct{})

	ship := perdure.NewActivity("ship", func(_ context.Context, n int) (int, error) {
		begun <- struct{}{}
		<-end
		return n, nil
	}, perdure.OnQueue("ship"), perdure.Limit("dock"))

	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, ship)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	defer close(end)
	if err := app.Limits().Set(t.Context(), perdure.LimitRule{Name: "dock", Concurrency: 1}); err != nil {
		t.Fatal(err)
	}

	show := func(want ...string) {
		t.Helper()
		out, complaints, code := perdureOn(t, url, "limit", "show", "dock")
		for _, w := range want {
			if code != 0 || !strings.Contains(out, w) {
				t.Errorf("exit %d, %s%s\nwant %q", code, out, complaints, w)
			}
		}
	}

	if _, err := ship.Submit(app.With(t.Context()), 1, perdure.RawKey("first")); err != nil {
		t.Fatal(err)
	}
	<-begun
	show("At a time  1", "Held       1: task:ship/first\n")
	if _, err := ship.SubmitMany(app.With(t.Context()), []int{2, 3, 4}); err != nil {
		t.Fatal(err)
	}

	if _, err := ship.Submit(app.With(t.Context()), 5, perdure.RawKey("last")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup // both commands ask the node at the same time
	defer wg.Wait()
	wg.Go(func() { show("Held       1: task:ship/first\n", "Waiting    4: task:ship/", ", task:ship/last\n") })
	if out, _, _ := perdureOn(t, url, "workflow", "explain", "task:ship/last"); !strings.Contains(out, "waits for limit dock: all 1 are held, by task:ship/first") {
		t.Errorf("the last one: %s", out)
	}
}
