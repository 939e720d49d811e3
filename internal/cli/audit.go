package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

// storeCaller is the caller of a command that opens the store itself: the user of the machine.
func storeCaller() *authn.Call {
	name := "unknown user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return &authn.Call{Identity: authn.Identity{Name: name, Admin: true}, Door: authn.DoorStore}
}

func newAudit(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Who has taken which administrative action",
		Long: `Who has taken which administrative action: changes of tenants, keys, settings, limits, breakers and queues, orders to executions, and attempts that were refused.

On a server the key of a tenant needs the role owner or auditor, and shows the actions that concern its tenant. An admin key shows all.`,
	}
	cmd.AddCommand(newAuditList(o))
	return cmd
}

// auditFlags select entries.
type auditFlags struct {
	since, until string
	limit        int
	all          bool
	r            api.AuditRequest
}

func newAuditList(o *options) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List administrative actions, the latest first", Args: cobra.NoArgs,
		Example: `  perdure audit list --since 24h
  perdure audit list --caller key_7f3a --action breaker -o json
  perdure audit list --all-tenants --outcome denied`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.request(o.tenant)
			if err != nil {
				return err
			}
			return o.withAudit(cmd.Context(), func(a api.Admin) error { return o.listAudit(cmd.Context(), a, r, f.limit) })
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "at or after this time (RFC 3339), or this long ago (1h)")
	flags.StringVar(&f.until, "until", "", "before this time, or this long ago")
	flags.StringVar(&f.r.Caller, "caller", "", "only actions of this caller")
	flags.StringVar(&f.r.Caller, "actor", "", "same as --caller")
	_ = flags.MarkHidden("actor") // the flag exists
	flags.StringVar(&f.r.Action, "action", "", "only this action (breaker:set), these actions (breaker) or this call (TripBreaker)")
	flags.StringVar(&f.r.Resource, "resource", "", "only actions on this, such as 'breaker smtp'")
	flags.StringVar(&f.r.Outcome, "outcome", "", "only actions with this outcome: done, failed, denied or unknown")
	flags.IntVar(&f.limit, "limit", 100, "the most entries to list")
	flags.BoolVar(&f.all, "all-tenants", false, "actions that concern any tenant, or the whole server")
	return cmd
}

// request returns the conditions.
func (f *auditFlags) request(tenant string) (api.AuditRequest, error) {
	r := f.r
	if !f.all {
		r.Tenant = tenant
	}
	for _, b := range [...]struct {
		flag, value string
		to          *model.Time
	}{{"--since", f.since, &r.From}, {"--until", f.until, &r.To}} {
		if b.value == "" {
			continue
		}
		at, err := moment(b.flag, b.value)
		if err != nil {
			return r, err
		}
		*b.to = model.TimeOf(at)
	}
	return r, nil
}

// withAudit opens the store, or connects to the server, in the tenant of the caller's key.
func (o *options) withAudit(ctx context.Context, do func(a api.Admin) error) error {
	return o.withAdmin(ctx, true, do)
}

// auditShape is an entry in JSON.
type auditShape struct {
	ID           string          `json:"id"`
	At           string          `json:"at"`
	Tenant       string          `json:"tenant,omitempty"`
	Caller       string          `json:"caller,omitempty"`
	CallerTenant string          `json:"caller_tenant,omitempty"`
	Admin        bool            `json:"admin,omitempty"`
	Door         string          `json:"door,omitempty"`
	From         string          `json:"from,omitempty"`
	Action       string          `json:"action,omitempty"`
	Call         string          `json:"call,omitempty"`
	Resource     string          `json:"resource,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	RequestID    string          `json:"request_id,omitempty"`
	Before       json.RawMessage `json:"before,omitempty"`
	After        json.RawMessage `json:"after,omitempty"`
	Outcome      string          `json:"outcome,omitempty"`
	Error        string          `json:"error,omitempty"`
	Unrecorded   int64           `json:"unrecorded,omitempty"`
	Unreadable   bool            `json:"unreadable,omitempty"`
}

func shapeAudit(e *api.AuditEntry) auditShape {
	return auditShape{
		e.ID.String(), when(e.At), e.Tenant, e.Caller, e.CallerTenant, e.Admin, e.Door, e.From, e.Action, e.Call, e.Resource, e.Reason, e.RequestID, e.Before, e.After,
		e.Outcome, e.Error, e.Unrecorded, e.Unreadable,
	}
}

// listAudit prints entries, page by page up to the limit.
func (o *options) listAudit(ctx context.Context, a api.Admin, r api.AuditRequest, most int) error {
	list, rows := []auditShape{}, [][]string{}
	for len(list) < most {
		r.Limit = min(most-len(list), 500)
		page, err := a.Audit(ctx, r)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			list = append(list, shapeAudit(e))
			rows = append(rows, []string{second(e.At), dash(e.Caller), dash(auditOutcome(e)), dash(e.Action), dash(e.Resource), dash(e.Door), dash(e.Reason), dash(auditChange(e))})
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			break
		}
	}
	if o.structured() {
		return o.json(list)
	}
	return o.table("TIME\tCALLER\tOUTCOME\tACTION\tRESOURCE\tDOOR?\tREASON?\tCHANGE?", rows)
}

func auditOutcome(e *api.AuditEntry) string {
	if e.Unreadable {
		return "unreadable"
	}
	return e.Outcome
}

// auditChange describes what an action has changed, or why it failed.
func auditChange(e *api.AuditEntry) string {
	switch {
	case e.Error != "":
		return e.Error
	case len(e.Before) > 0 && len(e.After) > 0:
		return fmt.Sprintf("%s -> %s", e.Before, e.After)
	case len(e.Before) > 0:
		return fmt.Sprintf("was %s", e.Before)
	}
	return string(e.After)
}
