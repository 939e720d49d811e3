package storetest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var taskDataTests = []test{
	{name: "the last value of each name", run: testTaskData},
	{name: "ranges of names", run: testTaskRanges},
	{name: "what a task streams, and how far it has written", run: testTaskStream},
	{name: "values of every shape", run: testTaskValues},
	{name: "lines in order", run: testLogOrder},
	{name: "lines of every shape", run: testLogTexts},
	{name: "lines of the same time and position, by several owners", run: testLogOwners},
	{name: "a line that is there twice refuses the batch", run: testLogTwice},
	{name: "a refused batch leaves no data and no lines", run: testTaskDataRefused},
	{name: "data and lines go with their run, page by page", run: testTasksSwept},
	{name: "old lines go, page by page", run: testLogsSwept},
}

// Datum returns a value that a task of the run reports.
func (s Subject) Datum(task, name, value string) store.TaskDatum {
	return store.TaskDatum{RunKey: s.RunKey, Task: task, Name: name, Value: Text(value)}
}

// Line returns a line that a task of the run logs.
func (s Subject) Line(task string, at model.Time, n int32, text string) store.LogRow {
	return store.LogRow{RunKey: s.RunKey, Task: task, At: at, N: n, Level: 4, Text: text}
}

// WantTasks checks that an upgraded store accepts data of tasks, and settings.
func (f *Fixture) WantTasks(l *Lane) {
	f.Helper()
	s := f.Subject()
	row, datum, line := s.Dead("a", "charge", "boom", Noon), s.Datum("a", "", "half"), s.Line("a", Noon, 0, "hello")
	before := f.Contents()
	l.Write(func(b *store.Batch) {
		b.Dead, b.TaskData, b.Logs = []store.DeadRow{row}, []store.TaskDatum{datum}, []store.LogRow{line}
	})
	line.Epoch, line.Batch = l.Ref.Epoch, l.Landed
	before.Dead, before.TaskData, before.Logs = []store.DeadRow{row}, []store.TaskDatum{datum}, []store.LogRow{line}
	f.Want("contents with tasks", before, f.Contents())
	version, err := f.Store.PutSetting(f.Context(), setting("limit", "a", "1"), 0)
	changes, failed := f.Store.LoadSettings(f.Context(), 0)
	if err != nil || failed != nil || version != 1 || changes.Counter != 1 || len(changes.Changed) != 1 {
		f.Errorf("the first setting has version %d, the changes are %+v: %v, %v", version, changes, err, failed)
	}
}

// checkPagesEnd fails a test that reads page after page without an end.
func (x *suite) checkPagesEnd(rows int) {
	x.Helper()
	if rows > 10_000 {
		x.Fatal("pages do not end")
	}
}

// lines returns the texts of all lines of a task, or of all tasks, read in small pages.
func (x *suite) lines(s Subject, task string) (out []string) {
	x.Helper()
	var after store.LogPlace
	for {
		page := try(x.Store.LoadLogs(x.Context(), s.RunKey, task, after, 2)).or(x)
		for i := range page {
			out = append(out, page[i].Text)
		}
		if len(page) == 0 {
			return out
		}
		after = page[len(page)-1].Place()
		x.checkPagesEnd(len(out))
	}
}

func testTaskData(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.Subject(), x.Subject()
	l.Write(func(b *store.Batch) {
		b.TaskData = []store.TaskDatum{s.Datum("b", "", "10%"), s.Datum("a", "", "5%"), s.Datum("a", "x", "1"), s.Datum("a", "y", "2"), other.Datum("a", "", "other")}
	})
	gone := s.Datum("a", "y", "")
	gone.Deleted = true
	never := gone
	never.Name = "never"
	l.Write(func(b *store.Batch) {
		b.TaskData = []store.TaskDatum{s.Datum("a", "", "90%"), gone, never, s.Datum("a", "Z", "3")}
	})
	read := func(task string) []store.TaskDatum {
		return try(x.Store.LoadTaskData(x.Context(), s.RunKey, store.DataRange{Task: task})).or(x)
	}
	a := []store.TaskDatum{s.Datum("a", "", "90%"), s.Datum("a", "Z", "3"), s.Datum("a", "x", "1")}
	x.Want("of a task", a, read("a"))
	x.Want("of another task", []store.TaskDatum{s.Datum("b", "", "10%")}, read("b"))
	x.Want("of all tasks", append(a, s.Datum("b", "", "10%")), read(""))
	x.Want("of an unknown task", []store.TaskDatum(nil), read("c"))
	x.Want("of an unknown run", []store.TaskDatum(nil), try(x.Store.LoadTaskData(x.Context(), x.Subject().RunKey, store.DataRange{})).or(x))
}

// testTaskRanges compares the ranges that the engine uses with all data. Every name must be in one
// of the ranges.
func testTaskRanges(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	items := []model.StreamItem{{Position: 1, Kind: model.ItemToken, At: Noon, Value: Text("a")}, {Position: 15, Kind: model.ItemData, Value: Text("b")}, {Position: 16, Kind: model.ItemError}}
	mark := store.TaskMark{Claim: 4, Seq: 9, Lines: 2, Items: 16, At: Noon}

	var all []store.TaskDatum
	for _, task := range []string{"a", "b"} {
		all = append(all, s.Datum(task, "", "half"))
		for i := range items {
			all = append(all, store.NewStreamed(s.RunKey, task, &items[i]))
		}
		all = append(all, mark.Datum(s.RunKey, task), s.Datum(task, "  ", "1"), s.Datum(task, "cursor", "2"), s.Datum(task, "cursor ", "3"), s.Datum(task, "\U0010ffff", "4"))
	}

	l.Write(func(b *store.Batch) { b.TaskData = all })
	of := all[:len(all)/2]
	for name, want := range map[string]struct {
		r    store.DataRange
		rows []store.TaskDatum
	}{
		"everything":              {store.DataRange{}, all},
		"the first of everything": {store.DataRange{Limit: 3}, all[:3]},
		"of a task":               {store.DataRange{Task: "a"}, of},
		"progress":                {store.ProgressRange("a"), of[:1]},
		"progress of all":         {store.ProgressRange(""), []store.TaskDatum{all[0], all[len(of)]}},
		"stream":                  {store.StreamRange("a", 0, 0), of[1:4]},
		"stream behind a place":   {store.StreamRange("a", 1, 1), of[2:3]},
		"stream behind its end":   {store.StreamRange("a", 16, 0), nil},
		"written":                 {store.WrittenRange("a"), of[4:]},
		"states":                  {store.StateRange("a"), of[5:]},
		"one state":               {store.OneStateRange("a", "cursor"), of[6:7]},
		"a state that is missing": {store.OneStateRange("a", "curso"), nil},
	} {
		x.Want(name, want.rows, try(x.Store.LoadTaskData(x.Context(), s.RunKey, want.r)).or(x))
	}
}

func testTaskStream(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	rapid.Check(x.t, func(t *rapid.T) {
		item := model.StreamItem{
			Position: rapid.Int64Min(1).Draw(t, "position"), Kind: rapid.SampledFrom([]model.ItemKind{model.ItemToken, model.ItemProgress, model.ItemData, model.ItemError}).Draw(t, "kind"),
			At: Times().Draw(t, "at"), Value: Payloads().Draw(t, "value"),
		}

		mark := store.TaskMark{
			Claim: rapid.Int64().Draw(t, "claim"), Seq: rapid.Int64().Draw(t, "seq"), Lines: rapid.Int64().Draw(t, "lines"), Items: item.Position, At: item.At,
		}
		l.Write(func(b *store.Batch) {
			b.TaskData = []store.TaskDatum{store.NewStreamed(s.RunKey, "a", &item), mark.Datum(s.RunKey, "a")}
		})
		rows := try(x.Store.LoadTaskData(x.Context(), s.RunKey, store.DataRange{Task: "a"})).or(x)
		if len(rows) != 2 {
			t.Fatalf("%d rows are stored", len(rows))
		}

		got, err := rows[0].StreamItem()
		if d := Diff(item, got); d != "" || err != nil {
			t.Fatalf("item: %v (-want +got):\n%s", err, d)
		}
		read, ok, err := rows[1].Mark()
		if d := Diff(mark, read); d != "" || !ok || err != nil {
			t.Fatalf("mark: %v, %v (-want +got):\n%s", ok, err, d)
		}

		l.Write(func(b *store.Batch) { b.TaskData = []store.TaskDatum{store.DropStreamed(s.RunKey, "a", item.Position)} })
	})
}

func testTaskValues(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	rapid.Check(x.t, func(t *rapid.T) {
		want := store.TaskDatum{RunKey: s.RunKey, Task: "a", Name: "n", Value: Payloads().Draw(t, "value")}
		l.Write(func(b *store.Batch) { b.TaskData = []store.TaskDatum{want} })
		if d := Diff([]store.TaskDatum{want}, try(x.Store.LoadTaskData(x.Context(), s.RunKey, store.DataRange{Task: "a"})).or(x)); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func testLogOrder(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.Subject(), x.Subject()
	l.Write(func(b *store.Batch) {
		b.Logs = []store.LogRow{s.Line("a", Noon, 0, "1"), s.Line("b", Noon, 1, "2"), other.Line("a", Noon, 2, "x"), s.Line("a", Noon, 3, "3")}
	})
	l.Write(func(b *store.Batch) { // lines of the same moment
		b.Logs = []store.LogRow{s.Line("a", Noon, 1, "5"), s.Line("a", Noon, 0, "4"), s.Line("b", Noon+1, 2, "6")}
	})
	l.Write(func(b *store.Batch) { b.Logs = []store.LogRow{s.Line("a", Noon-1, 0, "0")} })
	x.Want("all", []string{"0", "1", "2", "3", "4", "5", "6"}, x.lines(s, ""))
	x.Want("of a", []string{"0", "1", "3", "4", "5"}, x.lines(s, "a"))
	x.Want("of b", []string{"2", "6"}, x.lines(s, "b"))
	x.Want("of an unknown task", []string(nil), x.lines(s, "c"))
	x.Want("of an unknown run", []string(nil), x.lines(x.Subject(), ""))
	x.Want("of another run", []string{"x"}, x.lines(other, ""))
}

func testLogTexts(x *suite) {
	l := x.Join(1).Lanes[0]
	rapid.Check(x.t, func(t *rapid.T) {
		s := x.Subject()
		want := s.Line("a", Times().Draw(t, "at"), rapid.Int32Min(0).Draw(t, "n"), Texts().Draw(t, "text"))
		want.Level = rapid.Int16().Draw(t, "level")
		l.Write(func(b *store.Batch) { b.Logs = []store.LogRow{want} })
		want.Epoch, want.Batch = l.Ref.Epoch, l.Landed
		if d := Diff([]store.LogRow{want}, try(x.Store.LoadLogs(x.Context(), s.RunKey, "", store.LogPlace{}, 10)).or(x)); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func testLogOwners(x *suite) {
	s := x.Subject()
	var want []string
	for i := range 3 { // each writes its first batch at the same time
		text := fmt.Sprint("owner ", i)
		x.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Logs = []store.LogRow{s.Line("a", Noon, 0, text)} })
		want = append(want, text)
	}
	x.Want("lines", want, x.lines(s, ""))
}

func testLogTwice(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	b := l.Batch()
	b.Logs = []store.LogRow{s.Line("a", Noon, 1, "1"), s.Line("b", Noon, 1, "2")}
	l.Refuse(b, store.Refused)
	x.Want("lines", []string(nil), x.lines(s, ""))
}

func testTaskDataRefused(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	l.Write(func(b *store.Batch) {
		b.TaskData, b.Logs = []store.TaskDatum{s.Datum("a", "x", "1"), s.Datum("a", "y", "1")}, []store.LogRow{s.Line("a", Noon, 0, "1")}
	})
	before := x.Contents()
	b := l.Batch()
	gone := s.Datum("a", "y", "")
	gone.Deleted = true
	b.TaskData = []store.TaskDatum{s.Datum("a", "x", "2"), gone, s.Datum("a", "z", "2")}
	b.Logs = []store.LogRow{s.Line("a", Noon, 0, "2")}
	b.Free = []model.ShardID{model.MaxShards - 1} // the node does not own it: refuses the batch
	l.Refuse(b, store.Refused)
	x.Want("contents", before, x.Contents())
}

func testTasksSwept(x *suite) {
	l := x.Join(1).Lanes[0]
	s, kept := x.SubjectIn(1), x.SubjectIn(1)
	x.past(l, s, 3)
	x.past(l, kept, 1)

	l.Write(func(b *store.Batch) {
		for i := range 12 {
			b.TaskData = append(b.TaskData, s.Datum("a", fmt.Sprint(i), "1"))
			b.Logs = append(b.Logs, s.Line("a", Noon+model.Time(i/2), int32(i), "1"))
		}
		b.TaskData, b.Logs = append(b.TaskData, kept.Datum("a", "", "1")), append(b.Logs, kept.Line("a", Noon, 99, "kept"))
	})

	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{s.RunKey} })
	total := 0
	for n := -1; n != 0; total += n {
		if n = try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: []model.ShardID{1}, Limit: 5})).or(x); n > 5 {
			x.Fatalf("%d rows in one sweep", n)
		}
	}

	if total != 3+12+12+1 {
		x.Errorf("%d rows were swept, want 28", total)
	}
	x.Want("data", []store.TaskDatum(nil), try(x.Store.LoadTaskData(x.Context(), s.RunKey, store.DataRange{})).or(x))
	x.Want("lines", []string(nil), x.lines(s, ""))
	x.Want("data of the other", []store.TaskDatum{kept.Datum("a", "", "1")}, try(x.Store.LoadTaskData(x.Context(), kept.RunKey, store.DataRange{})).or(x))
	x.Want("lines of the other", []string{"kept"}, x.lines(kept, ""))
}

func testLogsSwept(x *suite) {
	l := x.Join(1).Lanes[0]
	s, t, elsewhere := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(2)
	l.Write(func(b *store.Batch) {
		for i := range 10 {
			for j, subject := range []Subject{s, t, elsewhere} {
				b.Logs = append(b.Logs, subject.Line("a", Noon+model.Time(i), int32(3*i+j), fmt.Sprint(i)))
			}
		}
	})

	sweep := func(before model.Time) (total int) {
		for {
			n := try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: []model.ShardID{1, 1}, LogsBefore: before, Limit: 3})).or(x)
			if n > 3 {
				x.Fatalf("%d rows in one sweep", n)
			}
			if total += n; n == 0 {
				return total
			}
		}
	}
	if n := sweep(0); n != 0 {
		x.Errorf("%d lines were swept without a time", n)
	}
	if n := sweep(Noon + 7); n != 14 {
		x.Errorf("%d lines were swept, want 14", n)
	}
	x.Want("the newer ones", []string{"7", "8", "9"}, x.lines(s, ""))
	if n := len(x.lines(elsewhere, "")); n != 10 {
		x.Errorf("%d lines of another shard are left", n)
	}
}
