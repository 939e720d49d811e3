package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Bounds of replay reports. If the reports of a tenant exceed the first two bounds, the store
// removes the oldest reports. AddReplayReport refuses a report that exceeds one of the others.
const (
	MaxReplayReports      = 1000     // of a tenant
	MaxReplayReportsBytes = 64 << 20 // of a tenant
	MaxReplayReportBytes  = 1 << 20  // of one report: all its texts
	MaxReplayResults      = 2000     // of one report
	MaxReplayBuild        = 200      // bytes
	MaxReplaySource       = 1 << 10  // bytes
	MaxReplayText         = 4 << 10  // bytes of one result
)

// Outcomes of a replay.
const (
	// ReplayFits means that the code asks for everything that the history records.
	ReplayFits = "fits"
	// ReplayMismatch means that the code does something that the history does not record. After a
	// deploy, the execution would be blocked.
	ReplayMismatch = "mismatch"
	// ReplayError means that the replay did not finish, for example because it took too long.
	ReplayError = "error"
	// ReplayAbsent means that the build does not have the workflow.
	ReplayAbsent = "absent"
	// ReplaySkipped means that the history was not replayed, for example because the execution is
	// pinned to another version, or because the history is too large.
	ReplaySkipped = "skipped"
	// ReplayUnreadable is the outcome that lists show for a stored report that is damaged. A result
	// never has this outcome.
	ReplayUnreadable = "unreadable"
)

// ReplayOutcomes returns the outcomes that a result can have.
func ReplayOutcomes() []string {
	return []string{ReplayFits, ReplayMismatch, ReplayError, ReplayAbsent, ReplaySkipped}
}

// ReplayReports say what CI jobs and workers found when they replayed histories with a build.
type ReplayReports interface {
	// AddReplayReport stores a report. Two calls with the same request id and the same report store
	// one report. A call with the same id and a different report returns Conflict.
	AddReplayReport(ctx context.Context, r ReplayReportRequest) (ReplayReportReply, error)
	// ReplayReports returns a page of reports without their results, newest first.
	ReplayReports(ctx context.Context, r ReplayReportListRequest) (ReplayReportPage, error)
	// ReplayReport returns one report with its results, or NotFound.
	ReplayReport(ctx context.Context, t ReplayReportTarget) (ReplayReport, error)
}

// ReplayReportRequest adds a report.
type ReplayReportRequest struct {
	Tenant string
	// Build says which code has replayed the histories: a version, a commit or an image.
	Build string
	// Source says where the report comes from, such as the URL of a CI job. It may be empty.
	Source    string
	Results   []ReplayResult
	RequestID string
}

// ReplayResult is the replay of one history.
type ReplayResult struct {
	Workflow, Key string
	// Run is zero if the reporter does not know it.
	Run model.RunID
	// Outcome is ReplayFits or another of these constants.
	Outcome string
	// Event is the position of the event that does not fit; 0 if there is none, or if it is not
	// known.
	Event int64
	// Text says what is recorded and what the code does instead, or what went wrong.
	Text string
}

// ReplayReportReply is the report that the tenant has for a request.
type ReplayReportReply struct {
	Report ReplayReport // without results
	// Existing means that an earlier call has added the report.
	Existing bool
}

// ReplayCounts counts results by outcome.
type ReplayCounts struct {
	Fits, Mismatches, Errors, Absent, Skipped int64
}

// Add counts a result.
func (c *ReplayCounts) Add(outcome string) {
	switch outcome {
	case ReplayFits:
		c.Fits++
	case ReplayMismatch:
		c.Mismatches++
	case ReplayError:
		c.Errors++
	case ReplayAbsent:
		c.Absent++
	default:
		c.Skipped++
	}
}

// Join adds other counts.
func (c *ReplayCounts) Join(o ReplayCounts) {
	c.Fits += o.Fits
	c.Mismatches += o.Mismatches
	c.Errors += o.Errors
	c.Absent += o.Absent
	c.Skipped += o.Skipped
}

// Outcome returns the outcome of all results together. A mismatch takes precedence over an error,
// and an error over histories that fit. Absent and skipped histories matter only if no history was
// replayed.
func (c *ReplayCounts) Outcome() string {
	switch {
	case c.Mismatches > 0:
		return ReplayMismatch
	case c.Errors > 0:
		return ReplayError
	case c.Fits > 0:
		return ReplayFits
	case c.Absent > 0:
		return ReplayAbsent
	}
	return ReplaySkipped
}

// ReplayWorkflow counts the results of one workflow.
type ReplayWorkflow struct {
	Workflow string
	ReplayCounts
}

// ReplayReport is a stored report.
type ReplayReport struct {
	ID model.ReportID
	At model.Time
	// By is the caller that added the report; empty for the program itself.
	By            string
	Build, Source string
	ReplayCounts
	// Workflows are ordered by name.
	Workflows []ReplayWorkflow
	// Results are in the order of the request. Lists leave them out.
	Results []ReplayResult
	// Unreadable is set if the stored report is damaged. In that case only ID and At are known.
	Unreadable bool
}

// Outcome returns the outcome of all results together.
func (r *ReplayReport) Outcome() string {
	if r.Unreadable {
		return ReplayUnreadable
	}
	return r.ReplayCounts.Outcome()
}

// ReplayReportListRequest selects reports. All conditions must hold; an empty field sets no
// condition.
type ReplayReportListRequest struct {
	Tenant string
	// Workflow selects reports that have results of the workflow.
	Workflow string
	Build    string
	// Outcome selects reports with this outcome. With Workflow, it is the outcome of the workflow.
	Outcome string
	Limit   int
	Cursor  string // opaque, from the previous page
}

// ReplayReportPage is one page of reports.
type ReplayReportPage struct {
	Reports []ReplayReport
	Cursor  string // empty on the last page
}

// ReplayReportTarget names a report.
type ReplayReportTarget struct {
	Tenant string
	ID     model.ReportID
}
