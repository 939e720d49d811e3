package audit

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Bounds of one page.
const (
	defaultLimit = 100
	// MaxLimit is how many entries a page may have.
	MaxLimit = 1000
	// mostRead is how many entries one call reads, so that a filter that matches nothing does not
	// read the whole log in one call.
	mostRead = 5000
	pageRows = 500
	pageSize = 2 << 20
)

// List returns a page of entries. A caller of a tenant sees only entries of its tenant.
func List(ctx context.Context, st store.Audit, r api.AuditRequest) (page api.AuditPage, err error) {
	q, err := selection(ctx, &r)
	if err != nil {
		return page, err
	}

	for read := 0; read < mostRead; {
		rows, err := st.ListAudit(ctx, q)
		if err != nil {
			return api.AuditPage{}, err
		}
		if len(rows) == 0 {
			return page, nil
		}
		read += len(rows)

		for i := range rows {
			e := entryOf(&rows[i])
			if matches(&r, &e) {
				page.Entries = append(page.Entries, e)
			}
			q.Before = rows[i].ID
			if len(page.Entries) == r.Limit {
				page.Cursor = cursorOf(q.Before)
				return page, nil
			}
		}
	}
	page.Cursor = cursorOf(q.Before)
	return page, nil
}

// selection checks a request and returns what to read.
func selection(ctx context.Context, r *api.AuditRequest) (q store.AuditQuery, err error) {
	if r.Limit == 0 {
		r.Limit = defaultLimit
	}
	switch {
	case r.Limit < 0 || r.Limit > MaxLimit:
		return q, fault.New(fault.Invalid, "audit: the limit is %d, must be between 1 and %d", r.Limit, MaxLimit)
	case r.Tenant != "" && !model.ValidTenant(r.Tenant):
		return q, fault.New(fault.Invalid, "audit: %.80q is not the name of a tenant", r.Tenant)
	case r.From < 0 || r.To < 0 || r.From > model.MaxTime || r.To > model.MaxTime:
		return q, fault.New(fault.Invalid, "audit: the times must be between 1970 and 9999")
	case len(r.Caller) > MaxName || len(r.Action) > MaxName || len(r.Resource) > MaxResource || len(r.Outcome) > MaxName:
		return q, fault.New(fault.Invalid, "audit: a condition is longer than what entries have")
	}
	if c := authn.CallOf(ctx); c != nil && !c.Admin {
		if r.Tenant != "" && r.Tenant != c.Tenant {
			return q, fault.New(fault.Denied, "%s sees only the audit log of tenant %s", c.Name, c.Tenant)
		}
		r.Tenant = c.Tenant
	}

	q = store.AuditQuery{Tenant: r.Tenant, All: r.Tenant == "", Limit: pageRows, MaxBytes: pageSize, From: store.OldestID(r.From)}
	if r.To > 0 {
		q.Before = store.OldestID(r.To)
	}
	if r.Cursor == "" {
		return q, nil
	}
	before, err := readCursor(r.Cursor)
	if q.Before.IsZero() || before.Compare(q.Before) < 0 {
		q.Before = before
	}
	return q, err
}

// matches reports whether an entry meets the conditions that the store cannot check.
func matches(r *api.AuditRequest, e *api.AuditEntry) bool {
	if r.Caller == "" && r.Action == "" && r.Resource == "" && r.Outcome == "" {
		return true
	}
	group, _, _ := strings.Cut(e.Action, ":")
	return !e.Unreadable && (r.Caller == "" || r.Caller == e.Caller) && (r.Resource == "" || r.Resource == e.Resource) && (r.Outcome == "" || r.Outcome == e.Outcome) &&
		(r.Action == "" || r.Action == e.Action || r.Action == group || strings.EqualFold(r.Action, e.Call))
}

func cursorOf(id model.RunID) string { return hex.EncodeToString(id[:]) }

func readCursor(text string) (id model.RunID, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return id, fault.New(fault.Invalid, "audit: the cursor is not one of a page")
	}
	copy(id[:], raw)
	return id, nil
}
