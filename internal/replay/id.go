package replay

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An ask is one request of workflow code, such as a step or a timer. Its identity, as text, is:
//
//	<coroutine path>/<kind><length>:<name>[/<key>][#<occurrence>]
//
// where the key is one of
//
//	k<length>:<key>
//	K<digest of a long key>
//	h<digest of the input>
//
// Name and key have their lengths in front, so that they may contain any characters. A digest
// replaces a key that is long or not text, so that every identity is short enough to store. If
// several requests have the same path, kind, name and key, the first one has no occurrence, the
// second one has #1, the third one #2, and so on. Histories store identities, so the format must
// not change.

// askKind is the kind of an ask. The letters are stored.
type askKind byte

const (
	askStep  askKind = 's'
	askTimer askKind = 't'
	askScope askKind = 'd' // the deadline of a scope
	askTaken askKind = 'g' // a signal was taken
	askChild askKind = 'c'
	askWatch askKind = 'w'
	askSend  askKind = 'x'
	askMark  askKind = 'v' // the version of a change
	askLabel askKind = 'l' // a label of the execution
	askState askKind = 'e' // state that the code set
	askReply askKind = 'u' // the answer to an update
	askPin   askKind = 'p'
	askLock  askKind = 'o' // a section that has entities locked
)

// title returns the name of the kind for errors; empty for an unknown one.
func (k askKind) title() string {
	switch k {
	case askStep:
		return "step"
	case askTimer, askScope:
		return "timer"
	case askTaken:
		return "the taking of signal"
	case askMark:
		return "the version of change"
	case askChild:
		return "child"
	case askWatch:
		return "the wait for execution"
	case askSend:
		return "message"
	case askState:
		return "state"
	case askLabel:
		return "label"
	case askReply:
		return "the answer to update"
	case askPin:
		return "the version of the workers"
	case askLock:
		return "lock"
	}

	return ""
}

const (
	maxKey  = 96 // longer keys are replaced by their digest
	maxPath = 64 // longer coroutine paths are replaced by their digest too
)

// digest returns 96 bits of SHA-256 as 16 characters.
func digest(b []byte) [16]byte {
	sum := sha256.Sum256(b)
	var text [16]byte
	base64.RawURLEncoding.Encode(text[:], sum[:12])
	return text
}

// childPath returns the path of the n-th coroutine that the coroutine at path has started.
func childPath(path string, n int) string {
	if path == "" {
		return strconv.Itoa(n)
	}
	p := path + "." + strconv.Itoa(n)
	if len(p) > maxPath {
		d := digest([]byte(p))
		p = "~" + string(d[:])
	}
	return p
}

// identity has the parts of the identity of an ask, except its path and its occurrence.
type identity struct {
	kind   askKind
	name   string
	key    string
	input  []byte
	keyed  bool    // identified by key
	hashed bool    // identified by input
	caller uintptr // where user code asks, if known
}

// append writes the identity without its occurrence.
func (id *identity) append(b []byte, path string) []byte {
	b = append(b, path...)
	b = append(b, '/', byte(id.kind))
	if id.name != "" {
		b = strconv.AppendInt(b, int64(len(id.name)), 10)
		b = append(b, ':')
		b = append(b, id.name...)
	}

	switch {
	case id.keyed && (len(id.key) > maxKey || !utf8.ValidString(id.key) || strings.IndexByte(id.key, 0) >= 0):
		d := digest([]byte(id.key))
		b = append(b, '/', 'K')
		b = append(b, d[:]...)
	case id.keyed:
		b = append(b, '/', 'k')
		b = strconv.AppendInt(b, int64(len(id.key)), 10)
		b = append(b, ':')
		b = append(b, id.key...)
	case id.hashed:
		d := digest(id.input)
		b = append(b, '/', 'h')
		b = append(b, d[:]...)
	}

	return b
}

// appendOccurrence writes the number of an ask among equal asks. The first has no number.
func appendOccurrence(b []byte, n int) []byte {
	if n == 0 {
		return b
	}
	b = append(b, '#')
	return strconv.AppendInt(b, int64(n), 10)
}

// parsedID is an identity that was read from the history. Errors name the parts of the identity.
// The worker also needs the parts if today's code encodes an input in another way, so that the ask
// has another digest than its record in the history. It then puts the identity together again, with
// the digest that the input has today (see machine.today).
type parsedID struct {
	path       string
	kind       askKind
	name       string
	key        string // the explicit key, unless it was replaced by a digest
	hashed     bool
	occurrence int
}

// parseID reads an identity. It reports false for a text that is not an identity.
func parseID(s string) (p parsedID, ok bool) {
	slash := strings.IndexByte(s, '/')
	if slash < 0 || slash+1 >= len(s) {
		return p, false
	}
	p.path, p.kind, s = s[:slash], askKind(s[slash+1]), s[slash+2:]
	if p.name, s, ok = readCounted(s); !ok {
		return p, false
	}

	if strings.HasPrefix(s, "/k") {
		if p.key, s, ok = readCounted(s[2:]); !ok {
			return p, false
		}
	} else if len(s) >= 18 && (s[:2] == "/h" || s[:2] == "/K") {
		p.hashed, s = s[1] == 'h', s[18:]
	}

	if s == "" {
		return p, true
	}
	if s[0] != '#' {
		return p, false
	}
	n, err := strconv.Atoi(s[1:])
	p.occurrence = n

	return p, err == nil && n > 0
}

// readCounted reads <length>:<text>. If s does not begin with a digit, the text is empty.
func readCounted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return "", s, true
	}
	digits, after, found := strings.Cut(s, ":")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n > len(after) {
		return "", s, false
	}
	return after[:n], after[n:], true
}

// joinCounted joins texts with their lengths, so that different parts give different results.
func joinCounted(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}
