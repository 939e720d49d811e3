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
		Use: "migrate", Short: "Create or upgrade the schema of a store",
		Long: `Create or upgrade the schema of a store. A program does the same when it opens the store. Use this command to do it before a
deploy. You can run it in several places at once, and repeat it after an interruption.`,
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

			if o.structured() {
				return o.json(after)
			}

			switch {
			case before.Version == before.Latest:
				fmt.Fprintf(o.Out, "The schema is up to date: version %d, %d shards.\n", before.Version, before.Shards)
			case dry:
				fmt.Fprintf(o.Out, "The schema has version %d and would be upgraded to %d.\n", before.Version, before.Latest)
			default:
				fmt.Fprintf(o.Out, "The schema was upgraded from version %d to %d; %d shards.\n", before.Version, after.Version, after.Shards)
			}

			return nil
		},
	}

	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the command would do, and change nothing")
	cmd.Flags().IntVar(&shards, "shards", 0, "number of shards of a new store, which cannot be changed later (0: the default)")
	return cmd
}
