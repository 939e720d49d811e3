package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// NameWorkers stores and removes names of remote workers. It locks rows in the order of their
// names, so that two servers that remove the same names do not deadlock.
func (s *Store) NameWorkers(ctx context.Context, w store.WorkerNames) error {
	const (
		add = `
insert into {schema}.remote_workers (name, home) select n.name, n.home from unnest($1::text[], $2::uuid[]) n (name, home) order by n.name
on conflict (name) do nothing`
		remove = `
delete from {schema}.remote_workers where name = any (array(
  select r.name from {schema}.remote_workers r where r.name = any ($1::text[]) order by r.name for update))`
		drop = `
delete from {schema}.remote_workers where name = any (array(
  select r.name from {schema}.remote_workers r where r.home = any ($1::uuid[]) order by r.name for update))`
		op = "name workers"
	)

	if err := w.Check(op); err != nil {
		return err
	}
	names, homes, gone := make([]string, len(w.Add)), make([]pgtype.UUID, len(w.Add)), make([]pgtype.UUID, len(w.Drop))
	for i := range w.Add {
		names[i], homes[i] = w.Add[i].Name, nodeArg(w.Add[i].Home)
	}
	for i := range w.Drop {
		gone[i] = nodeArg(w.Drop[i])
	}

	return s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		if len(names) > 0 {
			batch.Queue(s.sql(add), names, homes)
		}
		if len(w.Remove) > 0 {
			batch.Queue(s.sql(remove), w.Remove)
		}
		if len(gone) > 0 {
			batch.Queue(s.sql(drop), gone)
		}
		if batch.Len() == 0 {
			return nil
		}
		return c.SendBatch(ctx, &batch).Close() // all statements are one transaction
	})
}

// WorkerHomes returns the homes of all remote workers.
func (s *Store) WorkerHomes(ctx context.Context) (homes []model.NodeID, err error) {
	const query = `select distinct r.home from {schema}.remote_workers r order by r.home`
	err = s.read(ctx, "worker homes", func(ctx context.Context, c *pgx.Conn) error {
		homes = nil
		rows, err := c.Query(ctx, s.sql(query))
		if err != nil {
			return err
		}
		var home pgtype.UUID
		_, err = pgx.ForEachRow(rows, []any{&home}, func() error {
			homes = append(homes, home.Bytes)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return homes, nil
}
