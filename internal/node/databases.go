package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/partitioned"
	"github.com/perdure/perdure/internal/store/postgres"
)

// postgresConfig returns how to open the first database of the store.
func (cfg *Config) postgresConfig() postgres.Config {
	return postgres.Config{
		URL: cfg.URL, Schema: cfg.Schema, Shards: cfg.Shards, Lease: cfg.LeaseTTL, Databases: slices.Sorted(maps.Keys(cfg.Databases)),
		// Only nodes check whether the database server keeps what it acknowledges.
		NoMigrate: cfg.NoMigrate || cfg.ReadOnly || cfg.Guest, AllowUnsafe: cfg.AllowUnsafe || cfg.ReadOnly || cfg.Guest,
	}
}

// openPostgres opens a store in PostgreSQL: one database, or several.
func openPostgres(ctx context.Context, cfg *Config) (store.Store, error) {
	c := cfg.postgresConfig()
	home, err := postgres.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(cfg.Databases) == 0 {
		return home, nil
	}

	// The first database says which database holds which groups.
	var members []partitioned.Member
	fail := func(err error) error {
		for i := range members {
			err = errors.Join(err, members[i].Store.Close())
		}
		return errors.Join(err, home.Close())
	}
	for _, d := range home.Databases() {
		one := c
		one.URL, one.Shards, one.Databases, one.Member, one.Home = cfg.Databases[d.Name], 0, nil, d.Name, home.Info().Cluster
		st, err := postgres.Open(ctx, one)
		if err != nil {
			return nil, fail(fault.New(fault.KindOf(err), "database %s: %w", d.Name, err))
		}
		members = append(members, partitioned.Member{Name: d.Name, Groups: d.Groups, Store: st})
	}
	st, err := partitioned.New(home, members)
	if err != nil {
		hint := "stop all processes, and run `perdure migrate`"
		for i := range members {
			if has := members[i].Store.Info().Groups; len(has) > len(home.Info().Groups) {
				hint = postgres.UnfinishedHint(has, home.Info().Groups)
				break
			}
		}
		return nil, fail(fault.WithHint(err, "%s", hint))
	}
	return st, nil
}

// checkDatabases refuses Databases if the store is not in PostgreSQL, and names that are not valid.
func (cfg *Config) checkDatabases() error {
	if len(cfg.Databases) == 0 {
		return nil
	}
	for name, url := range cfg.Databases {
		if model.CheckGroupName(name) != nil { // do not quote it: it may have a password
			return fault.New(fault.Invalid, "the databases are not a list of names and PostgreSQL URLs, such as eu=postgres://user@host/database")
		}
		if !isPostgres(url) {
			return fault.New(fault.Invalid, "database %s has no PostgreSQL URL, or is listed twice: write eu=postgres://user@host/database", name)
		}
	}
	if !isPostgres(cfg.URL) {
		return fault.New(fault.Invalid, "only a store in PostgreSQL can have its shard groups in several databases")
	}
	return nil
}

func isPostgres(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	return scheme == "postgres" || scheme == "postgresql"
}

// parsePlaces reads groups with their numbers of shards and, after an @, the database that holds
// them: gpu=64,eu=64@frankfurt. A group without a database is in the first one.
func parsePlaces(text string) (groups []model.Group, places map[string][]string, err error) {
	// A URL is a mistake, and may have a password: no error quotes it.
	if strings.ContainsAny(text, ":/ ") {
		return nil, nil, errNoPlace()
	}

	places = map[string][]string{}
	var plain []string
	for item := range strings.SplitSeq(text, ",") {
		group, database, placed := strings.Cut(item, "@")
		if placed {
			if model.CheckGroupName(database) != nil { // the names of databases have the same form
				return nil, nil, errNoPlace()
			}
			name, _, _ := strings.Cut(group, "=")
			places[database] = append(places[database], name)
		}
		plain = append(plain, group)
	}
	if groups, err = model.ParseGroups(strings.Join(plain, ",")); err != nil {
		return nil, nil, fault.New(fault.Invalid, "%w", err)
	}
	return groups, places, nil
}

// errNoPlace refuses a text without quoting it.
func errNoPlace() error {
	return fault.New(fault.Invalid, "a shard group has the form name=shards, or name=shards@database with the name of a database, whose URL belongs into --databases")
}

// CheckPlaces refuses a text that [AddGroups] cannot read.
func CheckPlaces(groups string) error {
	_, _, err := parsePlaces(groups)
	return err
}

// divide migrates all databases of the store, and adds groups to them.
func divide(ctx context.Context, cfg *Config, groups string) (SchemaStatus, error) {
	wanted, places, err := parsePlaces(groups)
	if err != nil {
		return SchemaStatus{}, err
	}
	for name := range places {
		if cfg.Databases[name] == "" {
			return SchemaStatus{}, fault.New(fault.Invalid, "the database %.60q is not configured: give its name and its URL in --databases", name)
		}
	}
	c := cfg.postgresConfig()
	c.Databases = nil
	st, err := postgres.Check(ctx, c)
	if err != nil {
		return SchemaStatus{}, err
	}

	var members []postgres.Member
	known := map[string]bool{}
	add := func(name string, has []string) {
		known[name] = true
		m := postgres.Member{Name: name, URL: cfg.Databases[name], Groups: slices.Clone(has)}
		for _, g := range places[name] {
			if !slices.Contains(m.Groups, g) {
				m.Groups = append(m.Groups, g)
			}
		}
		members = append(members, m)
	}
	for _, d := range st.Databases {
		if cfg.Databases[d.Name] != "" {
			add(d.Name, d.Groups)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
		if !known[name] {
			add(name, nil)
		}
	}
	st, err = postgres.Divide(ctx, c, members, wanted)
	return schemaStatus(&st), err
}

func schemaStatus(st *postgres.Status) SchemaStatus {
	out := SchemaStatus{
		URL: st.Store, Version: st.Version, Latest: st.Known, Shards: st.Shards, Groups: model.FormatGroups(st.Groups), Pending: names(st.Pending),
	}
	for _, d := range st.Databases {
		out.Databases = append(out.Databases, DatabaseStatus{Name: d.Name, Groups: d.Groups, Pending: []string{}})
	}
	return out
}

// DatabaseStatus is the state of the schema in a database that holds shard groups.
type DatabaseStatus struct {
	Name    string   `json:"name"`
	Groups  []string `json:"groups"`
	URL     string   `json:"url,omitempty"` // without credentials
	Version int      `json:"version"`
	Pending []string `json:"pending"`
	// Problem says why a process cannot use the database.
	Problem string `json:"problem,omitempty"`

	err error
}

// checkPostgres returns the state of the schema in all databases of a store. If the store has
// groups in other databases, all of them must be configured.
func checkPostgres(ctx context.Context, cfg *Config) (SchemaStatus, error) {
	c := postgres.Config{URL: cfg.URL, Schema: cfg.Schema, AllowUnsafe: cfg.AllowUnsafe}
	st, err := postgres.Check(ctx, c)
	out := schemaStatus(&st)
	out.URL = cfg.URL
	if err != nil {
		return out, err
	}

	for i := range out.Databases {
		d := &out.Databases[i]
		if d.err = d.check(ctx, c, cfg.Databases[d.Name], st.Cluster); d.err != nil {
			d.Problem = d.err.Error()
		}
	}
	return out, nil
}

// check returns what is wrong with the schema of the database. It also checks that the database
// belongs to this store under this name.
func (d *DatabaseStatus) check(ctx context.Context, c postgres.Config, url, home string) error {
	if url == "" {
		return fault.WithHint(fault.New(fault.Conflict, "database %s is not configured", d.Name), "give its URL: --databases %s=postgres://…", d.Name)
	}
	c.URL, c.Member, c.Home = url, d.Name, home
	st, err := postgres.Check(ctx, c)
	d.URL, d.Version, d.Pending = st.Store, st.Version, names(st.Pending)
	if err == nil && st.Version > 0 && (st.Member != d.Name || st.Home != home) {
		err = fault.New(fault.Conflict, "%s does not belong to the cluster under this name", st.Store)
	}
	if err != nil {
		return fault.New(fault.KindOf(err), "database %s: %w", d.Name, err)
	}
	return missing("database "+d.Name, st.Version, st.Known)
}
