package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// PutSetting stores a setting.
func (s *Store) PutSetting(ctx context.Context, row store.Setting, expected int64) (int64, error) {
	body := row.Body
	if body == nil {
		body = []byte{} // null is a tombstone
	}
	return s.set(ctx, "put setting", row.SettingKey, expected, body)
}

// DeleteSetting removes a setting and leaves a tombstone.
func (s *Store) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	return s.set(ctx, "delete setting", key, expected, nil)
}

// set changes a setting. If body is nil, the setting becomes a tombstone. set locks the counter
// first, so changes happen one after the other, and each change sees the result of the previous
// change.
func (s *Store) set(ctx context.Context, op string, k store.SettingKey, expected int64, body []byte) (version int64, err error) {
	const (
		draw    = `update {schema}.settings_counter set last = last + 1 where id = 1 returning last`
		present = `select version from {schema}.settings where tenant = $1 and kind = $2 and name = $3 and body is not null`
		put     = `
insert into {schema}.settings (tenant, kind, name, version, at, body) values ($1, $2, $3, $4, {now}, $5)
on conflict (tenant, kind, name) do update set version = excluded.version, at = excluded.at, body = excluded.body`
	)

	err = s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, s.sql(draw)).Scan(&version); err != nil {
				return err
			}
			var stands int64
			err := tx.QueryRow(ctx, s.sql(present), k.Tenant, k.Kind, k.Name).Scan(&stands)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			if err := store.CheckVersion(op, store.VersionError{Key: k, Expected: expected, Present: stands}, body == nil); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, s.sql(put), k.Tenant, k.Kind, k.Name, version, body)
			return err
		})
	})
	if err != nil {
		return 0, err
	}

	return version, nil
}

const settingColumns = `tenant, kind, name, version, at, body`

func scanSettings(rows pgx.Rows, err error) (out []store.Setting, _ error) {
	if err != nil {
		return nil, err
	}
	var r store.Setting
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&r.Tenant, &r.Kind, &r.Name, &r.Version, &r.At, &body}, func() error {
		r.Body, r.Deleted, body = body, body == nil, nil
		out = append(out, r)
		return nil
	})
	return out, err
}

// ListSettings returns the settings of a tenant.
func (s *Store) ListSettings(ctx context.Context, tenant, kind string) (out []store.Setting, err error) {
	const (
		all = `select ` + settingColumns + ` from {schema}.settings where tenant = $1 and body is not null order by kind, name`
		one = `select ` + settingColumns + ` from {schema}.settings where tenant = $1 and kind = $2 and body is not null order by name`
	)
	sql, args := all, []any{tenant}
	if kind != "" {
		sql, args = one, append(args, kind)
	}
	err = s.read(ctx, "list settings", func(ctx context.Context, c *pgx.Conn) error {
		out, err = scanSettings(c.Query(ctx, s.sql(sql), args...))
		return err
	})
	return out, err
}

// LoadSettings returns the changed settings, from one snapshot.
func (s *Store) LoadSettings(ctx context.Context, after int64) (out store.SettingChanges, err error) {
	const (
		counter = `select last, swept from {schema}.settings_counter`
		changed = `select ` + settingColumns + ` from {schema}.settings where version > $1 and ($2 or body is not null) order by version`
	)

	err = s.read(ctx, "load settings", func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			var swept int64
			if err := tx.QueryRow(ctx, s.sql(counter)).Scan(&out.Counter, &swept); err != nil {
				return err
			}
			from := after
			if out.Whole = after <= 0 || after < swept; out.Whole {
				from = 0
			}
			out.Changed, err = scanSettings(tx.Query(ctx, s.sql(changed), from, !out.Whole))
			return err
		})
	})
	if err != nil {
		return store.SettingChanges{}, err
	}

	return out, nil
}

// sweepSettings deletes old tombstones and records the highest version of the deleted tombstones.
// It locks the counter first, as every change does, but only if there is something to delete.
func (s *Store) sweepSettings(ctx context.Context, tx pgx.Tx, before model.Time, limit int) (int, error) {
	const (
		waiting = `select exists (select from {schema}.settings where body is null and at < $1 order by at limit 1)`
		lock    = `select from {schema}.settings_counter where id = 1 for update`
		sweep   = `
with w as (
  delete from {schema}.settings s where s.body is null and s.ctid = any (array(
    select q.ctid from {schema}.settings q where q.body is null and q.at < $1 order by q.at limit $2))
  returning version
), c as (
  update {schema}.settings_counter set swept = greatest(swept, (select max(version) from w)) where id = 1
)
select count(*) from w`
	)

	var some bool
	if err := tx.QueryRow(ctx, s.sql(waiting), before).Scan(&some); err != nil || !some {
		return 0, err
	}
	if _, err := tx.Exec(ctx, s.sql(lock)); err != nil {
		return 0, err
	}

	var n int
	err := tx.QueryRow(ctx, s.sql(sweep), before, limit).Scan(&n)
	return n, err
}
