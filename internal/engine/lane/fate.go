package lane

import "github.com/perdure/perdure/internal/model"

// A report is answered the same however often it is made, because its answer may have been lost (E18). A run remembers its last claims; of others, and of runs that have
// ended and left memory, the history tells.

// claim is the claim that the input reports on; nil when it is no report.
func (in *input) claim() *model.ClaimRef {
	switch {
	case in.kind == inReport:
		return &in.task.report.Ref
	case in.kind == inMessage && in.message.Kind == model.MessageReport:
		return &in.message.Report.Ref
	}
	return nil
}

// asksForFate reports whether the input is a report about whose claim only the store can tell.
func (in *input) asksForFate(e *entry) bool {
	ref := in.claim()
	return ref != nil && in.fate == nil && !e.x.Knows(ref)
}

func (l *Lane) loadFate(e *entry, in *input) {
	e.loading = true
	l.loads.add(&Load{Kind: LoadFate, Shard: e.shard.id, Address: e.address, Claim: *in.claim(), entry: e, input: in})
}

// loadedFate lets the report pass for which it was read, unless it is not the next one any more.
func (l *Lane) loadedFate(ld *Load, r LoadResult) {
	e := ld.entry
	e.loading = false
	if len(e.backlog) == 0 {
		l.maybeDrop(e)
		return
	}
	if e.backlog[0] == ld.input {
		ld.input.fate = &r.Fate
	}
	l.schedule(e) // also what has taken its place: it waited for the read
}
