package service_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
)

// Problems of a request about a past are reported before anything is done.
func TestPastRefusals(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	open := f.put(order("open"), 1, 3)
	closed := f.put(order("closed"), 0, 2)
	f.close(closed, model.Completed)
	of := func(key string) api.Target { return api.Target{Address: order(key)} }
	fork := func(r api.PastRequest) error { _, err := f.svc.Fork(t.Context(), r); return err }
	retry := func(r api.PastRequest) error { _, err := f.svc.Retry(t.Context(), r); return err }

	reset := func(r api.PastRequest) error { _, err := f.svc.Reset(t.Context(), r); return err }
	for _, c := range []struct {
		name string
		err  error
		kind fault.Kind
		want string
	}{
		{"a fork without a key", fork(api.PastRequest{Source: of("open")}), fault.Invalid, "the key is empty"},
		{"a fork of nothing", fork(api.PastRequest{Source: of("x"), Key: "k"}), fault.NotFound, "order/x"},
		{"a fork of a run that is not there", fork(api.PastRequest{Source: api.Target{Address: order("open"), Run: model.RunID{9}}, Key: "k"}), fault.NotFound, "run_"},
		{"two places", fork(api.PastRequest{Source: of("open"), Key: "k", Before: "a", Placed: true}), fault.Invalid, "set only one"},
		{"an edit of nothing", fork(api.PastRequest{Source: of("open"), Key: "k", Edits: []api.Edit{{}}}), fault.Invalid, "needs the name of its step"},
		{"an edit that is too large", fork(api.PastRequest{Source: of("open"), Key: "k", Edits: []api.Edit{{
			Step: "a", Output: model.Payload{Data: make([]byte, 3<<20)},
		}}}), fault.Invalid, "at most 2097152"},
		{"a request id with a line break", fork(api.PastRequest{Source: of("open"), Key: "k", RequestID: "a\nb"}), fault.Invalid, "control character"},
		{"a fork in a store that is only read", fork(api.PastRequest{Source: of("open"), Key: "k"}), fault.Denied, "reading only"},
		{"a retry of what is open", retry(api.PastRequest{Source: of("open")}), fault.Conflict, "it is running"},
		{"a retry of what has completed", retry(api.PastRequest{Source: of("closed")}), fault.Conflict, "it is completed"},
		{"a reset to nowhere", reset(api.PastRequest{Source: of("open")}), fault.Invalid, "say to which"},
	} {
		if fault.KindOf(c.err) != c.kind || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %s and %q", c.name, c.err, c.kind, c.want)
		}
	}

	reply, err := f.svc.Fork(t.Context(), api.PastRequest{Source: of("open"), Key: "k", After: 2, Placed: true, DryRun: true})
	if err != nil || reply.Position != 2 || reply.Total != 4 || !reply.Run.IsZero() || reply.Address != order("k") {
		t.Errorf("a dry run: %+v, %v", reply, err)
	}
	if f.current(order("open")) != open.Run || !f.current(order("k")).IsZero() {
		t.Error("something was changed")
	}
}

func TestImportRefusals(t *testing.T) {
	t.Parallel()
	svc := live(t, service.Limits{})
	history := func(change func(*model.History)) model.History {
		h := model.History{
			Start:   model.Start{Address: order("1"), Run: model.RunID{1}, At: begin},
			Events:  []model.Event{{Seq: 1, At: begin + 1, Kind: model.EventStepCompleted, ID: "a"}},
			Outcome: model.Outcome{Status: model.Completed, At: begin + 2},
		}
		change(&h)
		return h
	}
	for _, c := range []struct {
		name   string
		change func(*model.History)
		kind   fault.Kind
		want   string
	}{
		{"another tenant", func(h *model.History) { h.Start.Address.Tenant = "acme" }, fault.Invalid, `of tenant "acme"`},
		{"an event about another tenant", func(h *model.History) { h.Events[0].Target = model.Address{Tenant: "acme"} }, fault.Invalid, "event 1 is about acme"},
		{"an event about what cannot be stored", func(h *model.History) { h.Events[0].Target = order("a\x00b") }, fault.Invalid, "control character"},
		{"a run that continued", func(h *model.History) { h.Outcome.Status, h.Outcome.Next = model.Continued, model.RunID{2} }, fault.Invalid, "import that one"},
		{"a payload that is too large", func(h *model.History) { h.Events[0].Output.Data = make([]byte, 3<<20) }, fault.Invalid, "output of event 1"},
		{"times that go back", func(h *model.History) { h.Events[0].At = begin - 1 }, fault.Invalid, "older"},
		{"times that are to come", func(h *model.History) { h.Events[0].At = model.MaxTime }, fault.Invalid, "in the future"},
		{"too many events", func(h *model.History) { h.Events = make([]model.Event, 10_001) }, fault.Exhausted, "10000"},
		{"an open child that is not here", func(h *model.History) {
			h.Outcome = model.Outcome{Status: model.Running}
			h.Events[0] = model.Event{Seq: 1, At: begin, Kind: model.EventChildStarted, ID: "c", Target: order("child")}
		}, fault.Conflict, "import it first"},
	} {
		_, err := svc.Import(t.Context(), api.ImportRequest{History: history(c.change), Tenant: model.DefaultTenant})
		if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s and %q", c.name, err, c.kind, c.want)
		}
	}

	if n, err := svc.Count(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, AllRuns: true}); err != nil || n != 0 {
		t.Errorf("%d executions, %v", n, err)
	}
	reply, err := svc.Import(t.Context(), api.ImportRequest{History: history(func(*model.History) {}), Tenant: model.DefaultTenant, Key: "2"})
	if err != nil || reply.Address != order("2") || reply.Status != model.Completed {
		t.Errorf("imported as %+v, %v", reply, err)
	}
}

// A delete removes the whole chain, the oldest run first, or only the named run.
func TestDeleteOfAChain(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	a := order("1")

	var runs []model.RunID
	for i := range 1200 {
		key := f.put(a, 0, 0, func(s *model.Start) {
			switch {
			case i == 0:
			case i%3 == 0: // a start replaced the previous run, which has no successor
				s.Replaced = runs[i-1]
			default:
				s.Previous = runs[i-1]
			}
		})
		runs = append(runs, key.Run)
		f.close(key, model.Continued)
	}

	reply, err := f.svc.Delete(t.Context(), api.DeleteRequest{Target: api.Target{Address: a}, DryRun: true})
	if err != nil || !slices.Equal(reply.Runs, runs) {
		t.Errorf("%d runs, %v; want %d, oldest first", len(reply.Runs), err, len(runs))
	}
	reply, err = f.svc.Delete(t.Context(), api.DeleteRequest{Target: api.Target{Address: a, Run: runs[7]}, DryRun: true})
	if err != nil || !slices.Equal(reply.Runs, runs[7:8]) {
		t.Errorf("%v, %v; want one run", reply.Runs, err)
	}
	_, err = f.svc.Delete(t.Context(), api.DeleteRequest{Target: api.Target{Address: a}})
	wantKind(t, "a delete in a store that is only read", err, fault.Denied)
	f.put(order("open"), 0, 0)
	_, err = f.svc.Delete(t.Context(), api.DeleteRequest{Target: api.Target{Address: order("open")}})
	wantKind(t, "a delete of what is open", err, fault.Conflict)
}

// A run that was removed before does not hide older runs: the delete removes the older runs as
// well.
func TestDeleteOfAChainWithAGap(t *testing.T) {
	t.Parallel()
	for gap := range 6 {
		f := newShelf(t)
		a := order("1")
		// The ids that the shelf gives to runs.
		id := func(n int) model.RunID { return model.RunID{0: 1, 15: byte(n + 1)} }

		var keys []store.RunKey
		// Run 1 replaced run 0 and continued as 2 and 3; 3 was reset to 4; 4 failed and was retried
		// as 5; 5 failed and was retried as 6.
		for i := range 7 {
			key := f.put(a, 0, 0, func(s *model.Start) {
				switch {
				case i == 1:
					s.Replaced = id(0)
				case i > 1:
					s.First, s.Previous = id(1), id(i-1)
				}
				for n := i - 1; i > 4 && n >= 4; n-- {
					s.Earlier = append(s.Earlier, id(n))
				}
			})

			keys = append(keys, key)
			end := model.Outcome{Status: model.Failed, At: f.now}
			if i > 0 && i < 4 {
				end.Status, end.Next = model.Continued, id(i+1)
			}
			f.commit(store.Batch{Closes: []store.CloseRow{{RunKey: key, Outcome: end}}})
		}

		f.commit(store.Batch{Deletes: []store.RunKey{keys[gap]}})
		var want []model.RunID
		for i, key := range keys {
			if i != gap && !(gap == 1 && i == 0) { // only run 1 names the run that it has replaced
				want = append(want, key.Run)
			}
		}

		reply, err := f.svc.Delete(t.Context(), api.DeleteRequest{Target: api.Target{Address: a}, DryRun: true})
		if err != nil || !slices.Equal(reply.Runs, want) {
			t.Errorf("without run %d: %v, %v; want %v", gap, reply.Runs, err, want)
		}
	}
}
