package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// deployCheck replays a sample of stored histories with the code of a build.
type deployCheck struct {
	query string
	each  int // histories of one workflow and version
	most  int // histories altogether
	all   bool

	seen   map[string]int // by workflow, read
	took   map[string]int // by workflow and version, replayed
	report deployReport
}

// deployReport is what came of it.
type deployReport struct {
	Replayed   int              `json:"replayed"`
	Fit        int              `json:"fit"`
	Mismatches []deployMismatch `json:"mismatches"`
	// histories of workflows that the build does not have
	Absent   map[string]int `json:"absent"`
	Pinned   int            `json:"pinned"`    // to versions other than that of the build
	TooLarge int            `json:"too_large"` // to be replayed
	Version  string         `json:"version"`
}

type deployMismatch struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Status   string `json:"status"`
	Events   int    `json:"events"`
	Error    string `json:"error"`
}

func newDeployCheck(o *options) *cobra.Command {
	c := &deployCheck{seen: map[string]int{}, took: map[string]int{}, report: deployReport{Mismatches: []deployMismatch{}, Absent: map[string]int{}}}
	cmd := &cobra.Command{
		Use:   "deploy-check [flags] -- program [argument...]",
		Short: "Replay a sample of stored histories with a build, before it is deployed",
		Long: `Replay a sample of stored histories with the code of a program, which must call embedded.AnswerDeployCheck first in its main function.
It reads the store and changes nothing; the program executes no step and opens no store. Open executions come first, then those that have ended, the newest first.

The exit code is 1 when a history does not fit: the execution, or one like it, would be blocked by a deploy of the program.`,
		Example: `  perdure deploy-check --store postgres://localhost/app -- ./shop
  perdure deploy-check -q 'workflow = "order"' --per-workflow 100 -o json -- ./shop`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Invalid, "deploy-check takes the program that is to be deployed: perdure deploy-check -- ./program")
			}
			if c.each < 1 || c.most < 1 {
				return fault.New(fault.Invalid, "--per-workflow and --limit must be at least 1")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			build, err := deploy.Start(cmd.Context(), args, o.Err)
			if err != nil {
				return err
			}
			c.report.Version = build.Version
			err = o.with(cmd.Context(), true, func(b api.Backend) error { return c.run(cmd.Context(), b, build) })
			if err := errors.Join(err, build.Close()); err != nil {
				return err
			}
			return c.tell(o)
		},
	}
	cmd.Flags().StringVarP(&c.query, "query", "q", "", "only those that it selects; see `perdure workflow list`")
	cmd.Flags().IntVar(&c.each, "per-workflow", 20, "how many histories of one workflow and version")
	cmd.Flags().IntVar(&c.most, "limit", 500, "how many histories altogether")
	cmd.Flags().BoolVar(&c.all, "require-all", false, "fail also when the build lacks a workflow of which there are histories")
	return cmd
}

// run replays the sample: what is open first, because a deploy would go on with it.
func (c *deployCheck) run(ctx context.Context, b api.Backend, build *deploy.Build) error {
	for _, status := range []string{"open", "closed"} {
		text := `status = "` + status + `"`
		if c.query != "" {
			text = c.query + " and " + text
		}
		q, err := query.Parse(text, time.Now())
		if err != nil {
			return err
		}
		err = each(ctx, b, q.Request(), func(d *api.Description) error { return c.one(ctx, b, build, d) })
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// errEnough ends the listing.
var errEnough = errors.New("the sample is complete")

// versionsRead is of how many versions of a workflow histories are looked for: the version stands
// in the history.
const versionsRead = 5

// one replays a history, if the sample wants another one like it.
func (c *deployCheck) one(ctx context.Context, b api.Backend, build *deploy.Build, d *api.Description) error {
	if c.report.Replayed == c.most {
		return errEnough
	}
	a := d.Start.Address
	if strings.HasPrefix(a.Type, model.TaskPrefix) || strings.HasPrefix(a.Type, model.ReservedPrefix) {
		return nil // has no code of the program: a task without a workflow, or one of ours
	}
	if c.seen[a.Type] >= versionsRead*c.each {
		return nil
	}
	h, err := history.Load(ctx, b, api.Target{Address: a, Run: d.Start.Run}, maxCheckedHistory)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil // it was removed meanwhile
	case fault.Is(err, fault.Exhausted):
		c.report.TooLarge++
		return nil
	case err != nil:
		return err
	}
	c.seen[a.Type]++

	version := pinOf(h)
	if c.took[a.Type+"\x00"+version] == c.each {
		return nil
	}
	c.took[a.Type+"\x00"+version]++
	if version != "" && version != build.Version {
		c.report.Pinned++ // another build goes on with it
		return nil
	}

	var file bytes.Buffer
	if err := history.Write(&file, h); err != nil {
		return err
	}
	v, err := build.Replay(file.Bytes())
	if err != nil {
		return fmt.Errorf("%s/%s: %w", a.Type, a.Key, err)
	}
	switch {
	case v.Kind == "":
		c.report.Fit++
	case v.Kind == fault.NotFound.String():
		c.report.Absent[a.Type]++
		return nil
	default:
		c.report.Mismatches = append(c.report.Mismatches, deployMismatch{
			Workflow: a.Type, Key: a.Key, Run: d.Start.Run.String(), Status: d.Outcome.Status.String(), Events: len(h.Events), Error: v.Text,
		})
	}
	c.report.Replayed++
	return nil
}

// maxCheckedHistory bounds the histories that are replayed, as they are in memory.
const maxCheckedHistory = 64 << 20

// pinOf is the version that a run is pinned to.
func pinOf(h *model.History) (version string) {
	for i := range h.Events {
		if e := &h.Events[i]; e.Kind == model.EventPinned {
			version = e.Name
		}
	}
	return version
}

// tell prints what came of it.
func (c *deployCheck) tell(o *options) error {
	r := &c.report
	if o.output == "json" {
		if err := o.json(r); err != nil {
			return err
		}
	} else {
		var rows [][]string
		for _, m := range r.Mismatches {
			rows = append(rows, []string{m.Workflow + "/" + m.Key, m.Run, m.Status, m.Error})
		}
		if len(rows) > 0 {
			if err := o.table("EXECUTION\tRUN?\tSTATUS\tMISMATCH", rows); err != nil {
				return err
			}
		}
		fmt.Fprintf(o.Out, "%d histories replayed: %d fit, %d do not.\n", r.Replayed, r.Fit, len(r.Mismatches))
		if r.Pinned > 0 {
			fmt.Fprintf(o.Out, "%d are pinned to other versions and were not replayed.\n", r.Pinned)
		}
		if r.TooLarge > 0 {
			fmt.Fprintf(o.Out, "%d are larger than %d MiB and were not replayed.\n", r.TooLarge, maxCheckedHistory>>20)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Absent)) {
			fmt.Fprintf(o.Out, "The build does not have workflow %s (%d histories).\n", name, r.Absent[name])
		}
	}

	switch {
	case len(r.Mismatches) > 0:
		return fmt.Errorf("%d of %d histories do not fit this build: executions like them would be blocked; docs/versions.md says how to change code that runs",
			len(r.Mismatches), r.Replayed)
	case c.all && len(r.Absent) > 0:
		return errors.New("the build lacks " + strings.Join(slices.Sorted(maps.Keys(r.Absent)), ", "))
	}
	return nil
}
