package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/streamread"
)

// addEntityStream adds the operation that reads a stream of an entity.
func (s *Server) addEntityStream(path string) {
	add(s, operation{id: "stream-entity", method: http.MethodPost, path: path, tag: entitiesTag, summary: "Read a stream of an entity, as server-sent events", waits: true}, s.streamEntity)
	op := s.api.OpenAPI().Paths["/v1"+path].Post
	op.Description = "An event `items` has the next items, in order and each once. An event `end` follows the last item, and then the stream ends. A stream that ends with an event `problem`, or with no such event, has lost items: the client can read it again from the beginning. The code of the stream waits while the client is behind. A client that accepts nothing for 30 seconds loses the stream."
	s.streams(op, streamEvent{"items", reflect.TypeFor[entityItems](), "EntityItems"}, streamEvent{"end", reflect.TypeFor[endOfStream](), "EndOfStream"})
}

type streamInput struct {
	EntityPath

	Body struct {
		Stream string          `json:"stream" minLength:"1" example:"tail" doc:"The name of the stream"`
		Input  json.RawMessage `json:"input,omitempty"`
	}
}

// entityItems is a message of the stream.
type entityItems struct {
	Items []any `json:"items"`
}

// endOfStream is the last message of the stream.
type endOfStream struct {
	Items int `json:"items" doc:"How many items the stream had"`
}

// streamEntity reads a stream of an entity. The stream ends when the code of the entity ends it,
// when the server shuts down, when the client disconnects, or when the key of the client is no
// longer valid.
func (s *Server) streamEntity(ctx context.Context, who *authn.Identity, in *streamInput) (*huma.StreamResponse, error) {
	r := api.CallRequest{Address: in.address(who), Name: in.Body.Stream, Input: payload(in.Body.Input), View: true, Brief: true}
	reader, err := streamread.Open(ctx, s.config.Backend, r)
	if err != nil {
		return nil, err
	}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		ctx := hc.Context()
		defer reader.Close(ctx)
		defer reader.Keep(ctx)()
		sendItems(ctx, reader, w)
	}}, nil
}

// sendItems sends the items of a stream to a client.
func sendItems(ctx context.Context, reader *streamread.Reader, w http.ResponseWriter) {
	e := &events{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if e.write([]byte(": begun\n\n")) != nil {
		return // the client is gone
	}
	defer e.beat(ctx)()

	for sent := 0; ; {
		items, more, err := reader.Next(ctx)
		if len(items) > 0 && e.send("items", "", entityItems{each(items, func(p *model.Payload) any { return value(*p) })}) != nil {
			return // the client is gone
		}
		for range items {
			reader.Taken()
		}
		sent += len(items)

		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			_ = e.send("problem", "", problemOf(err)) // the client is gone if this fails
			return
		case !more:
			_ = e.send("end", "", endOfStream{sent})
			return
		}
	}
}
