package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// CheckText refuses texts that a JSON decoder would replace, and no other JSON.
func TestTextThatIsNotUnicode(t *testing.T) {
	t.Parallel()
	for data, fine := range map[string]bool{
		`"plain"`: true, `"\u00e9"`: true, `"\ud83d\ude00"`: true, `"\\ud800"`: true, `"\ufffd"`: true, `{"a":["\n\"\\"]}`: true,
		`"\ud800"`: false, `"\udc00"`: false, `"\uD800"`: false, `"\ud800\ud800"`: false, `"\ud83d \ude00"`: false, `"\ude00\ud83d"`: false,
		`{"\ud800":1}`: false, `"\\\ud800"`: false, `"\ud800\u0041"`: false, "\"caf\xe9\"": false,
	} {
		err := api.CheckText([]byte(data))
		if (err == nil) != fine || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// FuzzText compares CheckText with the decoder of the standard library, which replaces texts that
// are not Unicode.
func FuzzText(f *testing.F) {
	for _, data := range []string{`"a"`, `"\ud800"`, `"\ud83d\ude00"`, `"\\ud800"`, `"\`, `"\u`, `\ud800`, `\`} {
		f.Add([]byte(data))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		err := api.CheckText(data)
		var text string
		if json.Unmarshal(data, &text) != nil {
			return
		}

		replaced := strings.Count(text, string(utf8.RuneError)) > strings.Count(string(data), string(utf8.RuneError))+strings.Count(strings.ToLower(string(data)), `\ufffd`)
		if replaced && err == nil {
			t.Errorf("%q is accepted, and decoded as %q", data, text)
		}
		if !strings.ContainsRune(text, utf8.RuneError) && err != nil {
			t.Errorf("%q is refused: %v", data, err)
		}
	})
}
