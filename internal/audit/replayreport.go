package audit

import (
	"context"

	"github.com/perdure/perdure/internal/api"
)

// replayValue is the part of a replay report that an entry shows.
type replayValue struct {
	ID         string `json:"id"`
	Outcome    string `json:"outcome"`
	Fits       int64  `json:"fits,omitempty"`
	Mismatches int64  `json:"mismatches,omitempty"`
	Errors     int64  `json:"errors,omitempty"`
	Absent     int64  `json:"absent,omitempty"`
	Skipped    int64  `json:"skipped,omitempty"`
	Source     string `json:"source,omitempty"`
}

// AddReplayReport stores a replay report. People use the report to decide about a deploy, so the
// log says which caller has added it.
func (b *backend) AddReplayReport(ctx context.Context, r api.ReplayReportRequest) (reply api.ReplayReportReply, err error) {
	e := api.AuditEntry{Tenant: r.Tenant, Call: "AddReplayReport", Resource: "replay report of build " + r.Build, RequestID: r.RequestID}
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if reply, err = b.Backend.AddReplayReport(ctx, r); err != nil {
			return nil, err
		}
		p := &reply.Report
		return replayValue{p.ID.String(), p.Outcome(), p.Fits, p.Mismatches, p.Errors, p.Absent, p.Skipped, p.Source}, nil
	})
	return reply, err
}
