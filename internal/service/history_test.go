package service_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// A history begins with event 0, which is built from the start. The carried events and the stored
// events follow. If the run is closed, one more event follows, which is built from the outcome.
// Pages of any size contain each event once, in order.
func TestHistoryPaging(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	n := 0
	for _, carried := range []int{0, 1, 3} {
		for _, stored := range []int{0, 1, 5} {
			for _, closed := range []bool{false, true} {
				n++
				a := order(fmt.Sprint(n))
				key := f.put(a, carried, stored)
				total := 1 + carried + stored
				if closed {
					f.close(key, model.Completed)
					total++
				}
				for limit := 0; limit <= total+1; limit++ {
					f.readAll(t, a, limit, total, closed)
				}
				d, err := f.svc.Describe(t.Context(), api.Target{Address: a})
				if err != nil || d.Events != int64(total) {
					t.Errorf("described with %d events, %v; want %d", d.Events, err, total)
				}
			}
		}
	}
}

// readAll reads a history in pages, and checks that it is complete and in order.
//
//arch:parameters a helper of tests, called with literals
func (f *shelf) readAll(t *testing.T, a model.Address, limit, total int, closed bool) {
	t.Helper()
	what := fmt.Sprintf("%s of %d events, closed %v, by %d", a.Key, total, closed, limit)
	var all []model.Event

	after := int64(-1)
	for range total + 2 {
		page, err := f.svc.History(t.Context(), api.HistoryRequest{Target: api.Target{Address: a}, After: after, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if page.Run != f.current(a) {
			t.Errorf("%s: of run %s", what, page.Run)
		}
		if limit > 0 && len(page.Events) > limit {
			t.Fatalf("%s: a page of %d", what, len(page.Events))
		}

		all = append(all, page.Events...)
		if more := len(all) < total; page.More != more {
			t.Fatalf("%s: after %d, more is %v", what, len(all), page.More)
		}
		if !page.More {
			break
		}

		after = all[len(all)-1].Seq
	}

	if len(all) != total {
		t.Fatalf("%s: %d events", what, len(all))
	}

	for i, e := range all {
		if e.Seq != int64(i) {
			t.Fatalf("%s: event %d at position %d", what, e.Seq, i)
		}
	}

	if all[0].Kind != model.EventStarted || string(all[0].Input.Data) != "in" || all[0].Name != "order" {
		t.Errorf("%s: first event %+v", what, all[0])
	}
	last := all[total-1]
	if (last.Kind == model.EventClosed) != closed {
		t.Errorf("%s: last event is %s", what, last.Kind)
	}
	if closed && (last.Status != model.Completed || string(last.Output.Data) != "out" || last.Ref != 3) {
		t.Errorf("%s: last event %+v", what, last)
	}

	// A reader that has seen all events gets no further events, no matter how often and from which
	// later position it asks.
	for _, beyond := range []int64{last.Seq, last.Seq + 1, last.Seq + 1000} {
		page, err := f.svc.History(t.Context(), api.HistoryRequest{Target: api.Target{Address: a}, After: beyond, Limit: limit})
		if err != nil || len(page.Events) != 0 || page.More {
			t.Errorf("%s: behind %d there are %+v, %v", what, beyond, page.Events, err)
		}
	}
}

// History returns a named run of a chain, or the current one.
func TestHistoryOfARun(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	a := order("1")
	first := f.put(a, 0, 2)
	f.close(first, model.Continued)
	f.put(a, 1, 1)
	for run, want := range map[model.RunID]int{first.Run: 4, {}: 3} {
		page, err := f.svc.History(t.Context(), api.HistoryRequest{Target: api.Target{Address: a, Run: run}, After: -5})
		if err != nil || len(page.Events) != want {
			t.Errorf("run %s: %d events, %v; want %d", run, len(page.Events), err, want)
		}
	}
}

// The service returns a long history in pages of at most its own size, even if the caller asks for
// larger pages.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	a := order("1")
	f.put(a, 0, 2500)
	for _, limit := range []int{0, -1, 1_000_000} {
		page, err := f.svc.History(t.Context(), api.HistoryRequest{Target: api.Target{Address: a}, After: -1, Limit: limit})
		if err != nil || len(page.Events) != 1000 || !page.More {
			t.Errorf("limit %d: %d events, more %v, %v; want 1000 and more", limit, len(page.Events), page.More, err)
		}
	}
	if d, err := f.svc.Describe(t.Context(), api.Target{Address: a}); err != nil || d.Events != 2501 {
		t.Errorf("%d events, %v", d.Events, err)
	}
}
