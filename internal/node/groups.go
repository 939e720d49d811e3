package node

import (
	"context"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
)

// checkGroups refuses a node that is configured for a shard group that the store does not have.
func (cfg *Config) checkGroups(info store.Info) error {
	if !info.Shared {
		return nil
	}
	layout := info.Layout()
	for _, name := range cfg.Groups {
		if !layout.HasGroup(name) {
			return fault.WithHint(fault.New(fault.Invalid, "the node wants shards of the group %.60q, and %s has the groups %s", name, info.URL, groupNames(layout)),
				"correct the name, or stop all processes and add the group with perdure migrate --groups %.60s=64", name)
		}
	}
	return nil
}

// checkGroupNames refuses names that no group can have, before anything is opened.
func (cfg *Config) checkGroupNames() error {
	for i, name := range cfg.Groups {
		if slices.Contains(cfg.Groups[:i], name) {
			return fault.New(fault.Invalid, "the node names the shard group %.60q twice", name)
		}
		if name == model.DefaultGroup {
			continue
		}
		if err := model.CheckGroupName(name); err != nil {
			return fault.New(fault.Invalid, "%w", err)
		}
	}
	return nil
}

// groupNames lists the groups of a store.
func groupNames(l model.Layout) string {
	var names []string
	for _, r := range l.Ranges() {
		names = append(names, r.Group)
	}
	return strings.Join(names, ", ")
}

// AddGroups adds shard groups to a store that no process uses. The text has the form
// gpu=64,video=32. If another database holds a group, the name of that database follows:
// eu=64@frankfurt.
func AddGroups(ctx context.Context, cfg Config, groups string) (SchemaStatus, error) {
	if err := cfg.checkDatabases(); err != nil {
		return SchemaStatus{}, err
	}
	if len(cfg.Databases) > 0 || strings.Contains(groups, "@") {
		return divide(ctx, &cfg, groups)
	}
	wanted, _, err := parsePlaces(groups)
	if err != nil {
		return SchemaStatus{}, err
	}
	if scheme, _, _ := strings.Cut(cfg.URL, ":"); scheme != "postgres" && scheme != "postgresql" {
		return SchemaStatus{}, fault.New(fault.Invalid, "only one process at a time opens a %s store: it has no shard groups", scheme)
	}
	st, err := postgres.AddGroups(ctx, postgres.Config{URL: cfg.URL, Schema: cfg.Schema, AllowUnsafe: cfg.AllowUnsafe}, wanted)
	return schemaStatus(&st), err
}
