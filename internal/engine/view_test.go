package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// openStore is a store that says that other processes may open it.
type openStore struct{ store.Store }

func (s openStore) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

// If no other process can open the store, the node knows the owners of shards without reading the
// store, and says the same as the store. A node of a shared store asks the store.
func TestView(t *testing.T) {
	t.Parallel()
	st := memory.New(memory.Options{})
	e, stop := open(t, st)
	defer stop()
	join(e, 1)
	view, ok := e.View()
	for deadline := time.Now().Add(time.Minute); !ok && time.Now().Before(deadline); view, ok = e.View() {
		time.Sleep(time.Millisecond)
	}
	if !ok {
		t.Fatal("the node does not know the view")
	}
	if view.Members[0].Expires < view.Now || view.Members[0].ID != e.Node() || len(view.Members[0].Serves) != 1 || view.Members[0].Serves[0].Workflow != "wf" {
		t.Errorf("the view is %+v", view)
	}

	want, err := st.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Times differ, because time passes. The store learns only later what the node serves and how
	// many settings it has.
	same := cmp.Options{
		cmpopts.IgnoreFields(store.View{}, "Now", "Settings"), cmpopts.IgnoreFields(store.Member{}, "Expires", "Serves"), cmpopts.IgnoreFields(store.NodeInfo{}, "Sole"),
	}
	if d := cmp.Diff(want, view, same); d != "" {
		t.Errorf("the view of the store and of the node (-store +node):\n%s", d)
	}
	if d := cmp.Diff(want.Layout().Shard(start("a").To), view.Layout().Shard(start("a").To)); d != "" {
		t.Error(d)
	}

	shared, stopShared := open(t, openStore{memory.New(memory.Options{})})
	defer stopShared()
	if _, ok := shared.View(); ok || shared.Node() == (model.NodeID{}) {
		t.Error("a node of a shared store does not ask the store who owns what")
	}
}
