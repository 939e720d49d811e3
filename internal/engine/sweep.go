package engine

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sweepRows = 5000 // rows that one transaction removes
	// retainPeerMail is how long unread messages between nodes are kept. If a node has not read a
	// message after this time, the node is gone.
	retainPeerMail = time.Minute

	// retainReports is how long replay reports are kept. After this time no person needs the report
	// of a release.
	retainReports = 90 * 24 * time.Hour

	sweepShare = 9 // after a step of a sweep, the pause is this many times as long as the step
)

// sweep removes expired rows, in bounded steps with pauses, until nothing is left or the
// incarnation ends. Because of the pauses it takes at most a tenth of the time. To remove these
// rows costs less than the commits that wrote them.
func (inc *incarnation) sweep(ctx context.Context) {
	defer inc.sweeping.Store(false)
	inc.everywhere(func(l *lane.Lane, _ model.Time) { l.Tidy() })
	swept := 0
	for {
		begun := time.Now()
		n, err := inc.sweepOnce(ctx)
		if err != nil {
			if ctx.Err() == nil {
				inc.eng.others.sweep.Fail(err)
			}
			break
		}
		inc.eng.others.sweep.OK()
		swept += n
		if n < sweepRows || !sleep(ctx, sweepShare*time.Since(begun)) {
			break
		}
	}

	if swept > 0 {
		inc.eng.cfg.Log.Debug("swept", "rows", swept)
	}
}

func (inc *incarnation) sweepOnce(ctx context.Context) (int, error) {
	var mine []model.ShardID
	for s := range inc.owner {
		if inc.owner[s].Load() > 0 {
			mine = append(mine, model.ShardID(s))
		}
	}

	if len(mine) == 0 {
		return 0, nil
	}
	if _, may := inc.eng.clock.doubt(); !may {
		return 0, nil
	}
	now := inc.eng.clock.now()

	r := store.SweepRequest{
		Shards: mine, RequestsBefore: now.Add(-inc.eng.cfg.RetainRequest), DeadLettersBefore: now.Add(-inc.eng.cfg.RetainDeadLetter),
		LogsBefore: now.Add(-inc.eng.cfg.RetainLogs), SettingsBefore: now.Add(-retainTombstones), PeerMailBefore: now.Add(-retainPeerMail),
		ReportsBefore: now.Add(-retainReports), Limit: sweepRows,
	}
	if keep := inc.eng.cfg.RetainAudit; keep > 0 {
		r.AuditBefore = now.Add(-keep)
	}
	n, err := inc.eng.cfg.Store.Sweep(ctx, r)
	if err != nil {
		return n, err
	}

	purged, err := inc.sweepDead(ctx, mine, now)
	return n + purged, err
}
