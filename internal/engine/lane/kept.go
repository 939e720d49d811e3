package lane

// maxKept is how many reports the lane keeps for one quarantined run.
const maxKept = 1000

// keep holds a report back until the quarantine of its run is over. Only its worker could repeat
// the report, so the lane must not drop it. The report leaves the budget of the lane for one of its
// own, so that neighbours have theirs; the worker holds the same bytes until its report is settled.
// keep reports false when there is no room.
func (l *Lane) keep(e *entry, in *reportInput) bool {
	if !in.kept { // otherwise it had its place before, and the lane has tried the run in vain
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
