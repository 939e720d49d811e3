package audit

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Bounds of an entry, in bytes.
const (
	// MaxName bounds the name, the tenant and the address of the caller, and the request id.
	MaxName = 256
	// MaxResource bounds the name of the thing that an action acts on.
	MaxResource = 600
	// MaxText bounds the reason and the error.
	MaxText = 1000
	// MaxValue bounds the old and the new value.
	MaxValue = 4000
)

// stored is an entry as the store has it.
type stored struct {
	At           int64           `json:"at"`
	Caller       string          `json:"caller"`
	CallerTenant string          `json:"caller_tenant,omitempty"`
	Admin        bool            `json:"admin,omitempty"`
	Door         string          `json:"door"`
	From         string          `json:"from,omitempty"`
	Action       string          `json:"action"`
	Call         string          `json:"call,omitempty"`
	Resource     string          `json:"resource,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	RequestID    string          `json:"request_id,omitempty"`
	Before       json.RawMessage `json:"before,omitempty"`
	After        json.RawMessage `json:"after,omitempty"`
	Outcome      string          `json:"outcome"`
	Error        string          `json:"error,omitempty"`
	Unrecorded   int64           `json:"unrecorded,omitempty"`
}

// rowOf encodes an entry. It bounds every text that a caller chooses, except the old and the new
// value, which the function value has bounded.
func rowOf(e *api.AuditEntry) (store.AuditRow, error) {
	body, err := json.Marshal(&stored{
		At: int64(e.At), Caller: cut(e.Caller, MaxName), CallerTenant: cut(e.CallerTenant, MaxName), Admin: e.Admin, Door: e.Door, From: cut(e.From, MaxName),
		Action: e.Action, Call: e.Call, Resource: cut(e.Resource, MaxResource), Reason: cut(e.Reason, MaxText), RequestID: cut(e.RequestID, MaxName),
		Before: e.Before, After: e.After, Outcome: e.Outcome, Error: cut(e.Error, MaxText), Unrecorded: e.Unrecorded,
	})
	return store.AuditRow{ID: e.ID, Tenant: e.Tenant, Final: e.Outcome != api.AuditUnknown, Body: body}, err
}

// entryOf decodes an entry. An entry that cannot be read still shows its time.
func entryOf(r *store.AuditRow) api.AuditEntry {
	var s stored
	e := api.AuditEntry{ID: r.ID, Tenant: r.Tenant, At: timeOf(r.ID)}
	if r.Damaged != nil || json.Unmarshal(r.Body, &s) != nil {
		e.Unreadable = true
		return e
	}
	e.At, e.Caller, e.CallerTenant, e.Admin, e.Door, e.From = model.Time(s.At), s.Caller, s.CallerTenant, s.Admin, s.Door, s.From
	e.Action, e.Call, e.Resource, e.Reason, e.RequestID = s.Action, s.Call, s.Resource, s.Reason, s.RequestID
	e.Before, e.After, e.Outcome, e.Error, e.Unrecorded = s.Before, s.After, s.Outcome, s.Error, s.Unrecorded
	return e
}

// timeOf returns the time in a UUIDv7.
func timeOf(id model.RunID) model.Time {
	ms := int64(0)
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return model.Time(ms * 1000)
}

// value encodes an old or a new value as JSON. If the JSON has more than MaxValue bytes, the result
// is a JSON string with the beginning of that text.
func value(v any) []byte {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		text, _ = json.Marshal("it cannot be shown: " + err.Error())
	}
	if len(text) > MaxValue {
		text, _ = json.Marshal(cut(string(text), MaxValue/2)) // escaping may double its length
	}
	return text
}

// cut bounds a text. It keeps whole characters, and replaces control characters by spaces.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	const more = "…"
	end := most - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// errorText describes an error. The text of an error of user code may quote a payload, so the entry
// has only the type of such an error.
func errorText(err error) string {
	var code *model.Failure
	if errors.As(err, &code) && fault.ParseKind(code.Kind) == fault.Unclassified {
		return "the code has failed: " + code.Type
	}
	return fault.KindOf(err).String() + ": " + err.Error()
}
