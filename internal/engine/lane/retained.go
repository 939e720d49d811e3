package lane

import (
	"encoding/binary"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	expiredWalk = 1000 // runs that are looked at in one read
	expiredPage = 100  // runs that are removed at a time
	// between two reads or pages, and while there is more urgent work
	expiredPause = 50 * time.Millisecond
	// a look goes over this part of what its round has seen before, if that is more than a read
	expiredShare = 8
)

// retention removes closed runs whose time is over. No index says where they are, so the lane walks
// over the old runs of all its shards, in rounds. Once in a while it looks at as many as one read
// may see, and goes on at once as long as it finds some. It removes what it finds page by page. A
// page begins after the commit of the page before and a pause, so that retention takes a small and
// bounded share of the commits.
//
// A walk is long only if many old runs stay: open runs, and runs with a longer time of their own.
// Then the looks grow with the length of the walk, by an eighth each, so that the number of looks
// of a round grows with the logarithm of its length.
type retention struct {
	// of the next look, read or page; zero while one is under way, and before the first is planned
	at      model.Time
	looking bool            // a read is under way
	after   store.RunKey    // where the walk goes on; zero for the beginning
	walked  int             // runs that the round has looked at
	left    int             // runs that the look may still go over while it finds none
	more    bool            // the look is not over
	found   []store.RunHead // are to be removed
	pending int             // inputs of the page that are not finished
	removed int             // runs in this look
	keep    bool            // nothing may be removed: it is not known what time it is
}

// plan sets the time of the next look. The first one lies in the second half of the interval, so
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
