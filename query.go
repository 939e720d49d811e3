package perdure

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// queryParser reads conditions joined by "and". Errors name the position.
type queryParser struct {
	text string
	pos  int
	req  api.ListRequest
}

func parseQuery(text string) (api.ListRequest, error) {
	p := &queryParser{text: text, req: api.ListRequest{Tenant: model.DefaultTenant}}
	if p.space(); p.pos == len(text) {
		return p.req, nil
	}
	for {
		if err := p.condition(); err != nil {
			return p.req, err
		}
		if p.space(); p.pos == len(p.text) {
			return p.req, nil
		}
		if at := p.pos; !strings.EqualFold(p.word(), "and") {
			return p.req, p.wrong(at, `"and" or the end`)
		}
	}
}

func (p *queryParser) wrong(at int, want string) error {
	return fault.New(fault.Invalid, "query, character %d: %s expected before %q", at+1, want, p.text[at:])
}

func (p *queryParser) space() {
	for p.pos < len(p.text) && unicode.IsSpace(rune(p.text[p.pos])) {
		p.pos++
	}
}

func (p *queryParser) word() string {
	p.space()
	from := p.pos
	for p.pos < len(p.text) && (p.text[p.pos] == '_' || unicode.IsLetter(rune(p.text[p.pos]))) {
		p.pos++
	}
	return p.text[from:p.pos]
}

func (p *queryParser) operator() string {
	p.space()
	for _, op := range []string{">=", "<=", "=", "<", ">"} {
		if strings.HasPrefix(p.text[p.pos:], op) {
			p.pos += len(op)
			return op
		}
	}
	return ""
}

// value reads a quoted text.
func (p *queryParser) value() (string, error) {
	p.space()
	quoted, err := strconv.QuotedPrefix(p.text[p.pos:])
	if err != nil {
		return "", p.wrong(p.pos, "a quoted text")
	}
	p.pos += len(quoted)
	return strconv.Unquote(quoted)
}

func (p *queryParser) condition() error {
	p.space()
	at := p.pos
	field := p.word()
	opAt := p.pos
	op := p.operator()
	valueAt := p.pos
	v, err := p.value()
	if err != nil {
		return err
	}
	if op != "=" && field != "started" {
		return p.wrong(opAt, `"="`)
	}
	switch field {
	case "workflow":
		p.req.Workflow = v
	case "key":
		if !strings.HasPrefix(p.text[p.pos:], "*") {
			return p.wrong(p.pos, "a star (keys are listed by how they begin)")
		}
		p.pos++
		p.req.KeyPrefix = v
	case "status":
		return p.status(v, valueAt)
	case "started":
		return p.started(op, opAt, v, valueAt)
	default:
		return p.wrong(at, "workflow, key, status or started")
	}
	return nil
}

func (p *queryParser) status(v string, at int) error {
	switch v {
	case "open":
		p.req.Statuses = []model.Status{model.Running}
	case "closed":
		p.req.Statuses = []model.Status{model.Completed, model.Failed, model.Canceled, model.Continued}
	default:
		st, ok := model.ParseStatus(v)
		if !ok {
			return p.wrong(at, "open, closed, running, completed, failed, canceled or continued")
		}
		p.req.Statuses = []model.Status{st}
	}
	return nil
}

func (p *queryParser) started(op string, opAt int, v string, at int) error {
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return p.wrong(at, "a time such as 2026-11-15T08:00:00Z")
	}
	switch op {
	case ">=":
		p.req.StartedFrom = model.TimeOf(t)
	case "<":
		p.req.StartedTo = model.TimeOf(t)
	default:
		return p.wrong(opAt, `">=" or "<"`)
	}
	return nil
}
