package restapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// addRaw adds the operations that return the bytes of one value.
func (s *Server) addRaw() {
	const execution, entity = "/executions/{workflow}/{key}", "/entities/{entity}/{key}"
	addRaw(s, operation{id: "get-event-bytes", path: execution + "/events/{position}/{field}", tag: executionsTag, summary: "Read the bytes of the input or output of an event"}, s.eventBytes)
	addRaw(s, operation{id: "get-state-bytes", path: execution + "/states/{name}/bytes", tag: executionsTag, summary: "Read the bytes of a value that the code has set"}, s.stateBytes)
	addRaw(s, operation{id: "get-entity-bytes", path: entity + "/bytes", tag: entitiesTag, summary: "Read the bytes of the committed state of an entity"}, s.entityBytes)
	addRaw(s, operation{id: "get-mailbox-bytes", path: entity + "/mailbox/{id}/bytes", tag: entitiesTag, summary: "Read the bytes of the input of a waiting call"}, s.mailboxBytes)
}

// addRaw adds an operation that returns a value as it is stored.
func addRaw[I any](s *Server, o operation, find func(context.Context, *authn.Identity, *I) (model.Payload, string, error)) {
	o.method = http.MethodGet
	add(s, o, func(ctx context.Context, who *authn.Identity, in *I) (*huma.StreamResponse, error) {
		p, name, err := find(ctx, who, in)
		if err != nil {
			return nil, err
		}
		if len(p.Data) == 0 {
			return nil, fault.New(fault.NotFound, "there is no value %s", name)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) { sendRaw(hc, p) }}, nil
	})

	op := s.api.OpenAPI().Paths["/v1"+o.path].Get
	op.Description = "The value as it is stored. It has at most as many bytes as a payload may have. The header Perdure-Encoding has its encoding, if it is not plain JSON. Browsers save the value instead of showing it."
	bytes := &huma.Schema{Type: huma.TypeString, Format: "binary"}
	op.Responses["200"].Content = map[string]*huma.MediaType{"application/octet-stream": {Schema: bytes}, "application/json": {Schema: &huma.Schema{}}, "text/plain": {Schema: bytes}}
}

// sendRaw sends a value. A stored value may be an attack on browsers, such as a script. So browsers
// must neither guess its type nor show it.
func sendRaw(hc huma.Context, p model.Payload) {
	media, name := "application/octet-stream", "value.bin"
	switch p.Form() {
	case model.JSON:
		media, name = "application/json", "value.json"
	case model.Text:
		media, name = "text/plain; charset=utf-8", "value.txt"
	default:
		hc.SetHeader("Perdure-Encoding", p.Form())
	}
	hc.SetHeader("Content-Type", media)
	hc.SetHeader("Content-Disposition", `attachment; filename="`+name+`"`)
	hc.SetHeader("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	hc.SetHeader("Content-Length", strconv.Itoa(len(p.Data)))
	_, _ = hc.BodyWriter().Write(p.Data) // the client is gone if this fails
}

type eventBytesInput struct {
	TargetPath

	Position int64  `path:"position" minimum:"0" example:"0" doc:"The position of the event; event 0 has the input of the run, and the last event of a closed run has its output"`
	Field    string `path:"field" enum:"input,output" example:"input"`
}

func (s *Server) eventBytes(ctx context.Context, who *authn.Identity, in *eventBytesInput) (p model.Payload, name string, err error) {
	t, err := in.target(who)
	if err != nil {
		return p, "", err
	}
	e, err := history.At(ctx, s.config.Backend, t, in.Position)
	if err != nil {
		return p, "", err
	}
	p, name = e.Input, in.Field+" of event "+strconv.FormatInt(in.Position, 10)
	if in.Field == "output" {
		p = e.Output
	}
	return p, name, nil
}

func (s *Server) stateBytes(ctx context.Context, who *authn.Identity, in *stateInput) (p model.Payload, name string, err error) {
	t, err := in.target(who)
	if err != nil {
		return p, "", err
	}
	p, _, err = s.config.Backend.State(ctx, t, in.Name)
	return p, "of state " + in.Name, err
}

func (s *Server) entityBytes(ctx context.Context, who *authn.Identity, in *EntityPath) (p model.Payload, name string, err error) {
	got, err := s.config.Backend.Entity(ctx, in.address(who))
	return got.Entity.State.Bare(), "of the state of " + nameOf(in.address(who)), err
}

func (s *Server) mailboxBytes(ctx context.Context, who *authn.Identity, in *mailboxItemInput) (p model.Payload, name string, err error) {
	got, err := s.config.Backend.Mailbox(ctx, api.MailboxRequest{Address: in.address(who), Do: model.MailboxShow, ID: in.ID})
	if err == nil && len(got.Calls) > 0 {
		p = got.Calls[0].Input
	}
	return p, "of call " + in.ID, err
}
