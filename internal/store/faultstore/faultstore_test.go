package faultstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/storetest"
)

func TestConformanceWithoutFaults(t *testing.T) {
	t.Parallel()
	o := storetest.Options{Open: func(*testing.T) store.Store {
		return faultstore.Wrap(memory.New(memory.Options{}), faultstore.Config{})
	}}
	if testing.Short() { // short with the race detector; the whole suite runs without the detector
		o.Only = storetest.Overlapping()
	}
	storetest.RunWith(t, o)
}

// everyCall calls every method once. The node and its lanes must exist in the store.
func everyCall(ctx context.Context, s store.Store, n *storetest.Node, a storetest.Subject) map[faultstore.Method]error {
	errs := make(map[faultstore.Method]error)
	b := n.Lanes[0].Batch()
	b.Starts = append(b.Starts, a.StartRow())
	_, errs[faultstore.Register] = s.Register(ctx, store.NodeInfo{ID: model.NodeID{9}}, 1, time.Hour)
	_, errs[faultstore.Commit] = s.Commit(ctx, b)
	_, errs[faultstore.Renew] = s.Renew(ctx, store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
	_, errs[faultstore.Acquire] = s.Acquire(ctx, n.ID, n.Epoch, []model.ShardID{3})
	_, _, errs[faultstore.Refence] = s.Refence(ctx, n.Lanes[1].Ref)
	_, errs[faultstore.LoadRunnable] = s.LoadRunnable(ctx, nil, store.RunKey{}, 1)
	_, errs[faultstore.LoadExpired] = s.LoadExpired(ctx, store.ExpiredRequest{Limit: 1})
	_, errs[faultstore.LoadExecution] = s.LoadExecution(ctx, a.Shard, a.Start.Address, model.RunID{})
	_, errs[faultstore.LoadEvents] = s.LoadEvents(ctx, a.RunKey, 0, 1, 1)
	_, errs[faultstore.LoadTimers] = s.LoadTimers(ctx, nil, store.TimerMark{}, 1, 1)
	_, errs[faultstore.LoadRun] = s.LoadRun(ctx, a.Shard, a.Start.Address, model.RunID{}, 1, 1)
	_, errs[faultstore.LoadRuns] = s.LoadRuns(ctx, []store.AddressKey{{Shard: a.Shard, Address: a.Start.Address}}, 1, 1)
	_, errs[faultstore.LoadRunTimers] = s.LoadRunTimers(ctx, a.RunKey)
	_, _, errs[faultstore.LoadMessages] = s.LoadMessages(ctx, nil, 1, 1)
	_, _, errs[faultstore.LoadInbox] = s.LoadInbox(ctx, nil, 1, 1, 1)
	_, errs[faultstore.LoadDeadLetters] = s.LoadDeadLetters(ctx, model.RunID{}, 1)
	errs[faultstore.PutInbox] = s.PutInbox(ctx, nil)
	_, errs[faultstore.LoadReplies] = s.LoadReplies(ctx, nil)
	_, errs[faultstore.List] = s.List(ctx, store.Query{})
	_, errs[faultstore.Count] = s.Count(ctx, store.Query{})
	_, errs[faultstore.Tally] = s.Tally(ctx, store.Query{}, store.TallyBy{})
	_, errs[faultstore.LastEvent] = s.LastEvent(ctx, a.RunKey)
	_, errs[faultstore.LoadEventsOf] = s.LoadEventsOf(ctx, a.RunKey, model.EventStateSet, 1, 1)
	_, errs[faultstore.LoadLabels] = s.LoadLabels(ctx, nil)
	_, errs[faultstore.LoadDetails] = s.LoadDetails(ctx, a.Shard, a.Start.Address, model.RunID{})
	_, errs[faultstore.LoadAnswers] = s.LoadAnswers(ctx, store.Awaited{})
	_, errs[faultstore.Members] = s.Members(ctx)
	_, errs[faultstore.Sweep] = s.Sweep(ctx, store.SweepRequest{})
	_, errs[faultstore.LoadDead] = s.LoadDead(ctx, store.DeadKey{RunKey: a.RunKey, Task: "t"})
	_, errs[faultstore.ListDead] = s.ListDead(ctx, store.DeadQuery{})
	_, errs[faultstore.Tenants] = s.Tenants(ctx)
	_, errs[faultstore.CountDead] = s.CountDead(ctx, store.DeadQuery{})
	_, errs[faultstore.GroupDead] = s.GroupDead(ctx, store.DeadQuery{}, 1)
	_, errs[faultstore.LoadDeadBefore] = s.LoadDeadBefore(ctx, nil, 1, store.DeadPlace{}, 1)
	_, errs[faultstore.LoadTaskData] = s.LoadTaskData(ctx, a.RunKey, store.DataRange{})
	_, errs[faultstore.LoadLogs] = s.LoadLogs(ctx, a.RunKey, "", store.LogPlace{}, 1)
	setting := store.Setting{SettingKey: store.SettingKey{Tenant: "t", Kind: "k", Name: "n"}}
	_, errs[faultstore.PutSetting] = s.PutSetting(ctx, setting, 0)
	_, errs[faultstore.DeleteSetting] = s.DeleteSetting(ctx, setting.SettingKey, 1)
	_, errs[faultstore.ListSettings] = s.ListSettings(ctx, "t", "k")
	_, errs[faultstore.LoadSettings] = s.LoadSettings(ctx, 0)
	errs[faultstore.PutPeerMail] = s.PutPeerMail(ctx, nil)
	_, errs[faultstore.TakePeerMail] = s.TakePeerMail(ctx, n.ID, 1, 1)
	errs[faultstore.NameWorkers] = s.NameWorkers(ctx, store.WorkerNames{})
	_, errs[faultstore.WorkerHomes] = s.WorkerHomes(ctx)
	errs[faultstore.PutAudit] = s.PutAudit(ctx, nil)
	_, errs[faultstore.ListAudit] = s.ListAudit(ctx, store.AuditQuery{})
	_, errs[faultstore.AddReport] = s.AddReport(ctx, store.ReportRow{ID: model.ReportID{1}, Request: "r"}, store.ReportBounds{Rows: 1, Bytes: 1})
	_, errs[faultstore.LoadReport] = s.LoadReport(ctx, "t", model.ReportID{})
	_, errs[faultstore.ListReports] = s.ListReports(ctx, store.ReportQuery{})
	entity := store.EntityKey{Shard: a.Shard, Address: a.Start.Address}
	_, errs[faultstore.LoadEntity] = s.LoadEntity(ctx, entity, 1, 1)
	_, errs[faultstore.LoadMailbox] = s.LoadMailbox(ctx, entity, 0, 1, 1)
	_, errs[faultstore.LoadMailboxes] = s.LoadMailboxes(ctx, nil, store.EntityKey{}, 1)
	_, errs[faultstore.ListEntities] = s.ListEntities(ctx, store.EntityQuery{})
	_, errs[faultstore.SetDrained] = s.SetDrained(ctx, n.ID, true)
	_, errs[faultstore.FenceNode] = s.FenceNode(ctx, store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Proven: true})
	errs[faultstore.Unregister] = s.Unregister(ctx, n.ID, n.Epoch)

	return errs
}

// always returns a plan that injects one fault into every call.
func always(f faultstore.Fault) faultstore.Plan {
	return faultstore.PlanFunc(func(faultstore.Call) faultstore.Fault { return f })
}

// setup returns a memory store with a node of two lanes, and a wrapper around it.
func setup(t *testing.T, c faultstore.Config) (*storetest.Fixture, *storetest.Node, *faultstore.Store) {
	t.Helper()
	inner := memory.New(memory.Options{})
	f := storetest.New(t, inner)
	n := f.Join(2)
	c.KeepInner = true
	return f, n, faultstore.Wrap(inner, c)
}

func TestEveryMethodMeetsThePlan(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Retryable, store.Unknown, store.Refused, store.Fenced, store.Away} {
		f, n, s := setup(t, faultstore.Config{Plan: always(faultstore.Fault{Kind: faultstore.FailBefore, Class: class})})
		a := f.Subject()
		errs := everyCall(t.Context(), s, n, a)
		if len(errs) != len(faultstore.Methods()) {
			t.Fatalf("%d methods were called, want %d", len(errs), len(faultstore.Methods()))
		}

		for m, err := range errs {
			if !errors.Is(err, faultstore.ErrInjected) || store.ClassOf(err) != class {
				t.Errorf("%s: %v, want an injected error of class %s", m, err, class)
			}
		}

		f.Want("contents", storetest.Contents{Members: []model.NodeID{n.ID}}, f.Contents())
		c := s.Counts()
		for _, m := range faultstore.Methods() {
			if c.Calls[m] != 1 || c.Of(m, faultstore.FailBefore) != 1 {
				t.Errorf("%s: %d calls, %d faults", m, c.Calls[m], c.Of(m, faultstore.FailBefore))
			}
		}

		if n := int64(len(errs)); c.TotalFaults() != n || c.Total() != n || c.Of(faultstore.Any, faultstore.FailBefore) != n {
			t.Errorf("%d calls, %d faults, want %d", c.Total(), c.TotalFaults(), n)
		}
	}
}

func TestFailAfterIsApplied(t *testing.T) {
	t.Parallel()
	f, n, s := setup(t, faultstore.Config{Plan: always(faultstore.Fault{Kind: faultstore.FailAfter})})
	a := f.Subject()
	for m, err := range everyCall(t.Context(), s, n, a) {
		if !errors.Is(err, faultstore.ErrInjected) || store.ClassOf(err) != store.Unknown {
			t.Errorf("%s: %v, want an injected error of class unknown", m, err)
		}
	}
	if e, err := f.Store.LoadExecution(t.Context(), a.Shard, a.Start.Address, a.Run); e == nil || err != nil {
		t.Errorf("the commit was not applied: %v, %v", e, err)
	}
	f.Want("members: one registered, one fenced", []model.NodeID{{9}}, f.Contents().Members)
}

func TestFailAtWalksThroughCalls(t *testing.T) {
	t.Parallel()
	for _, p := range []faultstore.FailAt{{N: 3}, {N: 2, Method: faultstore.Members}, {N: 9}} {
		p.Fault = faultstore.Fault{Kind: faultstore.FailBefore}
		_, _, s := setup(t, faultstore.Config{Plan: p})
		var failed []int
		for i := range 6 {
			var err error
			if i%2 == 0 {
				_, err = s.Members(t.Context())
			} else {
				_, err = s.Count(t.Context(), store.Query{})
			}
			if err != nil {
				failed = append(failed, i)
			}
		}

		want := []int{2}
		if p.N == 9 {
			want = nil
		}
		if d := storetest.Diff(want, failed); d != "" {
			t.Errorf("%+v (-want +got):\n%s", p, d)
		}
	}
}

func TestCrashEndsTheProcessAndNobodyElse(t *testing.T) {
	t.Parallel()
	for _, kind := range []faultstore.Kind{faultstore.CrashBefore, faultstore.CrashAfter} {
		crashes := 0
		f, n, s := setup(t, faultstore.Config{
			Plan:    faultstore.FailAt{N: 2, Method: faultstore.Commit, Fault: faultstore.Fault{Kind: kind}},
			OnCrash: func() { crashes++ },
		})

		a, b := f.Subject(), f.Subject()
		l := n.Lanes[0]
		for i, subject := range []storetest.Subject{a, b} {
			batch := l.Batch()
			batch.Starts = []store.StartRow{subject.StartRow()}
			_, err := s.Commit(t.Context(), batch)
			if i == 0 {
				l.Landed++
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			want := map[faultstore.Kind]store.Class{faultstore.CrashBefore: store.Away, faultstore.CrashAfter: store.Unknown}[kind]
			if !errors.Is(err, faultstore.ErrCrashed) || store.ClassOf(err) != want {
				t.Errorf("%s: %v, want a crash of class %s", kind, err, want)
			}
		}

		if crashes != 1 || !s.Dead() {
			t.Errorf("%s: %d crashes, dead %v", kind, crashes, s.Dead())
		}
		e, err := f.Store.LoadExecution(t.Context(), b.Shard, b.Start.Address, b.Run)
		if err != nil || (e != nil) != (kind == faultstore.CrashAfter) {
			t.Errorf("%s: execution %v, %v", kind, e, err)
		}
		before := f.Contents()

		for m, err := range everyCall(t.Context(), s, n, f.Subject()) {
			if !errors.Is(err, faultstore.ErrCrashed) || store.ClassOf(err) != store.Away {
				t.Errorf("%s: %s of a dead process: %v", kind, m, err)
			}
		}

		f.Want("contents after the dead process tried", before, f.Contents())
		if crashes != 1 {
			t.Errorf("%s: %d crashes after more calls", kind, crashes)
		}
	}
}

func TestCrashMayPanic(t *testing.T) {
	t.Parallel()
	_, _, s := setup(t, faultstore.Config{
		Plan: always(faultstore.Fault{Kind: faultstore.CrashBefore}), OnCrash: func() { panic("process died") },
	})
	defer func() {
		if r := recover(); r != "process died" {
			t.Errorf("recovered %v", r)
		}
		if _, err := s.Members(t.Context()); !errors.Is(err, faultstore.ErrCrashed) {
			t.Errorf("after the panic: %v", err)
		}
	}()
	_, _ = s.Members(t.Context())
}

func TestKilledWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, kind := range []faultstore.Kind{faultstore.Slow, faultstore.SlowReply} {
		var s *faultstore.Store
		f, n, s := setup(t, faultstore.Config{
			Plan:  always(faultstore.Fault{Kind: kind, Delay: time.Hour}),
			Sleep: func(context.Context, time.Duration) { s.Kill() },
		})
		a := f.Subject()
		b := n.Lanes[0].Batch()
		b.Starts = []store.StartRow{a.StartRow()}
		if _, err := s.Commit(t.Context(), b); !errors.Is(err, faultstore.ErrCrashed) {
			t.Errorf("%s: %v, want crashed", kind, err)
		}
		e, err := f.Store.LoadExecution(t.Context(), a.Shard, a.Start.Address, a.Run)
		if err != nil || (e != nil) != (kind == faultstore.SlowReply) {
			t.Errorf("%s: execution %v, %v", kind, e, err)
		}
	}
}

func TestSlowCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	for _, kind := range []faultstore.Kind{faultstore.Slow, faultstore.SlowReply} {
		f, n, s := setup(t, faultstore.Config{Plan: always(faultstore.Fault{Kind: kind, Delay: time.Hour})})
		a := f.Subject()
		b := n.Lanes[0].Batch()
		b.Starts = []store.StartRow{a.StartRow()}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := s.Commit(ctx, b)
		cancel()
		want := map[faultstore.Kind]store.Class{faultstore.Slow: store.Retryable, faultstore.SlowReply: store.Unknown}[kind]
		if !errors.Is(err, context.DeadlineExceeded) || store.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", kind, err, want)
		}
		e, err := f.Store.LoadExecution(t.Context(), a.Shard, a.Start.Address, a.Run)
		if err != nil || (e != nil) != (kind == faultstore.SlowReply) {
			t.Errorf("%s: execution %v, %v", kind, e, err)
		}
	}
}

func TestSlowCallsSucceed(t *testing.T) {
	t.Parallel()
	var slept time.Duration
	_, _, s := setup(t, faultstore.Config{
		Plan:  always(faultstore.Fault{Kind: faultstore.Slow, Delay: time.Minute}),
		Sleep: func(_ context.Context, d time.Duration) { slept += d },
	})
	if _, err := s.Members(t.Context()); err != nil || slept != time.Minute {
		t.Errorf("slept %s, %v", slept, err)
	}
}

func TestSeedsAreDeterministic(t *testing.T) {
	t.Parallel()
	rates := faultstore.Rates{
		Default: faultstore.Rate{FailBefore: 0.1, FailAfter: 0.1, Slow: 0.1, SlowReply: 0.1, MaxDelay: time.Second},
		Methods: map[faultstore.Method]faultstore.Rate{
			faultstore.Commit: {FailBefore: 0.2, FailAfter: 0.2, CrashBefore: 0.1, CrashAfter: 0.1, Late: 0.2, LateBegun: 0.2, MaxAfter: 5},
			faultstore.Count:  {},
		},
	}

	draw := func(seed uint64) (out []faultstore.Fault) {
		p := faultstore.NewSeeded(seed, rates)
		for i := range 2000 {
			m := faultstore.Methods()[i%len(faultstore.Methods())]
			f := p.Next(faultstore.Call{Method: m})
			switch {
			case m == faultstore.Count && f != faultstore.Fault{}:
				t.Errorf("%s met %+v at rate zero", m, f)
			case m == faultstore.Commit && f.Kind == faultstore.OK:
				t.Errorf("%s met nothing at rates that sum up to one", m)
			}
			out = append(out, f)
		}
		return out
	}

	a, b, c := draw(1), draw(1), draw(2)
	if d := storetest.Diff(a, b); d != "" {
		t.Errorf("the same seed differs:\n%s", d)
	}
	if storetest.Diff(a, c) == "" {
		t.Error("another seed gives the same faults")
	}
	met := make(map[faultstore.Kind]int)
	for _, f := range a {
		met[f.Kind]++
	}

	for _, k := range faultstore.Kinds() {
		if met[k] == 0 {
			t.Errorf("no fault of kind %s in %d calls", k, len(a))
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	f, n, s := setup(t, faultstore.Config{Plan: faultstore.NewSeeded(3, faultstore.Rates{
		Default: faultstore.Rate{FailBefore: 0.1, FailAfter: 0.1, Late: 0.2, LateBegun: 0.2, MaxAfter: 3},
	})})

	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				switch i % 4 {
				case 0:
					_, _ = s.Commit(t.Context(), n.Lanes[0].Batch())
				case 1:
					_, _, _ = s.Refence(t.Context(), n.Lanes[0].Ref)
				case 2:
					_, _ = s.Members(t.Context())
				default:
					_ = s.Orphans().Release(0)
					s.Orphans().ReleaseAll()
				}
			}
		})
	}

	wg.Wait()
	c := s.Counts()
	if c.Total() != 600 || c.TotalFaults() == 0 {
		t.Errorf("%d calls, %d faults", c.Total(), c.TotalFaults())
	}
	_ = f
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, m := range append(faultstore.Methods(), faultstore.Any, 250) {
		seen[m.String()] = true
	}
	for _, k := range append(faultstore.Kinds(), faultstore.OK, 250) {
		seen["kind "+k.String()] = true
	}
	if want := len(faultstore.Methods()) + 2 + len(faultstore.Kinds()) + 2; len(seen) != want || seen[""] {
		t.Errorf("%d names, want %d different ones: %v", len(seen), want, seen)
	}
}
