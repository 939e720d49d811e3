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
		Use: "delete entity/key", Short: "Remove an entity that cannot be read or changed", Args: cobra.ExactArgs(1),
		Long: `Remove an entity whose row is damaged, or whose changes the store refuses, with everything that waits for it. One that works is deleted by an operation of its own code.

Its row and what waits for it are written to a new file first, as they stand. Callers and sections that wait for its lock hear that an operator removed it. Calls that nobody waits for become
dead letters. The section that holds its lock goes on: its further calls of the entity are refused as conflicts. Whoever locks the entity next gets a larger epoch.`,
		Example:           "  perdure entity delete account/42 --force --export account-42.jsonl",
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := entityAddress(args[0])
			switch {
			case err != nil:
				return err
			case !force:
				return fault.WithHint(fault.New(fault.Invalid, "delete of %s: only the code of an entity deletes it in order", nameOf(a)),
					"call an operation that does; --force removes one that cannot be read or changed")
			}
			return o.with(cmd.Context(), dry, func(b api.Backend) error {
				a, err := findEntity(cmd.Context(), b, a)
				if err != nil {
					return err
				}
				return o.deleteEntity(cmd.Context(), patient{b, timeout}, a, export, yes, dry)
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only tell what would be done")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&force, "force", false, "remove it whatever state it is in, also when it cannot be read, after its rows were saved")
	cmd.Flags().StringVar(&export, "export", "", "new file that its rows are written to, as they stand, before they are removed (default: perdure-*.jsonl in the current directory)")
	patience(cmd, &timeout)
	return cmd
}

// deleteEntity removes an entity after somebody has confirmed it.
func (o *options) deleteEntity(ctx context.Context, b api.Backend, a model.Address, export string, yes, dry bool) error {
	name, t, saved := nameOf(a), api.Target{Address: a}, ""
	_, err := b.Delete(ctx, api.DeleteRequest{Target: t, DryRun: true, Force: true})
	switch {
	case err != nil:
		return err
	case dry:
	case !yes && !o.confirm(fmt.Sprintf("Delete %s, with everything that waits for it, for good?", name)):
		return fault.New(fault.Canceled, "delete of %s: not confirmed; --yes deletes without asking", name)
	default:
		if saved, err = forceDelete(ctx, b, t, export); err != nil {
			return err
		}
	}

	if o.output == "json" {
		done := map[string]any{"entity": entityWord(a.Type), "key": a.Key, "dry_run": dry}
		if saved != "" {
			done["export"] = saved
		}
		return o.json(done)
	}

	done := "was"
	if dry {
		done = "would be"
	}
	if _, err = fmt.Fprintf(o.Out, "%s %s deleted.\n", name, done); err != nil {
		return err
	}

	return o.tellSaved(saved)
}

// tellSaved says where the rows are that a removal by force has saved, if there was one.
func (o *options) tellSaved(file string) error {
	if file == "" {
		return nil
	}
	_, err := fmt.Fprintf(o.Out, "Its rows are in %s.\n", file)
	return err
}
