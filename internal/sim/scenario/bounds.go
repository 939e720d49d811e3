package scenario

import (
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// drawFlood decides how much input arrives at the same time.
func (s *Scenario) drawFlood() {
	s.Plan.Lane.MaxBytes = kernel.OneOf(s, 2<<10, 4<<10, 8<<10)
	if s.Has(Flood) {
		s.Plan.Floods = 1 + s.Pick(2)
	}
	if s.Has(LargeReports) {
		s.Plan.Heavy = s.Plan.Lane.MaxBytes/2 + s.Pick(s.Plan.Lane.MaxBytes)
		s.Plan.Lane.MaxKeptBytes = 8 * s.Plan.Lane.MaxBytes // reports for quarantined runs
	}
}

// heavyEncoding marks payloads whose size is larger than their data.
const heavyEncoding = "heavy"

// Heavy makes a payload n bytes larger.
func Heavy(p model.Payload, n int) model.Payload {
	return model.Payload{Encoding: heavyEncoding, Data: append(append([]byte(nil), p.Data...), make([]byte, n)...)}
}

// Output returns the output of an attempt. It names the attempt, and is large in simulations with
// large reports.
func (s *Scenario) Output(c *model.Claim) model.Payload {
	out := model.Payload{Data: fmt.Appendf(nil, "%s %s %d", c.Ref.Run, c.Ref.ID, c.Ref.Claim)}
	if s.Plan.Heavy > 0 {
		out = Heavy(out, s.Plan.Heavy)
	}
	return out
}
