package service

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Bounds of one page of replay reports.
const (
	defaultReports  = 100
	maxReports      = 1000
	reportPageBytes = 2 << 20 // bytes of the heads of one page
)

// reportHead is the part of a stored report that lists show.
type reportHead struct {
	At        model.Time       `json:"at"`
	By        string           `json:"by,omitempty"`
	Build     string           `json:"build"`
	Source    string           `json:"source,omitempty"`
	Workflows []reportWorkflow `json:"workflows"`
	// Digest distinguishes a repetition of a request from another request with the same id.
	Digest string `json:"digest"`
}

// reportWorkflow has the numbers of results in the order of api.ReplayOutcomes.
type reportWorkflow struct {
	Name   string   `json:"name"`
	Counts [5]int64 `json:"counts"`
}

// reportResult is the stored form of a result.
type reportResult struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run,omitempty"`
	Outcome  string `json:"outcome"`
	Event    int64  `json:"event,omitempty"`
	Text     string `json:"text,omitempty"`
}

// AddReplayReport stores a report.
func (s *Service) AddReplayReport(ctx context.Context, r api.ReplayReportRequest) (api.ReplayReportReply, error) {
	if err := s.checkReplayReport(&r); err != nil {
		return api.ReplayReportReply{}, err
	}
	if s.engine == nil {
		return api.ReplayReportReply{}, fault.New(fault.Denied, "add replay report: the store is open for reading only")
	}
	id := model.ReportID(uuid.Must(uuid.NewV7()))
	head, body, err := encodeReport(ctx, &r)
	if err != nil {
		return api.ReplayReportReply{}, err
	}
	sealed, err := json.Marshal(head)
	if err != nil {
		return api.ReplayReportReply{}, err
	}

	row, err := s.store.AddReport(ctx, store.ReportRow{
		ID: id, Tenant: r.Tenant, Request: cmp.Or(r.RequestID, id.String()), Head: sealed, Body: body,
	}, store.ReportBounds{Rows: api.MaxReplayReports, Bytes: api.MaxReplayReportsBytes})
	if err != nil {
		return api.ReplayReportReply{}, err
	}
	report, digest := readReportHead(&row)
	switch {
	case report.Unreadable:
		return api.ReplayReportReply{}, fault.New(fault.Corrupt, "add replay report: the report of request id %.200s, %s, cannot be read", r.RequestID, row.ID)
	case row.ID != id && digest != head.Digest:
		return api.ReplayReportReply{}, fault.New(fault.Conflict, "add replay report: request id %.200s was used for another report, %s", r.RequestID, row.ID)
	}
	return api.ReplayReportReply{Report: report, Existing: row.ID != id}, nil
}

// encodeReport returns the stored form of a report.
func encodeReport(ctx context.Context, r *api.ReplayReportRequest) (head reportHead, body []byte, err error) {
	head = reportHead{At: model.TimeOf(time.Now()), Build: r.Build, Source: r.Source}
	if call := authn.CallOf(ctx); call != nil {
		head.By = call.Name
	}

	counts := map[string]*[5]int64{}
	results := make([]reportResult, len(r.Results))
	for i := range r.Results {
		from := &r.Results[i]
		results[i] = reportResult{Workflow: from.Workflow, Key: from.Key, Outcome: from.Outcome, Event: from.Event, Text: from.Text}
		if !from.Run.IsZero() {
			results[i].Run = from.Run.String()
		}
		if counts[from.Workflow] == nil {
			counts[from.Workflow] = &[5]int64{}
		}
		counts[from.Workflow][slices.Index(api.ReplayOutcomes(), from.Outcome)]++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		head.Workflows = append(head.Workflows, reportWorkflow{name, *counts[name]})
	}

	if body, err = json.Marshal(results); err != nil {
		return head, nil, err
	}
	whole, err := json.Marshal([]any{r.Build, r.Source, json.RawMessage(body)})
	sum := sha256.Sum256(whole)
	head.Digest = hex.EncodeToString(sum[:16])
	return head, body, err
}

// readReportHead returns the part of a report that lists show, and its digest.
func readReportHead(row *store.ReportRow) (api.ReplayReport, string) {
	var head reportHead
	r := api.ReplayReport{ID: row.ID, At: reportTime(row.ID)}
	if row.Damaged != nil || json.Unmarshal(row.Head, &head) != nil {
		r.Unreadable = true
		return r, ""
	}
	r.At, r.By, r.Build, r.Source = head.At, head.By, head.Build, head.Source
	for _, w := range head.Workflows {
		c := api.ReplayCounts{Fits: w.Counts[0], Mismatches: w.Counts[1], Errors: w.Counts[2], Absent: w.Counts[3], Skipped: w.Counts[4]}
		r.Workflows = append(r.Workflows, api.ReplayWorkflow{Workflow: w.Name, ReplayCounts: c})
		r.Join(c)
	}
	return r, head.Digest
}

// reportTime returns when an id was drawn, to the millisecond.
func reportTime(id model.ReportID) model.Time {
	ms := int64(0)
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return model.Time(ms * 1000)
}

// checkReplayReport refuses a report that is not valid.
func (s *Service) checkReplayReport(r *api.ReplayReportRequest) error {
	v := s.check("add replay report")
	v.Tenant(r.Tenant)
	v.RequestID(r.RequestID)
	v.Text("the build", r.Build, api.MaxReplayBuild)
	if r.Source != "" {
		v.Text("the source", r.Source, api.MaxReplaySource)
	}
	switch n := len(r.Results); {
	case n == 0:
		v.Wrong("there are no results")
	case n > api.MaxReplayResults:
		v.Wrong("%d results, at most %d are allowed", n, api.MaxReplayResults)
		return v.Err()
	}

	size := 0
	for i := range r.Results {
		one := &r.Results[i]
		size += len(one.Workflow) + len(one.Key) + len(one.Text)
		if why := s.wrongResult(one); why != "" {
			v.Wrong("result %d: %s", i, why)
			break // one wrong result is enough to find the mistake in the program that reports
		}
	}
	if size > api.MaxReplayReportBytes {
		v.Wrong("the results have %d bytes of text, at most %d are allowed", size, api.MaxReplayReportBytes)
	}
	return v.Err()
}

// wrongResult says what is wrong with a result. It returns an empty text if nothing is wrong.
func (s *Service) wrongResult(r *api.ReplayResult) string {
	v := s.check("result")
	v.Text("the name of the workflow", r.Workflow, s.limits.Name)
	v.Text("the key", r.Key, s.limits.Key)
	switch err := v.Err(); {
	case err != nil:
		return strings.TrimPrefix(err.Error(), "result: ")
	case !slices.Contains(api.ReplayOutcomes(), r.Outcome):
		return fmt.Sprintf("the outcome is %.40q, must be one of %s", r.Outcome, strings.Join(api.ReplayOutcomes(), ", "))
	case r.Event < 0:
		return "the event is negative"
	case r.Event > 0 && r.Outcome != api.ReplayMismatch && r.Outcome != api.ReplayError:
		return "only a result with outcome mismatch or error may name an event; the outcome is " + r.Outcome
	case len(r.Text) > api.MaxReplayText:
		return fmt.Sprintf("the text has %d bytes, at most %d are allowed", len(r.Text), api.MaxReplayText)
	case !utf8.ValidString(r.Text) || strings.ContainsRune(r.Text, 0):
		return "the text is not valid UTF-8, or has a zero byte"
	}
	return ""
}

// ReplayReports lists reports.
func (s *Service) ReplayReports(ctx context.Context, r api.ReplayReportListRequest) (page api.ReplayReportPage, err error) {
	q, err := s.selectReports(&r)
	if err != nil {
		return page, err
	}

	// A tenant has a bounded number of reports, so a filter that matches nothing reads a bounded
	// number of heads.
	for size := 0; ; {
		rows, err := s.store.ListReports(ctx, q)
		if err != nil {
			return api.ReplayReportPage{}, err
		}
		if len(rows) == 0 {
			return page, nil
		}

		for i := range rows {
			q.Before = rows[i].ID
			report, _ := readReportHead(&rows[i])
			if !matchesReport(&r, &report) {
				continue
			}
			n := len(page.Reports)
			if size += len(rows[i].Head); n == r.Limit || n > 0 && size > reportPageBytes {
				last := page.Reports[n-1].ID
				page.Cursor = hex.EncodeToString(last[:])
				return page, nil
			}
			page.Reports = append(page.Reports, report)
		}
	}
}

// selectReports checks a request and returns what to read.
func (s *Service) selectReports(r *api.ReplayReportListRequest) (q store.ReportQuery, err error) {
	v := s.check("replay reports")
	v.Tenant(r.Tenant)
	if r.Limit == 0 {
		r.Limit = defaultReports
	}
	if r.Limit < 0 || r.Limit > maxReports {
		v.Wrong("the limit is %d, must be between 1 and %d", r.Limit, maxReports)
	}
	if r.Workflow != "" {
		v.Text("the workflow", r.Workflow, s.limits.Name)
	}
	if r.Build != "" {
		v.Text("the build", r.Build, api.MaxReplayBuild)
	}
	if r.Outcome != "" && !slices.Contains(api.ReplayOutcomes(), r.Outcome) {
		v.Wrong("the outcome is %.40q, must be one of %s", r.Outcome, strings.Join(api.ReplayOutcomes(), ", "))
	}

	q = store.ReportQuery{Tenant: r.Tenant, Limit: maxReports, MaxBytes: reportPageBytes}
	if r.Workflow == "" && r.Build == "" && r.Outcome == "" {
		q.Limit = r.Limit + 1 // the additional one shows whether there is a next page
	}
	if r.Cursor != "" {
		raw, err := hex.DecodeString(r.Cursor)
		if err != nil || len(raw) != len(q.Before) {
			v.Wrong("the cursor does not come from an earlier page")
		}
		copy(q.Before[:], raw)
	}
	return q, v.Err()
}

// matchesReport reports whether a report meets the conditions of a request. A damaged report
// matches only a request without conditions.
func matchesReport(r *api.ReplayReportListRequest, got *api.ReplayReport) bool {
	if r.Build != "" && r.Build != got.Build {
		return false
	}
	if r.Workflow == "" {
		return r.Outcome == "" || r.Outcome == got.Outcome()
	}
	return slices.ContainsFunc(got.Workflows, func(w api.ReplayWorkflow) bool {
		return w.Workflow == r.Workflow && (r.Outcome == "" || w.Outcome() == r.Outcome)
	})
}

// ReplayReport returns one report with its results.
func (s *Service) ReplayReport(ctx context.Context, t api.ReplayReportTarget) (api.ReplayReport, error) {
	if err := s.checkTenant("replay report", t.Tenant); err != nil {
		return api.ReplayReport{}, err
	}
	row, err := s.store.LoadReport(ctx, t.Tenant, t.ID)
	if err != nil {
		return api.ReplayReport{}, err
	}
	if row == nil {
		return api.ReplayReport{}, fault.New(fault.NotFound, "there is no replay report %s", t.ID)
	}
	if row.Damaged != nil {
		return api.ReplayReport{}, fault.New(fault.Corrupt, "replay report %s: %s", t.ID, row.Damaged.Why)
	}

	report, _ := readReportHead(row)
	var results []reportResult
	if err := json.Unmarshal(row.Body, &results); err != nil || report.Unreadable {
		return api.ReplayReport{}, fault.New(fault.Corrupt, "replay report %s cannot be read", t.ID)
	}
	report.Results = make([]api.ReplayResult, len(results))
	for i, from := range results {
		report.Results[i] = api.ReplayResult{Workflow: from.Workflow, Key: from.Key, Outcome: from.Outcome, Event: from.Event, Text: from.Text}
		if from.Run == "" {
			continue
		}
		if report.Results[i].Run, err = model.ParseRunID(from.Run); err != nil {
			return api.ReplayReport{}, fault.New(fault.Corrupt, "replay report %s: %w", t.ID, err)
		}
	}
	return report, nil
}
