package store

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Audit is the log of administrative actions. Its entries belong to no shard, and any process may
// write them. A sweep removes old entries; see [SweepRequest.AuditBefore].
type Audit interface {
	// PutAudit stores entries in one transaction. An entry replaces a stored entry with the same
	// id. If the stored entry is final, it stays as it is. So if a caller does not know the outcome
	// of a call, it can repeat the call.
	PutAudit(ctx context.Context, rows []AuditRow) error
	// ListAudit returns entries, newest id first. It returns at most Limit entries and about
	// MaxBytes of bodies, but at least one entry if an entry matches. An entry that cannot be read
	// has Damaged set.
	ListAudit(ctx context.Context, q AuditQuery) ([]AuditRow, error)
}

// AuditRow is an entry of the log.
type AuditRow struct {
	// ID is a UUIDv7. It orders the entries and tells the sweep how old they are.
	ID model.RunID
	// Tenant is the tenant that the action concerns; empty for an action that concerns the whole
	// server.
	Tenant string
	// Final says that the entry has the outcome of the action.
	Final bool
	Body  []byte
	// Damaged is set if the body cannot be read. In that case the body is empty.
	Damaged *model.Damaged
}

// AuditQuery selects entries.
type AuditQuery struct {
	// Tenant is the tenant of the entries. All selects the entries of all tenants and of the whole
	// server.
	Tenant string
	All    bool
	// From is the lowest id of the range, and Before is the first id after the range. A zero Before
	// means no bound.
	From, Before model.RunID
	Limit        int
	MaxBytes     int
}

// End returns the first id after the range.
func (q *AuditQuery) End() model.RunID {
	if !q.Before.IsZero() {
		return q.Before
	}
	var last model.RunID
	for i := range last {
		last[i] = 0xff // greater than every UUIDv7
	}
	return last
}
