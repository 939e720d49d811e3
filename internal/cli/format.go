package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// formats are the values of --output.
var formats = []string{"table", "json", "jsonl", "yaml"}

func formatList() string {
	last := len(formats) - 1
	return strings.Join(formats[:last], ", ") + " or " + formats[last]
}

// structured reports whether the output is for programs. All such formats have the same fields.
func (o *options) structured() bool { return o.output != "table" }

// json prints one value for programs. In the format jsonl, a list has one line per entry.
func (o *options) json(v any) error {
	v, err := o.chosen(v)
	if err != nil {
		return err
	}
	switch list := reflect.ValueOf(v); {
	case o.output == "yaml":
		return writeYAML(o.Out, v)
	case o.output != "jsonl":
		return encodeJSON(o.Out, v, "  ")
	case list.Kind() == reflect.Slice && list.Type() != reflect.TypeFor[json.RawMessage]():
		for i := range list.Len() {
			if err := encodeJSON(o.Out, list.Index(i).Interface(), ""); err != nil {
				return err
			}
		}
		return nil
	}
	return encodeJSON(o.Out, v, "")
}

// chosen returns the fields of a value that the user wants to see.
func (o *options) chosen(v any) (any, error) {
	if o.fields == nil {
		return v, nil
	}
	return o.fields.pick(v)
}

// jsonLine prints one value of many: as a line of JSON, or as a document of YAML.
func (o *options) jsonLine(v any) error {
	v, err := o.chosen(v)
	if err != nil {
		return err
	}
	if o.output != "yaml" {
		return encodeJSON(o.Out, v, "")
	}
	if _, err := io.WriteString(o.Out, "---\n"); err != nil {
		return err
	}
	return writeYAML(o.Out, v)
}

// line prints one of many values, which the caller has encoded in the format of the output: as JSON
// or as YAML.
func (o *options) line(printed []byte) error {
	if o.output == "yaml" {
		_, err := o.Out.Write(append([]byte("---\n"), printed...))
		return err
	}
	return o.jsonLine(json.RawMessage(printed))
}

func encodeJSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writeYAML prints a value with the names and the order of its JSON.
func writeYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := encodeJSON(&text, v, ""); err != nil {
		return err
	}
	dec := json.NewDecoder(&text)
	dec.UseNumber()
	node, err := yamlOf(dec)
	if err != nil {
		return err
	}

	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return err
	}
	return enc.Close()
}

// yamlOf reads the next value of a JSON text.
func yamlOf(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}

	switch v := token.(type) {
	case json.Delim:
		return yamlCollection(dec, v)
	case string:
		n := &yaml.Node{}
		n.SetString(v)
		return n, nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(v.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}, nil
	}

	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// yamlCollection reads the rest of a list or an object. In an object, names and values alternate.
func yamlCollection(dec *json.Decoder, begin json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if begin == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}

	for dec.More() {
		child, err := yamlOf(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}

	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	_, err := dec.Token() // the closing delimiter
	return n, err
}
