package oracle

import (
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// In some simulations workers have versions and offer their workflows as pinned: the first worker
// that continues a run binds the run to its version. Deploys take all workers of one version away
// and bring them back later. The rules are: no worker gets a run that is pinned to another version,
// unless the code of the worker no longer pins the workflow. A run is pinned once. A run that
// waited for its version continues.

// recordPin records that a run is bound to a version.
func (l *ledger) recordPin(r *Run, e *model.Event) {
	if r.Pin != "" {
		l.Fail("I20: %s is pinned to %s, and was to %s", r.ID, e.Name, r.Pin)
	}
	r.Pin = e.Name
	l.s.Did(scenario.OpPinned)
}

// RecordExplanation records that a run waits for a worker of its version.
func (s *Oracle) RecordExplanation(a *Address, why model.Reason) {
	if r := a.Current; why.Code == model.WaitWorker && strings.HasPrefix(why.Detail, "version ") && r != nil && r.Open() && r.Pin != "" {
		r.Stranded = true
		s.Did(scenario.OpStranded)
	}
}
