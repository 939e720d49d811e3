package node

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// SchemaStatus is the state of a store's schema.
type SchemaStatus struct {
	URL     string `json:"url"`
	Version int    `json:"version"` // of the store; 0 if it has no schema yet
	Latest  int    `json:"latest"`  // the version that this build knows
	Shards  int    `json:"shards"`
	// Groups are the shard groups beside the default one: gpu=64,video=32.
	Groups string `json:"groups,omitempty"`
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
		return SchemaStatus{URL: cfg.URL, Version: st.Version, Latest: st.Known, Shards: st.Shards}, err
	case "postgres", "postgresql":
		st, err := postgres.Check(ctx, postgres.Config{URL: cfg.URL, Schema: cfg.Schema, AllowUnsafe: cfg.AllowUnsafe})
		return SchemaStatus{URL: cfg.URL, Version: st.Version, Latest: st.Known, Shards: st.Shards, Groups: model.FormatGroups(st.Groups)}, err
	}
	return SchemaStatus{}, fault.New(fault.Invalid, "a %s store has no schema", cfg.URL)
}

// Migrate upgrades the schema of a store.
func Migrate(ctx context.Context, cfg Config) (SchemaStatus, error) {
	st, err := OpenStore(ctx, cfg)
	if err != nil {
		return SchemaStatus{}, err
	}
	info := st.Info()
	return SchemaStatus{URL: info.URL, Version: info.Version, Latest: info.Version, Shards: info.Shards, Groups: model.FormatGroups(info.Groups)}, st.Close()
}

// StoreUnreachable reports whether a node could not open because the server of its store does not
// answer, or does not take connections now. It may do so later.
func StoreUnreachable(err error) bool { return postgres.Unreachable(err) }

// StoreReadOnly reports whether a node could not open because the server of its store only reads.
func StoreReadOnly(err error) bool { return postgres.ReadOnly(err) }
