package storeclock_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
)

const (
	jump    = 10 * time.Second
	persist = 10 * time.Minute
	hold    = 24 * time.Hour
	day     = 24 * time.Hour
)

// world is a node and a store whose clock can be moved.
type world struct {
	t     interface{ Fatalf(string, ...any) }
	own   time.Duration
	store model.Time // what the store's clock shows at own time 0
	clock *storeclock.Clock

	began, last model.Time
	from        time.Duration
	stepped     bool // a jump was accepted since from
}

func newWorld(t interface{ Fatalf(string, ...any) }, roundTrip time.Duration) *world {
	w := &world{t: t, store: 1_790_000_000_000_000, own: time.Hour}
	w.clock = storeclock.New(storeclock.Config{}, w.own, w.store+model.Time(day.Microseconds()))
	w.read(roundTrip/2, roundTrip/2)
	w.began, w.last, w.from = w.now(), w.now(), w.own

	return w
}

func (w *world) now() model.Time { return w.clock.Now(w.own) }

// storeNow returns what the store's clock shows.
func (w *world) storeNow() model.Time { return w.store.Add(w.own) }

// read reads the store's clock. The request takes the time there, and the answer takes the time
// back.
func (w *world) read(there, back time.Duration) storeclock.Verdict {
	sent := w.own
	w.pass(there)
	at := w.storeNow()
	w.pass(back)
	v := w.clock.Read(storeclock.Reading{Sent: sent, Got: w.own, Store: at})
	if v.Change == storeclock.Advanced {
		w.stepped = true
	}
	w.check()

	return v
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.own += d
	w.check()
}

// check compares the advance of time with that of the node's own clock.
func (w *world) check() {
	if w.last == 0 {
		return
	}
	now := w.now()
	if now < w.last {
		w.t.Fatalf("T1: time goes back from %s to %s", w.last, now)
	}
	w.last = now
	passed, advanced := w.own-w.from, now.Sub(w.began)
	if advanced < passed*9/10-time.Millisecond {
		w.t.Fatalf("T2: time advances by %s in %s", advanced, passed)
	}
	if !w.stepped && advanced > passed*201/200+time.Millisecond {
		w.t.Fatalf("T2: time advances by %s in %s, and no jump was accepted", advanced, passed)
	}
}

// away returns how far the time of the node is from the store's clock.
func (w *world) away() time.Duration { return w.now().Sub(w.storeNow()).Abs() }

func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		way := rapid.Custom(func(t *rapid.T) time.Duration {
			most := rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * time.Millisecond, 2 * time.Second}).Draw(t, "most")
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "way"))
		})
		w := newWorld(t, way.Draw(t, "first"))
		var since time.Duration // when the test last moved the store's clock far
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "move") == 0 {
				by := rapid.SampledFrom([]time.Duration{20 * time.Millisecond, 3 * time.Second, time.Hour, 31 * day}).Draw(t, "by")
				if rapid.Bool().Draw(t, "back") {
					by = -by
				}
				w.store = w.store.Add(by)
				if by.Abs() > jump {
					since = w.own
				}
			}
			w.pass(time.Duration(rapid.Int64Range(0, int64(30*time.Second)).Draw(t, "pause")))
			sent := w.own
			v := w.read(way.Draw(t, "there"), way.Draw(t, "back"))

			switch v.Change {
			case storeclock.Advanced, storeclock.WentBack:
				if w.own-since < persist && since > 0 {
					t.Fatalf("T4: a jump of %s is accepted after %s", v.By, w.own-since)
				}
			default:
				if w.clock.InDoubt() {
					break
				}
				if off := w.away(); off > jump+w.own-sent+w.own/1000 {
					t.Fatalf("T4: the store's clock is believed, and %s away", off)
				}
			}
			if v.Change == storeclock.WentBack {
				return
			}
			if w.clock.InDoubt() && w.clock.MayDelete(w.own) {
				t.Fatalf("T5: something may be deleted while the store's clock is in doubt")
			}
		}
	})
}

// The store's clock runs as fast as the node's own clock. Then the time of the node is wrong by at
// most the shortest round trip.
func TestShortestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "first"))
		w := newWorld(t, first)
		best := first
		for range rapid.IntRange(1, 50).Draw(t, "readings") {
			there := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "there"))
			back := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "back"))
			w.read(there, back)
			best = min(best, there+back)
			w.pass(time.Minute) // long enough to slew the first error away
			if off := w.away(); off > best+time.Millisecond {
				t.Fatalf("T3: time is %s from the store's clock, and the shortest round trip was %s", off, best)
			}
		}
	})
}

// A slow answer changes nothing. A sleep that started before the slow answer is not cut short when
// a quick answer follows.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	for name, ways := range map[string][2]time.Duration{"there": {1500 * time.Millisecond, 0}, "back": {0, 1500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, time.Millisecond)
			w.pass(2 * time.Second)
			w.read(ways[0], ways[1])
			began, from := w.now(), w.own
			w.pass(200 * time.Millisecond)
			w.read(time.Millisecond, 0)
			if short := w.own - from - w.now().Sub(began); short.Abs() > 3*time.Millisecond {
				t.Errorf("time advances by %s in %s", w.now().Sub(began), w.own-from)
			}
		})
	}
}

// The first answer was slow. So the time of the node is too late rather than too early, and runs
// slower until it is right.
func TestSlowFirstAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3*time.Second)
	if now := w.now(); now < w.storeNow() {
		t.Errorf("time begins %s behind the store's clock", w.storeNow().Sub(now))
	}
	w.read(time.Millisecond, 0)
	w.pass(time.Minute)
	if off := w.away(); off > 2*time.Millisecond {
		t.Errorf("time is %s off after a minute", off)
	}
}

// renew reads the clock every two seconds for a while, and returns what changed.
func (w *world) renew(d time.Duration) (changes []storeclock.Change) {
	for end := w.own + d; w.own < end; w.pass(2 * time.Second) {
		if v := w.read(time.Millisecond, time.Millisecond); v.Change != storeclock.Agrees {
			changes = append(changes, v.Change)
			if v.Change == storeclock.WentBack {
				break
			}
		}
	}

	return changes
}

// A jump that does not last has no effect. It is reported twice: when it starts and when it is
// over.
func TestShortJump(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{24 * time.Hour, 31 * day, -24 * time.Hour, time.Minute, -time.Minute} {
		w := newWorld(t, time.Millisecond)
		w.renew(time.Hour)
		w.store = w.store.Add(by)
		during := w.renew(3 * time.Minute)
		if w.clock.MayDelete(w.own) {
			t.Errorf("%s: T5: things may be deleted during the jump", by)
		}
		w.store = w.store.Add(-by)
		after := w.renew(3 * time.Minute)
		if w.clock.MayDelete(w.own) {
			t.Errorf("%s: T5: things may be deleted 3 min after the jump", by)
		}
		w.renew(persist)
		if !w.clock.MayDelete(w.own) {
			t.Errorf("%s: nothing may be deleted long after the jump", by)
		}
		if len(during) != 1 || during[0] != storeclock.Doubted || len(after) != 1 || after[0] != storeclock.Cleared {
			t.Errorf("%s: changes during the jump %d, after it %d", by, during, after)
		}
		if off := w.away(); off > 5*time.Millisecond || w.stepped {
			t.Errorf("%s: T4: time is %s off after a short jump", by, off)
		}
	}
}

// The clock accepts a forward jump that lasts. For a day after that the node may delete nothing.
func TestLastingJumpForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Millisecond)
	w.renew(time.Hour)
	w.store = w.store.Add(31 * day)
	changes := w.renew(persist + 4*time.Second)
	if len(changes) != 2 || changes[1] != storeclock.Advanced || w.away() > 5*time.Millisecond {
		t.Errorf("changes %d, time is %s off", changes, w.away())
	}
	w.renew(hold / 2)
	if w.clock.MayDelete(w.own) {
		t.Error("T5: things may be deleted half a day after a jump by a month")
	}
	w.renew(hold)
	if !w.clock.MayDelete(w.own) {
		t.Error("nothing may be deleted a day and a half after the jump")
	}
}

// The clock reports a backward jump that lasts. Until then the time of the node continues to
// advance.
func TestLastingJumpBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Millisecond)
	w.renew(time.Hour)
	w.store = w.store.Add(-5 * time.Hour)
	if changes := w.renew(2 * persist); len(changes) != 2 || changes[1] != storeclock.WentBack {
		t.Errorf("changes %d", changes)
	}
}

// The store's clock jumps again while the first jump lasts. The second jump must last long enough
// by itself; the time since the first jump does not count.
func TestJumpsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Millisecond)
	w.store = w.store.Add(time.Hour)
	w.renew(persist * 3 / 4)
	w.store = w.store.Add(time.Hour)
	if changes := w.renew(persist * 3 / 4); len(changes) != 0 {
		t.Errorf("T4: changes %d, before any place has lasted", changes)
	}
}

// A node did not read the store's clock for a long time, because it was paused. So it does not know
// whether a jump has lasted.
func TestJumpThatWasNotWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.store = w.store.Add(day)
	if v := w.read(0, 0); v.Change != storeclock.Doubted {
		t.Fatalf("the reading after the jump: %+v", v)
	}
	w.pass(persist)
	if v := w.read(0, 0); v.Change == storeclock.Advanced {
		t.Errorf("the jump was accepted: %+v", v)
	}
}
