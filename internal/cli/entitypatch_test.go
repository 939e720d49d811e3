package cli

import (
	"strings"
	"testing"
)

// The examples of RFC 7396, appendix A: a value, a patch, and the result.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"n":12345678901234567890.10}`, `{"m":1e400}`, `{"m":1e400,"n":12345678901234567890.10}`},
	} {
		target, err := decodeJSON([]byte(c[0]))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := decodeJSON([]byte(c[1]))
		if err != nil {
			t.Fatal(err)
		}

		var out strings.Builder
		if err := encodeJSON(&out, mergePatch(target, patch), ""); err != nil || strings.TrimSpace(out.String()) != c[2] {
			t.Errorf("%s and %s make %s, %v; want %s", c[0], c[1], out.String(), err, c[2])
		}
		again, err := decodeJSON([]byte(c[0]))
		if err != nil || len(differences(nil, "", target, again)) > 0 {
			t.Errorf("the patch %s changed its target %s: %v, %v", c[1], c[0], target, err)
		}
	}
}
