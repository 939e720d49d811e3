package flovyn

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perdure/perdure/internal/model"
)

// These are prefixes of step ids. The id that the protocol uses follows the prefix.
const (
	stepOperation = "op/"
	stepState     = "state/"
	stepTask      = "task/"
	stepChild     = "child/"
	stepTimer     = "timer/"
	stepPromise   = "promise/" // the time-out of a promise
	stepNote      = "note/"
	stepUpdate    = "update/"
	stepCancel    = "cancel/"
)

// Names of the notes that the door (see the package comment) writes into a history. A note is an
// event with facts that only the protocol needs.
const (
	noteTimer     = "timer"
	notePromise   = "promise"
	noteResolved  = "resolved"
	noteSuspended = "suspended"
)

// record is an event as clients see it.
type record struct {
	kind string
	data []byte
	at   model.Time
	seq  int64 // the position of the event in the history
}

// promise is a promise of a run.
type promise struct {
	id, name string
	key      string
	settled  bool
}

// journal is the event log of a run in the form of the protocol, built event by event. The number
// of a record is its place in the list. It never changes, because histories only grow.
type journal struct {
	execution string
	older     bool
	// bare says that the journal contains no payloads: neither the data of records nor the values
	// of states.
	bare    bool
	records []record
	// count is the number of all records so far, and bytes is their size for clients.
	count int
	bytes int64
	env   envelope

	operations, notes int
	tasks             map[string]string        // open tasks and their kinds
	scheduled         map[string]string        // kinds of all tasks that were ever scheduled
	children          map[string]string        // open children and their names
	names             map[string]string        // all children and their names
	targets           map[string]model.Address // addresses of open children
	updates           map[int64]string         // updates without an answer, and their names
	timers            map[string]model.Time
	started           map[string]bool // all timers that were ever started
	promises          []*promise
	byID              map[string]*promise
	state             map[string][]byte

	// seen is the last event that a worker had when it suspended the run. news says that there is a
	// later event that a worker must know.
	seen int64
	news bool
	// cancel is the reason of a cancel request; closed says that the run has ended.
	cancel *string
	closed bool
}

func newJournal(execution string, older bool) *journal {
	return &journal{
		execution: execution, older: older, tasks: map[string]string{}, scheduled: map[string]string{}, children: map[string]string{}, names: map[string]string{},
		targets: map[string]model.Address{}, updates: map[int64]string{},
		timers: map[string]model.Time{}, started: map[string]bool{}, byID: map[string]*promise{}, state: map[string][]byte{}, seen: -1, news: true,
	}
}

// promiseNote is what a note says about a promise.
type promiseNote struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	TimeoutMs *int64 `json:"timeoutMs,omitempty"`
	Key       string `json:"key,omitempty"`
}

// timerNote is what a note says about a timer.
type timerNote struct {
	ID         string `json:"id"`
	DurationMs int64  `json:"durationMs"`
}

// resolvedNote says that the workflow itself resolved a promise.
type resolvedNote struct {
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
}

// add renders the next event of the history.
func (j *journal) add(e *model.Event) {
	before := len(j.records)
	j.render(e)
	if e.Kind.News() && len(j.records) > before && e.Seq > j.seen && !strings.HasPrefix(e.ID, stepOperation) {
		j.news = true
	}
}

func (j *journal) put(e *model.Event, kind string, o *object) {
	rec := record{kind: kind, at: e.At, seq: e.Seq}
	j.count++
	j.bytes += eventSize(j.count, kind, len(o.buf)+1)
	if !j.bare {
		rec.data = o.end()
	}
	j.records = append(j.records, rec)
}

// eventSize returns how many bytes an event takes in the reply to a client. The parameter data is
// the length of the data of the event.
func eventSize(number int, kind string, data int) int64 {
	n := 3 + protowire.SizeVarint(uint64(number)) + protowire.SizeBytes(len(kind)) + protowire.SizeBytes(data)
	return int64(1 + protowire.SizeBytes(n))
}

// signalReceived is the type of the event of a signal.
const signalReceived = "SIGNAL_RECEIVED"

func (j *journal) render(e *model.Event) {
	switch e.Kind {
	case model.EventStarted:
		j.start(e)
	case model.EventClosed:
		j.close(e)
	case model.EventSignalReceived:
		j.put(e, signalReceived, newObject().text("signalName", e.Name).value("signalValue", e.Input.Data))
	case model.EventStepCompleted:
		if strings.HasPrefix(e.ID, stepOperation) {
			j.operations++
			j.put(e, "OPERATION_COMPLETED", newObject().text("operationName", e.Name).value("result", e.Output.Data))
		}
	case model.EventStateSet:
		j.setState(e)
	case model.EventChildStarted:
		j.childStarted(e)
	case model.EventChildClosed:
		j.childClosed(e)
	case model.EventNoted:
		j.note(e)
	case model.EventTimerFired:
		j.addFired(e)
	case model.EventWithdrawn:
		if id, ok := strings.CutPrefix(e.ID, stepTimer); ok {
			delete(j.timers, id)
			j.put(e, "TIMER_CANCELLED", newObject().text("timerId", id))
		}
	case model.EventPromiseSettled:
		j.settle(e, e.Name, e.Output.Data, e.Failure)
	case model.EventCancelRequest:
		reason := ""
		if e.Failure != nil {
			reason = e.Failure.Message
		}
		j.cancel = &reason
		j.put(e, "CANCELLATION_REQUESTED", newObject().text("reason", reason).text("requestedBy", ""))
	case model.EventUpdateReceived:
		j.updates[e.Seq] = e.Name
	case model.EventUpdateAnswered:
		delete(j.updates, e.Ref)
	default: // clients do not need the other kinds
	}
}

func (j *journal) start(e *model.Event) {
	j.env = readEnvelope(e.Input)
	o := newObject().value("input", j.env.Input).text("kind", j.env.Kind)
	if len(j.env.Metadata) > 0 {
		o.texts("metadata", j.env.Metadata)
	}
	j.put(e, "WORKFLOW_STARTED", o)
	if j.bare {
		j.env.Input = nil
	}
}

// close renders the end of the run.
func (j *journal) close(e *model.Event) {
	j.closed = true
	f := e.Failure
	if f == nil {
		f = &model.Failure{}
	}
	switch e.Status {
	case model.Completed:
		j.put(e, "WORKFLOW_COMPLETED", newObject().value("output", e.Output.Data))
	case model.Canceled, model.Terminated:
		j.put(e, "WORKFLOW_CANCELLED", newObject().text("reason", givenReason(f.Message)))
	case model.Failed:
		j.put(e, "WORKFLOW_EXECUTION_FAILED", newObject().text("error", f.Message).text("stackTrace", f.Stack).text("failureType", f.Type))
	default: // the execution continues with another run
	}
}

// givenReason returns the reason that the caller gave. The engine puts "terminated: " before it.
func givenReason(text string) string { return strings.TrimPrefix(text, "terminated: ") }

func (j *journal) setState(e *model.Event) {
	if len(e.Output.Data) == 0 {
		delete(j.state, e.Name)
		j.put(e, "STATE_CLEARED", newObject().text("key", e.Name))
		return
	}
	if !j.bare {
		j.state[e.Name] = e.Output.Data
	}
	j.put(e, "STATE_SET", newObject().text("key", e.Name).value("value", e.Output.Data))
}

func (j *journal) childStarted(e *model.Event) {
	if id, ok := strings.CutPrefix(e.ID, stepTask); ok {
		j.tasks[id], j.scheduled[id] = e.Name, e.Name
		o := newObject().text("taskExecutionId", id).text("kind", e.Name).text("taskType", e.Name).value("input", readEnvelope(e.Input).Input)
		if e.Task != nil {
			o.text("queue", strings.TrimPrefix(e.Task.Queue, Prefix)).number("maxRetries", int64(e.Task.Retry.MaxAttempts-1))
		}
		j.put(e, "TASK_SCHEDULED", o)
		return
	}

	if id, ok := strings.CutPrefix(e.ID, stepChild); ok {
		env := readEnvelope(e.Input)
		j.children[id], j.names[id], j.targets[id] = e.Name, e.Name, e.Target
		j.put(e, "CHILD_WORKFLOW_INITIATED", j.childObject(id).
			text("childWorkflowKind", env.Kind).text("workflowKind", env.Kind).value("input", env.Input))
	}
}

func (j *journal) childClosed(e *model.Event) {
	why := ""
	if e.Failure != nil {
		why = e.Failure.Message
	}

	if id, ok := strings.CutPrefix(e.ID, stepTask); ok {
		why = taskError(e.Failure)
		delete(j.tasks, id)
		switch e.Status {
		case model.Completed:
			j.put(e, "TASK_COMPLETED", newObject().text("taskExecutionId", id).value("output", e.Output.Data))
		case model.Canceled, model.Terminated:
			j.put(e, "TASK_FAILED", newObject().text("taskExecutionId", id).text("error", "Task cancelled").bool("retryable", false))
		default:
			j.put(e, "TASK_FAILED", newObject().text("taskExecutionId", id).text("error", why).bool("retryable", false))
		}
		return
	}

	id, ok := strings.CutPrefix(e.ID, stepChild)
	if !ok {
		return
	}
	delete(j.children, id)
	delete(j.targets, id)
	if e.Status == model.Completed {
		j.put(e, "CHILD_WORKFLOW_COMPLETED", j.childObject(id).value("output", e.Output.Data))
		return
	}
	if e.Status == model.Canceled || e.Status == model.Terminated {
		why = "Child workflow cancelled: " + givenReason(why)
	}
	// Rust clients read the id under a name with a small w.
	j.put(e, "CHILD_WORKFLOW_FAILED", j.childObject(id).
		text("childworkflowExecutionId", id).text("error", why))
}

// childObject starts the JSON of an event of a child. In the older dialect of the protocol, native
// workers (see the package comment) read the name and the id under other keys.
func (j *journal) childObject(id string) *object {
	o := newObject().text("childExecutionName", j.names[id]).text("childExecutionId", id)
	if j.older {
		o.text("childWorkflowExecutionName", j.names[id]).text("childWorkflowExecutionId", id)
	}
	return o
}

// taskError returns the error text of a task. Clients recognize time-outs by this text.
func taskError(f *model.Failure) string {
	switch {
	case f == nil:
		return ""
	case f.Kind == model.FailureTimeout:
		return "Task timed out: " + f.Message
	}
	return f.Message
}

func (j *journal) note(e *model.Event) {
	j.notes++
	switch e.Name {
	case noteTimer:
		var n timerNote
		_ = json.Unmarshal(e.Input.Data, &n) // it cannot fail: the door wrote the note
		due := e.At.Add(time.Duration(n.DurationMs) * time.Millisecond)
		j.timers[n.ID], j.started[n.ID] = due, true
		j.put(e, "TIMER_STARTED", newObject().text("timerId", n.ID).number("durationMs", n.DurationMs).number("fireAtMs", due.Std().UnixMilli()))
	case notePromise:
		j.notePromise(e)
	case noteResolved:
		var n resolvedNote
		_ = json.Unmarshal(e.Input.Data, &n) // it cannot fail: the door wrote the note
		j.settle(e, n.ID, n.Value, nil)
	case noteSuspended:
		j.seen, j.news = e.Ref, false
		// Records that came after the last event that the worker has seen are still new for
		// workers.
		for i := len(j.records) - 1; i >= 0 && j.records[i].seq > e.Ref; i-- {
			j.news = j.news || isNews(j.records[i].kind)
		}
		if len(e.Input.Data) > 0 {
			j.put(e, "WORKFLOW_SUSPENDED", newObject().text("reason", string(e.Input.Data)))
		}
	}
}

func (j *journal) notePromise(e *model.Event) {
	var n promiseNote
	_ = json.Unmarshal(e.Input.Data, &n) // it cannot fail: the door wrote the note
	// A fork has the notes of its source, but its own promises. If the fork used the id in the
	// note, clients would settle the promise of the source. Events before the fork still use that
	// id.
	p := &promise{id: promiseID(j.execution, len(j.promises)+1), name: n.Name, key: n.Key}
	j.promises = append(j.promises, p)
	j.byID[p.id], j.byID[n.ID] = p, p
	o := j.promiseObject(p)
	if n.TimeoutMs != nil {
		o.number("timeoutMs", *n.TimeoutMs)
	}
	if n.Key != "" {
		o.text("idempotencyKey", n.Key)
	}
	j.put(e, "PROMISE_CREATED", o)
}

// isNews reports whether records of this kind can come from outside the workflow.
func isNews(kind string) bool {
	switch kind {
	case "TASK_COMPLETED", "TASK_FAILED", "TIMER_FIRED", "PROMISE_RESOLVED", "PROMISE_REJECTED", "PROMISE_TIMEOUT",
		"CHILD_WORKFLOW_COMPLETED", "CHILD_WORKFLOW_FAILED", signalReceived, "CANCELLATION_REQUESTED":
		return true
	}
	return false
}

func (j *journal) addFired(e *model.Event) {
	if id, ok := strings.CutPrefix(e.ID, stepTimer); ok {
		delete(j.timers, id)
		j.put(e, "TIMER_FIRED", newObject().text("timerId", id))
		return
	}
	id, _ := strings.CutPrefix(e.ID, stepPromise)
	if p := j.byID[id]; p != nil && !p.settled {
		p.settled = true
		j.put(e, "PROMISE_TIMEOUT", j.promiseObject(p))
	}
}

// settle adds the outcome of a promise. The first outcome wins.
func (j *journal) settle(e *model.Event, id string, value []byte, f *model.Failure) {
	p := j.byID[id]
	if p == nil {
		// An operator settles a promise by its name, so id may be a name. The first open promise of
		// that name gets the outcome.
		if i := slices.IndexFunc(j.promises, func(p *promise) bool { return p.name == id && !p.settled }); i >= 0 {
			p = j.promises[i]
		}
	}
	if p == nil || p.settled {
		return
	}
	p.settled = true
	if f != nil {
		j.put(e, "PROMISE_REJECTED", j.promiseObject(p).text("error", f.Message))
		return
	}
	j.put(e, "PROMISE_RESOLVED", j.promiseObject(p).value("value", value))
}

// promiseObject starts the JSON of an event of a promise. The older dialect has the name in place
// of the id.
func (j *journal) promiseObject(p *promise) *object {
	id := p.id
	if j.older {
		id = p.name
	}
	return newObject().text("promiseId", id).text("promiseName", p.name)
}

// waits says what the run waits for.
func (j *journal) waits() []model.Reason {
	var rs []model.Reason
	for id, kind := range j.tasks {
		rs = append(rs, model.Reason{Code: model.WaitChild, Name: model.TaskPrefix + kind + "/" + id})
	}
	for id := range j.children {
		rs = append(rs, model.Reason{Code: model.WaitChild, Name: j.names[id] + "/" + id})
	}
	for id, due := range j.timers {
		rs = append(rs, model.Reason{Code: model.WaitTimer, Name: id, Until: due})
	}

	for _, p := range j.promises {
		if !p.settled {
			rs = append(rs, model.Reason{Code: model.WaitPromise, Name: p.name})
		}
	}

	if len(rs) == 0 {
		rs = append(rs, model.Reason{Code: model.WaitSignal, Name: "any"})
	}
	sortReasons(rs)
	return rs[:min(len(rs), 16)]
}
