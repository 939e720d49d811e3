package service_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

func keys(ds []api.Description) (ks []string) {
	for i := range ds {
		ks = append(ks, ds[i].Start.Address.Key)
	}
	return ks
}

// The service lists the newest execution first. Each page continues where the previous one ended,
// even if executions start in between.
func TestListPaging(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	var want []string
	for i := range 23 {
		f.put(order(fmt.Sprint(i)), 0, 0)
		want = append(want, fmt.Sprint(i))
	}

	slices.Reverse(want)
	for _, limit := range []int{1, 5, 22, 23, 24, 1000} {
		var got []string
		cursor := ""
		for page := range 30 {
			r, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Executions) > limit {
				t.Fatalf("a page of %d, at most %d", len(r.Executions), limit)
			}
			got = append(got, keys(r.Executions)...)
			if page == 0 && limit == 5 {
				f.put(order("late"), 0, 0)
			}
			if cursor = r.Cursor; cursor == "" {
				break
			}
		}

		got = slices.DeleteFunc(got, func(k string) bool { return k == "late" })
		if !slices.Equal(got, want) {
			t.Errorf("by %d: %v", limit, got)
		}
	}

	if n, err := f.svc.Count(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Limit: 1}); err != nil || n != 24 {
		t.Errorf("count = %d, %v", n, err)
	}
}

// Executions that started at the same moment are distinguished by their run.
func TestListOfEqualTimes(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	for i := range 9 {
		f.put(order(fmt.Sprint(i)), 0, 0, func(s *model.Start) { s.At = begin })
	}
	seen := map[string]int{}

	cursor := ""
	for range 10 {
		r, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys(r.Executions) {
			seen[k]++
		}
		if cursor = r.Cursor; cursor == "" {
			break
		}
	}

	if len(seen) != 9 {
		t.Errorf("seen %v, want all nine", seen)
	}

	for k, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", k, n)
		}
	}
}

func TestListSelects(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	a := f.put(order("a-1"), 2, 0)
	f.close(a, model.Completed)
	f.put(order("a-2"), 0, 0)
	b := f.put(order("b-1"), 0, 0)
	f.close(b, model.Continued)
	f.put(order("b-1"), 0, 0)
	f.put(model.Address{Tenant: "default", Type: "ship", Key: "a-3"}, 0, 0)
	f.put(model.Address{Tenant: "acme", Type: "order", Key: "a-4"}, 0, 0)

	for _, v := range []struct {
		name string
		r    api.ListRequest
		want []string
	}{
		{"everything of the default tenant", api.ListRequest{Tenant: model.DefaultTenant}, []string{"a-3", "b-1", "a-2", "a-1"}},
		{"a workflow", api.ListRequest{Tenant: model.DefaultTenant, Workflows: []string{"order"}}, []string{"b-1", "a-2", "a-1"}},
		{"a beginning of the key", api.ListRequest{Tenant: model.DefaultTenant, KeyPrefix: "a-"}, []string{"a-3", "a-2", "a-1"}},
		{"a status", api.ListRequest{Tenant: model.DefaultTenant, Statuses: []model.Status{model.Completed, model.Failed}}, []string{"a-1"}},
		{"all runs", api.ListRequest{Tenant: model.DefaultTenant, KeyPrefix: "b", AllRuns: true}, []string{"b-1", "b-1"}},
		{"a time", api.ListRequest{Tenant: model.DefaultTenant, StartedFrom: begin + 2_000_000, StartedTo: begin + 3_000_000}, []string{"a-2"}},
		{"another tenant", api.ListRequest{Tenant: "acme"}, []string{"a-4"}},
		{"nothing", api.ListRequest{Tenant: "nobody"}, nil},
	} {
		r, err := f.svc.List(t.Context(), v.r)
		if err != nil || !slices.Equal(keys(r.Executions), v.want) {
			t.Errorf("%s: %v, %v; want %v", v.name, keys(r.Executions), err, v.want)
		}
		n, err := f.svc.Count(t.Context(), v.r)
		if err != nil || int(n) != len(v.want) {
			t.Errorf("%s: counted %d, %v", v.name, n, err)
		}
		for _, d := range r.Executions {
			if d.Start.Input.Size()+d.Outcome.Output.Size()+len(d.Start.Carried) > 0 {
				t.Errorf("%s: a listing carries payloads: %+v", v.name, d)
			}
		}
	}
}

// A cursor is opaque to clients. A forged cursor is either refused or harmless.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	f.put(order("1"), 0, 0)
	for _, fill := range []byte{0, 1, 0x7f, 0x80, 0xff} {
		raw := slices.Repeat([]byte{fill}, 24)
		if _, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Cursor: base64.RawURLEncoding.EncodeToString(raw)}); err != nil {
			t.Errorf("cursor of bytes %#x: %v", fill, err)
		}
	}
	for _, n := range []int{23, 25} {
		_, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Cursor: base64.RawURLEncoding.EncodeToString(make([]byte, n))})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("cursor of %d bytes: %v", n, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	a := order("1")
	key := f.put(a, 1, 2)
	target := api.Target{Address: a}

	f.commit(store.Batch{
		Timers: []store.Timer{{Shard: key.Shard, Run: key.Run, ID: "t", Due: begin + 5, Address: a}},
		Marks:  []store.MarkRow{{RunKey: key, Parked: true, Waits: []model.Reason{{Code: model.WaitTimer, Until: begin + 5}}}},
	})

	d, err := f.svc.Describe(t.Context(), target)
	if err != nil || d.Events != 4 || len(d.Timers) != 1 || d.Timers[0].ID != "t" || d.Owner != f.ref.Node || !d.Current || d.Shard != key.Shard {
		t.Errorf("described as %+v, %v", d, err)
	}
	if len(d.Reasons) != 1 || d.Reasons[0].Code != model.WaitTimer {
		t.Errorf("reasons %v, want the timer", d.Reasons)
	}
	f.commit(store.Batch{Marks: []store.MarkRow{{RunKey: key, Blocked: &model.Reason{Code: model.WaitMismatch}}}})
	if d, err = f.svc.Describe(t.Context(), target); err != nil || d.Reasons[0].Code != model.WaitMismatch {
		t.Errorf("reasons %v, %v, want the mismatch", d.Reasons, err)
	}
	f.commit(store.Batch{Marks: []store.MarkRow{{RunKey: key}}})
	if d, err = f.svc.Describe(t.Context(), target); err != nil || d.Reasons[0].Code != model.WaitTurn {
		t.Errorf("reasons %v, %v, want its turn", d.Reasons, err)
	}

	// The owner of the execution is dead, and the execution has no new owner yet.
	f.now += 120_000_000
	if d, err = f.svc.Describe(t.Context(), target); err != nil || !d.Owner.IsZero() || d.Reasons[0].Code != model.WaitOwner {
		t.Errorf("owner %s, reasons %v, %v, want no owner", d.Owner, d.Reasons, err)
	}
	f.now -= 120_000_000
	f.close(key, model.Failed)
	if d, err = f.svc.Describe(t.Context(), target); err != nil || len(d.Reasons) != 0 || d.Events != 5 || d.Outcome.Status != model.Failed {
		t.Errorf("closed: %+v, %v", d, err)
	}
}

// A page is bounded, no matter how much the caller asks for.
func TestListPageIsBounded(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	for i := range 1005 {
		f.put(order(fmt.Sprint(i)), 0, 0)
	}
	for limit, want := range map[int]int{0: 100, -1: 100, 1000: 1000, 1_000_000: 1000} {
		r, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Limit: limit})
		if err != nil || len(r.Executions) != want || r.Cursor == "" {
			t.Errorf("limit %d: %d executions, cursor %q, %v; want %d and a cursor", limit, len(r.Executions), r.Cursor, err, want)
		}
	}
}

// early is a store whose lists are outdated, unlike its other answers.
type early struct{ *memory.Store }

func (s early) List(ctx context.Context, q store.Query) (store.Page, error) {
	rows, err := s.Store.List(ctx, q)
	for i := range rows.Executions {
		rows.Executions[i].Parked, rows.Executions[i].Waits = false, nil
	}
	return rows, err
}

// The owner of a run parks it and drops it from memory after the row was read. The list still says
// what the run waits for.
func TestListOfARunThatHasJustBeenParked(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	key := f.put(order("a"), 0, 1)
	f.commit(store.Batch{Marks: []store.MarkRow{{RunKey: key, Parked: true, Waits: []model.Reason{{Code: model.WaitSignal, Name: "approve"}}}}})
	svc := service.New(nil, early{f.st}, service.Limits{})
	page, err := svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Limit: 10, Explain: true})
	if err != nil || len(page.Executions) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if got := page.Executions[0].Reasons; len(got) != 1 || got[0].Code != model.WaitSignal {
		t.Errorf("it waits for %v", got)
	}
}
