package restapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// addEvents adds the operations that read histories without their payloads.
func (s *Server) addEvents() {
	const one = "/executions/{workflow}/{key}"
	add(s, operation{id: "list-events", method: http.MethodGet, path: one + "/events", tag: executionsTag, summary: "Read the events of a run as JSON lines, without payloads"}, s.events)
	op := s.api.OpenAPI().Paths["/v1"+one+"/events"].Get
	op.Description = "Each line is an event. The header Perdure-Run has the id of the run, and Perdure-Events the number of its events. If the connection breaks before the end of the reply, lines are missing."
	line := s.api.OpenAPI().Components.Schemas.Schema(lineType, true, "EventLine")
	op.Responses["200"].Content = map[string]*huma.MediaType{linesType: {Schema: line}}
}

type eventsInput struct {
	TargetPath

	After   int64 `query:"after" minimum:"-1" default:"-1" doc:"Only events after this position"`
	Before  int64 `query:"before" minimum:"0" doc:"Only events before this position; 0 for no bound"`
	Limit   int64 `query:"limit" minimum:"1" maximum:"100000" default:"100000"`
	Last    bool  `query:"last" doc:"If there are more events than the limit, return the last ones instead of the first ones, still in ascending order"`
	Preview int   `query:"preview" minimum:"0" maximum:"1000" default:"80" doc:"How many bytes of each value of an event the reply shows"`
}

// eventLine is an event without its payloads.
type eventLine struct {
	Event

	Input  *preview `json:"input,omitempty"`
	Output *preview `json:"output,omitempty"`
}

// preview is the beginning of a value.
type preview struct {
	Bytes    int    `json:"bytes" doc:"The size of the whole value"`
	Encoding string `json:"encoding,omitempty" doc:"Absent for JSON"`
	Text     string `json:"text,omitempty" doc:"The first bytes of the value; absent if it is not text"`
}

func previewOf(p model.Payload, most int) *preview {
	if len(p.Data) == 0 {
		return nil
	}
	v := &preview{Bytes: len(p.Data), Encoding: p.Form()}
	if v.Encoding != model.JSON && v.Encoding != model.Text {
		return v // it may be encrypted or compressed
	}

	text := p.Data[:min(most, len(p.Data))]
	for len(text) > 0 && len(text) < len(p.Data) && !utf8.RuneStart(p.Data[len(text)]) {
		text = text[:len(text)-1] // do not cut a character
	}
	if utf8.Valid(text) {
		v.Text = string(text)
	}
	return v
}

// lineOf returns an event with at most this many bytes of each value.
func lineOf(e *model.Event, most int) eventLine {
	line := eventLine{Event: eventOf(e, false), Input: previewOf(e.Input, most), Output: previewOf(e.Output, most)}
	line.Size = 0
	return line
}

func (s *Server) events(ctx context.Context, who *authn.Identity, in *eventsInput) (*huma.StreamResponse, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	walk, err := history.Walk(ctx, s.config.Backend, t, history.Window{After: in.After, Before: in.Before, Limit: in.Limit, Last: in.Last})
	if err != nil {
		return nil, err
	}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", linesType)
		hc.SetHeader("Perdure-Run", walk.Run.String())
		hc.SetHeader("Perdure-Events", strconv.FormatInt(walk.Total, 10))
		out := bufio.NewWriterSize(hc.BodyWriter(), 64<<10)
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)

		err := walk.Each(hc.Context(), func(e *model.Event) error {
			return lines.Encode(lineOf(e, in.Preview))
		})
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			// Break the connection, so that the client does not mistake a part of the history for
			// all of it.
			panic(http.ErrAbortHandler)
		}
	}}, nil
}
