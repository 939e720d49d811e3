package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// joinMortals adds a worker whose ledgers live for an hour after their last operation.
func (r *rig) joinMortals(w lane.WorkerID) {
	r.l.JoinEntities(r.now, w, model.EntityOffer{Tenant: "default", Types: []model.EntityType{
		{Type: "entity:ledger", Views: []string{"read"}, IdleTTL: time.Hour},
	}}, r.slotsOf(w))
	r.take()
}

// The timer removes an expired state without a worker. However often operations prolong the life of
// the state, the timer costs one write per hour.
func TestTimerRemovesExpiredState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.joinMortals(1)
	for i := range 4 {
		r.operation(a, "add", "1", i)
		r.work()
		r.pass(20 * time.Minute)
	}
	r.wantState(a, "1;1;1;1;")
	r.leave(1)
	r.pass(39 * time.Minute)
	r.wantState(a, "1;1;1;1;")
	r.pass(2 * time.Minute)
	r.wantState(a, "")
	if timers, err := r.st.LoadTimers(t.Context(), []model.ShardID{a.Shard(shards)}, store.TimerMark{}, r.now.Add(100*time.Hour), 10); err != nil || len(timers) != 0 {
		t.Errorf("the timers %v are left, %v", timers, err)
	}

	// An operation that deletes the state stops the timer, and the next state gets a timer of its
	// own.
	r.joinMortals(2)
	for i, name := range []string{"add", "delete", "add"} {
		r.operation(a, name, "2", 10+i)
		r.work()
	}
	r.wantState(a, "2;")
	r.pass(61 * time.Minute)
	r.wantState(a, "")
}

// A call that the lane hands over after the state has expired gets no state, even if the timer has
// not fired.
func TestWaitingCallFindsNoExpiredState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.joinMortals(1)
	r.operation(a, "add", "1", "one")
	r.work()
	r.leave(1)
	r.operation(a, "add", "2", "two")
	r.operation(a, "read", "", "three")
	r.settle()
	r.now = r.now.Add(2 * time.Hour)
	r.joinMortals(2)
	r.work()
	r.wantOutput("two", "2;")
	r.wantState(a, "2;")
}

// The store refuses to remove an expired state. The lane quarantines the entity. It stores no
// reason in a row of a run, because the id of the timer is not the id of a run. Other entities
// continue, and the lane removes the state later.
func TestExpiryThatIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := ledger("a"), ledger("b")
	r.joinMortals(1)
	r.operation(a, "add", "1", "one")
	r.work()
	refused, marks := 0, 0
	r.refuse = func(batch *store.Batch) error {
		marks += len(batch.Marks)
		for i := range batch.Entities {
			if batch.Entities[i].Entity.Address == a {
				refused++
				return store.Errorf(store.Refused, "commit", "no")
			}
		}
		return nil
	}
	r.pass(61 * time.Minute)
	r.operation(b, "add", "2", "two")
	r.work()
	r.wantState(b, "2;")
	if refused == 0 || marks > 0 {
		t.Errorf("%d refused batches, %d marks", refused, marks)
	}
	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitPoison {
		t.Errorf("explained as %v", why)
	}

	r.refuse = nil
	r.pass(10 * time.Minute)
	r.wantState(a, "")
}
