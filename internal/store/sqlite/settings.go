package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlSettingVersion = `select version from perdure_settings where tenant = ?1 and kind = ?2 and name = ?3 and body is not null`
	sqlPutSetting     = `insert into perdure_settings (tenant, kind, name, version, at, body) values (?1, ?2, ?3, ?4, ?5, ?6)
		on conflict (tenant, kind, name) do update set version = excluded.version, at = excluded.at, body = excluded.body`
	settingColumns  = `tenant, kind, name, version, at, body`
	sqlSettings     = `select ` + settingColumns + ` from perdure_settings where tenant = ?1 and kind = ?2 and body is not null order by kind, name`
	sqlAllSettings  = `select ` + settingColumns + ` from perdure_settings where tenant = ?1 and body is not null order by kind, name`
	sqlLoadSettings = `select ` + settingColumns + ` from perdure_settings where version > ?1 and (?2 = 0 or body is not null) order by version`
	sqlMeta         = `select value from perdure_meta where name = ?1`
	sqlDrawSetting  = `update perdure_meta set value = value + 1 where name = 'settings' returning value`
	sqlGoneSettings = `select version, tenant, kind, name from perdure_settings indexed by perdure_settings_gone
		where body is null and at < ?1 order by at limit ?2`
	sqlSweepSetting = `delete from perdure_settings where tenant = ?1 and kind = ?2 and name = ?3`
	sqlNoteSwept    = `update perdure_meta set value = max(value, ?1) where name = 'settings_swept'`
)

// PutSetting stores a setting.
func (s *Store) PutSetting(ctx context.Context, row store.Setting, expected int64) (int64, error) {
	const op = "put setting"
	if len(row.Body) > maxBody {
		return 0, store.Errorf(store.Refused, op, "%d bytes are too large, the limit is %d", len(row.Body), maxBody)
	}
	return s.set(ctx, op, row.SettingKey, expected, func(version int64, at model.Time) []byte {
		return seal(slices.Clone(row.Body), 0, settingSum(nil, row.SettingKey, version, at))
	})
}

// DeleteSetting removes a setting and leaves a tombstone.
func (s *Store) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	return s.set(ctx, "delete setting", key, expected, nil)
}

// set changes a setting. The function body returns the stored form of the new value. body is nil if
// the setting becomes a tombstone.
func (s *Store) set(ctx context.Context, op string, k store.SettingKey, expected int64, body func(version int64, at model.Time) []byte) (version int64, err error) {
	err = s.write(ctx, op, func(w *writer) error {
		// There is one writer, so the version cannot change between this check and the write.
		present, _, err := w.number(sqlSettingVersion, k.Tenant, k.Kind, k.Name)
		if err != nil {
			return err
		}
		if err := store.CheckVersion(op, store.VersionError{Key: k, Expected: expected, Present: present}, body == nil); err != nil {
			return err
		}

		// One counter numbers the changes of all settings. A node that knows all changes up to a
		// number asks only for changes with higher numbers.
		if version, _, err = w.number(sqlDrawSetting); err != nil {
			return err
		}
		at := now()
		var sealed []byte
		if body != nil {
			sealed = body(version, at)
		}
		_, err = w.exec(sqlPutSetting, k.Tenant, k.Kind, k.Name, version, int64(at), sealed)

		return err
	})
	if err != nil {
		return 0, err
	}

	return version, nil
}

// scanSetting reads a setting: settingColumns.
func scanSetting(q *stmt) store.Setting {
	s := store.Setting{SettingKey: store.SettingKey{Tenant: q.text(0), Kind: q.text(1), Name: q.text(2)}, Version: q.int(3), At: model.Time(q.int(4))}
	sealed := q.raw(5)
	if s.Deleted = sealed == nil; s.Deleted {
		return s
	}
	body, err := unseal(settingSum(nil, s.SettingKey, s.Version, s.At), sealed)
	if err != nil {
		s.Body, s.Damaged = []byte{}, model.Damage(sealed, corrupt(err, "settings, %s", s.SettingKey))
		return s
	}
	s.Body = slices.Clone(body)
	return s
}

// ListSettings returns the settings of a tenant.
func (s *Store) ListSettings(ctx context.Context, tenant, kind string) (out []store.Setting, err error) {
	sql, args := sqlAllSettings, []any{tenant}
	if kind != "" {
		sql, args = sqlSettings, append(args, kind)
	}
	err = s.read(ctx, "list settings", func(c *conn) error {
		return c.query(sql, func(q *stmt) error {
			out = append(out, scanSetting(q))
			return nil
		}, args...)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LoadSettings returns the changed settings.
func (s *Store) LoadSettings(ctx context.Context, after int64) (out store.SettingChanges, err error) {
	err = s.read(ctx, "load settings", func(c *conn) (err error) {
		if out.Counter, err = settingsCounter(c); err != nil {
			return err
		}
		swept, _, err := c.number(sqlMeta, "settings_swept")
		if err != nil {
			return err
		}
		whole := 0
		// If a node has not seen the last tombstone that a sweep has removed, it must load all
		// settings to find out about that deletion.
		if out.Whole = after <= 0 || after < swept; out.Whole {
			after, whole = 0, 1
		}
		return c.query(sqlLoadSettings, func(q *stmt) error {
			out.Changed = append(out.Changed, scanSetting(q))
			return nil
		}, after, whole)
	})
	if err != nil {
		return store.SettingChanges{}, err
	}

	return out, nil
}

// settingsCounter returns the last version that was used.
func settingsCounter(c *conn) (int64, error) {
	n, found, err := c.number(sqlMeta, "settings")
	if err == nil && !found {
		err = corrupt(fmt.Errorf("the counter of settings is missing"), "meta")
	}
	return n, err
}

// sweepSettings deletes old tombstones and records the highest version of the deleted tombstones.
func sweepSettings(c *conn, before model.Time, limit int) (int, error) {
	if limit <= 0 || before == 0 {
		return 0, nil
	}
	var keys []store.SettingKey
	last := int64(0)

	err := c.query(sqlGoneSettings, func(q *stmt) error {
		last = max(last, q.int(0))
		keys = append(keys, store.SettingKey{Tenant: q.text(1), Kind: q.text(2), Name: q.text(3)})
		return nil
	}, int64(before), limit)
	if err != nil || len(keys) == 0 {
		return 0, err
	}

	for _, k := range keys {
		if _, err := c.exec(sqlSweepSetting, k.Tenant, k.Kind, k.Name); err != nil {
			return 0, err
		}
	}

	// Nodes that have not seen these tombstones must now load all settings.
	_, err = c.exec(sqlNoteSwept, last)
	return len(keys), err
}
