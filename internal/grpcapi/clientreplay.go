package grpcapi

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/wire"
)

// AddReplayReport stores a replay report.
func (c *client) AddReplayReport(ctx context.Context, m *pb.AddReplayReportRequest) (*pb.AddReplayReportReply, error) {
	return ask(ctx, m, wire.ReadAddReplayReportRequest, c.backend.AddReplayReport, wire.AddReplayReportReply)
}

// ReplayReports lists replay reports.
func (c *client) ReplayReports(ctx context.Context, m *pb.ReplayReportsRequest) (*pb.ReplayReportPage, error) {
	return ask(ctx, m, wire.ReadReplayReportsRequest, c.backend.ReplayReports, wire.ReplayReportPage)
}

// ReplayReport returns a replay report with its results.
func (c *client) ReplayReport(ctx context.Context, m *pb.ReplayReportRequest) (*pb.ReplayReportInfo, error) {
	return ask(ctx, m, wire.ReadReplayReportRequest, c.backend.ReplayReport, wire.ReplayReport)
}
