package service

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits bound what a request may bring. Zero fields take the defaults.
type Limits struct {
	Name    int // bytes of a name; 200
	Key     int // bytes of a key; 512
	Payload int // bytes of a payload; 2 MiB
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

// err is all problems as one error of kind Invalid.
func (v *validator) err() error {
	if len(v.problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "%s: %w", v.op, errors.Join(v.problems...))
}

func (v *validator) text(what, s string, most int) {
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

func (v *validator) name(what, s string) { v.text("the name of the "+what, s, v.limits.Name) }

func (v *validator) address(a model.Address) {
	v.text("the tenant", a.Tenant, v.limits.Name)
	v.text("the name of the workflow", a.Type, v.limits.Name)
	v.text("the key", a.Key, v.limits.Key)
}

func (v *validator) payload(what string, p model.Payload) { v.size(what, p.Size()) }

func (v *validator) size(what string, n int) {
	if n > v.limits.Payload {
		v.wrong("%s has %d bytes, at most %d are allowed", what, n, v.limits.Payload)
	}
}

// label checks a label; that it is not there is in order.
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
