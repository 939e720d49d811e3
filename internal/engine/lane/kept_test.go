package lane_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// quarantinedWithTasks returns a lane with a quarantined run, the worker of its tasks, the address
// of the run, and the claims of the tasks.
func quarantinedWithTasks(t *testing.T, tasks int, change ...func(*lane.Config)) (*rig, *bench, model.Address, []model.Claim) {
	t.Helper()
	r, b := newBench(t, tasks, change...)
	r.join(1)
	bad := key("bad")
	r.startRun(bad)
	var commands []model.Command
	for i := range tasks {
		commands = append(commands, taskCommand(fmt.Sprint("t", i)))
	}
	r.turn(bad, commandTurn(commands...))
	r.settle()
	claims := b.claims()
	if len(claims) != tasks {
		t.Fatalf("%d tasks are executed, want %d", len(claims), tasks)
	}

	r.refuse = poison("s")
	r.signal(bad, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "blocked")
	return r, b, bad, claims
}

// takeAnswered returns the claims whose reports the lane has answered since the last call: first
// the claims that the worker must report again later, then the settled claims.
func (b *bench) takeAnswered() (later, settled []model.ClaimRef) {
	b.r.told = slices.DeleteFunc(b.r.told, func(c lane.TaskCall) bool {
		if c.Kind != lane.TaskSettled {
			return false
		}
		if errors.Is(c.Err, lane.ErrLater) {
			later = append(later, c.Ref)
		} else {
			settled = append(settled, c.Ref)
		}
		return true
	})
	return later, settled
}

// Large reports for a quarantined run do not take the room of other addresses, however many there
// are: the lane takes inputs, and timers fire. When the quarantine is over, the lane records every
// report.
func TestReportsToQuarantinedLeaveRoom(t *testing.T) {
	t.Parallel()
	const tasks, size = 48, 64 << 10
	for name, kept := range map[string]int{"all are kept": 1 << 30, "some are kept": 2 << 20, "none is kept": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, b, bad, claims := quarantinedWithTasks(t, tasks, func(c *lane.Config) { c.MaxBytes, c.MaxKeptBytes = 2<<20, kept })
			neighbour := key("neighbour")
			r.startRun(neighbour)
			r.turn(neighbour, commandTurn(timer("nap", r.now.Add(20*time.Second))))
			r.settle()
			reports := map[model.ClaimRef]model.Claim{}
			for _, c := range claims {
				reports[c.Ref] = c
				b.report(c, func(rep *model.TaskReport) { rep.Output = payload(size) })
				r.settle()
			}
			if r.l.Full() {
				t.Fatalf("reports for a quarantined run fill the lane: %s", r.l)
			}
			r.signal(neighbour, "s2", "signal of a neighbour")
			r.pass(30 * time.Second)
			r.wantAnswer("signal of a neighbour", "")
			r.wantEvents(neighbour, "signal_received s2", "timer_fired nap")

			later, settled := b.takeAnswered()
			if len(settled) > 0 || (len(later) == 0) != (kept > 2<<20) || (len(later) == tasks) != (kept == 1) {
				t.Errorf("%d workers are told to report later, %d that their report is settled", len(later), len(settled))
			}
			r.refuse = nil
			r.pass(2 * time.Minute)
			for _, ref := range later {
				b.report(reports[ref], func(rep *model.TaskReport) { rep.Output = payload(size) })
			}
			r.settle()
			later, settled = b.takeAnswered()
			if len(later) != 0 || len(settled) != tasks {
				t.Errorf("after the quarantine: %d are to report later, %d reports are settled, want all %d", len(later), len(settled), tasks)
			}
			ended := slices.DeleteFunc(r.events(bad), func(e string) bool { return e[:14] != "step_completed" })
			if len(slices.Compact(sorted(ended))) != tasks {
				t.Errorf("%d tasks have ended, want %d", len(ended), tasks)
			}
			if r.l.PendingBytes() != 0 || !r.l.Idle() {
				t.Errorf("%d bytes are held, idle %v", r.l.PendingBytes(), r.l.Idle())
			}
		})
	}
}

// Reports for one quarantined run do not take the room of reports for another one.
func TestKeptReportsAreShared(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	r, b, _, claims := quarantinedWithTasks(t, 12, func(c *lane.Config) { c.MaxKeptBytes = 8 * size })
	for _, c := range claims {
		b.report(c, func(rep *model.TaskReport) { rep.Output = payload(size) })
	}
	r.settle()
	if later, _ := b.takeAnswered(); len(later) < 8 {
		t.Errorf("one run has all but %d of the room for 8 reports, want at most half", len(later))
	}
}

// The lane keeps a report until the next attempt to store it. If the store still refuses the run
// then, the report is neither lost nor recorded twice.
func TestKeptReportsOutliveTheNextQuarantine(t *testing.T) {
	t.Parallel()
	r, b, bad, claims := quarantinedWithTasks(t, 3)
	r.refuse = poison("t1") // now the store refuses the report of t1
	for _, c := range claims {
		b.report(c, func(rep *model.TaskReport) { rep.Output = payload(100) })
	}
	r.pass(5 * time.Minute)
	if r.l.Full() {
		t.Fatal("the lane is full")
	}

	held := r.l.PendingBytes()
	r.pass(5 * time.Minute)
	if now := r.l.PendingBytes(); now > held || now == 0 {
		t.Errorf("%d bytes are held, then %d", held, now)
	}
	r.refuse = nil
	r.pass(2 * time.Minute)
	for _, c := range claims {
		b.wantSettled(c, "")
	}
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing: %v", r.l.PendingBytes(), r.events(bad))
	}
}

func (b *bench) Release(_ model.Time, _ queue.WorkerID, r *model.TaskReport) {
	b.released = append(b.released, r.Ref)
}

func (b *bench) Quarantine(_ model.Time, a model.Address) { b.quarantined = append(b.quarantined, a) }

// A report for a quarantined run frees the permits of its claim immediately, whether the lane has
// room for the report or not. The worker is done, and other runs may wait for the permits. A claim
// whose worker has not reported keeps its permits.
func TestReportsToQuarantinedFreePermits(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]int{"it is kept": 1 << 20, "there is no room for it": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, b, _, claims := quarantinedWithTasks(t, 2, func(c *lane.Config) { c.MaxKeptBytes = kept })
			if len(b.released) > 0 {
				t.Fatalf("the permits of %v are free, and their workers have reported nothing", b.released)
			}
			b.report(claims[0], func(rep *model.TaskReport) { rep.Output = payload(100) })
			r.settle()
			if !slices.Equal(b.released, []model.ClaimRef{claims[0].Ref}) {
				t.Errorf("the permits of %v are free, want those of %v", b.released, claims[0].Ref)
			}
		})
	}
}

// The store may refuse the time-out of a claim while the report of the claim is with another node
// or in the store. In that case the lane gets no report, so it cannot tell which permits to free.
// So the lane tells the board about each quarantine, whatever input caused it.
func TestBoardLearnsOfQuarantines(t *testing.T) {
	t.Parallel()
	_, b, bad, _ := quarantinedWithTasks(t, 1)
	if !slices.Equal(b.quarantined, []model.Address{bad}) {
		t.Fatalf("the board knows about the quarantine of %v, want %v", b.quarantined, bad)
	}
}

// The report of a task whose run is quarantined is kept in memory. When the lane ends, the report
// is one of the outcomes that are not stored.
func TestKeptReportsAreUnstored(t *testing.T) {
	t.Parallel()
	r, b, bad, claims := quarantinedWithTasks(t, 2)
	b.report(claims[0])
	r.settle()
	r.l.Die(errInjected)
	if got := r.l.Unstored(); got.Outcomes != 1 || !slices.Equal(got.Names, []string{bad.String()}) {
		t.Errorf("%+v is not stored, want one outcome of %s", got, bad)
	}
}

// The lane does not keep the address of a claim that it does not know.
func TestDetachOfAnUnknownClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.l.Detach(r.now, model.ClaimRef{TaskRef: model.TaskRef{Address: in(0, 0), Run: r.newRun(), ID: "t"}, Claim: 1})
	r.settle()
	if n := r.l.Entries(); n != 0 {
		t.Errorf("%d addresses are in memory", n)
	}
}
