package e2e_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// A process that opens an SQLite file owns it alone, so it does not wait for the leases of
// processes that ran before it. In this test the last process ran before a reboot, and the wall
// clock is now a year behind.
func TestSQLiteDoesNotWaitForADeadPredecessor(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sqlite")
	proceed := perdure.NewSignal[int]("proceed")
	wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		more, err := proceed.Receive(ctx)
		return n + more, err
	})
	app := s.open(wait)
	before := mustStart(t, caller(t, app), wait, 1, perdure.RawKey("before"))
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	for _, foreign := range []store.NodeInfo{
		{ID: model.NodeID{1}, BootID: "an earlier boot", Namespace: "pid:[1]", PID: 1, PIDStart: 1},
		{ID: model.NodeID{2}}, // a node on a system without /proc
	} {
		s.abandon(foreign)
	}

	// Registering removes the nodes of dead processes. A node that waits for their leases would
	// remove them much later.
	if err := s.open(wait).Close(); err != nil {
		t.Fatal(err)
	}
	if left := s.members(); len(left) != 0 {
		t.Fatalf("%v are still registered", left)
	}

	app = s.open(wait)
	c := caller(t, app)
	after := mustStart(t, c, wait, 10, perdure.RawKey("after"))
	for _, x := range []perdure.Execution[int]{before, after} {
		if err := proceed.Send(c, x.Ref, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := before.Result(c); n != 2 || err != nil {
		t.Errorf("the execution from before returned %d, %v, want 2", n, err)
	}
	if n, err := after.Result(c); n != 11 || err != nil {
		t.Errorf("the new execution returned %d, %v, want 11", n, err)
	}
}

// withStore opens the store of a site. Nothing else may have it open.
func (s *site) withStore(do func(st store.Store)) {
	t := s.t
	t.Helper()
	st, err := node.OpenStore(t.Context(), node.Config{URL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	do(st)
}

// abandon makes the store look as if a node that owned every shard had died. The lease of that node
// ends in a year.
func (s *site) abandon(n store.NodeInfo) {
	t := s.t
	t.Helper()
	s.withStore(func(st store.Store) {
		reg, err := st.Register(t.Context(), n, 1, 365*24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		shards := make([]model.ShardID, st.Info().Shards)
		for i := range shards {
			shards[i] = model.ShardID(i)
		}
		if _, err := st.Acquire(t.Context(), n.ID, reg.Epoch, shards); err != nil {
			t.Fatal(err)
		}
	})
}

// members returns the nodes that are registered.
func (s *site) members() (ids []model.NodeID) {
	t := s.t
	t.Helper()
	self := store.NodeInfo{ID: model.NodeID{9}}
	s.withStore(func(st store.Store) {
		reg, err := st.Register(t.Context(), self, 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		v, err := st.Renew(t.Context(), store.RenewRequest{Node: self.ID, Epoch: reg.Epoch, TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Members {
			if v.Members[i].ID != self.ID {
				ids = append(ids, v.Members[i].ID)
			}
		}
	})
	return ids
}
