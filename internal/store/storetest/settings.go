package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var settingTests = []test{
	{name: "settings are listed as they were put", run: testSettings},
	{name: "a change that expects another version is refused", run: testSettingVersions},
	{name: "changes since a version, deletions included", run: testSettingChanges},
	{name: "the view tells how far the counter is", run: testSettingView},
	{name: "a node that missed a tombstone gets everything", run: testSettingTombstones},
	{name: "of many who change a setting one succeeds", run: testSettingRace},
	{name: "no node misses a change", run: testSettingOrder},
}

func setting(kind, name, body string) store.Setting {
	return store.Setting{SettingKey: store.SettingKey{Tenant: model.DefaultTenant, Kind: kind, Name: name}, Body: []byte(body)}
}

// putSetting changes a setting, which must succeed, and returns it as it is stored.
func (x *suite) putSetting(s store.Setting, expected int64) store.Setting {
	x.Helper()
	s.Version = try(x.Store.PutSetting(x.Context(), s, expected)).or(x)
	return s
}

// plain returns settings without the times of their changes, which must be set.
func (x *suite) plain(rows []store.Setting) []store.Setting {
	x.Helper()
	for i := range rows {
		if rows[i].At <= 0 {
			x.Errorf("%s has no time", rows[i].SettingKey)
		}
		rows[i].At = 0
	}
	return rows
}

func testSettings(x *suite) {
	b := x.putSetting(setting("limit", "b", "2"), 0)
	a := x.putSetting(setting("limit", "a", ""), 0)
	q := x.putSetting(setting("queue", "a", "\x00\xff"), 0)
	other := setting("limit", "a", "other")
	other.Tenant = "other"
	other = x.putSetting(other, 0)
	b.Body = []byte("3")
	b = x.putSetting(b, b.Version)
	list := func(tenant, kind string) []store.Setting {
		return x.plain(try(x.Store.ListSettings(x.Context(), tenant, kind)).or(x))
	}
	x.Want("of a kind", []store.Setting{a, b}, list(model.DefaultTenant, "limit"))
	x.Want("of all kinds", []store.Setting{a, b, q}, list(model.DefaultTenant, ""))
	x.Want("of another tenant", []store.Setting{other}, list("other", "limit"))
	x.Want("of an unknown kind", []store.Setting(nil), list(model.DefaultTenant, "breaker"))
	if _, err := x.Store.DeleteSetting(x.Context(), b.SettingKey, b.Version); err != nil {
		x.Fatal(err)
	}

	x.Want("after a deletion", []store.Setting{a}, list(model.DefaultTenant, "limit"))
}

func testSettingVersions(x *suite) {
	s := setting("limit", "a", "1")
	put := func(expected int64) func() (int64, error) {
		return func() (int64, error) { return x.Store.PutSetting(x.Context(), s, expected) }
	}
	remove := func(expected int64) func() (int64, error) {
		return func() (int64, error) { return x.Store.DeleteSetting(x.Context(), s.SettingKey, expected) }
	}

	refused := func(what string, change func() (int64, error), present int64) {
		x.Helper()
		before := try(x.Store.LoadSettings(x.Context(), 0)).or(x)
		_, err := change()
		var wrong *store.VersionError
		switch {
		case !errors.As(err, &wrong) || wrong.Present != present || wrong.Key != s.SettingKey:
			x.Fatalf("%s: %v, want an error that tells version %d", what, err, present)
		case store.ClassOf(err) != store.Refused || fault.KindOf(err) != fault.Conflict:
			x.Errorf("%s: class %s, kind %s", what, store.ClassOf(err), fault.KindOf(err))
		}
		x.Want(what, before, try(x.Store.LoadSettings(x.Context(), 0)).or(x))
	}

	refused("a change of nothing", put(7), 0)
	refused("a deletion of nothing", remove(7), 0)
	refused("a deletion of nothing that expects nothing", remove(0), 0)
	first := try(put(0)()).or(x)
	if first < 1 {
		x.Fatalf("version %d", first)
	}

	refused("one more", put(0), first)
	refused("a deletion that expects nothing", remove(0), first)
	refused("a change of a later version", put(first+1), first)
	second := try(put(first)()).or(x)
	if second <= first {
		x.Errorf("version %d after version %d", second, first)
	}
	refused("a change of the version before", put(first), second)
	refused("a deletion of the version before", remove(first), second)
	gone := try(remove(second)()).or(x)
	if gone <= second {
		x.Errorf("tombstone %d after version %d", gone, second)
	}
	refused("a change of a tombstone", put(gone), 0)
	refused("another deletion", remove(gone), 0)
	if again := try(put(0)()).or(x); again <= gone {
		x.Errorf("version %d after tombstone %d", again, gone)
	}
}

func testSettingChanges(x *suite) {
	load := func(after int64) store.SettingChanges {
		c := try(x.Store.LoadSettings(x.Context(), after)).or(x)
		c.Changed = x.plain(c.Changed)
		return c
	}

	x.Want("nothing yet", store.SettingChanges{Whole: true}, load(0))
	a, b, c := x.putSetting(setting("limit", "a", "1"), 0), x.putSetting(setting("limit", "b", "1"), 0), x.putSetting(setting("queue", "c", "1"), 0)
	all := load(0)
	x.Want("all", store.SettingChanges{Counter: all.Counter, Whole: true, Changed: []store.Setting{a, b, c}}, all)
	if all.Counter < c.Version {
		x.Errorf("the counter is at %d, version %d is taken", all.Counter, c.Version)
	}
	x.Want("nothing new", store.SettingChanges{Counter: all.Counter}, load(all.Counter))
	x.Want("since the first", []store.Setting{b, c}, load(a.Version).Changed)
	a.Body = []byte("2")
	a = x.putSetting(a, a.Version)
	b = store.Setting{SettingKey: b.SettingKey, Deleted: true, Version: try(x.Store.DeleteSetting(x.Context(), b.SettingKey, b.Version)).or(x)}
	later := load(all.Counter)
	x.Want("changes", store.SettingChanges{Counter: later.Counter, Changed: []store.Setting{a, b}}, later)
	x.Want("all that is left", []store.Setting{c, a}, load(0).Changed)
}

func testSettingView(x *suite) {
	n := x.Join(1)
	before := n.Renew(time.Hour).Settings
	s := x.putSetting(setting("limit", "a", "1"), 0)
	after := n.Renew(time.Hour).Settings
	if before != 0 || after < s.Version {
		x.Errorf("the view said %d and says %d, version %d is taken", before, after, s.Version)
	}
	if got := try(x.Store.Members(x.Context())).or(x).Settings; got != after {
		x.Errorf("members say %d, the renewal %d", got, after)
	}
	if got := try(x.Store.LoadSettings(x.Context(), 0)).or(x).Counter; got != after {
		x.Errorf("the changes go to %d, the view says %d", got, after)
	}
	_ = try(x.Store.DeleteSetting(x.Context(), s.SettingKey, s.Version)).or(x)
	if got := n.Renew(time.Hour).Settings; got <= after {
		x.Errorf("the view says %d after a deletion, and %d before", got, after)
	}
}

func testSettingTombstones(x *suite) {
	a, b := x.putSetting(setting("limit", "a", "1"), 0), x.putSetting(setting("limit", "b", "1"), 0)
	seen := try(x.Store.LoadSettings(x.Context(), 0)).or(x).Counter
	for _, s := range []store.Setting{a, b} {
		_ = try(x.Store.DeleteSetting(x.Context(), s.SettingKey, s.Version)).or(x)
	}
	b = x.putSetting(setting("limit", "b", "2"), 0)
	last := try(x.Store.LoadSettings(x.Context(), seen)).or(x)
	if last.Whole || len(last.Changed) != 2 {
		x.Fatalf("%+v, want the tombstone of a and the new b", last)
	}

	sweep := func(before model.Time) int {
		return try(x.Store.Sweep(x.Context(), store.SweepRequest{SettingsBefore: before, Limit: 10})).or(x)
	}
	if n := sweep(0) + sweep(1); n != 0 {
		x.Errorf("%d tombstones were swept too early", n)
	}
	if n := sweep(model.MaxTime); n != 1 {
		x.Errorf("%d tombstones were swept, want 1", n)
	}
	got := try(x.Store.LoadSettings(x.Context(), seen)).or(x)
	x.Want("for one who has not seen it", store.SettingChanges{Counter: last.Counter, Whole: true, Changed: []store.Setting{b}},
		store.SettingChanges{Counter: got.Counter, Whole: got.Whole, Changed: x.plain(got.Changed)})
	x.Want("for one who has", store.SettingChanges{Counter: last.Counter}, try(x.Store.LoadSettings(x.Context(), last.Counter)).or(x))
	if n := sweep(model.MaxTime); n != 0 {
		x.Errorf("%d tombstones were swept again", n)
	}
}

func testSettingRace(x *suite) {
	s := x.putSetting(setting("limit", "a", "0"), 0)
	const people = 8
	errs := make([]error, people)
	var all sync.WaitGroup
	for i := range people {
		all.Go(func() { _, errs[i] = x.Store.PutSetting(x.Context(), setting("limit", "a", fmt.Sprint(i)), s.Version) })
	}
	all.Wait()

	won := -1
	for i, err := range errs {
		var wrong *store.VersionError
		switch {
		case err == nil && won >= 0:
			x.Errorf("both %d and %d succeeded", won, i)
		case err == nil:
			won = i
		case !errors.As(err, &wrong):
			x.Errorf("%d: %v", i, err)
		}
	}

	got := try(x.Store.ListSettings(x.Context(), model.DefaultTenant, "limit")).or(x)
	if won < 0 || len(got) != 1 || string(got[0].Body) != fmt.Sprint(won) {
		x.Errorf("%d succeeded, and there is %+v", won, got)
	}
}

// testSettingOrder loads changes of settings while other callers make them. At the end, the loaded
// changes must add up to the stored state.
func testSettingOrder(x *suite) {
	const people, changes = 4, 15
	var writers sync.WaitGroup
	done := make(chan struct{})

	for i := range people {
		writers.Go(func() {
			key, version := fmt.Sprint(i), int64(0)
			for n := range changes {
				var err error
				if s := setting("limit", key, fmt.Sprint(n)); n%4 == 3 {
					if _, err = x.Store.DeleteSetting(x.Context(), s.SettingKey, version); err == nil {
						version = 0
					}
				} else {
					version, err = x.Store.PutSetting(x.Context(), s, version)
				}
				if err != nil {
					x.Errorf("change %d of %s: %v", n, key, err)
					return
				}
			}
		})
	}

	go func() {
		defer close(done)
		writers.Wait()
	}()

	known, counter := map[store.SettingKey]int64{}, int64(0)
	follow := func() {
		c := try(x.Store.LoadSettings(x.Context(), counter)).or(x)
		for _, s := range c.Changed {
			if s.Version > c.Counter || s.Version <= counter {
				x.Fatalf("version %d between %d and %d", s.Version, counter, c.Counter)
			}
			if known[s.SettingKey] = s.Version; s.Deleted {
				delete(known, s.SettingKey)
			}
		}
		counter = c.Counter
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		follow()
	}

	var want, got []int64
	for _, s := range try(x.Store.ListSettings(x.Context(), model.DefaultTenant, "")).or(x) {
		want = append(want, s.Version)
	}
	for _, v := range known {
		got = append(got, v)
	}
	slices.Sort(want)
	slices.Sort(got)
	x.Want("versions that were followed", want, got)
}
