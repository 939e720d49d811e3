package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// vanish lets the worker with the number disappear with its calls, and lets the next one join.
func (r *rig) vanish(w lane.WorkerID, unseen ...uint64) {
	r.t.Helper()
	r.operations = slices.DeleteFunc(r.operations, func(o lane.OperateCall) bool { return o.Worker == w })
	r.l.Lose(r.now, w, unseen)
	r.take()
	r.settle()
	r.joinEntities(w + 1)
	r.settle()
}

// losses returns how many workers have disappeared with each stored call of a mailbox, in order.
func (r *rig) losses(a model.Address) string {
	r.t.Helper()
	var out []string
	for _, it := range r.mailbox(a) {
		out = append(out, fmt.Sprintf("%s:%d", it.Message.Input.Data, it.Message.Lost))
	}
	return strings.Join(out, " ")
}

func (r *rig) wantLosses(a model.Address, want string) {
	r.t.Helper()
	if got := r.losses(a); got != want {
		r.t.Fatalf("counted at %s: %q, want %q", a, got, want)
	}
}

// wantPoison checks that a caller got the failure of a call that was set aside.
func (r *rig) wantPoison(token any) {
	r.t.Helper()
	a, ok := r.answers[token]
	if !ok || a.Answer.Failure == nil || a.Answer.Failure.Type != model.FailurePoison || fault.KindOf(a.Err) != fault.Internal {
		r.t.Errorf("the caller of %v got %+v, want a failure of type %s", token, a, model.FailurePoison)
	}
}

// serveUntil finishes calls one after the other until workers have only the given call.
func (r *rig) serveUntil(input string) {
	r.t.Helper()
	for range 100 {
		r.settle()
		if len(r.operations) == 0 {
			break
		}
		if i := slices.IndexFunc(r.operations, func(o lane.OperateCall) bool { return string(o.Operations.Calls[0].Input.Data) != input }); i >= 0 {
			r.operations[0], r.operations[i] = r.operations[i], r.operations[0]
			r.serve(1)
			continue
		}
		return
	}
	r.t.Fatalf("%s is never made", input)
}

// A call kills every worker that gets it. After the first loss the calls of its hand-over run one
// at a time. When three workers have disappeared with the call, the lane answers it and keeps it as
// a dead letter. The other calls continue.
func TestCallThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one", oneWay)
	r.settle()
	for _, in := range []string{"2", "bomb", "3"} { // the next hand-over has all of them
		r.operation(a, "add", in, in, oneWay)
	}
	r.serve(1)
	r.settle()
	r.wantMaking("2", "3", "bomb")

	r.vanish(1)
	r.wantLosses(a, "2:1 bomb:1 3:1")
	r.wantMaking("2")
	r.serveUntil("bomb")
	r.wantMaking("bomb")
	r.vanish(2)
	r.wantLosses(a, "bomb:2 3:1")
	r.wantMaking("bomb")
	r.vanish(3)

	r.work()
	if n := r.handed["bomb"]; n != 3 {
		t.Errorf("%d workers got the call, want 3", n)
	}
	r.wantState(a, "1;2;3;")
	dead := r.deadCalls()
	if len(dead) != 1 || string(dead[0].Message.Input.Data) != "bomb" || !strings.Contains(dead[0].Message.ID, "3 workers disappeared while they had add of") {
		t.Errorf("dead letters %+v", dead)
	}
}

// The callers of calls that kill their workers get the failure: a caller in this process, with and
// without a request id, a caller of a view, and a caller of a service. Each call becomes a dead
// letter, although the calls were never stored.
func TestCallersOfCallsThatKillTheirWorkers(t *testing.T) {
	t.Parallel()
	plain := func(m *model.Message) { m.RequestID = "" }
	for what, make := range map[string]func(r *rig){
		"operation":              func(r *rig) { r.operation(ledger("a"), "add", "bomb", "caller", plain) },
		"operation with request": func(r *rig) { r.operation(ledger("a"), "add", "bomb", "caller") },
		"view":                   func(r *rig) { r.operation(ledger("a"), "read", "bomb", "caller", plain) },
		"rpc":                    func(r *rig) { r.operation(echo("a"), "echo", "bomb", "caller") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.joinEntities(1)
			make(r)
			for w := range lane.WorkerID(3) {
				r.settle()
				r.wantMaking("bomb")
				r.wantSilence("caller")
				r.vanish(w + 1)
			}
			r.wantMaking()
			r.wantPoison("caller")
			if dead := r.deadCalls(); len(dead) != 1 {
				t.Errorf("dead letters %+v", dead)
			}

			r.operation(ledger("a"), "add", "next", "next")
			r.work()
			r.wantOutput("next", "next;")
		})
	}
}

// A call that runs at most once is not made again, so a loss of its worker counts nothing.
func TestBriefCallOfAWorkerThatDisappears(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	r.operation(echo("a"), "echo", "1", "caller", brief)
	r.settle()
	r.vanish(1)
	r.wantErr("caller", lane.ErrInterrupted)
	r.wantMaking()
	if dead := r.deadCalls(); len(dead) != 0 {
		t.Errorf("dead letters %+v", dead)
	}
}

// Only the death of a worker that has the call counts. A worker that leaves, an owner that changes,
// and a hand-over that never reached its worker count nothing, however often they happen.
func TestWhatIsNoLoss(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(r *rig, w lane.WorkerID){
		"the worker leaves": func(r *rig, w lane.WorkerID) { r.leave(w); r.operations = nil },
		"the owner stops": func(r *rig, _ lane.WorkerID) {
			r.operations = nil
			r.restart()
		},
		"the worker never got it": func(r *rig, w lane.WorkerID) {
			gen := r.operations[0].Operations.Generation
			r.operations = nil
			r.l.Lose(r.now, w, []uint64{gen})
			r.take()
		},
		"the worker disappears before the call leaves the lane": func(r *rig, w lane.WorkerID) {
			r.leave(w)
			r.l.JoinEntities(r.now, w+100, echoOffer(), r.slotsOf(w+100))
			r.l.Lose(r.now, w+100, nil)
			r.take()
			if n := len(r.operations); n != 2 {
				r.t.Fatalf("%d hand-overs, want one for each worker", n)
			}
			r.operations = nil
		},
		"another worker disappears": func(r *rig, w lane.WorkerID) {
			r.l.Lose(r.now, w+100, nil)
			r.leave(w)
			r.operations = nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := ledger("a")
			r.joinEntities(1)
			r.operation(a, "add", "1", "one", oneWay)
			r.settle()

			for w := range lane.WorkerID(5) {
				r.wantMaking("1")
				end(r, w+1)
				r.settle()
				r.wantLosses(a, "1:0")
				r.joinEntities(w + 2)
				r.settle()
			}

			r.work()
			r.wantState(a, "1;")
			if dead := r.deadCalls(); len(dead) != 0 {
				t.Errorf("dead letters %+v", dead)
			}
		})
	}
}

// The number of losses is stored with the call. So the call is set aside after three losses, also
// if the owner stops or dies between them. The end of the owner itself counts nothing.
func TestLossesSurviveTheOwner(t *testing.T) {
	t.Parallel()
	for what, next := range map[string]func(r *rig){
		"stops": func(r *rig) { r.restart() },
		"dies":  func(r *rig) { r.crashed = true; r.crashFenced() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := ledger("a")
			r.joinEntities(1)
			r.operation(a, "add", "bomb", "caller", oneWay)
			r.operation(a, "add", "2", "two", oneWay)
			r.settle()

			for w, want := range []string{"bomb:1 2:0", "bomb:2 2:0"} {
				r.serveUntil("bomb")
				r.vanish(lane.WorkerID(2*w + 1))
				r.wantLosses(a, want)
				r.operations = nil
				next(r)
				r.joinEntities(lane.WorkerID(2*w + 3))
				r.settle()
				r.wantLosses(a, want)
				r.wantMaking("bomb")
			}

			r.vanish(5)
			r.work()
			r.wantState(a, "2;")
			if dead := r.deadCalls(); len(dead) != 1 {
				t.Errorf("dead letters %+v", dead)
			}
		})
	}
}

// Workers disappear twice with calls of several entities. From then on these calls run one at a
// time, so that the next loss shows which of them is guilty.
func TestSuspectsOfWorkersRunOneAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := []model.Address{ledger("a"), ledger("b"), ledger("c"), echo("d")}
	r.joinEntities(1)
	for i, a := range all {
		name := "add"
		if a.Stateless() {
			name = "echo"
		}
		r.operation(a, name, fmt.Sprint(i), fmt.Sprint(i))
		if a.Stateless() {
			r.operation(a, name, fmt.Sprint("next", i), fmt.Sprint("next", i))
		}
	}
	r.settle()
	r.wantMaking("0", "1", "2", "3", "next3")
	r.vanish(1)
	r.wantMaking("0", "1", "2", "3", "next3")
	r.operation(all[0], "add", "new", "new")
	r.vanish(2)

	guilty := r.runningInputs()
	if len(guilty) != 1 {
		t.Fatalf("workers make %q, want one call at a time", guilty)
	}
	r.vanish(3)
	for n := 0; len(r.operations) > 0; n++ {
		if got := r.runningInputs(); len(slices.DeleteFunc(got, func(in string) bool { return in == "new" })) > 1 {
			t.Fatalf("workers make %q, want one suspect at a time", got)
		}
		r.serve(1)
		r.settle()
	}
	dead := r.deadCalls()
	if len(dead) != 1 || string(dead[0].Message.Input.Data) != guilty[0] {
		t.Errorf("dead letters %+v, want %q", dead, guilty)
	}
	for _, in := range []string{"0", "1", "2", "3", "next3", "new"} {
		if got := r.answers[in]; in != guilty[0] && got.Err != nil {
			t.Errorf("call %s: %v", in, got.Err)
		}
	}
}

// The store does not take the row with the number of losses, or the dead letter. The lane writes it
// again, and counts each loss once.
func TestLossIsNotStored(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Retryable, store.Unknown, store.Away} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := ledger("a")
			r.joinEntities(1)
			r.operation(a, "add", "bomb", "stored", oneWay)
			r.operation(a, "add", "2", "memory")
			r.settle()
			for w := range lane.WorkerID(3) {
				r.wantMaking("bomb")
				r.operations = nil
				r.l.Lose(r.now, w+1, nil)
				r.take()
				r.flush()
				if r.commit == nil {
					t.Fatal("the lane commits nothing")
				}
				r.fail(class)
				r.settle()
				r.pass(time.Minute)
				r.joinEntities(w + 2)
				r.settle()
			}
			r.work()
			r.wantOutput("memory", "2;")
			if dead, n := r.deadCalls(), r.handed["bomb"]; len(dead) != 1 || n != 3 {
				t.Errorf("%d workers got the call, dead letters %+v", n, dead)
			}
		})
	}

	t.Run("a refused neighbour", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		a, bad := ledger("a"), key("bad")
		r.refuse = poison("bad")
		r.joinEntities(1)
		r.operation(a, "add", "bomb", "stored", oneWay)
		r.settle()
		for w := range lane.WorkerID(3) {
			r.wantMaking("bomb")
			r.operations = nil
			r.start(bad, fmt.Sprint("bad", w))
			r.l.Lose(r.now, w+1, nil)
			r.take()
			r.settle()
			r.pass(time.Minute)
			r.joinEntities(w + 2)
			r.settle()
		}
		r.wantMaking()
		if dead, n := r.deadCalls(), r.handed["bomb"]; len(dead) != 1 || n != 3 {
			t.Errorf("%d workers got the call, dead letters %+v", n, dead)
		}
	})
}

// A worker disappears while the lane gives up the shard. The call is not lost.
func TestLossWhileTheShardMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.joinEntities(1)
	r.operation(a, "add", "1", "one", oneWay)
	r.settle()
	r.giveUp(a.Shard(shards))
	r.vanish(1)
	r.settle()
	r.pass(time.Minute)
	r.operations = nil
	if !slices.Contains(r.freed, a.Shard(shards)) {
		t.Fatalf("shard %d is not free", a.Shard(shards))
	}
	r.acquire(a.Shard(shards))
	r.work()
	r.wantState(a, "1;")
}

// A call that is only in memory is set aside, and its batch is not stored: the store refuses
// another address, or the dead letter itself, or the lane ends. The caller hears that in each case.
func TestCallersOfCallsWhoseEndIsNotStored(t *testing.T) {
	t.Parallel()
	plain := func(m *model.Message) { m.RequestID = "" }
	for what, change := range map[string]func(*model.Message){"with request": func(*model.Message) {}, "plain": plain} {
		third := func(t *testing.T) *rig {
			t.Parallel()
			r := newRig(t)
			r.joinEntities(1)
			r.operation(ledger("a"), "add", "bomb", "caller", change)
			r.settle()
			for w := range lane.WorkerID(2) {
				r.wantMaking("bomb")
				r.vanish(w + 1)
			}
			r.wantMaking("bomb")
			r.operations = nil
			return r
		}

		t.Run("a refused neighbour, "+what, func(t *testing.T) {
			r := third(t)
			r.refuse = poison("bad")
			r.start(key("bad"), "bad")
			r.vanish(3)
			r.wantMaking()
			r.wantPoison("caller")
			if dead, n := r.deadCalls(), r.handed["bomb"]; len(dead) != 1 || n != 3 {
				t.Errorf("%d workers got the call, dead letters %+v", n, dead)
			}
		})
		t.Run("a refused dead letter, "+what, func(t *testing.T) {
			r := third(t)
			r.refuse = func(b *store.Batch) error {
				if len(b.Deferred) > 0 {
					return store.Errorf(store.Refused, "commit", "injected")
				}
				return nil
			}
			r.vanish(3)
			r.wantAnswer("caller", "blocked")
		})
		t.Run("the lane ends, "+what, func(t *testing.T) {
			r := third(t)
			r.l.Lose(r.now, 3, nil)
			r.take()
			r.flush()
			r.fail(store.Fenced)
			r.wantErr("caller", lane.ErrNotOwner)
		})
	}
}

// Two workers have disappeared with a call that is only in memory, so it waits until no other
// suspect runs. The lane lets it run with the next commit, and the store refuses this batch because
// of another address. The call still runs afterwards, and so do the other suspects of the lane.
func TestSuspectInMemoryBehindARefusedBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, other := ledger("a"), echo("d")
	r.joinEntities(1)
	r.operation(a, "add", "1", "one")
	r.operation(other, "echo", "2", "two")
	r.settle()
	r.vanish(1)
	r.wantMaking("1", "2")
	r.operations = nil
	r.l.Lose(r.now, 2, nil)
	r.take()
	r.settle()

	r.refuse = poison("bad")
	r.start(key("bad"), "bad")
	r.operation(a, "add", "3", "three", oneWay)
	r.joinEntities(3)
	r.work()
	for _, caller := range []string{"one", "two", "three"} {
		r.wantAnswer(caller, "")
	}
	r.wantState(a, "1;3;")
}
