package postgres

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgproxy"
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

// A Divide that ends between two databases, with or without the answer of the last one, leaves a
// store that works as before. The error says what to run. The same call continues, and then changes
// nothing.
func TestDivideThatEndsInBetween(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		home bool
		rule pgproxy.Rule
	}{
		// The first request that matches a text belongs to the pass that changes nothing. That pass
		// commits nothing.
		"before the second database": {false, pgproxy.Rule{Fault: pgproxy.Reset, Nth: 2, Match: pgproxy.Mentions("meta set member")}},
		"after the second database":  {false, pgproxy.Rule{Fault: pgproxy.DropReply, Nth: 1, Match: pgproxy.Commits}},
		"before the first database":  {true, pgproxy.Rule{Fault: pgproxy.Reset, Nth: 2, Match: pgproxy.Mentions("meta set databases")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := Config{URL: pgtest.URL(t), Shards: 1, AllowUnsafe: true}
			direct := []Member{
				{Name: "eu", URL: pgtest.URL(t), Groups: []string{"eu"}},
				{Name: "us", URL: pgtest.URL(t), Groups: []string{"us"}},
			}
			groups := []model.Group{{Name: "gpu", Shards: 2}, {Name: "eu", Shards: 3}, {Name: "us", Shards: 4}}
			// The creation of the schema is not a part of the test.
			for _, url := range []string{home.URL, direct[0].URL, direct[1].URL} {
				if _, err := Migrate(t.Context(), Config{URL: url, Shards: 1, AllowUnsafe: true}); err != nil {
					t.Fatal(err)
				}
			}

			target, err := url.Parse(direct[1].URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := pgproxy.New(t, target.Host)
			broken, members := home, slices.Clone(direct)
			if c.home {
				broken.URL = proxy.URL(home.URL)
			} else {
				members[1].URL = proxy.URL(direct[1].URL)
			}
			trigger := proxy.Inject(c.rule)
			_, err = Divide(t.Context(), broken, members, groups)
			if trigger.Cancel() {
				t.Fatalf("the fault has not occurred: %v", err)
			}
			var f *fault.Error
			if !errors.As(err, &f) || !strings.Contains(f.Hint, "perdure migrate --groups gpu=2,eu=3@eu,us=4@us") {
				t.Errorf("%v (%+v), want the command to repeat as a hint", err, f)
			}

			// One database has the groups. The store still opens as it was: the first database
			// knows nothing of the change.
			if eu, err := Check(t.Context(), Config{URL: direct[0].URL, AllowUnsafe: true}); err != nil || eu.Member != "eu" {
				t.Errorf("the first pass has failed: %+v, %v", eu, err)
			}
			st, err := Check(t.Context(), home)
			if err != nil || len(st.Groups) > 0 || len(st.Databases) > 0 {
				t.Errorf("groups %v, databases %v, %v; want none", st.Groups, st.Databases, err)
			}

			for range 2 {
				st, err := Divide(t.Context(), home, direct, groups)
				if err != nil || model.FormatGroups(st.Groups) != "gpu=2,eu=3,us=4" || formatDatabases(st.Databases) != "eu=eu,us=us" {
					t.Fatalf("groups %v, databases %v, %v", st.Groups, st.Databases, err)
				}
				for _, m := range direct {
					one, err := Check(t.Context(), Config{URL: m.URL, AllowUnsafe: true, Member: m.Name, Home: st.Cluster})
					if err != nil || one.Member != m.Name || one.Home != st.Cluster || model.FormatGroups(one.Groups) != "gpu=2,eu=3,us=4" || one.Shards != 10 {
						t.Errorf("database %s: %+v, %v", m.Name, one, err)
					}
				}
			}
		})
	}
}
