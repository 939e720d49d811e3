package lane_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// payload returns a value of n bytes.
func payload(n int) model.Payload { return model.Payload{Data: bytes.Repeat([]byte{'x'}, n)} }

// sizeOf returns how many bytes the starts and events of a batch have.
func sizeOf(b *store.Batch) (n int) {
	for i := range b.Starts {
		n += b.Starts[i].Start.Input.Size()
	}
	for i := range b.Events {
		n += b.Events[i].Event.Input.Size() + b.Events[i].Event.Output.Size()
	}
	return n
}

func (r *rig) startLarge(a model.Address, n int, token any) {
	r.send(model.Message{Kind: model.MessageStart, To: a, Input: payload(n)}, token)
}

func (r *rig) signalLarge(a model.Address, name string, n int, token any) {
	r.send(model.Message{Kind: model.MessageSignal, To: a, Name: name, Input: payload(n)}, token)
}

// slowPath is a path to the store that moves a number of bytes per second. A commit that would take
// longer than its limit ends without an answer and does not land. slowPath notes the sizes of the
// batches that arrive.
func slowPath(perSecond int, class store.Class, arrived *[]int) func(*store.Batch) error {
	return func(b *store.Batch) error {
		n := sizeOf(b)
		took := time.Duration(n) * time.Second / time.Duration(perSecond)
		if limit := b.Within(time.Second); took > limit {
			return store.Errorf(class, "commit", "%d bytes take %s, and the limit is %s", n, took, limit)
		}
		*arrived = append(*arrived, n)
		return nil
	}
}

// However much input waits, a batch exceeds the limit by at most one input. Inputs of one key keep
// their order.
func TestBatchIsCutByBytes(t *testing.T) {
	t.Parallel()
	const limit, large, n = 1 << 20, 300 << 10, 20
	r := newRig(t, func(c *lane.Config) { c.MaxBatchBytes = limit })
	r.join(1)
	a := key("a")
	r.startRun(a)
	var sizes []int
	r.refuse = func(b *store.Batch) error { sizes = append(sizes, sizeOf(b)); return nil }

	for i := range n {
		r.startLarge(key(fmt.Sprint("k", i)), large, fmt.Sprint("start ", i))
		r.signalLarge(a, fmt.Sprint("s", i), large, fmt.Sprint("signal ", i))
	}

	if !r.l.Full() {
		t.Error("a lane whose batch is full takes more")
	}
	r.settle()

	var want []string
	for i := range n {
		r.wantAnswer(fmt.Sprint("start ", i), "")
		r.wantAnswer(fmt.Sprint("signal ", i), "")
		want = append(want, fmt.Sprint("signal_received s", i))
	}

	r.wantEvents(a, want...)
	if most := slices.Max(sizes); most > limit+large || len(sizes) > 2*n*large/limit+2 {
		t.Errorf("batches of %v bytes, want few of at most %d each", sizes, limit+large)
	}
	if r.l.Full() || r.l.PendingBytes() != 0 || !r.l.Idle() {
		t.Errorf("full %v, %d bytes held, idle %v; want the lane at rest", r.l.Full(), r.l.PendingBytes(), r.l.Idle())
	}
}

// An input that is larger than the limit of a batch still goes through, and starves no other input.
func TestInputLargerThanABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBatchBytes = 1 << 10 })
	for i := range 5 {
		r.startLarge(key(fmt.Sprint("large", i)), 10<<10, fmt.Sprint("large", i))
		r.start(key(fmt.Sprint("small", i)), fmt.Sprint("small", i))
	}
	r.settle()
	for i := range 5 {
		r.wantAnswer(fmt.Sprint("large", i), "")
		r.wantAnswer(fmt.Sprint("small", i), "")
	}
}

// A small input may cause large rows, and the limit includes them. Here the large rows are signals
// that a run passes on to the next run.
func TestRowsCountAndNotOnlyInputs(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBatchBytes = 1 << 20 })
	r.join(1)

	const large, n = 400 << 10, 8
	for i := range n {
		r.startRun(key(fmt.Sprint("k", i)))
		r.signalLarge(key(fmt.Sprint("k", i)), "s", large, fmt.Sprint("signal ", i))
		r.settle()
	}

	var carried []int
	r.refuse = func(b *store.Batch) error {
		n := 0
		for i := range b.Starts {
			for j := range b.Starts[i].Start.Carried {
				n += b.Starts[i].Start.Carried[j].Size()
			}
		}
		carried = append(carried, n)
		return nil
	}

	// a turn of a few bytes; the next run starts with a signal that this run has not read
	for i := range n {
		r.turn(key(fmt.Sprint("k", i)), model.Turn{Close: &model.Close{Status: model.Continued}, Seen: 1})
	}
	r.settle()
	if most := slices.Max(carried); most > 1<<20+large+1024 || most == 0 {
		t.Errorf("batches carry %v bytes of signals, want at most %d each", carried, 1<<20+large)
	}
}

// The lane splits a batch that the store does not take in time, until the parts fit. No input is
// lost, applied twice or out of order. Without the split, the lane would send the same batch
// forever.
func TestBatchThatIsNeverDoneInTime(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Unknown, store.Retryable} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			const large, n = 100 << 10, 40
			r := newRig(t)
			r.join(1)
			a, target := in(0, 0), in(1, 0)
			r.startRun(a)
			r.startRun(target)
			var arrived []int
			r.refuse = slowPath(20<<10, class, &arrived)

			for i := range n {
				r.startLarge(key(fmt.Sprint("k", i)), large, fmt.Sprint("start ", i))
				r.signalLarge(a, fmt.Sprint("s", i), large, fmt.Sprint("signal ", i))
			}

			r.turn(a, commandTurn(step("x"), signalTo(target, "m", "hello")))
			r.settle()
			r.pass(time.Minute)

			want := make([]string, 0, n)
			for i := range n {
				r.wantAnswer(fmt.Sprint("start ", i), "")
				r.wantAnswer(fmt.Sprint("signal ", i), "")
				if r.holder(key(fmt.Sprint("k", i))) == 0 {
					t.Errorf("k%d was not activated", i)
				}
				want = append(want, fmt.Sprint("signal_received s", i))
			}

			got := slices.DeleteFunc(r.events(a), func(e string) bool { return e == "step_completed x" || e == "sent m" || e == "answered m" })
			if !slices.Equal(got, want) {
				t.Errorf("signals = %q, want them in order, each once", got)
			}
			r.wantEvents(target, "signal_received hello")
			if r.l.Full() || r.l.PendingBytes() != 0 || !r.l.Idle() || r.dead != nil {
				t.Errorf("full %v, %d bytes held, idle %v, dead %v; want the lane at rest", r.l.Full(), r.l.PendingBytes(), r.l.Idle(), r.dead)
			}
		})
	}
}

// A single input that is not done in time cannot be split: it gets more time with each attempt.
func TestInputThatIsNotDoneInTime(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Unknown, store.Retryable} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var arrived []int
			r.refuse = slowPath(64<<10, class, &arrived)
			r.startLarge(key("large"), 4<<20, "large")
			r.settle()
			r.pass(time.Minute)
			r.wantAnswer("large", "")
			var patience []int
			r.refuse = func(b *store.Batch) error { patience = append(patience, b.Patience); return nil }

			for i := range 4 {
				r.start(key(fmt.Sprint("next ", i)), i)
				r.settle()
			}

			if patience[0] == 0 || patience[3] != 0 {
				t.Errorf("the next batches have the patience %v; want it to fade, as the path may be quick again", patience)
			}
		})
	}
}

// After a split, batches stay small until the store has taken a batch of about the allowed size in
// time.
func TestBatchesGrowAgainAfterASlowPath(t *testing.T) {
	t.Parallel()
	const large, many = 100 << 10, 100
	r := newRig(t)
	var arrived []int

	send := func(what string) {
		for i := range many {
			r.startLarge(key(fmt.Sprint(what, i)), large, fmt.Sprint(what, i))
		}
		r.settle()
		r.pass(time.Minute)
		for i := range many {
			r.wantAnswer(fmt.Sprint(what, i), "")
		}
	}

	r.refuse = slowPath(32<<10, store.Unknown, &arrived)
	send("slow ")
	arrived = nil
	r.refuse = slowPath(1<<30, store.Unknown, &arrived)
	send("quick ")
	if arrived[0] > 3<<20 || slices.Max(arrived) < 7<<19 {
		t.Errorf("batches after a slow path have %v bytes; want them to begin small and to grow to the limit again", arrived)
	}
}

// A store that cannot be reached is no reason to split: a smaller batch would not arrive either,
// and the lane would have to read everything again.
func TestOutageDoesNotSplit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 10 {
		r.start(key(fmt.Sprint("k", i)), i)
	}
	r.flush()

	for range 30 {
		r.fail(store.Away)
		for until := r.now.Add(2 * time.Second); r.commit == nil && r.now < until; r.flush() {
			r.now = max(r.now, r.l.Wake())
		}
		if r.commit == nil || len(r.commit.Starts) != 10 || r.commit.Patience != 0 {
			t.Fatalf("batch = %+v, want the same ten starts", r.commit)
		}
	}

	r.settle()
	for i := range 10 {
		r.wantAnswer(i, "")
	}
}

// The first attempt to commit a batch was late. The next attempt lands, but its answer is lost. The
// lane reads its fence before it splits the batch, so it does not apply the batch again.
func TestLateBatchThatLanded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := key("a"), key("b")
	r.startRun(a)
	r.startRun(b)
	r.signal(a, "s", "a")
	r.signal(b, "s", "b")
	r.flush()
	r.fail(store.Unknown)
	r.refenceNow()
	r.landUnheard()
	r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "lost"))
	r.flush()
	if r.refence == nil || r.commit != nil {
		t.Fatal("the fence does not move before the lane goes on")
	}

	r.settle()
	for _, x := range []model.Address{a, b} {
		r.wantAnswer(x.Key, "")
		r.wantEvents(x, "signal_received s")
	}

	if r.dead != nil {
		t.Error(r.dead)
	}
}
