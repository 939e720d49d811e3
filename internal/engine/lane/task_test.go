package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A batch starts a task and claims it immediately, claims a task that has waited, and schedules a
// task of a workflow. The store refuses the batch because of another address. The lane applies all
// three again, each once, and no worker learns about them before they are committed.
func TestRefusedBatchWithClaims(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.join(1)
	r.send(theTask("waits"), "waits")
	r.startRun(key("wf"))
	r.startRun(key("bad"))
	r.settle()
	b.Slots(r.now, 1, 3)
	r.refuse = poison("poison")
	r.turn(key("bad"), steps("poison"))
	b.propose()
	r.send(theTask("new"), "new")
	r.turn(key("wf"), commandTurn(taskCommand("t")))
	r.flush()
	if len(b.claims()) != 0 {
		t.Fatal("claims are handed over that are not durable")
	}

	for range 3 {
		r.settle()
		b.propose() // the tasks that went back to the board in between
	}

	claims := b.claims()
	if len(claims) != 3 {
		t.Fatalf("%d claims are handed over, want 3: %+v", len(claims), claims)
	}
	b.wantSlots(3)
	for _, c := range claims {
		b.report(c)
	}
	r.settle()
	for _, c := range claims {
		b.wantSettled(c, "")
	}
	b.wantSlots(0)
}

// The worker learns that its task was canceled, even if the store refused the batch at first.
func TestCancelBesidePoison(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.join(1)
	r.startRun(key("bad"))
	r.send(theTask("t"), "t")
	r.settle()
	c := b.one()
	r.refuse = poison("poison")
	r.turn(key("bad"), steps("poison"))
	r.send(model.Message{Kind: model.MessageCancel, To: c.Ref.Address}, "cancel")
	r.settle()
	r.wantAnswer("cancel", "")
	if b.takeStops(true) != 1 {
		t.Errorf("the worker is told %d times that the task is canceled, want 1", b.takeStops(true))
	}
	b.report(c, failed)
	r.settle()
	r.wantStatus(c.Ref.Address, model.Canceled)
	b.wantSlots(0)
}

// A worker that executes a task of a quarantined run continues. When the quarantine is over, the
// lane records its report.
func TestReportToQuarantined(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.join(1)
	a := key("bad")
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	c := b.one()
	r.refuse = poison("s")
	r.signal(a, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "blocked")
	b.report(c)
	r.settle()
	if b.takeStops(false) != 0 || len(b.reportAnswers(c)) != 0 {
		t.Fatalf("the worker is stopped %d times, its report answered %v", b.takeStops(false), b.reportAnswers(c))
	}
	r.refuse = nil
	r.pass(2 * time.Minute)
	b.wantSettled(c, "")
	r.wantEvents(a, "task_scheduled t", "step_completed t")
	b.wantSlots(0)

	// When the lane gives up the shard, the quarantine no longer matters, and the worker sends its
	// report to the next owner.
	r.turn(a, commandTurn(taskCommand("u")))
	r.settle()
	c = b.one()
	r.refuse = poison("s")
	r.signal(a, "s", "another")
	r.settle()
	b.report(c)
	r.giveUp(a.Shard(shards))
	r.settle()
	b.wantSettled(c, "unavailable")
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held", r.l.PendingBytes())
	}
}

// When the lane gives up a shard, it waits for the workers that execute tasks of the shard, but not
// forever. After the last commit of the shard, the lane writes nothing for the shard.
func TestDrainWithTasks(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 2)
	a := taskAt("t")
	shard := a.Shard(shards)
	r.send(theTask("t"), "t")
	r.settle()
	c := b.one()
	r.giveUp(shard)
	r.settle()
	if len(r.freed) != 0 {
		t.Fatal("the shard is freed while a task of it runs")
	}
	r.now = r.now.Add(6 * time.Second)
	r.flush()
	if r.commit == nil || len(r.commit.Free) != 1 {
		t.Fatal("the shard is not freed after the time for it")
	}
	b.report(c) // while the commit is under way
	r.flush()
	r.settle()
	b.wantSettled(c, "unavailable")
	if !slices.Equal(r.freed, []model.ShardID{shard}) || len(r.events(a)) != 0 {
		t.Errorf("freed %v, history %q", r.freed, r.events(a))
	}
	b.wantSlots(0)

	// The next owner finds the claim. The worker of the claim belongs to another node. The owner
	// waits for the worker, and the report arrives as a message.
	b.away = true
	b.Leave(r.now, 1)
	r.acquire(shard)
	r.settle()
	r.pass(5 * time.Minute)
	if len(r.events(a)) != 0 {
		t.Errorf("history %q of a task whose worker is elsewhere", r.events(a))
	}
	r.send(model.Message{Kind: model.MessageReport, To: a, ToRun: c.Ref.Run, RequestID: c.Ref.RequestID(), Report: &model.TaskReport{Ref: c.Ref}}, "report")
	r.settle()
	r.wantAnswer("report", "")
	r.wantStatus(a, model.Completed)
}

// The lane reads the progress of the last attempt before it hands over the next one. It hands the
// claim over once, whatever input arrives during that read.
func TestProgressIsReadMeanwhile(t *testing.T) {
	t.Parallel()
	again := func(t *testing.T) (*rig, *bench) {
		r, b := newBench(t, 1)
		r.join(1)
		r.startRun(key("bad"))
		r.send(theTask("t"), "t")
		r.settle()
		b.report(b.one(), failed)
		r.settle()
		r.now = r.now.Add(2 * time.Second)
		b.propose()
		r.flush()
		r.commitNow()
		if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadProgress {
			t.Fatalf("reads %+v", r.loads)
		}
		return r, b
	}

	t.Run("the run is forgotten", func(t *testing.T) {
		t.Parallel()
		r, b := again(t)
		progress := r.loads[0]
		r.loads = nil
		r.refuse = poison("poison")
		r.turn(key("bad"), steps("poison"))
		r.send(model.Message{Kind: model.MessageCancel, To: taskAt("t")}, "cancel")
		r.flush()
		r.commitNow() // the store refuses the batch
		r.readOne(progress)
		r.flush()
		r.settle()
		if c := b.one(); c.Attempt != 2 {
			t.Errorf("attempt %d is handed over", c.Attempt)
		}
	})

	t.Run("the shard moves", func(t *testing.T) {
		t.Parallel()
		r, b := again(t)
		r.giveUp(taskAt("t").Shard(shards))
		r.flush()
		r.now = r.now.Add(6 * time.Second)
		r.flush()
		if r.commit != nil {
			t.Fatal("the shard is freed before a claim of it is handed over: no worker would execute it")
		}
		r.settle()
		b.one()
		if len(r.freed) != 1 {
			t.Error("the shard is not freed")
		}
	})
}

// The lane is about to hand over a claim. At that moment the store refuses the removal of an older
// run of the address, so the lane drops the state of the address. The lane hands the claim over
// anyway: otherwise the worker would never get it, and the lane could not free the shard.
func TestProgressIsReadWhileRemovalIsRefused(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1, func(c *lane.Config) { c.Retention = kept })
	r.refuse = func(b *store.Batch) error {
		if len(b.Deletes) > 0 {
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}

	r.send(theTask("t"), "old")
	r.settle()
	b.report(b.one())
	r.settle()
	r.now = r.now.Add(2 * kept)
	m := theTask("t")
	m.Reuse = model.ReuseAlways
	r.send(m, "new")
	r.settle()
	b.report(b.one(), failed)
	r.settle()
	r.now = r.now.Add(2 * time.Second)
	b.propose()
	r.flush()
	r.commitNow()
	if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadProgress {
		t.Fatalf("reads %+v, want the progress", r.loads)
	}

	progress := r.loads[0]
	r.loads = nil
	if r.commit == nil || len(r.commit.Deletes) != 1 {
		t.Fatalf("in flight: %+v, want the removal, which waited for the claim", r.commit)
	}
	r.commitNow()
	r.readOne(progress)
	r.settle()
	b.report(b.one())
	r.settle()
	r.wantStatus(m.To, model.Completed)
}

// The lane has reserved a worker for a start, and the address of the start turns out to be in use.
// The worker is free again, and does not get the task.
func TestReservedStartMeetsRun(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.send(theTask("t", func(s *model.TaskSpec) { s.Delay = time.Hour }), "first")
	r.settle()
	r.register(model.NodeID{15: 2})
	if _, err := r.st.FenceNode(t.Context(), store.FenceRequest{Node: model.NodeID{15: 1}, Epoch: 1, Proven: true}); err != nil {
		t.Fatal(err)
	}

	r.commit, r.loads = nil, nil
	r.l = lane.New(r.cfg)
	r.l.Acquire(r.now, r.acquireAll())
	r.take()
	r.loads = nil // the lane has not read anything when the start comes
	r.send(theTask("t"), "second")
	r.flush()
	b.wantSlots(1)
	r.settle()
	r.wantAnswer("second", "")
	if !r.answers["second"].Answer.Existing || len(b.claims()) != 0 {
		t.Errorf("the second start is answered %+v", r.answers["second"])
	}
	b.wantSlots(0)
}

// acquireAll acquires all shards from the store. The caller gives them to the lane.
func (r *rig) acquireAll() []store.AcquiredShard {
	got, err := r.st.Acquire(r.t.Context(), r.cfg.Ref.Node, r.cfg.Ref.Epoch, []model.ShardID{0, 1, 2, 3})
	if err != nil || len(got) != shards {
		r.t.Fatalf("acquire: %v, %v", got, err)
	}
	return got
}

// After a proposal that is no longer possible, no slot stays in use, and the board forgets no task.
func TestStaleProposals(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.join(1)
	a := key("wf")
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	b.Slots(r.now, 1, 1)
	matches := b.Match(r.now)
	r.turn(a, commandTurn(model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: "t"}}))
	r.l.Claim(r.now, matches[0].Ref, 1, "w@here")
	r.settle()
	r.wantEvents(a, "task_scheduled t", "withdrawn t")
	b.wantSlots(0)

	// The board has proposed a task that its worker has given back since, and that is not due. The
	// lane does not forget the task.
	r.send(theTask("t"), "t")
	r.settle()
	c := b.one()
	b.report(c, func(p *model.TaskReport) { p.Returned, p.After = true, time.Minute })
	r.settle()
	r.l.Claim(r.now, c.Ref.TaskRef, 1, "w@here")
	r.settle()
	b.wantSlots(0)
	r.now = r.now.Add(2 * time.Minute)
	b.propose()
	r.settle()
	if c := b.one(); c.Attempt != 1 {
		t.Errorf("attempt %d after one that was given back", c.Attempt)
	}
	b.wantSlots(1)
}

// The board believes that a deadline has passed, but according to the run it has not. The task
// continues to wait.
func TestDeadlineThatComesToNothing(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("t", func(s *model.TaskSpec) { s.ToStart = time.Hour }), "t")
	r.settle()
	ref := model.TaskRef{Address: taskAt("t"), Run: r.current(taskAt("t")).Start.Run, ID: model.TaskStep}
	r.l.Expire(r.now, model.ClaimRef{TaskRef: ref}, false, model.TimeoutToStart)
	r.settle()
	b.Slots(r.now, 1, 1)
	b.propose()
	r.settle()
	b.one()
}

// The lane gives a repeated report the answer of the first one, before and after the commit. It
// refuses the report of a claim that the worker has lost.
func TestRepeatedReports(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.join(1)
	a := key("wf")
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	c := b.one()
	b.report(c)
	b.report(c)
	r.settle()
	b.report(c)
	r.settle()
	b.wantSettled(c, "", "", "")
	r.wantEvents(a, "task_scheduled t", "step_completed t")

	for _, how := range []string{"to close", "terminated", "replaced"} {
		m := theTask(how, func(s *model.TaskSpec) { s.ToClose = time.Minute })
		r.send(m, how)
		r.settle()
		c = b.one()

		switch how {
		case "to close":
			r.now = r.now.Add(2 * time.Minute)
			b.propose()
		case "replaced":
			r.send(model.Message{Kind: model.MessageTerminate, To: m.To}, how+"!")
			r.settle()
			m.Reuse = model.ReuseAlways
			m.Task.Delay = time.Hour
			r.send(m, how+" again")
		default:
			r.send(model.Message{Kind: model.MessageTerminate, To: m.To}, how+"!")
		}

		r.settle()
		if b.takeStops(false) != 1 {
			t.Errorf("%s: the worker is told %d times to stop, want 1", how, b.takeStops(false))
		}
		b.report(c)
		r.settle()
		b.wantSettled(c, "not_owned")
		b.wantSlots(0)
		r.told = nil
	}
}

// A report ends its run in a batch that the store refuses. The lane does not lose the report.
func TestReportOfEndingRunBesidePoison(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.join(1)
	a := key("wf")
	r.startRun(a)
	r.startRun(key("bad"))
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	c := b.one()
	r.refuse = poison("poison")
	r.turn(key("bad"), steps("poison"))
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	b.report(c)
	r.settle()
	b.wantSettled(c, "not_owned")
}

// The node restarts after it has stored a claim and before the worker gets it. The worker gets the
// claim after the restart.
func TestClaimThatWasNotHandedOver(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.send(theTask("t"), "t")
	r.flush()
	r.landUnheard()
	b.restart()
	r.settle()
	b.report(b.one())
	r.settle()
	r.wantStatus(taskAt("t"), model.Completed)
}

// The tasks of a run continue while no worker here can run its code.
func TestTasksWithoutCode(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.join(1)
	a := key("wf")
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	b.restart()
	r.settle()
	b.propose()
	r.settle()
	b.report(b.one())
	r.settle()
	r.wantEvents(a, "task_scheduled t", "task_claimed t", "step_completed t")
	r.join(1)
	r.settle()
	r.wantHolder(a, 1)
}

// A claim is lost immediately if no node has its worker. After three lost claims in a row the task
// is dead.
func TestLostWorkers(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("t"), "t")
	r.settle()
	a := taskAt("t")

	for i := range 3 {
		b.Slots(r.now, 1, 1)
		for _, m := range b.Match(r.now) {
			r.l.Claim(r.now, m.Ref, m.Worker, fmt.Sprintf("gone-%d@nowhere", i))
		}
		b.Slots(r.now, 1, 0)
		r.settle()
		b.claims()
		r.crashFenced()
		r.settle()
	}

	o := r.current(a).Outcome
	if o.Status != model.Failed || o.Failure.Type != model.FailurePoison {
		t.Errorf("the task is %s: %v", o.Status, o.Failure)
	}
	if want := []string{"task_claimed task", "attempt_failed task", "task_claimed task", "attempt_failed task", "task_claimed task"}; !slices.Equal(r.events(a), want) {
		t.Errorf("history %q", r.events(a))
	}
	dead, err := r.st.ListDead(t.Context(), store.DeadQuery{Tenant: "default", Limit: 10})
	if err != nil || len(dead.Rows) != 1 || dead.Rows[0].Body.Attempts != 3 {
		t.Errorf("dead tasks %+v, %v", dead, err)
	}
}

// The clock of the store has been set back since the last event, and a claim is recorded at the
// time of that event. The board counts from the moment when it learned about the claim, and reports
// too early that the worker is silent. That report has no effect. The board reports the silence
// again later; otherwise the claim would have no deadline and could be held forever.
func TestDeadlineThatIsFoundTooEarly(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	a := taskAt("t")
	r.send(theTask("t", func(s *model.TaskSpec) { s.Silence = 10 * time.Second }), "t")
	r.settle()
	r.now = begin.Add(time.Minute)
	r.order(model.MessagePause, a, "pause")
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.now = begin.Add(5 * time.Second)
	b.Slots(r.now, 1, 1)
	b.propose()
	r.settle()
	b.one()
	r.now = begin.Add(20 * time.Second)
	b.propose()
	r.settle()
	r.wantEvents(a, "paused", "resumed", "task_claimed task")
	r.now = begin.Add(2 * time.Minute)
	b.propose()
	r.settle()
	r.wantEvents(a, "paused", "resumed", "task_claimed task", "task_timed_out task")
	b.wantSlots(0)
}

// The lane only assumes that the address of a start is unused, and has not read it. Until the start
// is stored, the address may have a claim that the board does not know.
func TestKnownAfterAssumedStarts(t *testing.T) {
	t.Parallel()
	r, _ := newBench(t, 0)
	r.settle()
	shard := taskAt("t").Shard(shards)
	if !slices.Contains(r.l.KnownShards(), shard) {
		t.Fatalf("known are %v", r.l.KnownShards())
	}
	r.send(theTask("t"), "t")
	if slices.Contains(r.l.KnownShards(), shard) {
		t.Error("a shard is known while it is not known whether a start in it has met a run")
	}
	r.settle()
	if !slices.Contains(r.l.KnownShards(), shard) {
		t.Errorf("known are %v", r.l.KnownShards())
	}
}
