package restapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// linesType is the media type of exported histories.
const linesType = "application/jsonl"

// addPasts adds the operations on histories.
func (s *Server) addPasts() {
	const one = "/executions/{workflow}/{key}"
	b := s.config.Backend
	add(s, operation{id: "get-history", method: http.MethodGet, path: one + "/history", tag: executionsTag, summary: "Read the history of a run"}, s.history)
	add(s, operation{id: "export-execution", method: http.MethodGet, path: one + "/export", tag: executionsTag, summary: "Export the history of a run as JSON lines"}, s.export)
	add(s, operation{id: "import-execution", method: http.MethodPost, path: "/imports", tag: executionsTag, summary: "Import an exported history; an open run continues here", status: http.StatusCreated, body: maxImport, media: linesType}, s.importHistory)
	add(s, operation{id: "fork-execution", method: http.MethodPost, path: one + "/fork", tag: executionsTag, summary: "Start another execution with the past of a run"}, s.past(b.Fork))
	add(s, operation{id: "retry-execution", method: http.MethodPost, path: one + "/retry", tag: executionsTag, summary: "Continue a failed execution before its failed step"}, s.past(b.Retry))
	add(s, operation{id: "reset-execution", method: http.MethodPost, path: one + "/reset", tag: executionsTag, summary: "Start the current run again from an earlier position"}, s.past(b.Reset))
	add(s, operation{id: "delete-execution", method: http.MethodDelete, path: one, tag: executionsTag, summary: "Delete a closed execution with all its runs"}, s.deleteExecution)
}

type historyInput struct {
	TargetPath

	After    int64 `query:"after" minimum:"-1" default:"-1" doc:"Return the events after this position"`
	Limit    int   `query:"limit" minimum:"1" maximum:"1000" default:"500"`
	Payloads bool  `query:"payloads" default:"true" doc:"Whether events have their inputs and outputs; if not, they have only the size of both"`
}

// historyPage is a page of events.
type historyPage struct {
	Run    string  `json:"run"`
	Events []Event `json:"events"`
	More   bool    `json:"more" doc:"Whether there are more events; ask for them with the position of the last event"`
}

func (s *Server) history(ctx context.Context, who *authn.Identity, in *historyInput) (*reply[historyPage], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.History(ctx, api.HistoryRequest{Target: t, After: in.After, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	events := each(got.Events, func(e *model.Event) Event { return eventOf(e, in.Payloads) })
	return ok(historyPage{got.Run.String(), events, got.More})
}

// export streams a history. If it cannot write the whole history, it breaks the connection, so that
// the client does not mistake a part of the history for all of it.
func (s *Server) export(ctx context.Context, who *authn.Identity, in *TargetPath) (*huma.StreamResponse, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	if _, err := s.config.Backend.Describe(ctx, t); err != nil {
		return nil, err
	}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", linesType)
		out := bufio.NewWriterSize(hc.BodyWriter(), 64<<10)
		err := history.Export(hc.Context(), s.config.Backend, t, out)
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

type importInput struct {
	RequestHeader

	Key     string `query:"key" doc:"The key to import under, instead of the exported one"`
	DryRun  bool   `query:"dry_run"`
	RawBody []byte `contentType:"application/jsonl"`
}

type pastOutput struct {
	Body begun
}

// begun names the run that was started, and the events of another run that it starts with.
type begun struct {
	Workflow     string  `json:"workflow"`
	Key          string  `json:"key"`
	Run          string  `json:"run,omitempty" doc:"Absent after a dry run"`
	Status       string  `json:"status,omitempty"`
	Kept         int64   `json:"kept" doc:"How many events of the source it starts with"`
	Total        int64   `json:"total" doc:"How many events the source has"`
	LeftOut      []int64 `json:"left_out" doc:"The positions of events before the cut that are left out; a blank event takes the place of each"`
	Added        []int64 `json:"added" doc:"The positions of events after the cut that are kept as well"`
	WatchedAgain []int64 `json:"watched_again" doc:"The positions of the starts of children whose ends the new run waits for again"`
	DryRun       bool    `json:"dry_run"`
}

func begunOf(r *api.PastReply, dry bool) begun {
	position := func(e *model.Event) int64 { return e.Seq }
	b := begun{
		Workflow: r.Address.Type, Key: r.Address.Key, Kept: r.Position, Total: r.Total, DryRun: dry,
		LeftOut: each(r.Blanks, position), Added: each(r.Added, position), WatchedAgain: each(r.Again, position),
	}
	if !dry {
		b.Run, b.Status = r.Run.String(), r.Status.String()
	}
	return b
}

func (s *Server) importHistory(ctx context.Context, who *authn.Identity, in *importInput) (*pastOutput, error) {
	h, err := history.Read(bytes.NewReader(in.RawBody))
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.Import(ctx, api.ImportRequest{History: *h, Tenant: who.Tenant, Key: in.Key, RequestID: in.RequestID, DryRun: in.DryRun})
	if err != nil {
		return nil, err
	}
	return &pastOutput{begunOf(&got, in.DryRun)}, nil
}

// pastBody says which past a run starts with.
type pastBody struct {
	Key    string   `json:"key,omitempty" doc:"The key of the new execution; only for a fork"`
	Before string   `json:"before,omitempty" doc:"Keep the events before the first event of this step"`
	After  *int64   `json:"after,omitempty" minimum:"0" doc:"Keep the events up to this position"`
	Set    []setOne `json:"set,omitempty" doc:"Results of steps to replace; only for a fork"`
	Reuse  string   `json:"reuse,omitempty" enum:"never,if_failed,always" doc:"Only for a fork"`
	DryRun bool     `json:"dry_run,omitempty" doc:"Only return what the call would keep"`
}

// setOne replaces the result of a step.
type setOne struct {
	Step     string          `json:"step,omitempty"`
	Position int64           `json:"position,omitempty" doc:"The position of the outcome to replace; by default the first outcome of the step"`
	Output   json.RawMessage `json:"output"`
}

type pastInput struct {
	TargetPath
	RequestHeader

	Body *pastBody `required:"false"`
}

// past returns the handler of an operation that starts a run with the past of another run.
func (s *Server) past(call func(context.Context, api.PastRequest) (api.PastReply, error)) func(context.Context, *authn.Identity, *pastInput) (*pastOutput, error) {
	return func(ctx context.Context, who *authn.Identity, in *pastInput) (*pastOutput, error) {
		t, err := in.target(who)
		if err != nil {
			return nil, err
		}
		b := in.Body
		if b == nil {
			b = &pastBody{}
		}
		r := api.PastRequest{Source: t, Key: b.Key, Before: b.Before, Reuse: reuses[b.Reuse], RequestID: in.RequestID, DryRun: b.DryRun}
		if b.After != nil {
			if b.Before != "" {
				return nil, fault.New(fault.Invalid, "before and after exclude each other")
			}
			r.After, r.Placed = *b.After, true
		}
		for _, e := range b.Set {
			r.Edits = append(r.Edits, api.Edit{Step: e.Step, Position: e.Position, Output: payload(e.Output)})
		}

		got, err := call(ctx, r)
		if err != nil {
			return nil, err
		}
		return &pastOutput{begunOf(&got, b.DryRun)}, nil
	}
}

type deleteInput struct {
	TargetPath
	RequestHeader

	DryRun bool `query:"dry_run" doc:"Only return what the call would delete"`
}

// deleted names the removed runs.
type deleted struct {
	Runs   []string `json:"runs"`
	DryRun bool     `json:"dry_run"`
}

func (s *Server) deleteExecution(ctx context.Context, who *authn.Identity, in *deleteInput) (*reply[deleted], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.Delete(ctx, api.DeleteRequest{Target: t, RequestID: in.RequestID, DryRun: in.DryRun})
	if err != nil {
		return nil, err
	}
	return ok(deleted{each(got.Runs, func(id *model.RunID) string { return id.String() }), in.DryRun})
}
