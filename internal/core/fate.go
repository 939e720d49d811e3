package core

import "github.com/perdure/perdure/internal/model"

// Fate is what has become of a claim. It is told by what is stored behind the claim, so that
// anybody can tell who reads it: the owner of the run, of a report whose claim it does not
// remember, and the node of a worker whose run is somebody else's by now.
type Fate struct {
	// Over tells that the claim is held no more, and Reported that it is because of what its worker
	// reported.
	Over, Reported bool
	// Canceled tells that the worker has been asked to come to an end.
	Canceled bool
	// Status is that of the run.
	Status model.Status
}

// Follow goes on with a page of the history that lies behind the claim. It reports whether the rest
// need not be read.
func (f *Fate) Follow(ref *model.ClaimRef, alone bool, page []model.Event) (done bool) {
	for i := range page {
		switch e := &page[i]; {
		case e.Seq <= ref.Claim || f.Over:
		case e.Kind == model.EventCancelRequest:
			// otherwise the code decides, and gives up on its tasks one by one
			f.Canceled = f.Canceled || alone
		case e.ID != ref.ID:
		case e.Kind == model.EventTaskReturned:
			f.Over, f.Reported = true, true
		case e.Kind == model.EventWithdrawn:
			f.Over = true
		case e.Ref == ref.Claim: // how an attempt ended names its claim
			f.Over, f.Reported = true, byReport(e)
		}
	}

	return f.Over
}

// End completes it with how the run stands: whatever is open when a run ends is over.
func (f *Fate) End(ref *model.ClaimRef, alone bool, o *model.Outcome) {
	f.Status = o.Status
	if f.Over || !o.Status.Closed() {
		return
	}
	f.Over = true
	f.Reported = alone && ref.ID == model.TaskStep && o.Status != model.Terminated && o.Seen == ref.Claim
}

// Knows reports whether the state tells by itself what becomes of a report of the claim.
func (x *Execution) Knows(ref *model.ClaimRef) bool {
	if x == nil || x.Start.Run != ref.Run {
		return false
	}
	t := x.Task(ref.ID)
	return t != nil && t.Held && t.Claim == ref.Claim || x.hasEnded(ref.ID, ref.Claim)
}
