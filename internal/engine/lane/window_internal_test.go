package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// complains is a test of package testing or of rapid.
type complains interface {
	Fatalf(format string, args ...any)
}

// windowRig is a window together with the store that it reads. In the store, timers start, are
// stopped and fire.
type windowRig struct {
	t      complains
	w      window
	now    model.Time
	stored map[timerKey]store.Timer
	fired  map[timerKey]bool // their commits are in flight, so they are still stored
	next   byte
	read   *page // what the refill in flight has read; nil before it has read
	after  store.TimerMark
	until  model.Time
	catch  bool
	limit  int
	gone   map[model.ShardID]bool
}

// newWindowRig returns a rig whose window holds limit timers and reads them in pages.
func newWindowRig(t complains, limit, page int) *windowRig {
	return &windowRig{
		t: t, w: newWindow(limit), now: 1_000_000_000, limit: page,
		stored: map[timerKey]store.Timer{}, fired: map[timerKey]bool{}, gone: map[model.ShardID]bool{},
	}
}

const rigHorizon = 30 * time.Second

func (r *windowRig) owns(s model.ShardID) bool { return !r.gone[s] }

// sortedTimers returns the stored timers of our shards in order.
func (r *windowRig) sortedTimers() (all []store.Timer) {
	for _, t := range r.stored {
		if r.owns(t.Shard) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, compareTimers)
	return all
}

// ask begins a refill, if the window wants one.
func (r *windowRig) ask() {
	w := &r.w
	if w.refillDue() && w.horizon.Due.Add(-rigHorizon/2) <= r.now {
		r.after, r.until, r.catch = w.horizon, r.now.Add(rigHorizon), false
	} else if n := w.catchUpDue(); n != nil {
		r.after, r.until, r.catch = n.from, w.horizon.Due, true
	} else {
		return
	}
	w.asked = r.until
}

// look reads the store for the refill in flight.
func (r *windowRig) look() {
	if r.w.asked == 0 || r.read != nil {
		return
	}
	p := &page{after: r.after, catchUp: r.catch, end: store.TimerMark{Due: r.until, Run: maxRun}}
	for _, t := range r.sortedTimers() {
		if compareMarks(markOf(&t), r.after) > 0 && t.Due <= r.until && len(p.timers) < r.limit {
			p.timers = append(p.timers, t)
		}
	}
	r.read = p
}

// arrive hands in what was read.
func (r *windowRig) arrive() {
	if r.read == nil {
		return
	}
	p := *r.read
	r.read = nil
	if p.catchUp {
		p.end = r.w.horizon
	}
	if len(p.timers) == r.limit {
		p.end = markOf(&p.timers[len(p.timers)-1])
	}
	r.w.take(p, r.owns)
}

// fire fires up to n due timers.
func (r *windowRig) fire(n int) {
	r.w.ripen(r.now)
	for ; n > 0 && r.w.due > 0; n-- {
		t, ok := r.w.next()
		if !ok {
			continue
		}
		k := timerKey{t.Run, t.ID}
		if s, stored := r.stored[k]; !stored || s.Due != t.Due {
			r.t.Fatalf("%v fires, which is not stored", t)
		}
		if t.Due > r.now {
			r.t.Fatalf("%v fires at %s", t, r.now)
		}
		r.fired[k] = true
	}
}

// commit makes the fired timers durable: it removes them from the store.
func (r *windowRig) commit() {
	for k := range r.fired {
		r.w.remove(r.stored[k].Address, k.run, k.id) // as the lane does when it writes the event
		delete(r.stored, k)
	}
	clear(r.fired)
}

func (r *windowRig) start(kind string, shard model.ShardID, order byte, in time.Duration) {
	r.next++
	t := store.Timer{Shard: shard, ID: "t", Due: r.now.Add(in), Address: model.Address{Tenant: "x", Type: kind, Key: fmt.Sprint(r.next)}}
	t.Run[0], t.Run[1] = order, r.next
	r.stored[timerKey{t.Run, t.ID}] = t
	r.w.add(&t)
}

// counts checks the counters of the window.
func (r *windowRig) counts() {
	w := &r.w
	n, behind := 0, 0
	for k, l := range w.lines {
		n += l.n
		if l.behind {
			behind++
		}
		if l.kind != k || l.n < 0 || l.n == 0 && !l.behind && len(l.due) == 0 {
			r.t.Fatalf("line %+v of %v", l, k)
		}
	}
	if n != len(w.known) || behind != w.behind || w.timerCount() > 2*w.limit+w.limit/2+len(w.lines)+r.limit {
		r.t.Fatalf("%d known, %d in lines, %d behind of %d, %d held with a limit of %d", len(w.known), n, w.behind, behind, w.timerCount(), w.limit)
	}
}

// When one commit stops a timer and starts it again, the window only learns of the start. The timer
// fires at its new time, earlier or later, and not at the old one.
func TestWindowTakesTheNewTimeOfATimer(t *testing.T) {
	t.Parallel()
	for _, in := range []time.Duration{time.Second, 20 * time.Second} {
		r := newWindowRig(t, 40, 10)
		r.w.reset()
		r.ask()
		r.look()
		r.arrive()
		r.start("k", 0, 0, 10*time.Second)
		for k, timer := range r.stored {
			timer.Due = r.now.Add(in)
			r.stored[k] = timer
			r.w.add(&timer)
		}
		r.counts()

		began := r.now
		for len(r.stored) > 0 && r.now < began.Add(time.Minute) {
			r.now = r.now.Add(time.Second)
			r.fire(10)
			if len(r.fired) > 0 && r.now != began.Add(in) {
				t.Fatalf("the timer fires after %s, want %s", r.now.Sub(began), in)
			}
			r.commit()
		}
		if len(r.stored) != 0 {
			t.Fatalf("the timer that was moved to %s does not fire", in)
		}
	}
}

// Whatever the order of commits, reads and results, every timer fires, no timer fires twice for one
// commit, and none fires before its time. This holds even if a kind has more than its share.
func TestWindowLosesNoTimer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 2, 5, 10, 40}).Draw(t, "limit")
		page := rapid.SampledFrom([]int{1, 3, 10}).Draw(t, "page")
		r := newWindowRig(t, limit, min(page, limit))
		r.w.reset()
		moves := rapid.Bool().Draw(t, "moves") // a reset would hide timers that were lost before it
		kinds := []string{"a", "b", "c", "d", "e", "f"}[:rapid.IntRange(1, 6).Draw(t, "kinds")]

		steps := map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				if r.next < 250 {
					r.start(rapid.SampledFrom(kinds).Draw(t, "kind"), model.ShardID(rapid.IntRange(0, 2).Draw(t, "shard")), rapid.ByteMax(3).Draw(t, "order"), time.Duration(rapid.IntRange(0, 70).Draw(t, "in"))*time.Second)
				}
			},
			"storm": func(t *rapid.T) {
				kind, in := rapid.SampledFrom(kinds).Draw(t, "kind"), time.Duration(rapid.IntRange(0, 40).Draw(t, "in"))*time.Second
				for range rapid.IntRange(1, 30).Draw(t, "n") {
					if r.next < 250 {
						r.start(kind, model.ShardID(rapid.IntRange(0, 2).Draw(t, "shard")), rapid.ByteMax(3).Draw(t, "order"), in)
					}
				}
			},
			"stop": func(t *rapid.T) {
				all := r.sortedTimers()
				if len(all) == 0 {
					t.Skip("none")
				}
				x := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				k := timerKey{x.Run, x.ID}
				delete(r.stored, k)
				delete(r.fired, k)
				r.w.remove(x.Address, x.Run, x.ID)
				if rapid.Bool().Draw(t, "again") {
					x.Due = rapid.SampledFrom([]model.Time{x.Due, r.now.Add(5 * time.Second), r.now.Add(20 * time.Second)}).Draw(t, "due")
					r.stored[k] = x
					r.w.add(&x)
				}
			},
			"time":   func(t *rapid.T) { r.now = r.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second) },
			"ask":    func(*rapid.T) { r.ask() },
			"look":   func(*rapid.T) { r.look() },
			"arrive": func(*rapid.T) { r.arrive() },
			"fire":   func(t *rapid.T) { r.fire(rapid.IntRange(1, 20).Draw(t, "n")) },
			"commit": func(*rapid.T) { r.commit() },
			"reset": func(t *rapid.T) {
				if !moves {
					t.Skip("not in this run")
				}
				r.w.reset()
			},
			"lose": func(t *rapid.T) {
				s := model.ShardID(rapid.IntRange(0, 2).Draw(t, "shard"))
				if !moves {
					t.Skip("not in this run")
				}
				r.commit() // a shard leaves when it has nothing in flight
				r.gone[s] = true
				r.w.dropShard(s)
			},
			"gain": func(t *rapid.T) {
				if len(r.gone) == 0 {
					t.Skip("all are ours")
				}
				clear(r.gone)
				r.w.reset()
			},
			"": func(*rapid.T) { r.counts() },
		}

		t.Repeat(steps)
		// All timers are due now, and must fire within a bounded number of rounds.
		if len(r.gone) > 0 { // no reset without need: it would bring lost timers back
			clear(r.gone)
			r.w.reset()
		}

		r.now = r.now.Add(2 * time.Minute)
		for i := 0; i < 2000 && len(r.stored) > 0; i++ {
			r.ask()
			r.look()
			r.arrive()
			r.fire(7)
			r.commit()
			r.counts()
		}

		if len(r.stored) > 0 {
			t.Fatalf("%d timers have never fired: %v", len(r.stored), r.sortedTimers())
		}
	})
}

// A kind with far more timers than the window holds takes its share, and timers of other kinds fire
// in time.
func TestWindowIsFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newWindowRig(t, 40, 10)
		r.w.reset()
		begin := r.now
		due := func(i int) time.Duration { return time.Duration(i) * time.Second }
		at := rapid.IntRange(1, 5).Draw(t, "storm")
		for range 200 {
			r.start("storm", 0, rapid.ByteMax(3).Draw(t, "order"), due(at))
		}
		for i := range 30 {
			r.start("calm", 0, rapid.ByteMax(3).Draw(t, "order"), due(1+i%10))
		}

		for s := range 12 {
			r.now = begin.Add(due(s))
			for range 30 { // as many as there is time for within the second
				r.ask()
				r.look()
				r.arrive()
			}
			r.fire(12)
			r.commit()
			for _, x := range r.stored {
				if x.Address.Type == "calm" && x.Due < r.now {
					t.Fatalf("after %s, a timer that was due %s before has not fired", r.now.Sub(begin), r.now.Sub(x.Due))
				}
			}
		}
	})
}

// A kind is behind, and a refill for it is in flight. A timer of the kind is committed at a place
// that the refill has passed. The window still keeps the timer.
func TestWindowKeepsWhatARefillHasPassed(t *testing.T) {
	t.Parallel()
	r := newWindowRig(t, 8, 8)
	for i := range byte(20) {
		// the lane has read nothing yet, so these timers are only in the store
		r.start("storm", 0, 10+i, 10*time.Second)
	}
	r.w.reset()

	for range 4 {
		r.ask()
		r.look()
		r.arrive()
	}

	if r.w.behind != 1 {
		t.Fatalf("%d kinds are behind, want one", r.w.behind)
	}
	r.now = r.now.Add(11 * time.Second)
	r.fire(3)
	r.commit()
	r.ask()
	if !r.catch || r.w.asked == 0 {
		t.Fatal("no refill for the kind that is behind")
	}

	r.look()
	r.start("storm", 0, 15, -time.Second) // due at the same moment as the others, and between them
	r.arrive()

	for range 100 {
		r.ask()
		r.look()
		r.arrive()
		r.fire(7)
		r.commit()
	}

	if len(r.stored) > 0 {
		t.Fatalf("%d timers have never fired: %v", len(r.stored), r.sortedTimers())
	}
}
