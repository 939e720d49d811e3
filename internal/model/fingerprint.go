package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fingerprint returns 16 hex digits that are the same for similar failures: failures of the same
// kind and type whose messages differ only in details. Details are numbers, ids, hex, times,
// addresses of hosts and people, quoted texts, and the length of lists of these.
//
// With it, an operator who looks at a thousand failures can see, for example, that only three
// different problems caused them. Two problems may share a fingerprint, so no code may rely on it
// being unique.
func (f *Failure) Fingerprint() string {
	if f == nil {
		f = &Failure{}
	}
	h := sha256.New()
	for _, part := range [...]string{f.Kind, f.Type, pattern(f.Message)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// blank replaces the parts of a message that are different in every failure.
const blank = "#"

// maxPattern is how many bytes of a pattern the fingerprint includes. The rest rarely differs
// between two problems.
const maxPattern = 512

// pattern returns a message with its details replaced by blanks.
func pattern(message string) string {
	p := patternWriter{}
	for rest := message; rest != "" && len(p.out) < maxPattern; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case unicode.IsSpace(r):
			p.space = true
			rest = rest[size:]
		case r == '"' || r == '`' || r == '\'' || r == '“' || r == '‘' || r == '«':
			n := quotedLength(rest, r, size)
			if n == 0 { // the quote is never closed: an ordinary character
				p.text(rest[:size])
				n = size
			} else {
				p.blank()
			}
			rest = rest[n:]
		case isWordRune(r):
			n := strings.IndexFunc(rest, func(r rune) bool { return !isWordRune(r) && r != '\'' })
			if n < 0 {
				n = len(rest)
			}
			if strings.Contains(rest[:n], "://") { // URLs have other characters too
				if n = strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'`<>()[]{}", r) }); n < 0 {
					n = len(rest)
				}
			}
			p.word(rest[:n])
			rest = rest[n:]
		default:
			p.text(rest[:size])
			rest = rest[size:]
		}
	}

	out := strings.TrimRight(string(p.out), " ")
	return out[:min(len(out), maxPattern)]
}

// isWordRune reports whether a character is part of a word: of a name, a number, an id, an address.
func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.:/@%+", r)
}

// quotedLength returns the length of the quoted text at the beginning of s, or 0 when the closing
// quote is missing. An apostrophe inside a word is not a closing quote.
func quotedLength(s string, open rune, size int) int {
	end := map[rune]rune{'“': '”', '‘': '’', '«': '»'}[open]
	if end == 0 {
		end = open
	}

	escaped := false
	for i, r := range s[size:] {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == end:
			after := size + i + utf8.RuneLen(r)
			if next, _ := utf8.DecodeRuneInString(s[after:]); end == '\'' && (unicode.IsLetter(next) || unicode.IsDigit(next)) {
				continue
			}
			return after
		}
	}

	return 0
}

// patternWriter builds a pattern.
type patternWriter struct {
	out   []byte
	space bool // write a space before the next text
	// last is the end of the last blank, if only separators of lists have been written since;
	// otherwise 0.
	last int
}

// text writes a text as it is.
func (p *patternWriter) text(s string) {
	if p.space && len(p.out) > 0 {
		p.out = append(p.out, ' ')
	}
	p.space = false
	p.out = append(p.out, s...)
	if s != "," && s != ";" && s != "|" {
		p.last = 0
	}
}

// blank writes a blank. It writes only one blank for a whole list of details.
func (p *patternWriter) blank() {
	if p.last > 0 {
		p.out, p.space = p.out[:p.last], false
		return
	}
	p.text(blank)
	p.last = len(p.out)
}

// word writes a word. It replaces parts that are numbers, ids or addresses by blanks.
func (p *patternWriter) word(w string) {
	body := strings.TrimRight(w, ".:-/'+%,;")
	tail := w[len(body):]
	switch scheme, _, url := strings.Cut(body, "://"); {
	case body == "":
	case url:
		p.text(scheme + "://" + blank)
		tail = strings.TrimLeft(tail, "/")
	case strings.Contains(strings.Trim(body, "@"), "@"), isAddress(body):
		p.blank()
	default:
		p.parts(body)
	}
	if tail = strings.Trim(tail, "%"); tail != "" {
		p.text(tail)
	}
}

// parts writes the parts between colons and slashes, each as it is or as a blank.
func (p *patternWriter) parts(body string) {
	for body != "" {
		n := strings.IndexAny(body, ":/")
		switch {
		case n < 0:
			n = len(body)
		case n == 0:
			p.text(body[:1])
			body = body[1:]
			continue
		}
		if isVariable(body[:n]) {
			p.blank()
		} else {
			p.text(body[:n])
		}
		body = body[n:]
	}
}

// isVariable reports whether a part of a word is a detail that differs between failures: it has a
// digit, or it consists of so many hex digits that it is not a word.
func isVariable(part string) bool {
	const shortestHex = 8
	return strings.ContainsFunc(part, unicode.IsDigit) || len(part) >= shortestHex && !strings.ContainsFunc(part, notHex)
}

// isAddress reports whether a word is a network address: hex digits between colons.
func isAddress(w string) bool {
	return strings.Count(w, ":") >= 2 && !strings.ContainsFunc(w, func(r rune) bool { return r != ':' && r != '.' && notHex(r) })
}

func notHex(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f' || r >= 'A' && r <= 'F')
}
