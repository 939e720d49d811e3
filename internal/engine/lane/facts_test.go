package lane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// count counts the facts that the lane reports.
func (r *rig) count(facts []lane.Fact) {
	if r.facts == nil {
		r.facts, r.landed = map[string]int{}, map[string]int{}
	}

	for i := range facts {
		f := &facts[i]
		switch f.Kind {
		case lane.FactBatch:
			r.facts["batches"]++
		case lane.FactStarted:
			r.facts["started"]++
		case lane.FactClosed:
			r.facts["closed "+f.Status.String()]++
		case lane.FactStep:
			r.facts["steps"]++
		case lane.FactTimer:
			r.facts["timers"]++
			if f.Took() < 0 {
				r.t.Errorf("a timer fired %s before it was due", -f.Took())
			}
		case lane.FactSubmitted:
			r.facts["tasks"]++
		case lane.FactClaimed:
			r.facts["claims"]++
		case lane.FactAttempt:
			r.ended = append(r.ended, f.Outcome)
		case lane.FactDead:
			r.facts["dead"]++
		case lane.FactRemoved:
			r.facts["removed"] += f.N
		case lane.FactMessage:
			r.messages++
		case lane.FactCall, lane.FactHandOver, lane.FactLocked, lane.FactUnlocked:
			r.entityFacts = append(r.entityFacts, factLine(f))
		default:
		}
	}
}

// counts counts the facts that follow from the rows that the store has committed.
func (r *rig) counts(b *store.Batch, res store.Committed) {
	add := func(what string, n int) {
		if n > 0 {
			r.landed[what] += n
		}
	}

	add("batches", 1)
	tasks := 0
	for i := range b.Starts {
		if b.Starts[i].Start.Task != nil {
			tasks++
			if b.Starts[i].Start.Worker != "" {
				add("claims", 1)
			}
		}
	}

	add("started", len(b.Starts)-len(res.Existing)-tasks)
	add("tasks", tasks)
	for i := range b.Closes {
		if row := r.row(b.Closes[i].Run); row == nil || row.Start.Task == nil {
			add("closed "+b.Closes[i].Outcome.Status.String(), 1)
		}
	}

	for i := range b.Events {
		switch e := &b.Events[i].Event; e.Kind {
		case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed:
			add("steps", 1)
		case model.EventTimerFired:
			add("timers", 1)
		case model.EventTaskScheduled:
			add("tasks", 1)
		case model.EventTaskClaimed:
			add("claims", 1)
		default:
		}
	}

	add("dead", len(b.Dead))
	add("removed", len(b.Deletes))
}

// wantFacts checks that the lane has reported each fact of the committed rows exactly once, even if
// the store refused batches or lost answers before.
func (r *rig) wantFacts() {
	r.t.Helper()
	if !r.cfg.Watched {
		return
	}
	// A lane that dies does not know which rows are committed.
	if diff := cmp.Diff(r.landed, r.facts); diff != "" && r.dead == nil {
		r.t.Errorf("facts (-committed +reported):\n%s", diff)
	}
	r.wantChanges()
}

// The lane applies a refused batch again in parts, and looks up a commit whose answer was lost. In
// both cases it reports each fact once.
func TestFactsAreToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.join(1)
	for _, k := range []string{"a", "b", "c", "d"} {
		r.start(key(k), k)
	}
	refusals := 2

	r.refuse = func(*store.Batch) error {
		if refusals--; refusals >= 0 {
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}

	r.settle()
	r.wantFacts()
	if r.facts["started"] != 4 {
		t.Errorf("the lane reported %d starts, want 4", r.facts["started"])
	}
	r.start(key("e"), "e")
	r.flush()
	r.landUnheard()
	r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "the answer was lost"))
	r.flush()
	r.settle()
	r.wantFacts()
	if r.facts["started"] != 5 {
		t.Errorf("the lane reported %d starts, want 5", r.facts["started"])
	}
}

// A client repeats a start, and the commit shows that the address already has a run. The lane
// reports no second start, and reports the message of the client once.
func TestFactsOfAStartThatWasNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.messages = 0
	r.start(a, "again") // the lane does not remember the run, so it assumes that the address has none
	r.settle()
	if got := r.answers["again"]; got.Err != nil || !got.Answer.Existing {
		t.Fatalf("the answer to the repeated start is %+v", got)
	}

	r.wantFacts()
	if r.facts["started"] != 1 || r.messages != 1 {
		t.Errorf("the lane reported %d starts in total, and %d messages for the repeated start; want 1 and 1", r.facts["started"], r.messages)
	}
}

// A worker reports a failure that looks like a loss or a time-out, because its activity returned
// the failure of another task. The lane reports this attempt as failed. It reports an attempt as
// lost or timed out only if the engine itself has detected the loss or the time-out.
func TestOutcomesOfAttempts(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1, func(c *lane.Config) { c.Watched = true })
	r.send(theTask("t", func(s *model.TaskSpec) { s.ToClose = time.Minute }), "t")
	r.settle()

	next := func() model.Claim {
		r.pass(10 * time.Second)
		b.propose()
		r.settle()
		return b.one()
	}

	b.report(b.one(), func(rep *model.TaskReport) {
		rep.Failure = &model.Failure{Kind: "unavailable", Type: model.FailureLost}
	})
	r.settle()
	b.report(next(), func(rep *model.TaskReport) {
		rep.Failure = &model.Failure{Kind: model.FailureTimeout, Type: "timeout.heartbeat"}
	})
	r.settle()
	next()
	r.pass(2 * time.Minute)
	b.propose() // no report comes
	r.settle()
	b.report(next(), func(rep *model.TaskReport) { rep.Failure = &model.Failure{Type: model.FailurePoison, Permanent: true} })
	r.settle()
	if want := []lane.Outcome{lane.Failed, lane.Failed, lane.TimedOut, lane.Failed}; !slices.Equal(r.ended, want) {
		t.Errorf("attempts ended %v, want %v", r.ended, want)
	}
}
