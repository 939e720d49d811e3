package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// spoiled is a store that damages the reports that it returns. The function change does the damage.
type spoiled struct {
	*memory.Store

	change func(*store.ReportRow)
	lists  []store.ReportQuery
}

func (s *spoiled) spoil(r *store.ReportRow) {
	if r != nil && s.change != nil {
		s.change(r)
	}
}

func (s *spoiled) AddReport(ctx context.Context, row store.ReportRow, keep store.ReportBounds) (store.ReportRow, error) {
	got, err := s.Store.AddReport(ctx, row, keep)
	s.spoil(&got)
	return got, err
}

func (s *spoiled) LoadReport(ctx context.Context, tenant string, id model.ReportID) (*store.ReportRow, error) {
	got, err := s.Store.LoadReport(ctx, tenant, id)
	s.spoil(got)
	return got, err
}

func (s *spoiled) ListReports(ctx context.Context, q store.ReportQuery) ([]store.ReportRow, error) {
	s.lists = append(s.lists, q)
	rows, err := s.Store.ListReports(ctx, q)
	for i := range rows {
		s.spoil(&rows[i])
	}
	return rows, err
}

// reporters is a service that stores reports.
type reporters struct {
	t   *testing.T
	st  *spoiled
	svc *service.Service
}

func newReporters(t *testing.T) *reporters {
	t.Helper()
	st := &spoiled{Store: memory.New(memory.Options{Shards: shards})}
	return &reporters{t, st, service.New(engine.New(engine.Config{Store: st}), st, service.Limits{})}
}

// reportOf returns a report with the given results. Each is a workflow and an outcome, such as
// "order fits".
func reportOf(build string, results ...string) api.ReplayReportRequest {
	r := api.ReplayReportRequest{Tenant: "default", Build: build}
	for i, text := range results {
		workflow, outcome, _ := strings.Cut(text, " ")
		r.Results = append(r.Results, api.ReplayResult{Workflow: workflow, Key: fmt.Sprint(i), Outcome: outcome})
	}
	return r
}

func (f *reporters) add(r api.ReplayReportRequest) api.ReplayReportReply {
	f.t.Helper()
	got, err := f.svc.AddReplayReport(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

// builds returns the builds of the reports that a request selects, read in pages.
func (f *reporters) builds(r api.ReplayReportListRequest) (builds []string, pages int) {
	f.t.Helper()
	r.Tenant = "default"
	for {
		pages++
		page, err := f.svc.ReplayReports(f.t.Context(), r)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, one := range page.Reports {
			if one.Results != nil {
				f.t.Errorf("a list has results: %+v", one)
			}
			builds = append(builds, one.Build)
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return builds, pages
		}
	}
}

// A report is stored as it was sent, together with its caller, its time and the sums of its
// results.
func TestReplayReportIsStoredWhole(t *testing.T) {
	t.Parallel()
	f := newReporters(t)
	r := reportOf("v2", "order fits", "bill absent", "order mismatch", "order error", "bill skipped")
	r.Source, r.RequestID = "https://ci.example/7", "job-7"
	r.Results[2].Run, r.Results[2].Event, r.Results[2].Text = model.RunID{15: 9}, 3, "line\n\t\"two\" <&> \u00e9"
	added, err := f.svc.AddReplayReport(authn.WithCall(t.Context(), authn.Call{Identity: authn.Identity{Name: "key ci"}}), r)
	if err != nil {
		t.Fatal(err)
	}

	want := api.ReplayReport{
		ID: added.Report.ID, At: added.Report.At, By: "key ci", Build: "v2", Source: r.Source,
		ReplayCounts: api.ReplayCounts{Fits: 1, Mismatches: 1, Errors: 1, Absent: 1, Skipped: 1},
		Workflows: []api.ReplayWorkflow{
			{Workflow: "bill", ReplayCounts: api.ReplayCounts{Absent: 1, Skipped: 1}},
			{Workflow: "order", ReplayCounts: api.ReplayCounts{Fits: 1, Mismatches: 1, Errors: 1}},
		},
	}
	if diff := cmp.Diff(api.ReplayReportReply{Report: want}, added); diff != "" || want.At == 0 || want.ID.IsZero() {
		t.Errorf("added %s", diff)
	}
	page, err := f.svc.ReplayReports(t.Context(), api.ReplayReportListRequest{Tenant: "default"})
	if diff := cmp.Diff(api.ReplayReportPage{Reports: []api.ReplayReport{want}}, page); diff != "" || err != nil {
		t.Errorf("listed %s, %v", diff, err)
	}
	want.Results = r.Results
	whole, err := f.svc.ReplayReport(t.Context(), api.ReplayReportTarget{Tenant: "default", ID: want.ID})
	if diff := cmp.Diff(want, whole); diff != "" || err != nil {
		t.Errorf("read %s, %v", diff, err)
	}
	_, err = f.svc.ReplayReport(t.Context(), api.ReplayReportTarget{Tenant: "acme", ID: want.ID})
	wantKind(t, "another tenant", err, fault.NotFound)
}

// A repeated request finds the report that it has added. Any other report with the same request id
// is a conflict, and the service does not store it. The service stores every report without a
// request id.
func TestReplayReportOfARepeatedRequest(t *testing.T) {
	t.Parallel()
	f := newReporters(t)
	r := reportOf("v2", "order fits", "order mismatch")
	r.Source, r.RequestID = "ci", "job-7"
	first := f.add(r)
	if again := f.add(r); !again.Existing || first.Existing || !cmp.Equal(again.Report, first.Report) {
		t.Errorf("first %+v, then %+v", first, again)
	}

	for what, change := range map[string]func(*api.ReplayReportRequest){
		"build":    func(r *api.ReplayReportRequest) { r.Build = "v3" },
		"source":   func(r *api.ReplayReportRequest) { r.Source = "" },
		"more":     func(r *api.ReplayReportRequest) { r.Results = append(r.Results, r.Results[0]) },
		"order":    func(r *api.ReplayReportRequest) { slices.Reverse(r.Results) },
		"workflow": func(r *api.ReplayReportRequest) { r.Results[0].Workflow = "bill" },
		"key":      func(r *api.ReplayReportRequest) { r.Results[0].Key = "x" },
		"run":      func(r *api.ReplayReportRequest) { r.Results[0].Run = model.RunID{1} },
		"outcome":  func(r *api.ReplayReportRequest) { r.Results[0].Outcome = api.ReplayError },
		"event":    func(r *api.ReplayReportRequest) { r.Results[1].Event = 4 },
		"text":     func(r *api.ReplayReportRequest) { r.Results[1].Text = "other" },
	} {
		other := r
		other.Results = slices.Clone(r.Results)
		change(&other)
		_, err := f.svc.AddReplayReport(t.Context(), other)
		wantKind(t, "another "+what, err, fault.Conflict)
	}

	other := r
	other.Tenant, other.Build = "acme", "v3"
	if got := f.add(other); got.Existing {
		t.Error("the request id of another tenant counts")
	}
	r.RequestID = ""
	for range 2 {
		if f.add(r).Existing {
			t.Error("reports without a request id are one report")
		}
	}
	if builds, _ := f.builds(api.ReplayReportListRequest{}); len(builds) != 3 {
		t.Errorf("%d reports are stored, want 3", len(builds))
	}
}

// The service refuses a report that makes no sense or is too large, and says what is wrong. It
// stores the largest reports that are allowed.
func TestReplayReportRefusals(t *testing.T) {
	t.Parallel()
	f := newReporters(t)
	fill := func(n, size int) func(*api.ReplayReportRequest) {
		return func(r *api.ReplayReportRequest) {
			r.Results = slices.Repeat([]api.ReplayResult{{Workflow: "w", Key: "k", Outcome: api.ReplayError, Text: strings.Repeat("x", size)}}, n)
		}
	}
	one := func(change func(*api.ReplayResult)) func(*api.ReplayReportRequest) {
		return func(r *api.ReplayReportRequest) { change(&r.Results[1]) }
	}
	for _, c := range []struct {
		change func(*api.ReplayReportRequest)
		says   string // "" if it is stored
	}{
		{func(r *api.ReplayReportRequest) { r.Tenant = "" }, "the tenant is empty"},
		{func(r *api.ReplayReportRequest) { r.Build = "" }, "the build is empty"},
		{func(r *api.ReplayReportRequest) { r.Build = strings.Repeat("b", api.MaxReplayBuild+1) }, "the build has 201 bytes, at most 200"},
		{func(r *api.ReplayReportRequest) { r.Build = strings.Repeat("b", api.MaxReplayBuild) }, ""},
		{func(r *api.ReplayReportRequest) { r.Source = strings.Repeat("s", api.MaxReplaySource+1) }, "the source has 1025 bytes"},
		{func(r *api.ReplayReportRequest) { r.Source = "a\x1bb" }, "the source contains the control character"},
		{func(r *api.ReplayReportRequest) { r.RequestID = strings.Repeat("r", 201) }, "the request id has 201 bytes"},
		{func(r *api.ReplayReportRequest) { r.Results = nil }, "there are no results"},
		{fill(api.MaxReplayResults+1, 0), "2001 results, at most 2000"},
		{fill(api.MaxReplayResults, 0), ""},
		{fill(1, api.MaxReplayText+1), "result 0: the text has 4097 bytes, at most 4096"},
		{fill(1024, 1022), ""}, // 1 MiB
		{fill(1024, 1023), "the results have 1049600 bytes of text, at most 1048576"},
		{one(func(r *api.ReplayResult) { r.Workflow = "" }), "result 1: the name of the workflow is empty"},
		{one(func(r *api.ReplayResult) { r.Workflow = strings.Repeat("w", 201) }), "result 1: the name of the workflow has 201 bytes"},
		{one(func(r *api.ReplayResult) { r.Key = "" }), "result 1: the key is empty"},
		{one(func(r *api.ReplayResult) { r.Key = "a\xff" }), "result 1: the key is not valid UTF-8"},
		{one(func(r *api.ReplayResult) { r.Outcome = "" }), `result 1: the outcome is "", must be one of fits, mismatch`},
		{one(func(r *api.ReplayResult) { r.Outcome = api.ReplayUnreadable }), `result 1: the outcome is "unreadable"`},
		{one(func(r *api.ReplayResult) { r.Event = -1 }), "result 1: the event is negative"},
		{one(func(r *api.ReplayResult) { r.Event = 1 }), "may name an event; the outcome is fits"},
		{one(func(r *api.ReplayResult) { r.Event, r.Outcome = 1, api.ReplayError }), ""},
		{one(func(r *api.ReplayResult) { r.Text = "\xff" }), "result 1: the text is not valid UTF-8"},
		{one(func(r *api.ReplayResult) { r.Text = "a\x00" }), "has a zero byte"},
	} {
		r := reportOf("v2", "order fits", "order fits")
		c.change(&r)
		_, err := f.svc.AddReplayReport(t.Context(), r)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("refused: %v", err)
		case c.says != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%v, want one that says %q", err, c.says)
		}
	}

	_, err := newShelf(t).svc.AddReplayReport(t.Context(), reportOf("v2", "order fits"))
	wantKind(t, "a store that is open for reading", err, fault.Denied)
}

// Lists select reports by workflow, build and outcome, newest first. Each report is on one page,
// and the last page has no cursor.
func TestReplayReportLists(t *testing.T) {
	t.Parallel()
	f := newReporters(t)
	f.add(reportOf("v1", "order fits", "bill mismatch"))
	f.add(reportOf("v2", "order mismatch", "order error", "order fits"))
	f.add(reportOf("v3", "bill error", "bill fits"))
	f.add(reportOf("v4", "bill absent", "bill skipped"))
	f.add(reportOf("v5", "bill skipped"))

	type list = api.ReplayReportListRequest
	for _, c := range []struct {
		r    list
		want string
	}{
		{list{}, "v5 v4 v3 v2 v1"},
		{list{Build: "v3"}, "v3"},
		{list{Build: "v"}, ""},
		{list{Workflow: "order"}, "v2 v1"},
		{list{Workflow: "orde"}, ""},
		{list{Outcome: api.ReplayMismatch}, "v2 v1"},
		{list{Outcome: api.ReplayError}, "v3"},
		{list{Outcome: api.ReplayFits}, ""},
		{list{Outcome: api.ReplayAbsent}, "v4"},
		{list{Outcome: api.ReplaySkipped}, "v5"},
		{list{Workflow: "order", Outcome: api.ReplayFits}, "v1"},
		{list{Workflow: "bill", Outcome: api.ReplayFits}, ""},
		{list{Workflow: "bill", Outcome: api.ReplayMismatch, Build: "v2"}, ""},
		{list{Workflow: "bill", Outcome: api.ReplayMismatch, Build: "v1"}, "v1"},
	} {
		for limit := range 4 {
			c.r.Limit = limit
			got, pages := f.builds(c.r)
			want := strings.Fields(c.want)
			if !slices.Equal(got, want) {
				t.Errorf("%+v lists %v, want %v", c.r, got, want)
			}
			if most := max(1, len(want)); limit > 0 && pages != (most+limit-1)/limit {
				t.Errorf("%+v lists %d reports in %d pages", c.r, len(want), pages)
			}
		}
	}

	for what, r := range map[string]list{
		"the limit is -1":               {Limit: -1},
		"the limit is 1001":             {Limit: 1001},
		"the outcome is \"good\"":       {Outcome: "good"},
		"the cursor does not come from": {Cursor: "x"},
		"not come from an earlier page": {Cursor: "00"},
		"the workflow has":              {Workflow: strings.Repeat("w", 201)},
		"the build contains":            {Build: "a\n"},
	} {
		r.Tenant = "default"
		_, err := f.svc.ReplayReports(t.Context(), r)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v, want one that says %q", r, err, what)
		}
	}
}

// A page without conditions reads no more than it needs, and a page of large heads is bounded.
func TestReplayReportPagesAreBounded(t *testing.T) {
	t.Parallel()
	f := newReporters(t)
	r := reportOf("v1")
	for i := range api.MaxReplayResults {
		name := fmt.Sprintf("%0190d", i) // the head has the names
		r.Results = append(r.Results, api.ReplayResult{Workflow: name, Key: "k", Outcome: api.ReplayFits})
	}
	for range 8 {
		f.add(r)
	}
	if _, err := f.svc.ReplayReports(t.Context(), api.ReplayReportListRequest{Tenant: "default", Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if q := f.st.lists[0]; q.Limit != 2 {
		t.Errorf("a page of one report reads %d", q.Limit)
	}

	page, err := f.svc.ReplayReports(t.Context(), api.ReplayReportListRequest{Tenant: "default"})
	if n := len(page.Reports); err != nil || n == 0 || n >= 8 || page.Cursor == "" {
		t.Errorf("a page has %d large reports, cursor %q, %v", n, page.Cursor, err)
	}
	if got, _ := f.builds(api.ReplayReportListRequest{}); len(got) != 8 {
		t.Errorf("all pages have %d reports, want 8", len(got))
	}
}

// A list without conditions shows a damaged report with its id and time. A list with conditions
// leaves it out. A caller that reads the report, or adds it once more, gets an error that says that
// the report is damaged.
func TestDamagedReplayReports(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*store.ReportRow){
		"damaged": func(r *store.ReportRow) {
			r.Head, r.Body, r.Damaged = nil, nil, &model.Damaged{Why: "a bit has changed"}
		},
		"no JSON": func(r *store.ReportRow) { r.Head = []byte("{") },
	} {
		f := newReporters(t)
		r := reportOf("v1", "order fits")
		r.RequestID = "job"
		added := f.add(r).Report
		f.st.change = change

		page, err := f.svc.ReplayReports(t.Context(), api.ReplayReportListRequest{Tenant: "default"})
		if err != nil || len(page.Reports) != 1 {
			t.Fatalf("%s: %+v, %v", what, page, err)
		}
		got := page.Reports[0]
		if late := added.At.Sub(got.At).Abs(); !got.Unreadable || got.ID != added.ID || got.Build != "" || got.Outcome() != api.ReplayUnreadable || late.Seconds() > 1 {
			t.Errorf("%s: %+v, added %+v", what, got, added)
		}
		for _, q := range []api.ReplayReportListRequest{{Build: "v1"}, {Workflow: "order"}, {Outcome: api.ReplayFits}, {Outcome: api.ReplaySkipped}} {
			if builds, _ := f.builds(q); len(builds) != 0 {
				t.Errorf("%s: %+v lists %v", what, q, builds)
			}
		}
		_, err = f.svc.ReplayReport(t.Context(), api.ReplayReportTarget{Tenant: "default", ID: added.ID})
		wantKind(t, what+": read", err, fault.Corrupt)
		_, err = f.svc.AddReplayReport(t.Context(), r)
		wantKind(t, what+": add", err, fault.Corrupt)
	}

	for what, body := range map[string]string{"no JSON": "[", "no run": `[{"workflow":"order","key":"1","run":"x","outcome":"fits"}]`} {
		f := newReporters(t)
		added := f.add(reportOf("v1", "order fits")).Report
		f.st.change = func(r *store.ReportRow) { r.Body = []byte(body) }
		_, err := f.svc.ReplayReport(t.Context(), api.ReplayReportTarget{Tenant: "default", ID: added.ID})
		wantKind(t, what, err, fault.Corrupt)
	}
}
