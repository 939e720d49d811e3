package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// shapes are the output types that docs/cli-json.md documents.
type shapes struct {
	commands map[string]string // the type of each command, by its words after "perdure"
	named    map[string][]shapeField
	seen     map[string]bool // fields that occurred in a value, as shape.field
}

type shapeField struct {
	name, typ string
	optional  bool
}

var (
	shapeBlock = regexp.MustCompile("(?s)```shape\n(.*?)```")
	shapeLine  = regexp.MustCompile(`^  (\w+)(\??): (\{string: \w+\}|\[\w+\]|\w+)(\s|$)`)
)

func readShapes(t *testing.T) *shapes {
	t.Helper()
	s, err := loadShapes("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// loadShapes reads the page.
func loadShapes(name string) (*shapes, error) {
	page, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}

	s := &shapes{commands: map[string]string{}, named: map[string][]shapeField{}, seen: map[string]bool{}}
	for _, block := range shapeBlock.FindAllStringSubmatch(string(page), -1) {
		current := ""
		for line := range strings.Lines(block[1]) {
			line = strings.TrimRight(line, "\n")
			name, typ, _ := strings.Cut(line, " = ")
			field := shapeLine.FindStringSubmatch(line)

			switch {
			case line == "" || line == "}":
			case strings.HasPrefix(name, "perdure "):
				s.commands[strings.TrimPrefix(name, "perdure ")] = typ
			case typ == "{":
				current = name
				s.named[current] = []shapeField{}
			case strings.HasPrefix(line, "  ..."):
				s.named[current] = append(s.named[current], s.named[strings.TrimPrefix(line, "  ...")]...)
			case field != nil:
				s.named[current] = append(s.named[current], shapeField{field[1], field[3], field[2] == "?"})
			default:
				return nil, fmt.Errorf("docs/cli-json.md: what is %q?", line)
			}
		}
	}

	return s, nil
}

// check reports the differences between the output of a command and its shape.
func (s *shapes) check(command string, output []byte) error {
	typ, ok := s.commands[command]
	if !ok {
		return fmt.Errorf("docs/cli-json.md has no shape of perdure %s", command)
	}
	dec := json.NewDecoder(bytes.NewReader(output))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	if dec.More() {
		return fmt.Errorf("there is more than one value")
	}
	return s.value(typ, command, v)
}

// value compares a value with a type.
func (s *shapes) value(typ, at string, v any) error {
	wrong := fmt.Errorf("%s is %v, which is no %s", at, v, typ)
	switch {
	case strings.HasPrefix(typ, "["):
		list, ok := v.([]any)
		if !ok {
			return wrong
		}
		for i, item := range list {
			if err := s.value(strings.Trim(typ, "[]"), fmt.Sprintf("%s[%d]", at, i), item); err != nil {
				return err
			}
		}
		return nil
	case strings.HasPrefix(typ, "{string: "):
		object, ok := v.(map[string]any)
		if !ok {
			return wrong
		}
		for name, item := range object {
			if err := s.value(strings.TrimSuffix(strings.TrimPrefix(typ, "{string: "), "}"), at+"."+name, item); err != nil {
				return err
			}
		}
		return nil
	}

	switch typ {
	case "value":
		return nil
	case "bool":
		if _, ok := v.(bool); ok {
			return nil
		}
	case "int", "number":
		if n, ok := v.(json.Number); ok && (typ == "number" || !strings.ContainsAny(n.String(), ".eE")) {
			return nil
		}
	case "string", "time", "duration":
		text, ok := v.(string)
		if !ok {
			return wrong
		}
		var err error
		switch typ {
		case "time":
			_, err = time.Parse(time.RFC3339, text)
		case "duration":
			_, err = time.ParseDuration(text)
		}
		if err == nil {
			return nil
		}
	default:
		return s.object(typ, at, v)
	}

	return wrong
}

// object compares an object with a named shape: it must have all required fields and no others.
func (s *shapes) object(shape, at string, v any) error {
	fields, ok := s.named[shape]
	if !ok {
		return fmt.Errorf("docs/cli-json.md has no shape %s", shape)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is %v, which is no %s", at, v, shape)
	}

	left := maps.Clone(object)
	for _, f := range fields {
		item, ok := object[f.name]
		if !ok && !f.optional {
			return fmt.Errorf("%s has no %s", at, f.name)
		}
		if ok {
			s.seen[shape+"."+f.name] = true
			if err := s.value(f.typ, at+"."+f.name, item); err != nil {
				return err
			}
		}
		delete(left, f.name)
	}

	if len(left) > 0 {
		return fmt.Errorf("%s has %v, which docs/cli-json.md does not have", at, slices.Sorted(maps.Keys(left)))
	}
	return nil
}

// unseen returns the documented fields that no value had.
func (s *shapes) unseen() (all []string) {
	for shape, fields := range s.named {
		for _, f := range fields {
			if !s.seen[shape+"."+f.name] {
				all = append(all, shape+"."+f.name)
			}
		}
	}
	slices.Sort(all)
	return all
}
