package scenario

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// DrawTerms draws the options of a start: a delay, a time-out of the execution, and a policy that
// repeats failed runs. It returns nil for a start without options.
func (s *Scenario) DrawTerms() *model.Terms {
	if !s.Has(StartOptions) || s.Chance(0.3) {
		return nil
	}

	t := &model.Terms{}
	if s.Chance(0.5) {
		t.Delay = kernel.Microseconds(s.Between(1, 600) * kernel.Millisecond)
	}
	if s.Chance(0.4) {
		t.Timeout = kernel.Microseconds(s.Between(5, 3000) * kernel.Millisecond)
	}
	if s.Chance(0.6) {
		r := model.NewRetry(2+s.Pick(3), kernel.Microseconds(s.Between(1, 80)*kernel.Millisecond), 0, 2, 0.1)
		t.Retry = &r
	}
	return t
}
