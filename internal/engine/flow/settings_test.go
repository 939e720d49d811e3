package flow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// A follower learns about the settings of its kinds: the existing ones, the changes of its own
// process, and the changes of other nodes when its process reads them.
func TestFollow(t *testing.T) {
	t.Parallel()
	mem, ctx := memory.New(memory.Options{}), t.Context()
	here, there := newFlow(mem), newFlow(mem)
	key := func(name string) store.SettingKey { return store.SettingKey{Tenant: "acme", Kind: "key", Name: name} }
	set := func(body string) func(*store.Setting) ([]byte, bool, error) {
		return func(*store.Setting) ([]byte, bool, error) {
			if body == "" {
				return nil, true, nil
			}
			return []byte(body), true, nil
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	must(there.Change(ctx, key("a"), set("1")))
	var seen []string
	must(here.Follow(ctx, []string{"key"}, func(all []store.Setting) {
		now := ""
		for _, s := range all {
			now += s.Name + string(s.Body)
		}
		seen = append(seen, now)
	}))
	must(here.Change(ctx, key("b"), set("2")))
	must(here.SetAllowance(ctx, "acme", rule.Allowance{Weight: 2})) // a setting of another kind
	must(there.Change(ctx, key("a"), set("")))
	must(there.Change(ctx, key("c"), set("3")))
	must(here.Load(ctx, 1000))
	if want := []string{"a1", "a1b2", "b2c3"}; !slices.Equal(seen, want) {
		t.Errorf("the follower saw %q, want %q", seen, want)
	}
}

// Two operators who replace the same setting do not overwrite each other's change.
func TestSettingVersions(t *testing.T) {
	t.Parallel()
	mem, ctx := memory.New(memory.Options{}), t.Context()
	ann, bob := newFlow(mem), newFlow(mem)
	key := store.SettingKey{Tenant: "acme", Kind: "limit", Name: "smtp"}
	body := func(n int) []byte { return fmt.Appendf(nil, `{"name":"smtp","per":"name","concurrency":%d}`, n) }
	none := int64(0)
	if err := ann.SetSetting(ctx, key, body(1), &none); err != nil {
		t.Fatal(err)
	}

	read, err := bob.Settings(ctx, func(k store.SettingKey) bool { return k == key })
	if err != nil || len(read) != 1 {
		t.Fatalf("%v, %v", read, err)
	}
	if err := ann.SetSetting(ctx, key, body(2), nil); err != nil {
		t.Fatal(err)
	}

	if err := bob.SetSetting(ctx, key, body(3), &read[0].Version); !fault.Is(err, fault.Conflict) {
		t.Errorf("a change of an old version: %v", err)
	}
	if err := bob.SetSetting(ctx, key, nil, &read[0].Version); !fault.Is(err, fault.Conflict) {
		t.Errorf("a removal of an old version: %v", err)
	}
}

// Every node keeps the reasons of disabled limits and paused queues in memory. So they are bounded,
// in bytes, in every way in which an operator can store them. A refused reason changes nothing.
func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	f, ctx := newFlow(memory.New(memory.Options{})), t.Context()
	limit := store.SettingKey{Tenant: "acme", Kind: "limit", Name: "smtp"}
	queue := store.SettingKey{Tenant: "acme", Kind: "queue", Name: "mail"}
	if err := f.SetSetting(ctx, limit, []byte(`{"name":"smtp","per":"name","concurrency":1}`), nil); err != nil {
		t.Fatal(err)
	}

	ways := map[string]func(why string) error{
		"DisableLimit": func(why string) error { return f.DisableLimit(ctx, "acme", "smtp", why) },
		"setting of a limit": func(why string) error {
			return f.SetSetting(ctx, limit, fmt.Appendf(nil, `{"name":"smtp","per":"name","concurrency":1,"disabled":true,"reason":%q}`, why), nil)
		},
		"PauseQueue": func(why string) error { return f.PauseQueue(ctx, "acme", "mail", why) },
		"setting of a queue": func(why string) error {
			return f.SetSetting(ctx, queue, fmt.Appendf(nil, `{"why":%q}`, why), nil)
		},
	}
	fits, tooLong := strings.Repeat("é", flow.MaxReason/2), strings.Repeat("é", flow.MaxReason/2)+"e"
	for way, set := range ways {
		if err := set(fits); err != nil {
			t.Errorf("%s: a reason of %d bytes: %v", way, len(fits), err)
		}
		before := settings(t, f)
		if err := set(tooLong); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "1001 bytes") {
			t.Errorf("%s: a reason of %d bytes: %v, want an error that says so", way, len(tooLong), err)
		}
		if after := settings(t, f); after != before {
			t.Errorf("%s: a refused reason has changed a setting", way)
		}
	}
}

// settings returns all settings of a flow with their versions.
func settings(t *testing.T, f *flow.Flow) (text string) {
	t.Helper()
	all, err := f.Settings(t.Context(), func(store.SettingKey) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		text += fmt.Sprintf("%s %d %s\n", s.SettingKey, s.Version, s.Body)
	}
	return text
}

// A setting is one JSON value. Anything behind it is refused.
func TestSettingWithSomethingBehindIt(t *testing.T) {
	t.Parallel()
	f := newFlow(memory.New(memory.Options{}))
	key := store.SettingKey{Tenant: "acme", Kind: "queue", Name: "mail"}
	for _, body := range []string{`{"why":"x"}}`, `{"why":"x"}]`, `{"why":"x"} {}`} {
		if err := f.SetSetting(t.Context(), key, []byte(body), nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
