package lane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// When further nodes start to wait, the lane forgets nodes that have waited for a long time. It
// cannot know whether the callers of these nodes still wait.
func TestWaitingNodesAreForgotten(t *testing.T) {
	t.Parallel()
	const n = 1200
	r := newRig(t)

	watch := func(i int) {
		r.put(model.Message{Kind: model.MessageWatch, To: key(fmt.Sprint("k", i))}, fmt.Sprint("w", i))
	}
	for i := range n {
		r.start(key(fmt.Sprint("k", i)), i)
		watch(i)
	}

	r.settle()
	r.l.MailWaits()
	r.settle()
	if got := r.l.Waiters(); got != n {
		t.Fatalf("callers wait for %d executions, want %d", got, n)
	}
	r.pass(11 * time.Minute)

	for i := range n + 1 { // the lane remembers nodes that say again that they wait
		if i%100 == 0 {
			watch(i)
		}
	}

	for i := n; i < 2*n; i++ {
		r.start(key(fmt.Sprint("k", i)), i)
		watch(i)
	}

	r.settle()
	r.l.MailWaits()
	r.settle()
	if got := r.l.Waiters(); got < n || got > n+n/50 {
		t.Errorf("callers wait for %d executions, want the late ones and few others", got)
	}
}

// If a caller gives up before the lane has put its question to the code, the lane drops the
// question.
func TestForgottenQueryThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.release(a, "nothing")
	r.settle()
	// the run has left memory, and the lane reads it
	r.send(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "query")
	r.flush()
	r.signal(a, "s", "signal")
	r.l.Forget(a, "query")
	if held := r.l.PendingBytes(); held == 0 {
		t.Fatal("nothing waits")
	}

	r.settle()
	r.wantSilence("query")
	r.wantAnswer("signal", "")
	if r.l.Queries() != 0 || r.l.PendingBytes() != 0 {
		t.Errorf("%d queries are open, %d bytes are held", r.l.Queries(), r.l.PendingBytes())
	}
	if h := r.holder(a); h == 0 || len(r.held[r.current(a).Start.Run].asked) != 0 {
		t.Error("the code is asked without a caller")
	}
}
