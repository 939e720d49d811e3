// Package request has the rules of requests: what a valid request looks like, and which message it
// becomes. The service and the client of a server use the same rules, so that both refuse the same
// requests with the same texts.
package request

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits bounds the sizes of requests. A zero field selects its default.
type Limits struct {
	Name    int // bytes of a name; default 200
	Key     int // bytes of a key; default 512
	Payload int // bytes of a payload; default 2 MiB
}

// WithDefaults returns the limits with a default for each zero field.
func (l Limits) WithDefaults() Limits {
	if l.Name == 0 {
		l.Name = 200
	}
	if l.Key == 0 {
		l.Key = 512
	}
	if l.Payload == 0 {
		l.Payload = 2 << 20
	}
	return l
}

// Validator collects everything that is wrong with a request.
type Validator struct {
	op       string
	limits   Limits
	problems []error
}

// Check returns a validator for a request. Op names the request in the error.
func (l Limits) Check(op string) *Validator { return &Validator{op: op, limits: l} }

// Wrong adds a problem.
func (v *Validator) Wrong(format string, args ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, args...))
}

// Err returns all problems as one error of kind Invalid.
func (v *Validator) Err() error {
	if len(v.problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "%s: %w", v.op, errors.Join(v.problems...))
}

// Text checks a text that must not be empty.
func (v *Validator) Text(what, s string, most int) {
	if !fine(s, most) {
		v.explain(what, s, most)
	}
}

// fine reports whether a text may be stored.
func fine(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f { // not plain ASCII: check all characters
			return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		}
	}
	return true
}

// explain adds what is wrong with a text.
func (v *Validator) explain(what, s string, most int) {
	switch {
	case s == "":
		v.Wrong("%s is empty", what)
	case len(s) > most:
		v.Wrong("%s has %d bytes, at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		v.Wrong("%s is not valid UTF-8", what)
	default:
		for _, r := range s {
			if unicode.IsControl(r) {
				v.Wrong("%s contains the control character %U", what, r)
				return
			}
		}
	}
}

// Name checks the name of something.
func (v *Validator) Name(what, s string) {
	if !fine(s, v.limits.Name) {
		v.explain("the name of the "+what, s, v.limits.Name)
	}
}

// Tenant checks the name of the tenant that a request works in. There is no default: the caller, or
// its credential, must name the tenant.
func (v *Validator) Tenant(name string) {
	switch {
	case model.ValidTenant(name):
	case name == "":
		v.Wrong("the tenant is empty")
	default:
		v.Wrong("the tenant %.80q is not a name of letters, digits, dots, dashes and underscores, at most %d", name, model.MaxTenant)
	}
}

// Address checks the address of an execution or entity.
func (v *Validator) Address(a model.Address) {
	v.Tenant(a.Tenant)
	if kind, task := strings.CutPrefix(a.Type, model.TaskPrefix); task {
		v.Text("the name of the activity", kind, v.limits.Name)
	} else {
		v.Text("the name of the workflow", a.Type, v.limits.Name)
	}
	v.Text("the key", a.Key, v.limits.Key)
}

// Workflow checks the address of an execution that must be a workflow. The parameter what names the
// feature that only workflows have.
func (v *Validator) Workflow(a model.Address, what string) {
	v.Address(a)
	if strings.HasPrefix(a.Type, model.TaskPrefix) {
		v.Wrong("%s is a task, and only workflows have %s", a, what)
	}
	if a.IsEntity() {
		v.Wrong("%s is an entity or a service, which has no %s", a, what)
	}
}

// NoBatch refuses the address of a batch job. A batch job acts with the rights of the caller that
// started it, so only the call for batch jobs may start one.
func (v *Validator) NoBatch(a model.Address) {
	if a.Type == model.BatchType {
		v.Wrong("%s is a batch job: start a batch to begin one", a)
	}
}

// Startable refuses the start of a workflow whose name no program can have. Task checks the names
// of tasks, entities and services.
func (v *Validator) Startable(r *api.StartRequest) {
	if r.Task == nil && !r.Address.IsEntity() && !strings.HasPrefix(r.Address.Type, model.TaskPrefix) {
		v.WorkflowName(r.Address.Type)
	}
}

// WorkflowName refuses the name of a workflow that no program can have. The SDK starts schedules
// and delayed calls, and the Flovyn protocol puts the name of a queue into the name of a workflow.
func (v *Validator) WorkflowName(name string) {
	switch {
	case name == model.BatchType || name == model.ScheduleType || name == model.SendType || strings.HasPrefix(name, model.FlovynPrefix):
	default:
		if err := api.CheckWorkflowName(name); err != nil {
			v.problems = append(v.problems, err)
		}
	}
}

// Payload checks the size of a payload.
func (v *Validator) Payload(what string, p model.Payload) { v.Size(what, p.Size()) }

// Size checks a number of bytes against the limit of payloads.
func (v *Validator) Size(what string, n int) {
	if n > v.limits.Payload {
		v.Wrong("%s has %d bytes, at most %d are allowed", what, n, v.limits.Payload)
	}
}

// Reason checks the reason that a caller gives for an order, such as a cancel or a pause request.
func (v *Validator) Reason(text string) {
	v.Size("reason", len(text))
	if !utf8.ValidString(text) {
		v.Wrong("the reason %.80q is not valid UTF-8", text)
	}
}

// Label checks a label.
func (v *Validator) Label(name, value string) {
	if err := model.CheckLabel(name, value); err != nil {
		v.problems = append(v.problems, err)
	}
}

// Labels checks the labels of a start.
func (v *Validator) Labels(labels []model.Label) {
	if len(labels) > model.MaxLabels {
		v.Wrong("%d labels, at most %d are allowed", len(labels), model.MaxLabels)
	}
	for i := range labels {
		l := &labels[i]
		v.Label(l.Name, l.Value)
		switch {
		case l.Value == "":
			v.Wrong("label %s has no value", l.Name)
		case i > 0 && labels[i-1].Name >= l.Name:
			v.Wrong("label %s occurs twice, or is not in order", l.Name)
		}
	}
}

// RequestID checks a request id, which may be empty.
func (v *Validator) RequestID(id string) {
	if id != "" {
		v.Text("the request id", id, v.limits.Name)
	}
}

// Offer checks the names that a worker offers.
func (v *Validator) Offer(what string, names []string) {
	if len(names) == 0 {
		v.Wrong("the worker offers no %s", what)
	}
	for _, name := range names {
		v.Name(what, name)
	}
}

// Terms checks the terms of a start: when the code starts, when the execution must have ended, and
// how the engine retries a failed run. A start without terms is valid.
func (v *Validator) Terms(r *api.StartRequest) {
	t := r.Terms
	if t == nil {
		return
	}
	if r.Task != nil {
		v.Wrong("a task has its own times and takes no terms of an execution")
	}
	if t.Retry != nil {
		for _, name := range t.Retry.Final {
			v.Text("a kind of failure", name, v.limits.Key)
		}
	}
	if err := t.Check(); err != nil {
		v.problems = append(v.problems, err)
	}
}

// Task checks that a start with the spec of a task has the address of that task, that no other
// start has the address of a task, and that the spec is valid. It also refuses the start of an
// entity or a service.
func (v *Validator) Task(r *api.StartRequest) {
	t := r.Task
	switch kind, named := strings.CutPrefix(r.Address.Type, model.TaskPrefix); {
	case t == nil && named:
		v.Wrong("the name of the workflow begins with %q, which is reserved for tasks", model.TaskPrefix)
		return
	case r.Address.IsEntity():
		v.Wrong("%s is an entity or a service: it cannot be started", r.Address)
		return
	case t == nil:
		return
	case !named || kind != t.Kind:
		v.Wrong("a task of activity %s has the address %s", t.Kind, r.Address)
	case len(r.With) > 0:
		v.Wrong("a task takes no signals")
	}

	v.Name("activity", t.Kind)
	v.Name("queue", t.Queue)
	if t.Breaker != "" {
		v.Name("breaker", t.Breaker)
	}
	if t.Fair != "" {
		v.Text("the fairness key", t.Fair, v.limits.Name)
	}
	for _, name := range t.Limits {
		v.Name("limit", name)
	}
	for _, name := range t.Retry.Final {
		v.Text("a kind of failure", name, v.limits.Key)
	}
	if err := t.Check(nil); err != nil {
		v.problems = append(v.problems, err)
	}
}

// Entity checks the address of an entity or a service.
func (v *Validator) Entity(a model.Address) {
	v.Tenant(a.Tenant)
	v.Text("the key", a.Key, v.limits.Key)
	word, name, _ := strings.Cut(a.Type, ":")
	if !a.IsEntity() {
		v.Wrong("%q is neither an entity nor a service", a.Type)
		return
	}
	v.Text("the name of the "+word, name, v.limits.Name-len(model.ServicePrefix))
}
