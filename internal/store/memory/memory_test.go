package memory_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.RunWith(t, storetest.Options{Open: func(*testing.T) store.Store { return memory.New(memory.Options{}) }, Only: groups()})
}

// groups returns the groups of the conformance suite to run. In short mode, which is used with the
// race detector, it returns only some groups. All groups also run, without the race detector.
func groups() []string {
	if testing.Short() {
		return storetest.Overlapping()
	}
	return nil
}

// clocked is a store with a clock that the test moves.
type clocked struct {
	*memory.Store
	now atomic.Int64
}

func TestConformanceWithAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	storetest.RunWith(t, storetest.Options{
		Open: func(*testing.T) store.Store {
			c := &clocked{}
			c.now.Store(int64(time.Hour))
			c.Store = memory.New(memory.Options{Shards: 16, Now: func() time.Time { return time.Unix(0, c.now.Load()) }})
			return c
		},
		Advance: func(s store.Store, d time.Duration) { s.(*clocked).now.Add(int64(d)) },
		Only:    groups(),
	})
}

func TestNewRefusesAnImpossibleNumberOfShards(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, model.MaxShards + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d shards were accepted", n)
				}
			}()
			memory.New(memory.Options{Shards: n})
		}()
	}
	if n := memory.New(memory.Options{}).Info().Shards; n != memory.DefaultShards {
		t.Errorf("%d shards by default", n)
	}
}

// pointers collects the memory addresses to which a value points through pointers, maps, and slices
// that are not empty.
func pointers(v reflect.Value, into map[uintptr]string, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			into[v.Pointer()] = path
			pointers(v.Elem(), into, path)
		}
	case reflect.Slice:
		if v.Cap() > 0 {
			into[v.Pointer()] = path
		}
		for i := range v.Len() {
			pointers(v.Index(i), into, fmt.Sprint(path, "[", i, "]"))
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			pointers(value, into, path+"."+field.Name)
		}
	case reflect.Map:
		if !v.IsNil() {
			into[v.Pointer()] = path
		}
	default:
	}
}

// fill sets every field of a value to a non-zero value, and every slice to one element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for _, value := range v.Fields() {
			fill(value)
		}
	case reflect.Array:
		fill(v.Index(0))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(1)
	default:
		panic("fill: " + v.Kind().String())
	}
}

func fillAll[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// filledEntity returns the first row of an entity and an item of its mailbox. Every field that need
// not have a certain value is set.
func filledEntity(c storetest.Counter) (store.EntityRow, store.MailboxRow) {
	row, item := fillAll[store.EntityRow](), fillAll[store.MailboxRow]()
	row.Shard, row.Entity.Address, row.Prev, row.Gone = c.Shard, c.Address, 0, false
	item.EntityKey = c.EntityKey
	return row, item
}

// TestNothingIsShared writes rows with every field set and reads them twice. The written value and
// both results must share no memory.
func TestNothingIsShared(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Options{})
	f := storetest.New(t, s)
	l := f.Join(1).Lanes[0]
	a, b := f.SubjectIn(1), f.SubjectIn(1)
	start := fillAll[model.Start]()
	start.Address, start.Run, start.At = a.Start.Address, a.Run, a.Start.At
	a.Start = start
	mark := fillAll[store.MarkRow]()
	mark.RunKey = a.RunKey
	event := store.EventRow{RunKey: a.RunKey, Event: fillAll[model.Event]()}
	message := fillAll[store.MessageRow]()
	message.Seq = 1
	deferred, reply := fillAll[store.InboxRow](), fillAll[store.Reply]()
	put := fillAll[store.InboxRow]()
	put.ID = f.RunID()
	put.Message.RequestID = "other"
	closing := store.CloseRow{RunKey: b.RunKey, Outcome: fillAll[model.Outcome]()}
	closing.Outcome.Status = model.Failed
	batch := l.Batch()
	batch.Starts, batch.Marks = []store.StartRow{a.StartRow(), b.StartRow()}, []store.MarkRow{mark}
	batch.Closes, batch.Events = []store.CloseRow{closing}, []store.EventRow{event}
	batch.Messages, batch.Deferred, batch.Requests = []store.MessageRow{message}, []store.InboxRow{deferred}, []store.Reply{reply}
	dead, datum := fillAll[store.DeadRow](), fillAll[store.TaskDatum]()
	dead.RunKey, datum.RunKey, datum.Deleted = a.RunKey, a.RunKey, false
	batch.Dead, batch.TaskData = []store.DeadRow{dead}, []store.TaskDatum{datum}
	entity, item := filledEntity(f.Counter())
	batch.Entities, batch.Mailbox = []store.EntityRow{entity}, []store.MailboxRow{item}
	f.Note(batch)
	rows := []store.InboxRow{put}
	setting := fillAll[store.Setting]()
	if _, err := s.PutSetting(t.Context(), setting, 0); err != nil {
		t.Fatal(err)
	}

	if err := s.PutInbox(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	l.Commit(batch)
	again := f.SubjectOf(a.Start.Address)
	kept := []any{batch, rows, setting} // keep these alive, so that no address is used twice

	read := func() map[uintptr]string {
		into := make(map[uintptr]string)
		c := f.Contents()
		if len(c.Executions) != 2 || len(c.Events) != 1 || len(c.Messages) != 1 || len(c.Inbox) != 2 || len(c.Replies) != 1 || len(c.Dead) != 1 || len(c.TaskData) != 1 ||
			len(c.Entities) != 1 || len(c.Mailbox) != 1 {
			t.Fatalf("something is missing: %+v", c)
		}

		existing := l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{again.StartIfAbsent()} })
		answers, err := s.LoadAnswers(t.Context(), store.Awaited{Runs: []store.RunKey{b.RunKey}})
		if err != nil || len(answers.Ended) != 1 || len(existing.Existing) != 1 {
			t.Fatalf("%d ended runs, %d existing, %v", len(answers.Ended), len(existing.Existing), err)
		}
		one, err := s.LoadExecution(t.Context(), a.Shard, a.Start.Address, model.RunID{})
		if err != nil {
			t.Fatal(err)
		}

		deadTask, err := s.LoadDead(t.Context(), dead.DeadKey)
		if err != nil || deadTask == nil {
			t.Fatal(deadTask, err)
		}
		old, err := s.LoadDeadBefore(t.Context(), f.Shards(), model.MaxTime, store.DeadPlace{}, 10)
		if err != nil || len(old) != 1 {
			t.Fatal(old, err)
		}

		settings, err := s.ListSettings(t.Context(), setting.Tenant, setting.Kind)
		if err != nil || len(settings) != 1 {
			t.Fatal(settings, err)
		}
		changes, err := s.LoadSettings(t.Context(), 0)
		if err != nil || len(changes.Changed) != 1 {
			t.Fatal(changes, err)
		}

		loaded, err := s.LoadEntity(t.Context(), entity.Key(), 10, 1<<20)
		if err != nil || loaded.Entity == nil || len(loaded.Mailbox) != 1 {
			t.Fatal(loaded, err)
		}
		items, err := s.LoadMailbox(t.Context(), entity.Key(), 0, 10, 1<<20)
		if err != nil || len(items) != 1 {
			t.Fatal(items, err)
		}

		for _, v := range []any{c, existing, answers, one, deadTask, old, settings, changes, loaded, items} {
			pointers(reflect.ValueOf(v), into, fmt.Sprintf("%T", v))
			kept = append(kept, v)
		}

		return into
	}

	given := make(map[uintptr]string)
	pointers(reflect.ValueOf(batch), given, "batch")
	pointers(reflect.ValueOf(rows), given, "rows")
	pointers(reflect.ValueOf(setting), given, "setting")

	first, second := read(), read()
	for at, path := range first {
		if from, shared := given[at]; shared {
			t.Errorf("%s is shared with %s of the caller", path, from)
		}
		if other, shared := second[at]; shared {
			t.Errorf("%s is shared with %s of another answer", path, other)
		}
	}

	if len(given) < 20 || len(first) < 40 {
		t.Errorf("%d pointers given, %d read: this test proves nothing", len(given), len(first))
	}
	runtime.KeepAlive(kept)
}

// scramble changes everything that a value points to, in place.
func scramble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scramble(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			scramble(v.Index(i))
		}
	case reflect.Struct:
		for _, value := range v.Fields() {
			scramble(value)
		}
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() ^ 1)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(v.Uint() ^ 1)
	case reflect.Array:
		scramble(v.Index(0))
	case reflect.Map:
		v.Clear()
	default:
		panic("scramble: " + v.Kind().String())
	}
}

// TestCallersMayScribble changes the written values and the results, and reads again.
func TestCallersMayScribble(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Options{})
	f := storetest.New(t, s)
	n := f.Join(1)
	l := n.Lanes[0]
	n.Acquire(1)

	for range 3 {
		a, b := f.SubjectIn(1), f.SubjectIn(1)
		a.Start = fillAll[model.Start]()
		a.Start.Address, a.Start.Run, a.Start.At = f.AddressIn(1), a.Run, storetest.Noon
		batch := l.Batch()
		batch.Starts = []store.StartRow{a.StartRow(), b.StartRow()}
		batch.Closes = []store.CloseRow{{RunKey: b.RunKey, Outcome: fillAll[model.Outcome]()}}
		batch.Closes[0].Outcome.Status = model.Failed
		batch.Marks = []store.MarkRow{fillAll[store.MarkRow]()}
		batch.Marks[0].RunKey = a.RunKey
		batch.Events = []store.EventRow{{RunKey: a.RunKey, Event: fillAll[model.Event]()}}
		batch.Timers = []store.Timer{a.Timer("t", storetest.Noon)}
		batch.Messages = []store.MessageRow{fillAll[store.MessageRow]()}
		batch.Messages[0].Seq = batch.Number
		batch.Deferred = []store.InboxRow{fillAll[store.InboxRow]()}
		batch.Deferred[0].ID = f.RunID()
		batch.Requests = []store.Reply{fillAll[store.Reply]()}
		batch.Requests[0].RequestKey = a.RequestKey("r")
		batch.Dead = []store.DeadRow{fillAll[store.DeadRow]()}
		batch.TaskData = []store.TaskDatum{fillAll[store.TaskDatum]()}
		batch.Logs = []store.LogRow{a.Line("t", storetest.Noon, 0, "hello")}
		batch.Dead[0].RunKey, batch.TaskData[0].RunKey, batch.TaskData[0].Deleted = a.RunKey, a.RunKey, false
		entity, item := filledEntity(f.Counter())
		batch.Entities, batch.Mailbox = []store.EntityRow{entity}, []store.MailboxRow{item}
		put := []store.InboxRow{fillAll[store.InboxRow]()}
		put[0].ID, put[0].Message.RequestID = f.RunID(), "other"
		if err := s.PutInbox(t.Context(), put); err != nil {
			t.Fatal(err)
		}

		l.Commit(batch)
		before, mirror := f.Contents(), f.Contents()
		scramble(reflect.ValueOf(batch))
		scramble(reflect.ValueOf(put))
		f.Want("contents after the caller used its batch again", before, f.Contents())
		scramble(reflect.ValueOf(&mirror))
		got, err := s.Acquire(t.Context(), n.ID, n.Epoch, []model.ShardID{1})
		if err != nil {
			t.Fatal(err)
		}

		scramble(reflect.ValueOf(&got))
		f.Want("contents after the caller changed an answer", before, f.Contents())
	}
}

// TestSameCallsSameAnswers makes the same random calls on several stores and compares every answer
// as text.
func TestSameCallsSameAnswers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("nothing in it is concurrent")
	}
	trace := func(seed uint64) (out []string) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := memory.New(memory.Options{Shards: 64, Cluster: "c", Now: func() time.Time { return time.Unix(1000, 0) }})
		f := storetest.New(t, s)
		note := func(v any, err error) { out = append(out, fmt.Sprintf("%+v %v", v, err)) }

		var lanes []*storetest.Lane
		for range 3 {
			n := f.Join(1)
			got, err := s.Acquire(t.Context(), n.ID, n.Epoch, f.Shards())
			note(len(got), err)
			lanes = append(lanes, n.Lanes...)
		}

		sent := make(map[[2]model.ShardID]int64)
		for range 60 {
			l := lanes[rng.IntN(len(lanes))]
			b := l.Batch()
			for range 5 {
				a := f.Subject()
				b.Starts = append(b.Starts, a.StartRow())
				b.Timers = append(b.Timers, a.Timer("t", storetest.Noon+model.Time(rng.IntN(5))))
				pair := [2]model.ShardID{model.ShardID(rng.IntN(8)), model.ShardID(rng.IntN(8))}
				sent[pair]++
				b.Messages = append(b.Messages, storetest.Message(pair[0], pair[1], sent[pair]))
				b.Deferred = append(b.Deferred, a.Request(f.RunID(), "r"))
				b.Requests = append(b.Requests, a.Reply("r", storetest.Noon+model.Time(rng.IntN(5))))
				c := f.Counter()
				b.Entities, b.Mailbox = append(b.Entities, c.Set(1, "1")), append(b.Mailbox, c.Mail(1))
			}

			note(l.Try(t.Context(), b))
			note(s.LoadTimers(t.Context(), f.Shards(), store.TimerMark{}, model.MaxTime, 17))
			messages, _, err := s.LoadMessages(t.Context(), f.Shards(), 17, 1<<20)
			note(messages, err)
			inbox, _, err := s.LoadInbox(t.Context(), f.Shards(), model.MaxTime, 17, 1<<20)
			note(inbox, err)
			note(s.LoadRunnable(t.Context(), f.Shards(), store.RunKey{}, 17))
			note(s.Sweep(t.Context(), store.SweepRequest{Shards: f.Shards(), RequestsBefore: storetest.Noon + 2, Limit: 3}))
			note(s.List(t.Context(), store.Query{Tenant: model.DefaultTenant, Limit: 17}))
			note(s.LoadMailboxes(t.Context(), f.Shards(), store.EntityKey{}, 17))
			note(s.ListEntities(t.Context(), store.EntityQuery{Tenant: model.DefaultTenant, Limit: 17}))
			note(s.Members(t.Context()))
		}

		return out
	}

	for seed := range uint64(3) {
		first := trace(seed)
		for range 2 {
			if d := storetest.Diff(first, trace(seed)); d != "" {
				t.Fatalf("seed %d: %s", seed, d)
			}
		}
	}
}

func TestMessagesLoseWhatIsNotStored(t *testing.T) {
	t.Parallel()
	f := storetest.New(t, memory.New(memory.Options{}))
	m := storetest.Message(1, 2, 1)
	m.Message.With = []model.Event{{Seq: 4, At: 5, Kind: model.EventSignalReceived, Name: "n"}}
	f.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Messages = []store.MessageRow{m} })
	got := f.Contents().Messages[0].Message.With[0]
	if want := (model.Event{Name: "n"}); !reflect.DeepEqual(want, got) {
		t.Errorf("got %+v, want %+v, as it comes back from a database", got, want)
	}
}

func TestNewIsCheap(t *testing.T) { // not parallel: it counts allocations
	const most = 8
	if n := testing.AllocsPerRun(100, func() { memory.New(memory.Options{Cluster: "c"}) }); n > most {
		t.Errorf("a new store costs %.0f allocations, want at most %d", n, most)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		memory.New(memory.Options{Cluster: "c"})
	}
}

// BenchmarkCommit commits a start with an event, a timer and a message, and closes the run again.
// The store already has many runs.
func BenchmarkCommit(b *testing.B) {
	for _, runs := range []int{0, 100_000} {
		b.Run(fmt.Sprint(runs), func(b *testing.B) {
			s := memory.New(memory.Options{})
			f := storetest.New(b, s)
			l := f.Join(1).Lanes[0]
			sent := make(map[model.ShardID]int64)

			start := func(batch *store.Batch) storetest.Subject {
				a := f.Subject()
				batch.Starts = append(batch.Starts, a.StartRow())
				batch.Events = append(batch.Events, a.Event(1))
				batch.Timers = append(batch.Timers, a.Timer("t", storetest.Noon))
				sent[a.Shard]++
				batch.Messages = append(batch.Messages, storetest.Message(a.Shard, 0, sent[a.Shard]))
				return a
			}

			commit := func(batch *store.Batch) {
				if _, err := s.Commit(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				l.Landed++
			}
			for range runs / 100 {
				batch := l.Batch()
				for range 100 {
					start(batch)
				}
				commit(batch)
			}

			b.ReportAllocs()
			for b.Loop() {
				batch := l.Batch()
				a := start(batch)
				commit(batch)
				batch = l.Batch()
				batch.Closes = []store.CloseRow{a.Close(model.Completed)}
				batch.StopAll = []store.RunKey{a.RunKey}
				commit(batch)
			}
		})
	}
}
