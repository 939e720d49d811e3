package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Settings are named resources that people edit while nodes run: limits, breakers, paused queues.
// They belong to no shard, and any process may change them.
//
// Every change draws from one counter, in the order in which changes are committed; what it draws
// is the version of the setting. So whoever has seen the changes up to a number asks for those
// above it and misses none. [View.Settings] tells every node with each renewal how far the counter
// is.
type Settings interface {
	// PutSetting stores a setting if its version is the expected one, 0 for one that must not
	// exist, and returns its new version; the version in s is ignored. Otherwise the error is a
	// [VersionError] of class Refused. When its class is Unknown, to read the setting tells what
	// happened.
	PutSetting(ctx context.Context, s Setting, expected int64) (int64, error)
	// DeleteSetting removes a setting under the same condition and returns the version of its
	// tombstone. What does not exist has no version to expect.
	DeleteSetting(ctx context.Context, key SettingKey, expected int64) (int64, error)
	// ListSettings returns the settings of a tenant that are of the kind, or of all kinds when that
	// is empty, ordered by kind and name.
	ListSettings(ctx context.Context, tenant, kind string) ([]Setting, error)
	// LoadSettings returns what has changed since the counter stood at after: the last state of
	// each setting, tombstones included.
	LoadSettings(ctx context.Context, after int64) (SettingChanges, error)
}

// SettingKey names a setting.
type SettingKey struct{ Tenant, Kind, Name string }

// Compare orders keys by tenant, kind and name.
func (k SettingKey) Compare(o SettingKey) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Name, o.Name))
}

// String is tenant/kind/name, for errors.
func (k SettingKey) String() string { return k.Tenant + "/" + k.Kind + "/" + k.Name }

// Setting is a named resource.
type Setting struct {
	SettingKey
	Version int64
	// At is the store's time of the change.
	At   model.Time
	Body []byte
	// Deleted marks a tombstone: it has no body, and is swept after a while.
	Deleted bool
	// Damaged is set when the body cannot be read; it is empty then.
	Damaged *model.Damaged
}

// SettingChanges is what has changed.
type SettingChanges struct {
	// Counter is how far the changes go: what to ask for next time.
	Counter int64
	// Whole tells that these are all settings there are, and that others which the caller knows of
	// are gone: it asked for everything, or for changes so old that tombstones among them have been
	// swept.
	Whole bool
	// Changed is ordered by version. There are no tombstones in a whole one.
	Changed []Setting
}

// VersionError tells that a setting does not have the version that somebody expected.
type VersionError struct {
	Key               SettingKey
	Expected, Present int64 // 0 when there is none
}

// Error is a sentence.
func (e *VersionError) Error() string {
	switch {
	case e.Present == 0:
		return fmt.Sprintf("setting %s does not exist, version %d was expected", e.Key, e.Expected)
	case e.Expected == 0:
		return fmt.Sprintf("setting %s exists, with version %d", e.Key, e.Present)
	}
	return fmt.Sprintf("setting %s has version %d, not %d", e.Key, e.Present, e.Expected)
}

// Unwrap makes it a conflict.
func (e *VersionError) Unwrap() error { return fault.New(fault.Conflict, "setting %s", e.Key) }

// CheckVersion is the error of a change that expects another version than the present one, 0 when
// there is none; nil when it is right.
func CheckVersion(op string, key SettingKey, expected, present int64, remove bool) error {
	if expected == present && (present != 0 || !remove) {
		return nil
	}
	return &Error{Class: Refused, Op: op, Err: &VersionError{key, expected, present}}
}
