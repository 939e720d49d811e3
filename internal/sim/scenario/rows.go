package scenario

import (
	"github.com/perdure/perdure/internal/model"
)

// drawRows decides which rows cannot be read.
func (s *Scenario) drawRows() {
	s.Plan.Upgrades, s.Plan.NewEvents, s.Plan.Damage, s.Plan.BadPages = s.Chance(0.7), s.Pick(3), s.rate(0.1), s.Chance(0.4)
	s.Plan.LateUpgrade = s.Plan.Upgrades && s.Chance(0.4)
}

// IsNew reports whether only a newer build can read a message. The answer depends only on the
// content of the message, so it is the same wherever the message is stored. Every build can read
// reports of claims that may hold permits, because other tasks wait for these permits.
func (s *Scenario) IsNew(m *model.Message) bool {
	if !s.Plan.Upgrades || m.Kind == model.MessageNothing || m.Kind == model.MessageReport && s.Has(Gates) {
		return false
	}
	h := uint64(14695981039346656037)
	for _, t := range [...]string{m.To.Key, m.Name, m.ID, m.From.ID, string(m.From.Run[:]), string(m.Input.Data)} {
		for i := range len(t) {
			h = (h ^ uint64(t[i])) * 1099511628211
		}
	}
	return h>>20%10 == 0
}
