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

// sweep removes, from time to time, outcomes of transactional activities that no step can need
// again.
func (a *App) sweep(ctx context.Context, db *userdb.Database) {
	// Processes that start together should not sweep at the same time.
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

// sweepOnce uses the clock of the database or the clock of this process (the parameter wall),
// whichever is behind. With a clock that is days ahead, the sweep would remove outcomes that are
// still needed.
//
// The time at which a run was closed comes from the clock of the engine, and the sweep compares it
// with the clock of the database. That is safe, no matter how far the two clocks are apart. Each
// attempt has the time, by the clock of the engine, at which the owner of the run last confirmed
// the attempt. The database refuses the attempt when the clock of the database is more than a day
// past that time. The owner confirms an attempt only before the run is closed. So the database
// refuses attempts long before the sweep removes the outcome, unless the clock of the database is
// set back by days in between. If the clock of the database or of this process is ahead for a
// while, the other clock holds the sweep back.
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
			return false, nil // another program wrote this row: leave it alone
		}
		t, err := ref.api(a.host)
		if err != nil {
			return false, nil // another program wrote this row
		}
		d, err := a.host.decidingRun(ctx, t)
		return isExpired(&d, err, userdb.Time(o.At), now)
	})
}

// decidingRun describes the run that decides how long the sweep keeps the outcomes of a run. If a
// run can be retried, the current run of its key decides, because the current run may continue that
// run.
func (h *host) decidingRun(ctx context.Context, t api.Target) (api.Description, error) {
	d, err := h.backend.Describe(ctx, t)
	if fault.Is(err, fault.NotFound) { // the run was removed, but another run may continue it
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

// mayBeRetried reports whether another run may continue a run with this status and repeat its
// steps.
func mayBeRetried(s model.Status) bool {
	return s == model.Failed || s == model.Canceled || s == model.Terminated
}

// isExpired reports whether the sweep may remove the outcomes of a run. The sweep may remove them
// if the run has been closed for the retention time and cannot be retried. While the engine knows
// the run, the age of an outcome does not matter, because the journal may still lack an old
// outcome. If the engine no longer knows the run, the outcomes expire at the age orphaned.
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
