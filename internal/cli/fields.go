package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/spelling"
)

// fieldCommands are the names of the commands that have --fields: the commands that list or show
// something. The value is false if the command prints no table, so that --fields works only with
// formats for programs.
var fieldCommands = map[string]bool{
	"list": true, "show": true, "describe": true, "stranded": true, "versions": true, "groups": true, "sessions": true, "waiters": true, "nodes": true, "shards": true,
	"log": true, "mailbox": true, "signals": true, "actions": true, "next": true, "steps": true,
	"explain": false, "logs": false, "stream": false, "watch": false,
}

// addFields adds the flag --fields to the commands that list or show something.
func (o *options) addFields(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if _, ok := fieldCommands[c.Name()]; ok && c.RunE != nil {
			c.Flags().StringVar(&o.fieldList, "fields", "", "print only these fields of -o json, jsonl and yaml, such as key,labels.region; of a table, these columns")
		}
		o.addFields(c)
	}
}

// chooseFields reads --fields. It refuses the flag if the command prints lines of text, which have
// no fields.
func (o *options) chooseFields(cmd *cobra.Command) (err error) {
	flag := cmd.Flags().Lookup("fields")
	if flag == nil || !flag.Changed {
		return nil
	}
	watch := cmd.Flags().Lookup("watch")
	if lines := watch != nil && watch.Changed || !fieldCommands[cmd.Name()]; lines && !o.structured() {
		err := fault.New(fault.Invalid, "--fields selects columns of a table, and this command prints lines")
		return fault.WithHint(err, "add -o json, jsonl or yaml")
	}
	o.fields, err = parseFields(o.fieldList)
	return err
}

// field is a field that the user wants. field.in has the inner fields that the user wants. If
// field.in is empty, the user wants the whole field.
type field struct {
	name string
	in   []field
}

// fieldChoice is the value of --fields.
type fieldChoice struct {
	tree []field
	// known is true after the first value. A command that watches prints many values of one kind. A
	// later value, such as a deleted execution, may have fewer fields, which is not an error.
	known bool
}

// parseFields parses names that are separated by commas. A dot separates a field from a field
// inside it.
func parseFields(text string) (*fieldChoice, error) {
	c := &fieldChoice{}
	for path := range strings.SplitSeq(text, ",") {
		names := strings.Split(strings.TrimSpace(path), ".")
		if slices.Contains(names, "") {
			return nil, fault.New(fault.Invalid, "--fields is %.100q, must be names of fields with commas between them, such as key,labels.region", text)
		}
		c.tree = addField(c.tree, names)
	}
	return c, nil
}

// addField adds a path. If the user wants a field as a whole, a path to a part of it changes
// nothing.
func addField(to []field, names []string) []field {
	i := slices.IndexFunc(to, func(f field) bool { return f.name == names[0] })
	switch {
	case i < 0:
		f := field{name: names[0]}
		if len(names) > 1 {
			f.in = addField(nil, names[1:])
		}
		return append(to, f)
	case len(names) == 1:
		to[i].in = nil
	case len(to[i].in) > 0:
		to[i].in = addField(to[i].in, names[1:])
	}
	return to
}

// pick returns the chosen fields of a value: of every entry, if the value is a list.
func (c *fieldChoice) pick(v any) (any, error) {
	if !c.known {
		if err := checkFields(reflect.TypeOf(v), c.tree, ""); err != nil {
			return nil, err
		}
		c.known = true
	}
	var text bytes.Buffer
	if err := encodeJSON(&text, v, ""); err != nil {
		return nil, err
	}
	picked, err := pickFields(bytes.TrimSpace(text.Bytes()), c.tree)
	if picked == nil || err != nil || !bytes.HasPrefix(picked, []byte("[")) {
		return orNothing(picked), err
	}
	list := []json.RawMessage{}
	return list, json.Unmarshal(picked, &list)
}

// pickFields returns the chosen fields of a JSON text in the order in which the user names them. It
// leaves out a field without a value, as the output without --fields does. The result is nil for a
// value that has no fields.
func pickFields(text json.RawMessage, tree []field) (json.RawMessage, error) {
	var out bytes.Buffer
	switch {
	case len(tree) == 0:
		return text, nil
	case bytes.HasPrefix(text, []byte("[")):
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		for i := range list {
			picked, err := pickFields(list[i], tree)
			if err != nil {
				return nil, err
			}
			list[i] = orNothing(picked)
		}
		err := encodeJSON(&out, list, "")
		return bytes.TrimSpace(out.Bytes()), err
	case !bytes.HasPrefix(text, []byte("{")):
		return nil, nil
	}

	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	out.WriteByte('{')
	for _, f := range tree {
		value, ok := object[f.name]
		if !ok {
			continue
		}
		picked, err := pickFields(value, f.in)
		if err != nil {
			return nil, err
		}
		if picked == nil {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		if err := encodeJSON(&out, f.name, ""); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		out.Write(picked)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// orNothing returns an object without fields for a value that has none.
func orNothing(picked json.RawMessage) json.RawMessage {
	if picked == nil {
		return json.RawMessage("{}")
	}
	return picked
}

// checkFields refuses fields that a type does not have. The names inside payloads and labels come
// from the user, so it cannot check them.
func checkFields(t reflect.Type, tree []field, prefix string) error {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) && !writesItself(t) {
		t = t.Elem()
	}
	if t == nil || len(tree) == 0 || t.Kind() == reflect.Interface || t.Kind() == reflect.Map || writesItself(t) && t.Kind() != reflect.Struct {
		return nil
	}

	known := map[string]reflect.Type{}
	names := jsonFields(t, known, nil)
	for _, f := range tree {
		in, ok := known[f.name]
		if !ok {
			return unknownField("field", prefix+f.name, names)
		}
		if err := checkFields(in, f.in, prefix+f.name+"."); err != nil {
			return err
		}
	}
	return nil
}

// writesItself reports whether a type has its own form in JSON.
func writesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}

// jsonFields finds the fields that a struct has in JSON, including fields of embedded structs, and
// returns their names in order. Other types have no fields.
func jsonFields(t reflect.Type, known map[string]reflect.Type, names []string) []string {
	if t.Kind() != reflect.Struct || writesItself(t) {
		return names
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			in := f.Type
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			names = jsonFields(in, known, names)
		case f.IsExported() && name != "-":
			if name == "" {
				name = f.Name
			}
			known[name] = f.Type
			names = append(names, name)
		}
	}
	return names
}

// columns returns the chosen columns of a table, in the order in which the user names them.
func (c *fieldChoice) columns(titles []string, rows [][]string) (head []string, cells [][]string, err error) {
	names := make([]string, len(titles))
	for i, title := range titles {
		names[i] = strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(title, "?")), " ", "_")
	}

	cells = make([][]string, len(rows))
	for _, f := range c.tree {
		i := slices.Index(names, strings.ToLower(f.name))
		if len(f.in) > 0 {
			return nil, nil, fault.WithHint(fault.New(fault.Invalid, "--fields: column %q of a table has no fields", f.name), "add -o json, jsonl or yaml")
		}
		if i < 0 {
			return nil, nil, unknownField("column", f.name, names)
		}
		head = append(head, strings.TrimSuffix(titles[i], "?"))
		for r := range rows {
			cell := ""
			if i < len(rows[r]) {
				cell = rows[r][i]
			}
			cells[r] = append(cells[r], cell)
		}
	}
	return head, cells, nil
}

// unknownField returns the error for an unknown name. It suggests the nearest known name, or lists
// all names if none is near. For a field inside a field, name has all names of the path.
func unknownField(what, name string, known []string) error {
	last := name[strings.LastIndexByte(name, '.')+1:]
	before := strings.TrimSuffix(name, last)
	err := fault.New(fault.Invalid, "--fields: unknown %s %.100q", what, name)
	if len(known) == 0 {
		return fault.WithHint(err, "%s has no fields", cmp.Or(strings.TrimSuffix(before, "."), "this output"))
	}
	if near := spelling.Nearest(last, known); spelling.Distance(last, near) <= (len(last)+1)/2 {
		return fault.WithHint(err, "did you mean %s%s?", before, near)
	}
	return fault.WithHint(err, "known %ss: %s", what, strings.Join(known, ", "))
}
