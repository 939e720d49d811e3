package perdure

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/userdb"
)

const (
	sweepEvery = time.Hour
	// orphaned is the age at which the sweep removes an outcome whose run the engine no longer
	// knows.
	orphaned = 30 * 24 * time.Hour
)

// sweep removes outcomes of transactional activities that no step can ask for again, from time to
// time.
func (a *App) sweep(ctx context.Context, db *userdb.Database) {
	// processes that were started together need not sweep together
	timer := time.NewTimer(time.Minute + rand.N(10*time.Minute))
	defer timer.Stop()
	trouble := episode.New(a.host.logger, "old outcomes of transactional activities cannot be removed yet", "old outcomes of transactional activities are removed again").Source()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}

		n, err := a.sweepOnce(ctx, db, time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			trouble.Fail(err, "again_in", sweepEvery)
		case n > 0:
			a.host.logger.Info("removed old outcomes of transactional activities", "rows", n)
		}

		if err == nil {
			trouble.OK()
		}
		timer.Reset(sweepEvery)
	}
}

// sweepOnce goes by the clock of the database or by wall, the clock of this process, whichever is
// behind. One that is days ahead would remove what is still needed.
//
// A run is closed at a time of the engine. To compare that with the clock of the database is safe
// however far the two are apart: an attempt may begin until that clock shows a day after its owner
// last spoke, also a time of the engine, and the owner last spoke before the run was closed. So the
// database refuses an attempt long before the outcome goes, unless its clock is set back by days in
// between. A clock that was ahead, and is set right, is held back by the other one.
func (a *App) sweepOnce(ctx context.Context, db *userdb.Database, wall time.Time) (int64, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return 0, err
	}
	if wall.Before(now) {
		now = wall
	}

	return db.Sweep(ctx, a.host.scope, now, func(ctx context.Context, o userdb.Owner) (bool, error) {
		ref, err := ParseRef(o.Execution + "#" + o.Run)
		if err != nil {
			return false, nil // not one of ours: leave it alone
		}
		t, err := ref.api(a.host)
		if err != nil {
			return false, nil // the same
		}
		d, err := a.host.decidingRun(ctx, t)
		return isExpired(&d, err, userdb.Time(o.At), now)
	})
}

// decidingRun is the run that decides about the outcomes of a run: the current one when this has
// failed, for it may go on in its name.
func (h *host) decidingRun(ctx context.Context, t api.Target) (api.Description, error) {
	d, err := h.backend.Describe(ctx, t)
	if fault.Is(err, fault.NotFound) { // removed, but another one may go on in its name
		next, failed := h.backend.Describe(ctx, api.Target{Address: t.Address})
		switch {
		case failed == nil && slices.Contains(next.Start.Earlier, t.Run):
			return next, nil
		case failed != nil && !fault.Is(failed, fault.NotFound):
			return next, failed
		}
		return d, err
	}
	if err != nil || d.Current || !mayBeRetried(d.Outcome.Status) {
		return d, err
	}
	return h.backend.Describe(ctx, api.Target{Address: t.Address})
}

// mayBeRetried reports whether another run may make the steps of one again, in its name.
func mayBeRetried(s model.Status) bool {
	return s == model.Failed || s == model.Canceled || s == model.Terminated
}

// isExpired decides about the outcomes of a run: they go when it has been closed for the retention
// time and cannot be retried. The outcome of a step may be older and still be needed, when no
// process was running to journal it.
func isExpired(d *api.Description, err error, last, now time.Time) (bool, error) {
	switch {
	case fault.Is(err, fault.NotFound):
		return now.Sub(last) > orphaned, nil
	case err != nil:
		return false, err
	case mayBeRetried(d.Outcome.Status):
		return false, nil
	}
	return d.Outcome.Status.Closed() && now.Sub(d.Outcome.At.Std()) > userdb.Retention, nil
}
