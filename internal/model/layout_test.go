package model_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

// drawGrouped draws an address whose name may choose a group.
func drawGrouped(t *rapid.T, groups []model.Group) model.Address {
	names := []string{"order", "entity:cart", "service:mail", "mail@home", "a@b@c", "@", "order@"}
	for _, g := range groups {
		names = append(names, "order@"+g.Name, "entity:cart@"+g.Name, "a@b@"+g.Name)
	}
	return model.Address{Tenant: "t", Type: rapid.SampledFrom(names).Draw(t, "type"), Key: rapid.String().Draw(t, "key")}
}

func drawGroups(t *rapid.T) []model.Group {
	var groups []model.Group
	for _, name := range []string{"gpu", "video", "eu-1"}[:rapid.IntRange(0, 3).Draw(t, "groups")] {
		groups = append(groups, model.Group{Name: name, Shards: rapid.IntRange(1, 100).Draw(t, "shards")})
	}
	return groups
}

func total(base int, groups []model.Group) int {
	for _, g := range groups {
		base += g.Shards
	}
	return base
}

// In a store without groups, every address has the shard that builds without groups computed. This
// includes names that look as if they chose a group.
func TestLayoutWithoutGroupsIsThePlainHash(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, model.MaxShards).Draw(t, "shards")
		a := drawGrouped(t, []model.Group{{Name: "gpu", Shards: 1}})
		if got, want := model.NewLayout(n, nil).Shard(a), a.Shard(n); got != want {
			t.Fatalf("%s is in shard %d, want %d", a, got, want)
		}
	})
}

// Every address is in a shard of the group that its name chooses, and a group that is added later
// moves only the names that choose it.
func TestLayoutKeepsAddressesInTheirGroup(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base, groups := rapid.IntRange(1, 300).Draw(t, "base"), drawGroups(t)
		all := total(base, groups)
		layout := model.NewLayout(all, groups)
		a := drawGrouped(t, groups)

		want := model.DefaultGroup
		for _, g := range groups {
			if strings.HasSuffix(a.Type, "@"+g.Name) {
				want = g.Name
			}
		}
		s := layout.Shard(a)
		if got := layout.GroupOf(s); int(s) >= all || got != want {
			t.Fatalf("%s is in shard %d of group %s, want group %s", a, s, got, want)
		}

		more := append(slices.Clone(groups), model.Group{Name: "later", Shards: 7})
		if got := model.NewLayout(all+7, more).Shard(a); got != s {
			t.Fatalf("%s moved from shard %d to %d when a group was added", a, s, got)
		}
	})
}

// The ranges of the groups cover all shards, each once.
func TestRangesCoverAllShards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := drawGroups(t)
		all := total(rapid.IntRange(1, 300).Draw(t, "base"), groups)
		layout, next := model.NewLayout(all, groups), 0
		for _, r := range layout.Ranges() {
			for s := r.First; s < r.First+r.Count; s++ {
				if got := layout.GroupOf(model.ShardID(s)); s != next || got != r.Group {
					t.Fatalf("shard %d of range %+v follows %d and is of group %s", s, r, next, got)
				}
				next++
			}
		}
		if next != all {
			t.Fatalf("the ranges have %d shards, want %d", next, all)
		}
	})
}

func TestParseGroups(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "gpu=64", "gpu=64,video=1,eu-1=7"} {
		groups, err := model.ParseGroups(text)
		if err != nil || model.FormatGroups(groups) != text {
			t.Errorf("%q becomes %q, %v", text, model.FormatGroups(groups), err)
		}
	}
	for text, want := range map[string]string{
		"gpu": "form name=shards", "gpu=": "form name=shards", "gpu=+1": "form name=shards", "gpu=01": "form name=shards", "gpu=1,": "form name=shards",
		"=1": "not the name", "Gpu=1": "not the name", "g_u=1": "not the name", "1a=1": "not the name", "a@b=1": "not the name",
		strings.Repeat("g", 33) + "=1": "not the name", "default=1": "cannot be added",
		"gpu=0": "at least 1", "gpu=-1": "at least 1", "gpu=4097": "at most 4096", "a=4000,b=97": "at most 4096",
		"gpu=1,gpu=2": "twice",
	} {
		if _, err := model.ParseGroups(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParseGroups(f *testing.F) {
	f.Add("gpu=64,video=32")
	f.Fuzz(func(t *testing.T, text string) {
		groups, err := model.ParseGroups(text)
		if err == nil && model.FormatGroups(groups) != text {
			t.Errorf("%q becomes %q", text, model.FormatGroups(groups))
		}
	})
}
