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
	// the pause between two reads or pages, also used while there is more urgent work
	expiredPause = 50 * time.Millisecond
	// a look (see retention) covers an eighth of the runs that its round has seen, if that is more
	// than one read
	expiredShare = 8
)

// retention removes closed runs after their retention time. No index finds them, so the lane walks
// over the old runs of all its shards, in rounds. From time to time it takes a look: one read, and
// further reads as long as it finds runs to remove. It removes these runs page by page. After the
// commit of a page the lane pauses before the next page, so that retention takes a small and
// bounded share of the commits.
//
// A round is long only if many old runs stay: open runs, and runs with a longer retention time. In
// a long round each look covers an eighth of the runs seen so far. So the number of looks grows
// only with the logarithm of the length of the round.
type retention struct {
	// time of the next look, read or page; zero while a read or page is in flight, and before the
	// first is planned
	at      model.Time
	looking bool            // a read is in flight
	after   store.RunKey    // where the walk continues; zero for the beginning
	walked  int             // runs that the round has looked at
	left    int             // how many runs the look may still cover without finding one to remove
	more    bool            // the look is not over
	found   []store.RunHead // runs to remove
	pending int             // inputs of the page that are not finished
	removed int             // runs that this look has removed
	keep    bool            // the lane may remove nothing, because the store's clock is in doubt
}

// plan sets the time of the next look: half of RetainEvery from now, plus a part of the other half
// that depends on the node and the lane. So nodes that started together, and the lanes of a node,
// do not look together.
func (r *retention) plan(cfg *Config, now model.Time) {
	half := uint64(cfg.RetainEvery / 2)
	spread := binary.BigEndian.Uint64(cfg.Ref.Node[8:])%(half+1) + uint64(cfg.Ref.Lane)*half/uint64(cfg.Lanes)
	r.at = now.Add(cfg.RetainEvery/2 + time.Duration(spread%(half+1)))
}

// finish notes that an input of a page is finished.
func (r *retention) finish(in input) {
	if _, ok := in.(*removalInput); ok {
		r.pending--
	}
}
