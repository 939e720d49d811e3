package limit_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func ref(n int) model.TaskRef { return model.TaskRef{ID: fmt.Sprint(n)} }

// One place gets everything at its first request; from then on a permit costs no message.
func TestOnePlaceNeedsOneMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limit.Numbers{Concurrency: 40})
	w.arrive(0)
	w.settle()
	if got := w.locals[0].Block(); got != 40 {
		t.Fatalf("%d permits of 40", got)
	}

	for range 39 {
		w.arrive(0)
	}
	if len(w.up[0]) != 0 || len(w.holding[0]) != 40 {
		t.Fatalf("%d messages, %d holders", len(w.up[0]), len(w.holding[0]))
	}
	w.arrive(0)
	if w.settle(); len(w.waiting[0]) != 1 {
		t.Fatal("41 holders of 40")
	}

	w.finish(0, 7)
	if w.try(0); len(w.waiting[0]) != 0 {
		t.Fatal("a permit that was given back is free")
	}
	w.drain()
}

// L5: if a task takes a permit twice, or gives it back twice, the second call changes nothing.
func TestTakeAndGiveAreIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limit.Numbers{Concurrency: 2, Rate: 2, Per: time.Hour, Burst: 2})
	l := w.locals[0]
	l.Wait(2)
	w.tell(0)
	w.settle()

	for range 2 {
		if !l.Take(ref(1)) || l.HolderCount() != 1 {
			t.Fatalf("%d holders", l.HolderCount())
		}
	}

	if !l.Take(ref(2)) || l.Take(ref(3)) {
		t.Fatal("the second token was spent by the first task")
	}
	if l.Give(ref(3)) || !l.Give(ref(1)) || l.Give(ref(1)) || l.HolderCount() != 1 {
		t.Fatalf("%d holders", l.HolderCount())
	}
}

// If a place does not need its permits, the owner moves all of them to a place that needs them,
// even if that place gets more than its share. It also moves permits that become free later.
func TestSpareIsRecalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limit.Numbers{Concurrency: 10})
	w.arrive(0)
	w.settle() // place 0 has all ten permits, and uses one
	for range 20 {
		w.arrive(1)
	}
	w.settle()
	if a, b := len(w.holding[0]), len(w.holding[1]); a != 1 || b != 9 {
		t.Fatalf("%d and %d holders, want 1 and 9", a, b)
	}

	w.finish(0, 0)
	w.settle()
	if got := len(w.holding[1]); got != 10 {
		t.Fatalf("%d holders, want 10", got)
	}
	w.drain()
}

// L4 under load: all places always have more tasks than permits, and each place gets its share.
func TestSharesUnderLoad(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7} {
		w := newWorld(t, limit.Numbers{Concurrency: n})
		var served [places]int
		for round := range 300 {
			for i := range places {
				for len(w.waiting[i]) < 5 {
					w.arrive(i)
				}
			}
			w.settle()
			for i := range places {
				if round > 20 {
					served[i] += len(w.holding[i])
				}
				for len(w.holding[i]) > 0 {
					w.finish(i, 0)
				}
			}
		}

		low, high := min(served[0], served[1], served[2]), max(served[0], served[1], served[2])
		if low*3 < high {
			t.Errorf("limit %d: %v", n, served)
		}
		if total := served[0] + served[1] + served[2]; total < n*279/2 {
			t.Errorf("limit %d: %d of %d were used", n, total, n*279)
		}
	}
}

// When the limit is lowered, the owner takes idle permits back immediately, whether tasks wait or
// not. Tasks that hold permits may finish.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limit.Numbers{Concurrency: 6})
	for range 4 {
		w.arrive(0)
	}
	w.settle()
	w.locals[1].Wait(2)
	w.tell(1)

	for len(w.up[1])+len(w.down[1])+len(w.up[0])+len(w.down[0]) > 0 {
		for i := range 2 {
			if len(w.up[i]) > 0 {
				w.deliverUp(i)
			}
			if len(w.down[i]) > 0 {
				w.deliverDown(i)
			}
		}
	}

	if w.locals[1].Block() == 0 {
		t.Fatal("nothing was leased to place 1")
	}
	w.configure(limit.Numbers{Concurrency: 2})
	w.settle()
	if permits, _ := w.owner.LeasedTotal(); permits != 4 || w.locals[1].Block() != 0 {
		t.Fatalf("%d permits are leased while 4 are held, %d to place 1", permits, w.locals[1].Block())
	}

	for range 4 {
		w.finish(0, 0)
		w.settle()
		if permits, _ := w.owner.LeasedTotal(); permits > max(2, len(w.holding[0])) {
			t.Fatalf("%d permits are leased", permits)
		}
	}

	if got := w.locals[1].Block(); got == 0 {
		t.Fatal("the limit is kept, and place 1 still has nothing")
	}
}

// A place dies, and another place takes over the tasks that held permits of the dead place. Until
// these tasks have permits again, no other task gets the permits.
func TestLostPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limit.Numbers{Concurrency: 3, Rate: 9, Per: time.Minute, Burst: 9})
	for range 3 {
		w.arrive(0)
	}
	w.settle()
	w.arrive(1)
	w.arrive(2)
	w.settle()
	w.found = true
	for _, who := range w.holding[0] {
		w.locals[1].Hold(who)
	}
	w.holding[1], w.holding[0] = w.holding[0], nil
	w.locals[0] = limit.NewLocal(w.owner.Numbers())
	w.tell(1)
	w.settleUp(1)
	w.up[0], w.down[0] = nil, nil
	w.send(w.owner.DropPlace(w.now, 0))
	w.settle()
	if w.locals[1].Block() != 3 || len(w.waiting[1]) != 1 || len(w.waiting[2]) != 1 {
		t.Fatalf("%d permits, %d and %d wait", w.locals[1].Block(), len(w.waiting[1]), len(w.waiting[2]))
	}

	w.drain()
}

// The rate is 999,983 per day, and the owner adds up tokens in steps of odd lengths for two hours.
// The number of tokens is exact, without rounding errors.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	n := limit.Numbers{Rate: 999_983, Per: 24 * time.Hour}
	w := newWorld(t, n)
	w.arrive(0)
	w.settle()

	begin, count := w.now, 1
	for step := model.Time(1); w.now < begin.Add(2*time.Hour); step = step%977 + 13 {
		if len(w.waiting[0]) == 0 {
			w.holding[0] = w.holding[0][:0]
			w.arrive(0)
			w.settle()
		}

		next := w.owner.Next()
		if next <= w.now {
			t.Fatalf("next %v at %v", next, w.now)
		}
		w.now = next - 1
		if w.settle(); len(w.waiting[0]) != 1 {
			t.Fatal("a token before its time")
		}

		w.send(w.owner.Tick(w.now))
		w.now = next
		w.send(w.owner.Tick(w.now))
		w.settle()
		count++
		if len(w.waiting[0]) != 0 {
			t.Fatalf("no token at its time, number %d", count)
		}

		if count > 20_000 {
			break
		}
	}

	want := int64(w.now-begin) * n.Rate / n.Per.Microseconds()
	if int64(count-1) != want {
		t.Fatalf("%d tokens in %v, want %d", count-1, w.now.Sub(begin), want)
	}
}

// Times and numbers at their bounds neither overflow nor go below zero.
func TestBounds(t *testing.T) {
	t.Parallel()
	n := limit.Numbers{Rate: limit.MaxRate, Per: limit.MaxPer, Burst: limit.MaxRate}
	o := limit.NewOwner(n, 0)
	for _, now := range []model.Time{model.MaxTime, 0, math.MaxInt64, 5} {
		for _, s := range o.Receive(now, 1, limit.ToOwner{WantTokens: math.MaxInt64}) {
			if s.Tokens < 0 || s.Tokens > limit.MaxRate {
				t.Fatalf("%+v", s)
			}
			o.Receive(now, 1, limit.ToOwner{Spent: s.Tokens})
		}
	}

	o.Configure(math.MaxInt64, limit.Numbers{Rate: 1, Per: limit.MinPer})
	o.Configure(math.MaxInt64, n)
	o.Configure(math.MaxInt64, limit.Numbers{Concurrency: 1})
	if _, tokens := o.LeasedTotal(); tokens < 0 {
		t.Fatal(tokens)
	}
}

func TestNumbersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, n := range []limit.Numbers{
		{},
		{Concurrency: -1},
		{Concurrency: limit.MaxConcurrency + 1},
		{Rate: 1},
		{Rate: -1, Per: time.Second},
		{Rate: 1, Per: time.Microsecond},
		{Rate: 1, Per: 25 * time.Hour},
		{Concurrency: 1, Per: time.Second},
		{Concurrency: 1, Burst: 2},
		{Rate: 1, Per: time.Second, Burst: -1},
	} {
		if err := n.Validate(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	w := newWorld(f, limit.Numbers{Concurrency: 3, Rate: 2, Per: time.Second})
	w.arrive(0)
	w.settle()
	row, err := w.owner.Encode()
	if err != nil {
		f.Fatal(err)
	}

	f.Add(row)
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, row []byte) {
		if o, err := limit.DecodeOwner(row); err == nil {
			o.Receive(t0, 1, limit.ToOwner{Want: 1, WantTokens: 1})
			o.Configure(t0+1, limit.Numbers{Concurrency: 1})
			o.Next()
		} else if !fault.Is(err, fault.Corrupt) {
			t.Fatal(err)
		}
	})
}
