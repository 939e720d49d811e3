package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Settings are named resources that operators edit while nodes run: limits, breakers, paused
// queues. They belong to no shard, and any process may change them.
//
// Every change takes the next number of one counter, in commit order. That number is the new
// version of the setting. So a node that has seen all changes up to a number can ask for the
// changes above that number, and misses none. Each renewal of a lease returns the counter in
// [View.Settings].
type Settings interface {
	// PutSetting stores a setting and returns its new version, if the present version is the
	// expected one. An expected version of 0 means that the setting must not exist. If the present
	// version is another one, PutSetting returns a [VersionError] of class Refused. It ignores the
	// version in s. After an error of class Unknown the caller can read the setting to find out
	// what happened.
	PutSetting(ctx context.Context, s Setting, expected int64) (int64, error)
	// DeleteSetting removes a setting under the same condition and returns the version of its
	// tombstone. Deleting a setting that does not exist is an error for every expected version.
	DeleteSetting(ctx context.Context, key SettingKey, expected int64) (int64, error)
	// ListSettings returns the settings of a tenant that have the kind, ordered by kind and name.
	// An empty kind means all kinds.
	ListSettings(ctx context.Context, tenant, kind string) ([]Setting, error)
	// LoadSettings returns the changes since the counter was at after: the last state of each
	// changed setting, including tombstones.
	LoadSettings(ctx context.Context, after int64) (SettingChanges, error)
}

// SettingKey names a setting.
type SettingKey struct{ Tenant, Kind, Name string }

// Compare orders keys by tenant, kind and name.
func (k SettingKey) Compare(o SettingKey) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Name, o.Name))
}

// String returns tenant/kind/name, for errors.
func (k SettingKey) String() string { return k.Tenant + "/" + k.Kind + "/" + k.Name }

// Setting is a named resource.
type Setting struct {
	SettingKey
	Version int64
	// At is the time of the change, by the clock of the store.
	At   model.Time
	Body []byte
	// Deleted marks a tombstone. It has no body. A sweep removes it later.
	Deleted bool
	// Damaged is set if the body cannot be read. In that case the body is empty.
	Damaged *model.Damaged
}

// SettingChanges is the result of LoadSettings.
type SettingChanges struct {
	// Counter is where the changes end. The caller passes it to the next LoadSettings.
	Counter int64
	// Whole means that Changed has all settings. If the caller knows a setting that is not in
	// Changed, that setting was deleted. Whole is set if the caller asked for everything. It is
	// also set if a sweep has already removed tombstones of the changes that the caller asked for.
	Whole bool
	// Changed is ordered by version. It has no tombstones if Whole is set.
	Changed []Setting
}

// VersionError means that a setting does not have the version that the caller expected.
type VersionError struct {
	Key               SettingKey
	Expected, Present int64 // 0 when there is none
}

// Error names the setting and both versions.
func (e *VersionError) Error() string {
	switch {
	case e.Present == 0:
		return fmt.Sprintf("setting %s does not exist, version %d was expected", e.Key, e.Expected)
	case e.Expected == 0:
		return fmt.Sprintf("setting %s exists, with version %d", e.Key, e.Present)
	}
	return fmt.Sprintf("setting %s has version %d, not %d", e.Key, e.Present, e.Expected)
}

// Unwrap returns an error of kind fault.Conflict.
func (e *VersionError) Unwrap() error { return fault.New(fault.Conflict, "setting %s", e.Key) }

// CheckVersion returns nil if the expected version is the present one. Otherwise it returns v as an
// error of class Refused. If remove is set, it always returns an error for a setting that does not
// exist.
func CheckVersion(op string, v VersionError, remove bool) error {
	if v.Expected == v.Present && (v.Present != 0 || !remove) {
		return nil
	}
	return &Error{Class: Refused, Op: op, Err: &v}
}
