package payload

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// quote encodes a text as encoding/json does, byte for byte, in one pass. It refuses a text that is
// not valid UTF-8.
func quote(s string) ([]byte, error) {
	n := clean(s, 0)
	if n == len(s) {
		out := make([]byte, 0, len(s)+2)
		out = append(out, '"')
		out = append(out, s...)
		return append(out, '"'), nil
	}

	out := make([]byte, 0, len(s)+len(s)/16+16)
	out = append(out, '"')
	for begin := 0; ; {
		out = append(out, s[begin:n]...)
		if n == len(s) {
			return append(out, '"'), nil
		}

		if c := s[n]; c < utf8.RuneSelf {
			out = appendEscape(out, c)
			begin = n + 1
		} else {
			r, size := utf8.DecodeRuneInString(s[n:])
			if r == utf8.RuneError && size == 1 {
				return nil, errText
			}
			out = appendRune(out, r)
			begin = n + size
		}
		n = clean(s, begin)
	}
}

// appendRune writes a character of several bytes.
func appendRune(out []byte, r rune) []byte {
	switch r {
	case '\u2028':
		return append(out, `\u2028`...)
	case '\u2029':
		return append(out, `\u2029`...)
	}
	return utf8.AppendRune(out, r)
}

// quoteBytes encodes bytes as encoding/json does.
func quoteBytes(b []byte) []byte {
	if b == nil {
		return []byte("null")
	}
	out := make([]byte, 0, base64.StdEncoding.EncodedLen(len(b))+2)
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b)
	return append(out, '"')
}

// unquoteBytes reads bytes as encoding/json does. If it returns false, the caller must use
// encoding/json.
func unquoteBytes(data []byte) ([]byte, bool) {
	last := len(data) - 1
	if last < 1 || data[0] != '"' || data[last] != '"' || plain(data[1:last], 0) != last-1 {
		return nil, false
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(last-1))
	n, err := base64.StdEncoding.Decode(out, data[1:last])
	return out[:n], err == nil
}

// appendEscape writes the escape of a character.
func appendEscape(out []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '\\', '"':
		return append(out, '\\', c)
	case '\b':
		return append(out, '\\', 'b')
	case '\f':
		return append(out, '\\', 'f')
	case '\n':
		return append(out, '\\', 'n')
	case '\r':
		return append(out, '\\', 'r')
	case '\t':
		return append(out, '\\', 't')
	}
	return append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// Each constant has the same byte eight times.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// word returns eight bytes of a text, the first byte in the lowest bits. The compiler turns this
// function into one load, which it does not do for generic code.
func word(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// first returns the index of the first marked byte. At least one byte must be marked.
func first(marks uint64) int { return bits.TrailingZeros64(marks) >> 3 }

// below marks bytes that are smaller than n, by setting their highest bits. It marks some other
// bytes too. It may mark bytes from 0x80 on, which the caller must allow for. It may also mark any
// byte after the first smaller byte, so the caller must use only the first mark. The same is true
// of the function equal.
func below(x uint64, n byte) uint64 { return x - uint64(n)*ones }

// equal marks bytes that are equal to c.
func equal(x uint64, c byte) uint64 { return (x ^ uint64(c)*ones) - ones }

// clean returns the position of the first byte from i on that quote does not copy. Such a byte is a
// control character, a part of a character of several bytes, or one of " & < > \.
func clean(s string, i int) int {
	for ; i+8 <= len(s); i += 8 {
		if marks := unclean(word(s, i)); marks != 0 {
			return i + first(marks)
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || special(c) {
			return i
		}
	}
	return i
}

// unclean marks the bytes at which clean must stop.
func unclean(x uint64) uint64 {
	// " and & differ in one bit, and so do < and >.
	return (x | below(x, ' ') | equal(x|0x04*ones, '&') | equal(x|0x02*ones, '>') | equal(x, '\\')) & highs
}

// special reports whether quote writes an escape for a character of one byte.
func special(c byte) bool {
	return c < ' ' || c == '"' || c == '&' || c == '<' || c == '>' || c == '\\'
}

// unquote reads a JSON text as encoding/json does. If it returns false, the caller must use
// encoding/json: the text is wrong, has bytes that encoding/json would replace, or has rare
// escapes.
func unquote(data []byte) (string, bool) {
	last := len(data) - 1
	if last < 1 || data[0] != '"' || data[last] != '"' {
		return "", false
	}
	data = data[1:last]
	n := plain(data, 0)
	if n == len(data) {
		return string(data), utf8.Valid(data)
	}

	var out strings.Builder
	out.Grow(len(data))
	for begin := 0; ; {
		out.Write(data[begin:n])
		if n == len(data) {
			return out.String(), utf8.Valid(data)
		}
		if data[n] != '\\' {
			return "", false
		}
		size := unescape(&out, data[n:])
		if size == 0 {
			return "", false
		}
		begin = n + size
		n = plain(data, begin)
	}
}

// plain returns the position of the first byte from i on that unquote cannot copy. Such a byte is a
// control character, a quote or a backslash.
func plain(s []byte, i int) int {
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(s[i:])
		// unquote copies the bytes of characters of several bytes, so remove the marks of these
		// bytes.
		if marks := (below(x, ' ') | equal(x, '"') | equal(x, '\\')) &^ x & highs; marks != 0 {
			return i + first(marks)
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}

// unescape writes the character of an escape and returns the length of the escape. It returns 0 for
// an escape that it does not know.
func unescape(out *strings.Builder, s []byte) int {
	if len(s) < 2 {
		return 0
	}

	switch c := s[1]; c {
	case '"', '\\', '/':
		out.WriteByte(c)
	case 'b':
		out.WriteByte('\b')
	case 'f':
		out.WriteByte('\f')
	case 'n':
		out.WriteByte('\n')
	case 'r':
		out.WriteByte('\r')
	case 't':
		out.WriteByte('\t')
	case 'u':
		r, ok := hexRune(s[2:])
		if !ok {
			return 0
		}
		out.WriteRune(r)
		return 6
	default:
		return 0
	}
	return 2
}

// hexRune reads four hexadecimal digits. It refuses surrogates, because a single surrogate is not a
// character.
func hexRune(s []byte) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, c := range s[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, r < 0xd800 || r > 0xdfff
}
