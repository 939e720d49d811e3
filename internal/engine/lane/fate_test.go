package lane_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A report whose answer was lost is answered as the first one was, also when its run has ended and
// left memory, when another run has the key, and when the run remembers so many later claims that
// it has forgotten this one; by way of another node, too. A claim that was taken away, or that
// never was, stays refused. Nothing is written (E17, E18).
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
		if errs := b.settled(c); len(errs) != 1 || counts != (errs[0] == nil) || !counts && !fault.Is(errs[0], fault.NotOwned) {
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
	r.began(a)
	r.turn(a, does(taskCommand("t"), taskCommand("given up")))
	r.settle()
	cs := b.claims()
	b.report(cs[0])
	r.settle()
	r.turn(a, does(model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: "given up"}}))
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
	r.began(many)
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
