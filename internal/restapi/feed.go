package restapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Times of streams of events.
const (
	// beatEvery is how often an idle stream sends a comment, so that proxies keep it open.
	beatEvery = 15 * time.Second
	// sendTime is how long a client may take to accept an event.
	sendTime = 30 * time.Second
)

// addFeed adds the stream of changes.
func (s *Server) addFeed() {
	o := operation{id: "watch-changes", method: http.MethodGet, path: "/changes", tag: "Changes", summary: "Follow what changes in the tenant, as server-sent events", waits: true}
	add(s, o, s.watch)
	op := s.api.OpenAPI().Paths["/v1/changes"].Get
	op.Description = "An event `changes` has a page of changes as JSON. Its id is the cursor. A client that connects again sends that id as Last-Event-ID, and misses nothing as long as the server still has the changes. A page with gap set says that changes were missed, so that the client must read its lists again."
	s.streams(op, streamEvent{"changes", reflect.TypeFor[changePage](), "ChangePage"})
}

type watchInput struct {
	LastEventID string `header:"Last-Event-ID" doc:"The id of the last event that the client has seen"`
	Cursor      string `query:"cursor" doc:"The same as Last-Event-ID, for clients that cannot set headers"`
	Class       string `query:"class" doc:"Only these classes, separated by commas: execution, task, entity, worker, setting"`
	Workflow    string `query:"workflow" doc:"Only these workflows, separated by commas; task:a is the activity a, entity:e the entity e"`
	Key         string `query:"key"`
	Kind        string `query:"kind" doc:"Only changes of these kinds, separated by commas: started, claimed, failed and so on"`
	Queue       string `query:"queue" doc:"Only changes of these queues and of their tasks, separated by commas"`
	Status      string `query:"status" doc:"Only changes after which the run has one of these statuses, separated by commas"`
}

// request returns what the input selects.
func (in *watchInput) request(tenant string) (api.WatchRequest, error) {
	r := api.WatchRequest{Tenant: tenant, Cursor: in.LastEventID}
	if r.Cursor == "" {
		r.Cursor = in.Cursor
	}
	r.Key = in.Key
	for word := range words(in.Class) {
		r.Classes = append(r.Classes, model.ChangeClass(word))
	}
	for word := range words(in.Workflow) {
		r.Types = append(r.Types, word)
	}
	for word := range words(in.Kind) {
		r.Kinds = append(r.Kinds, model.ChangeKind(word))
	}
	for word := range words(in.Queue) {
		r.Queues = append(r.Queues, word)
	}

	for word := range words(in.Status) {
		status, known := model.ParseStatus(word)
		if !known {
			return r, fault.New(fault.Invalid, "%.40q is not a status", word)
		}
		r.Statuses = append(r.Statuses, status)
	}

	return r, nil
}

// words yields the words of a list with commas.
func words(list string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for word := range strings.SplitSeq(list, ",") {
			if word != "" && !yield(word) {
				return
			}
		}
	}
}

// changePage is a page of changes.
type changePage struct {
	Changes []change `json:"changes"`
	Gap     bool     `json:"gap,omitempty" doc:"Whether changes before this page were missed, so that the client must read its lists again"`
	Partial bool     `json:"partial,omitempty" doc:"Whether other processes own executions whose changes are not in this feed"`
}

// change is something that has become durable.
type change struct {
	Class    string     `json:"class" enum:"execution,task,entity,worker,setting"`
	Kind     string     `json:"kind"`
	Workflow string     `json:"workflow,omitempty"`
	Key      string     `json:"key,omitempty"`
	Run      string     `json:"run,omitempty"`
	Task     string     `json:"task,omitempty"`
	Name     string     `json:"name,omitempty"`
	Of       string     `json:"of,omitempty"`
	Queue    string     `json:"queue,omitempty"`
	Status   string     `json:"status,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Locked   bool       `json:"locked,omitempty"`
	Seq      int64      `json:"seq,omitempty"`
	At       *time.Time `json:"at"`
}

func changeOf(c *model.Change) change {
	o := change{
		Class: string(c.Class), Kind: string(c.Kind), Workflow: c.Address.Type, Key: c.Address.Key, Task: c.Task, Name: c.Name, Of: c.Of, Queue: c.Queue,
		Reason: string(c.Reason), Locked: c.Locked, Seq: c.Seq, At: at(c.At),
	}
	if !c.Run.IsZero() {
		o.Run = c.Run.String()
	}
	if c.Status != 0 {
		o.Status = c.Status.String()
	}
	return o
}

// watch streams changes until the client leaves, the key of the client ends or the server stops.
func (s *Server) watch(_ context.Context, who *authn.Identity, in *watchInput) (*huma.StreamResponse, error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		e := &events{w: w, control: http.NewResponseController(w)}
		stop := func() {}
		defer func() { stop() }()
		began := false

		err := s.config.Backend.Watch(hc.Context(), r, func(p api.ChangePage) error {
			if !began { // the first page comes immediately if the request is valid
				began = true
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("X-Accel-Buffering", "no")
				stop = e.beat(hc.Context())
			}
			return e.send("changes", p.Cursor, changePage{each(p.Changes, changeOf), p.Gap, p.Partial})
		})

		switch {
		case err == nil || hc.Context().Err() != nil:
		case began:
			_ = e.send("problem", "", problemOf(err)) // the client is gone if this fails
		default:
			writeProblem(w, problemOf(err))
		}
	}}, nil
}

// events writes server-sent events.
type events struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

// send sends one event.
func (e *events) send(name, id string, data any) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", name)
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	b.WriteString("data: ")
	b.Write(text)
	b.WriteString("\n\n")
	return e.write(b.Bytes())
}

// write sends bytes. A client that does not accept them in time loses the stream.
func (e *events) write(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.control.SetWriteDeadline(time.Now().Add(sendTime)) // not all writers have deadlines
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.control.Flush()
}

// beat sends comments until stop is called or ctx ends.
func (e *events) beat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if e.write([]byte(": still here\n\n")) != nil {
					return // the next event fails as well
				}
			case <-ctx.Done():
				return
			}
		}
	})

	return func() {
		cancel()
		ended.Wait()
	}
}
