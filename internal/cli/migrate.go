package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

func newMigrate(o *options) *cobra.Command {
	var dry bool
	var shards int
	var groups string
	cmd := &cobra.Command{
		Use: "migrate", Short: "Create or upgrade the schema of a store",
		Long: `Create or upgrade the schema of a store. A program does the same when it opens the store. Use this command to do it before a
deploy. You can run it in several places at once, and repeat it after an interruption.

With --groups it also adds shard groups that the store lacks, with their numbers of shards. No process may use the store at that time. Groups cannot be
removed, and their numbers of shards cannot be changed.`,
		Example: "  perdure migrate --store postgres://localhost/app --dry-run\n  perdure migrate --store postgres://localhost/app --groups gpu=64",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := node.Config{URL: o.store, Schema: o.schema, Shards: shards, Log: o.log()}
			if _, err := model.ParseGroups(groups); err != nil {
				return fault.New(fault.Invalid, "--groups: %w", err)
			}
			before, err := node.CheckSchema(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			after := before

			if !dry && before.Version < before.Latest {
				if after, err = node.Migrate(cmd.Context(), cfg); err != nil {
					return err
				}
			}

			if !dry && groups != "" {
				if after, err = node.AddGroups(cmd.Context(), cfg, groups); err != nil {
					return err
				}
			}

			return o.printMigration(&migration{before, after, dry})
		},
	}

	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the command would do, and change nothing")
	cmd.Flags().IntVar(&shards, "shards", 0, "number of shards of a new store, which cannot be changed later (0: the default)")
	cmd.Flags().StringVar(&groups, "groups", "", "shard groups that the store should have beside the default one, with their numbers of shards: gpu=64,video=32")
	return cmd
}

// migration is what a migration has changed, or would change.
type migration struct {
	before, after node.SchemaStatus
	dry           bool
}

func (o *options) printMigration(m *migration) (err error) {
	before, after := &m.before, &m.after
	switch {
	case o.structured():
		err = o.json(after)
	case after.Groups != before.Groups:
		o.say(o.Out, fmt.Sprintf("The store has version %d of the schema, %d shards and the shard groups %s.", after.Version, after.Shards, strings.ReplaceAll(after.Groups, ",", ", ")))
	case before.Version == before.Latest:
		_, err = fmt.Fprintf(o.Out, "The schema is up to date: version %d, %d shards.\n", before.Version, before.Shards)
	case m.dry:
		_, err = fmt.Fprintf(o.Out, "The schema has version %d and would be upgraded to %d.\n", before.Version, before.Latest)
	default:
		_, err = fmt.Fprintf(o.Out, "The schema was upgraded from version %d to %d; %d shards.\n", before.Version, after.Version, after.Shards)
	}
	return err
}
