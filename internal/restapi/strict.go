package restapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// maxDepth is how deep the JSON of a request may be nested.
const maxDepth = 64

// strictJSON refuses JSON that is nested too deeply, that has a name twice in one object, that is
// not Unicode, or that is followed by something else. If a name occurs twice, the standard library
// takes the last value, but another program that reads the same request may take the first. The
// library also replaces texts that are not Unicode, so the code would get another text.
func strictJSON(data []byte) error {
	if err := api.CheckText(data); err != nil {
		return fault.New(fault.Invalid, "the body is not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var open []*object
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return nil
		}
		if err != nil {
			return fault.New(fault.Invalid, "the body is not JSON: %w", err)
		}

		var inside *object
		if len(open) > 0 {
			inside = open[len(open)-1]
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '}' || t == ']' {
				open = open[:len(open)-1]
				break
			}
			inside.value()
			if len(open) == maxDepth {
				return fault.New(fault.Invalid, "the body is nested more than %d levels deep", maxDepth)
			}
			open = append(open, &object{list: t == '['})
		case string:
			if inside != nil && !inside.list && !inside.named {
				if !inside.name(t) {
					return fault.New(fault.Invalid, "the body has the name %.80q twice in one object", t)
				}
				break
			}
			inside.value()
		default:
			inside.value()
		}
		if len(open) == 0 && d.More() {
			return fault.New(fault.Invalid, "the body has data after its JSON value")
		}
	}
}

// object is an object or a list that the reader has entered.
type object struct {
	list  bool
	named bool // the next token is the value of a name
	names map[string]bool
}

// name records a name. It returns false if the object already has the name.
func (o *object) name(name string) bool {
	if o.names == nil {
		o.names = map[string]bool{}
	}
	fresh := !o.names[name]
	o.names[name], o.named = true, true
	return fresh
}

// value records that a value begins.
func (o *object) value() {
	if o != nil {
		o.named = false
	}
}

// readJSON reads the body of a request.
func readJSON(data []byte, to any) error {
	if _, raw := to.(*any); raw { // the library reads every body first to check it
		if err := strictJSON(data); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, to)
}

// writeJSON writes the body of a reply.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
