package scenario

// drawHardships decides which hardships the simulation has, and how hard they are.
func (s *Scenario) drawHardships() {
	if s.Opts.Calm || s.Opts.Plain {
		return
	}

	s.pickHardships()
	s.Plan.Forgets = s.Has(RequestIDs) && s.Chance(0.25)
	if s.Has(BadRows) {
		s.drawRows()
	}
	if s.Has(LargeCommits) {
		s.drawSize()
	}
	if s.Has(ClockJumps) {
		s.drawClock()
	}
	if s.Has(Poison) {
		s.Plan.Lasting = 1 + s.Pick(2)
	}
	if s.Has(Flood | LargeReports) {
		s.drawFlood()
	}
	if s.Has(FalseDeath) {
		s.Plan.Lies = 1 + s.Pick(3)
	}
	if s.Has(Damage) {
		s.drawDamage()
	}
}
