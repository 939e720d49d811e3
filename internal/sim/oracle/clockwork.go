package oracle

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// FairTime is the latest time that the clock of a node may show. It follows from the clock of the
// store, without jumps that will be undone.
func (s *Oracle) FairTime() model.Time {
	return model.Time(kernel.Epoch + s.Now + max(s.Shift-s.passing(), s.Lasting) + s.skew())
}

// passing is how much of the shift of the store's clock (its difference from true time) will be
// undone.
func (s *Oracle) passing() int64 {
	if s.Now < s.Jumping {
		return s.Shift - s.Lasting
	}
	return 0
}

// skew is how far the clock of a node may be ahead of the store's clock. It is the drift since the
// last renewal plus the error of the first reading, which is at most as long as the call that read
// the clock.
func (s *Oracle) skew() int64 {
	skew := int64(s.Plan.Drift*float64(s.Now)) + s.Tripped + 1
	if s.Slewed {
		skew += s.Now / 200
	}
	return skew
}
