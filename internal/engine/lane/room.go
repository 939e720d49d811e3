package lane

import (
	"github.com/perdure/perdure/internal/model"
)

// runBytes is roughly the memory of a run in its worker apart from its history.
const runBytes = 4 << 10

// room is the memory for histories that workers hold. A run without room waits in a line. If no
// other run takes room, a run always finds room, however large it is.
type room struct {
	limit int      // bytes that all histories together may have
	used  int      // bytes of runs that workers hold or that are being read for them
	line  []*entry // runs that wait for room, in order
	// makeRoom has taken all runs from workers that it could take. It finds no further runs until a
	// run changes.
	tried bool
}

// free reports whether another run may be read for a worker.
func (r *room) free() bool { return r.used < r.limit || r.used == 0 }

// weigh counts the memory that a worker needs for a run.
func (r *room) weigh(e *entry) {
	switch {
	case e.hold.free():
		r.reserve(e, 0)
	case e.x != nil: // without x, the lane is reading the state again
		r.reserve(e, runBytes+e.x.Bytes())
	}
}

// reserve gives a run n bytes of the room.
func (r *room) reserve(e *entry, n int) {
	r.used += n - e.hold.weight
	e.hold.weight = n
}

// guess returns the bytes that the lane reserves for a run while it reads the run.
func (r *room) guess(e *entry) int {
	if e.known && e.x != nil {
		return runBytes + e.x.Bytes()
	}
	return 16 * runBytes
}

// enter lets a run wait for room.
func (r *room) enter(e *entry) {
	e.wait.reasons = []model.Reason{{Code: model.WaitTurn}}
	if !e.wait.room {
		e.wait.room = true
		r.line = append(r.line, e)
	}
}

// next takes the first run from the line. It returns nil if that run no longer waits.
func (r *room) next() *entry {
	e := r.line[0]
	r.line[0] = nil
	if r.line = r.line[1:]; len(r.line) == 0 {
		r.line = nil
	}
	if e.gone || !e.wait.room {
		return nil
	}
	e.wait.room = false
	return e
}
