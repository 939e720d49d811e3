package chaos_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// The reply to a commit gets lost in every possible way, in the middle of work. The node does not
// know whether the commit landed, so it moves its fence before it reads. It does not repeat a
// commit that landed, and does not lose the work of a commit that did not (reliability B1, B2).
func TestLostReplies(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := startProxy(t, url)
	b := openApp(t, through, newLedger(t), 10*time.Second)

	work := startLoad(t.Context(), b.app, b.ledger, "", 6)
	for _, c := range []struct {
		name string
		rule pgproxy.Rule
		// landed says whether the server committed the batch in the end, in the session that the
		// node had lost.
		landed bool
	}{
		{"reply dropped, committed at once", pgproxy.Rule{Fault: pgproxy.DropReply}, true},
		{"orphan that commits seconds later", pgproxy.Rule{Fault: pgproxy.Orphan, Delay: 2 * time.Second, Hold: pgproxy.HoldCommit}, true},
		{"orphan that begins a second later", pgproxy.Rule{Fault: pgproxy.Orphan, Delay: time.Second}, false},
		{"reset before the request arrives", pgproxy.Rule{Fault: pgproxy.Reset}, false},
		{"reply dropped once more", pgproxy.Rule{Fault: pgproxy.DropReply}, true},
	} {
		landed := loseReply(t, proxy, b, work, c.rule)
		// The orphan is a batch whose node has given up on it. It commits only if its statements
		// reach the server before the new fence, so the test tries again until that happens.
		for try := 1; c.rule.Hold == pgproxy.HoldCommit && !landed && try < 10; try++ {
			landed = loseReply(t, proxy, b, work, c.rule)
		}
		if landed != c.landed {
			t.Errorf("%s: landed = %v, want %v", c.name, landed, c.landed)
		}
	}

	n := work.finish(t, url, 3*time.Minute)
	if lost := b.book.count("the node lost its lease"); lost > 0 {
		t.Errorf("the lease was lost %d times", lost)
	}
	verify(t, url, n, b.ledger)
}

// loseReply applies a rule to one of the next batches. It checks that the node notices the lost
// reply and finds out whether the batch landed. It returns whether the batch landed.
func loseReply(t *testing.T, proxy *pgproxy.Proxy, b *bench, work *load, rule pgproxy.Rule) bool {
	t.Helper()
	work.more(t, 2, 3*time.Minute)
	from := b.book.len()
	rule.Match, rule.Nth = ofLane, 5
	struck := proxy.Inject(rule)

	select {
	case <-struck.Done():
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s: no commit was struck", rule.Fault)
	}

	failed := b.book.await(t, from, "commit failed", func(e entry) bool { return e.attrs["class"].String() == "unknown" }, healing)
	moved := b.book.await(t, from, "fence moved after an unknown commit", func(e entry) bool { return e.attrs["error"].Any() == nil }, healing)
	landed := moved.attrs["landed"].Int64() == failed.attrs["batch"].Int64()
	if committed := struck.Reply().Committed(); committed != landed {
		t.Errorf("%s: the server says that it committed: %v (%s); the node found: %v (%v)", rule.Fault, committed, struck.Reply(), landed, moved.attrs)
	}

	return landed
}

// Each commit takes 100 ms. A node under full load keeps its lease, and puts many steps into one
// commit.
func TestSlowCommits(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy, through := startProxy(t, url)
	b := openApp(t, through, newLedger(t), 10*time.Second)
	const delay, lasting, callers = 100 * time.Millisecond, 8 * time.Second, 40
	proxy.DelayCommits(delay)
	var commits atomic.Int64

	counter := proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Match: func(r pgproxy.Request) bool {
		if ofLane(r) {
			commits.Add(1)
		}
		return false
	}})
	defer counter.Cancel()
	began := time.Now()
	work := startLoad(t.Context(), b.app, b.ledger, "", callers)
	for time.Since(began) < lasting {
		work.more(t, 1, healing)
	}
	n := work.finish(t, url, 3*time.Minute)
	proxy.DelayCommits(0)

	for _, bad := range []string{"the node lost its lease", "the store cannot be used"} {
		if b.book.count(bad) > 0 {
			t.Errorf("the node logged %q", bad)
		}
	}

	ran := verify(t, url, n, b.ledger)
	verifyOnce(t, ran)
	steps := 0
	for _, times := range ran {
		steps += times
	}
	if least := 3 * int(commits.Load()); steps < least {
		t.Errorf("%d steps in %d commits, want at least %d: slow commits must carry more than a step", steps, commits.Load(), least)
	}
	t.Logf("%d executions of each kind, %d steps in %d commits", n, steps, commits.Load())
}
