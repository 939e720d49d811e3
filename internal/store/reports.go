package store

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Reports are the replay reports of tenants: what a CI job or a worker found when it replayed
// histories with a build. They belong to no shard, and any process may add them. A sweep removes
// old reports; see [SweepRequest.ReportsBefore].
type Reports interface {
	// AddReport stores a report, unless the tenant has a report of the same request. It returns the
	// report that the tenant has for the request, without its body. So if a caller does not know
	// the outcome of a call, it can repeat the call.
	//
	// The same transaction removes the oldest reports of the tenant until the bounds hold. It never
	// removes the report that it adds. On some stores, calls that run at the same time do not see
	// each other's reports. So the tenant may have a few reports too many until the next call.
	AddReport(ctx context.Context, row ReportRow, keep ReportBounds) (ReportRow, error)
	// LoadReport returns a report of the tenant with its body, or nil if there is none.
	LoadReport(ctx context.Context, tenant string, id model.ReportID) (*ReportRow, error)
	// ListReports returns reports without their bodies, newest id first. It returns at most Limit
	// reports and about MaxBytes of heads, but at least one report if there is any. A report whose
	// head cannot be read has Damaged set.
	ListReports(ctx context.Context, q ReportQuery) ([]ReportRow, error)
}

// ReportRow is a replay report.
type ReportRow struct {
	// ID is a UUIDv7. It orders the reports and tells the sweep how old they are.
	ID     model.ReportID
	Tenant string
	// Request is the id of the request that added the report. A tenant has at most one report for
	// each request.
	Request string
	// Head is the part that lists show, and Body is everything else.
	Head, Body []byte
	// Damaged is set if the head or the body cannot be read. In that case both are empty.
	Damaged *model.Damaged
}

// Size returns the bytes of a report that count against ReportBounds.
func (r *ReportRow) Size() int64 { return int64(len(r.Head) + len(r.Body)) }

// ReportBounds bound the reports of one tenant.
type ReportBounds struct {
	Rows  int
	Bytes int64 // bytes of heads and bodies
}

// ReportQuery selects the reports of a tenant.
type ReportQuery struct {
	Tenant string
	// Before is the first id after the range. A zero Before means no bound.
	Before   model.ReportID
	Limit    int
	MaxBytes int
}

// End returns the first id after the range.
func (q *ReportQuery) End() model.ReportID {
	if !q.Before.IsZero() {
		return q.Before
	}
	var last model.ReportID
	for i := range last {
		last[i] = 0xff // greater than every UUIDv7
	}
	return last
}
