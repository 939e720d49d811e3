package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/ncruces/go-sqlite3"
)

// pointsSQLite writes points to a SQLite file.
type pointsSQLite struct {
	conn              *sqlite3.Conn
	begin, fence, end *sqlite3.Stmt
	stages            [stageEnd + 1]*sqlite3.Stmt
	batch             int64
}

func openPointsSQLite(ctx context.Context, path string) (_ *pointsSQLite, err error) {
	name := url.URL{Scheme: "file", Path: path}
	conn, err := sqlite3.OpenContext(ctx, name.String())
	if err != nil {
		return nil, err
	}
	b := &pointsSQLite{conn: conn}

	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()

	// The rows have the columns of our store, without the columns for lists and recovery. Every
	// table has one tree.
	const schema = `
pragma page_size = 4096;
pragma journal_mode = wal;
pragma synchronous = full;
create table fence (lane integer primary key, epoch integer not null, batch integer not null) strict;
insert into fence values (0, 1, 0);
create table executions (
  run blob not null, shard integer not null, state integer not null, started integer not null, closed integer not null,
  tenant text not null, workflow text not null, key text not null, start blob, outcome blob,
  primary key (run, shard)
) strict, without rowid;
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
		{&b.stages[stageStart], `insert into executions (run, shard, state, started, closed, tenant, workflow, key, start)
values (?1, 1, 0, ?2, 0, 'default', 'three', ?4, ?3)`},
		{&b.stages[stageStep], "insert into history (run, shard, seq, at, kind, body) values (?1, 1, ?4, ?2, 1, ?3)"},
		{&b.stages[stageEnd], "update executions set state = 2, closed = ?2, outcome = ?3 where run = ?1 and shard = 1"},
		{&b.end, "commit"},
	} {
		if *s.to, _, err = conn.PrepareFlags(s.sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
	}

	return b, nil
}

func (b *pointsSQLite) write(_ context.Context, points []*point) error {
	if err := b.begin.Exec(); err != nil {
		return err
	}
	b.batch++
	if err := errors.Join(b.fence.BindInt64(1, b.batch), b.fence.Exec()); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if n := b.conn.Changes(); n != 1 {
		return fmt.Errorf("fence: matched %d rows", n)
	}

	for _, p := range points {
		if err := b.one(p); err != nil {
			return err
		}
	}
	return b.end.Exec()
}

// one writes the row of a point.
func (b *pointsSQLite) one(p *point) error {
	s := b.stages[p.stage]
	err := errors.Join(s.BindBlob(1, p.run[:]), s.BindInt64(2, p.at), s.BindBlob(3, record))
	switch p.stage {
	case stageStart:
		err = errors.Join(err, s.BindText(4, p.key))
	case stageStep:
		err = errors.Join(err, s.BindInt64(4, p.seq))
	case stageEnd:
	}

	if err := errors.Join(err, s.Exec()); err != nil {
		return err
	}
	if n := b.conn.Changes(); n != 1 {
		return fmt.Errorf("a point of run %s wrote %d rows", p.run, n)
	}
	return nil
}

// close closes the connection. It also ends a transaction that a failure has left open.
func (b *pointsSQLite) close(context.Context) error {
	var errs []error
	for _, s := range append(b.stages[:], b.begin, b.fence, b.end) {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, b.conn.Close())...)
}
