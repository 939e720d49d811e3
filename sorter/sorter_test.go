package sorter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/sorter"
)

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// receiver stores a sorter as an entity does: it encodes the sorter between two messages.
type receiver struct {
	t      testing.TB
	limits sorter.Limits
	s      sorter.Sorter
	now    time.Time
	got    []string
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	return &receiver{t: t, now: noon, limits: sorter.Limits{Window: time.Minute}}
}

// store encodes the sorter and reads it back.
func (r *receiver) store() {
	r.t.Helper()
	data, err := json.Marshal(&r.s)
	if err != nil {
		r.t.Fatal(err)
	}
	r.s = sorter.Sorter{}
	if err := json.Unmarshal(data, &r.s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *receiver) take(all []sorter.Message) {
	for _, m := range all {
		r.got = append(r.got, fmt.Sprintf("%s%d.%d", m.Sender, m.Epoch, m.Number))
	}
}

func (r *receiver) receive(sender string, epoch, number int64) error {
	r.t.Helper()
	all, err := r.s.Receive(r.limits, sorter.Message{Sender: sender, Epoch: epoch, Number: number, Body: json.RawMessage("1")}, r.now)
	r.take(all)
	r.store()
	return err
}

// must passes messages of epoch 0 to the sorter. The sorter must accept them.
func (r *receiver) must(sender string, numbers ...int64) {
	r.t.Helper()
	for _, n := range numbers {
		if err := r.receive(sender, 0, n); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *receiver) flush() {
	r.t.Helper()
	r.take(r.s.Flush(r.limits, r.now))
	r.store()
}

// want compares the messages that were delivered since the last call of want.
func (r *receiver) want(all string) {
	r.t.Helper()
	if got := strings.Join(r.got, " "); got != all {
		r.t.Errorf("delivered %q, want %q", got, all)
	}
	r.got = nil
}

// L16 and L17: several senders send messages in any order and with any repetitions, within the
// window. The receiver gets each sequence once. At every step, each received message has been
// delivered, waits, or was dropped.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		type arrival struct {
			sender string
			number int64
		}
		var all []arrival
		lengths := map[string]int{}
		for _, sender := range []string{"a", "b", "A"}[:rapid.IntRange(1, 3).Draw(rt, "senders")] {
			lengths[sender] = rapid.IntRange(0, 12).Draw(rt, "messages")
			for n := range lengths[sender] {
				for range 1 + rapid.IntRange(0, 2).Draw(rt, "repetitions") {
					all = append(all, arrival{sender, int64(n + 1)})
				}
			}
		}

		seen, delivered := map[arrival]bool{}, map[string]int64{}
		dropped := 0
		for i, m := range rapid.Permutation(all).Draw(rt, "order") {
			before, _ := r.s.Waiting()
			got := len(r.got)
			r.now = r.now.Add(time.Duration(rapid.IntRange(-500, 500).Draw(rt, "ms")) * time.Millisecond)
			if err := r.receive(m.sender, 0, m.number); err != nil {
				rt.Fatal(err)
			}
			if seen[m] {
				dropped++
			}
			seen[m] = true
			waits, _ := r.s.Waiting()
			if len(r.got)+waits+dropped != i+1 {
				rt.Fatalf("%d were received: %d delivered, %d wait, %d dropped (before: %d wait, %d delivered)", i+1, len(r.got), waits, dropped, before, got)
			}
		}

		for _, line := range r.got {
			sender := line[:1]
			delivered[sender]++
			if want := fmt.Sprintf("%s0.%d", sender, delivered[sender]); line != want {
				rt.Fatalf("%s is delivered, want %s: %v", line, want, r.got)
			}
		}
		for sender, n := range lengths {
			if delivered[sender] != int64(n) {
				rt.Fatalf("%d messages of %s are delivered, want %d", delivered[sender], sender, n)
			}
		}
		if waits, bytes := r.s.Waiting(); waits != 0 || bytes != 0 {
			rt.Fatalf("%d messages of %d bytes wait", waits, bytes)
		}
	})
}

// L18 and L19: the numbers for one receiver grow by one, no matter what the clock does. Receivers
// whose names differ only in case have separate numbers.
func TestNumbers(t *testing.T) {
	t.Parallel()
	n := sorter.Numbers{Sender: "device", Epoch: 7}
	var got []string
	for _, to := range []string{"shelf/a", "shelf/A", "shelf/a", "Shelf/a", "shelf/a"} {
		m, err := n.Next(to, nil)
		if err != nil || m.Epoch != 7 || m.Sender != "device" {
			t.Fatal(m, err)
		}
		got = append(got, fmt.Sprint(to, " ", m.Number))
	}
	if want := []string{"shelf/a 1", "shelf/A 1", "shelf/a 2", "Shelf/a 1", "shelf/a 3"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i := len(n.Last); i < sorter.MaxReceivers; i++ {
		if _, err := n.Next(fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Next("one more", nil); !fault.Is(err, fault.Exhausted) {
		t.Errorf("%v", err)
	}
	if _, err := n.Next("shelf/a", nil); err != nil {
		t.Error(err)
	}
}

// L20: a missing predecessor delays its successors for the window and no longer. After the window
// the successors are delivered in order. If the predecessor arrives after that, it is dropped.
func TestMissingPredecessor(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.must("a", 1, 5, 3)
	r.want("a0.1")
	r.now = r.now.Add(30 * time.Second)
	r.must("a", 4, 8)
	if due, ok := r.s.Due(r.limits); !ok || !due.Equal(noon.Add(time.Minute)) {
		t.Errorf("due at %s, %v", due, ok)
	}
	r.now = noon.Add(time.Minute - 1)
	r.flush()
	r.want("")
	r.now = noon.Add(time.Minute)
	r.flush()
	r.want("a0.3 a0.4 a0.5")
	r.must("a", 2, 6)
	r.want("a0.6")
	if due, ok := r.s.Due(r.limits); !ok || !due.Equal(noon.Add(90*time.Second)) {
		t.Errorf("due at %s, %v", due, ok)
	}

	// A message of another sender also releases messages whose window is over.
	r.now = noon.Add(2 * time.Minute)
	r.must("b", 1)
	r.want("a0.8 b0.1")
	r.must("a", 7, 9)
	r.want("a0.9")
	if _, ok := r.s.Due(r.limits); ok {
		t.Error("nothing waits, and Due has a time")
	}
}

// L21: a message of an earlier epoch is never delivered after a message of a later epoch, and never
// twice.
func TestEpochs(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	for _, m := range [][2]int64{{1, 1}, {1, 3}, {2, 1}, {1, 2}, {1, 1}, {2, 1}, {2, 3}, {1, 4}, {2, 2}, {9, 2}, {2, 4}, {9, 1}} {
		if err := r.receive("a", m[0], m[1]); err != nil {
			t.Fatal(err)
		}
	}
	r.want("a1.1 a1.3 a2.1 a2.2 a2.3 a9.1 a9.2")

	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		type id struct{ epoch, number int64 }
		seen, last := map[string]bool{}, id{}
		for range rapid.IntRange(0, 60).Draw(rt, "arrivals") {
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
			if err := r.receive("a", rapid.Int64Range(0, 3).Draw(rt, "epoch"), rapid.Int64Range(1, 6).Draw(rt, "number")); err != nil {
				rt.Fatal(err)
			}
		}
		for _, line := range r.got {
			var now id
			if _, err := fmt.Sscanf(line, "a%d.%d", &now.epoch, &now.number); err != nil {
				rt.Fatal(err)
			}
			if seen[line] || now.epoch < last.epoch || now.epoch == last.epoch && now.number <= last.number {
				rt.Fatalf("%s after %+v: %v", line, last, r.got)
			}
			seen[line], last = true, now
		}
	})
}

// A full sorter refuses a message and does not keep it, so the sender can try again. The sorter
// never refuses a message that need not wait. The sorter forgets a sender only if the sender has
// been silent for a long time.
func TestBounds(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.limits = sorter.Limits{Window: 48 * time.Hour, Senders: 2, Keep: time.Hour, Waiting: 2, Bytes: 100}
	r.must("a", 1, 3, 4)
	r.want("a0.1")
	for _, m := range []sorter.Message{{Sender: "a", Number: 6}, {Sender: "b", Number: 2}, {Sender: "a", Epoch: 1, Number: 2, Body: make(json.RawMessage, 80)}} {
		if got, err := r.s.Receive(r.limits, m, r.now); !fault.Is(err, fault.Exhausted) || len(got) > 0 {
			t.Errorf("%+v: %v, %v", m, got, err)
		}
	}
	r.must("b", 1)
	r.must("a", 3, 2) // 3 repeats a message that waits, and 2 is the missing message
	r.want("b0.1 a0.2 a0.3 a0.4")

	if err := r.receive("c", 0, 1); !errors.Is(err, perdure.ErrExhausted) {
		t.Errorf("a third sender: %v", err)
	}
	r.now = r.now.Add(time.Hour)
	r.must("a", 5)
	r.must("c", 1)
	r.want("a0.5 c0.1")
	if _, known := r.s.Senders["b"]; known || len(r.s.Senders) != 2 {
		t.Errorf("%d senders", len(r.s.Senders))
	}

	for _, m := range []sorter.Message{{Number: 1}, {Sender: strings.Repeat("x", 257), Number: 1}, {Sender: "a"}, {Sender: "a", Number: 1, Epoch: -1}} {
		if _, err := r.s.Receive(r.limits, m, r.now); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
