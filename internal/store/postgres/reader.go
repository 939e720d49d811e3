package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/store"
)

// garbageRuns is a subquery g with the deleted runs that a sweep looks at. The number of these runs
// is at most the number of rows that the sweep may remove. Without that bound, a sweep could look
// in each of the tables for rows of every deleted run: runs of standalone tasks have hardly any
// rows there, so the sweep would rarely reach its limit of rows.
const garbageRuns = `(
  select t.shard, q.run, q.ctid
  from unnest($1::smallint[]) t (shard)
  cross join lateral (select r.run, r.ctid from {schema}.garbage r where r.shard = t.shard order by r.run limit $2) q
  limit $2) g`

// sweepDeleted removes deleted runs: first their remaining rows, table by table, and then the runs
// that have no rows left. A sweep that finds no remaining rows removes all runs that it has looked
// at. So repeated sweeps remove everything in the end.
var sweepDeleted = [...]string{
	`
delete from {schema}.history where ctid = any (array(
  select h.ctid from ` + garbageRuns + `
  cross join lateral (select e.ctid from {schema}.history e where e.shard = g.shard and e.run = g.run order by e.seq limit $2) h
  limit $2))`,
	`
delete from {schema}.task_data where ctid = any (array(
  select x.ctid from ` + garbageRuns + `
  cross join lateral (select d.ctid from {schema}.task_data d where d.shard = g.shard and d.run = g.run order by d.task, d.name limit $2) x
  limit $2))`,
	`
delete from {schema}.task_logs where ctid = any (array(
  select x.ctid from ` + garbageRuns + `
  cross join lateral (select l.ctid from {schema}.task_logs l where l.shard = g.shard and l.run = g.run order by l.at, l.epoch, l.batch, l.n limit $2) x
  limit $2))`,
	`
delete from {schema}.garbage where ctid = any (array(
  select g.ctid from ` + garbageRuns + `
  where (select true from {schema}.history e where e.shard = g.shard and e.run = g.run limit 1) is null
    and (select true from {schema}.task_data d where d.shard = g.shard and d.run = g.run limit 1) is null
    and (select true from {schema}.task_logs l where l.shard = g.shard and l.run = g.run limit 1) is null))`,
}

// Sweep deletes the rows that store.Reader lists, in one transaction that the limit bounds. It
// deletes the answers that the request names in a separate transaction before that. Sweep does not
// delete cursors; the schema says why.
func (s *Store) Sweep(ctx context.Context, r store.SweepRequest) (int, error) {
	// Rows of these tables (and dead letters) are never updated, or not after their run was
	// deleted. So the physical position of a row identifies it as well as its key.
	const (
		sweepMessages = `
delete from {schema}.messages where ctid = any (array(
  select m.ctid
  from unnest($1::smallint[]) t (shard) cross join lateral ` + senders + ` p cross join ` + cursor + `
  cross join lateral (
    select q.ctid from {schema}.messages q
    where q.to_shard = t.shard and q.from_shard = p.from_shard and q.seq <= c.position order by q.seq limit $2) m
  limit $2))`
		sweepRequests = `
delete from {schema}.requests where ctid = any (array(
  select q.ctid
  from unnest($1::smallint[]) t (shard)
  cross join lateral (select r.ctid from {schema}.requests r where r.shard = t.shard and r.at < $2 order by r.at limit $3) q
  limit $3))`
		sweepDeadLetters = `
delete from {schema}.inbox where ctid = any (array(
  select i.ctid from {schema}.inbox i where i.not_before = ` + never + ` and i.id < $2 and i.shard = any ($1::smallint[]) order by i.id limit $3))`
		sweepLogs = `
delete from {schema}.task_logs where ctid = any (array(
  select q.ctid
  from unnest($1::smallint[]) t (shard)
  cross join lateral (select l.ctid from {schema}.task_logs l where l.shard = t.shard and l.at < $2 order by l.at limit $3) q
  limit $3))`
	)

	answered, err := s.sweepAnswered(ctx, r.Answered)
	if err != nil {
		return 0, err
	}
	shards := sortedShards(r.Shards, 0)
	if len(shards) == 0 && r.SettingsBefore == 0 && r.PeerMailBefore == 0 && r.AuditBefore == 0 && r.ReportsBefore == 0 || r.Limit <= 0 {
		return answered, nil
	}

	swept := 0
	err = s.work(ctx, "sweep", true, func(ctx context.Context, c *pgx.Conn) error {
		swept = 0
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, s.sql(sweepMessages), shards, r.Limit)
			if err != nil {
				return err
			}

			swept = int(tag.RowsAffected())
			if r.RequestsBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepRequests), shards, r.RequestsBefore, r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			if r.DeadLettersBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepDeadLetters), shards, runArg(store.OldestID(r.DeadLettersBefore)), r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			for _, sql := range sweepDeleted {
				if swept >= r.Limit {
					return nil
				}
				if tag, err = tx.Exec(ctx, s.sql(sql), shards, r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			if r.LogsBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepLogs), shards, r.LogsBefore, r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			if r.SettingsBefore != 0 && swept < r.Limit {
				n, err := s.sweepSettings(ctx, tx, r.SettingsBefore, r.Limit-swept)
				if swept += n; err != nil {
					return err
				}
			}

			if r.PeerMailBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepPeerMail), runArg(store.OldestID(r.PeerMailBefore)), r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			if r.AuditBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepAudit), runArg(store.OldestID(r.AuditBefore)), r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			if r.ReportsBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepReports), runArg(store.OldestID(r.ReportsBefore)), r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}

			return nil
		})
	})
	if err != nil {
		return answered, err
	}

	return answered + swept, nil
}

// sweepAnswered deletes remembered answers that their callers have received.
func (s *Store) sweepAnswered(ctx context.Context, keys []store.RequestKey) (n int, err error) {
	const sweep = `
delete from {schema}.requests r
using unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[]) u (shard, tenant, workflow, key, id)
where r.shard = u.shard and r.key = u.key and r.id = u.id and r.workflow = u.workflow and r.tenant = u.tenant`
	if len(keys) == 0 {
		return 0, nil
	}

	shards, tenants, workflows, names, ids := requestColumns(keys)
	err = s.work(ctx, "sweep", true, func(ctx context.Context, c *pgx.Conn) error {
		tag, err := c.Exec(ctx, s.sql(sweep), shards, tenants, workflows, names, ids)
		n = int(tag.RowsAffected())
		return err
	})

	return n, err
}
