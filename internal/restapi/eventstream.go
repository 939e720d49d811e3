package restapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const (
	// eventsPerMessage bounds the events of one message of a stream.
	eventsPerMessage = 200
	// lookEvery is how often a stream looks for events while another process may own the run. The
	// feed may not have the changes of such a run.
	lookEvery = time.Second
)

// addEventStream adds the stream of the events of one run.
func (s *Server) addEventStream() {
	const path = "/executions/{workflow}/{key}/event-stream"
	o := operation{id: "watch-events", method: http.MethodGet, path: path, tag: executionsTag, summary: "Follow the events of a run as server-sent events, without payloads", waits: true}
	add(s, o, s.watchEvents)
	op := s.api.OpenAPI().Paths["/v1"+path].Get
	op.Description = "A message `events` has the next events of the history of the run. The id of the message is the position of the last of these events. A client that connects again sends that id as Last-Event-ID, and misses nothing. A message `end` follows the last event of a run that has ended, and then the stream ends. A client that comes back after that gets 204."
	s.streams(op, streamEvent{"events", reflect.TypeFor[eventPage](), "EventPage"}, streamEvent{"end", reflect.TypeFor[endOfRun](), "EndOfRun"})
	op.Responses["204"] = &huma.Response{Description: "The run has ended, and there are no events after the position"}
}

type watchEventsInput struct {
	TargetPath

	LastEventID string `header:"Last-Event-ID" doc:"The id of the last message that the client has seen"`
	After       int64  `query:"after" minimum:"-1" default:"-1" doc:"Only events after this position; ignored if there is a Last-Event-ID"`
	Preview     int    `query:"preview" minimum:"0" maximum:"1000" default:"80" doc:"How many bytes of each value of an event the reply shows"`
}

// position returns the position after which the stream begins.
func (in *watchEventsInput) position() (after int64, err error) {
	if in.LastEventID == "" {
		return in.After, nil
	}
	after, err = strconv.ParseInt(in.LastEventID, 10, 64)
	if err != nil || after < -1 {
		return 0, fault.New(fault.Invalid, "Last-Event-ID is %.40q, must be the id of a message of this stream", in.LastEventID)
	}
	return after, nil
}

// eventPage is a message of the stream.
type eventPage struct {
	Run    string      `json:"run"`
	Events []eventLine `json:"events"`
}

// endOfRun is the last message of the stream.
type endOfRun struct {
	Run    string `json:"run"`
	Status string `json:"status"`
}

// watchEvents streams the events of a run. The stream ends when the run ends, when the client
// disconnects, when the key of the client is no longer valid, or when the server stops.
func (s *Server) watchEvents(ctx context.Context, who *authn.Identity, in *watchEventsInput) (*huma.StreamResponse, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	after, err := in.position()
	if err != nil {
		return nil, err
	}
	d, err := s.config.Backend.Describe(ctx, t)
	if err != nil {
		return nil, err
	}
	f := &eventFollower{client: s.config.Backend, target: api.Target{Address: t.Address, Run: d.Start.Run}, after: after, preview: in.Preview}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		if d.Outcome.Status.Closed() && after >= d.Events-1 {
			w.WriteHeader(http.StatusNoContent) // tells browsers not to come back
			return
		}
		f.follow(hc.Context(), w)
	}}, nil
}

// eventFollower sends the events of a run. It reads them from the history. A change in the feed
// only says that there may be new events.
type eventFollower struct {
	client  api.Backend
	target  api.Target
	after   int64 // the position of the last event that was sent
	preview int
}

// follow streams until the run or ctx ends.
func (f *eventFollower) follow(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancel(ctx)
	news, ended := f.listen(ctx)
	defer func() {
		cancel()
		<-ended.done
	}()
	e := &events{w: w, control: http.NewResponseController(w)}
	stop, began, partial := func() {}, false, false
	defer func() { stop() }()

	for {
		select {
		case partial = <-news:
		case <-poll(began && partial):
		case <-ended.done:
			f.fail(ctx, e, began, ended.err)
			return
		case <-ctx.Done():
			return
		}
		if !began { // the feed has accepted the watch and reports all changes from now on
			began = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("X-Accel-Buffering", "no")
			if e.write([]byte(": begun\n\n")) != nil {
				return
			}
			stop = e.beat(ctx)
		}
		if over, err := f.send(ctx, e); err != nil || over {
			f.fail(ctx, e, began, err)
			return
		}
	}
}

// poll returns a channel that becomes ready after lookEvery. If polling is not needed, because the
// feed has all changes, the channel never becomes ready.
func poll(needed bool) <-chan time.Time {
	if !needed {
		return nil
	}
	return time.After(lookEvery)
}

// feedEnd is how a watch has ended. err is valid after done is closed.
type feedEnd struct {
	done chan struct{}
	err  error
}

// listen returns a channel. Until ctx ends, the channel gets a value whenever the run may have
// changed. The value says whether the feed may miss changes of the run.
func (f *eventFollower) listen(ctx context.Context) (<-chan bool, *feedEnd) {
	r := api.WatchRequest{Tenant: f.target.Address.Tenant}
	r.Classes = []model.ChangeClass{model.ClassExecution, model.ClassTask}
	r.Types, r.Key = []string{f.target.Address.Type}, f.target.Address.Key

	news, end := make(chan bool), &feedEnd{done: make(chan struct{})}
	go func() {
		defer close(end.done)
		end.err = f.client.Watch(ctx, r, func(p api.ChangePage) error {
			select {
			case news <- p.Partial:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return news, end
}

// send sends the events that the client does not have yet. It reports whether the run is over.
func (f *eventFollower) send(ctx context.Context, e *events) (over bool, err error) {
	for {
		page, err := f.client.History(ctx, api.HistoryRequest{Target: f.target, After: f.after, Limit: eventsPerMessage})
		if err != nil || len(page.Events) == 0 {
			return false, err
		}
		out := eventPage{Run: page.Run.String(), Events: make([]eventLine, len(page.Events))}
		for i := range page.Events {
			out.Events[i] = lineOf(&page.Events[i], f.preview)
		}
		last := &page.Events[len(page.Events)-1]
		if err := e.send("events", strconv.FormatInt(last.Seq, 10), out); err != nil {
			return false, err
		}

		f.after = last.Seq
		if last.Kind == model.EventClosed {
			return true, e.send("end", "", endOfRun{page.Run.String(), last.Status.String()})
		}
		if !page.More {
			return false, nil
		}
	}
}

// fail tells the client why the stream ends, unless the client has left.
func (f *eventFollower) fail(ctx context.Context, e *events, began bool, err error) {
	switch {
	case err == nil || ctx.Err() != nil:
	case began:
		_ = e.send("problem", "", problemOf(err)) // the client is gone if this fails
	default:
		writeProblem(e.w, problemOf(err))
	}
}
