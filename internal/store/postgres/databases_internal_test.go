package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
)

// A change of the groups is refused if another process has changed the groups since the change was
// planned. The store and its database keep what the other process has written.
func TestPlacesThatHaveChanged(t *testing.T) {
	t.Parallel()
	home := Config{URL: pgtest.URL(t), Shards: 1, AllowUnsafe: true}
	member := Member{Name: "eu", URL: pgtest.URL(t), Groups: []string{"eu"}}
	eu, us := model.Group{Name: "eu", Shards: 2}, model.Group{Name: "us", Shards: 2}
	st, err := Divide(t.Context(), home, []Member{member}, []model.Group{eu})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(says string, err error) {
		t.Helper()
		if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want a conflict that says %q", err, says)
		}
	}

	// The change is planned before the other process adds the group eu.
	cfg, _, err := migrateAny(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	err = writePlaces(t.Context(), cfg, &places{newGroups: []model.Group{us}, newDatabases: []store.Database{{Name: "eu", Groups: []string{"us"}}}}, false)
	refuse("at the same time", err)

	c := home
	c.URL = member.URL
	if cfg, _, err = migrateAny(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	m, err := newMigrator(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	bind := func(has, groups []model.Group) error {
		return pgx.BeginFunc(t.Context(), m.conn, func(tx pgx.Tx) error {
			return m.bind(t.Context(), tx, "eu", binding{home: st.Cluster, base: 1, groups: groups, has: has})
		})
	}
	refuse("at the same time", bind(nil, []model.Group{us}))
	refuse("groups cannot be removed", bind([]model.Group{eu}, []model.Group{us}))

	for _, url := range []string{home.URL, member.URL} {
		got, err := Check(t.Context(), Config{URL: url, AllowUnsafe: true})
		if err != nil || model.FormatGroups(got.Groups) != "eu=2" || got.Shards != 3 {
			t.Errorf("groups %v, %d shards, %v; want eu=2 and 3 shards", got.Groups, got.Shards, err)
		}
	}
	if err := bind([]model.Group{eu}, []model.Group{eu, us}); err != nil {
		t.Error(err)
	}
}

// A name that chooses a new group may be in use already: in the store, or in a message that waits
// in one of its databases. Then no database gets the group, and another group can be added.
func TestGroupWhoseNameIsInUse(t *testing.T) {
	t.Parallel()
	home := Config{URL: pgtest.URL(t), Shards: 1, AllowUnsafe: true}
	members := []Member{
		{Name: "eu", URL: pgtest.URL(t), Groups: []string{"eu"}},
		{Name: "us", URL: pgtest.URL(t), Groups: []string{"us"}},
	}
	groups := []model.Group{{Name: "eu", Shards: 1}, {Name: "us", Shards: 1}}
	if _, err := Divide(t.Context(), home, members, groups); err != nil {
		t.Fatal(err)
	}
	urls := []string{home.URL, members[0].URL, members[1].URL}

	for _, url := range urls {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		body := model.AppendMessage(nil, &model.Message{Kind: model.MessageCancel, To: model.Address{Tenant: "t", Type: "render@gpu", Key: "k"}})
		if _, err := conn.Exec(t.Context(), `insert into perdure.messages (to_shard, from_shard, seq, body) values (0, 1, 1, $1)`, body); err != nil {
			t.Fatal(err)
		}
		more := slices.Clone(members)
		more[0].Groups = []string{"eu", "gpu"}
		_, err = Divide(t.Context(), home, more, append(slices.Clone(groups), model.Group{Name: "gpu", Shards: 1}))
		if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "render@gpu") {
			t.Errorf("with a message in %s: %v, want a conflict that names it", url, err)
		}

		for _, url := range urls {
			if got, err := Check(t.Context(), Config{URL: url, AllowUnsafe: true}); err != nil || model.FormatGroups(got.Groups) != "eu=1,us=1" {
				t.Errorf("%s has the groups %v, %v", url, got.Groups, err)
			}
		}
		if _, err := conn.Exec(t.Context(), `delete from perdure.messages`); err != nil {
			t.Fatal(err)
		}
	}

	members[0].Groups = []string{"eu", "video"}
	if _, err := Divide(t.Context(), home, members, append(groups, model.Group{Name: "video", Shards: 1})); err != nil {
		t.Error(err)
	}
}
