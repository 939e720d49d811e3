package rule

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of paths, and of the inputs and keys that they work on.
const (
	MaxPath  = 256     // bytes of the text
	MaxSteps = 16      // fields and indexes
	MaxInput = 1 << 20 // bytes of an input; the key of a larger input is empty
	MaxKey   = 128     // bytes of a key; a digest replaces a longer key
)

// Path is a place in an input: input.customer.id, input.items[0], input["odd name"].
type Path struct {
	text  string
	steps []step
}

// step is a field, or an index of a list.
type step struct {
	field string
	index int
	list  bool
}

// ParsePath reads a path.
func ParsePath(text string) (Path, error) {
	p := Path{text: text}
	if len(text) > MaxPath {
		return Path{}, fault.New(fault.Invalid, "key expression: %d bytes, at most %d", len(text), MaxPath)
	}
	if !utf8.ValidString(text) {
		return Path{}, fault.New(fault.Invalid, "key expression: %q is not valid UTF-8", text)
	}

	rest, ok := strings.CutPrefix(text, "input")
	if !ok {
		return Path{}, fault.New(fault.Invalid, "key expression %q: \"input\" expected at the beginning, as in input.customer.id", text)
	}

	for rest != "" {
		at := len(text) - len(rest)
		s, after, expected := nextStep(rest)
		if expected != "" {
			return Path{}, fault.New(fault.Invalid, "key expression %q, character %d: %s expected", text, utf8.RuneCountInString(text[:at])+1, expected)
		}
		if p.steps = append(p.steps, s); len(p.steps) > MaxSteps {
			return Path{}, fault.New(fault.Invalid, "key expression %q: more than %d steps", text, MaxSteps)
		}
		rest = after
	}

	return p, nil
}

// nextStep reads .field, ["field"] or [0].
func nextStep(text string) (s step, rest, expected string) {
	switch {
	case text[0] == '.':
		n := 1
		for n < len(text) && letter(text[n], n == 1) {
			n++
		}
		if n == 1 {
			return s, "", "a name of letters, digits and _ after the dot (others as [\"name\"])"
		}
		return step{field: text[1:n]}, text[n:], ""
	case strings.HasPrefix(text, `["`):
		quoted, err := strconv.QuotedPrefix(text[1:])
		if err != nil {
			return s, "", "a name in quotes"
		}
		name, err := strconv.Unquote(quoted)
		if err != nil || !utf8.ValidString(name) {
			return s, "", "a name in quotes"
		}
		rest, ok := strings.CutPrefix(text[1+len(quoted):], "]")
		if !ok {
			return s, "", "] after the name"
		}
		return step{field: name}, rest, ""
	case text[0] == '[':
		digits, rest, ok := strings.Cut(text[1:], "]")
		index, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil {
			return s, "", "an index or a name in quotes, and ],"
		}
		return step{index: int(index), list: true}, rest, ""
	}

	return s, "", "a dot, a [ or the end"
}

// letter reports whether a name may contain the character, or may begin with it if first is set.
func letter(c byte, first bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || !first && '0' <= c && c <= '9'
}

// String returns the text that was parsed.
func (p Path) String() string { return p.text }

// Key returns the value of an input at the path, as text: the content of a string, a number as it
// is written, true or false. It returns the empty key if the value is missing, null, a list or an
// object, and if the input is not plain JSON or is too large. All these inputs share the empty key.
func (p Path) Key(input *model.Payload) string {
	if input == nil || input.Form() != model.JSON || len(input.Data) > MaxInput {
		return ""
	}

	at := json.RawMessage(input.Data)
	for _, s := range p.steps {
		if s.list {
			var list []json.RawMessage
			if json.Unmarshal(at, &list) != nil || s.index >= len(list) {
				return ""
			}
			at = list[s.index]
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil {
			return ""
		}
		at = object[s.field] // a missing field gives empty bytes, which are not JSON and fail below
	}

	var value any
	d := json.NewDecoder(strings.NewReader(string(at)))
	d.UseNumber()
	if d.Decode(&value) != nil || d.More() {
		return ""
	}

	switch v := value.(type) {
	case string:
		return keyOf(v)
	case json.Number:
		return keyOf(v.String())
	case bool:
		return strconv.FormatBool(v)
	}

	return ""
}

// keyOf returns a text that can be part of an address. It returns the text itself, or its digest if
// the text is too long or a store would refuse it.
func keyOf(text string) string {
	if len(text) <= MaxKey && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
