package oracle

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Some starts have options: a delay, a time-out of the execution, a policy that repeats failed
// runs. The rules are: no worker gets a run before its start time, and its code records nothing
// before that time (T1). An execution with a time-out fails at the time-out or later, never
// earlier, and does not continue after that. All runs of the execution share the time-out (T2).
// After a failed run, another attempt with the same input follows, as long as the policy allows it
// (T3).

// patienceAfterTimeout is how long an execution may continue after its time-out once all faults
// have ended. The execution needs this time because another node may have to take over first. If
// the store's clock has jumped, that may take four lengths of the longest lease.
const patienceAfterTimeout = 10 * kernel.Second

// begins is the id of the timer that lets the code of a run begin.
var begins = core.BirthTimers(&model.Start{Begins: 1})[0].ID

// beginTimer returns the id of the timer that lets the code of a run begin. The id is empty if the
// run has no start time, or if the code began in the past of the run.
func beginTimer(st *model.Start) string {
	if st.Begins <= st.At || slices.ContainsFunc(st.Carried, func(e model.Event) bool { return e.ID != "" }) {
		return ""
	}
	return begins
}

// Waiting reports whether a run still waits for its start time, according to the store.
func (r *Run) Waiting() bool {
	id := beginTimer(&r.Start)
	return id != "" && r.timer(id) >= 0
}

// startTerms checks the options of a run that starts.
func (l *ledger) startTerms(r, before *Run) {
	st := &r.Start
	if st.Begins > st.At && st.Attempt == 0 {
		l.s.Did(scenario.OpDelayed)
	}
	if st.Previous.IsZero() || !st.Source.IsZero() {
		return
	}
	if st.Expires != before.Start.Expires {
		l.Fail("T2: %s times out at %s, and the run before it at %s", r.ID, st.Expires, before.Start.Expires)
	}

	// A next run is another attempt if the run before it failed.
	failed := before.outcome.Failure != nil
	switch tries := before.Start.Tries(); {
	case !failed && st.Attempt != 0:
		l.Fail("T3: %s is attempt %d, and the run before it did not fail", r.ID, st.Attempt)
	case !failed:
	case before.retry() == nil || tries >= before.retry().MaxAttempts:
		l.Fail("T3: %s repeats %s, which was the last of its attempts: %d", r.ID, before.ID, tries)
	case st.Attempt != tries+1 || !st.Input.Equal(before.Start.Input):
		l.Fail("T3: %s repeats attempt %d as attempt %d, or with another input", r.ID, tries, st.Attempt)
	case st.Begins <= before.outcome.At:
		l.Fail("T3: %s begins at %s, without a pause after the attempt before it", r.ID, st.Begins)
	default:
		l.s.Did(scenario.OpRunRepeated)
	}
}

// bornWhole checks that the runs that a batch starts have the timers of their options.
func (l *ledger) bornWhole(b *store.Batch) {
	for i := range b.Starts {
		r := l.Runs[b.Starts[i].Start.Run]
		if r == nil || !r.Open() {
			continue
		}
		if want := expiry(&r.Start); want != 0 && want != r.Start.Expires && r.Start.Previous.IsZero() {
			l.Fail("T2: %s times out at %s, and its options say %s", r.ID, r.Start.Expires, want)
		}
		for _, t := range core.BirthTimers(&r.Start) {
			if r.timer(t.ID) < 0 && !stops(b, r.ID, t.ID) {
				l.Fail("T1: %s starts without its timer %q", r.ID, t.ID)
			}
		}
		if id := beginTimer(&r.Start); (id != "") != (r.timer(begins) >= 0) && !stops(b, r.ID, begins) {
			l.Fail("T1: %s begins at %s, and its timer %q is there: %v", r.ID, r.Start.Begins, begins, id == "")
		}
	}
}

// expiry returns the time at which the execution of a first run times out; zero for never.
func expiry(st *model.Start) model.Time {
	if st.Terms == nil || st.Terms.Timeout == 0 {
		return 0
	}
	return max(st.At, st.Begins).Add(st.Terms.Timeout)
}

// retry returns the policy that repeats the run if it fails, or nil.
func (r *Run) retry() *model.Retry {
	if r.Start.Terms == nil {
		return nil
	}
	return r.Start.Terms.Retry
}

// endedElsewhere notes that a run was imported after its end. Its program ends like the program of
// the run from which it was imported. The code of that run may never have begun.
func (l *ledger) endedElsewhere(r *Run) {
	src := l.Runs[r.Start.Source.Run]
	r.unbegun = src != nil && src.unbegun && r.outcome.Status == src.outcome.Status && r.outcome.At == src.outcome.At
}

// closeTerms checks the end of a run. The ledger still has the timers of the run.
func (l *ledger) closeTerms(b *store.Batch, r *Run) {
	o, waits := &r.outcome, r.Waiting()
	r.unbegun = waits && o.Status == model.Canceled
	switch {
	case r.unbegun:
		l.s.Did(scenario.OpCanceledEarly)
	case timedOut(o):
		if r.Start.Expires == 0 || o.At < r.Start.Expires || r.Start.Expires > l.s.FairTime() {
			l.Fail("T2: %s times out at %s, and was to at %s", r.ID, o.At, r.Start.Expires)
		}
		l.s.Did(scenario.OpTimedOut)
	case o.Status == model.Failed && r.retry() != nil && !r.Cancel && !cancels(b, r):
		// another attempt would have begun after the time-out
		if last := r.Start.Tries() >= r.retry().MaxAttempts; !last && r.Start.Expires == 0 {
			l.Fail("T3: %s fails for good in attempt %d of %d", r.ID, r.Start.Tries(), r.retry().MaxAttempts)
		}
	}
}

// cancels reports whether a batch records a cancel request of a run.
func cancels(b *store.Batch, r *Run) bool {
	return slices.ContainsFunc(b.Events, func(e store.EventRow) bool {
		return e.Run == r.ID && e.Event.Kind == model.EventCancelRequest
	})
}

// repeats reports whether a batch starts another attempt of a run.
func repeats(b *store.Batch, r *Run) bool {
	return slices.ContainsFunc(b.Starts, func(row store.StartRow) bool {
		return row.Start.Run == r.outcome.Next && row.Start.Source.IsZero()
	})
}

// timedOut reports whether an execution failed because of its time-out.
func timedOut(o *model.Outcome) bool {
	return o.Status == model.Failed && o.Failure != nil && o.Failure.Type == model.TimeoutExecution
}

// stopBegin checks that the timer that lets a run begin does not fire early.
func (l *ledger) stopBegin(b *store.Batch, r *Run, id string) {
	if id == beginTimer(&r.Start) && !closes(b, r.ID) && r.Start.Begins > l.s.FairTime() {
		l.Fail("T1: %s begins before its time, %s", r.ID, r.Start.Begins)
	}
}

// inTime checks that the code of a run records nothing before its start time and nothing long after
// its time-out.
func (l *ledger) inTime(b *store.Batch, r *Run, e *model.Event) {
	if e.ID != "" && r.Waiting() && !stops(b, r.ID, beginTimer(&r.Start)) {
		l.Fail("T1: event %d (%s) of %s, which begins at %s", e.Seq, e.Kind, r.ID, r.Start.Begins)
	}

	late := l.s.Now - max(int64(r.Start.Expires)-kernel.Epoch-l.s.Shift, l.s.Plan.FaultsUntil)
	longer := 4 * (l.s.LongestTtl() - l.s.Plan.Ttl).Microseconds()
	if r.Start.Expires != 0 && l.s.Healed && late > patienceAfterTimeout+longer && !r.Address.Sick {
		l.Fail("T2: event %d (%s) of %s is %s after its time-out", e.Seq, e.Kind, r.ID, kernel.Microseconds(late))
	}
}
