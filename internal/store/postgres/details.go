package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// loadDetails returns the statements that describe a run: its row, its labels, its last event and
// whether it has scheduled a task, and its timers. The last two are of open runs only.
func loadDetails(named string) [4]string {
	run := `(select e.run from {schema}.executions e where ` + named + `)`
	timers := loadRun(named, 0)[2]
	return [4]string{
		`select {execution} from {schema}.executions e where ` + named,
		`select l.name, l.value from {schema}.labels l where l.shard = $1 and l.run = ` + run + ` order by l.name`,
		fmt.Sprintf(`select (select coalesce(max(h.seq), 0) from {schema}.history h where h.shard = $1 and h.run = %s),
exists (select 1 from {schema}.history h where h.shard = $1 and h.run = (select e.run from {schema}.executions e where %s and e.state < 2) and h.kind = %d)`,
			run, named, model.EventTaskScheduled),
		timers,
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

	err = s.read(ctx, "load details of a run", func(ctx context.Context, c *pgx.Conn) error {
		d = store.RunDetails{}
		var batch pgx.Batch
		batch.Queue(keepPlans)
		for _, text := range texts {
			batch.Queue(s.sql(text), args...)
		}
		results := c.SendBatch(ctx, &batch)
		err := readDetails(results, &d)
		return cmp.Or(err, results.Close())
	})
	if err != nil {
		return store.RunDetails{}, err
	}
	return d, nil
}

// readDetails reads the answers to the statements of loadDetails.
func readDetails(results pgx.BatchResults, d *store.RunDetails) error {
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	found, err := scanExecutions(rows, nil)
	if err != nil || len(found) == 0 {
		return err
	}
	d.Execution = &found[0]

	if rows, err = results.Query(); err != nil {
		return err
	}
	var l model.Label
	_, err = pgx.ForEachRow(rows, []any{&l.Name, &l.Value}, func() error {
		d.Labels = append(d.Labels, l)
		return nil
	})
	if err != nil {
		return err
	}

	if err := results.QueryRow().Scan(&d.Last, &d.Tasks); err != nil {
		return err
	}
	d.Timers, err = scanTimers(results.Query())
	return err
}
