package lane

// maxKept is how many reports the lane keeps for one quarantined run.
const maxKept = 1000

// keep stores a report in memory until the quarantine of its run is over. No other party could
// repeat the report, so the lane must not drop it. The report moves from the budget of the lane to
// a budget for kept reports, so that it takes no room from other addresses. The worker also holds
// these bytes until the lane has answered its report. keep returns false if there is no room.
func (l *Lane) keep(e *entry, in *reportInput) bool {
	if !in.kept { // a kept report is already counted; this is a second quarantine
		mine := 0
		for _, other := range e.quarantine.reports {
			mine += other.held
		}
		if len(e.quarantine.reports) >= maxKept || mine+in.held > l.cfg.MaxKeptBytes/2 || l.budget.kept+in.held > l.cfg.MaxKeptBytes {
			return false
		}
		l.budget.keep(&in.inputBase)
	}
	e.quarantine.reports = append(e.quarantine.reports, in)
	return true
}
