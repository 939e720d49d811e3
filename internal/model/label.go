package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of labels. A later build must not lower them, because it could not read a store that has
// longer labels.
const (
	MaxLabels     = 32  // labels of one run
	MaxLabelName  = 64  // bytes of a name
	MaxLabelValue = 256 // bytes of a value
)

// Label is a name and a value that executions can be found by.
type Label struct {
	Name  string `cbor:"1,keyasint,omitempty"`
	Value string `cbor:"2,keyasint,omitempty"`
}

// LabelCondition selects executions by a label.
type LabelCondition struct {
	Name string
	// The condition holds if the label has one of Values. If Not is set, it holds if the label has
	// none of them or does not exist.
	Values []string
	Not    bool
}

// Size estimates the bytes that the label takes in memory and on disk.
func (l *Label) Size() int { return 16 + len(l.Name) + len(l.Value) }

// Text is the encoding of a payload that is plain text, such as the value of a label in the
// history.
const Text = "text"

// TextPayload returns a text as a payload. The empty text gives the empty payload.
func TextPayload(text string) Payload {
	if text == "" {
		return Payload{}
	}
	return Payload{Data: []byte(text), Encoding: Text}
}

// Labels returns the pairs of a map, sorted by name.
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

// SetLabel returns the labels with one of them set, or removed when the value is empty. It does not
// change its argument.
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

// CheckLabelName returns what is wrong with the name of a label; nil when it is valid.
func CheckLabelName(name string) error {
	if name == "" || len(name) > MaxLabelName {
		return fmt.Errorf("the name of label %.80q has %d bytes: it needs 1 to %d", name, len(name), MaxLabelName)
	}
	for i := range len(name) {
		if !IsLabelByte(name[i]) {
			return fmt.Errorf("the name of label %q may have the letters A to Z and a to z, digits, and _ . - only", name)
		}
	}
	return nil
}

// IsLabelByte reports whether the name of a label may contain the byte.
func IsLabelByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// CheckLabel returns what is wrong with a label; nil when it is valid. An empty value is valid: it
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
