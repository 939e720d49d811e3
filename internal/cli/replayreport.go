package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newReplayReport(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay-report", Short: "What CI jobs found when they replayed histories with a build",
		Long: `What CI jobs and workers found when they replayed histories with a build.

perdure deploy-check --report replays histories and stores a report. perdure replay-report add stores a report of another program.`,
		Example: `  perdure replay-report list --build v1.4.2
  perdure replay-report show report_06f3d1q8zv7k5m2n9p4r6s8t0w
  perdure replay-report add -f report.json`,
	}
	cmd.AddCommand(newReplayReportList(o), newReplayReportShow(o), newReplayReportAdd(o))
	return cmd
}

// reportLine is a replay report in JSON, with or without its results.
type reportLine struct {
	ID         string               `json:"id"`
	At         string               `json:"at"`
	By         string               `json:"by,omitempty"`
	Build      string               `json:"build,omitempty"`
	Source     string               `json:"source,omitempty"`
	Outcome    string               `json:"outcome"`
	Fits       int64                `json:"fits"`
	Mismatches int64                `json:"mismatches"`
	Errors     int64                `json:"errors"`
	Absent     int64                `json:"absent"`
	Skipped    int64                `json:"skipped"`
	Workflows  []reportWorkflowLine `json:"workflows"`
	Results    []reportResultLine   `json:"results,omitempty"`
	Unreadable bool                 `json:"unreadable,omitempty"`
}

// reportWorkflowLine counts the results of one workflow in JSON.
type reportWorkflowLine struct {
	Workflow   string `json:"workflow"`
	Outcome    string `json:"outcome"`
	Fits       int64  `json:"fits"`
	Mismatches int64  `json:"mismatches"`
	Errors     int64  `json:"errors"`
	Absent     int64  `json:"absent"`
	Skipped    int64  `json:"skipped"`
}

// reportResultLine is the replay of one history in JSON. Commands read this form from files of
// reports, and print it.
type reportResultLine struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run,omitempty"`
	Outcome  string `json:"outcome"`
	Event    int64  `json:"event,omitempty"`
	Text     string `json:"text,omitempty"`
}

func reportLineOf(r *api.ReplayReport) reportLine {
	l := reportLine{
		ID: r.ID.String(), At: when(r.At), By: r.By, Build: r.Build, Source: r.Source, Outcome: r.Outcome(), Fits: r.Fits, Mismatches: r.Mismatches, Errors: r.Errors,
		Absent: r.Absent, Skipped: r.Skipped, Workflows: []reportWorkflowLine{}, Unreadable: r.Unreadable,
	}
	for i := range r.Workflows {
		w := &r.Workflows[i]
		l.Workflows = append(l.Workflows, reportWorkflowLine{w.Workflow, w.Outcome(), w.Fits, w.Mismatches, w.Errors, w.Absent, w.Skipped})
	}
	for i := range r.Results {
		from := &r.Results[i]
		line := reportResultLine{Workflow: from.Workflow, Key: from.Key, Outcome: from.Outcome, Event: from.Event, Text: from.Text}
		if !from.Run.IsZero() {
			line.Run = from.Run.String()
		}
		l.Results = append(l.Results, line)
	}
	return l
}

func newReplayReportList(o *options) *cobra.Command {
	var r api.ReplayReportListRequest
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List replay reports, newest first", Args: cobra.NoArgs,
		Example: "  perdure replay-report list\n  perdure replay-report list --workflow order --outcome mismatch -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Tenant = o.tenant
			return o.with(cmd.Context(), true, func(b api.Backend) error { return o.listReplayReports(cmd.Context(), b, r, limit) })
		},
	}
	cmd.Flags().StringVar(&r.Workflow, "workflow", "", "only reports that have results of this workflow")
	cmd.Flags().StringVar(&r.Build, "build", "", "only reports of this build")
	cmd.Flags().StringVar(&r.Outcome, "outcome", "", "only reports with this outcome: fits, mismatch, error, absent or skipped; with --workflow, only reports in which that workflow has it")
	cmd.Flags().Var(count(&limit, 50), "limit", "most entries to list; 0 lists all")
	return cmd
}

func (o *options) listReplayReports(ctx context.Context, b api.Backend, r api.ReplayReportListRequest, limit int) error {
	lines, rows := []reportLine{}, [][]string{}
	for {
		if limit > 0 {
			r.Limit = min(limit-len(lines), 100)
		}
		page, err := b.ReplayReports(ctx, r)
		if err != nil {
			return err
		}
		for i := range page.Reports {
			l := reportLineOf(&page.Reports[i])
			lines = append(lines, l)
			rows = append(rows, append([]string{l.ID, second(page.Reports[i].At), dash(l.Build), l.Outcome}, numbers(l.Fits, l.Mismatches, l.Errors, l.Absent, l.Skipped)...))
			rows[len(rows)-1] = append(rows[len(rows)-1], dash(l.Source))
		}
		if r.Cursor = page.Cursor; r.Cursor == "" || limit > 0 && len(lines) >= limit {
			break
		}
	}

	if o.structured() {
		return o.json(lines)
	}
	return o.table("REPORT\tTIME\tBUILD\tOUTCOME\tFITS\tMISMATCHES\tERRORS\tABSENT?\tSKIPPED?\tSOURCE?", rows)
}

// numbers returns numbers as cells of a table.
func numbers(all ...int64) []string {
	out := make([]string, len(all))
	for i, n := range all {
		out[i] = strconv.FormatInt(n, 10)
	}
	return out
}

func newReplayReportShow(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show report", Short: "Show a replay report by workflow, and what does not fit", Args: cobra.ExactArgs(1),
		Example: "  perdure replay-report show report_06f3d1q8zv7k5m2n9p4r6s8t0w\n  perdure replay-report show report_06f3d1q8zv7k5m2n9p4r6s8t0w -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := model.ParseReportID(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "%w: see perdure replay-report list --wide", err)
			}
			return o.with(cmd.Context(), true, func(b api.Backend) error {
				r, err := b.ReplayReport(cmd.Context(), api.ReplayReportTarget{Tenant: o.tenant, ID: id})
				if err != nil {
					return err
				}
				return o.printReplayReport(&r)
			})
		},
	}
}

// printReplayReport prints a report. The table lists only the histories that do not fit the code.
// JSON lists all histories.
func (o *options) printReplayReport(r *api.ReplayReport) error {
	l := reportLineOf(r)
	if o.structured() {
		return o.json(l)
	}
	head := [][]string{
		{"Report", l.ID}, {"Build", dash(l.Build)}, {"Outcome", l.Outcome}, {"Source", dash(l.Source)}, {"Added by", dash(l.By)}, {"Added", second(r.At)},
	}
	if err := o.table("", head); err != nil {
		return err
	}

	fmt.Fprintln(o.Out)
	rows := [][]string{}
	for _, w := range l.Workflows {
		rows = append(rows, append([]string{w.Workflow, w.Outcome}, numbers(w.Fits, w.Mismatches, w.Errors, w.Absent, w.Skipped)...))
	}
	if err := o.table("WORKFLOW\tOUTCOME\tFITS\tMISMATCHES\tERRORS\tABSENT\tSKIPPED", rows); err != nil {
		return err
	}

	rows = [][]string{}
	for _, one := range l.Results {
		if one.Outcome != api.ReplayMismatch && one.Outcome != api.ReplayError {
			continue
		}
		event := "-"
		if one.Event > 0 {
			event = strconv.FormatInt(one.Event, 10)
		}
		rows = append(rows, []string{one.Workflow + "/" + one.Key, dash(one.Run), one.Outcome, event, dash(one.Text)})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(o.Out)
	return o.table("EXECUTION\tRUN?\tOUTCOME\tEVENT\tTEXT", rows)
}

func newReplayReportAdd(o *options) *cobra.Command {
	var file, id string
	var answer time.Duration
	cmd := &cobra.Command{
		Use: "add -f file", Short: "Store a replay report that another program has made", Args: cobra.NoArgs,
		Long: `Store a replay report that another program has made: a JSON object with build, source, and results, each with workflow, key, run, outcome, event and text.

The outcome of a result is fits, mismatch, error, absent (the build does not have the workflow) or skipped (the history was not replayed).`,
		Example: `  perdure replay-report add -f report.json --request-id "$CI_JOB_ID"
  echo '{"build":"v2","results":[{"workflow":"order","key":"42","outcome":"fits"}]}' | perdure replay-report add -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.readReport(file)
			if err != nil {
				return err
			}
			r.Tenant, r.RequestID = o.tenant, id
			if id == "" {
				r.RequestID = uuid.NewString()
			}
			return o.within(cmd.Context(), answer, func(ctx context.Context, b api.Backend) error {
				got, err := b.AddReplayReport(ctx, r)
				if err != nil {
					return err
				}
				l := reportLineOf(&got.Report)
				if o.structured() {
					return o.json(l)
				}
				_, err = fmt.Fprintf(o.Out, "replay report %s of build %s: %s (%d fit, %d do not, %d errors)\n", l.ID, l.Build, l.Outcome, l.Fits, l.Mismatches, l.Errors)
				return err
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the report; - for standard input")
	cmd.Flags().StringVar(&id, "request-id", "", "two commands with the same id store one report")
	patience(cmd, &answer)
	cmd.Flags().Lookup("timeout").Usage = "how long the command may take"
	_ = cmd.MarkFlagRequired("file") // an error means that the flag does not exist
	return cmd
}

// maxReportFile bounds the file of a report. It is larger than the report itself, because the file
// may write every character as an escape.
const maxReportFile = 16 * api.MaxReplayReportBytes

// readReport reads the file of a report.
func (o *options) readReport(file string) (r api.ReplayReportRequest, err error) {
	in := o.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return r, fault.New(fault.Invalid, "--file: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxReportFile+1))
	if err != nil {
		return r, fault.New(fault.Invalid, "--file: %w", err)
	}
	if len(data) > maxReportFile {
		return r, fault.New(fault.Invalid, "--file has more than %d MiB", maxReportFile>>20)
	}

	var from struct {
		Build   string             `json:"build"`
		Source  string             `json:"source"`
		Results []reportResultLine `json:"results"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&from); err != nil {
		return r, fault.New(fault.Invalid, "--file is no replay report: %w", err)
	}
	r = api.ReplayReportRequest{Build: from.Build, Source: from.Source, Results: make([]api.ReplayResult, len(from.Results))}
	for i, one := range from.Results {
		r.Results[i] = api.ReplayResult{Workflow: one.Workflow, Key: one.Key, Outcome: one.Outcome, Event: one.Event, Text: one.Text}
		if one.Run == "" {
			continue
		}
		if r.Results[i].Run, err = model.ParseRunID(one.Run); err != nil {
			return r, fault.New(fault.Invalid, "result %d: run: %w", i, err)
		}
	}
	return r, nil
}
