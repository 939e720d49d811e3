package lane_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The answer to a report was lost, and the worker repeats the report. It gets the same answer
// again, directly or through another node. This also holds when the run has ended and left memory,
// when another run has the key, and when so many later claims followed that the run has forgotten
// this claim. The lane still refuses reports of claims that it took away, or that never existed. In
// all these cases the lane writes nothing (E17, E18).
func TestRepeatedReportOfAForgottenClaim(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 100)
	r.join(1)
	again := func(what string, c model.Claim, counts bool) {
		t.Helper()
		r.told = nil
		commits := r.commits
		b.report(c)
		r.settle()
		if errs := b.reportAnswers(c); len(errs) != 1 || counts != (errs[0] == nil) || !counts && !fault.Is(errs[0], fault.NotOwned) {
			t.Errorf("%s: the report is answered %v", what, errs)
		}
		if r.commits != commits {
			t.Errorf("%s: the report writes something", what)
		}
		token := what + " by mail"
		r.send(*engine.ReportMessage(&model.TaskReport{Ref: c.Ref}), token)
		r.settle()
		if a := r.answers[token]; counts != (a.Err == nil) || !counts && !fault.Is(a.Err, fault.NotOwned) && !fault.Is(a.Err, fault.NotFound) {
			t.Errorf("%s: the report by mail is answered %+v", what, a)
		}
	}

	a := key("wf")
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t"), taskCommand("given up")))
	r.settle()
	cs := b.claims()
	b.report(cs[0])
	r.settle()
	r.turn(a, commandTurn(model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: "given up"}}))
	r.settle()
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	again("closed", cs[0], true)
	again("closed, withdrawn", cs[1], false)
	never := cs[0]
	never.Ref.Claim = 77
	again("never", never, false)

	r.send(model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, "once more")
	r.settle()
	again("replaced", cs[0], true)
	again("replaced, withdrawn", cs[1], false)

	m := theTask("alone")
	r.send(m, "alone")
	r.settle()
	c := b.one()
	b.report(c)
	r.settle()
	m.Reuse = model.ReuseAlways
	r.send(m, "alone, again")
	r.settle()
	again("the task of a run that was replaced", c, true)

	many := key("many")
	r.startRun(many)
	var all []model.Command
	for i := range 90 {
		all = append(all, taskCommand(fmt.Sprint("t", i)))
	}
	r.turn(many, model.Turn{Commands: all})
	r.settle()
	cs = b.claims()
	for i := range cs {
		b.report(cs[i])
	}
	r.settle()
	if len(cs) != 90 {
		t.Fatalf("%d claims", len(cs))
	}
	again("forgotten by an open run", cs[0], true)
	again("remembered by an open run", cs[89], true)
}

// A lane was fenced and does not know it. It gets a report of a claim that the next owner has made.
// The lane commits before it answers, and the commit fails. So it neither refuses the report nor
// stops the worker, and the worker keeps the report for the next owner. A lane that still owns the
// shard refuses a claim that does not exist.
func TestReportOfAClaimOfTheNextOwner(t *testing.T) {
	t.Parallel()
	known := func(r *rig, b *bench) model.ClaimRef {
		r.send(theTask("t"), "t")
		r.settle()
		ref := b.one().Ref
		ref.Claim = 2
		return ref
	}

	report := func(r *rig, _ *bench, ref model.ClaimRef) {
		r.l.Report(r.now, 1, &model.TaskReport{Ref: ref})
	}
	attach := func(r *rig, _ *bench, ref model.ClaimRef) { r.l.Attach(r.now, ref, 1, "") }
	mail := func(r *rig, _ *bench, ref model.ClaimRef) {
		r.send(*engine.ReportMessage(&model.TaskReport{Ref: ref}), "mail")
	}

	for name, hand := range map[string]func(*rig, *bench, model.ClaimRef){"report": report, "attach": attach, "mail": mail} {
		// The next owner has ended the first claim of a run and made another.
		r, b := newBench(t, 1)
		ref := known(r, b)
		r.takenOver(ref, []model.Event{
			{Seq: 1, Kind: model.EventAttemptFailed, ID: ref.ID, Attempt: 1, Failure: &model.Failure{Message: "lost"}, Status: model.Terminated, Due: r.now},
			{Seq: 2, Kind: model.EventTaskClaimed, ID: ref.ID, Attempt: 2, Worker: "w@there"},
		})
		hand(r, b, ref)
		r.settle()
		r.wantNotOwner(b, name, ref)

		// The next owner has ended the run and started another.
		r, b = newBench(t, 1)
		ref = known(r, b)
		ref.Claim = 0
		ref.Run = r.takenOver(ref, nil)
		hand(r, b, ref)
		r.settle()
		r.wantNotOwner(b, name+" of an unknown run", ref)

		// The claim does not exist.
		r, b = newBench(t, 1)
		ref = known(r, b)
		commits := r.commits
		hand(r, b, ref)
		r.settle()
		if r.dead != nil || r.commits != commits+1 {
			t.Errorf("%s of a claim that does not exist: %d commits, dead %v", name, r.commits-commits, r.dead)
		}
		switch errs := b.reportAnswers(model.Claim{Ref: ref}); {
		case name == "report" && (len(errs) != 1 || !fault.Is(errs[0], fault.NotOwned)):
			t.Errorf("the report of a claim that does not exist is answered %v", errs)
		case name == "attach" && b.takeStops(false) != 1:
			t.Error("the worker of a claim that does not exist is not stopped")
		case name == "mail" && !fault.Is(r.answers["mail"].Err, fault.NotOwned):
			t.Errorf("the report by mail of a claim that does not exist is answered %v", r.answers["mail"].Err)
		}
	}
}

// takenOver fences the lane without its knowledge. The next owner appends events to the run of the
// claim. If there are no events, the next owner closes the run and starts another run, which
// takenOver returns.
func (r *rig) takenOver(ref model.ClaimRef, events []model.Event) (next model.RunID) {
	r.t.Helper()
	r.fence()
	id := model.NodeID{0: 9}
	reg, err := r.st.Register(r.t.Context(), store.NodeInfo{ID: id}, 1, time.Hour)
	if err != nil {
		r.t.Fatal(err)
	}
	if got, err := r.st.Acquire(r.t.Context(), id, reg.Epoch, []model.ShardID{0, 1, 2, 3}); err != nil || len(got) != shards {
		r.t.Fatal(got, err)
	}

	key := store.RunKey{Shard: ref.Address.Shard(shards), Run: ref.Run}
	number := int64(0)
	commit := func(b store.Batch) {
		number++
		b.Lane, b.Number, b.At = store.LaneRef{Node: id, Epoch: reg.Epoch}, number, r.now
		if _, err := r.st.Commit(r.t.Context(), &b); err != nil {
			r.t.Fatal(err)
		}
	}

	for _, e := range events {
		e.At = r.now
		commit(store.Batch{Events: []store.EventRow{{RunKey: key, Event: e}}})
	}
	if events == nil {
		next = model.RunID{0: 9}
		start := model.Start{Address: ref.Address, Run: next, Worker: "w@there", Task: theTask("").Task, At: r.now}
		commit(store.Batch{Closes: []store.CloseRow{{RunKey: key, Outcome: model.Outcome{Status: model.Terminated, At: r.now}}}})
		commit(store.Batch{Starts: []store.StartRow{{Shard: key.Shard, Start: start, Replaces: ref.Run}}})
	}
	return next
}

// wantNotOwner checks that the lane has found out that it is not the owner, and has refused
// nothing before.
func (r *rig) wantNotOwner(b *bench, what string, ref model.ClaimRef) {
	r.t.Helper()
	if r.dead == nil {
		r.t.Errorf("%s: the lane lives on", what)
	}
	for _, err := range b.reportAnswers(model.Claim{Ref: ref}) {
		if !errors.Is(err, lane.ErrNotOwner) {
			r.t.Errorf("%s: the report is answered %v", what, err)
		}
	}
	if a, ok := r.answers["mail"]; ok && !errors.Is(a.Err, lane.ErrNotOwner) {
		r.t.Errorf("%s: the report by mail is answered %+v", what, a)
	}
	if n := b.takeStops(false); n != 0 {
		r.t.Errorf("%s: the worker is stopped", what)
	}
}
