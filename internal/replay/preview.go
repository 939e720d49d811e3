package replay

import "github.com/perdure/perdure/internal/model"

// The engine may give the worker a preview of events, which are not committed yet. The code
// continues with them, and the worker reports turns. What leaves the worker in another way waits
// until the events are durable: no body of a step starts, the worker answers no query, and it does
// not release the run. If the engine cannot store the events, it evicts the run.

// Previews reports whether the worker accepts previews. In tests of users' code it does not, so
// that a run stops at each of its commits.
func (w *Worker) Previews() bool { return w.cfg.Checks == nil && !w.cfg.OwnerRestarts }

// Preview brings events that are not committed yet.
func (w *Worker) Preview(id model.RunID, generation uint64, events []model.Event) {
	if r := w.findRun(id, generation); r != nil {
		r.deliver(events, false)
	}
}

// Confirm says that all events up to a position are durable.
func (w *Worker) Confirm(id model.RunID, generation uint64, position int64) {
	if r := w.findRun(id, generation); r != nil {
		r.confirm(position)
	}
}

// hasUnreported reports whether a body runs, or has ended and its outcome is not reported yet.
func (r *run) hasUnreported() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running.Load() > 0 || r.flushing || len(r.done) > 0
}

// confirm notes that the events up to a position are durable. The code may now start steps.
func (r *run) confirm(position int64) {
	r.mu.Lock()
	if r.evicted || position <= r.confirmed {
		r.mu.Unlock()
		return
	}
	r.confirmed = position
	r.wakeLocked()
}

// isCommitted reports whether everything that the code has seen is durable.
func (m *machine) isCommitted() bool { return len(m.ahead) == 0 && int64(m.fed) <= m.r.durable }
