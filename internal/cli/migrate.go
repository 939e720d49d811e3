package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/node"
)

func newMigrate(o *options) *cobra.Command {
	var dry, sql bool
	var shards int
	var groups string
	cmd := &cobra.Command{
		Use: "migrate", Short: "Create or upgrade the schema of a store",
		Long: `Create or upgrade the schema of a store. A program does the same when it opens the store. Use this command to do it before a
deploy. You can run it in several places at once, and repeat it after an interruption.

With --print-sql it prints the SQL of the migrations that the store lacks, and changes nothing; for an empty store that is all of them. For PostgreSQL it is one
transaction, which a role with more rights can run. For a file it is for reading: the command also sets what SQL does not, such as the page size.

With --groups it also adds shard groups that the store lacks, with their numbers of shards. No process may use the store at that time. Groups cannot be
removed, and their numbers of shards cannot be changed. A group may live in another database, which --databases names: eu=64@frankfurt.`,
		Example: "  perdure migrate --store postgres://localhost/app --dry-run\n  perdure migrate --store postgres://localhost/app --print-sql > upgrade.sql\n  perdure migrate --store postgres://localhost/app --groups gpu=64",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), Shards: shards, Log: o.log()}
			if err := node.CheckPlaces(groups); err != nil {
				return fault.New(fault.Invalid, "--groups: %w", err)
			}
			if sql {
				return o.printScript(cmd.Context(), cfg)
			}
			before, err := node.CheckSchema(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			after := before

			// The version is that of the main database only. So with several databases, always
			// migrate, unless AddGroups does it below.
			behind := before.Version < before.Latest
			if len(cfg.Databases) > 0 {
				behind = groups == ""
			}
			if !dry && behind {
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
	cmd.Flags().BoolVar(&sql, "print-sql", false, "print the SQL of the missing migrations, and change nothing")
	cmd.Flags().IntVar(&shards, "shards", 0, "number of shards of a new store, which cannot be changed later (0: the default)")
	cmd.Flags().StringVar(&groups, "groups", "", "shard groups that the store should have beside the default one, with their numbers of shards: gpu=64,eu=64@frankfurt")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "print-sql")
	cmd.MarkFlagsMutuallyExclusive("groups", "print-sql")
	cmd.AddCommand(newMigrateStatus(o))
	return cmd
}

// printScript prints the SQL of the migrations that a store lacks.
func (o *options) printScript(ctx context.Context, cfg node.Config) error {
	script, err := node.MigrationScript(ctx, cfg)
	if err != nil {
		return err
	}
	if script == "" {
		fmt.Fprintln(o.Err, "The schema is up to date.")
	}
	_, err = io.WriteString(o.Out, script)
	return err
}

func newMigrateStatus(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the version of the schema, and the migrations that are missing", Args: cobra.NoArgs,
		Long: `Show the version of the schema of a store, the version that this build knows, and the migrations that the store lacks. The command changes nothing.

The exit code is 0 if the schema is up to date, and 4 if migrations are missing or if the schema is too new for this build.`,
		Example: "  perdure migrate status --store postgres://localhost/app\n  perdure migrate status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := node.CheckSchema(cmd.Context(), node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), Log: o.log()})
			if err != nil && st.Version <= st.Latest {
				return err
			}
			return errors.Join(o.printSchema(&st), err, st.Missing())
		},
	}
}

// printSchema prints the state of a schema.
func (o *options) printSchema(st *node.SchemaStatus) error {
	st.URL = withoutPassword(st.URL)
	if o.structured() {
		return o.json(st)
	}

	version := strconv.Itoa(st.Version)
	if st.Version == 0 {
		version = "0: there is no schema yet"
	}
	rows := [][]string{{"Store", st.URL}, {"Version", version}, {"This build", strconv.Itoa(st.Latest)}, {"Shards", number(st.Shards)}}
	if st.Groups != "" {
		rows = append(rows, []string{"Groups", strings.ReplaceAll(st.Groups, ",", ", ")})
	}
	for i := range st.Databases {
		d := &st.Databases[i]
		rows = append(rows, []string{"Database " + d.Name, describeDatabase(d)})
	}
	return o.table("", append(rows, []string{"Missing", dash(strings.Join(st.Pending, ", "))}))
}

// describeDatabase says what a database holds, and what is wrong with it.
func describeDatabase(d *node.DatabaseStatus) string {
	text := "shard groups " + strings.Join(d.Groups, ", ")
	if d.Version > 0 {
		text += fmt.Sprintf("; version %d", d.Version)
	}
	if d.Problem != "" {
		text += "; " + d.Problem
	}
	return text
}

// migration describes what a migration has changed, or would change.
type migration struct {
	before, after node.SchemaStatus
	dry           bool
}

func (o *options) printMigration(m *migration) (err error) {
	before, after := &m.before, &m.after
	after.URL = withoutPassword(after.URL)
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
