package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// settings has the settings of the store and the tombstones of removed settings.
type settings struct {
	rows ordered[*store.Setting] // sorted by key, including tombstones
	// counter is the last version that was used. swept is the highest version of a removed
	// tombstone.
	counter, swept int64
}

func byKey(a, b *store.Setting) int { return a.Compare(b.SettingKey) }

// present returns a setting, or nil if there is none or only its tombstone.
func (s *settings) present(key store.SettingKey) *store.Setting {
	row, ok := s.rows.get(&store.Setting{SettingKey: key})
	if !ok || row.Deleted {
		return nil
	}
	return row
}

// PutSetting stores a setting.
func (s *Store) PutSetting(ctx context.Context, row store.Setting, expected int64) (int64, error) {
	row.Body, row.Deleted, row.Damaged = bytes.Clone(row.Body), false, nil
	return s.set(ctx, "put setting", row, expected)
}

// DeleteSetting removes a setting and leaves a tombstone.
func (s *Store) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	return s.set(ctx, "delete setting", store.Setting{SettingKey: key, Deleted: true}, expected)
}

func (s *Store) set(ctx context.Context, op string, row store.Setting, expected int64) (int64, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, op); err != nil {
		return 0, err
	}
	version := int64(0)
	if old := s.settings.present(row.SettingKey); old != nil {
		version = old.Version
	}
	if err := store.CheckVersion(op, store.VersionError{Key: row.SettingKey, Expected: expected, Present: version}, row.Deleted); err != nil {
		return 0, err
	}

	s.settings.counter++
	row.Version, row.At = s.settings.counter, s.time()
	s.settings.rows.remove(&row)
	s.settings.rows.insert(&row)
	return row.Version, nil
}

// each visits all settings and tombstones in the order of their keys.
func (s *settings) each(visit func(row *store.Setting)) {
	for p := s.rows.first(); ; p.next() {
		row, ok := p.at()
		if !ok {
			return
		}
		visit(row)
	}
}

func cloneSetting(s store.Setting) store.Setting {
	s.Body = bytes.Clone(s.Body)
	return s
}

// ListSettings returns the settings of a tenant.
func (s *Store) ListSettings(ctx context.Context, tenant, kind string) (out []store.Setting, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "list settings"); err != nil {
		return nil, err
	}
	s.settings.each(func(row *store.Setting) {
		if row.Tenant == tenant && (kind == "" || row.Kind == kind) && !row.Deleted {
			out = append(out, cloneSetting(*row))
		}
	})
	return out, nil
}

// LoadSettings returns the changed settings.
func (s *Store) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load settings"); err != nil {
		return store.SettingChanges{}, err
	}
	out := store.SettingChanges{Counter: s.settings.counter, Whole: after <= 0 || after < s.settings.swept}
	s.settings.each(func(row *store.Setting) {
		if out.Whole && !row.Deleted || !out.Whole && row.Version > after {
			out.Changed = append(out.Changed, cloneSetting(*row))
		}
	})
	slices.SortFunc(out.Changed, func(a, b store.Setting) int { return cmp.Compare(a.Version, b.Version) })
	return out, nil
}

// sweep removes old tombstones, at most left of them, and returns how many more rows the sweep may
// remove.
func (s *settings) sweep(before model.Time, left int) int {
	var old []*store.Setting
	s.each(func(row *store.Setting) {
		if row.Deleted && row.At < before && len(old) < left {
			old = append(old, row)
		}
	})
	for _, row := range old {
		s.rows.remove(row)
		s.swept = max(s.swept, row.Version)
	}
	return left - len(old)
}
