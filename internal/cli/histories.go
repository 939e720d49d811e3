package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// changeCommand makes a command that changes one execution. With --dry-run it only prints what it
// would do.
func (o *options) changeCommand(use, short, example string, do func(ctx context.Context, b api.Backend, t api.Target, dry bool) error) *cobra.Command {
	var dry bool
	var timeout time.Duration
	cmd := o.about(use, short, example, &dry, func(ctx context.Context, b api.Backend, t api.Target) error {
		return do(ctx, patient{b, timeout}, t, dry)
	})
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the command would do, and change nothing")
	patience(cmd, &timeout)
	return cmd
}

// with opens the store and passes it to do. A dry run opens it only for reading.
func (o *options) with(ctx context.Context, dry bool, do func(b api.Backend) error) error {
	open := o.act
	if dry {
		open = o.look
	}
	n, err := open(ctx)
	if err != nil {
		return err
	}
	err = o.hintAtNodes(ctx, n, do(n.Backend()))
	return errors.Join(err, n.Close())
}

// place parses where a past ends: at a position, or before a step.
func place(r *api.PastRequest, text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		r.Before = text
	case n < 0:
		return fault.New(fault.Invalid, "%d is not a position in a history", n)
	default:
		r.After, r.Placed = n, true
	}
	return nil
}

// edits parses step=JSON or position=JSON.
func edits(texts []string) ([]api.Edit, error) {
	var out []api.Edit
	for _, text := range texts {
		step, value, ok := strings.Cut(text, "=")
		if !ok || step == "" || !json.Valid([]byte(value)) {
			return nil, fault.New(fault.Invalid, "--set is %q, must be step=JSON such as charge='{\"amount\":1}'", text)
		}
		if err := api.CheckText([]byte(value)); err != nil {
			return nil, fault.New(fault.Invalid, "--set %s is not JSON: %w", step, err)
		}
		e := api.Edit{Step: step, Output: model.Payload{Data: []byte(value)}}
		if n, err := strconv.ParseInt(step, 10, 64); err == nil {
			e.Position = n
		}
		out = append(out, e)
	}
	return out, nil
}

func newWorkflowFork(o *options) *cobra.Command {
	var key, from string
	var set []string
	var reuse bool

	cmd := o.changeCommand("fork", "Start another execution with the past of a run",
		"  perdure workflow fork order/42 --key 42-again --from charge\n  perdure workflow fork order/42 --key what-if --set charge='{\"ok\":true}'",
		func(ctx context.Context, b api.Backend, t api.Target, dry bool) error {
			r := api.PastRequest{Source: t, Key: key, DryRun: dry}
			if reuse {
				r.Reuse = model.ReuseAlways
			}
			err := place(&r, from)
			if err == nil {
				r.Edits, err = edits(set)
			}
			if err != nil {
				return err
			}
			reply, err := b.Fork(ctx, r)
			return o.printPast(t, &reply, dry, err)
		})

	cmd.Flags().StringVar(&key, "key", "", "key of the new execution")
	cmd.Flags().StringVar(&from, "from", "", "keep the events before this step, or up to this position; keeps all by default")
	cmd.Flags().StringArrayVar(&set, "set", nil, "step=JSON: replace the result of a step; the past ends there by default")
	cmd.Flags().BoolVar(&reuse, "reuse", false, "start a new run if a closed execution has the key")
	_ = cmd.MarkFlagRequired("key") // an error means that the flag does not exist

	return cmd
}

func newWorkflowRetry(o *options) *cobra.Command {
	cmd := o.changeCommand("retry", "Retry failed executions from their failed step", "",
		func(ctx context.Context, b api.Backend, t api.Target, dry bool) error {
			reply, err := b.Retry(ctx, api.PastRequest{Source: t, DryRun: dry})
			return o.printPast(t, &reply, dry, err)
		})
	return o.orAll(cmd, verb{
		use: "retry",
		example: `  perdure workflow retry order/42 --dry-run
  perdure workflow retry --query 'workflow = "order" and closed >= -1h' --yes`,
	})
}

func newWorkflowReset(o *options) *cobra.Command {
	var to string
	cmd := o.changeCommand("reset", "Restart executions from an earlier point of their histories", "",
		func(ctx context.Context, b api.Backend, t api.Target, dry bool) error {
			r := api.PastRequest{Source: t, DryRun: dry}
			if err := place(&r, to); err != nil {
				return err
			}
			reply, err := b.Reset(ctx, r)
			return o.printPast(t, &reply, dry, err)
		})
	cmd.Flags().StringVar(&to, "to", "", "keep the events before this step, or up to this position")
	_ = cmd.MarkFlagRequired("to") // an error means that the flag does not exist
	return o.orAll(cmd, verb{
		use: "reset",
		fill: func(_ []string, r *api.BatchRequest) error {
			var at api.PastRequest
			err := place(&at, to)
			r.Before, r.After, r.Placed = at.Before, at.After, at.Placed
			return err
		},
		example: `  perdure workflow reset order/42 --to charge
  perdure workflow reset order/42 --to 7
  perdure workflow reset --query 'workflow = "order" and status = "failed"' --to charge --yes`,
	})
}

// printPast prints the past that a run started with, or would start with.
func (o *options) printPast(source api.Target, r *api.PastReply, dry bool, err error) error {
	if err != nil {
		return err
	}

	if o.structured() {
		reply := map[string]any{
			"workflow": r.Address.Type, "key": r.Address.Key, "kept": r.Position, "total": r.Total, "dry_run": dry,
			"left_out": positions(r.Blanks), "added": positions(r.Added), "watched_again": positions(r.Again),
		}
		if !dry {
			reply["run"], reply["status"] = r.Run.String(), r.Status.String()
		}
		return o.json(reply)
	}

	if dry {
		fmt.Fprintf(o.Out, "%s/%s would start with %d of %d events.\n", r.Address.Type, r.Address.Key, r.Position, r.Total)
	} else {
		fmt.Fprintf(o.Out, "%s/%s started as %s (%s) with %d of %d events", r.Address.Type, r.Address.Key, r.Run, r.Status, r.Position, r.Total)
		if !source.Address.IsZero() {
			fmt.Fprintf(o.Out, " of %s/%s", source.Address.Type, source.Address.Key)
		}
		fmt.Fprintln(o.Out, ".")
	}

	for _, part := range []struct {
		what   string
		events []model.Event
	}{
		{"left out", r.Blanks}, {"also kept", r.Added}, {"watched again", r.Again},
	} {
		for i := range part.events {
			e := &part.events[i]
			fmt.Fprintf(o.Out, "  %s: %d %s %s\n", part.what, e.Seq, e.Kind, e.Name)
		}
	}

	return nil
}

// past is the origin of the first events of a run.
type past struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Events   int64  `json:"events"`
}

func pastOf(s *model.Start) *past {
	if s.Source.IsZero() {
		return nil
	}
	return &past{s.Source.Address.Type, s.Source.Address.Key, s.Source.Run.String(), s.Source.Position}
}

func positions(events []model.Event) []int64 {
	seqs := make([]int64, len(events))
	for i := range events {
		seqs[i] = events[i].Seq
	}
	return seqs
}

func newWorkflowDelete(o *options) *cobra.Command {
	var yes, force bool
	var export string
	cmd := o.changeCommand("delete", "Delete closed executions, or with --force one that cannot be read or continued", "",
		func(ctx context.Context, b api.Backend, t api.Target, dry bool) error {
			name := t.Address.Type + "/" + t.Address.Key
			saved := "" // the file with the saved rows
			would, err := b.Delete(ctx, api.DeleteRequest{Target: t, DryRun: true, Force: force})

			switch {
			case err != nil:
				return err
			case dry:
			case !yes && !o.confirm(fmt.Sprintf("Delete %s (%s)?", name, countRuns(would.Runs))):
				return fault.New(fault.Canceled, "delete %s: not confirmed; add --yes to delete without asking", name)
			case force:
				if saved, err = forceDelete(ctx, b, t, export); err != nil {
					return err
				}
			default:
				if _, err := b.Delete(ctx, api.DeleteRequest{Target: t}); err != nil {
					return err
				}
			}

			if o.structured() {
				runs := []string{}
				for _, id := range would.Runs {
					runs = append(runs, id.String())
				}
				done := map[string]any{"workflow": t.Address.Type, "key": t.Address.Key, "runs": runs, "dry_run": dry}
				if saved != "" {
					done["export"] = saved
				}
				return o.json(done)
			}

			if dry {
				fmt.Fprintf(o.Out, "%s would be deleted (%s).\n", name, countRuns(would.Runs))
			} else {
				fmt.Fprintf(o.Out, "%s was deleted (%s).\n", name, countRuns(would.Runs))
			}

			return o.tellSaved(saved)
		})

	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking")
	cmd.Flags().BoolVar(&force, "force", false, "save the rows and delete the execution in any state, even if it cannot be read")
	cmd.Flags().StringVar(&export, "export", "", "with --force: new file for the saved rows (default: perdure-*.jsonl in the current directory)")
	return o.orAll(cmd, verb{
		use: "delete",
		example: `  perdure workflow delete order/42 --yes
  perdure workflow delete --query 'workflow = "order" and closed < -720h' --dry-run`,
	})
}

func countRuns(runs []model.RunID) string {
	if len(runs) == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", len(runs))
}

// confirm asks the user a question. Any answer other than y or yes means no.
func (o *options) confirm(question string) bool {
	fmt.Fprintf(o.Err, "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(o.In, &answer); err != nil {
		return false // standard input has ended, so there is no answer
	}
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes"
}

func newWorkflowExport(o *options) *cobra.Command {
	var file, out string
	var f listFlags
	cmd := o.one("export", "Export the history of a run as JSON lines, or of all runs that a query selects", "",
		func(ctx context.Context, b api.Backend, t api.Target) error {
			if file == "" || file == "-" {
				return history.Export(ctx, b, t, o.Out)
			}
			f, err := os.Create(file)
			if err != nil {
				return fault.New(fault.Invalid, "export: %w", err)
			}
			return errors.Join(history.Export(ctx, b, t, f), f.Close())
		})

	one := cmd.RunE
	cmd.Use = "export workflow/key | --query q --out dir"
	cmd.Example = `  perdure workflow export order/42 -f order-42.jsonl
  perdure workflow export --query 'workflow = "order" and closed >= -24h' --out histories`

	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case (out == "") != (len(args) == 1):
			return fault.New(fault.Invalid, "export needs either workflow/key, or --query and --out")
		case out == "" && f.query != "":
			return fault.New(fault.Invalid, "export --query needs --out, the directory for the histories")
		}
		return nil
	}

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return one(cmd, args)
		}
		r, err := f.request(o.tenant)
		if err != nil {
			return err
		}
		return o.exportAll(cmd.Context(), r, out)
	}

	cmd.Flags().StringVarP(&file, "file", "f", "", "output file; standard output by default")
	cmd.Flags().StringVar(&out, "out", "", "with --query: directory for one file per history; repeat the command to continue after an interruption")
	cmd.Flags().StringVarP(&f.query, "query", "q", "", "with --out: export all executions that this query selects; see perdure workflow list")
	cmd.Flags().BoolVar(&f.all, "all-runs", false, "with --query: include earlier runs of a chain")
	cmd.MarkFlagsMutuallyExclusive("file", "out")

	return cmd
}

func newWorkflowImport(o *options) *cobra.Command {
	var file, key string
	var dry bool
	var timeout time.Duration

	cmd := &cobra.Command{
		Use: "import", Short: "Import an exported run; an open run continues in this store",
		Example: "  perdure workflow import -f order-42.jsonl --key 42-copy", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := o.readHistory(file)
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), dry, func(b api.Backend) error {
				reply, err := patient{b, timeout}.Import(cmd.Context(), api.ImportRequest{History: *h, Tenant: o.tenant, Key: key, DryRun: dry})
				return o.printPast(api.Target{}, &reply, dry, err)
			})
		},
	}

	cmd.Flags().StringVarP(&file, "file", "f", "", "input file; standard input by default")
	cmd.Flags().StringVar(&key, "key", "", "key to import under, instead of the exported key")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the command would do, and change nothing")
	patience(cmd, &timeout)
	return cmd
}

func (o *options) readHistory(file string) (*model.History, error) {
	in := o.In
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.New(fault.Invalid, "import: %w", err)
		}
		defer f.Close()
		in = io.Reader(f)
	}
	return history.Read(in)
}
