package restapi

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// reply is a reply with a body.
type reply[T any] struct{ Body T }

func ok[T any](body T) (*reply[T], error) { return &reply[T]{body}, nil }

// page is a part of a list.
type page[T any] struct {
	Items  []T    `json:"items"`
	Cursor string `json:"cursor,omitempty" doc:"The cursor of the next page; absent on the last page"`
}

// each translates the items of a list.
func each[In, Out any](all []In, shape func(*In) Out) []Out {
	list := make([]Out, len(all))
	for i := range all {
		list[i] = shape(&all[i])
	}
	return list
}

// TargetPath names an execution.
type TargetPath struct {
	Workflow string `path:"workflow" example:"order" doc:"The workflow; for a task, the text task: followed by the activity"`
	Key      string `path:"key" example:"42" doc:"The key of the execution; write a slash as %2F"`
	Run      string `query:"run" doc:"The id of a run; by default the current run"`
}

// address returns the address of the execution.
func (t *TargetPath) address(tenant string) model.Address {
	return model.Address{Tenant: tenant, Type: t.Workflow, Key: t.Key}
}

// RequestHeader has the id of a request, so that a repeated request takes effect once.
type RequestHeader struct {
	RequestID string `header:"Idempotency-Key" doc:"A key that you choose; requests with the same key take effect once"`
}

// readRun reads the id of a run. It returns the zero id for an empty text.
func readRun(text string) (id model.RunID, err error) {
	if text == "" {
		return id, nil
	}
	if id, err = model.ParseRunID(text); err != nil {
		return id, fault.New(fault.Invalid, "run: %w", err)
	}
	return id, nil
}

// readDuration reads a duration such as 90m. It returns 0 for an empty text.
func readDuration(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fault.New(fault.Invalid, "%s is %.80q, must be a duration such as 90m", name, text)
	}
	return d, nil
}

// writeDuration returns a duration as text, empty for 0.
func writeDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// at returns a time for JSON; nil for the zero time.
func at(t model.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	std := t.Std().UTC()
	return &std
}

// payload is a value of a request as the engine stores it. An absent value is an empty payload.
func payload(value json.RawMessage) model.Payload { return model.Payload{Data: value} }

// opaque is a value that is not JSON.
type opaque struct {
	Encoding string `json:"encoding"`
	Size     int    `json:"size"`
	Base64   string `json:"base64"`
}

// value returns a payload for JSON: JSON as it is, text as a string, and other bytes in base64.
func value(p model.Payload) any {
	switch form := p.Form(); {
	case len(p.Data) == 0:
		return nil
	case form == model.JSON && json.Valid(p.Data):
		return json.RawMessage(p.Data)
	case form == model.Text && utf8.Valid(p.Data):
		return string(p.Data)
	default:
		if form == model.JSON {
			form = "json"
		}
		return opaque{form, len(p.Data), base64.StdEncoding.EncodeToString(p.Data)}
	}
}

// failure is an error of user code.
type failure struct {
	Kind      string `json:"kind,omitempty"`
	Type      string `json:"type,omitempty" doc:"The Go type of the error"`
	Message   string `json:"message"`
	Stack     string `json:"stack,omitempty" doc:"The stack of a panic"`
	Permanent bool   `json:"permanent,omitempty" doc:"Whether it is not retried"`
}

func failureOf(f *model.Failure) *failure {
	if f == nil {
		return nil
	}
	return &failure{f.Kind, f.Type, f.Message, f.Stack, f.Permanent}
}

// reason says why something waits.
type reason struct {
	Code    string     `json:"code" example:"signal"`
	Text    string     `json:"text" example:"waits for signal paid"`
	Name    string     `json:"name,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Detail  string     `json:"detail,omitempty"`

	Refs []reference `json:"refs,omitempty" doc:"What the reason is about"`
}

func reasonOf(r *model.Reason) reason {
	o := reason{Code: string(r.Code), Text: r.String(), Name: r.Name, Until: at(r.Until), Attempt: r.Attempt, Detail: r.Detail}
	if refs := r.References(""); len(refs) > 0 { // replies name no tenant
		o.Refs = each(refs, referenceOf)
	}
	return o
}

// labels returns labels as an object; nil without labels.
func labels(all []model.Label) map[string]string {
	if len(all) == 0 {
		return nil
	}
	m := make(map[string]string, len(all))
	for _, l := range all {
		m[l.Name] = l.Value
	}
	return m
}

// entityType returns the type in the address of an entity. A service is written as service:name.
func entityType(name string) string {
	if name == "" || strings.HasPrefix(name, model.ServicePrefix) || strings.HasPrefix(name, model.EntityPrefix) {
		return name
	}
	return model.EntityPrefix + name
}

// entityWord returns the type of an entity or a service as people write it.
func entityWord(typ string) string {
	if word := strings.TrimPrefix(typ, model.EntityPrefix); entityType(word) == typ {
		return word
	}
	return typ
}

// nameOf returns an address as people write it: entity/key or workflow/key. It returns an empty
// text for the zero address.
func nameOf(a model.Address) string {
	switch {
	case a.IsZero():
		return ""
	case a.IsEntity():
		return entityWord(a.Type) + "/" + a.Key
	}
	return a.Type + "/" + a.Key
}
