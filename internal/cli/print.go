package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/model"
)

// more tells people that a list is not complete.
func (o *options) more(more bool) {
	if more && !o.structured() {
		fmt.Fprintf(o.Err, "There are more; add --limit 0 to list all.\n")
	}
}

// when returns a time for programs, or an empty string for the zero time.
func when(t model.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}

// stamp returns a time for people, in UTC.
func stamp(t model.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Std().Format("2006-01-02 15:04:05.000Z")
}

// second returns a time for people without milliseconds, for narrow tables.
func second(t model.Time) string { return instantText(t.Std()) }

// orDash returns a time for narrow tables, with a dash for the zero time.
func orDash(t model.Time) string {
	if t.IsZero() {
		return "-"
	}
	return second(t)
}

// longest is how many bytes of a value a terminal shows without --full.
const longest = 500

// text returns a payload on one line. On a terminal it cuts a long payload, unless the user asks
// for --full.
func (o *options) text(p model.Payload) string {
	most := longest
	if o.full || o.Width == 0 {
		most = len(p.Data)
	}
	text := payload(p, most)
	if len(p.Data) > most && strings.HasSuffix(text, cutMark) {
		text += fmt.Sprintf(" (%d bytes; --full shows all)", len(p.Data))
	}
	return text
}

// dash returns a dash for an empty text.
func dash(s string) string { return cmp.Or(s, "-") }

// number returns a number for people, with a dash for 0.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// took returns the time between two times for people.
func took(from, to model.Time) string {
	if from.IsZero() || to.IsZero() {
		return "-"
	}
	return to.Sub(from).Round(time.Microsecond * 10).String()
}

// payload returns a payload on one line, shortened. If the bytes are not text, it returns their
// number.
func payload(p model.Payload, most int) string {
	p = p.Bare()
	switch {
	case len(p.Data) == 0:
		return ""
	case p.Encoding != model.JSON && p.Encoding != model.Text || !utf8.Valid(p.Data):
		return fmt.Sprintf("(%d bytes of %s)", len(p.Data), encoding(p))
	case len(p.Data) > most:
		cut := most
		for cut > 0 && !utf8.RuneStart(p.Data[cut]) {
			cut--
		}
		return string(p.Data[:cut]) + cutMark
	}
	return string(p.Data)
}

func encoding(p model.Payload) string {
	if p.Encoding == model.JSON {
		return "json"
	}
	return p.Form()
}

// raw returns a payload for JSON output. That is the value if it is JSON or text, and a description
// otherwise.
func raw(p model.Payload) any {
	p = p.Bare()
	if len(p.Data) == 0 {
		return nil
	}
	if p.Encoding == model.JSON && json.Valid(p.Data) {
		return json.RawMessage(p.Data)
	}
	if p.Encoding == model.Text && utf8.Valid(p.Data) {
		return string(p.Data)
	}
	return map[string]any{"encoding": encoding(p), "size": len(p.Data)}
}
