package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/spelling"
)

// tomlFile is a parsed file that remembers the line of every key.
type tomlFile struct {
	name   string
	values map[string]any
	lines  map[string]int // by the whole key, such as profile.prod.server
}

// parseTOML parses a file. If the file is not TOML, the error says in which line.
func parseTOML(name string, text []byte) (*tomlFile, error) {
	f := &tomlFile{name: name, values: map[string]any{}, lines: map[string]int{}}
	if err := toml.Unmarshal(text, &f.values); err != nil {
		if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
			line, column := at.Position()
			return nil, fault.New(fault.Invalid, "%s:%d:%d: %w", name, line, column, err)
		}
		return nil, fault.New(fault.Invalid, "%s: %w", name, err)
	}

	var p unstable.Parser
	p.Reset(text)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.KeyValue && e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		key, line := keyOf(&p, e)
		if e.Kind != unstable.KeyValue {
			table = key + "."
			f.lines[key] = line
			continue
		}
		f.lines[table+key] = line
	}
	return f, nil
}

// keyOf returns the key of an expression, and its line.
func keyOf(p *unstable.Parser, e *unstable.Node) (key string, line int) {
	var parts []string
	for it := e.Key(); it.Next(); {
		n := it.Node()
		if len(parts) == 0 {
			line = p.Shape(n.Raw).Start.Line
		}
		parts = append(parts, string(n.Data))
	}
	return strings.Join(parts, "."), line
}

// at returns the place of a key, for messages.
func (f *tomlFile) at(key string) string {
	if line := f.lines[key]; line > 0 {
		return fmt.Sprintf("%s:%d", f.name, line)
	}
	return f.name
}

// inOrder returns the keys of a table in the order of the file.
func (f *tomlFile) inOrder(prefix string, table map[string]any) []string {
	return slices.SortedFunc(maps.Keys(table), func(a, b string) int {
		if d := f.lines[prefix+a] - f.lines[prefix+b]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}

// unknownKey refuses a key and names the nearest known key, or all known keys if none is near.
func (f *tomlFile) unknownKey(prefix, key string, known []string) error {
	err := fault.New(fault.Invalid, "%s: unknown key %q", f.at(prefix+key), key)
	if near := spelling.Nearest(key, known); spelling.Distance(key, near) <= (len(key)+1)/2 {
		return fault.WithHint(err, "did you mean %s?", near)
	}
	return fault.WithHint(err, "known keys: %s", strings.Join(known, ", "))
}

// joinProblems makes one error of all problems, each on a line of its own. It returns nil if there
// are none.
func joinProblems(problems []error) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return problems[0]
	}
	return fault.New(fault.Invalid, "%d problems:\n%w", len(problems), errors.Join(problems...))
}
