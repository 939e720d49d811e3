package singleton

import "time"

// watch judges from the reads of a register whether its holder can still be running. It measures
// time only on the clock of this process.
type watch struct {
	epoch, beat int64
	since       time.Time // the time of the first read that showed this epoch and beat
	seen        bool
}

// isFree reports whether this candidate may claim the register whose state s it has just read. self
// is the id of this candidate, which does not run the code at this time. gone reports whether a
// process is provably gone; it may be nil.
func (w *watch) isFree(s *State, now time.Time, self string, gone func(process string) bool) bool {
	if !w.seen || s.Epoch != w.epoch || s.Beat != w.beat {
		w.epoch, w.beat, w.since, w.seen = s.Epoch, s.Beat, now, true
	}

	switch {
	case s.Holder == "" || s.Holder == self:
		return true
	case s.Process != "" && gone != nil && gone(s.Process):
		return true
	default:
		return now.Sub(w.since) >= s.Lease
	}
}
