package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var deadTests = []test{
	{name: "a dead task comes back as it was", run: testDeadContents},
	{name: "a task dies once", run: testDeadTwice},
	{name: "a requeue that expects another count refuses the batch", run: testDeadMarks},
	{name: "of many who requeue one succeeds", run: testDeadRace},
	{name: "deletes of dead tasks", run: testDeadDeletes},
	{name: "a refused batch leaves dead tasks alone", run: testDeadRefused},
	{name: "a dead task outlives its run", run: testDeadOutlives},
	{name: "lists of dead tasks, newest first, in pages", run: testDeadPages},
	{name: "queries for dead tasks", run: testDeadQueries},
	{name: "groups of dead tasks", run: testDeadGroups},
	{name: "old dead tasks of shards", run: testDeadBefore},
	{name: "odd and long names of tasks", run: testDeadNames},
	{name: "dead tasks survive", run: testDeadDurable, needs: durable},
}

// DeadTasks generates dead tasks of every shape, except for values that have their own column.
func DeadTasks() *rapid.Generator[model.DeadTask] {
	return rapid.Custom(func(t *rapid.T) model.DeadTask {
		d := model.DeadTask{
			Address: model.Address{Tenant: model.DefaultTenant, Type: Texts().Draw(t, "type"), Key: Texts().Draw(t, "key")},
			Spec:    model.TaskSpec{Kind: "charge", Queue: "default", Priority: int(numbers().Draw(t, "priority")), Limits: []string{"a", Texts().Draw(t, "limit")}},
			Input:   Payloads().Draw(t, "input"), Scheduled: Times().Draw(t, "scheduled"), At: Times().Draw(t, "at"),
			Attempts: int(numbers().Draw(t, "attempts")), LeftOut: int(numbers().Draw(t, "left out")), Failure: Failures().Draw(t, "failure"),
			Requeued: model.Requeue{At: Times().Draw(t, "requeued"), Address: addresses().Draw(t, "as"), Run: runIDs().Draw(t, "run")},
		}
		if rapid.Bool().Draw(t, "requeued with another input") {
			d.Requeued.SetInput(Payloads().Draw(t, "requeued with"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "failed") {
			a := model.FailedAttempt{Attempt: int(numbers().Draw(t, "attempt")), At: Times().Draw(t, "at"), Worker: Texts().Draw(t, "worker")}
			if f := Failures().Draw(t, "failure"); f != nil {
				a.Failure = *f
			}
			d.Failed = append(d.Failed, a)
		}

		d.Fingerprint = d.Failure.Fingerprint()
		return d
	})
}

// Dead returns the row of a dead task of the run.
func (s Subject) Dead(task, kind, message string, at model.Time) store.DeadRow {
	f := &model.Failure{Kind: "timeout", Message: message}
	return store.DeadRow{DeadKey: store.DeadKey{RunKey: s.RunKey, Task: task}, Body: model.DeadTask{
		Address: s.Start.Address, Spec: model.TaskSpec{Kind: kind, Queue: "default"}, Input: Text("input of " + task), Scheduled: at - 10, At: at, Attempts: 1,
		Failed: []model.FailedAttempt{{Attempt: 1, At: at, Worker: "w", Failure: *f}}, Failure: f, Fingerprint: f.Fingerprint(),
	}}
}

// Requeue returns the mark that requeues a dead task, and the row as it is after the mark.
func Requeue(r store.DeadRow, at model.Time) (store.DeadMark, store.DeadRow) {
	m := store.DeadMark{DeadKey: r.DeadKey, Prev: r.Requeued, Next: r.Requeued + 1, Body: r.Body}
	m.Body.Requeued = model.Requeue{At: at, Address: r.Body.Address, Run: r.Run}
	r.Requeued, r.Body = m.Next, m.Body
	return m, r
}

func (x *suite) wantDead(what string, want store.DeadRow) {
	x.Helper()
	got := try(x.Store.LoadDead(x.Context(), want.DeadKey)).or(x)
	if got == nil {
		x.Fatalf("%s: there is no dead task %q", what, want.Task)
	}
	x.Want(what, want, *got)
}

// deadTasks returns the names of the matching tasks, in order.
func (x *suite) deadTasks(q store.DeadQuery) (out []string) {
	x.Helper()
	if q.Tenant == "" {
		q.Tenant = model.DefaultTenant
	}
	n := try(x.Store.CountDead(x.Context(), q)).or(x)
	if q.Limit == 0 {
		q.Limit = 1000
	}

	for {
		p := try(x.Store.ListDead(x.Context(), q)).or(x)
		for i := range p.Rows {
			out = append(out, p.Rows[i].Task)
		}
		if !p.More {
			break
		}
		if len(p.Rows) != q.Limit {
			x.Fatalf("a page of %d rows, and there are more; the limit is %d", len(p.Rows), q.Limit)
		}
		q.After = p.Rows[len(p.Rows)-1].Place()
		x.checkPagesEnd(len(out))
	}

	if int(n) != len(out) {
		x.Errorf("%d are counted, %d listed", n, len(out))
	}
	return out
}

func testDeadContents(x *suite) {
	l := x.Join(1).Lanes[0]
	rapid.Check(x.t, func(t *rapid.T) {
		s := x.Subject()
		row := store.DeadRow{DeadKey: store.DeadKey{RunKey: s.RunKey, Task: "task"}, Body: DeadTasks().Draw(t, "dead")}
		l.Write(func(b *store.Batch) { b.Dead = []store.DeadRow{row} })
		check := func(what string, want store.DeadRow) {
			got := try(x.Store.LoadDead(x.Context(), want.DeadKey)).or(x)
			if d := Diff(&want, got); d != "" {
				t.Fatalf("%s (-want +got):\n%s", what, d)
			}
		}
		check("as it was written", row)
		mark, after := Requeue(row, Noon)
		l.Write(func(b *store.Batch) { b.DeadMarks = []store.DeadMark{mark} })
		check("requeued", after)
	})

	if got := try(x.Store.LoadDead(x.Context(), store.DeadKey{RunKey: x.Subject().RunKey, Task: "task"})).or(x); got != nil {
		x.Errorf("a dead task out of nothing: %+v", got)
	}
}

func testDeadTwice(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	one := s.Dead("a", "charge", "boom", Noon)
	l.Write(func(b *store.Batch) { b.Dead = []store.DeadRow{one, s.Dead("b", "charge", "boom", Noon)} })
	b := l.Batch()
	b.Dead = []store.DeadRow{s.Dead("c", "charge", "other", Noon+1), s.Dead("a", "charge", "other", Noon+1)}
	l.Refuse(b, store.Refused)
	x.wantDead("the first one", one)
	x.Want("all", []string{"b", "a"}, x.deadTasks(store.DeadQuery{}))
}

func testDeadMarks(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	row := s.Dead("a", "charge", "boom", Noon)
	l.Write(func(b *store.Batch) { b.Dead = []store.DeadRow{row} })
	mark, once := Requeue(row, Noon+1)
	l.Write(func(b *store.Batch) { b.DeadMarks = []store.DeadMark{mark} })
	again, twice := Requeue(once, Noon+2)

	another := func(change func(d *model.DeadTask)) store.DeadMark {
		m := again
		change(&m.Body)
		return m
	}

	unknown := again
	unknown.Task = "nobody"
	ahead := again
	ahead.Prev, ahead.Next = 2, 3

	for name, bad := range map[string]store.DeadMark{
		"the same again": mark, "one that is ahead": ahead, "of an unknown task": unknown,
		"another tenant":      another(func(d *model.DeadTask) { d.Address.Tenant = "other" }),
		"another kind":        another(func(d *model.DeadTask) { d.Spec.Kind = "other" }),
		"another queue":       another(func(d *model.DeadTask) { d.Spec.Queue = "other" }),
		"another time":        another(func(d *model.DeadTask) { d.At++ }),
		"another fingerprint": another(func(d *model.DeadTask) { d.Fingerprint = "other" }),
	} {
		b := l.Batch()
		b.DeadMarks = []store.DeadMark{bad}
		if _, err := l.Try(x.Context(), b); store.ClassOf(err) != store.Refused || err == nil {
			x.Errorf("%s: %v, want it refused", name, err)
		}
		x.wantDead(name, once)
	}

	l.Write(func(b *store.Batch) { b.DeadMarks = []store.DeadMark{again} })
	x.wantDead("requeued twice", twice)
}

func testDeadRace(x *suite) {
	const people = 10
	n := x.Join(people)
	row := x.Subject().Dead("a", "charge", "boom", Noon)
	n.Lanes[0].Write(func(b *store.Batch) { b.Dead = []store.DeadRow{row} })
	errs := make([]error, people)

	var all sync.WaitGroup
	for i, l := range n.Lanes {
		all.Go(func() {
			b := l.Batch()
			mark, _ := Requeue(row, Noon+model.Time(i))
			b.DeadMarks = []store.DeadMark{mark}
			_, errs[i] = l.Try(x.Context(), b)
		})
	}

	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if store.ClassOf(err) != store.Refused && store.ClassOf(err) != store.Retryable {
			x.Errorf("class %s: %v", store.ClassOf(err), err)
		}
	}

	if got := try(x.Store.LoadDead(x.Context(), row.DeadKey)).or(x); won != 1 || got.Requeued != 1 {
		x.Errorf("%d of them succeeded, the count is %d", won, got.Requeued)
	}
}

func testDeadDeletes(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	a, b := s.Dead("a", "charge", "boom", Noon), s.Dead("b", "charge", "boom", Noon)
	l.Write(func(w *store.Batch) { w.Dead = []store.DeadRow{a, b} })
	w := l.Batch()
	w.DeadDeletes = []store.DeadKey{a.DeadKey, {RunKey: s.RunKey, Task: "nobody"}}
	l.Refuse(w, store.Refused)
	l.Write(func(w *store.Batch) { w.DeadDeletes = []store.DeadKey{a.DeadKey} })
	x.Want("left", []string{"b"}, x.deadTasks(store.DeadQuery{}))
	w = l.Batch()
	w.DeadDeletes = []store.DeadKey{a.DeadKey}
	l.Refuse(w, store.Refused)
	l.Write(func(w *store.Batch) { w.Dead = []store.DeadRow{a} })
	x.wantDead("it may die again", a)
}

func testDeadRefused(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	a, b, c := s.Dead("a", "charge", "boom", Noon), s.Dead("b", "charge", "boom", Noon+1), s.Dead("c", "ship", "boom", Noon+2)
	l.Write(func(w *store.Batch) { w.Dead = []store.DeadRow{a, b} })
	before := x.Contents()
	w := l.Batch()
	mark, _ := Requeue(a, Noon)
	w.Dead, w.DeadMarks, w.DeadDeletes = []store.DeadRow{c}, []store.DeadMark{mark}, []store.DeadKey{b.DeadKey}
	w.Free = []model.ShardID{model.MaxShards - 1} // the node does not own it: refuses the batch
	l.Refuse(w, store.Refused)
	x.Want("contents", before, x.Contents())
	x.Want("listed", []string{"b", "a"}, x.deadTasks(store.DeadQuery{}))
}

func testDeadOutlives(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	row := s.Dead("a", "charge", "boom", Noon)
	x.past(l, s, 2)
	l.Write(func(b *store.Batch) { b.Dead = []store.DeadRow{row} })
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{s.RunKey} })
	for n := -1; n != 0; {
		n = try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: x.Shards(), LogsBefore: model.MaxTime, Limit: 100})).or(x)
	}
	x.wantDead("after its run is gone", row)
}

func testDeadPages(x *suite) {
	l := x.Join(1).Lanes[0]
	var rows []store.DeadRow
	for i := range 30 {
		s := x.Subject()
		at := Noon + model.Time(i/4) // some have the same time
		rows = append(rows, s.Dead(fmt.Sprint("x", i), "charge", "boom", at), s.Dead(fmt.Sprint("y", i), "charge", "boom", at))
	}

	l.Write(func(b *store.Batch) { b.Dead = rows })
	slices.SortFunc(rows, func(a, b store.DeadRow) int { return b.Place().Compare(a.Place()) })
	var want []string
	for i := range rows {
		want = append(want, rows[i].Task)
	}

	for _, limit := range []int{1, 7, 60, 61} {
		x.Want(fmt.Sprint("pages of ", limit), want, x.deadTasks(store.DeadQuery{Limit: limit}))
		x.Want(fmt.Sprint("pages of a group of ", limit), want, x.deadTasks(store.DeadQuery{Limit: limit, Fingerprint: rows[0].Body.Fingerprint}))
	}

	page := try(x.Store.ListDead(x.Context(), store.DeadQuery{Tenant: model.DefaultTenant, Limit: 3})).or(x)
	x.Want("the rows of a page", rows[:3], page.Rows)
}

func testDeadQueries(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.Subject(), x.SubjectOf(model.Address{Tenant: "other", Type: "order", Key: "k"})
	a, b, c := s.Dead("a", "charge", "no answer in 3 s", Noon), s.Dead("b", "ship", "no answer in 4 s", Noon+1), s.Dead("c", "ship", "broken", Noon+2)
	b.Body.Spec.Queue = "slow"
	mark, after := Requeue(c, Noon+3)
	l.Write(func(w *store.Batch) { w.Dead = []store.DeadRow{a, b, c, other.Dead("o", "charge", "broken", Noon)} })
	l.Write(func(w *store.Batch) { w.DeadMarks = []store.DeadMark{mark} })
	x.wantDead("the one that was requeued", after)

	yes, no := true, false
	for name, q := range map[string]struct {
		q    store.DeadQuery
		want []string
	}{
		"everything":           {store.DeadQuery{}, []string{"c", "b", "a"}},
		"another tenant":       {store.DeadQuery{Tenant: "other"}, []string{"o"}},
		"an unknown tenant":    {store.DeadQuery{Tenant: "nobody"}, nil},
		"a kind":               {store.DeadQuery{Kinds: []string{"ship"}}, []string{"c", "b"}},
		"several kinds":        {store.DeadQuery{Kinds: []string{"ship", "charge", "x"}}, []string{"c", "b", "a"}},
		"a kind in other case": {store.DeadQuery{Kinds: []string{"SHIP"}}, nil},
		"a queue":              {store.DeadQuery{Queues: []string{"slow"}}, []string{"b"}},
		"queues and kinds":     {store.DeadQuery{Queues: []string{"slow", "default"}, Kinds: []string{"ship"}}, []string{"c", "b"}},
		"a fingerprint":        {store.DeadQuery{Fingerprint: a.Body.Fingerprint}, []string{"b", "a"}},
		"a group":              {store.DeadQuery{Fingerprint: a.Body.Fingerprint, Kinds: []string{"charge"}}, []string{"a"}},
		"from a time":          {store.DeadQuery{From: Noon + 1}, []string{"c", "b"}},
		"to a time":            {store.DeadQuery{To: Noon + 1}, []string{"a"}},
		"an interval":          {store.DeadQuery{From: Noon + 1, To: Noon + 2, Fingerprint: a.Body.Fingerprint}, []string{"b"}},
		"requeued":             {store.DeadQuery{Requeued: &yes}, []string{"c"}},
		"not requeued":         {store.DeadQuery{Requeued: &no}, []string{"b", "a"}},
	} {
		x.Want(name, q.want, x.deadTasks(q.q))
	}
}

func testDeadGroups(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.Subject(), x.SubjectOf(model.Address{Tenant: "other", Type: "order", Key: "k"})
	var rows []store.DeadRow
	for i := range 7 {
		rows = append(rows, s.Dead(fmt.Sprint("t", i), "charge", fmt.Sprintf("timeout after %d ms talking to 10.0.0.%d", 30+i, i), Noon+model.Time(i)))
	}
	rows = append(rows, s.Dead("u1", "ship", "timeout after 1 ms talking to 10.0.0.1", Noon+20), s.Dead("v1", "ship", "broken", Noon+10),
		s.Dead("v2", "ship", "broken", Noon+9), other.Dead("o", "ship", "broken", Noon))
	silent := s.Dead("w", "mail", "", Noon+5)
	silent.Body.Failure = nil
	silent.Body.Fingerprint = ""
	rows = append(rows, silent)
	l.Write(func(b *store.Batch) { b.Dead = rows })
	mark, _ := Requeue(rows[6], Noon+30)
	l.Write(func(b *store.Batch) { b.DeadMarks = []store.DeadMark{mark} })
	slow, broken := rows[0].Body.Fingerprint, rows[8].Body.Fingerprint

	groups := []store.DeadGroup{
		{Kind: "charge", Fingerprint: slow, Count: 7, First: Noon, Last: Noon + 6, Message: "timeout after 36 ms talking to 10.0.0.6"},
		{Kind: "ship", Fingerprint: broken, Count: 2, First: Noon + 9, Last: Noon + 10, Message: "broken"},
		{Kind: "ship", Fingerprint: slow, Count: 1, First: Noon + 20, Last: Noon + 20, Message: "timeout after 1 ms talking to 10.0.0.1"},
		{Kind: "mail", Count: 1, First: Noon + 5, Last: Noon + 5},
	}

	group := func(q store.DeadQuery, limit int) []store.DeadGroup {
		if q.Tenant == "" {
			q.Tenant = model.DefaultTenant
		}
		return try(x.Store.GroupDead(x.Context(), q, limit)).or(x)
	}

	x.Want("all", groups, group(store.DeadQuery{}, 10))
	x.Want("the largest", groups[:2], group(store.DeadQuery{}, 2))
	x.Want("none", []store.DeadGroup(nil), group(store.DeadQuery{}, 0))
	x.Want("of a kind", groups[1:3], group(store.DeadQuery{Kinds: []string{"ship"}}, 10))
	x.Want("of a fingerprint", []store.DeadGroup{groups[0], groups[2]}, group(store.DeadQuery{Fingerprint: slow}, 10))
	x.Want("of a tenant without any", []store.DeadGroup(nil), group(store.DeadQuery{Tenant: "nobody"}, 10))

	// The message of a group belongs to one of the tasks that the query selects.
	no := false
	want := groups[0]
	want.Count, want.Last, want.Message = 6, Noon+5, "timeout after 35 ms talking to 10.0.0.5"
	x.Want("not requeued", []store.DeadGroup{want}, group(store.DeadQuery{Requeued: &no, Kinds: []string{"charge"}}, 10))
	want.Count, want.First, want.Last, want.Message = 2, Noon+2, Noon+3, "timeout after 33 ms talking to 10.0.0.3"
	x.Want("of a time", []store.DeadGroup{want}, group(store.DeadQuery{From: Noon + 2, To: Noon + 4}, 10))
}

func testDeadBefore(x *suite) {
	l := x.Join(1).Lanes[0]
	var want []store.DeadRow
	for i := range 40 {
		s := x.SubjectIn(model.ShardID(i % 4))
		at := Noon + model.Time(i*7%20)
		rows := []store.DeadRow{s.Dead(fmt.Sprint("t", i), "charge", "boom", at), s.Dead(fmt.Sprint("u", i), "charge", "boom", at)}
		l.Write(func(b *store.Batch) { b.Dead = rows })
		if s.Shard != 3 && at < Noon+15 {
			want = append(want, rows...)
		}
	}

	slices.SortFunc(want, func(a, b store.DeadRow) int {
		if a.Shard != b.Shard {
			return int(a.Shard) - int(b.Shard)
		}
		return a.Place().Compare(b.Place())
	})

	for _, limit := range []int{1, 4, 100} {
		var got []store.DeadRow
		var after store.DeadPlace
		for {
			page := try(x.Store.LoadDeadBefore(x.Context(), []model.ShardID{2, 0, 1, 0}, Noon+15, after, limit)).or(x)
			if len(page) == 0 {
				break
			}
			if len(page) > limit {
				x.Fatalf("%d rows, at most %d", len(page), limit)
			}
			got, after = append(got, page...), page[len(page)-1].Place()
			x.checkPagesEnd(len(got))
		}
		x.Want(fmt.Sprint("in pages of ", limit), want, got)
	}

	if got := try(x.Store.LoadDeadBefore(x.Context(), nil, model.MaxTime, store.DeadPlace{}, 10)).or(x); len(got) != 0 {
		x.Errorf("of no shards: %v", got)
	}
}

func testDeadNames(x *suite) {
	l := x.Join(1).Lanes[0]
	name := func(t *rapid.T, most int, what string) string { return Names(most).Draw(t, what) }
	rapid.Check(x.t, func(t *rapid.T) {
		s := x.SubjectOf(model.Address{Tenant: name(t, MaxName, "tenant"), Type: "w", Key: fmt.Sprint(x.ids.Add(1))})
		row := s.Dead(name(t, MaxKey, "task"), name(t, MaxName, "kind"), "boom", Noon)
		row.Body.Spec.Queue = name(t, MaxName, "queue")
		datum := store.TaskDatum{RunKey: s.RunKey, Task: row.Task, Name: name(t, MaxName, "name"), Value: Text("x")}
		line := s.Line(row.Task, Noon, 0, name(t, 4096, "text"))
		l.Write(func(b *store.Batch) {
			b.Dead, b.TaskData, b.Logs = []store.DeadRow{row}, []store.TaskDatum{datum}, []store.LogRow{line}
		})

		q := store.DeadQuery{
			Tenant: s.Start.Address.Tenant, Kinds: []string{row.Body.Spec.Kind}, Queues: []string{"other", row.Body.Spec.Queue}, Limit: 1000,
			From: Noon, Fingerprint: row.Body.Fingerprint,
		}

		page := try(x.Store.ListDead(x.Context(), q)).or(x)
		if !slices.ContainsFunc(page.Rows, func(r store.DeadRow) bool { return Diff(row, r) == "" }) {
			t.Fatalf("%+v is not among %d rows", row, len(page.Rows))
		}
		data := try(x.Store.LoadTaskData(x.Context(), s.RunKey, store.DataRange{Task: row.Task})).or(x)
		if d := Diff([]store.TaskDatum{datum}, data); d != "" {
			t.Fatalf("data: %s", d)
		}

		line.Epoch, line.Batch = l.Ref.Epoch, l.Landed
		logs := try(x.Store.LoadLogs(x.Context(), s.RunKey, row.Task, store.LogPlace{}, 10)).or(x)
		if d := Diff([]store.LogRow{line}, logs); d != "" {
			t.Fatalf("logs: %s", d)
		}
		l.Write(func(b *store.Batch) { b.DeadDeletes = []store.DeadKey{row.DeadKey} })
	})

	key := store.SettingKey{Tenant: strings.Repeat("t", MaxName), Kind: strings.Repeat("k", MaxName), Name: strings.Repeat("ü", MaxKey/2)}
	if _, err := x.Store.PutSetting(x.Context(), store.Setting{SettingKey: key, Body: []byte{0}}, 0); err != nil {
		x.Errorf("a long name: %v", err)
	}
}

func testDeadDurable(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	row := s.Dead("a", "charge", "boom", Noon)
	datum := store.TaskDatum{RunKey: s.RunKey, Task: "a", Value: Text("half")}
	line := s.Line("a", Noon, 0, "hello")
	l.Write(func(b *store.Batch) {
		b.Dead, b.TaskData, b.Logs = []store.DeadRow{row}, []store.TaskDatum{datum}, []store.LogRow{line}
	})
	mark, row := Requeue(row, Noon+1)
	l.Write(func(b *store.Batch) { b.DeadMarks = []store.DeadMark{mark} })
	version := try(x.Store.PutSetting(x.Context(), setting("limit", "a", "1"), 0)).or(x)
	changes := try(x.Store.LoadSettings(x.Context(), 0)).or(x)
	x.reopen()
	x.wantDead("after it was opened again", row)
	x.Want("data", []store.TaskDatum{datum}, try(x.Store.LoadTaskData(x.Context(), s.RunKey, store.DataRange{Task: "a"})).or(x))
	x.Want("lines", []string{"hello"}, x.lines(s, ""))
	x.Want("settings", changes, try(x.Store.LoadSettings(x.Context(), 0)).or(x))
	next := try(x.Store.PutSetting(x.Context(), setting("limit", "a", "2"), version)).or(x)
	if next <= version {
		x.Errorf("version %d after version %d", next, version)
	}
	var wrong *store.VersionError
	if _, err := x.Store.PutSetting(x.Context(), setting("limit", "a", "3"), version); !errors.As(err, &wrong) || wrong.Present != next {
		x.Errorf("%v, want an error that tells version %d", err, next)
	}
}
