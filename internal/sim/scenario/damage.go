package scenario

// damagePlan has the probabilities of damage for the kinds of rows that the feature bad-rows does
// not damage.
type damagePlan struct {
	BadMessages float64 // for messages between shards
	BadDead     float64 // for dead tasks
	BadReplies  float64 // for remembered answers
	BadSettings float64 // for versions of rules, states of breakers, and pages of limits
}

// drawDamage decides how often these rows are damaged.
func (s *Scenario) drawDamage() {
	s.Plan.damagePlan = damagePlan{BadMessages: s.rate(0.6), BadDead: s.rate(0.6), BadReplies: s.rate(0.3), BadSettings: s.rate(0.2)}
}
