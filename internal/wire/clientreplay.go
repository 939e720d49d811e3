package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func replayResult(r api.ReplayResult) *pb.ReplayResult {
	return &pb.ReplayResult{Workflow: r.Workflow, Key: r.Key, Run: Run(r.Run), Outcome: r.Outcome, Event: r.Event, Text: text(r.Text)}
}

func readReplayResult(_ string, r *pb.ReplayResult) (api.ReplayResult, error) {
	run, err := ReadRun(r.GetRun())
	return api.ReplayResult{Workflow: r.GetWorkflow(), Key: r.GetKey(), Run: run, Outcome: r.GetOutcome(), Event: r.GetEvent(), Text: r.GetText()}, err
}

// reportID returns the bytes of the id of a replay report, or nil for the zero id.
func reportID(id model.ReportID) []byte {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

func readReportID(data []byte) (id model.ReportID, err error) {
	if n := len(data); n != 0 && n != len(id) {
		return id, fault.New(fault.Invalid, "the id of a replay report has %d bytes, must have %d", n, len(id))
	}
	copy(id[:], data)
	return id, nil
}

// AddReplayReportRequest builds the message that adds a replay report.
func AddReplayReportRequest(r api.ReplayReportRequest) *pb.AddReplayReportRequest {
	return &pb.AddReplayReportRequest{Build: r.Build, Source: r.Source, Results: each(r.Results, replayResult), RequestId: r.RequestID}
}

// ReadAddReplayReportRequest reads a replay report to add.
func ReadAddReplayReportRequest(tenant string, r *pb.AddReplayReportRequest) (out api.ReplayReportRequest, err error) {
	out = api.ReplayReportRequest{Tenant: tenant, Build: r.GetBuild(), Source: r.GetSource(), RequestID: r.GetRequestId()}
	out.Results, err = readEach(tenant, r.GetResults(), readReplayResult)
	return out, err
}

// AddReplayReportReply builds the reply to a request that adds a replay report.
func AddReplayReportReply(r api.ReplayReportReply) *pb.AddReplayReportReply {
	return &pb.AddReplayReportReply{Report: ReplayReport(r.Report), Existing: r.Existing}
}

// ReadAddReplayReportReply reads the reply to a request that adds a replay report.
func ReadAddReplayReportReply(tenant string, r *pb.AddReplayReportReply) (out api.ReplayReportReply, err error) {
	out.Existing = r.GetExisting()
	out.Report, err = ReadReplayReport(tenant, r.GetReport())
	return out, err
}

// ReplayReportRequest builds the message that names a replay report.
func ReplayReportRequest(t api.ReplayReportTarget) *pb.ReplayReportRequest {
	return &pb.ReplayReportRequest{Id: reportID(t.ID)}
}

// ReadReplayReportRequest reads the name of a replay report.
func ReadReplayReportRequest(tenant string, r *pb.ReplayReportRequest) (api.ReplayReportTarget, error) {
	id, err := readReportID(r.GetId())
	return api.ReplayReportTarget{Tenant: tenant, ID: id}, err
}

// ReplayReportsRequest builds the message that selects replay reports.
func ReplayReportsRequest(r api.ReplayReportListRequest) *pb.ReplayReportsRequest {
	return &pb.ReplayReportsRequest{Workflow: r.Workflow, Build: r.Build, Outcome: r.Outcome, Limit: int64(r.Limit), Cursor: r.Cursor}
}

// ReadReplayReportsRequest reads a selection of replay reports.
func ReadReplayReportsRequest(tenant string, r *pb.ReplayReportsRequest) (api.ReplayReportListRequest, error) {
	return api.ReplayReportListRequest{
		Tenant: tenant, Workflow: r.GetWorkflow(), Build: r.GetBuild(), Outcome: r.GetOutcome(), Limit: int(r.GetLimit()), Cursor: r.GetCursor(),
	}, nil
}

// ReplayReportPage builds the message for a page of replay reports.
func ReplayReportPage(p api.ReplayReportPage) *pb.ReplayReportPage {
	return &pb.ReplayReportPage{Reports: each(p.Reports, ReplayReport), Cursor: p.Cursor}
}

// ReadReplayReportPage reads a page of replay reports.
func ReadReplayReportPage(tenant string, p *pb.ReplayReportPage) (out api.ReplayReportPage, err error) {
	out.Cursor = p.GetCursor()
	out.Reports, err = readEach(tenant, p.GetReports(), ReadReplayReport)
	return out, err
}

// ReplayReport builds the message for a stored replay report. The message does not contain the
// sums of the report, which the reader computes from the workflows in the message.
func ReplayReport(r api.ReplayReport) *pb.ReplayReportInfo {
	return &pb.ReplayReportInfo{
		Id: reportID(r.ID), At: int64(r.At), By: text(r.By), Build: text(r.Build), Source: text(r.Source), Unreadable: r.Unreadable, Results: each(r.Results, replayResult),
		Workflows: each(r.Workflows, func(w api.ReplayWorkflow) *pb.ReplayWorkflow {
			return &pb.ReplayWorkflow{Workflow: w.Workflow, Fits: w.Fits, Mismatches: w.Mismatches, Errors: w.Errors, Absent: w.Absent, Skipped: w.Skipped}
		}),
	}
}

// ReadReplayReport reads a stored replay report.
func ReadReplayReport(tenant string, r *pb.ReplayReportInfo) (out api.ReplayReport, err error) {
	out = api.ReplayReport{At: model.Time(r.GetAt()), By: r.GetBy(), Build: r.GetBuild(), Source: r.GetSource(), Unreadable: r.GetUnreadable()}
	if out.ID, err = readReportID(r.GetId()); err != nil {
		return out, err
	}
	if out.Results, err = readEach(tenant, r.GetResults(), readReplayResult); err != nil {
		return out, err
	}
	out.Workflows, err = readEach(tenant, r.GetWorkflows(), func(_ string, w *pb.ReplayWorkflow) (api.ReplayWorkflow, error) {
		c := api.ReplayCounts{Fits: w.GetFits(), Mismatches: w.GetMismatches(), Errors: w.GetErrors(), Absent: w.GetAbsent(), Skipped: w.GetSkipped()}
		out.Join(c)
		return api.ReplayWorkflow{Workflow: w.GetWorkflow(), ReplayCounts: c}, nil
	})
	return out, err
}
