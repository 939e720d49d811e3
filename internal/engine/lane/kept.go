package lane

// maxKept is how many reports the lane keeps for one quarantined run.
const maxKept = 1000

// keep holds a report back until the quarantine of its run is over. The report is a fact that only its worker can tell again, so it
// must not be dropped. It leaves the budget of the lane for one of its own, so that neighbours have theirs; the worker holds the
// same bytes until its report is settled. keep reports false when there is no room.
func (l *Lane) keep(e *entry, in *reportInput) bool {
	if !in.kept { // else it had its place before, and the run was tried in vain
		mine := 0
		for _, other := range e.quarantine.reports {
			mine += other.held
		}
		if len(e.quarantine.reports) >= maxKept || mine+in.held > l.cfg.MaxKeptBytes/2 || l.kept+in.held > l.cfg.MaxKeptBytes {
			return false
		}
		l.bytes -= in.held
		l.kept += in.held
		in.kept = true
	}
	e.quarantine.reports = append(e.quarantine.reports, in)
	return true
}
