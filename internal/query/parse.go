package query

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Parse reads a query. Distances such as -24h are relative to now.
func Parse(text string, now time.Time) (Query, error) {
	p := &parser{text: text, now: now, given: map[string]bool{}}
	if p.space(); p.pos == len(text) {
		return p.q, nil
	}
	for {
		if err := p.condition(); err != nil {
			return Query{}, err
		}
		if p.space(); p.pos == len(p.text) {
			return p.q, nil
		}
		if at := p.pos; !strings.EqualFold(p.word(), "and") {
			return Query{}, p.expectedError(at, `"and" or the end`)
		}
	}
}

// parser reads a query from left to right.
type parser struct {
	text string
	pos  int
	now  time.Time
	q    Query
	// given has the fields that have occurred in the query and may not occur again.
	given map[string]bool
}

// expectedError returns the error for unexpected text at a position.
func (p *parser) expectedError(at int, want string) error {
	place := "at the end"
	if rest := p.text[at:]; rest != "" {
		if r := []rune(rest); len(r) > 30 {
			rest = string(r[:30]) + "…"
		}
		place = "before " + strconv.Quote(rest)
	}
	return p.wrong(at, want+" expected "+place)
}

// wrong returns an error that names the character at a position.
func (p *parser) wrong(at int, what string) error {
	return fault.New(fault.Invalid, "query, character %d: %s", utf8.RuneCountInString(p.text[:at])+1, what)
}

// space skips white space.
func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// word reads a field, a keyword, or a time without quotes.
func (p *parser) word() string {
	p.space()
	from := p.pos
	for p.pos < len(p.text) && (model.IsLabelByte(p.text[p.pos]) || p.text[p.pos] == ':' || p.text[p.pos] == '+') {
		p.pos++
	}
	return p.text[from:p.pos]
}

// take reads a sign, if it is next.
func (p *parser) take(sign string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], sign) {
		return false
	}
	p.pos += len(sign)
	return true
}

// operator reads one of the operators of a field. A longer operator must come before its prefix.
func (p *parser) operator(ops ...string) (op string, err error) {
	p.space()
	at := p.pos
	for _, op := range ops {
		if op == "in" && strings.EqualFold(p.word(), op) || op != "in" && p.take(op) {
			return op, nil
		}
		p.pos = at
	}

	quoted := make([]string, len(ops))
	for i, op := range ops {
		quoted[i] = strconv.Quote(op)
	}
	last := len(quoted) - 1
	want := quoted[last]
	if last > 0 {
		want = strings.Join(quoted[:last], ", ") + " or " + want
	}

	return "", p.expectedError(at, want)
}

// readQuoted reads a text in quotes that is not empty.
func (p *parser) readQuoted() (string, error) {
	p.space()
	at := p.pos
	raw, single := singleQuoted(p.text[p.pos:])
	if !single {
		raw, _ = strconv.QuotedPrefix(p.text[p.pos:])
	}
	v, err := unquote(raw, single)
	if err != nil {
		return "", p.expectedError(at, `a text in quotes (" or ')`)
	}
	p.pos += len(raw)
	if v == "" {
		return "", p.wrong(at, "the text is empty")
	}
	return v, nil
}

// singleQuoted returns the text in single quotes at the beginning of a text.
func singleQuoted(text string) (raw string, ok bool) {
	if !strings.HasPrefix(text, "'") {
		return "", false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '\'':
			return text[:i+1], true
		}
	}
	return "", true
}

// unquote returns the content of a text in quotes. Single quotes mean the same as double quotes; Go
// would read them as a character.
func unquote(raw string, single bool) (string, error) {
	if !single || raw == "" {
		return strconv.Unquote(raw)
	}

	var double strings.Builder
	double.WriteByte('"')
	for body := raw[1 : len(raw)-1]; body != ""; {
		n := 1
		switch {
		case strings.HasPrefix(body, `\'`):
			double.WriteByte('\'')
			n = 2
		case body[0] == '\\':
			double.WriteString(body[:2])
			n = 2
		case body[0] == '"':
			double.WriteString(`\"`)
		default:
			double.WriteByte(body[0])
		}
		body = body[n:]
	}
	double.WriteByte('"')
	return strconv.Unquote(double.String())
}

// values reads the operand of an operator: one text, or after "in" several in parentheses. It calls
// read for each of them.
func (p *parser) values(op string, read func(v string, at int) error) error {
	one := func() error {
		p.space()
		at := p.pos
		v, err := p.readQuoted()
		if err != nil {
			return err
		}
		return read(v, at)
	}

	if op != "in" {
		return one()
	}
	if !p.take("(") {
		return p.expectedError(p.pos, `"("`)
	}

	for {
		if err := one(); err != nil {
			return err
		}
		if p.take(")") {
			return nil
		}
		if !p.take(",") {
			return p.expectedError(p.pos, `"," or ")"`)
		}
	}
}

// condition reads a field, an operator and its operand.
func (p *parser) condition() error {
	p.space()
	at := p.pos
	field := p.word()
	switch field {
	case "workflow", "key", "reason":
		if p.given[field] {
			return p.wrong(at, field+" is given twice")
		}
		p.given[field] = true
	}

	switch {
	case field == "workflow":
		return p.workflow()
	case field == "key":
		return p.key()
	case field == "status":
		return p.status()
	case field == "reason":
		return p.reason()
	case field == "started":
		return p.times(&p.q.StartedFrom, &p.q.StartedTo)
	case field == "closed":
		return p.times(&p.q.ClosedFrom, &p.q.ClosedTo)
	case strings.HasPrefix(field, "label."):
		return p.label(strings.TrimPrefix(field, "label."), at)
	}

	return p.expectedError(at, "workflow, key, status, reason, started, closed or label.<name>")
}

func (p *parser) workflow() error {
	op, err := p.operator("=", "in")
	if err != nil {
		return err
	}
	return p.values(op, func(v string, _ int) error {
		p.q.Workflows = append(p.q.Workflows, v)
		return nil
	})
}

func (p *parser) key() error {
	if _, err := p.operator("="); err != nil {
		return err
	}
	v, err := p.readQuoted()
	if err != nil {
		return err
	}
	if strings.HasPrefix(p.text[p.pos:], "*") {
		p.pos++
		p.q.KeyPrefix = v
	} else {
		p.q.Key = v
	}
	return nil
}

func (p *parser) status() error {
	p.space()
	at := p.pos
	op, err := p.operator("!=", "=", "in")
	if err != nil {
		return err
	}
	var some []model.Status

	err = p.values(op, func(word string, at int) error {
		named := statusesOf(word)
		if named == nil {
			return p.expectedError(at, "open, closed, "+strings.Join(names(statuses()), ", "))
		}
		some = append(some, named...)
		return nil
	})
	if err != nil {
		return err
	}

	// Several conditions on the status narrow the set that is left.
	left := p.q.Statuses
	if left == nil {
		left = statuses()
	}
	p.q.Statuses = slices.DeleteFunc(left, func(s model.Status) bool { return slices.Contains(some, s) == (op == "!=") })
	if len(p.q.Statuses) == 0 {
		return p.wrong(at, "no status is left that this and the conditions before it allow")
	}

	return nil
}

func (p *parser) reason() error {
	op, err := p.operator("=", "in")
	if err != nil {
		return err
	}
	return p.values(op, func(v string, at int) error {
		code := model.ReasonCode(v)
		if !slices.Contains(model.ReasonCodes(), code) {
			return p.expectedError(at, "a reason, one of "+join(model.ReasonCodes()))
		}
		p.q.Reasons = append(p.q.Reasons, code)
		return nil
	})
}

func join(codes []model.ReasonCode) string {
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

// times narrows an interval.
func (p *parser) times(from, to *model.Time) error {
	op, err := p.operator(">=", "<=", ">", "<")
	if err != nil {
		return err
	}
	t, err := p.time()
	if err != nil {
		return err
	}

	// The store counts microseconds. For >= and <, find the first microsecond at or after t. For >
	// and <=, find the first one after t.
	first := model.TimeOf(t)
	if first.Std().Before(t) {
		first++
	}

	if op == ">" || op == "<=" {
		if first.Std().Equal(t) {
			first++
		}
	}

	first = min(max(first, 1), model.MaxTime) // 0 would mean that the interval has no bound
	if op[0] == '>' {
		*from = max(*from, first)
	} else if *to == 0 || first < *to {
		*to = first
	}

	return nil
}

// time reads a time or a distance back from now, with or without quotes.
func (p *parser) time() (time.Time, error) {
	p.space()
	at := p.pos
	text := p.word()
	if text == "" {
		var err error
		if text, err = p.readQuoted(); err != nil {
			return time.Time{}, p.expectedError(at, "a time such as 2026-11-15T08:00:00Z, or a distance such as -24h")
		}
	}

	if d, err := time.ParseDuration(text); err == nil && strings.HasPrefix(text, "-") {
		return p.now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, p.expectedError(at, "a time such as 2026-11-15T08:00:00Z, or a distance such as -24h")
	}

	return t, nil
}

func (p *parser) label(name string, at int) error {
	if err := model.CheckLabelName(name); err != nil {
		return p.wrong(at, err.Error())
	}
	op, err := p.operator("!=", "=", "in")
	if err != nil {
		return err
	}

	c := model.LabelCondition{Name: name, Not: op == "!="}
	err = p.values(op, func(v string, at int) error {
		if err := model.CheckLabel(name, v); err != nil {
			return p.wrong(at, err.Error())
		}
		c.Values = append(c.Values, v)
		return nil
	})

	p.q.Labels = append(p.q.Labels, c)
	return err
}
