package userdb

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Retention is how long the outcomes of a run are kept after the run was closed. No attempt of the
// run can be in progress for that long (U3).
const Retention = 7 * 24 * time.Hour

// Now returns the time by the clock of the database.
func (d *Database) Now(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	var millis int64
	if err := d.read(ctx, d.sql(Outcomes, `select {now}`), nil, &millis); err != nil {
		return time.Time{}, fault.New(fault.Unavailable, "ask the database for its time: %w", err)
	}
	return Time(millis), nil
}

// Owner is a run that has outcomes in the database.
type Owner struct {
	Run       string `json:"run"`
	Execution string `json:"execution"`
	At        int64  `json:"at"` // time of the last outcome, in milliseconds since 1970
}

// Bounds of a sweep.
const (
	sweepRuns = 100 // runs in one query
	sweepRows = 500 // rows in one delete
)

// Sweep removes the outcomes of runs of a cluster for which expired returns true, in small
// transactions. It looks only at runs that were started longer ago than Retention. It looks at them
// in the order of their ids, which is the order of their starts. It returns the number of removed
// outcomes.
func (d *Database) Sweep(ctx context.Context, cluster string, now time.Time, expired func(context.Context, Owner) (bool, error)) (removed int64, err error) {
	before := firstRun(now.Add(-Retention)).String()
	for after := ""; ; {
		var text string
		if err := d.read(ctx, d.sql(Outcomes, d.dialect.runs), []any{cluster, after, before, int64(sweepRuns)}, &text); err != nil {
			return removed, err
		}
		var owners []Owner
		if err := json.Unmarshal([]byte(text), &owners); err != nil {
			return removed, err
		}

		for _, o := range owners {
			after = o.Run
			ok, err := expired(ctx, o)
			if err != nil {
				return removed, err
			}
			for ok {
				n, err := d.remove(ctx, o.Run)
				removed += n
				if err != nil {
					return removed, err
				}
				ok = n == sweepRows
			}
		}

		if len(owners) < sweepRuns {
			return removed, nil
		}
	}
}

// remove removes some outcomes of a run.
func (d *Database) remove(ctx context.Context, run string) (n int64, err error) {
	query := d.sql(Outcomes, `delete from {table} where run = $1 and (step, generation) in (
  select step, generation from {table} where run = $1 limit $2)`)
	for try := 0; ; try++ {
		err = d.within(ctx, func(tx Tx) (err error) {
			n, err = tx.Exec(ctx, query, run, int64(sweepRows))
			return err
		})
		if !isTransient(err) || !pause(ctx, try) {
			return n, err
		}
	}
}

// firstRun returns an id that sorts before every run that was started at t or later.
func firstRun(t time.Time) (id model.RunID) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}
