package partitioned_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/partitioned"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// emptyHome and emptyMember are templates of two empty stores with one shard. Copying a template
// takes a fifth of the time of all migrations. Two stores never have the same id, so they need two
// templates.
var emptyHome, emptyMember = pgtest.Template{Fill: createOne}, pgtest.Template{Fill: createOne}

func createOne(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, postgres.Config{URL: url, Shards: 1, AllowUnsafe: true})
	return err
}

// twoDatabases is a home and a member in PostgreSQL.
type twoDatabases struct {
	home   postgres.Config
	member postgres.Member
	groups []model.Group
}

func newDatabases(t *testing.T, groups []model.Group, inMember ...string) *twoDatabases {
	t.Helper()
	return &twoDatabases{
		home:   postgres.Config{URL: emptyHome.URL(t), Shards: 1, AllowUnsafe: true},
		member: postgres.Member{Name: "eu", URL: emptyMember.URL(t), Groups: inMember}, groups: groups,
	}
}

// divide prepares the databases.
func (d *twoDatabases) divide(t *testing.T) {
	t.Helper()
	if _, err := postgres.Divide(t.Context(), d.home, []postgres.Member{d.member}, d.groups); err != nil {
		t.Fatal(err)
	}
}

// divided returns a function that copies databases which are divided in this way. Dividing takes
// longer than all calls of most tests, so it happens once.
func divided(groups []model.Group, inMember ...string) func(t *testing.T) *twoDatabases {
	pair := &pgtest.Pair{Fill: func(ctx context.Context, home, member string) error {
		_, err := postgres.Divide(ctx, postgres.Config{URL: home, Shards: 1, AllowUnsafe: true},
			[]postgres.Member{{Name: "eu", URL: member, Groups: inMember}}, groups)
		return err
	}}
	return func(t *testing.T) *twoDatabases {
		t.Helper()
		home, member := pair.URLs(t)
		return &twoDatabases{
			home:   postgres.Config{URL: home, Shards: 1, AllowUnsafe: true},
			member: postgres.Member{Name: "eu", URL: member, Groups: inMember}, groups: groups,
		}
	}
}

// parts opens the databases.
func (d *twoDatabases) parts(t *testing.T) (home, member *postgres.Store) {
	t.Helper()
	// Without a deadline, Open gives up after a few seconds. A busy machine needs longer.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := d.home
	c.Databases = []string{d.member.Name}
	home, err := postgres.Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	c.Databases, c.URL, c.Member, c.Home = nil, d.member.URL, d.member.Name, home.Info().Cluster
	if member, err = postgres.Open(ctx, c); err != nil {
		t.Fatal(err)
	}
	return home, member
}

// open opens the databases as one store.
func (d *twoDatabases) open(t *testing.T) *partitioned.Store {
	t.Helper()
	home, member := d.parts(t)
	s, err := partitioned.New(home, []partitioned.Member{{Name: d.member.Name, Groups: home.Databases()[0].Groups, Store: member}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// pgSuite returns the options of the suite for stores in PostgreSQL.
func pgSuite(wrap func(clocked) store.Store, groups []model.Group, inMember ...string) storetest.Options {
	var mu sync.Mutex
	opened := map[*partitioned.Store]*twoDatabases{}
	of := func(s store.Store) *partitioned.Store {
		return s.(interface{ inner() store.Store }).inner().(*partitioned.Store)
	}

	open := func(t *testing.T, d *twoDatabases) store.Store {
		t.Helper()
		s := d.open(t)
		mu.Lock()
		defer mu.Unlock()
		opened[s] = d
		return wrap(clocked{s, nil})
	}
	second := func(t *testing.T, s store.Store) store.Store {
		t.Helper()
		mu.Lock()
		d := opened[of(s)]
		mu.Unlock()
		return open(t, d)
	}
	copies := divided(groups, inMember...)
	return storetest.Options{
		Open: func(t *testing.T) store.Store {
			return open(t, copies(t))
		},
		Second: second,
		Reopen: func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return second(t, s)
		},
	}
}

// Leases, shards, messages, requests and listings give the same results if every second shard is in
// another database.
func TestPostgresConformanceAcrossDatabases(t *testing.T) {
	t.Parallel()
	groups, inMember := alternating()
	o := pgSuite(func(c clocked) store.Store {
		return spread{pinned{c, 0}, &sync.Mutex{}, map[store.LaneRef]int64{}}
	}, groups, inMember...)
	o.Only, o.Skip = []string{"leases", "shards", "messages", "inbox", "list", "timers"}, notAtomic
	storetest.RunWith(t, o)
}

// A database can be opened only in its own role (home or member), and groups do not move to another
// database.
func TestRolesOfDatabases(t *testing.T) {
	t.Parallel()
	d := newDatabases(t, []model.Group{{Name: "eu", Shards: 4}}, "eu")
	refuse := func(says string, kind fault.Kind, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) || fault.KindOf(err) != kind {
			t.Errorf("%v (%s), want an error of kind %s that says %q", err, fault.KindOf(err), kind, says)
		}
	}
	openAs := func(change func(c *postgres.Config)) error {
		c := d.home
		change(&c)
		s, err := postgres.Open(t.Context(), c)
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	divide := func(m postgres.Member, groups ...model.Group) error {
		_, err := postgres.Divide(t.Context(), d.home, []postgres.Member{m}, groups)
		return err
	}

	refuse("which the store does not have", fault.Invalid, divide(d.member))
	refuse("is the first database", fault.Conflict, divide(postgres.Member{Name: "eu", URL: d.home.URL, Groups: []string{"eu"}}, d.groups...))
	refuse("begin with a letter", fault.Invalid, divide(postgres.Member{Name: "EU", URL: d.member.URL, Groups: []string{"eu"}}, d.groups...))
	d.divide(t)
	d.divide(t) // a second call is harmless
	s := d.open(t)
	home := s.Info().Cluster

	refuse("not a store of its own", fault.Conflict, openAs(func(c *postgres.Config) { c.URL, c.Shards = d.member.URL, 0 }))
	refuse("has the databases [eu]", fault.Conflict, openAs(func(*postgres.Config) {}))
	refuse("and [eu, us] are configured", fault.Conflict, openAs(func(c *postgres.Config) { c.Databases = []string{"us", "eu"} }))
	refuse("is configured as us", fault.Conflict, openAs(func(c *postgres.Config) { c.URL, c.Member, c.Home = d.member.URL, "us", home }))
	refuse("for the cluster other", fault.Conflict, openAs(func(c *postgres.Config) { c.URL, c.Member, c.Home = d.member.URL, "eu", "other" }))
	refuse("does not belong to the cluster", fault.Conflict, openAs(func(c *postgres.Config) { c.URL, c.Member, c.Home = pgtest.URL(t), "eu", home }))
	refuse("cannot move", fault.Conflict, divide(postgres.Member{Name: "eu", URL: d.member.URL, Groups: []string{"other"}}, model.Group{Name: "other", Shards: 1}))
	refuse("cannot be removed", fault.Conflict, divide(postgres.Member{Name: "us", URL: d.member.URL, Groups: []string{"us"}}, model.Group{Name: "us", Shards: 1}))

	// The store refuses a database of another cluster, and a database that is in use.
	other := newDatabases(t, []model.Group{{Name: "eu", Shards: 4}}, "eu")
	other.home.URL = pgtest.URL(t) // a store with another id
	other.member.URL = d.member.URL
	_, err := postgres.Divide(t.Context(), other.home, []postgres.Member{other.member}, other.groups)
	refuse("is the database eu of the cluster "+home, fault.Conflict, err)
	other.member.URL = d.home.URL
	_, err = postgres.Divide(t.Context(), other.home, []postgres.Member{other.member}, other.groups)
	refuse("is a store of its own", fault.Conflict, err)

	storetest.New(t, s).Join(2)
	more := d.member
	more.Groups = []string{"eu", "eu2"}
	refuse("uses the store", fault.Conflict, divide(more, model.Group{Name: "eu2", Shards: 1}))
}

// alternating returns one group for each shard. Every second group is in a member.
func alternating() (groups []model.Group, inMember []string) {
	for i := 1; i < shards; i++ {
		name := fmt.Sprintf("g%d", i)
		groups = append(groups, model.Group{Name: name, Shards: 1})
		if i%2 == 1 {
			inMember = append(inMember, name)
		}
	}
	return groups, inMember
}
