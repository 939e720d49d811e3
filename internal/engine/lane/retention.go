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
	expiredPage  = 100                   // runs that are removed at a time
	expiredPause = 50 * time.Millisecond // between two pages, and while there is more urgent work
)

// retention removes closed runs whose time is over. Once in a while the lane looks for them, all of its shards in one read; what it finds goes page
// by page, a page when the one before is committed and after a pause, so that it takes a small and bounded share of the commits.
type retention struct {
	at      model.Time // of the next look; zero while one is under way, and before the first is planned
	looking bool
	full    bool // the page was full: there may be more
	pending int  // inputs of the page that are not dealt with
	removed int  // runs in this round
}

// plan sets the time of the next look. The first one is somewhere in the second half of the interval, so that nodes that were started
// together do not look together.
func (r *retention) plan(cfg *Config, now model.Time) {
	spread := binary.BigEndian.Uint64(cfg.Ref.Node[8:]) + uint64(cfg.Ref.Lane)*uint64(cfg.RetainEvery)/uint64(cfg.Lanes)
	r.at = now.Add(cfg.RetainEvery/2 + time.Duration(spread%uint64(cfg.RetainEvery/2+1)))
}

// expire looks for runs whose time is over when it is time to look.
func (l *Lane) expire(now model.Time) {
	r := &l.retention
	switch {
	case l.cfg.Retention == 0 || len(l.shards) == 0 || r.looking || r.pending > 0:
	case r.at == 0 && r.full:
		r.at, r.full = now.Add(expiredPause), false
	case r.at == 0:
		l.out.Removed += r.removed
		r.removed = 0
		r.plan(&l.cfg, now)
	case now < r.at:
	case l.Full() || l.loads.crowded() || l.open.rows() >= l.cfg.MaxBatchRows/2:
		r.at = now.Add(expiredPause)
	default:
		r.at, r.looking = 0, true
		l.loads.add(&Load{Kind: LoadExpired, Shards: l.serving(), Until: now, Before: now.Add(-l.cfg.Retention), Limit: expiredPage})
	}
}

// loadedExpired has the runs of a page removed. That they are closed stays true whoever has written to the store since, and a
// run that is gone already is passed over.
func (l *Lane) loadedExpired(now model.Time, ld *Load, page []store.RunHead) {
	r := &l.retention
	r.looking, r.full = false, len(page) == ld.Limit
	byAddress := map[model.Address]*input{}
	var inputs []*input
	for _, h := range page {
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
		r.pending++
		l.take(now, e, in)
	}
}

// applyExpired removes closed runs of an address. Its current run need not be known: when it is not, nothing is read of it before the commit, which
// may remove it.
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
	case l.cfg.Retention == 0 || len(l.shards) == 0 || r.looking || r.pending > 0:
		return 0
	case r.at == 0:
		return 1
	}
	return r.at
}
