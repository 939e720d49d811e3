package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// KeepAll stops or resumes the removal of old closed runs. The caller stops it while the store's
// clock is in doubt.
func (l *Lane) KeepAll(keep bool) {
	r := &l.retention
	r.keep = keep
	if keep {
		r.found, r.more = nil, false
	}
}

// When a look is due, expire looks for runs past their retention time and removes them.
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
	case l.Full() || l.loads.isCrowded(l.cfg.MaxLoads) || l.open.rows() >= l.cfg.MaxBatchRows/2:
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
			Kind: LoadExpired, Shards: l.servedShards(), Until: now, Before: now.Add(-l.cfg.Retention), After: r.after, Limit: expiredWalk,
		})
	}
}

// acceptExpired notes the runs that were found, and where the walk continues. At the end of a round
// the look is over, unless the read could not return all runs that it found.
func (l *Lane) acceptExpired(ld *Load, page store.Expired) {
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

// removeExpired removes runs. It need not check them again: a closed run never opens again, and the
// store skips a run that is already gone.
func (l *Lane) removeExpired(now model.Time, page []store.RunHead) {
	byAddress := map[model.Address]*removalInput{}
	var inputs []*removalInput
	for _, h := range page {
		if l.passOver(h.Shard, h.Address, "a closed run") {
			continue
		}
		in := byAddress[h.Address]
		if in == nil {
			address := h.Address // a copy: a pointer into h would keep all of h in memory
			in = &removalInput{inputBase: inputBase{address: &address}}
			byAddress[h.Address] = in
			inputs = append(inputs, in)
		}
		in.runs = append(in.runs, h.Run)
	}

	for _, in := range inputs {
		e := l.entry(*in.address)
		if e == nil || e.shard.draining {
			continue
		}
		l.retention.pending++
		l.take(now, e, in)
	}
}

func (in *removalInput) size() int { return inputBytes + 16*len(in.runs) }

// ready waits for the batches of the address: a start in flight may replace a run that is about to
// be removed, and must find that run.
func (in *removalInput) ready(_ *Lane, e *entry) bool { return !e.dirty() }

// applyPoisoned removes runs of a quarantined address like any others, even if their rows cannot be
// read.
func (in *removalInput) applyPoisoned(l *Lane, now model.Time, e *entry) { l.applyWatched(now, e, in) }

// apply removes closed runs of an address. The lane need not know the current run. If it does not,
// all other inputs for the address wait for the commit, because the removal may include the current
// run.
func (in *removalInput) apply(l *Lane, _ model.Time, e *entry) {
	if e.known && e.x != nil && slices.Contains(in.runs, e.x.Start.Run) {
		if e.x.Open() { // a closed run never opens again, so this cannot happen
			l.finishInput(in)
			l.maybeDrop(e)
			return
		}
		l.setRun(e, nil)
	}
	e.pending.removing = !e.known
	l.record(e, in, &core.Decision{Deletes: in.runs})
}

// finishRemoval ends the removal of runs of an address whose current run was not known. A read for
// a worker may have seen that run before it was removed, so the lane drops the state.
func (l *Lane) finishRemoval(e *entry) {
	if e.pending.removing {
		e.pending.removing = false
		l.forget(e)
	}
}

// expireWake returns when the next look is due.
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

// Retain sets the retention times of tenants, for runs that close from now on. It does not change
// the time of a run whose workflow has its own retention time.
func (l *Lane) Retain(of map[string]time.Duration) { l.cfg.TenantRetention = of }
