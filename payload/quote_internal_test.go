package payload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// aText draws a text with long plain parts, characters that JSON escapes, and bytes that are not
// valid UTF-8.
func aText(t *rapid.T) string {
	piece := rapid.OneOf(
		rapid.String(),
		rapid.StringOfN(rapid.RuneFrom([]rune(` abcxyz019~`+"\x7f")), 0, 40, -1),
		rapid.SampledFrom([]string{`"`, `\`, "&", "<", ">", "/", "\n", "\t", "\r", "\b", "\f", "\x00", "\x1f", "é", "\u2028", "\u2029", "\ufffd", "𝄞", "!", "#", "%", "'", "=", "?", "[", "]"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 3), func(b []byte) string { return string(b) }),
	)
	return strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
}

// Texts are stored exactly as encoding/json stores them, and read back unchanged.
func TestTextsAreEncodedAsByTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := aText(t)
		got, err := JSON.Marshal(s)
		if !utf8.ValidString(s) {
			if err == nil {
				t.Fatalf("%q is not valid, and is stored as %s", s, got)
			}
			return
		}
		want, _ := json.Marshal(s)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q is stored as %s (%v), want %s", s, got, err, want)
		}
		var back string
		if err := JSON.Unmarshal(got, &back); err != nil || back != s {
			t.Fatalf("%q is read back as %q: %v", s, back, err)
		}
	})
}

// unquote reads or refuses any bytes in the same way as encoding/json.
func TestTextsAreDecodedAsByTheLibrary(t *testing.T) {
	t.Parallel()
	escape := rapid.OneOf(rapid.SampledFrom([]string{`\n`, `\"`, `\\`, `\/`, `\u0041`, `\u00E9`, `\ud834\udd1e`, `\ud834`, `\u12`, `\x`, `\`, `"`}), rapid.Custom(aText))
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(`"` + strings.Join(rapid.SliceOfN(escape, 0, 6).Draw(t, "pieces"), "") + `"`)
		var got, want string
		err, wantErr := JSON.Unmarshal(data, &got), json.Unmarshal(data, &want)
		if got != want || (err == nil) != (wantErr == nil) {
			t.Fatalf("%q is read as %q (%v), want %q (%v)", data, got, err, want, wantErr)
		}
	})
}

func TestBytesAreEncodedAsByTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		if rapid.Bool().Draw(t, "some") {
			b = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		}
		got, err := JSON.Marshal(b)
		want, _ := json.Marshal(b)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v is stored as %s (%v), want %s", b, got, err, want)
		}
		if n := len(got); n > 2 && rapid.Bool().Draw(t, "damaged") {
			got[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}

		var back, wantBack []byte
		err, wantErr := JSON.Unmarshal(got, &back), json.Unmarshal(got, &wantBack)
		if !bytes.Equal(back, wantBack) || (back == nil) != (wantBack == nil) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%s is read back as %v (%v), want %v (%v)", got, back, err, wantBack, wantErr)
		}
	})
}

// clean and plain read eight bytes at a time. They stop at the same byte as a function that reads
// byte by byte. The test tries every pair of neighbouring bytes at every place of a word.
func TestScansStopAtTheFirstByte(t *testing.T) {
	t.Parallel()
	control := func(c byte) bool { return c < ' ' || c == '"' || c == '\\' }
	for pair := range 1 << 16 {
		for at := range 9 {
			text := []byte("0123456789abcdefgh")
			text[at], text[at+1] = byte(pair), byte(pair>>8)
			copied := bytes.IndexFunc(bytes.ToValidUTF8(text, []byte{1}), func(r rune) bool { return r >= utf8.RuneSelf || control(byte(r)) || r == '&' || r == '<' || r == '>' })
			if copied < 0 {
				copied = len(text)
			}
			if got := clean(string(text), 0); got != copied {
				t.Fatalf("clean stops at %d of %q, want %d", got, text, copied)
			}

			own := slices.IndexFunc(text, control)
			if own < 0 {
				own = len(text)
			}
			if got := plain(text, 0); got != own {
				t.Fatalf("plain stops at %d of %q, want %d", got, text, own)
			}
		}
	}
}

func BenchmarkText(b *testing.B) {
	const line = "an order of 3 items, \"express\", for the usual customer at the usual place\n"
	text := strings.Repeat(line, 64<<10/len(line))
	quoted, err := quote(text)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("quote", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			_, _ = quote(text)
		}
	})
	b.Run("unquote", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			_, _ = unquote(quoted)
		}
	})
}
