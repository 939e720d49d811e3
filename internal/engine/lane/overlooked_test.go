package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// The lane reserves a run for the worker that held it under the last owner. While a start waits for
// its commit that assumes that the address has no run, the time ends for which the run is reserved.
// The lane cannot give the run to another worker at that moment. The store refuses the batch
// because of another row. The lane has to remember that the run needs a worker, and gives it to the
// next worker that joins.
func TestReservedRunBehindAnAssumedStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	a := key("a")
	held := r.dieDuringStep(a)
	r.settle()
	r.start(a, "again")
	r.start(key("other"), "other")
	r.flush()
	if r.commit == nil || len(r.commit.Starts) != 2 || !r.commit.Starts[0].IfAbsent {
		t.Fatalf("in flight is %+v, want a start that assumes that there is no run", r.commit)
	}

	r.now = r.now.Add(reunionTime + time.Second)
	r.flush()
	r.fail(store.Refused)
	r.settle()
	r.wantAnswer("again", "")
	if got := r.answers["again"].Answer; got.Run != held.Run || !got.Existing {
		t.Errorf("the start began run %s, want %s", got.Run, held.Run)
	}

	r.rejoin(2)
	r.settle()
	r.wantHolder(a, 2)
}
