package cli

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// reports are the replay reports of the store.
func (p *prepared) reports() []api.ReplayReport {
	if p.empty {
		return nil
	}
	order := api.ReplayWorkflow{Workflow: "order", ReplayCounts: api.ReplayCounts{Fits: 210, Mismatches: 1, Errors: 1}}
	bill := api.ReplayWorkflow{Workflow: "bill", ReplayCounts: api.ReplayCounts{Absent: 3, Skipped: 2}}
	r := api.ReplayReport{
		ID: model.ReportID(runOf(7)), At: noon, By: "key k3v9x2m7q1ab", Build: "v1.4.2", Source: "https://ci.example/shop/jobs/1234", Workflows: []api.ReplayWorkflow{bill, order},
		Results: []api.ReplayResult{
			{Workflow: "order", Key: hashA, Run: runOf(2), Outcome: api.ReplayMismatch, Event: 3, Text: prose},
			{Workflow: "order", Key: "42", Outcome: api.ReplayError, Text: "the code does not end"},
			{Workflow: "order", Key: "43", Outcome: api.ReplayFits},
			{Workflow: "bill", Key: "1", Outcome: api.ReplayAbsent},
		},
	}
	r.Join(order.ReplayCounts)
	r.Join(bill.ReplayCounts)
	return []api.ReplayReport{r, {ID: model.ReportID(runOf(6)), At: noon, Unreadable: true}}
}

func (p *prepared) AddReplayReport(context.Context, api.ReplayReportRequest) (api.ReplayReportReply, error) {
	r := p.reports()[0]
	r.Results = nil
	return api.ReplayReportReply{Report: r}, nil
}

func (p *prepared) ReplayReports(context.Context, api.ReplayReportListRequest) (api.ReplayReportPage, error) {
	all := p.reports()
	for i := range all {
		all[i].Results = nil
	}
	return api.ReplayReportPage{Reports: all}, nil
}

func (p *prepared) ReplayReport(context.Context, api.ReplayReportTarget) (api.ReplayReport, error) {
	return p.reports()[0], nil
}
