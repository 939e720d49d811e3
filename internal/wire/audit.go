package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// AuditRequest builds the message that selects administrative actions.
func AuditRequest(r api.AuditRequest) *pb.AuditRequest {
	return &pb.AuditRequest{
		Tenant: r.Tenant, From: int64(r.From), To: int64(r.To), Caller: text(r.Caller), Action: text(r.Action), Resource: text(r.Resource), Outcome: text(r.Outcome),
		Limit: int64(r.Limit), Cursor: r.Cursor,
	}
}

// ReadAuditRequest reads a selection of administrative actions.
func ReadAuditRequest(_ string, m *pb.AuditRequest) (api.AuditRequest, error) {
	return api.AuditRequest{
		Tenant: m.GetTenant(), From: model.Time(m.GetFrom()), To: model.Time(m.GetTo()), Caller: m.GetCaller(), Action: m.GetAction(), Resource: m.GetResource(),
		Outcome: m.GetOutcome(), Limit: int(m.GetLimit()), Cursor: m.GetCursor(),
	}, nil
}

// AuditPage builds the message for a page of administrative actions.
func AuditPage(p api.AuditPage) *pb.AuditPage {
	return &pb.AuditPage{Cursor: p.Cursor, Entries: each(p.Entries, func(e api.AuditEntry) *pb.AuditEntry {
		return &pb.AuditEntry{
			Id: Run(e.ID), At: int64(e.At), Tenant: e.Tenant, Caller: text(e.Caller), CallerTenant: text(e.CallerTenant), Admin: e.Admin, Door: e.Door, From: text(e.From),
			Action: e.Action, Call: e.Call, Resource: text(e.Resource), Reason: text(e.Reason), RequestId: text(e.RequestID), Before: e.Before, After: e.After,
			Outcome: e.Outcome, Error: text(e.Error), Unrecorded: e.Unrecorded, Unreadable: e.Unreadable,
		}
	})}
}

// ReadAuditPage reads a page of administrative actions.
func ReadAuditPage(_ string, m *pb.AuditPage) (api.AuditPage, error) {
	entries, err := readEach("", m.GetEntries(), func(_ string, e *pb.AuditEntry) (api.AuditEntry, error) {
		id, err := ReadRun(e.GetId())
		return api.AuditEntry{
			ID: id, At: model.Time(e.GetAt()), Tenant: e.GetTenant(), Caller: e.GetCaller(), CallerTenant: e.GetCallerTenant(), Admin: e.GetAdmin(), Door: e.GetDoor(),
			From: e.GetFrom(), Action: e.GetAction(), Call: e.GetCall(), Resource: e.GetResource(), Reason: e.GetReason(), RequestID: e.GetRequestId(),
			Before: e.GetBefore(), After: e.GetAfter(), Outcome: e.GetOutcome(), Error: e.GetError(), Unrecorded: e.GetUnrecorded(), Unreadable: e.GetUnreadable(),
		}, err
	})
	return api.AuditPage{Entries: entries, Cursor: m.GetCursor()}, err
}
