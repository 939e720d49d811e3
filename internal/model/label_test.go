package model_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

func TestCheckLabel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"region", "eu", ""},
		{"A-z_0.9", "any text: äöü \U0001f980", ""},
		{strings.Repeat("n", 64), strings.Repeat("v", 256), ""},
		{"removed", "", ""},
		{"", "eu", "it needs 1 to 64"},
		{strings.Repeat("n", 65), "eu", "has 65 bytes"},
		{"re gion", "eu", "digits, and _ . - only"},
		{"région", "eu", "digits, and _ . - only"},
		{"region", strings.Repeat("v", 257), "has a value of 257 bytes"},
		{"region", "e\xff", "not valid UTF-8"},
		{"region", "e\x00", "NUL"},
	} {
		err := model.CheckLabel(c.name, c.value)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("label %q = %q: %v, want %q", c.name, c.value, err, c.want)
		}
	}
}

// Labels behave like a map whose pairs are listed by name, and older lists do not change.
func TestSetLabelIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "b", "c"})
		naive := map[string]string{}
		var labels []model.Label
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			name, value := text.Draw(t, "name"), text.Draw(t, "value")
			before := append([]model.Label(nil), labels...)
			next := model.SetLabel(labels, name, value)
			if diff := cmp.Diff(before, labels, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("the labels before have changed:\n%s", diff)
			}
			labels = next
			if naive[name] = value; value == "" {
				delete(naive, name)
			}
			if diff := cmp.Diff(model.Labels(naive), labels, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// ReasonCodes lists every constant of the file, so that a query can ask for every code.
func TestReasonCodesAreComplete(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0

	ast.Inspect(file, func(node ast.Node) bool {
		v, ok := node.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if kind, ok := v.Type.(*ast.Ident); !ok || kind.Name != "ReasonCode" {
			return true
		}
		code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil || !slices.Contains(model.ReasonCodes(), model.ReasonCode(code)) {
			t.Errorf("ReasonCodes does not have %s, %v", code, err)
		}
		n++
		return true
	})

	if n != len(model.ReasonCodes()) || n == 0 {
		t.Errorf("%d codes, %d in the list", n, len(model.ReasonCodes()))
	}
}
