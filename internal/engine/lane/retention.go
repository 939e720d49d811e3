package lane

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	expiredWalk  = 1000                  // runs that are looked at in one read
	expiredPage  = 100                   // runs that are removed at a time
	expiredPause = 50 * time.Millisecond // between two reads or pages, and while there is more urgent work
	expiredShare = 8                     // a look goes over this part of what its round has seen before, if that is more than a read
)

// retention removes closed runs whose time is over. Nothing tells where they are: the lane walks over the old runs of all its shards, in rounds. Once in a while it
// looks at as many as one read may see, and goes on at once as long as it finds some. What it finds goes page by page, a page when the one before is
// committed and after a pause, so that it takes a small and bounded share of the commits.
//
// What is found goes, so a walk is long only if many old runs stay: open ones, and those with a longer time of their own. Looks grow with the length
// of the walk then: by an eighth each, so that the number of looks of a round grows with the logarithm of its length.
type retention struct {
	at      model.Time      // of the next look, read or page; zero while one is under way, and before the first is planned
	looking bool            // a read is under way
	after   store.RunKey    // where the walk goes on; zero for the beginning
	walked  int             // runs that the round has looked at
	left    int             // runs that the look may still go over while it finds none
	more    bool            // the look is not over
	found   []store.RunHead // are to be removed
	pending int             // inputs of the page that are not dealt with
	removed int             // runs in this look
	keep    bool            // nothing may be removed: it is not known what time it is
}

// KeepAll has the lane remove no closed runs because of their age, or lets it remove them again. The caller uses it while the
// store's clock is in doubt.
func (l *Lane) KeepAll(keep bool) {
	r := &l.retention
	r.keep = keep
	if keep {
		r.found, r.more = nil, false
	}
}

// plan sets the time of the next look. The first one is somewhere in the second half of the interval, so that nodes that were started
// together do not look together.
func (r *retention) plan(cfg *Config, now model.Time) {
	spread := binary.BigEndian.Uint64(cfg.Ref.Node[8:]) + uint64(cfg.Ref.Lane)*uint64(cfg.RetainEvery)/uint64(cfg.Lanes)
	r.at = now.Add(cfg.RetainEvery/2 + time.Duration(spread%uint64(cfg.RetainEvery/2+1)))
}

// expire looks for runs whose time is over, and removes them, when it is time to.
func (l *Lane) expire(now model.Time) {
	r := &l.retention
	switch {
	case l.cfg.Retention == 0 || len(l.shards) == 0 || r.looking || r.pending > 0 || r.keep:
	case r.at == 0 && (r.more || len(r.found) > 0):
		r.at = now.Add(expiredPause)
	case r.at == 0:
		l.out.Removed += r.removed
		r.removed, r.left = 0, max(expiredWalk, r.walked/expiredShare)
		r.plan(&l.cfg, now)
	case now < r.at:
	case l.Full() || l.loads.crowded(l.cfg.MaxLoads) || l.open.rows() >= l.cfg.MaxBatchRows/2:
		r.at = now.Add(expiredPause)
	case len(r.found) > 0:
		r.at = 0
		n := min(expiredPage, len(r.found))
		page := r.found[:n]
		r.found = r.found[n:]
		l.removeExpired(now, page)
	default:
		r.at, r.looking = 0, true
		l.loads.add(&Load{
			Kind: LoadExpired, Shards: l.serving(), Until: now, Before: now.Add(-l.cfg.Retention), After: r.after, Limit: expiredWalk,
		})
	}
}

// loadedExpired takes note of what was found, and where the walk goes on. At the end of a round the look is over, unless there was more than one read may return.
func (l *Lane) loadedExpired(ld *Load, page store.Expired) {
	r := &l.retention
	r.looking = false
	if r.keep {
		return
	}
	r.found, r.after = page.Runs, page.Next
	r.walked += page.Walked
	r.left -= page.Walked
	if end := page.Next == (store.RunKey{}); end {
		r.walked, r.more = 0, len(page.Runs) >= ld.Limit
	} else {
		r.more = len(page.Runs) > 0 || r.left > 0
	}
}

// removeExpired has runs removed. That they are closed stays true whoever has written to the store since, and a run that is gone already is passed over.
func (l *Lane) removeExpired(now model.Time, page []store.RunHead) {
	byAddress := map[model.Address]*input{}
	var inputs []*input
	for _, h := range page {
		if l.misplaced(h.Shard, h.Address, "a closed run") {
			continue
		}
		in := byAddress[h.Address]
		if in == nil {
			in = &input{kind: inExpired, address: h.Address}
			byAddress[h.Address] = in
			inputs = append(inputs, in)
		}
		in.runs = append(in.runs, h.Run)
	}
	for _, in := range inputs {
		e := l.entry(in.address)
		if e == nil || e.shard.draining {
			continue
		}
		l.retention.pending++
		l.take(now, e, in)
	}
}

// applyExpired removes closed runs of an address. Its current run need not be known: when it is not, everything for the address waits for the commit, which
// may remove it, and finds out then.
func (l *Lane) applyExpired(e *entry, in *input) {
	if e.known && e.x != nil && slices.Contains(in.runs, e.x.Start.Run) {
		if e.x.Open() { // no run is opened again, so this is never so
			l.done(in)
			l.maybeDrop(e)
			return
		}
		l.setRun(e, nil)
	}
	e.removing = !e.known
	l.record(e, in, &core.Decision{Deletes: in.runs})
}

// removed ends the removal of runs of an address whose current run was not known. It may have been read meanwhile, for a worker, or be on its way from a read:
// perhaps that was before it went.
func (l *Lane) removed(e *entry) {
	if e.removing {
		e.removing = false
		l.forget(e)
	}
}

// ended notes that an input of a page has been dealt with.
func (r *retention) ended(in *input) {
	if in.kind == inExpired {
		r.pending--
	}
}

// expireWake is when the next look is due.
func (l *Lane) expireWake() model.Time {
	r := &l.retention
	switch {
	case l.cfg.Retention == 0 || len(l.shards) == 0 || r.looking || r.pending > 0 || r.keep:
		return 0
	case r.at == 0:
		return 1
	}
	return r.at
}
