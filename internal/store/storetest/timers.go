package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var timerTests = []test{
	{name: "timers come by due time, run and id in pages", run: testTimerPages},
	{name: "ids are ordered by their bytes", run: testTimerIDs},
	{name: "bounds", run: testTimerBounds},
	{name: "timers of a run", run: testRunTimers},
	{name: "stop one and stop all", run: testStopTimers},
}

// timers returns the result of LoadTimers from the beginning.
func (x *suite) timers(until model.Time, shards ...model.ShardID) []store.Timer {
	x.Helper()
	return try(x.Store.LoadTimers(x.Context(), shards, store.TimerMark{}, until, 1000)).or(x)
}

func mark(t store.Timer) store.TimerMark { return store.TimerMark{Due: t.Due, Run: t.Run, ID: t.ID} }

func testTimerPages(x *suite) {
	l := x.Join(1).Lanes[0]
	var want []store.Timer
	var rows []store.Timer

	shards := []model.ShardID{11, 2, 6}
	for i := range 12 {
		s := x.SubjectIn(shards[i%3])
		for j := range 4 {
			// many timers have the same due time
			r := s.Timer(fmt.Sprint("t", j), Noon+model.Time(j%2)*10+model.Time(i%4))
			rows, want = append(rows, r), append(want, r)
		}
	}

	rand.New(rand.NewPCG(1, 2)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	l.Write(func(b *store.Batch) { b.Timers = rows[:20] })
	l.Write(func(b *store.Batch) { b.Timers = rows[20:] })
	slices.SortFunc(want, compareTimers)

	for _, limit := range []int{1, 5, 47, 48, 49} {
		var got []store.Timer
		var after store.TimerMark
		for {
			p := try(x.Store.LoadTimers(x.Context(), shards, after, model.MaxTime, limit)).or(x)
			if len(p) == 0 {
				break
			}
			if len(p) > limit {
				x.Fatalf("%d timers, more than the limit %d", len(p), limit)
			}
			got, after = append(got, p...), mark(p[len(p)-1])
			if len(got) > len(want) {
				x.Fatalf("%d timers in pages of %d, want %d", len(got), limit, len(want))
			}
		}

		x.Want(fmt.Sprint("pages of ", limit), want, got)
	}

	one := slices.DeleteFunc(slices.Clone(want), func(t store.Timer) bool { return t.Shard != 6 })
	x.Want("one shard", one, x.timers(model.MaxTime, 6))
	// A page continues after the mark, although the timer at the mark has been stopped since.
	l.Write(func(b *store.Batch) {
		b.StopTimers = []store.TimerKey{{RunKey: store.RunKey{Shard: want[9].Shard, Run: want[9].Run}, ID: want[9].ID}}
	})
	got := try(x.Store.LoadTimers(x.Context(), shards, mark(want[9]), model.MaxTime, 5)).or(x)
	x.Want("behind a stopped timer", want[10:15], got)
}

func testTimerIDs(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	ids := []string{"a", "B", "b", "A", "_", "-", "a b", "a-b", "ab", "é", "e", "z", "Z", "~", "0", "10", "9", "😀", "'", `\`, " ", "a ", "/1/x"}

	l.Write(func(b *store.Batch) {
		for _, id := range ids {
			b.Timers = append(b.Timers, s.Timer(id, Noon))
		}
	})

	slices.Sort(ids)
	var got []string
	var after store.TimerMark
	for range ids {
		p := try(x.Store.LoadTimers(x.Context(), []model.ShardID{s.Shard}, after, Noon, 1)).or(x)
		if len(p) == 0 {
			break
		}
		got, after = append(got, p[0].ID), mark(p[0])
	}

	x.Want("ids, one by one", ids, got)
}

func testTimerBounds(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	dues := []model.Time{1, Noon - 1, Noon, Noon + 1, model.MaxTime}

	l.Write(func(b *store.Batch) {
		for _, due := range dues {
			b.Timers = append(b.Timers, s.Timer(fmt.Sprint(int64(due)), due))
		}
	})

	for _, c := range []struct {
		after model.Time
		until model.Time
		want  []model.Time
	}{
		{0, model.MaxTime, dues},
		{0, Noon, dues[:3]},
		{0, Noon - 1, dues[:2]},
		{0, 0, nil},
		// a mark without run and id is before all timers of its time
		{Noon, model.MaxTime, dues[2:]},
		{Noon + 1, Noon, nil},
	} {
		got := try(x.Store.LoadTimers(x.Context(), []model.ShardID{s.Shard}, store.TimerMark{Due: c.after}, c.until, 10)).or(x)
		var due []model.Time
		for _, t := range got {
			due = append(due, t.Due)
		}
		x.Want(fmt.Sprintf("timers after %s until %s", c.after, c.until), c.want, due)
	}
}

func testRunTimers(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b := x.SubjectIn(5), x.SubjectIn(5)
	l.Write(func(w *store.Batch) {
		w.Timers = []store.Timer{a.Timer("2", Noon), b.Timer("1", Noon), a.Timer("1", Noon+1), a.Timer("3", Noon-1)}
	})
	get := func(key store.RunKey) []store.Timer {
		got := try(x.Store.LoadRunTimers(x.Context(), key)).or(x)
		slices.SortFunc(got, compareTimers)
		return got
	}
	x.Want("timers of a run", []store.Timer{a.Timer("3", Noon-1), a.Timer("2", Noon), a.Timer("1", Noon+1)}, get(a.RunKey))
	x.Want("timers of the other", []store.Timer{b.Timer("1", Noon)}, get(b.RunKey))
	x.Want("timers of an unknown run", []store.Timer(nil), get(store.RunKey{Shard: 5, Run: x.RunID()}))
	x.Want("timers of a run in another shard", []store.Timer(nil), get(store.RunKey{Shard: 6, Run: a.Run}))
}

func testStopTimers(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.SubjectIn(5), x.SubjectIn(5), x.SubjectIn(6)
	l.Write(func(w *store.Batch) {
		for _, s := range []Subject{a, b, c} {
			w.Timers = append(w.Timers, s.Timer("1", Noon), s.Timer("2", Noon), s.Timer("3", Noon))
		}
	})

	l.Write(func(w *store.Batch) { w.StopTimers = []store.TimerKey{a.Stop("2"), c.Stop("1")} })
	x.Want("after stops", []store.Timer{
		a.Timer("1", Noon), a.Timer("3", Noon), b.Timer("1", Noon), b.Timer("2", Noon),
		b.Timer("3", Noon), c.Timer("2", Noon), c.Timer("3", Noon),
	}, x.timers(Noon, 5, 6))

	again := l.Batch()
	again.StopTimers = []store.TimerKey{a.Stop("1"), a.Stop("2")}
	l.Refuse(again, store.Refused)
	nobody := x.SubjectIn(5)
	l.Write(func(w *store.Batch) { w.StopAll = []store.RunKey{b.StopAll(), nobody.StopAll()} })
	x.Want("after stopping all of one", []store.Timer{
		a.Timer("1", Noon), a.Timer("3", Noon), c.Timer("2", Noon), c.Timer("3", Noon),
	}, x.timers(Noon, 5, 6))

	// The id of a stopped timer may be used again.
	l.Write(func(w *store.Batch) { w.Timers = []store.Timer{b.Timer("2", Noon+3)} })
	x.Want("used again", []store.Timer{b.Timer("2", Noon+3)}, try(x.Store.LoadRunTimers(x.Context(), b.RunKey)).or(x))
}
