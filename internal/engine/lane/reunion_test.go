package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const reunionTime = 5 * time.Second

func withReunion(c *lane.Config) { c.Reunion = reunionTime }

// rejoin adds a worker that says which runs it holds.
func (r *rig) rejoin(w lane.WorkerID, held ...model.HeldRun) {
	r.l.Join(r.now, w, model.Offer{Tenant: "default", Workflows: []string{"wf"}, Held: held}, r.slotsOf(w))
	r.take()
}

func (r *rig) rejoinEntities(w lane.WorkerID, held ...model.HeldRun) {
	r.l.JoinEntities(r.now, w, model.EntityOffer{Tenant: "default", Types: []model.EntityType{{Type: "entity:ledger", Views: []string{"read"}}}, Held: held}, r.slotsOf(w))
	r.take()
}

// dieDuringStep kills the server while worker 1 runs a step of an execution. It returns what the
// worker holds.
func (r *rig) dieDuringStep(a model.Address) model.HeldRun {
	r.t.Helper()
	r.join(1)
	run := r.startRun(a)
	r.turn(a, model.Turn{Running: true})
	r.settle()
	r.crashFenced()
	return model.HeldRun{Address: a, Run: run}
}

// dieAfterABackOff kills the server while worker 1 runs the second attempt of a step. The back-off
// before this attempt is over, but the run is still parked in the store. dieAfterABackOff returns
// what the worker holds.
func (r *rig) dieAfterABackOff(a model.Address) model.HeldRun {
	r.t.Helper()
	r.join(1)
	run := r.startRun(a)
	failed := model.Command{Kind: model.CommandRetry, Delay: time.Second, Event: model.Event{ID: "x", Attempt: 1}}
	r.turn(a, waitingTurn(failed))
	r.settle()
	r.release(a, "x")
	r.pass(time.Second)
	r.wantHolder(a, 1)
	r.crashFenced()

	return model.HeldRun{Address: a, Run: run}
}

// readBesideNews lets worker 1 come back for a run. The lane reads the history of the run while a
// signal for the run is in flight to the store.
func (r *rig) readBesideNews(a model.Address, h model.HeldRun) {
	r.t.Helper()
	r.rejoin(2)
	r.rejoin(3)
	r.settle()
	r.signal(a, "s", "signal")
	for r.flush(); r.commit == nil; r.flush() {
		r.read()
	}
	r.rejoin(1, h)
	for r.flush(); len(r.loads) > 0; {
		r.read() // the lane reads the history without the signal
	}
}

// During the reunion, only the worker that held a run under the last owner gets the run. This
// worker may join before or after the lane has read the list of runs. An input for the run may also
// arrive before or after that read.
func TestReunionKeepsRunsForTheirWorker(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(r *rig, a model.Address, h model.HeldRun){
		"joins before": func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(1, h)
			r.rejoin(2)
		},
		"joins after": func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(2)
			r.settle()
			r.pass(reunionTime - time.Second)
			r.wantHolder(a, 0)
			r.rejoin(1, h)
		},
		"news before the runs are read": func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(2)
			loads := r.loads
			r.loads = nil
			r.signal(a, "s", "signal")
			for range 5 { // the lane reads everything except the list of runs
				r.settle()
			}
			r.wantAnswer("signal", "")
			r.wantHolder(a, 0)

			r.loads = append(r.loads, loads...)
			r.settle()
			r.wantHolder(a, 0)
			r.rejoin(1, h)
		},
		"news is in flight to the store": func(r *rig, a model.Address, h model.HeldRun) {
			r.readBesideNews(a, h)
			r.wantHolder(a, 0)
		},
		"the store refuses the news": func(r *rig, a model.Address, h model.HeldRun) {
			r.readBesideNews(a, h)
			r.fail(store.Refused)
			r.settle()
			r.pass(time.Minute) // the lane tries again
		},
		"news after the runs are read": func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(2)
			r.settle()
			r.signal(a, "s", "signal")
			r.query(a, "query")
			r.settle()
			r.wantHolder(a, 0)
			r.rejoin(1, h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			do(r, a, r.dieDuringStep(a))
			r.settle()
			r.wantHolder(a, 1)
			r.turn(a, model.Turn{Close: done()})
			r.settle()
			r.wantStatus(a, model.Completed)
			r.pass(2 * reunionTime)
			r.wantHolder(a, 0)
		})
	}
}

// Runs that the lane itself has started or handed over do not wait for workers of the last owner,
// even after these runs have left memory.
func TestReunionKeepsNoRunsOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(r *rig, a model.Address){
		"started and given out": func(r *rig, a model.Address) {
			r.rejoin(2)
			r.park(a)
		},
		"started, and no worker was here": func(r *rig, a model.Address) {
			r.start(a, "started")
			r.settle()
			r.wantAnswer("started", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			r.dieDuringStep(key("b"))
			r.settle()

			begin(r, a)
			r.order(model.MessagePause, a, "pause")
			r.settle()
			r.wantAnswer("pause", "")
			r.wantHolder(a, 0)
			r.rejoin(3)
			r.order(model.MessageResume, a, "resume")
			r.settle()
			r.wantAnswer("resume", "")
			if r.holder(a) == 0 {
				t.Error("the run waits for a worker of the last owner, which cannot hold it")
			}
			r.wantHolder(key("b"), 0)
		})
	}
}

// The lane starts a run itself, and its worker reports the run as blocked. Another worker joins,
// and a message for the run arrives, before the lane has read what the last owner left. A worker
// gets the run after that read, although the list of runs is older than the run.
func TestReunionForgetsNoBlockedRunOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	r.dieDuringStep(key("b"))
	r.flush()
	isList := func(ld lane.Load) bool { return ld.Kind == lane.LoadRunnable }
	list := slices.Clone(r.loads)
	list = slices.DeleteFunc(list, func(ld lane.Load) bool { return !isList(ld) })
	r.loads = slices.DeleteFunc(r.loads, isList)
	if len(list) != 1 {
		t.Fatalf("the lane reads %d lists of runs, want 1", len(list))
	}

	a := key("a")
	r.rejoin(2)
	run := r.startRun(a)
	r.turn(a, model.Turn{Blocked: &model.Reason{Code: model.WaitStuck}})
	r.settle()
	delete(r.held, run) // the worker has given up the run by itself

	r.rejoin(3)
	r.settle()
	r.order(model.MessageCancel, a, "cancel")
	r.settle()
	r.wantAnswer("cancel", "")
	r.wantHolder(a, 0)

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if !isList(*ld) {
			return nil
		}
		return &lane.LoadResult{}
	}
	r.loads = append(r.loads, list...)
	r.settle()
	if r.holder(a) == 0 {
		t.Error("no worker gets the run")
	}
}

// A run that was paused during a step also waits for its worker, because the step continues during
// the pause.
func TestReunionKeepsPausedRuns(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(r *rig, a model.Address, h model.HeldRun){
		"resumed before the worker joins": func(r *rig, a model.Address, h model.HeldRun) {
			r.order(model.MessageResume, a, "resume")
			r.settle()
			r.wantAnswer("resume", "")
			r.wantHolder(a, 0)
			r.rejoin(1, h)
		},
		"resumed after the worker has joined": func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(1, h)
			r.settle()
			r.order(model.MessageResume, a, "resume")
		},
		"resumed after the reunion": func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(1, h)
			r.settle()
			r.pass(2 * reunionTime)
			r.wantHolder(a, 0)
			r.order(model.MessageResume, a, "resume")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			r.join(1)
			h := model.HeldRun{Address: a, Run: r.startRun(a)}
			r.turn(a, model.Turn{Running: true})
			r.order(model.MessagePause, a, "pause")
			r.settle()
			r.wantAnswer("pause", "")
			r.crashFenced()

			r.rejoin(2)
			r.rejoin(3)
			r.settle()
			do(r, a, h)
			r.settle()
			r.wantHolder(a, 1)
		})
	}

	// The lane does not wait for the worker forever.
	r := newRig(t, withReunion)
	a := key("a")
	r.join(1)
	r.startRun(a)
	r.turn(a, model.Turn{Running: true})
	r.order(model.MessagePause, a, "pause")
	r.settle()
	r.crashFenced()
	r.rejoin(2)
	r.settle()
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.wantHolder(a, 0)
	r.pass(reunionTime)
	r.wantHolder(a, 2)
}

// What a worker said before the lane owned the shard does not count: in the meantime another owner
// may have given the run to this worker, taken it back and given it to another worker. The engine
// asks the worker again.
func TestReunionForgetsWhatWorkersSaidBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		comes func(r *rig, h model.HeldRun)
		want  lane.WorkerID
	}{
		"another worker holds it":   {func(r *rig, h model.HeldRun) { r.rejoin(3, h) }, 3},
		"the worker still holds it": {func(r *rig, h model.HeldRun) { r.l.Meet(r.now, 1, []model.HeldRun{h}); r.take() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			h := r.dieDuringStep(a)
			r.giveUp(a.Shard(4))
			r.settle()
			r.rejoin(1, h)
			r.rejoin(2)

			r.acquire(a.Shard(4))
			r.settle()
			r.wantHolder(a, 0)
			c.comes(r, h)
			r.settle()
			r.wantHolder(a, c.want)
		})
	}
}

// If a shard was handed over, no worker that holds runs of the shard is still on its way back to a
// node. So the lane reserves these runs only until all live nodes have said what their workers
// hold, and at most for the time AskFor.
func TestReunionOfAShardThatWasHandedOver(t *testing.T) {
	t.Parallel()
	const askFor = 2 * time.Second
	for name, do := range map[string]func(r *rig, a model.Address, h model.HeldRun) (holder lane.WorkerID){
		"all have answered": func(r *rig, _ model.Address, _ model.HeldRun) lane.WorkerID {
			r.l.EndReunion(r.now)
			r.take()
			return 2
		},
		"one does not answer": func(r *rig, _ model.Address, _ model.HeldRun) lane.WorkerID {
			r.pass(askFor)
			return 2
		},
		"one holds the run": func(r *rig, _ model.Address, h model.HeldRun) lane.WorkerID {
			r.rejoin(1, h)
			r.l.EndReunion(r.now)
			r.take()
			return 1
		},
		"a longer reunion begins": func(r *rig, _ model.Address, h model.HeldRun) lane.WorkerID {
			r.inOrder = false
			r.giveUp(3)
			r.settle()
			r.acquire(3)
			r.l.EndReunion(r.now)
			r.take()
			return 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *lane.Config) { c.Reunion, c.AskFor = reunionTime, askFor })
			r.inOrder = true
			a := key("a")
			for i := 0; a.Shard(4) == 3; i++ {
				a = key(string(rune('b' + i)))
			}

			h := r.dieDuringStep(a)
			r.rejoin(2)
			r.settle()
			r.wantHolder(a, 0)
			want := do(r, a, h)
			r.settle()
			r.wantHolder(a, want)
		})
	}
}

// While the lane reserves a run for its worker, the run may end, be paused, or move to another
// node.
func TestKeptRunsChange(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(r *rig, a model.Address, h model.HeldRun){
		"terminated": func(r *rig, a model.Address, h model.HeldRun) {
			r.order(model.MessageTerminate, a, "order")
			r.settle()
			r.rejoin(1, h)
			r.settle()
			r.wantStatus(a, model.Terminated)
			r.wantHolder(a, 0)
		},
		"paused": func(r *rig, a model.Address, h model.HeldRun) {
			r.order(model.MessagePause, a, "order")
			r.settle()
			r.rejoin(1, h)
			r.settle()
			r.wantHolder(a, 0)

			r.order(model.MessageResume, a, "resume")
			r.settle()
			r.wantHolder(a, 1)
		},
		"cancel requested": func(r *rig, a model.Address, h model.HeldRun) {
			r.order(model.MessageCancel, a, "order")
			r.settle()
			r.wantHolder(a, 0)
			r.rejoin(1, h)
			r.settle()
			r.wantHolder(a, 1)
		},
		"moved": func(r *rig, a model.Address, h model.HeldRun) {
			r.giveUp(0, 1, 2, 3)
			r.settle()
			r.rejoin(1, h)
			r.settle()
			r.pass(2 * reunionTime)
			r.wantHolder(a, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			h := r.dieDuringStep(a)
			r.rejoin(2, model.HeldRun{})
			r.settle()
			do(r, a, h)
		})
	}
}

// The back-off of a parked run ends, a worker runs the next attempt, and the server dies. The
// server has stored nothing since the back-off ended, so the run is parked in the store. The next
// server still reserves the run for the worker, even if an input for the run arrives.
func TestReunionKeepsRunsAfterABackOff(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(r *rig, a model.Address){
		"the timer": func(r *rig, _ model.Address) { r.pass(2 * time.Second) },
		"a signal":  func(r *rig, a model.Address) { r.signal(a, "s", "signal"); r.settle() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			held := r.dieAfterABackOff(a)
			r.rejoin(2)
			r.settle()
			do(r, a)
			r.wantHolder(a, 0)

			r.rejoin(1, held)
			r.settle()
			r.wantHolder(a, 1)
		})
	}
}

// The same happens, and a start of the address is in flight until the reunion is over. The run
// still goes to the worker that may be running the next attempt.
func TestRunAfterABackOffBehindAnAssumedStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	a := key("a")
	held := r.dieAfterABackOff(a)
	r.rejoin(1, held)
	for w := range lane.WorkerID(4) {
		r.rejoin(w + 2)
	}
	r.start(a, "again")
	r.flush()
	if r.commit == nil || len(r.commit.Starts) != 1 || !r.commit.Starts[0].IfAbsent {
		t.Fatalf("in flight is %+v, want a start that assumes that there is no run", r.commit)
	}
	for len(r.loads) > 0 {
		r.read()
	}
	r.now = r.now.Add(reunionTime + time.Second)
	r.flush()
	r.settle()
	r.wantAnswer("again", "")
	r.wantHolder(a, 1)
}

// Calls of an entity wait for the worker that had them under the last owner. If another call
// arrives before the lane has read the mailbox, that worker gets this call too.
func TestReunionKeepsCallsForTheirWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	a := ledger("a")
	r.joinEntities(1)
	r.operation(a, "add", "1", "first", oneWay)
	r.settle()
	if r.handed["1"] != 1 || len(r.mailbox(a)) != 1 {
		t.Fatalf("handed over: %v, stored: %v", r.handed, r.mailbox(a))
	}
	r.operations = nil
	r.crashFenced()

	r.rejoinEntities(2)
	loads := r.loads
	r.loads = nil
	r.operation(a, "add", "2", "second")
	r.settle()
	r.loads = append(r.loads, loads...)
	r.settle()
	if len(r.operations) != 0 {
		t.Fatalf("worker %d gets %+v", r.operations[0].Worker, r.operations[0].Operations.Calls)
	}
	r.rejoinEntities(1, model.HeldRun{Address: a})
	r.settle()
	if i := slices.IndexFunc(r.operations, func(o lane.OperateCall) bool { return o.Worker != 1 }); i >= 0 || len(r.operations) == 0 {
		t.Fatalf("handed over: %+v", r.operations)
	}
	r.work()
	r.wantState(a, "1;2;")
}

// Without a reunion, as in a program with an embedded store, any worker gets a run immediately.
func TestNoReunionWithoutServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	h := r.dieDuringStep(a)
	r.rejoin(2, h)
	r.settle()
	r.wantHolder(a, 2)
}

// A worker comes back and says that it has a claim. If the history names this worker, the worker
// keeps the claim. Otherwise the lane tells the worker to stop. If the history names a worker that
// does not know the claim, the lane hands the claim over to this worker again, once.
func TestClaimsOfReturningWorkers(t *testing.T) {
	t.Parallel()
	theirs := model.RemoteWorkerName("w", "default", "id")
	claimed := func(t *testing.T) (*rig, *bench, model.Claim) {
		r, b := newBench(t, 1, withReunion)
		b.name = theirs + "@here"
		r.send(theTask("t"), "t")
		r.settle()
		b.propose()
		r.settle()
		c := b.one()
		b.left, b.away = true, true // until the worker comes back
		b.restart()
		r.settle()
		if n := len(b.claims()) + b.takeStops(false); n != 0 {
			t.Fatalf("the lane made %d calls to workers before a worker came back", n)
		}
		return r, b, c
	}

	t.Run("has it", func(t *testing.T) {
		t.Parallel()
		r, b, c := claimed(t)
		b.left = false
		r.l.Attach(r.now, c.Ref, 1, theirs)
		r.settle()
		if len(b.claims()) != 0 || b.takeStops(false) != 0 {
			t.Fatalf("calls to the worker: %+v, want none", r.told)
		}
		b.report(c)
		r.settle()
		b.wantSettled(c, "")
		r.wantStatus(taskAt("t"), model.Completed)
	})
	t.Run("never got it", func(t *testing.T) {
		t.Parallel()
		r, b, c := claimed(t)
		b.left = false
		for range 2 {
			r.l.HandOverAgain(r.now, c.Ref, 1, theirs)
			r.settle()
		}
		if again := b.one(); again.Ref != c.Ref || again.Attempt != c.Attempt {
			t.Fatalf("handed over %+v, want %+v", again, c)
		}
		b.report(c)
		r.settle()
		r.wantStatus(taskAt("t"), model.Completed)
	})
	t.Run("another worker says so", func(t *testing.T) {
		t.Parallel()
		r, b, c := claimed(t)
		b.left = false
		r.l.Attach(r.now, c.Ref, 7, "w~other")
		r.l.HandOverAgain(r.now, c.Ref, 8, "w~another")
		r.settle()
		stops := slices.DeleteFunc(slices.Clone(r.told), func(c lane.TaskCall) bool { return c.Kind != lane.TaskStop })
		if len(stops) != 1 || stops[0].Worker != 7 || len(b.claims()) != 0 {
			t.Fatalf("calls to the workers: %+v, want only a stop for worker 7", r.told)
		}

		// Until the worker learns that it does not have the claim, it writes data as if it had the
		// claim.
		write := writeOf(c, 1, stateItem("s", "stolen"))
		write.Write.By = "w~other"
		r.send(write, "write")
		r.l.Progress(r.now, c.Ref, "w~other", model.TextPayload("stolen"))
		r.l.Report(r.now, 7, &model.TaskReport{Ref: c.Ref, Failure: &model.Failure{Message: "stolen"}, RetryAfter: time.Hour, By: "w~other"})
		r.settle()
		r.wantAnswer("write", fault.NotOwned.String())
		b.wantSettled(c, fault.NotOwned.String())
		progress, err := r.st.LoadTaskData(t.Context(), store.RunKey{Shard: c.Ref.Address.Shard(shards), Run: c.Ref.Run}, store.ProgressRange(c.Ref.ID))
		if got := r.data(c); got != "" || len(progress) != 0 || err != nil {
			t.Fatalf("stored: %q, progress %+v, %v", got, progress, err)
		}
		r.told = nil
		b.report(c, func(r *model.TaskReport) { r.By = theirs })
		r.settle()
		b.wantSettled(c, "")
		r.wantStatus(taskAt("t"), model.Completed)
	})
	t.Run("canceled meanwhile", func(t *testing.T) {
		t.Parallel()
		r, b, c := claimed(t)
		r.order(model.MessageCancel, taskAt("t"), "cancel")
		r.settle()
		b.left = false
		r.l.HandOverAgain(r.now, c.Ref, 1, theirs)
		r.settle()
		if again := b.one(); !again.Canceled && b.takeStops(true) != 1 {
			t.Fatalf("handed over %+v, told %+v", again, r.told)
		}
	})
	t.Run("never comes back", func(t *testing.T) {
		t.Parallel()
		r, b, c := claimed(t)
		r.l.Expire(r.now, c.Ref, true, model.FailureLost)
		r.settle()
		if n := len(r.history(c.Ref.Address, c.Ref.Run)); n != 0 {
			t.Fatalf("%d events: the claim is lost while its worker may return", n)
		}
		b.away = false
		for range 2 {
			r.l.Expire(r.now, c.Ref, true, model.FailureLost)
			r.settle()
		}
		if events := r.history(c.Ref.Address, c.Ref.Run); len(events) != 1 || events[0].Kind != model.EventAttemptFailed || events[0].Attempt != 1 {
			t.Fatalf("history %+v, want one lost attempt", events)
		}
	})
}

// A shard was handed over while a worker ran a call for which a client waits. The store does not
// have the call, and the client sends it again. The call waits until the live nodes have said what
// their workers hold. It goes to the worker that still runs it, even if the client sends it later.
func TestCallsOfClientsGoToTheWorkerThatHoldsTheEntity(t *testing.T) {
	t.Parallel()
	const askFor = 2 * time.Second
	answered := func(r *rig) {
		r.l.EndReunion(r.now)
		r.take()
	}
	held := model.HeldRun{Address: ledger("a")}

	for name, c := range map[string]struct {
		before, after func(r *rig) // the time at which the client sends the call
		want          lane.WorkerID
	}{
		"the worker says so later": {func(*rig) {}, func(r *rig) { r.rejoinEntities(1, held); answered(r) }, 1},
		"the worker has said so":   {func(r *rig) { r.rejoinEntities(1, held) }, answered, 1},
		"all have answered":        {func(r *rig) { r.rejoinEntities(1, held); answered(r); r.pass(time.Minute) }, func(*rig) {}, 1},
		"a view came first": {func(r *rig) {
			r.rejoinEntities(1, held)
			answered(r)
			r.operation(ledger("a"), "read", "", "view")
			r.settle()
		}, func(*rig) {}, 1},
		"no worker holds the entity": {func(*rig) {}, answered, 2},
		"one does not answer":        {func(*rig) {}, func(r *rig) { r.pass(askFor) }, 2},
	} {
		for _, server := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", server ", server), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(c *lane.Config) { c.AskFor = askFor })
				if server {
					r = newRig(t, func(c *lane.Config) { c.Reunion, c.AskFor = reunionTime, askFor })
				}
				r.inOrder = server
				r.crashFenced()
				r.settle()
				r.rejoinEntities(2)
				c.before(r)
				r.operations = nil
				r.operation(ledger("a"), "add", "1", "first")
				r.settle()
				if n := len(r.operations); name == "the worker says so later" && n > 0 {
					t.Fatalf("worker %d got the call before all nodes had answered", r.operations[0].Worker)
				}
				c.after(r)
				r.settle()
				if len(r.operations) != 1 || r.operations[0].Worker != c.want {
					t.Fatalf("handed over: %+v, want one call for worker %d", r.operations, c.want)
				}
				r.work()
				r.wantState(ledger("a"), "1;")

				// Later calls go to any worker.
				r.operation(ledger("a"), "add", "2", "second")
				r.work()
				r.wantState(ledger("a"), "1;2;")
			})
		}
	}
}
