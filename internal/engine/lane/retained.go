package lane

import (
	"encoding/binary"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	expiredWalk = 1000 // runs that one read looks at
	expiredPage = 100  // runs that are removed together
	// between two reads or pages, and while there is more urgent work
	expiredPause = 50 * time.Millisecond
	// a look covers one run in this many of those that its round has seen, if that is more than one
	// read
	expiredShare = 8
)

// retention removes closed runs after their retention time. No index finds them, so the lane walks
// over the old runs of all its shards, in rounds. From time to time it takes a look: one read, and
// further reads as long as it finds some. It removes what it finds page by page. Each page starts
// after the commit of the page before and a pause, so that retention takes a small and bounded
// share of the commits.
//
// A walk is long only if many old runs stay: open runs, and runs with a longer retention time. Then
// the looks grow with the length of the walk, by an eighth each, so that the number of looks in a
// round grows with the logarithm of its length.
type retention struct {
	// time of the next look, read or page; zero while one is in flight, and before the first is
	// planned
	at      model.Time
	looking bool            // a read is in flight
	after   store.RunKey    // where the walk continues; zero for the beginning
	walked  int             // runs that the round has looked at
	left    int             // runs that the look may still cover while it finds none
	more    bool            // the look is not over
	found   []store.RunHead // runs to remove
	pending int             // inputs of the page that are not finished
	removed int             // runs in this look
	keep    bool            // nothing may be removed, because the time is in doubt
}

// plan sets the time of the next look. The first look is in the second half of the interval, so
// that nodes that started together do not look together.
func (r *retention) plan(cfg *Config, now model.Time) {
	spread := binary.BigEndian.Uint64(cfg.Ref.Node[8:]) + uint64(cfg.Ref.Lane)*uint64(cfg.RetainEvery)/uint64(cfg.Lanes)
	r.at = now.Add(cfg.RetainEvery/2 + time.Duration(spread%uint64(cfg.RetainEvery/2+1)))
}

// finish notes that an input of a page is finished.
func (r *retention) finish(in input) {
	if _, ok := in.(*removalInput); ok {
		r.pending--
	}
}
