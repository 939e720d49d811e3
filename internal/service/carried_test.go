package service_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Events that a run carries from its past have the same effect as events that it has recorded
// itself.
func TestStateAndPinOfAPast(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	f.put(order("a"), 0, 1, func(s *model.Start) {
		for i, e := range []model.Event{
			{Kind: model.EventPinned, Name: "v1"},
			{Kind: model.EventStateSet, Name: "cleared", Output: model.Payload{Data: []byte("1")}},
			{Kind: model.EventStateSet, Name: "cleared"},
		} {
			e.Seq, e.At = int64(i+1), s.At
			s.Carried = append(s.Carried, e)
		}
		s.Source = model.Source{Address: s.Address, Run: model.RunID{0: 9}, Position: 3}
	})

	if p, ok, err := f.svc.State(t.Context(), api.Target{Address: order("a")}, "cleared"); err != nil || ok || p.Size() > 0 {
		t.Errorf("state that was cleared: %q, %v, %v", p.Data, ok, err)
	}

	serve := func(version string) {
		t.Helper()
		if _, err := f.st.Renew(t.Context(), store.RenewRequest{
			Node: f.ref.Node, Epoch: f.ref.Epoch, TTL: time.Minute,
			Serves: []store.Served{{Tenant: "default", Workflow: "order", Version: version, Pinned: true}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for version, want := range map[string]int{"v1": 0, "v2": 1} {
		serve(version)
		page, err := f.svc.Stranded(t.Context(), "default", "")
		if err != nil || len(page.Executions) != want {
			t.Errorf("with a worker of %s, %d are stranded (%v), want %d", version, len(page.Executions), err, want)
		}
	}
}
