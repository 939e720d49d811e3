package flovyn

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of one submission.
const (
	// maxCommands is how many commands a submission may have.
	maxCommands = 10_000
	// maxText is the longest name of a kind, a queue, a child or a promise, in bytes.
	maxText = 200
	// maxKey is the longest key of a state, and the longest name of an operation, a timer or a
	// worker, in bytes.
	maxKey = 512
)

// translation turns the commands of a submission into a turn.
type translation struct {
	q       *flowQueue
	r       *run
	j       *journal
	limit   int
	bound   map[int]binding // by the index of the command
	number  int             // how many ids the method id has generated
	turn    model.Turn
	fresh   map[string]bool // step ids that this turn asks for
	created int             // how many promises the turn creates
	asked   map[string]int  // how many ids the method drawn has generated, by prefix
}

// translate checks a submission and returns its turn. If the turn does not end the run, its last
// command is a note with an id of its own. By this id the door recognizes the commit.
func (q *flowQueue) translate(ctx context.Context, r *run, m *pb.SubmitWorkflowCommandsRequest) (model.Turn, error) {
	if n := len(m.GetCommands()); n > maxCommands {
		return model.Turn{}, fault.New(fault.Invalid, "a submission has %d commands, may have %d", n, maxCommands)
	}
	// Bind the keys before the turn. If the turn then fails, the keys stay bound until they expire.
	bound, err := q.bindKeys(ctx, r, m.GetCommands())
	if err != nil {
		return model.Turn{}, err
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	t := &translation{
		q: q, r: r, j: r.journal, limit: q.d.cfg.MaxPayload, bound: bound, fresh: map[string]bool{}, asked: map[string]int{},
		turn: model.Turn{Run: r.start.Run, Generation: r.generation, Seen: r.claimed},
	}
	end := &model.Close{}
	reason := ""
	for i, c := range m.GetCommands() {
		if err := t.command(i, c, end, &reason); err != nil {
			return model.Turn{}, fault.New(fault.KindOf(err), "command %d of workflow execution %s: %w", i, r.address().Key, err)
		}
	}

	switch m.GetStatus() {
	case pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED:
		end.Status = model.Completed
		if end.Output.Data == nil {
			end.Output = jsonPayload(nil)
		}
	case pb.WorkflowStatus_WORKFLOW_STATUS_FAILED:
		end.Status = model.Failed
		if end.Failure == nil {
			end.Failure = &model.Failure{Message: "the workflow failed without an error"}
		}
	case pb.WorkflowStatus_WORKFLOW_STATUS_CANCELLED:
		end.Status = model.Canceled
		if end.Failure == nil || end.Failure.Kind != model.FailureCanceled {
			end.Failure = &model.Failure{Kind: model.FailureCanceled, Message: "the workflow was cancelled"}
		}
	default:
		end = nil
	}

	t.turn.Close = end
	if end == nil {
		t.turn.Waits = []model.Reason{{Code: model.WaitSignal, Name: "any"}}
		t.note(noteSuspended, []byte(reason), r.claimed)
	}
	return t.turn, nil
}

func (t *translation) add(c model.Command) { t.turn.Commands = append(t.turn.Commands, c) }

// id returns a new step id, which no earlier event of the run has. To make it unique, the id
// contains the generation of the hand-over, the position of the last event that the worker has
// seen, and a number.
func (t *translation) id(prefix string) string {
	t.number++
	return fmt.Sprintf("%s%d.%d.%d", prefix, t.r.generation, t.r.claimed, t.number)
}

func (t *translation) note(name string, data []byte, ref int64) {
	t.add(model.Command{Kind: model.CommandRecord, Event: model.Event{
		Kind: model.EventNoted, ID: t.id(stepNote), Name: name, Input: model.Payload{Data: data, Encoding: noteEncoding(name)}, Ref: ref,
	}})
}

// noteEncoding returns the encoding of a note: the note with the reason of a suspension is a text,
// and all other notes are JSON.
func noteEncoding(name string) string {
	if name == noteSuspended {
		return model.Text
	}
	return model.JSON
}

func (t *translation) size(what string, data []byte) error {
	if len(data) > t.limit {
		return fault.New(fault.Invalid, "%s has %d bytes, at most %d are allowed", what, len(data), t.limit)
	}
	return nil
}

func checkText(what, text string, most int) error {
	switch {
	case text == "":
		return fault.New(fault.Invalid, "%s is empty", what)
	case len(text) > most:
		return fault.New(fault.Invalid, "%s has %d bytes, at most %d are allowed", what, len(text), most)
	case strings.IndexByte(text, 0) >= 0:
		return fault.New(fault.Invalid, "%s contains a NUL byte", what)
	}
	return nil
}

// checkAddressText checks a text that becomes a part of an address. The engine refuses the whole
// turn if an address contains a control character.
func checkAddressText(what, text string, most int) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return fault.New(fault.Invalid, "%s contains a control character", what)
	}
	return checkText(what, text, most)
}

// command translates one command. It sets *end if the command ends the run, and *reason if the
// command suspends the run. The status of the submission decides whether the caller uses them.
func (t *translation) command(i int, c *pb.WorkflowCommand, end *model.Close, reason *string) error {
	if c.GetCommandData() == nil && c.GetCommandType() == pb.CommandType_COMMAND_TYPE_UNSPECIFIED {
		return nil // clients send these as placeholders
	}
	if err := checkType(c); err != nil {
		return err
	}

	switch d := c.GetCommandData().(type) {
	case *pb.WorkflowCommand_RecordOperation:
		return t.operation(d.RecordOperation)
	case *pb.WorkflowCommand_SetState:
		return t.setState(d.SetState.GetKey(), d.SetState.GetValue(), true)
	case *pb.WorkflowCommand_ClearState:
		return t.setState(d.ClearState.GetKey(), nil, false)
	case *pb.WorkflowCommand_ScheduleTask:
		return t.scheduleTask(i, d.ScheduleTask)
	case *pb.WorkflowCommand_CompleteWorkflow:
		end.Output = jsonPayload(d.CompleteWorkflow.GetOutput())
		return t.size("the output", end.Output.Data)
	case *pb.WorkflowCommand_FailWorkflow:
		f := d.FailWorkflow
		end.Failure = (&model.Failure{Type: f.GetFailureType(), Message: f.GetError(), Stack: f.GetStackTrace()}).Bounded()
		return nil
	case *pb.WorkflowCommand_SuspendWorkflow:
		*reason = model.Cut(d.SuspendWorkflow.GetReason(), model.MaxReasonText)
		if *reason == "" {
			*reason = "suspended"
		}
		return nil
	case *pb.WorkflowCommand_CancelWorkflow:
		end.Failure = (&model.Failure{Kind: model.FailureCanceled, Message: d.CancelWorkflow.GetReason()}).Bounded()
		return nil
	case *pb.WorkflowCommand_CreatePromise:
		return t.createPromise(i, d.CreatePromise)
	case *pb.WorkflowCommand_ResolvePromise:
		return t.resolvePromise(d.ResolvePromise)
	case *pb.WorkflowCommand_ScheduleChildWorkflow:
		return t.scheduleChild(d.ScheduleChildWorkflow)
	case *pb.WorkflowCommand_StartTimer:
		return t.startTimer(d.StartTimer)
	case *pb.WorkflowCommand_CancelTimer:
		return t.cancelTimer(d.CancelTimer.GetTimerId())
	case *pb.WorkflowCommand_RequestCancelChildWorkflow:
		return t.cancelChild(d.RequestCancelChildWorkflow)
	}

	return fault.New(fault.Invalid, "the command %s is not known", c.GetCommandType())
}

// checkType refuses a command whose type does not fit its data. A command of a newer client may
// have a type that the server does not know. The server must not ignore such a command, because the
// command would be lost.
func checkType(c *pb.WorkflowCommand) error {
	said, data := c.GetCommandType(), pb.CommandType_COMMAND_TYPE_UNSPECIFIED
	switch c.GetCommandData().(type) {
	case *pb.WorkflowCommand_RecordOperation:
		data = pb.CommandType_COMMAND_TYPE_RECORD_OPERATION
	case *pb.WorkflowCommand_SetState:
		data = pb.CommandType_COMMAND_TYPE_SET_STATE
	case *pb.WorkflowCommand_ClearState:
		data = pb.CommandType_COMMAND_TYPE_CLEAR_STATE
	case *pb.WorkflowCommand_ScheduleTask:
		data = pb.CommandType_COMMAND_TYPE_SCHEDULE_TASK
	case *pb.WorkflowCommand_CompleteWorkflow:
		data = pb.CommandType_COMMAND_TYPE_COMPLETE_WORKFLOW
	case *pb.WorkflowCommand_FailWorkflow:
		data = pb.CommandType_COMMAND_TYPE_FAIL_WORKFLOW
	case *pb.WorkflowCommand_SuspendWorkflow:
		data = pb.CommandType_COMMAND_TYPE_SUSPEND_WORKFLOW
	case *pb.WorkflowCommand_CancelWorkflow:
		data = pb.CommandType_COMMAND_TYPE_CANCEL_WORKFLOW
	case *pb.WorkflowCommand_CreatePromise:
		data = pb.CommandType_COMMAND_TYPE_CREATE_PROMISE
	case *pb.WorkflowCommand_ResolvePromise:
		data = pb.CommandType_COMMAND_TYPE_RESOLVE_PROMISE
	case *pb.WorkflowCommand_ScheduleChildWorkflow:
		data = pb.CommandType_COMMAND_TYPE_SCHEDULE_CHILD_WORKFLOW
	case *pb.WorkflowCommand_StartTimer:
		data = pb.CommandType_COMMAND_TYPE_START_TIMER
	case *pb.WorkflowCommand_CancelTimer:
		data = pb.CommandType_COMMAND_TYPE_CANCEL_TIMER
	case *pb.WorkflowCommand_RequestCancelChildWorkflow:
		data = pb.CommandType_COMMAND_TYPE_REQUEST_CANCEL_CHILD_WORKFLOW
	}

	if said != data && said != pb.CommandType_COMMAND_TYPE_UNSPECIFIED {
		return fault.New(fault.Invalid, "the type of the command is %s, its data is that of %s", said, data)
	}
	return nil
}

func (t *translation) operation(c *pb.RecordOperationCommand) error {
	if err := checkText("the name of the operation", c.GetOperationName(), maxKey); err != nil {
		return err
	}
	t.add(model.Command{Kind: model.CommandRecord, Event: model.Event{
		Kind: model.EventStepCompleted, ID: t.id(stepOperation), Name: c.GetOperationName(), Output: jsonPayload(c.GetResult()),
	}})
	return t.size("the result of operation "+c.GetOperationName(), c.GetResult())
}

func (t *translation) setState(key string, value []byte, set bool) error {
	if err := checkText("the key of the state", key, maxKey); err != nil {
		return err
	}
	e := model.Event{Kind: model.EventStateSet, ID: t.id(stepState), Name: key}
	if set {
		e.Output = jsonPayload(value)
	}
	t.add(model.Command{Kind: model.CommandRecord, Event: e})
	return t.size("state "+key, value)
}

// defaultRetries is the number of times that the engine repeats a failed task if the command gives
// no number.
const defaultRetries = 3

// taskSpec says how a task of the protocol is executed.
func taskSpec(kind, queue string, retries int32, timeoutMs int64) (*model.TaskSpec, error) {
	if err := checkAddressText("the kind of the task", kind, maxText-len(model.TaskPrefix)); err != nil {
		return nil, err
	}
	if err := checkAddressText("the queue", queue, maxText-len(Prefix)); err != nil {
		return nil, err
	}
	if retries < 0 {
		return nil, fault.New(fault.Invalid, "a task with %d retries, must be >= 0", retries)
	}

	if timeoutMs < 0 || timeoutMs > int64(model.MaxTaskTime/time.Millisecond) {
		return nil, fault.New(fault.Invalid, "a task with a time-out of %d ms, must be between 0 and 100 years", timeoutMs)
	}
	return &model.TaskSpec{
		Kind: kind, Queue: Prefix + queue, Total: time.Duration(timeoutMs) * time.Millisecond,
		Retry: model.Retry{MaxAttempts: int(retries) + 1, Initial: 100 * time.Millisecond, Max: 10 * time.Second, Given: true},
	}, nil
}

// drawn generates an id for the next task or child of the workflow. have is how many tasks or
// children the workflow already has in the log.
func (t *translation) drawn(prefix string, have int) string {
	t.asked[prefix]++
	return stepID(t.r.address().Key, prefix, have+t.asked[prefix])
}

func (t *translation) scheduleTask(i int, c *pb.ScheduleTaskCommand) error {
	id, err := parseID("task", c.GetTaskExecutionId())
	if err != nil {
		return err
	}
	if c.GetIdempotencyKey() == "" && isCounted(t.r.address().Key, id) {
		id = t.drawn(stepTask, len(t.j.scheduled))
	}
	if kind, ok := t.j.scheduled[id]; ok && kind != c.GetKind() {
		return fault.New(fault.Conflict, "task %s already exists and is a %s", id, kind)
	} else if ok || t.fresh[stepTask+id] {
		return nil // the worker repeats what is stored
	}
	retries := int32(defaultRetries)
	if c.MaxRetries != nil {
		retries = c.GetMaxRetries()
	}
	queue := c.GetQueue()
	if queue == "" {
		queue = t.q.at.queue
	}
	spec, err := taskSpec(c.GetKind(), queue, retries, c.GetTimeoutMs())
	if err != nil {
		return err
	}

	t.fresh[stepTask+id] = true
	tenant := t.q.at.tenant
	e := model.Event{
		Kind: model.EventChildStarted, ID: stepTask + id, Name: c.GetKind(), Target: taskAddress(tenant, c.GetKind(), id), Input: taskInput(c.GetKind(), nil, c.GetInput()), Task: spec,
		Policy: model.AbandonChild,
	}
	if b := t.bound[i]; b.ID != "" && b.ID != id {
		// The key belongs to another task. This step gets the outcome of that task.
		e.Target, e.Task = model.Address{Tenant: tenant, Type: b.Type, Key: b.ID}, nil
		t.add(model.Command{Kind: model.CommandWatch, Event: e})
		return nil
	}
	t.add(model.Command{Kind: model.CommandStartChild, Event: e})
	return t.size("the input of task "+id, c.GetInput())
}

func (t *translation) scheduleChild(c *pb.ScheduleChildWorkflowCommand) error {
	id, err := parseID("child workflow execution", c.GetChildWorkflowExecutionId())
	if err != nil {
		return err
	}
	if isCounted(t.r.address().Key, id) {
		id = t.drawn(stepChild, len(t.j.names))
	}
	if t.j.names[id] != "" || t.fresh[stepChild+id] {
		return nil // the worker repeats what is stored
	}
	if c.GetWorkflowKind() == "" {
		return fault.New(fault.Invalid, "a child workflow without a kind: visual workflow definitions are not served")
	}
	for what, text := range map[string]string{"the kind of the child": c.GetWorkflowKind(), "the name of the child": c.GetChildExecutionName()} {
		if err := checkText(what, text, maxText); err != nil {
			return err
		}
	}
	queue := c.GetQueue()
	if queue == "" {
		queue = t.q.at.queue
	}
	if err := checkAddressText("the queue", queue, maxText-len(Prefix)); err != nil {
		return err
	}

	t.fresh[stepChild+id] = true
	env := envelope{Kind: c.GetWorkflowKind(), Name: c.GetChildExecutionName(), Priority: int64(c.GetPrioritySeconds()), Input: c.GetInput()}
	e := model.Event{
		Kind: model.EventChildStarted, ID: stepChild + id, Name: c.GetChildExecutionName(), Target: flowAddress(t.q.at.tenant, queue, id), Input: env.payload(),
		Policy: model.AbandonChild,
	}
	t.add(model.Command{Kind: model.CommandStartChild, Event: e, Labels: kindLabel(env.Kind)})
	return t.size("the input of child "+id, e.Input.Data)
}

// kindLabel is the label by which lists find executions of a kind.
func kindLabel(kind string) []model.Label {
	if model.CheckLabel("kind", kind) != nil {
		return nil
	}
	return []model.Label{{Name: "kind", Value: kind}}
}

func (t *translation) startTimer(c *pb.StartTimerCommand) error {
	id := c.GetTimerId()
	if err := checkText("the id of the timer", id, maxKey); err != nil {
		return err
	}
	if t.j.started[id] || t.fresh[stepTimer+id] {
		return nil // the worker repeats what is stored
	}

	ms := c.GetDurationMs()
	if ms > int64(model.MaxTaskTime/time.Millisecond) {
		return fault.New(fault.Invalid, "timer %s takes %d ms, must take at most 100 years", id, ms)
	}
	t.fresh[stepTimer+id] = true
	t.note(noteTimer, newObject().text("id", id).number("durationMs", max(ms, 0)).end(), 0)

	// The delay starts when the lane applies the turn. A timer that is due immediately still needs
	// a delay, because a command without a delay must have a due time.
	t.add(model.Command{Kind: model.CommandStartTimer, Delay: max(time.Duration(ms)*time.Millisecond, time.Microsecond), Event: model.Event{ID: stepTimer + id}})
	return nil
}

func (t *translation) cancelTimer(id string) error {
	if _, open := t.j.timers[id]; open || t.fresh[stepTimer+id] {
		t.add(model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: stepTimer + id}})
	}
	return nil
}

func (t *translation) createPromise(i int, c *pb.CreatePromiseCommand) error {
	name := c.GetPromiseId() // despite its name, the field has the name of the promise
	if err := checkText("the name of the promise", name, maxText); err != nil {
		return err
	}
	if ms := c.GetTimeoutMs(); ms < 0 || ms > int64(model.MaxTaskTime/time.Millisecond) {
		return fault.New(fault.Invalid, "promise %s has a time-out of %d ms, must be between 0 and 100 years", name, ms)
	}

	t.created++
	n := promiseNote{ID: promiseID(t.r.address().Key, len(t.j.promises)+t.created), Name: name, TimeoutMs: c.TimeoutMs, Key: c.GetIdempotencyKey()}
	if b := t.bound[i]; b.ID != "" && b.ID != n.ID {
		return fault.New(fault.AlreadyExists, "the idempotency key of promise %s belongs to another promise", name)
	}
	data, err := json.Marshal(n)
	if err != nil {
		return fault.New(fault.Internal, "%w", err)
	}

	t.q.d.places.put(n.ID, t.r.address())
	t.note(notePromise, data, 0)
	if c.TimeoutMs != nil {
		t.add(model.Command{Kind: model.CommandStartTimer, Delay: max(time.Duration(c.GetTimeoutMs())*time.Millisecond, time.Microsecond), Event: model.Event{ID: stepPromise + n.ID}})
	}

	return nil
}

func (t *translation) resolvePromise(c *pb.ResolvePromiseCommand) error {
	p := t.j.promise(c.GetPromiseId())
	if p == nil {
		return fault.New(fault.NotFound, "there is no promise %.80q", c.GetPromiseId())
	}
	t.note(noteResolved, newObject().text("id", p.id).value("value", c.GetValue()).end(), 0)
	return t.size("the value of promise "+p.name, c.GetValue())
}

// promise finds a promise by its id, by its name, or by the id of the execution and the name. If
// several promises have the name, it returns the first one that is open, or the first one if none
// is open.
func (j *journal) promise(text string) *promise {
	if p := j.byID[text]; p != nil {
		return p
	}
	name := strings.TrimPrefix(text, j.execution+":")
	named := func(p *promise) bool { return p.name == name }
	if i := slices.IndexFunc(j.promises, func(p *promise) bool { return named(p) && !p.settled }); i >= 0 {
		return j.promises[i]
	}
	if i := slices.IndexFunc(j.promises, named); i >= 0 {
		return j.promises[i]
	}
	return nil
}

// cancelChild ends a child immediately, because no worker of the protocol reacts to a cancellation.
func (t *translation) cancelChild(c *pb.RequestCancelChildWorkflowCommand) error {
	for id, name := range t.j.children {
		if id != c.GetChildWorkflowExecutionId() && (c.GetChildWorkflowExecutionId() != "" || name != c.GetChildExecutionName()) {
			continue
		}
		to := t.j.targets[id]
		t.add(model.Command{
			Kind: model.CommandSend, Event: model.Event{ID: t.id(stepCancel), Target: to, Name: "terminate"},
			Message: &model.Message{Kind: model.MessageTerminate, To: to, Failure: (&model.Failure{Message: c.GetReason()}).Bounded()},
		})
	}
	return nil
}
