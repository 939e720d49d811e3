package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"
)

// bare commits rows directly, on one connection, like an engine that costs nothing. So it shows the
// lowest possible cost of a commit. Its table is similar to our history, and every commit is
// durable, as in our stores.
type bare interface {
	// commit writes rows in one transaction, with one round trip and one flush. If fenced is set,
	// it first advances a fence row with a guarded update. The transaction aborts if the update
	// matches no row.
	commit(ctx context.Context, rows int, fenced bool) error
	close(ctx context.Context) error
}

// record is the payload of a row, with the size of a small step.
var record = make([]byte, 108)

// openBare opens a committer next to the data of a system: in a separate schema or in another file.
func openBare(ctx context.Context, place Place) (bare, error) {
	if place.Kind == Postgres {
		return openBarePostgres(ctx, place.URL)
	}
	return openBareSQLite(ctx, place.Path+".bare")
}

// barePostgres writes to PostgreSQL.
type barePostgres struct {
	conn  *pgx.Conn
	batch int64
	seq   int64
	seqs  []int64
}

func openBarePostgres(ctx context.Context, url string) (*barePostgres, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	const schema = `
create schema bare;
create table bare.fence (lane integer primary key, epoch bigint not null, batch bigint not null) with (fillfactor = 50);
insert into bare.fence values (0, 1, 0);
create table bare.history (
  seq bigint not null, at bigint not null, run uuid not null, shard smallint not null, kind smallint not null, body bytea not null,
  primary key (shard, run, seq)
)`
	if _, err := conn.Exec(ctx, schema); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}

	return &barePostgres{conn: conn}, nil
}

func (b *barePostgres) commit(ctx context.Context, rows int, fenced bool) error {
	const fence = `with w as (update bare.fence set batch = $1 where lane = 0 and epoch = 1 and batch = $1::bigint - 1 returning 1) select 1 / count(*) from w`
	const one = `insert into bare.history (seq, at, run, shard, kind, body) values ($1, $1, '01900000-0000-7000-8000-000000000000', 1, 1, $2)`
	const many = `insert into bare.history (seq, at, run, shard, kind, body) select s, s, '01900000-0000-7000-8000-000000000000', 1, 1, $2 from unnest($1::bigint[]) s`
	var batch pgx.Batch // sent in one write with one Sync, so it is one transaction

	if fenced {
		b.batch++
		batch.Queue(fence, b.batch)
	}

	if rows == 1 {
		b.seq++
		batch.Queue(one, b.seq, record)
	} else {
		b.seqs = b.seqs[:0]
		for range rows {
			b.seq++
			b.seqs = append(b.seqs, b.seq)
		}
		batch.Queue(many, b.seqs, record)
	}

	return b.conn.SendBatch(ctx, &batch).Close()
}

func (b *barePostgres) close(ctx context.Context) error { return b.conn.Close(ctx) }

// bareSQLite writes to a SQLite file.
type bareSQLite struct {
	conn                      *sqlite3.Conn
	begin, fence, insert, end *sqlite3.Stmt
	batch, seq                int64
	run                       [16]byte
}

func openBareSQLite(ctx context.Context, path string) (_ *bareSQLite, err error) {
	name := url.URL{Scheme: "file", Path: path}
	conn, err := sqlite3.OpenContext(ctx, name.String())
	if err != nil {
		return nil, err
	}
	b := &bareSQLite{conn: conn}

	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()

	const schema = `
pragma page_size = 8192;
pragma journal_mode = wal;
pragma synchronous = full;
pragma wal_autocheckpoint = 2000;
create table fence (lane integer primary key, epoch integer not null, batch integer not null) strict;
insert into fence values (0, 1, 0);
create table history (
  run blob not null, shard integer not null, seq integer not null, at integer not null, kind integer not null, body blob not null,
  primary key (run, shard, seq)
) strict, without rowid`
	if err := conn.Exec(schema); err != nil {
		return nil, err
	}

	for _, s := range []struct {
		to  **sqlite3.Stmt
		sql string
	}{
		{&b.begin, "begin immediate"},
		{&b.fence, "update fence set batch = ?1 where lane = 0 and epoch = 1 and batch = ?1 - 1"},
		{&b.insert, "insert into history (run, shard, seq, at, kind, body) values (?1, 1, ?2, ?2, 1, ?3)"},
		{&b.end, "commit"},
	} {
		if *s.to, _, err = conn.PrepareFlags(s.sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
	}

	return b, nil
}

func (b *bareSQLite) commit(_ context.Context, rows int, fenced bool) error {
	if err := b.begin.Exec(); err != nil {
		return err
	}

	if fenced {
		b.batch++
		if err := errors.Join(b.fence.BindInt64(1, b.batch), b.fence.Exec()); err != nil {
			return err
		}
		if n := b.conn.Changes(); n != 1 {
			return fmt.Errorf("the fence matched %d rows", n)
		}
	}

	for range rows {
		b.seq++
		// A batch of many rows has many executions, like the history of a busy engine.
		binary.BigEndian.PutUint64(b.run[:], uint64(b.seq))
		if err := errors.Join(b.insert.BindBlob(1, b.run[:]), b.insert.BindInt64(2, b.seq), b.insert.BindBlob(3, record), b.insert.Exec()); err != nil {
			return err
		}
	}

	return b.end.Exec()
}

func (b *bareSQLite) close(context.Context) error {
	var errs []error
	for _, s := range []*sqlite3.Stmt{b.begin, b.fence, b.insert, b.end} {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, b.conn.Close())...)
}
