package remote

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/wire"
)

// AddReplayReport stores a replay report.
func (b *Backend) AddReplayReport(ctx context.Context, r api.ReplayReportRequest) (api.ReplayReportReply, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.ReplayReportReply{}, err
	}
	r.RequestID = requestID(r.RequestID)
	return ask(b.client.AddReplayReport, wire.ReadAddReplayReportReply).do(ctx, b, wire.AddReplayReportRequest(r))
}

// ReplayReports lists replay reports.
func (b *Backend) ReplayReports(ctx context.Context, r api.ReplayReportListRequest) (api.ReplayReportPage, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.ReplayReportPage{}, err
	}
	return ask(b.client.ReplayReports, wire.ReadReplayReportPage).do(ctx, b, wire.ReplayReportsRequest(r))
}

// ReplayReport returns a replay report with its results.
func (b *Backend) ReplayReport(ctx context.Context, t api.ReplayReportTarget) (api.ReplayReport, error) {
	if err := b.own(t.Tenant); err != nil {
		return api.ReplayReport{}, err
	}
	return ask(b.client.ReplayReport, wire.ReadReplayReport).do(ctx, b, wire.ReplayReportRequest(t))
}
