package lane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// L6: a hot key takes a fixed number of inputs per batch; other keys get their share of every
// batch.
func TestHotKeyDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.PerKey = 4 })
	r.join(1)
	hot, cold := key("hot"), key("cold")
	r.startRun(hot)
	r.startRun(cold)
	for i := range 20 {
		r.signal(hot, fmt.Sprint(i), i)
	}
	r.signal(cold, "s", "cold")
	r.flush()

	count := func(b *store.Batch, a model.Address) (n int) {
		for _, e := range b.Events {
			if e.Run == r.current(a).Start.Run {
				n++
			}
		}
		return n
	}
	if h, c := count(r.commit, hot), count(r.commit, cold); h != 4 || c != 1 {
		t.Fatalf("the first batch has %d of the hot key and %d of the cold one, want 4 and 1", h, c)
	}

	for n := 4; n <= 20; n += 4 {
		// this signal joins the next batch, however long the line of the hot key is
		r.signal(cold, "s", fmt.Sprint("cold ", n))
		r.commitNow()
		r.wantAnswer(n-1, "")
		r.wantSilence(n, fmt.Sprint("cold ", n))
		if h, c := count(r.commit, hot), count(r.commit, cold); h != min(4, 20-n) || c != 1 {
			t.Fatalf("after %d, the next batch has %d of the hot key and %d of the cold one", n, h, c)
		}
	}

	r.settle()
	r.wantAnswer("cold", "")
	r.wantAnswer("cold 20", "")
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("signal_received ", i))
	}
	r.wantEvents(hot, want...)
}

// L6: the backlog of an address is bounded. The lane refuses inputs that do not fit, and they have
// no effect.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBacklog, c.PerKey = 5, 2 })
	r.join(1)
	a := key("a")
	r.startRun(a)
	for i := range 10 {
		r.signal(a, fmt.Sprint(i), i)
	}

	var refused []any
	for token, ans := range r.answers {
		if kindOf(ans.Err) == "exhausted" {
			refused = append(refused, token)
		}
	}

	if len(refused) != 3 { // 2 applied, 5 wait
		t.Errorf("%d were refused, want 3", len(refused))
	}
	r.signal(key("b"), "s", "other")
	r.settle()
	r.wantAnswer("other", "not_found")
	if got := len(r.events(a)); got != 7 {
		t.Errorf("%d signals arrived, want 7", got)
	}
	r.signal(a, "again", "again")
	r.settle()
	r.wantAnswer("again", "")
}

// L7: bytes held are bounded; a full lane says so, and has room again after its commits.
func TestFullByBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBytes = 50_000 })
	r.join(1)
	a := key("a")
	r.startRun(a)
	idle := r.l.PendingBytes()
	if r.l.Full() || idle != 0 {
		t.Fatalf("an idle lane holds %d bytes", idle)
	}

	n := 0
	for !r.l.Full() {
		r.send(model.Message{Kind: model.MessageSignal, To: a, Name: "s", Input: model.Payload{Data: make([]byte, 1000)}}, n)
		n++
		if n > 100 {
			t.Fatal("the lane is never full")
		}
	}

	r.flush()
	if !r.l.Full() || r.l.PendingBytes() < 50_000 || r.l.PendingBytes() > 60_000 {
		t.Errorf("held %d bytes in flight, want at least 50,000 and not much more", r.l.PendingBytes())
	}
	r.settle()
	if r.l.Full() || r.l.PendingBytes() != 0 {
		t.Errorf("after the commits the lane holds %d bytes", r.l.PendingBytes())
	}
}

// L7: a full lane fires no timer until it has room.
func TestFullLaneFiresNoTimer(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBytes = 20_000 })
	r.join(1)
	a, b := key("a"), key("b")
	r.startRun(a)
	r.startRun(b)
	r.turn(b, commandTurn(timer("t", r.now.Add(1000))))
	r.settle()
	for i := 0; !r.l.Full(); i++ {
		r.send(model.Message{Kind: model.MessageSignal, To: a, Input: model.Payload{Data: make([]byte, 1000)}}, i)
	}
	r.flush()
	r.now = r.now.Add(5 * time.Second)
	held := r.l.PendingBytes()
	r.flush()
	r.flush()
	if r.l.PendingBytes() != held {
		t.Errorf("a full lane takes in %d bytes more", r.l.PendingBytes()-held)
	}
	if at := r.l.Wake(); at != 0 && at <= r.now {
		t.Errorf("a full lane wants to be woken at %s: it would spin", at)
	}
	r.wantEvents(b)
	r.settle()
	r.wantEvents(b, "timer_fired t")
}

// A batch has a bounded number of rows; the rest follows in the next ones, and nothing is lost.
func TestBatchRowsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBatchRows = 10 })
	for i := range 100 {
		r.start(key(fmt.Sprint(i)), i)
	}
	most := 0
	r.flush()

	for r.commit != nil {
		most = max(most, r.commit.Rows())
		r.commitNow()
		r.flush()
	}

	if most > 12 {
		t.Errorf("a batch had %d rows, want about 10", most)
	}
	for i := range 100 {
		r.wantAnswer(i, "")
	}
}

// Reads in flight are bounded.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxLoads = 3 })
	for i := range 20 {
		r.signal(key(fmt.Sprint(i)), "s", i)
	}
	r.flush()
	if len(r.loads) != 3 {
		t.Fatalf("%d reads are in flight, want 3", len(r.loads))
	}

	one := r.loads[0]
	r.loads = r.loads[1:]
	r.readOne(one)
	r.flush()
	if len(r.loads) != 3 {
		t.Errorf("%d reads are in flight, want 3", len(r.loads))
	}
	r.settle()
	for i := range 20 {
		r.wantAnswer(i, "not_found")
	}
	if !r.l.Idle() {
		t.Error("the lane is not idle")
	}
}

// So many reads wait that the lane fires no further timers. It waits for the reads instead of
// spinning.
func TestCrowdedLaneDoesNotSpin(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxLoads = 2 })
	r.join(1)
	const n = 1200
	for i := range n {
		r.start(key(fmt.Sprint(i)), i)
	}
	r.settle()
	for i := range n {
		r.turn(key(fmt.Sprint(i)), commandTurn(timer("t", r.now.Add(time.Second))))
	}
	r.settle()
	for i := range n {
		r.release(key(fmt.Sprint(i)), "t")
	}
	r.settle()
	r.now = r.now.Add(2 * time.Second)
	for range 10 {
		r.flush()
	}
	if len(r.loads) != 2 {
		t.Fatalf("%d reads are in flight, want 2", len(r.loads))
	}

	if at := r.l.Wake(); at != 0 && at <= r.now {
		t.Errorf("wants to be woken at %s while it waits for reads: it would spin", at)
	}
	r.settle()
	for i := range n {
		r.wantEvents(key(fmt.Sprint(i)), "timer_fired t")
	}
}
