package api

import "github.com/perdure/perdure/internal/model"

// Outcomes of audited actions.
const (
	// AuditDone means that the action succeeded.
	AuditDone = "done"
	// AuditFailed means that the action returned an error. It may still have changed something, for
	// example if only its answer was lost.
	AuditFailed = "failed"
	// AuditDenied means that the caller may not take the action. Nothing was changed.
	AuditDenied = "denied"
	// AuditUnknown means that the action started but has no recorded outcome: it still runs, or the
	// process died.
	AuditUnknown = "unknown"
)

// AuditEntry is one administrative action, or an attempt at one.
type AuditEntry struct {
	ID model.RunID
	At model.Time
	// Tenant is the tenant that the action concerns; empty for an action that concerns the whole
	// server.
	Tenant string
	// Caller is the name of the caller, and CallerTenant the tenant that it acted in. Admin says
	// that it was an admin, for example because it had an admin key.
	Caller, CallerTenant string
	Admin                bool
	// Door is the interface through which the call came in. From is the address of the caller, if
	// there is one.
	Door, From string
	// Action is a name from the table of actions, such as "breaker:set". Call is the operation,
	// such as "TripBreaker", and Resource what it acts on, such as "breaker smtp".
	Action, Call, Resource string
	// Reason and RequestID come from the request.
	Reason, RequestID string
	// Before and After are the replaced and the new value, as JSON. They are empty if there is
	// nothing to show.
	Before, After []byte
	Outcome       string
	// Error is the kind and the text of the error.
	Error string
	// Unrecorded counts earlier equal attempts of the same caller that have no entry. The server
	// records refused attempts only up to a certain rate.
	Unrecorded int64
	// Unreadable is set if the stored entry is damaged. In that case only ID, At and Tenant are
	// known.
	Unreadable bool
}

// AuditRequest selects entries. All conditions must hold; an empty field sets no condition.
type AuditRequest struct {
	// Tenant is the tenant that the actions concern. Callers of a tenant see only actions of their
	// own tenant.
	Tenant string
	// From is the first instant of the range, and To is the first instant after it.
	From, To model.Time
	Caller   string
	// Action is an action such as "breaker:set", an operation such as "TripBreaker", or the part of
	// actions before the colon, such as "breaker".
	Action   string
	Resource string
	Outcome  string
	Limit    int
	Cursor   string // opaque, from the previous page
}

// AuditPage is one page of entries, newest first. A page may be empty although more pages follow.
type AuditPage struct {
	Entries []AuditEntry
	Cursor  string // empty on the last page
}
