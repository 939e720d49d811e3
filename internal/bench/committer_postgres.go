package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// pointsPostgres writes points to PostgreSQL, each batch with one round trip.
type pointsPostgres struct {
	conn  *pgx.Conn
	batch int64
	rows  [stageEnd + 1]pointColumns
}

// pointColumns are the points of one stage, by column.
type pointColumns struct {
	runs []uuid.UUID
	keys []string
	seqs []int64
	ats  []int64
}

func openPointsPostgres(ctx context.Context, url string) (*pointsPostgres, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}

	// The rows have the columns of our store, without the columns for lists and recovery. Every
	// table has one index. The settings make the server use the index while the tables are empty.
	const schema = `
create schema bare;
create table bare.fence (lane integer primary key, epoch bigint not null, batch bigint not null) with (fillfactor = 50);
insert into bare.fence values (0, 1, 0);
create table bare.executions (
  started bigint not null, run uuid not null, shard smallint not null, tenant text collate "C" not null, workflow text collate "C" not null,
  key text collate "C" not null, start bytea not null, state smallint not null, closed bigint not null default 0, outcome bytea,
  primary key (shard, run)
) with (fillfactor = 75);
create table bare.history (
  seq bigint not null, at bigint not null, run uuid not null, shard smallint not null, kind smallint not null, body bytea not null,
  primary key (shard, run, seq)
);
set plan_cache_mode = force_generic_plan;
set enable_seqscan = off`
	if _, err := conn.Exec(ctx, schema); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}

	return &pointsPostgres{conn: conn}, nil
}

// The statements of a batch. The update of the fence aborts the transaction if it matches no row.
const (
	pointFence = `with w as (
  update bare.fence set batch = $1 where lane = 0 and epoch = 1 and batch = $1::bigint - 1 returning 1
) select 1 / count(*) from w`
	pointStart = `insert into bare.executions (started, run, shard, tenant, workflow, key, start, state)
select unnest($1::bigint[]), unnest($2::uuid[]), 1, 'default', 'three', unnest($3::text[]), $4::bytea, 0`
	pointStep = `insert into bare.history (seq, at, run, shard, kind, body)
select unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::uuid[]), 1, 1, $4::bytea`
	// The server plans this statement while there are no runs. For a join with the ids, the server
	// might plan a scan of all runs.
	pointEnd = `update bare.executions set state = 2, closed = $1, outcome = $3::bytea where shard = 1 and run = any($2::uuid[])`
)

func (b *pointsPostgres) write(ctx context.Context, points []*point) error {
	for i := range b.rows {
		r := &b.rows[i]
		r.runs, r.keys, r.seqs, r.ats = r.runs[:0], r.keys[:0], r.seqs[:0], r.ats[:0]
	}
	for _, p := range points {
		r := &b.rows[p.stage]
		r.runs, r.keys, r.seqs, r.ats = append(r.runs, p.run), append(r.keys, p.key), append(r.seqs, p.seq), append(r.ats, p.at)
	}

	b.batch++
	var batch pgx.Batch // sent in one write with one Sync, so it is one transaction
	batch.Queue(pointFence, b.batch)
	if r := &b.rows[stageStart]; len(r.runs) > 0 {
		batch.Queue(pointStart, r.ats, r.runs, r.keys, record)
	}
	if r := &b.rows[stageStep]; len(r.runs) > 0 {
		batch.Queue(pointStep, r.seqs, r.ats, r.runs, record)
	}
	if r := &b.rows[stageEnd]; len(r.runs) > 0 {
		batch.Queue(pointEnd, r.ats[0], r.runs, record)
	}

	return b.send(ctx, &batch, len(points))
}

// send sends a batch, and checks that it has written a row for each point.
func (b *pointsPostgres) send(ctx context.Context, batch *pgx.Batch, points int) (err error) {
	results := b.conn.SendBatch(ctx, batch)
	defer func() { err = errors.Join(err, results.Close()) }()

	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	written := 0
	for range batch.Len() - 1 {
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		written += int(tag.RowsAffected())
	}
	if written != points {
		return fmt.Errorf("%d points wrote %d rows", points, written)
	}

	return nil
}

func (b *pointsPostgres) close(ctx context.Context) error { return b.conn.Close(ctx) }
