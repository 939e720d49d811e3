package store

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Audit is the log of administrative actions. Its entries belong to no shard, and any process may
// write them. A sweep removes old ones; see [SweepRequest.AuditBefore].
type Audit interface {
	// PutAudit stores entries in one transaction. An entry replaces a stored entry with the same
	// id, unless the stored one is final: a final entry never changes. So a caller can repeat a
	// call of unknown outcome.
	PutAudit(ctx context.Context, rows []AuditRow) error
	// ListAudit returns entries, newest id first. It returns at most Limit entries and about
	// MaxBytes of bodies, but at least one if there is one. An entry that cannot be read has
	// Damaged set.
	ListAudit(ctx context.Context, q AuditQuery) ([]AuditRow, error)
}

// AuditRow is an entry of the log.
type AuditRow struct {
	// ID is a UUIDv7. It orders the entries and tells the sweep how old they are.
	ID model.RunID
	// Tenant that the action concerns; empty for an action that concerns the whole server.
	Tenant string
	// Final entries have an outcome.
	Final bool
	Body  []byte
	// Damaged is set if the body cannot be read. The body is then empty.
	Damaged *model.Damaged
}

// AuditQuery selects entries.
type AuditQuery struct {
	// Tenant of the entries. All selects the entries of all tenants and of the whole server.
	Tenant string
	All    bool
	// From is the least id, Before the first id after the range. A zero Before means no bound.
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
