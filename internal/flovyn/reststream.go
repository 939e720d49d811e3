package flovyn

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Times and bounds of event streams.
const (
	streamComment = 15 * time.Second
	streamIdle    = 5 * time.Minute
	// streamLook is the pause between two reads of the history of a workflow.
	streamLook = 500 * time.Millisecond
	// maxStreamed is how many tasks and executions one stream follows.
	maxStreamed = 100
	// maxMissing is the number of times that a stream looks again for a task that does not exist
	// yet.
	maxMissing = 20
)

// streamTask sends what a task streams, as server-sent events.
func streamTask(c *call) (int, any, error) {
	a, err := c.task()
	if err != nil {
		return 0, nil, err
	}
	return c.stream(a, false)
}

// streamFlow sends what happens to a workflow, and what its tasks stream.
func streamFlow(c *call) (int, any, error) { return c.streamFlow(false) }

// streamAll sends what happens to a workflow and its children, and what their tasks stream.
func streamAll(c *call) (int, any, error) { return c.streamFlow(true) }

func (c *call) streamFlow(children bool) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	return c.stream(a, children)
}

// streamed is something that a stream sends, or the address of a further task or execution to
// follow.
type streamed struct {
	source   string // the source of the position
	position int64
	event    string
	data     []byte
	follow   *model.Address
}

// feed reads the sources of a stream: tasks and executions. Each source has one goroutine that
// reads it. Only the stream itself writes.
type feed struct {
	c        *call
	children bool
	items    chan streamed
	ended    chan struct{}
	// last is the last position of each source that the client has received.
	last map[string]int64
	open int
	all  int
}

// sourceOf returns the name of a source in the ids of stream events. It is the end of the id of the
// execution, which differs between sources.
func sourceOf(a model.Address) string { return a.Key[max(len(a.Key)-12, 0):] }

// stream follows a task or a workflow until everything has ended, nothing has happened for a long
// time, the client leaves, or the server shuts down.
func (c *call) stream(a model.Address, children bool) (int, any, error) {
	last, err := readPositions(c.r.Header.Get("Last-Event-ID"), sourceOf(a))
	if err != nil {
		return 0, nil, err
	}
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("Cache-Control", "no-cache")
	c.w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(c.w)
	_ = out.SetWriteDeadline(time.Time{}) // the stream ends by its own rules
	_ = out.Flush()

	f := &feed{c: c, children: children, items: make(chan streamed), ended: make(chan struct{}), last: last}
	f.follow(a)
	// The readers end with the request. They must not wait for a writer that is gone.
	defer func() {
		go func(open int) {
			for ; open > 0; open-- {
				<-f.ended
			}
		}(f.open)
	}()
	f.write(out)
	return 0, nil, nil
}

// write writes the events of all sources until the stream ends.
func (f *feed) write(out *http.ResponseController) {
	comment := time.NewTicker(streamComment)
	defer comment.Stop()
	quiet := time.NewTimer(streamIdle)
	defer quiet.Stop()
	for f.open > 0 {
		select {
		case s := <-f.items:
			if s.follow != nil {
				f.follow(*s.follow)
				continue
			}
			f.last[s.source] = s.position
			fmt.Fprintf(f.c.w, "id: %s\nevent: %s\ndata: %s\n\n", f.positions(), s.event, strings.NewReplacer("\n", " ", "\r", " ").Replace(string(s.data)))
			quiet.Reset(streamIdle)
		case <-comment.C:
			fmt.Fprint(f.c.w, ": still here\n\n")
		case <-f.ended:
			f.open--
			continue
		case <-quiet.C:
			return
		case <-f.c.d.open.Done():
			return
		case <-f.c.Done():
			return
		}

		if out.Flush() != nil {
			return
		}
	}
}

// follow adds a source, unless the stream already follows maxStreamed sources.
func (f *feed) follow(a model.Address) {
	if f.all >= maxStreamed {
		return
	}
	f.all++
	f.open++
	after := f.last[sourceOf(a)]
	read := f.readTask
	if strings.HasPrefix(a.Type, Prefix) {
		read = f.readFlow
	}
	go func() {
		defer func() { f.ended <- struct{}{} }()
		read(a, after)
	}()
}

// put passes something to the writer. It returns false if the writer has ended.
func (f *feed) put(s streamed) bool {
	select {
	case f.items <- s:
		return true
	case <-f.c.Done():
		return false
	}
}

// pause waits for a moment. It returns false when the client has left.
func (f *feed) pause() bool {
	select {
	case <-time.After(streamLook):
		return true
	case <-f.c.Done():
		return false
	}
}

// readTask reads what a task streams.
func (f *feed) readTask(a model.Address, after int64) {
	r := api.TaskStreamRequest{TaskTarget: api.TaskTarget{Target: api.Target{Address: a}}, After: after, Wait: true}
	for missing := 0; ; {
		page, err := f.c.d.backend.TaskStream(f.c, r)
		if fault.Is(err, fault.NotFound) && missing < maxMissing { // its start may be in flight
			missing++
			if !f.pause() {
				return
			}
			continue
		}

		if err != nil {
			return
		}

		for _, item := range page.Items {
			if !f.put(streamed{source: sourceOf(a), position: item.Position, event: item.Kind.String(), data: item.Value.Data}) {
				return
			}
			r.After = item.Position
		}

		if page.Ended {
			return
		}
	}
}

// readFlow reads the event log of a workflow, and finds its tasks and children. It sends the
// records whose positions are greater than after.
func (f *feed) readFlow(a model.Address, after int64) {
	j := newJournal(a.Key, false)
	r := api.HistoryRequest{Target: api.Target{Address: a}, After: -1}
	for !j.closed {
		page, err := f.c.d.backend.History(f.c, r)
		if err != nil {
			return
		}
		r.Target.Run = page.Run
		for i := range page.Events {
			e := &page.Events[i]
			r.After = e.Seq
			if !f.take(j, a, e, after) {
				return
			}
		}
		if !page.More && !j.closed && !f.pause() {
			return
		}
	}
}

// take translates an event of a history into a stream event and sends it. It returns false if the
// client has left. Positions start at 1, so that 0 means that the client has received nothing.
func (f *feed) take(j *journal, a model.Address, e *model.Event, after int64) bool {
	if e.Kind == model.EventChildStarted && (strings.HasPrefix(e.ID, stepTask) || f.children) {
		if to := e.Target; !f.put(streamed{follow: &to}) {
			return false
		}
	}
	before := len(j.records)
	j.add(e)
	if len(j.records) == before || e.Seq+1 <= after {
		return true
	}
	rec := &j.records[before]
	return f.put(streamed{source: sourceOf(a), position: e.Seq + 1, event: "data", data: newObject().text("type", "Event").
		text("event", streamNames(rec.kind)).text("workflowExecutionId", a.Key).value("data", rec.data).number("timestampMs", rec.at.Std().UnixMilli()).end()})
}

// streamNames returns the name that streams have for a kind of event.
func streamNames(kind string) string {
	return cmp.Or(map[string]string{"TASK_SCHEDULED": "TASK_CREATED", "WORKFLOW_EXECUTION_FAILED": "WORKFLOW_FAILED"}[kind], kind)
}

// positions returns the last positions that the client has received, as the id of a stream event.
// If there is one source, the id is a number.
func (f *feed) positions() string {
	if f.all == 1 && len(f.last) == 1 {
		for _, n := range f.last {
			return strconv.FormatInt(n, 10)
		}
	}
	parts := make([]string, 0, len(f.last))
	for _, source := range slices.Sorted(maps.Keys(f.last)) {
		parts = append(parts, source+"."+strconv.FormatInt(f.last[source], 10))
	}
	return strings.Join(parts, "_")
}

// readPositions reads the id of the last event that a client has received. If the id is a number,
// it is a position of the first source.
func readPositions(id, first string) (map[string]int64, error) {
	last := map[string]int64{}
	if id == "" {
		return last, nil
	}

	for part := range strings.SplitSeq(id, "_") {
		source, text, two := strings.Cut(part, ".")
		if !two {
			source, text = first, part
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || len(last) >= maxStreamed {
			return nil, fault.New(fault.Invalid, "Last-Event-ID is %.80q, which is no id of this stream", id)
		}
		last[source] = n
	}

	return last, nil
}
