package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/node"
)

func newMigrate(o *options) *cobra.Command {
	var dry bool
	var shards int
	cmd := &cobra.Command{
		Use: "migrate", Short: "Create the schema of a store, or bring it up to date",
		Long: `Create the schema of a store, or bring it up to date. Programs do the same when they open a store; this command is
for those who want it done beforehand. It may run in several places at once, and again after it was interrupted.`,
		Example: "  perdure migrate --store postgres://localhost/app --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := node.Config{URL: o.store, Schema: o.schema, Shards: shards, Log: o.log()}
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

			if o.output == "json" {
				return o.json(after)
			}

			switch {
			case before.Version == before.Latest:
				fmt.Fprintf(o.Out, "The schema is up to date: version %d, %d shards.\n", before.Version, before.Shards)
			case dry:
				fmt.Fprintf(o.Out, "The schema is at version %d and would be brought to %d.\n", before.Version, before.Latest)
			default:
				fmt.Fprintf(o.Out, "The schema was brought from version %d to %d; %d shards.\n", before.Version, after.Version, after.Shards)
			}

			return nil
		},
	}

	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	cmd.Flags().IntVar(&shards, "shards", 0, "number of shards of a new store; it can never be changed (0: the default)")
	return cmd
}
