package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of labels. They are part of the contract: a store that was filled under wider ones could
// not be read under these.
const (
	MaxLabels     = 32  // of one run
	MaxLabelName  = 64  // bytes
	MaxLabelValue = 256 // bytes
)

// Label is a name and a value that executions can be found by.
type Label struct {
	Name  string `cbor:"1,keyasint,omitempty"`
	Value string `cbor:"2,keyasint,omitempty"`
}

// LabelCondition selects by a label.
type LabelCondition struct {
	Name string
	// Values: the label has any of these; when Not is set it has none of them, or is not there.
	Values []string
	Not    bool
}

// Size is roughly what the label costs in memory and on disk.
func (l *Label) Size() int { return 16 + len(l.Name) + len(l.Value) }

// Text is the encoding of a payload that is plain text, such as the value of a label in the
// history.
const Text = "text"

// TextPayload is a text as payload; that of no text is empty.
func TextPayload(text string) Payload {
	if text == "" {
		return Payload{}
	}
	return Payload{Data: []byte(text), Encoding: Text}
}

// Labels are the pairs of a map, sorted by name.
func Labels(pairs map[string]string) []Label {
	if len(pairs) == 0 {
		return nil
	}
	labels := make([]Label, 0, len(pairs))
	for name, value := range pairs {
		labels = append(labels, Label{name, value})
	}
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	return labels
}

// SetLabel is the labels with one of them changed, or removed when the value is empty. What it is
// given stays as it is.
func SetLabel(labels []Label, name, value string) []Label {
	i, found := slices.BinarySearchFunc(labels, name, func(l Label, name string) int { return cmp.Compare(l.Name, name) })
	switch {
	case found && value == "":
		return slices.Concat(labels[:i], labels[i+1:])
	case found:
		labels = slices.Clone(labels)
		labels[i].Value = value
		return labels
	case value == "":
		return labels
	}
	return slices.Concat(labels[:i], []Label{{name, value}}, labels[i:])
}

// CheckLabelName says what is wrong with the name of a label; nil when nothing is.
func CheckLabelName(name string) error {
	if name == "" || len(name) > MaxLabelName {
		return fmt.Errorf("the name of label %.80q has %d bytes: it needs 1 to %d", name, len(name), MaxLabelName)
	}
	for i := range len(name) {
		if !LabelLetter(name[i]) {
			return fmt.Errorf("the name of label %q may have the letters A to Z and a to z, digits, and _ . - only", name)
		}
	}
	return nil
}

// LabelLetter reports whether the byte may stand in the name of a label.
func LabelLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// CheckLabel says what is wrong with a label; nil when nothing is. An empty value is in order: it
// removes the label.
func CheckLabel(name, value string) error {
	if err := CheckLabelName(name); err != nil {
		return err
	}
	switch {
	case len(value) > MaxLabelValue:
		return fmt.Errorf("label %s has a value of %d bytes, at most %d are allowed", name, len(value), MaxLabelValue)
	case !utf8.ValidString(value):
		return fmt.Errorf("the value of label %s is not valid UTF-8", name)
	case strings.IndexByte(value, 0) >= 0:
		return fmt.Errorf("the value of label %s contains a NUL byte", name)
	}
	return nil
}
