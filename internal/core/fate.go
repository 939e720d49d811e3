package core

import "github.com/perdure/perdure/internal/model"

// Fate is how a claim ended, read from the events that follow the claim in the store. Every process
// can compute it. The owner of a run computes the fate when it receives a report for a claim that
// it no longer remembers. The node of a worker computes the fate when another node has become the
// owner of the run.
type Fate struct {
	// Over says that the claim has ended. Reported says that the report of its worker ended it.
	Over, Reported bool
	// Canceled says that the worker has been asked to stop.
	Canceled bool
	// Status is the status of the run.
	Status model.Status
}

// Follow reads one page of the history after the claim. It reports true when the rest need not be
// read.
func (f *Fate) Follow(ref *model.ClaimRef, alone bool, page []model.Event) (done bool) {
	for i := range page {
		switch e := &page[i]; {
		case e.Seq <= ref.Claim || f.Over:
		case e.Kind == model.EventCancelRequest:
			// A cancel request of a workflow does not stop its tasks. The code decides, and
			// withdraws tasks one by one.
			f.Canceled = f.Canceled || alone
		case e.ID != ref.ID:
		case e.Kind == model.EventTaskReturned:
			f.Over, f.Reported = true, true
		case e.Kind == model.EventWithdrawn:
			f.Over = true
		case e.Ref == ref.Claim: // the end of an attempt names its claim
			f.Over, f.Reported = true, byReport(e)
		}
	}

	return f.Over
}

// End adds the outcome of the run: a claim that is open when its run ends is over.
func (f *Fate) End(ref *model.ClaimRef, alone bool, o *model.Outcome) {
	f.Status = o.Status
	if f.Over || !o.Status.Closed() {
		return
	}
	f.Over = true
	f.Reported = alone && ref.ID == model.TaskStep && o.Status != model.Terminated && o.Seen == ref.Claim
}

// HasFate reports whether the state in memory is enough to answer a report for the claim. If it is
// not, the owner must read the store.
func (x *Execution) HasFate(ref *model.ClaimRef) bool {
	if x == nil || x.Start.Run != ref.Run {
		return false
	}
	t := x.Task(ref.ID)
	return t != nil && t.Held && t.Claim == ref.Claim || x.hasEnded(ref.ID, ref.Claim)
}
