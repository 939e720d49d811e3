package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const reportsTag = "Replay reports"

// addReplayReports adds the operations on replay reports: what CI jobs and workers found when they
// replayed histories with a build.
func (s *Server) addReplayReports() {
	const all = "/replay-reports"
	add(s, operation{id: "add-replay-report", method: http.MethodPost, path: all, tag: reportsTag, summary: "Report how a build replays histories", status: http.StatusCreated, also: http.StatusOK}, s.addReplayReport)
	add(s, operation{id: "list-replay-reports", method: http.MethodGet, path: all, tag: reportsTag, summary: "List replay reports, newest first, without their results"}, s.listReplayReports)
	add(s, operation{id: "get-replay-report", method: http.MethodGet, path: all + "/{id}", tag: reportsTag, summary: "Read a replay report with its results"}, s.replayReport)
}

// replayResult is the replay of one history.
type replayResult struct {
	Workflow string `json:"workflow" minLength:"1" example:"order"`
	Key      string `json:"key" minLength:"1" example:"42"`
	Run      string `json:"run,omitempty" doc:"The id of the run"`
	Outcome  string `json:"outcome" enum:"fits,mismatch,error,absent,skipped" example:"mismatch" doc:"absent: the build does not have the workflow; skipped: the history was not replayed"`
	Event    int64  `json:"event,omitempty" minimum:"0" example:"1" doc:"The position of the event that does not fit; absent if none is known"`
	Text     string `json:"text,omitempty" example:"event 1 records step charge, which the code did not ask for; it asks for step debit" doc:"What is recorded and what the code does instead, or what went wrong; at most 4 KiB"`
}

// replayReportBody is what a CI job or a worker reports.
type replayReportBody struct {
	Build   string         `json:"build" minLength:"1" example:"v1.4.2" doc:"Which code has replayed the histories: a version, a commit or an image"`
	Source  string         `json:"source,omitempty" example:"https://ci.example/shop/1234" doc:"Where the report comes from, such as the URL of a CI job"`
	Results []replayResult `json:"results" minItems:"1" maxItems:"2000"`
}

// replayWorkflow counts the results of one workflow by outcome.
type replayWorkflow struct {
	Workflow   string `json:"workflow"`
	Outcome    string `json:"outcome" enum:"fits,mismatch,error,absent,skipped" doc:"The outcome of all results of this workflow together"`
	Fits       int64  `json:"fits"`
	Mismatches int64  `json:"mismatches"`
	Errors     int64  `json:"errors"`
	Absent     int64  `json:"absent"`
	Skipped    int64  `json:"skipped"`
}

// ReplayReportInfo is a stored report.
type ReplayReportInfo struct {
	ID         string           `json:"id"`
	At         *time.Time       `json:"at"`
	By         string           `json:"by,omitempty" doc:"The caller that added it"`
	Build      string           `json:"build,omitempty"`
	Source     string           `json:"source,omitempty"`
	Outcome    string           `json:"outcome" enum:"fits,mismatch,error,absent,skipped,unreadable" doc:"The outcome of all results together: mismatch if one does not fit, otherwise error if one failed, otherwise fits if one was replayed; unreadable if the stored report is damaged"`
	Fits       int64            `json:"fits"`
	Mismatches int64            `json:"mismatches"`
	Errors     int64            `json:"errors"`
	Absent     int64            `json:"absent" doc:"Histories of workflows that the build does not have"`
	Skipped    int64            `json:"skipped" doc:"Histories that were not replayed"`
	Workflows  []replayWorkflow `json:"workflows" doc:"The same counts by workflow, in the order of their names"`
	Unreadable bool             `json:"unreadable,omitempty" doc:"The stored report is damaged"`
}

// replayReportWhole is a stored report with its results.
type replayReportWhole struct {
	ReplayReportInfo

	Results []replayResult `json:"results"`
}

func replayWorkflowOf(w *api.ReplayWorkflow) replayWorkflow {
	return replayWorkflow{w.Workflow, w.Outcome(), w.Fits, w.Mismatches, w.Errors, w.Absent, w.Skipped}
}

func replayReportOf(r *api.ReplayReport) ReplayReportInfo {
	return ReplayReportInfo{
		ID: r.ID.String(), At: at(r.At), By: r.By, Build: r.Build, Source: r.Source, Unreadable: r.Unreadable, Outcome: r.Outcome(),
		Fits: r.Fits, Mismatches: r.Mismatches, Errors: r.Errors, Absent: r.Absent, Skipped: r.Skipped, Workflows: each(r.Workflows, replayWorkflowOf),
	}
}

func replayResultOf(r *api.ReplayResult) replayResult {
	out := replayResult{Workflow: r.Workflow, Key: r.Key, Outcome: r.Outcome, Event: r.Event, Text: r.Text}
	if !r.Run.IsZero() {
		out.Run = r.Run.String()
	}
	return out
}

type addReplayReportInput struct {
	RequestHeader

	Body replayReportBody
}

type addReplayReportOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     ReplayReportInfo
}

func (s *Server) addReplayReport(ctx context.Context, who *authn.Identity, in *addReplayReportInput) (*addReplayReportOutput, error) {
	r := api.ReplayReportRequest{Tenant: who.Tenant, Build: in.Body.Build, Source: in.Body.Source, RequestID: in.RequestID, Results: make([]api.ReplayResult, len(in.Body.Results))}
	for i := range r.Results {
		from := &in.Body.Results[i]
		run, err := readRun(from.Run)
		if err != nil {
			return nil, fault.New(fault.Invalid, "result %d: %w", i, err)
		}
		r.Results[i] = api.ReplayResult{Workflow: from.Workflow, Key: from.Key, Run: run, Outcome: from.Outcome, Event: from.Event, Text: from.Text}
	}

	got, err := s.config.Backend.AddReplayReport(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &addReplayReportOutput{Status: http.StatusCreated, Location: "/v1/replay-reports/" + got.Report.ID.String(), Body: replayReportOf(&got.Report)}
	if got.Existing {
		out.Status = http.StatusOK
	}
	return out, nil
}

type replayReportsInput struct {
	PageQuery

	Workflow string `query:"workflow" example:"order" doc:"Only reports that have results of this workflow"`
	Build    string `query:"build" example:"v1.4.2"`
	Outcome  string `query:"outcome" enum:"fits,mismatch,error,absent,skipped" doc:"Only reports with this outcome; together with workflow, only reports in which that workflow has this outcome"`
}

func (s *Server) listReplayReports(ctx context.Context, who *authn.Identity, in *replayReportsInput) (*reply[page[ReplayReportInfo]], error) {
	got, err := s.config.Backend.ReplayReports(ctx, api.ReplayReportListRequest{
		Tenant: who.Tenant, Workflow: in.Workflow, Build: in.Build, Outcome: in.Outcome, Limit: in.Limit, Cursor: in.Cursor,
	})
	if err != nil {
		return nil, err
	}
	return ok(page[ReplayReportInfo]{each(got.Reports, replayReportOf), got.Cursor})
}

// ReplayReportPath names a replay report.
type ReplayReportPath struct {
	ID string `path:"id" example:"report_06f3d1q8zv7k5m2n9p4r6s8t0w"`
}

func (s *Server) replayReport(ctx context.Context, who *authn.Identity, in *ReplayReportPath) (*reply[replayReportWhole], error) {
	id, err := model.ParseReportID(in.ID)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	got, err := s.config.Backend.ReplayReport(ctx, api.ReplayReportTarget{Tenant: who.Tenant, ID: id})
	if err != nil {
		return nil, err
	}
	return ok(replayReportWhole{replayReportOf(&got), each(got.Results, replayResultOf)})
}
