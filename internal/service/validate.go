package service

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

func (l Limits) withDefaults() Limits {
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

// validator collects everything that is wrong with a request.
type validator struct {
	op       string
	limits   Limits
	problems []error
}

func (s *Service) check(op string) *validator { return &validator{op: op, limits: s.limits} }

func (v *validator) wrong(format string, args ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, args...))
}

// err returns all problems as one error of kind Invalid.
func (v *validator) err() error {
	if len(v.problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "%s: %w", v.op, errors.Join(v.problems...))
}

func (v *validator) text(what, s string, most int) {
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
		if c := s[i]; c < ' ' || c >= 0x7f { // not plain ASCII: look closer
			return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		}
	}
	return true
}

// explain adds what is wrong with a text.
func (v *validator) explain(what, s string, most int) {
	switch {
	case s == "":
		v.wrong("%s is empty", what)
	case len(s) > most:
		v.wrong("%s has %d bytes, at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		v.wrong("%s is not valid UTF-8", what)
	default:
		for _, r := range s {
			if unicode.IsControl(r) {
				v.wrong("%s contains the control character %U", what, r)
				return
			}
		}
	}
}

func (v *validator) name(what, s string) {
	if !fine(s, v.limits.Name) {
		v.explain("the name of the "+what, s, v.limits.Name)
	}
}

// tenant checks the name of the tenant that a request works in. Nothing stands for a tenant that is
// missing: the caller, or its credential, names it.
func (v *validator) tenant(name string) {
	switch {
	case model.ValidTenant(name):
	case name == "":
		v.wrong("the tenant is empty")
	default:
		v.wrong("the tenant %.80q is not a name of letters, digits, dots, dashes and underscores, at most %d", name, model.MaxTenant)
	}
}

func (v *validator) address(a model.Address) {
	v.tenant(a.Tenant)
	v.text("the name of the workflow", a.Type, v.limits.Name)
	v.text("the key", a.Key, v.limits.Key)
}

// workflow checks the address of an execution that must be a workflow, because only workflow code
// has what the request is about.
func (v *validator) workflow(a model.Address, what string) {
	v.address(a)
	if strings.HasPrefix(a.Type, model.TaskPrefix) {
		v.wrong("%s is a task: there is no workflow that has %s", a, what)
	}
	if a.IsEntity() {
		v.wrong("%s is an entity or a service, which has no %s", a, what)
	}
}

func (v *validator) payload(what string, p model.Payload) { v.size(what, p.Size()) }

func (v *validator) size(what string, n int) {
	if n > v.limits.Payload {
		v.wrong("%s has %d bytes, at most %d are allowed", what, n, v.limits.Payload)
	}
}

// reason checks the reason of an order.
func (v *validator) reason(text string) {
	v.size("reason", len(text))
	if !utf8.ValidString(text) {
		v.wrong("the reason %.80q is not valid UTF-8", text)
	}
}

// label checks a label.
func (v *validator) label(name, value string) {
	if err := model.CheckLabel(name, value); err != nil {
		v.problems = append(v.problems, err)
	}
}

// labels checks the labels of a start.
func (v *validator) labels(labels []model.Label) {
	if len(labels) > model.MaxLabels {
		v.wrong("%d labels, at most %d are allowed", len(labels), model.MaxLabels)
	}
	for i := range labels {
		l := &labels[i]
		v.label(l.Name, l.Value)
		switch {
		case l.Value == "":
			v.wrong("label %s has no value", l.Name)
		case i > 0 && labels[i-1].Name >= l.Name:
			v.wrong("label %s is there twice, or out of order", l.Name)
		}
	}
}

func (v *validator) requestID(id string) {
	if id != "" {
		v.text("the request id", id, v.limits.Name)
	}
}

// offer checks the names that a worker offers.
func (v *validator) offer(what string, names []string) {
	if len(names) == 0 {
		v.wrong("it offers no %s", what)
	}
	for _, name := range names {
		v.name(what, name)
	}
}

// terms checks the terms of a start, which set the times of an execution.
func (v *validator) terms(r *api.StartRequest) {
	t := r.Terms
	if t == nil {
		return
	}
	if r.Task != nil {
		v.wrong("a task has its own times, and no terms of an execution")
	}
	if t.Retry != nil {
		for _, name := range t.Retry.Final {
			v.text("a kind of failure", name, v.limits.Key)
		}
	}
	if err := t.Check(); err != nil {
		v.problems = append(v.problems, err)
	}
}

// task checks whether a start is that of a task, and then its spec.
func (v *validator) task(r *api.StartRequest) {
	t := r.Task
	switch kind, named := strings.CutPrefix(r.Address.Type, model.TaskPrefix); {
	case t == nil && named:
		v.wrong("the name of the workflow begins with %q, as those of tasks do", model.TaskPrefix)
		return
	case r.Address.IsEntity():
		v.wrong("%s is an entity or a service: it cannot be started", r.Address)
		return
	case t == nil:
		return
	case !named || kind != t.Kind:
		v.wrong("a task of activity %s has the address %s", t.Kind, r.Address)
	case len(r.With) > 0:
		v.wrong("a task takes no signals")
	}

	v.name("activity", t.Kind)
	v.name("queue", t.Queue)
	if t.Breaker != "" {
		v.name("breaker", t.Breaker)
	}
	if t.Fair != "" {
		v.text("the fairness key", t.Fair, v.limits.Name)
	}
	for _, name := range t.Limits {
		v.name("limit", name)
	}
	for _, name := range t.Retry.Final {
		v.text("a kind of failure", name, v.limits.Key)
	}
	if err := t.Check(nil); err != nil {
		v.problems = append(v.problems, err)
	}
}
