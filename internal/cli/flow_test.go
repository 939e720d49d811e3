package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// On PostgreSQL a command changes what tasks of a running program have to pass.
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
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until the node has heard of it
			info, err := app.Describe(t.Context(), x)
			if err == nil && strings.Contains(info.Reason, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it %s, %v; want %q", info.Reason, err, want)
			}
		}
	}
	until("no limit of that name")
	do("tripped breaker carrier", "breaker", "trip", "carrier", "--reason", "strike")
	do("set limit dock", "limit", "set", "dock", "--concurrency", "1")
	until("strike")
	do("open", "breaker", "list")
	do("paused queue ship", "queue", "pause", "ship", "--reason", "inventory")
	until("is paused: inventory")
	do("reset breaker carrier", "breaker", "reset", "carrier")
	do("resumed queue ship", "queue", "resume", "ship")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if got, err := x.Result(app.With(ctx)); err != nil || got != 5 {
		t.Errorf("result %d, %v", got, err)
	}
}
