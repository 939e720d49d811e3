package limit_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/model"
)

const (
	t0     = model.Time(1_000_000_000_000_000)
	places = 3
)

// many checks a property with more random inputs than usual. It is for properties that are quick to
// check.
func many(t *testing.T, prop func(*rapid.T)) {
	for range 8 {
		rapid.Check(t, prop)
	}
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// world is an owner, some places, and the messages that are on their way. Messages with the same
// sender and receiver arrive in order.
type world struct {
	t      fataler
	now    model.Time
	owner  *limit.Owner
	locals [places]*limit.Local
	up     [places][]limit.ToOwner
	down   [places][]limit.ToPlace

	tasks   int
	waiting [places][]model.TaskRef
	holding [places][]model.TaskRef
	spent   []model.Time
	leased  int // leased permits before the last input
	limit   int
	found   bool // a place has taken over holders, so there may be more holders than permits
}

func newWorld(t fataler, n limit.Numbers) *world {
	w := &world{t: t, now: t0, owner: limit.NewOwner(n, t0), limit: n.Concurrency}
	for i := range w.locals {
		w.locals[i] = limit.NewLocal(n)
	}
	return w
}

func (w *world) tell(i int) {
	if m, ok := w.locals[i].Tell(); ok {
		w.up[i] = append(w.up[i], m)
	}
}

func (w *world) send(sends []limit.Send) {
	for _, s := range sends {
		w.down[s.To] = append(w.down[s.To], s.ToPlace)
	}
}

func (w *world) arrive(i int) {
	w.tasks++
	w.waiting[i] = append(w.waiting[i], model.TaskRef{ID: fmt.Sprint(w.tasks)})
	w.locals[i].Wait(1)
	w.try(i)
}

// try lets the waiting tasks of a place take permits and tokens, as far as there are any.
func (w *world) try(i int) {
	for len(w.waiting[i]) > 0 && w.locals[i].Take(w.waiting[i][0]) {
		w.locals[i].Wait(-1)
		w.holding[i] = append(w.holding[i], w.waiting[i][0])
		w.waiting[i] = w.waiting[i][1:]
		w.spent = append(w.spent, w.now)
	}
	w.tell(i)
}

func (w *world) finish(i, k int) {
	if !w.locals[i].Give(w.holding[i][k]) || w.locals[i].Give(w.holding[i][k]) {
		w.t.Fatalf("a holder is one once")
	}
	w.holding[i] = append(w.holding[i][:k:k], w.holding[i][k+1:]...)
	w.tell(i)
}

func (w *world) deliverUp(i int) {
	m := w.up[i][0]
	w.up[i] = w.up[i][1:]
	w.leased, _ = w.owner.LeasedTotal()
	w.send(w.owner.Receive(w.now, limit.Place(i), m))
}

func (w *world) deliverDown(i int) {
	m := w.down[i][0]
	w.down[i] = w.down[i][1:]
	w.locals[i].Receive(m)
	w.tell(i)
}

// compare does what a caller does when no message of a place is on its way: it tells the place what
// the owner believes about it.
func (w *world) compare(i int) {
	if len(w.up[i])+len(w.down[i]) > 0 {
		return
	}
	var a limit.Account
	a.Look(w.owner, limit.Place(i))
	w.locals[i].CorrectBelief(a.Beliefs())
	w.tell(i)
}

func (w *world) configure(n limit.Numbers) {
	w.limit = n.Concurrency
	w.send(w.owner.Configure(w.now, n))
	for i := range w.locals {
		w.locals[i].Configure(n)
		w.tell(i)
	}
}

// check checks L1, L2 and L3.
func (w *world) check() {
	permits, tokens := w.owner.LeasedTotal()
	sum, blocks := 0, 0
	for i, l := range w.locals {
		if w.limit > 0 && l.HolderCount() > l.Block() && !w.found {
			w.t.Fatalf("place %d: %d holders, %d permits", i, l.HolderCount(), l.Block())
		}
		sum += l.Block()
		blocks += l.HolderCount()
		for _, m := range w.up[i] {
			sum += m.Permits
			tokens -= m.Tokens + m.Spent
		}
		for _, m := range w.down[i] {
			sum += m.Permits
			tokens -= m.Tokens
		}
	}

	if sum != permits {
		w.t.Fatalf("%d permits are leased, %d are somewhere", permits, sum)
	}
	if tokens < 0 {
		w.t.Fatalf("%d tokens too many", -tokens)
	}
	if w.limit > 0 && permits > max(w.limit, w.leased) {
		w.t.Fatalf("%d permits of %d are leased, %d before", permits, w.limit, w.leased)
	}

	w.leased = permits
}

// settle delivers all messages.
func (w *world) settle() {
	for n, busy := 0, true; busy; n++ {
		if n > 10_000 {
			w.t.Fatalf("messages without end")
		}

		busy = false
		for i := range w.locals {
			for len(w.up[i]) > 0 {
				w.deliverUp(i)
				busy = true
			}
		}

		for i := range w.locals {
			for len(w.down[i]) > 0 {
				w.deliverDown(i)
				busy = true
			}
			w.try(i)
			w.compare(i)
			busy = busy || len(w.up[i]) > 0
			w.check()
		}
	}
}

// drain lets every holder finish, until every waiting task has had a permit (L4).
func (w *world) drain() {
	w.settle()
	for n := 0; ; n++ {
		left := 0
		for i := range w.locals {
			left += len(w.waiting[i]) + len(w.holding[i])
		}
		if left == 0 {
			break
		}

		if n > 10*w.tasks+100 {
			w.t.Fatalf("%d tasks of %d do not come to an end: %+v waiting, %+v", left, w.tasks, w.waiting, w.owner.Leases())
		}

		held := 0
		for i := range w.locals {
			if len(w.holding[i]) > 0 {
				held++
				w.finish(i, 0)
			}
		}

		w.settle()
		if next := w.owner.Next(); held == 0 && next > w.now {
			w.now = next
			w.send(w.owner.Tick(w.now))
			w.settle()
		}
	}

	for i := range w.locals {
		w.locals[i].Drain()
		w.tell(i)
	}

	w.settle()
	if permits, tokens := w.owner.LeasedTotal(); permits != 0 || tokens != 0 || len(w.owner.Leases()) != 0 {
		w.t.Fatalf("%d permits and %d tokens are lost: %+v", permits, tokens, w.owner.Leases())
	}

	for i, l := range w.locals {
		if !l.IsGone() {
			w.t.Fatalf("place %d keeps something", i)
		}
	}
}

// settleUp delivers everything that a place has sent to the owner.
func (w *world) settleUp(i int) {
	for len(w.up[i]) > 0 {
		w.deliverUp(i)
	}
}

// store encodes the owner and decodes it, as if it moved to another process. Messages that are on
// their way stay on their way.
func (w *world) store() {
	row, err := w.owner.Encode()
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	if w.owner, err = limit.DecodeOwner(row); err != nil {
		w.t.Fatalf("%v", err)
	}
}

// moves returns the random inputs that are possible with any numbers.
func (w *world) moves() map[string]func(*rapid.T) {
	place := func(t *rapid.T) int { return rapid.IntRange(0, places-1).Draw(t, "place") }

	return map[string]func(*rapid.T){
		"arrive": func(t *rapid.T) { w.arrive(place(t)) },
		"give up": func(t *rapid.T) {
			if i := place(t); len(w.waiting[i]) > 0 {
				w.waiting[i] = w.waiting[i][1:]
				w.locals[i].Wait(-1)
				w.tell(i)
			}
		},
		"try": func(t *rapid.T) { w.try(place(t)) },
		"finish": func(t *rapid.T) {
			if i := place(t); len(w.holding[i]) > 0 {
				w.finish(i, rapid.IntRange(0, len(w.holding[i])-1).Draw(t, "holder"))
			}
		},
		"to owner": func(t *rapid.T) {
			if i := place(t); len(w.up[i]) > 0 {
				w.deliverUp(i)
			}
		},
		"to place": func(t *rapid.T) {
			if i := place(t); len(w.down[i]) > 0 {
				w.deliverDown(i)
			}
		},
		"compare": func(t *rapid.T) { w.compare(place(t)) },
		"store":   func(*rapid.T) { w.store() },
	}
}

// However long messages take, and however the numbers change, there are never more holders than
// permits, no permit is lost, and no place starves.
func TestPermits(t *testing.T) {
	t.Parallel()
	many(t, func(t *rapid.T) {
		w := newWorld(t, limit.Numbers{Concurrency: rapid.IntRange(1, 6).Draw(t, "limit")})
		changed := false
		moves := w.moves()

		moves[""] = func(t *rapid.T) {
			w.check()
			held := 0
			for i := range w.locals {
				held += w.locals[i].HolderCount()
			}
			if held > w.limit && !changed { // holders from before a change may still be there
				t.Fatalf("%d holders of %d", held, w.limit)
			}
		}

		moves["configure"] = func(t *rapid.T) {
			w.configure(limit.Numbers{Concurrency: rapid.IntRange(1, 6).Draw(t, "limit")})
			changed = true
		}

		t.Repeat(moves)
		w.drain()
	})
}

// This is TestPermits with a rate. In every period, the places spend at most the burst plus the
// tokens that accrue in the period (L3).
func TestTokens(t *testing.T) {
	t.Parallel()
	many(t, func(t *rapid.T) {
		n := limit.Numbers{
			Rate: rapid.Int64Range(1, 7).Draw(t, "rate"), Per: time.Duration(rapid.IntRange(1, 3).Draw(t, "per")) * time.Second,
			Burst: rapid.Int64Range(0, 4).Draw(t, "burst"), Concurrency: rapid.IntRange(0, 3).Draw(t, "concurrency"),
		}

		w := newWorld(t, n)
		moves := w.moves()
		moves[""] = func(*rapid.T) { w.check() }

		moves["pass time"] = func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 2_000_000).Draw(t, "us")) * time.Microsecond)
			w.send(w.owner.Tick(w.now))
		}

		t.Repeat(moves)
		w.drain()
		per := n.Per.Microseconds()
		for i, from := range w.spent {
			for j := i; j < len(w.spent); j++ {
				if k := int64(j - i + 1); k*per > max(n.Burst, 1)*per+n.Rate*int64(w.spent[j]-from) {
					t.Fatalf("%d in %v with %v", k, w.spent[j].Sub(from), n)
				}
			}
		}
	})
}

// The test tries every order of a few inputs and deliveries, with two places and one permit.
func TestExhaustive(t *testing.T) {
	t.Parallel()
	depth := 7
	if testing.Short() {
		depth = 5
	}
	const inputs = 8

	steps := make([]int, depth)
	for {
		w := newWorld(t, limit.Numbers{Concurrency: 1})
		useful, last := true, depth-1
		for k, s := range steps {
			i := s % 2
			switch s / 2 {
			case 0:
				w.arrive(i)
			case 1:
				if useful = len(w.holding[i]) > 0; useful {
					w.finish(i, 0)
				}
			case 2:
				if useful = len(w.up[i]) > 0; useful {
					w.deliverUp(i)
				}
			case 3:
				if useful = len(w.down[i]) > 0; useful {
					w.deliverDown(i)
					w.try(i)
				}
			}

			if !useful {
				last = k // the same as the order without this input
				break
			}

			w.check()
			if w.locals[0].HolderCount()+w.locals[1].HolderCount() > 1 {
				t.Fatalf("%v: two holders", steps)
			}
		}

		if useful {
			w.drain()
		}
		clear(steps[last+1:])

		i := last
		for ; i >= 0; i-- {
			if steps[i]++; steps[i] < inputs {
				break
			}
			steps[i] = 0
		}

		if i < 0 {
			return
		}
	}
}
