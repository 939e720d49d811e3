package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// loadDetails returns the statements that describe a run. The first three read its row, its labels
// and its timers. The last statement reads the id of the run, its last event, and whether the run
// has scheduled a task. The statements read timers and tasks only of open runs.
func loadDetails(named string) [4]string {
	run := `(select e.run from {schema}.executions e where ` + named + `)`
	timers := loadRun(named, 0)[2]
	return [4]string{
		`select {execution} from {schema}.executions e where ` + named,
		`select l.name, l.value from {schema}.labels l where l.shard = $1 and l.run = ` + run + ` order by l.name`,
		timers,
		fmt.Sprintf(`select %[1]s, (select coalesce(max(h.seq), 0) from {schema}.history h where h.shard = $1 and h.run = %[1]s),
exists (select 1 from {schema}.history h where h.shard = $1 and h.run = (select e.run from {schema}.executions e where %[2]s and e.state < 2) and h.kind = %[3]d)`,
			run, named, model.EventTaskScheduled),
	}
}

var detailsOfNamed, detailsOfCurrent = loadDetails(isRun), loadDetails(isCurrent)

// LoadDetails returns what a description of a run shows, in one round trip.
func (s *Store) LoadDetails(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (d store.RunDetails, err error) {
	if shard >= model.MaxShards {
		return d, nil
	}
	texts := &detailsOfNamed
	if run.IsZero() {
		texts = &detailsOfCurrent
	}
	args := namedRun(shard, a, run)

	same := false
	err = s.read(ctx, "load details of a run", func(ctx context.Context, c *pgx.Conn) error {
		d = store.RunDetails{}
		var batch pgx.Batch
		batch.Queue(keepPlans)
		for _, text := range texts {
			batch.Queue(s.sql(text), args...)
		}
		results := c.SendBatch(ctx, &batch)
		var err error
		same, err = readDetails(results, &d)
		return cmp.Or(err, results.Close())
	})
	switch {
	case err != nil:
		return store.RunDetails{}, err
	case !same && d.Execution != nil && run.IsZero():
		// Each statement sees the newest commit. Here, another run has become the current one
		// between two statements, so the answers are about different runs.
		return s.LoadDetails(ctx, shard, a, d.Execution.Start.Run)
	}
	return d, nil
}

// readDetails reads the answers to the statements of loadDetails. same says that all answers are
// about the same run. That is certain if the first and the last statement found the same run,
// because a run that is no longer current never becomes current again.
func readDetails(results pgx.BatchResults, d *store.RunDetails) (same bool, err error) {
	if _, err := results.Exec(); err != nil {
		return false, err
	}
	rows, err := results.Query()
	if err != nil {
		return false, err
	}
	found, err := scanExecutions(rows, nil)
	if err != nil || len(found) == 0 {
		return false, err
	}
	d.Execution = &found[0]

	if rows, err = results.Query(); err != nil {
		return false, err
	}
	var l model.Label
	_, err = pgx.ForEachRow(rows, []any{&l.Name, &l.Value}, func() error {
		d.Labels = append(d.Labels, l)
		return nil
	})
	if err != nil {
		return false, err
	}

	if d.Timers, err = scanTimers(results.Query()); err != nil {
		return false, err
	}
	var run pgtype.UUID
	err = results.QueryRow().Scan(&run, &d.Last, &d.Tasks)
	return run.Valid && model.RunID(run.Bytes) == d.Execution.Start.Run, err
}
