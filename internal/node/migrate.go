package node

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// SchemaStatus is the state of a store's schema.
type SchemaStatus struct {
	URL     string `json:"url"`
	Version int    `json:"version"` // the version of the store; 0 if it has no schema yet
	Latest  int    `json:"latest"`  // the version that this build knows
	Shards  int    `json:"shards"`
	// Groups lists the shard groups except the default group, each with its number of shards, such
	// as gpu=64,video=32.
	Groups string `json:"groups,omitempty"`
	// Databases hold groups, in addition to the store itself.
	Databases []DatabaseStatus `json:"databases,omitempty"`
	// Pending are the names of the migrations that the store lacks.
	Pending []string `json:"pending"`
}

// Missing returns a conflict if the store lacks migrations that this build needs. It also returns
// the problems of databases that hold groups.
func (s *SchemaStatus) Missing() error {
	var errs []error
	if len(s.Pending) > 0 {
		errs = append(errs, missing("the store", s.Version, s.Latest))
	}
	for i := range s.Databases {
		errs = append(errs, s.Databases[i].err)
	}
	return errors.Join(errs...)
}

// missing returns a conflict if a database does not have the version that this build needs.
func missing(what string, version, latest int) error {
	if version >= latest {
		return nil
	}
	return fault.WithHint(fault.New(fault.Conflict, "%s has version %d of the schema, and this build needs %d", what, version, latest), "run `perdure migrate`")
}

// Schemas returns the versions of the schemas that this build reads and writes, by kind of store.
func Schemas() (map[string]int, error) {
	latest, err := postgres.Latest()
	return map[string]int{"file": sqlite.Latest(), "postgres": latest}, err
}

// CheckSchema returns the state of a store's schema. It changes nothing.
func CheckSchema(ctx context.Context, cfg Config) (SchemaStatus, error) {
	switch scheme, _, _ := strings.Cut(cfg.URL, ":"); scheme {
	case "file":
		c, err := sqlite.ParseURL(cfg.URL)
		if err != nil {
			return SchemaStatus{}, err
		}
		st, err := sqlite.Check(ctx, c)
		return SchemaStatus{URL: cfg.URL, Version: st.Version, Latest: st.Known, Shards: st.Shards, Pending: names(st.Pending)}, err
	case "postgres", "postgresql":
		return checkPostgres(ctx, &cfg)
	}
	return SchemaStatus{}, noSchema(cfg)
}

// noSchema says that a store has no schema, or is not known. It does not show the URL, which may
// have a password.
func noSchema(cfg Config) error {
	if scheme, _, _ := strings.Cut(cfg.URL, ":"); scheme != "memory" {
		return unknownURL(cfg.URL)
	}
	return fault.New(fault.Invalid, "a store in memory has no schema")
}

// names returns the names of migrations. Some stores report the name of the file instead.
func names(pending []string) []string {
	all := make([]string, len(pending))
	for i, name := range pending {
		all[i] = strings.TrimSuffix(strings.TrimPrefix(name, "migrations/"), ".sql")
	}
	return all
}

// MigrationScript returns the SQL that Migrate would run. It changes nothing.
func MigrationScript(ctx context.Context, cfg Config) (string, error) {
	switch scheme, _, _ := strings.Cut(cfg.URL, ":"); scheme {
	case "file":
		c, err := sqlite.ParseURL(cfg.URL)
		if err != nil {
			return "", err
		}
		c.Shards = cfg.Shards
		return sqlite.Script(ctx, c)
	case "postgres", "postgresql":
		return postgres.Script(ctx, postgres.Config{URL: cfg.URL, Schema: cfg.Schema, Shards: cfg.Shards, AllowUnsafe: cfg.AllowUnsafe})
	}
	return "", noSchema(cfg)
}

// Migrate upgrades the schema of a store, in all its databases.
func Migrate(ctx context.Context, cfg Config) (SchemaStatus, error) {
	if err := cfg.checkDatabases(); err != nil {
		return SchemaStatus{}, err
	}
	if len(cfg.Databases) > 0 {
		return divide(ctx, &cfg, "")
	}
	st, err := OpenStore(ctx, cfg)
	if err != nil {
		return SchemaStatus{}, err
	}
	info := st.Info()
	return SchemaStatus{URL: info.URL, Version: info.Version, Latest: info.Version, Shards: info.Shards, Groups: model.FormatGroups(info.Groups), Pending: []string{}}, st.Close()
}

// StoreUnreachable reports whether a node could not open because the server of its store does not
// answer, or accepts no connections at the moment. A later attempt may succeed. An error of the
// network is not one of the store if the node could not listen on one of its own addresses.
func StoreUnreachable(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	return postgres.Unreachable(err) && !(ok && network.Op == "listen")
}

// StoreReadOnly reports whether a node could not open because the server of its store only reads.
func StoreReadOnly(err error) bool { return postgres.ReadOnly(err) }
