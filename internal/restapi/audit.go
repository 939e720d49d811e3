package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

// addAudit adds the log of administrative actions.
func (s *Server) addAudit() {
	add(s, operation{id: "list-audit", method: http.MethodGet, path: "/audit", tag: adminTag, summary: "List administrative actions, the latest first"}, s.listAudit)
}

type auditInput struct {
	Tenant   string    `query:"tenant" doc:"Only actions that concern this tenant; callers of a tenant see only actions of their tenant"`
	From     time.Time `query:"from" doc:"At this time or later"`
	To       time.Time `query:"to" doc:"Before this time"`
	Caller   string    `query:"caller" doc:"The name of the caller"`
	Action   string    `query:"action" example:"breaker:set" doc:"An action, the word before its colon, or a call such as TripBreaker"`
	Resource string    `query:"resource" example:"breaker smtp"`
	Outcome  string    `query:"outcome" enum:"done,failed,denied,unknown"`
	Limit    int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor   string    `query:"cursor" doc:"The cursor of the previous page"`
}

// auditEntry is an administrative action, or an attempt at one.
type auditEntry struct {
	ID           string          `json:"id"`
	At           *time.Time      `json:"at"`
	Tenant       string          `json:"tenant,omitempty" doc:"The tenant that the action concerns; absent for the whole server"`
	Caller       string          `json:"caller,omitempty"`
	CallerTenant string          `json:"caller_tenant,omitempty" doc:"The tenant that the caller acted in"`
	Admin        bool            `json:"admin" doc:"Whether the caller had an admin key"`
	Door         string          `json:"door,omitempty" doc:"How the call came in: grpc, rest, flovyn, socket, store"`
	From         string          `json:"from,omitempty" doc:"The address of the caller"`
	Action       string          `json:"action,omitempty"`
	Call         string          `json:"call,omitempty"`
	Resource     string          `json:"resource,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	RequestID    string          `json:"request_id,omitempty"`
	Before       json.RawMessage `json:"before,omitempty" doc:"What the action has replaced"`
	After        json.RawMessage `json:"after,omitempty" doc:"What the action has set"`
	Outcome      string          `json:"outcome,omitempty" enum:"done,failed,denied,unknown"`
	Error        string          `json:"error,omitempty"`
	Unrecorded   int64           `json:"unrecorded,omitempty" doc:"How many equal refused attempts before this one have no entry of their own"`
	Unreadable   bool            `json:"unreadable,omitempty" doc:"The stored entry is damaged"`
}

func auditEntryOf(e *api.AuditEntry) auditEntry {
	return auditEntry{
		e.ID.String(), at(e.At), e.Tenant, e.Caller, e.CallerTenant, e.Admin, e.Door, e.From, e.Action, e.Call, e.Resource, e.Reason, e.RequestID, e.Before, e.After,
		e.Outcome, e.Error, e.Unrecorded, e.Unreadable,
	}
}

func (s *Server) listAudit(ctx context.Context, _ *authn.Identity, in *auditInput) (*reply[page[auditEntry]], error) {
	r := api.AuditRequest{
		Tenant: in.Tenant, Caller: in.Caller, Action: in.Action, Resource: in.Resource, Outcome: in.Outcome, Limit: in.Limit, Cursor: in.Cursor,
	}
	if !in.From.IsZero() {
		r.From = model.TimeOf(in.From)
	}
	if !in.To.IsZero() {
		r.To = model.TimeOf(in.To)
	}
	got, err := s.config.Admin.Audit(ctx, r)
	if err != nil {
		return nil, err
	}
	return ok(page[auditEntry]{each(got.Entries, auditEntryOf), got.Cursor})
}
