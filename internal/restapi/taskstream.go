package restapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// itemsPerMessage bounds the items of one message of a stream.
const itemsPerMessage = 200

// addTaskStream adds the stream of the items of one task.
func (s *Server) addTaskStream() {
	const path = "/executions/{workflow}/{key}/task-stream/events"
	o := operation{id: "watch-task-stream", method: http.MethodGet, path: path, tag: tasksTag, summary: "Follow the items that a task streams, as server-sent events", waits: true}
	add(s, o, s.watchTaskStream)
	op := s.api.OpenAPI().Paths["/v1"+path].Get
	op.Description = "An event `items` has the next items of the task. Its id has the run and the position of the last of these items. A client that connects again sends that id as Last-Event-ID, and misses nothing that the server still keeps. An event `end` follows the last item of a task that has ended, and then the stream ends. A client that comes back after that gets 204."
	s.streams(op, streamEvent{"items", reflect.TypeFor[taskItems](), "TaskItems"}, streamEvent{"end", reflect.TypeFor[endOfTask](), "EndOfTask"})
	op.Responses["204"] = &huma.Response{Description: "The task has ended, and there are no items after the position"}
}

type watchTaskInput struct {
	TaskPath

	LastEventID string `header:"Last-Event-ID" doc:"The id of the last message that the client has seen"`
	After       int64  `query:"after" minimum:"0" doc:"Only items after this position; ignored if there is a Last-Event-ID"`
}

// request returns where the stream starts. The id of a message names a run, because a retry gives a
// task another run, in which positions start again.
func (in *watchTaskInput) request(who *authn.Identity) (api.TaskStreamRequest, error) {
	t, err := in.task(who)
	r := api.TaskStreamRequest{TaskTarget: t, After: in.After, Limit: itemsPerMessage}
	if err != nil || in.LastEventID == "" {
		return r, err
	}

	run, text, _ := strings.Cut(in.LastEventID, ":")
	id, wrong := model.ParseRunID(run)
	after, err := strconv.ParseInt(text, 10, 64)
	if wrong != nil || err != nil || after < 0 {
		return r, fault.New(fault.Invalid, "Last-Event-ID is %.80q, must be the id of a message of this stream", in.LastEventID)
	}
	if in.Run != "" && id != r.Run {
		return r, fault.New(fault.Invalid, "Last-Event-ID belongs to run %s, but the request names another run", id)
	}
	r.Run, r.After = id, after
	return r, nil
}

// taskItems is a message of the stream.
type taskItems struct {
	Run   string       `json:"run"`
	Items []streamItem `json:"items"`
	Gap   bool         `json:"gap,omitempty" doc:"Whether items before these are no longer kept"`
}

// endOfTask is the last message of the stream.
type endOfTask struct {
	Run string `json:"run"`
}

// watchTaskStream streams the items of a task. The stream ends when the task ends, when the client
// disconnects, when the key of the client is no longer valid, or when the server stops.
func (s *Server) watchTaskStream(ctx context.Context, who *authn.Identity, in *watchTaskInput) (*huma.StreamResponse, error) {
	r, err := in.request(who)
	if err != nil {
		return nil, err
	}
	first, err := s.config.Backend.TaskStream(ctx, r) // fails if the request is invalid
	if err != nil {
		return nil, err
	}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		if first.Ended && len(first.Items) == 0 && r.After > 0 {
			w.WriteHeader(http.StatusNoContent) // tells browsers not to come back
			return
		}
		r.Run, r.Wait = first.Run, true
		f := &taskFollower{client: s.config.Backend, request: r, events: &events{w: w, control: http.NewResponseController(w)}}
		f.follow(hc.Context(), w, first)
	}}, nil
}

// taskFollower sends the items of a task.
type taskFollower struct {
	client  api.TaskData
	request api.TaskStreamRequest
	events  *events
}

// follow streams until the task or ctx ends.
func (f *taskFollower) follow(ctx context.Context, w http.ResponseWriter, page api.TaskStreamPage) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if f.events.write([]byte(": begun\n\n")) != nil {
		return
	}
	defer f.events.beat(ctx)()

	for {
		if over, err := f.send(&page); err != nil || over {
			return // the client is gone, or the task has ended
		}
		var err error
		if page, err = f.client.TaskStream(ctx, f.request); err != nil {
			if ctx.Err() == nil {
				_ = f.events.send("problem", "", problemOf(err)) // the client is gone if this fails
			}
			return
		}
	}
}

// send sends a page. It reports whether the task has ended.
func (f *taskFollower) send(page *api.TaskStreamPage) (over bool, err error) {
	if n := len(page.Items); n > 0 {
		out := taskItems{Run: page.Run.String(), Items: each(page.Items, itemOf), Gap: page.Items[0].Position > f.request.After+1}
		f.request.After = page.Items[n-1].Position
		if err := f.events.send("items", out.Run+":"+strconv.FormatInt(f.request.After, 10), out); err != nil {
			return false, err
		}
	}
	if page.Ended {
		return true, f.events.send("end", "", endOfTask{page.Run.String()})
	}
	return false, nil
}

func itemOf(i *model.StreamItem) streamItem {
	return streamItem{i.Position, at(i.At), value(i.Value)}
}
