package lane

import "github.com/perdure/perdure/internal/model"

// Waiters returns the number of addresses with waiting callers.
func (l *Lane) Waiters() int { return len(l.waiters.at) }

// Queries returns the number of unanswered queries.
func (l *Lane) Queries() int { return len(l.questions.open) }

// Entries returns the number of addresses in memory.
func (l *Lane) Entries() int { return len(l.entries) }

// Watchers returns the number of watched addresses.
func (l *Lane) Watchers() int { return len(l.watchers.at) }

// Resident returns the number of runs whose state is in memory.
func (l *Lane) Resident() (n int) {
	for _, e := range l.entries {
		if e.x != nil {
			n++
		}
	}
	return n
}

// Room returns how many bytes of histories workers hold, and how many runs wait for room.
func (l *Lane) Room() (used, line int) { return l.room.used, len(l.room.line) }

// Calls returns how many bytes of calls wait in memory for entities.
func (l *Lane) Calls() int { return l.budget.calls }

// LostLinks is the memory of lost connections.
type LostLinks = lostLinks

// MaxLostLinks bounds LostLinks.
const MaxLostLinks = maxLostLinks

// LinkGrace is how long requests may arrive over a lost connection.
const LinkGrace = linkGrace

// Add notes that a connection was lost.
func (ls *lostLinks) Add(now model.Time, link model.RunID) { ls.add(now, link) }

// Has reports whether a connection was lost.
func (ls *lostLinks) Has(link model.RunID) bool { return ls.has(link) }

// Forgot returns until when requests may arrive over lost connections that the lane has forgotten.
func (ls *lostLinks) Forgot() model.Time { return ls.forgot }

// Eras are the eras of a lane.
type Eras = eras

// NewEras returns eras of at most that many ids. draw draws their names.
func NewEras(most int, draw func() model.RunID) *Eras { return &eras{draw: draw, most: most} }

// Current returns the name of the current era.
func (x *eras) Current() string { return x.current() }

// Serve notes that the lane serves a request.
func (x *eras) Serve(id string) { x.serve(id) }

// IsNew reports whether a request certainly has not been served.
func (x *eras) IsNew(id string) bool { return x.isNew(id) }

// Kept returns how many ids the eras have noted.
func (x *eras) Kept() int { return len(x.served) + len(x.servedBefore) }
