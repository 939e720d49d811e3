package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// follower is a function that gets all settings of some kinds when one of them changes.
type follower struct {
	kinds []string
	tell  func([]store.Setting)
}

// Follow calls tell with all settings of the given kinds: once before it returns, and again
// whenever one of these settings has changed. tell must not block and must not use the Flow.
func (f *Flow) Follow(ctx context.Context, kinds []string, tell func([]store.Setting)) error {
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := f.refresh(ctx); err != nil {
		return err
	}
	f.followers = append(f.followers, follower{kinds, tell})
	tell(f.known(func(k store.SettingKey) bool { return slices.Contains(kinds, k.Kind) }))
	return nil
}

// tellFollowers tells followers about changed settings. The caller must hold the turn.
func (f *Flow) tellFollowers(changed map[store.SettingKey]bool) {
	for _, w := range f.followers {
		for key := range changed {
			if slices.Contains(w.kinds, key.Kind) {
				w.tell(f.known(func(k store.SettingKey) bool { return slices.Contains(w.kinds, k.Kind) }))
				break
			}
		}
	}
}

// known returns the known settings that keep selects, in the order of their keys.
func (f *Flow) known(keep func(store.SettingKey) bool) (all []store.Setting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(f.all), store.SettingKey.Compare) {
		if keep(key) {
			all = append(all, f.all[key])
		}
	}
	return all
}

// Settings reads the settings that keep selects, in the order of their keys.
func (f *Flow) Settings(ctx context.Context, keep func(store.SettingKey) bool) ([]store.Setting, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := f.refresh(ctx); err != nil {
		return nil, err
	}
	return f.known(keep), nil
}

// Change stores or removes a setting that this package does not interpret. make gets the current
// setting, or nil if there is none. It returns the new body, nil to remove the setting, or needed =
// false to leave the setting as it is.
func (f *Flow) Change(ctx context.Context, key store.SettingKey, make func(old *store.Setting) (body []byte, needed bool, err error)) error {
	return f.change(ctx, key, make)
}

// SetSetting stores body as the setting, or removes the setting if body is empty. body has the
// stored form of the setting. SetSetting makes the same checks as the method for this kind of
// setting, such as SetLimit with anyQueue. If want is not nil, *want is the version that the
// setting must have now; 0 means that the setting must not exist.
func (f *Flow) SetSetting(ctx context.Context, key store.SettingKey, body []byte, want *int64) error {
	e, err := f.parseEdit(key, body)
	if err != nil {
		return err
	}
	if e.key != key {
		return fault.New(fault.Invalid, "setting %s: its content belongs to %s", key, e.key.Name)
	}

	return f.change(ctx, key, func(old *store.Setting) ([]byte, bool, error) {
		present := int64(0)
		if old != nil {
			present = old.Version
		}
		if want != nil && *want != present {
			return nil, false, &store.VersionError{Key: key, Expected: *want, Present: present}
		}
		return e.make(old)
	})
}

// Editable reports whether SetSetting accepts a setting.
func Editable(key store.SettingKey) bool {
	switch key.Kind {
	case settingLimit, settingBreaker, settingQueue:
		return true
	}
	return key.Kind == settingTenant && key.Name == allowanceName
}

// parseEdit reads the stored form of a setting.
func (f *Flow) parseEdit(key store.SettingKey, body []byte) (edit, error) {
	switch {
	case !Editable(key):
		return edit{}, fault.New(fault.Invalid, "setting %s cannot be set: only limits, breakers, queues and allowances can", key)
	case len(body) == 0:
		return edit{key, func(old *store.Setting) ([]byte, bool, error) {
			if old == nil {
				return nil, false, fault.New(fault.NotFound, "setting %s does not exist", key)
			}
			return nil, true, nil
		}}, nil
	}

	switch key.Kind {
	case settingLimit:
		var l rule.Limit
		if err := readStrictly(key, body, &l); err != nil {
			return edit{}, err
		}
		return f.editLimit(key.Tenant, l.Name, nil, func(*store.Setting) (rule.Limit, error) { return l, nil }), nil
	case settingBreaker:
		var b rule.Breaker
		if err := readStrictly(key, body, &b); err != nil {
			return edit{}, err
		}
		return f.editBreaker(key.Tenant, b)
	case settingQueue:
		var p pausedQueue
		if err := readStrictly(key, body, &p); err != nil {
			return edit{}, err
		}
		return editQueue(key.Tenant, key.Name, p.Why)
	}

	var a rule.Allowance
	if err := readStrictly(key, body, &a); err != nil {
		return edit{}, err
	}
	return editAllowance(key.Tenant, func(rule.Allowance) rule.Allowance { return a }), nil
}

// readStrictly decodes what a person wrote: a misspelt field is an error.
func readStrictly(key store.SettingKey, body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fault.New(fault.Invalid, "setting %s: %w", key, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "setting %s: there is something behind the value", key)
	}
	return nil
}
