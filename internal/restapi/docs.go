package restapi

import (
	"embed"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// assets is the page that shows the document. It loads nothing from other servers.
//
//go:embed assets
var assets embed.FS

// streamEvent is one kind of event of a stream, for the document.
type streamEvent struct {
	name   string
	data   reflect.Type
	schema string // the name of the type in the document
}

// streams describes in the document that an operation sends server-sent events of these kinds.
// Every stream can also end with the event problem.
func (s *Server) streams(op *huma.Operation, kinds ...streamEvent) {
	all := make([]*huma.Schema, 0, len(kinds)+1)
	for _, kind := range append(kinds, streamEvent{"problem", reflect.TypeFor[Problem](), "Problem"}) {
		data := &huma.Schema{Type: huma.TypeString, Description: "JSON of the type " + kind.schema, Extensions: map[string]any{
			"contentMediaType": "application/json", "contentSchema": s.api.OpenAPI().Components.Schemas.Schema(kind.data, true, kind.schema),
		}}
		all = append(all, &huma.Schema{Type: huma.TypeObject, Required: []string{"event", "data"}, Properties: map[string]*huma.Schema{
			"event": {Type: huma.TypeString, Enum: []any{kind.name}}, "id": {Type: huma.TypeString}, "data": data,
		}})
	}
	op.Responses["200"].Content = map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{OneOf: all}}}
}

// lineType is the type of a line of events.
var lineType = reflect.TypeFor[eventLine]()

// addDocs adds the document and the page that shows it. Neither of them needs a key, because they
// show no data.
func (s *Server) addDocs() {
	s.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_ = json.NewEncoder(w).Encode(s.api.OpenAPI()) // the client is gone if this fails
	})

	s.mux.HandleFunc("GET /v1/openapi-3.0.json", func(w http.ResponseWriter, _ *http.Request) {
		text, err := s.Document30()
		if err != nil {
			writeProblem(w, problemOf(err))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.0")
		_, _ = w.Write(text) // the client is gone if this fails
	})

	for path, file := range map[string]struct{ name, media string }{
		"/v1/docs":          {"docs.html", "text/html; charset=utf-8"},
		"/v1/docs/docs.js":  {"docs.js", "text/javascript; charset=utf-8"},
		"/v1/docs/docs.css": {"docs.css", "text/css; charset=utf-8"},
	} {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			text, err := assets.ReadFile("assets/" + file.name)
			if err != nil {
				writeProblem(w, problemOf(err))
				return
			}
			w.Header().Set("Content-Type", file.media)
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'")
			_, _ = w.Write(text) // the client is gone if this fails
		})
	}

	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.refuse(w, r, errGone(r)) })
}

// Document returns the OpenAPI document as JSON.
func (s *Server) Document() ([]byte, error) { return json.MarshalIndent(s.api.OpenAPI(), "", "  ") }

// Document30 returns the document in version 3.0 of OpenAPI, for generators that do not read 3.1.
func (s *Server) Document30() ([]byte, error) {
	text, err := s.api.OpenAPI().Downgrade()
	if err != nil {
		return nil, err
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	remove31(document)
	return json.MarshalIndent(document, "", "  ")
}

// remove31 removes what version 3.0 does not allow: all properties next to a $ref, and the
// properties that describe the content of strings.
func remove31(part any) {
	switch p := part.(type) {
	case map[string]any:
		if _, ok := p["$ref"].(string); ok {
			maps.DeleteFunc(p, func(name string, _ any) bool { return name != "$ref" })
			return
		}
		delete(p, "contentMediaType")
		delete(p, "contentSchema")
		for _, inner := range p {
			remove31(inner)
		}
	case []any:
		for _, inner := range p {
			remove31(inner)
		}
	}
}
