package postgres_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
)

// laneSessions returns the commit sessions of the node that the server has not ended, by their
// process ids.
func (r *rig) laneSessions(c *pgx.Conn) (pids []int32) {
	r.Helper()
	const look = `select pid from pg_stat_activity where datname = current_database() and position($1 in application_name) > 0 order by pid`
	rows, err := c.Query(r.Context(), look, r.node.ID.String()+" lane")
	if err != nil {
		r.Fatal(err)
	}
	if pids, err = pgx.CollectRows(rows, pgx.RowTo[int32]); err != nil {
		r.Fatal(err)
	}
	return pids
}

// fence asks the store that works to fence the node.
func (r *rig) fence(proven bool) (bool, error) {
	return r.f.Store.FenceNode(r.Context(), store.FenceRequest{Node: r.node.ID, Epoch: r.node.Epoch, Proven: proven})
}

// If a transaction of a person has locked a row that FenceNode needs, FenceNode gives up for now.
// It ends neither the session of that person nor a session of the node, which may be alive. When
// the transaction has ended, FenceNode decides by the lease again.
func TestFenceNodeEndsNoSessionBecauseOfALockOfAPerson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, locks string
		proven      bool
	}{
		{"the row of a live node", `select from perdure.nodes where node = $1 for update`, false},
		{"the row of a node that has ended", `select from perdure.nodes where node = $1 for update`, true},
		{"a fence of a node that has ended", `select from perdure.fences where node = $1 for update`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *postgres.Config) { c.Lease = 2 * time.Second })
			r.node.Renew(time.Hour)
			watch := connect(t, r.url)
			before := r.laneSessions(watch)
			if len(before) == 0 {
				t.Fatal("the lane has no session")
			}

			person := connect(t, r.url)
			exec(t, person, `begin`)
			exec(t, person, c.locks, [16]byte(r.node.ID))
			_, err := r.fence(c.proven)
			r.f.WantClass(err, store.Away)
			if after := r.laneSessions(watch); !slices.Equal(before, after) {
				t.Errorf("the node had the sessions %v, and has %v", before, after)
			}
			exec(t, person, `rollback`)

			ended, err := r.fence(c.proven)
			if err != nil || ended != c.proven {
				t.Errorf("without the lock: fenced %v, %v", ended, err)
			}
			if !ended {
				r.commit(r.batch())
				r.wantEvents()
			}
		})
	}
}

// FenceNode ends only the sessions of a node that hold a lock on one of its fences.
func TestFenceNodeEndsOnlySessionsThatHoldAFence(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *postgres.Config) { c.Lease = 2 * time.Second })
	watch := connect(t, r.url)
	before := r.laneSessions(watch)

	other := r.node.Lanes[1]
	other.Write(func(*store.Batch) {}) // over the store that works, so it has a session of its own
	all := r.laneSessions(watch)
	free := slices.DeleteFunc(slices.Clone(all), func(pid int32) bool { return slices.Contains(before, pid) })
	if len(free) != 1 {
		t.Fatalf("the second lane has the sessions %v", free)
	}

	held := r.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Orphan, Delay: time.Hour, Match: isFence, Hold: pgproxy.HoldCommit})
	_, err := r.broken.Commit(context.WithoutCancel(t.Context()), r.batch())
	r.f.WantClass(err, store.Unknown)
	<-held.Hit()
	if ended, err := r.fence(true); err != nil || !ended {
		t.Fatalf("fence: %v, %v", ended, err)
	}

	after := r.laneSessions(watch)
	if !slices.Contains(after, free[0]) {
		t.Errorf("the session %d, which held no fence, was ended: %v are left", free[0], after)
	}
	r.proxy.CutAll()
	if held.Reply().Committed() {
		t.Error("the session that held a fence has committed")
	}
	r.wantEvents()
}
