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
	tenant string
	query  string
	each   int // how many histories of one workflow and version to replay at most
	most   int // how many histories to replay at most
	all    bool
	large  int // a history with more bytes than this is not replayed

	// post says that the check stores a replay report. name is the name of the build in that
	// report, and source says where the report comes from. id is the request id with which the
	// check stores the report. results has the results of replayed histories. spare has the results
	// of histories that the program did not replay.
	post             bool
	name, source, id string
	results, spare   []api.ReplayResult

	seen   map[string]int // histories read, by workflow
	took   map[string]int // histories taken into the sample, by workflow and version
	report deployReport
}

// deployReport is the result of a deploy check.
type deployReport struct {
	Replayed   int              `json:"replayed"`
	Fit        int              `json:"fit"`
	Mismatches []deployMismatch `json:"mismatches"`
	// Absent counts histories of workflows that the build does not have.
	Absent   map[string]int `json:"absent"`
	Pinned   int            `json:"pinned"`    // pinned to another version than the build
	TooLarge int            `json:"too_large"` // too large to be replayed
	// Unread counts histories that the check did not read, because it had read many histories of
	// the same workflow that did not belong to the sample, or were too large.
	Unread  int    `json:"unread"`
	Version string `json:"version"`
	// Report is the id of the stored replay report.
	Report string `json:"report,omitempty"`
	// LeftOut is how many results the stored replay report has no room for.
	LeftOut int `json:"left_out,omitempty"`
}

type deployMismatch struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Status   string `json:"status"`
	Events   int    `json:"events"`
	Event    int64  `json:"event,omitempty"` // the position of the event that does not fit
	Error    string `json:"error"`
}

func newDeployCheck(o *options) *cobra.Command {
	c := &deployCheck{large: maxCheckedHistory, seen: map[string]int{}, took: map[string]int{}, report: deployReport{Mismatches: []deployMismatch{}, Absent: map[string]int{}}}
	cmd := &cobra.Command{
		Use:   "deploy-check [flags] -- program [argument...]",
		Short: "Replay a sample of stored histories with a build before you deploy it",
		Long: `Replay a sample of stored histories with the code of a program. The program must call embedded.AnswerDeployCheck first in its main function.
The command only reads the store, unless --report stores what it found. The program executes no step and opens no store. The sample starts with open executions and continues with closed ones, newest first.

The exit code is 1 if a history does not fit the code. After a deploy of the program, open executions with such a history would be blocked.`,
		Example: `  perdure deploy-check --store postgres://localhost/app -- ./shop
  perdure deploy-check -q 'workflow = "order"' --per-workflow 100 -o json -- ./shop
  perdure deploy-check --server grpc://perdure:7800 --report --build v1.4.2 --source "$CI_JOB_URL" -- ./shop`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Invalid, "name the program to deploy: perdure deploy-check -- ./program")
			}
			if c.each < 1 || c.most < 1 {
				return fault.New(fault.Invalid, "--per-workflow and --limit must be at least 1")
			}
			return c.checkReport()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			build, err := deploy.Start(cmd.Context(), args, o.Err)
			if err != nil {
				return err
			}
			c.report.Version = build.Version
			c.tenant = o.tenant
			if c.post && c.name == "" && build.Version == "" {
				return errors.Join(fault.New(fault.Invalid, "the program reports no version: name the build with --build"), build.Close())
			}

			err = o.with(cmd.Context(), true, func(b api.Backend) error { return c.run(cmd.Context(), b, build) })
			var unstored error
			if err = errors.Join(err, build.Close()); err == nil && c.post {
				unstored = c.store(cmd.Context(), o)
			}

			if cmd.Context().Err() != nil { // the interrupt has also ended the program
				return context.Cause(cmd.Context())
			}
			if err != nil {
				return err
			}
			return errors.Join(c.tell(o), unstored)
		},
	}
	cmd.Flags().StringVarP(&c.query, "query", "q", "", "check only executions that this query selects; see perdure workflow list")
	cmd.Flags().IntVar(&c.each, "per-workflow", 20, "most histories of one workflow and version")
	cmd.Flags().IntVar(&c.most, "limit", 500, "most histories in all")
	cmd.Flags().BoolVar(&c.all, "require-all", false, "also fail if the store has histories of a workflow that the build lacks")
	cmd.Flags().BoolVar(&c.post, "report", false, "store a replay report; see perdure replay-report")
	cmd.Flags().StringVar(&c.name, "build", "", "name of the build in the replay report (the version that the program reports)")
	cmd.Flags().StringVar(&c.source, "source", "", "where the replay report comes from, such as the URL of the CI job")
	cmd.Flags().StringVar(&c.id, "request-id", "", "request id of the replay report: two commands with the same id store one report")
	return cmd
}

// run replays the sample. It starts with open executions, because the deployed program would
// continue them.
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
		err = each(ctx, b, q.Request(c.tenant), func(d *api.Description) error { return c.one(ctx, b, build, d) })
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

// versionsRead bounds how many histories of a workflow the check reads: at most versionsRead *
// deployCheck.each. The version of an execution is inside its history. So the check must read a
// history before it knows whether the sample has enough histories of that version. The same is true
// of its size.
const versionsRead = 5

// one replays the history of an execution, unless the sample has enough histories of the same
// workflow and version.
func (c *deployCheck) one(ctx context.Context, b api.Backend, build *deploy.Build, d *api.Description) error {
	if c.report.Replayed == c.most {
		return errEnough
	}
	a := d.Start.Address
	if strings.HasPrefix(a.Type, model.TaskPrefix) || strings.HasPrefix(a.Type, model.ReservedPrefix) {
		// The program cannot have the code: the execution is a task without a workflow, or belongs
		// to a workflow of Perdure itself.
		return nil
	}
	if c.seen[a.Type] >= versionsRead*c.each {
		c.report.Unread++
		return nil
	}
	h, err := history.Load(ctx, b, api.Target{Address: a, Run: d.Start.Run}, c.large)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil // the store removed it after the listing
	case errors.Is(err, history.ErrTooLarge):
		c.seen[a.Type]++
		c.report.TooLarge++
		c.note(d, api.ReplayResult{Outcome: api.ReplaySkipped, Text: fmt.Sprintf("the history has more than %d MiB", maxCheckedHistory>>20)})
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
		c.report.Pinned++ // another build continues it
		c.note(d, api.ReplayResult{Outcome: api.ReplaySkipped, Text: "the execution is pinned to version " + version})
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
	c.note(d, resultOf(&v))
	switch {
	case v.Kind == "":
		c.report.Fit++
	case v.Kind == fault.NotFound.String():
		c.report.Absent[a.Type]++
		return nil
	default:
		c.report.Mismatches = append(c.report.Mismatches, deployMismatch{
			Workflow: a.Type, Key: a.Key, Run: d.Start.Run.String(), Status: d.Outcome.Status.String(), Events: len(h.Events), Event: v.Event, Error: v.Text,
		})
	}
	c.report.Replayed++
	return nil
}

// maxCheckedHistory is the size of the largest history that is replayed, in bytes. It is bounded
// because the check holds the whole history in memory.
const maxCheckedHistory = 64 << 20

// pinOf returns the version that a run is pinned to.
func pinOf(h *model.History) (version string) {
	for i := range h.Events {
		if e := &h.Events[i]; e.Kind == model.EventPinned {
			version = e.Name
		}
	}
	return version
}

// tell prints the report.
func (c *deployCheck) tell(o *options) error {
	r := &c.report
	if o.structured() {
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
		if r.Unread > 0 {
			fmt.Fprintf(o.Out, "%d more were not read, because the check had read %d histories of their workflow; --per-workflow raises that.\n", r.Unread, versionsRead*c.each)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Absent)) {
			fmt.Fprintf(o.Out, "The build does not have workflow %s (%d histories).\n", name, r.Absent[name])
		}
		c.tellReport(o)
	}

	switch {
	case len(r.Mismatches) > 0:
		return fmt.Errorf("%d of %d histories do not fit this build and would be blocked: see docs/versions.md for how to change running code",
			len(r.Mismatches), r.Replayed)
	case c.all && len(r.Absent) > 0:
		return errors.New("the build lacks " + strings.Join(slices.Sorted(maps.Keys(r.Absent)), ", "))
	}
	return nil
}
