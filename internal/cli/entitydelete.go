package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newEntityDelete(o *options) *cobra.Command {
	var yes, force, dry bool
	var export string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "delete entity/key", Short: "Delete an entity that cannot be read or changed", Args: cobra.ExactArgs(1),
		Long: `Delete an entity whose row is damaged, or whose changes the store refuses, together with all calls that wait for it. To delete an entity that works, call an
operation of its code that does so.

The command first writes the rows of the entity and of its mailbox unchanged to a new file. Callers and sections that wait for the lock get an error that says that
an operator deleted the entity. One-way calls become dead letters. The section that holds the lock continues, but its further calls of the entity fail with a
conflict. The next holder of the lock gets a larger epoch.`,
		Example:           "  perdure entity delete account/42 --force --export account-42.jsonl",
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := o.entityAddress(args[0])
			switch {
			case err != nil:
				return err
			case !force:
				return fault.WithHint(fault.New(fault.Invalid, "delete %s: the code of the entity must delete it", nameOf(a)),
					"call an operation that does so, or add --force if the entity cannot be read or changed")
			}
			return o.with(cmd.Context(), dry, func(b api.Backend) error {
				a, err := findEntity(cmd.Context(), b, a)
				if err != nil {
					return err
				}
				return o.deleteEntity(cmd.Context(), patient{b, timeout}, a, removal{export, yes, dry})
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the command would do, and change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking")
	cmd.Flags().BoolVar(&force, "force", false, "save the rows and delete the entity in any state, even if it cannot be read")
	cmd.Flags().StringVar(&export, "export", "", "new file for the saved rows (default: perdure-*.jsonl in the current directory)")
	entityPatience(cmd, &timeout)
	return cmd
}

// removal is how to delete an entity.
type removal struct {
	export   string // file for the saved rows; empty for a generated name
	yes, dry bool
}

// deleteEntity deletes an entity after the user has confirmed it.
func (o *options) deleteEntity(ctx context.Context, b api.Backend, a model.Address, how removal) error {
	name, t, saved := nameOf(a), api.Target{Address: a}, ""
	_, err := b.Delete(ctx, api.DeleteRequest{Target: t, DryRun: true, Force: true})
	switch {
	case err != nil:
		return err
	case how.dry:
	case !how.yes && !o.confirm(fmt.Sprintf("Delete %s and all calls that wait for it?", name)):
		return fault.New(fault.Canceled, "delete %s: not confirmed; add --yes to delete without asking", name)
	default:
		if saved, err = forceDelete(ctx, b, t, how.export); err != nil {
			return err
		}
	}

	if o.structured() {
		done := map[string]any{"entity": entityWord(a.Type), "key": a.Key, "dry_run": how.dry}
		if saved != "" {
			done["export"] = saved
		}
		return o.json(done)
	}

	done := "was"
	if how.dry {
		done = "would be"
	}
	if _, err = fmt.Fprintf(o.Out, "%s %s deleted.\n", name, done); err != nil {
		return err
	}

	return o.tellSaved(saved)
}

// tellSaved prints the name of the file with the saved rows, if there is one.
func (o *options) tellSaved(file string) error {
	if file == "" {
		return nil
	}
	_, err := fmt.Fprintf(o.Out, "Its rows are in %s.\n", file)
	return err
}
