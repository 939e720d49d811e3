package core

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/model"
)

// Sender says whose code has made a message.
type Sender uint8

// Senders of messages that the engine has not made itself.
const (
	SenderRun    Sender = iota // the code of a workflow
	SenderEntity               // an operation of an entity
	SenderClient               // a client, with the outbox of its database
)

// Bounds of the texts in a message. They are the same as the bounds of requests; see
// request.Limits.
const (
	maxName = 200
	maxKey  = 512
	maxID   = 1000 // of a timer or a task of a run; an id contains names and keys
)

// Overreach returns which part of a message its sender may not send. The error that refuses the
// message has this text after the kind of the message. The text is empty when the sender may send
// the message. Every message that comes from outside the engine passes this check, whether its
// sender is in this process or not, because a worker can be any program. The caller checks the kind
// and the tenant. TestEveryFieldOfASentMessage fails if this file does not check a field.
func Overreach(m *model.Message, by Sender) string {
	if with := engineField(m); with != "" {
		return with
	}
	if with := foreignField(m, by); with != "" {
		return with
	}
	if with := unfitText(m); with != "" {
		return with
	}
	if m.Kind == model.MessageStart {
		return unfitStart(m)
	}
	return ""
}

// engineField returns which part of a message only the engine may set. Several parts of a message
// refer to runs by their ids alone: a past, an order about a dead task, the report of a claim, and
// a list of runs to remove. With these parts, the sender could make the receiver act on runs of
// other tenants. The same is true of the id of a new run, because the store keeps the runs of all
// tenants under their ids.
func engineField(m *model.Message) string {
	switch {
	case m.Past != nil:
		return "with the past of a run"
	case m.DeadTask != nil || m.Report != nil || m.Write != nil:
		return "with an order about a task"
	case len(m.Runs) > 0 || m.Force || m.Parent != nil:
		return "with an order about runs"
	case !m.Fresh.IsZero():
		return "with the id of the run that it begins"
	case !m.Node.IsZero() || m.Watches || !m.Linked.IsZero():
		return "with the node or the connection that it comes from"
	case m.Deaths != 0 || m.Lone != 0 || !m.By.IsZero() || m.Lost != 0:
		return "with a number of dead processes"
	case m.ID != "" || m.Status != 0 || m.Epoch != 0 || m.Drawn || len(m.Asked) > 0 || len(m.Exported) > 0:
		return "with a field that only the engine sets"
	}
	return ""
}

// foreignField returns which part of a message belongs to messages of another kind or of another
// sender.
func foreignField(m *model.Message, by Sender) string {
	start, call := m.Kind == model.MessageStart, m.Kind == model.MessageCall
	switch {
	case by != SenderRun && (m.From != (model.Link{}) || m.Section != ""): // the engine sets both
		return "in the name of a run"
	case by == SenderRun && m.Keep:
		return "with the order to keep it as a dead letter, although its step gets the answer"
	case m.Brief && (!call || by != SenderClient):
		return "that is not stored"
	case m.OneWay && !call:
		return "with the mark of a one-way call"
	case !m.ToRun.IsZero() && (start || call):
		return "to one run"
	case !start && (m.Reuse != 0 || m.Policy != 0 || len(m.With) > 0 || len(m.Labels) > 0 || m.Task != nil || m.Terms != nil):
		return "with a part of a start"
	case m.Policy != 0 && by != SenderRun:
		return "with a policy for the end of its parent, which it does not have"
	case by == SenderRun && m.RequestID != "" && (call || m.Kind == model.MessageUpdate):
		return "with a request id, although each step takes effect once"
	}
	return ""
}

// unfitText returns which text of a message is too long or cannot be stored. If the texts are fine
// but the whole message is too large for any history, it returns that.
func unfitText(m *model.Message) string {
	id := m.RequestID
	if m.Kind == model.MessageCall {
		id = strings.TrimPrefix(id, model.CallIDs) // the prefix is part of the composed message
	}
	if why := unfitAddress(m.To); why != "" {
		return why
	}
	if why := unfitOption("a name", m.Name, maxName); why != "" {
		return why
	}
	if why := unfitOption("a request id", id, maxName); why != "" {
		return why
	}
	if why := unfitOption("a trace context", m.Trace, maxName); why != "" {
		return why
	}
	if n := m.Size(); n > DefaultLimits.Bytes {
		return fmt.Sprintf("with %d bytes, at most %d are allowed", n, DefaultLimits.Bytes)
	}
	return ""
}

// unfitAddress returns what is wrong with the texts of an address; empty when they can be stored. A
// store may refuse a row with control characters. That would stop the run or the entity that sends
// the message.
func unfitAddress(a model.Address) string {
	most := maxName
	if strings.HasPrefix(a.Type, model.TaskPrefix) {
		most += len(model.TaskPrefix)
	}
	if why := unfit("a type", a.Type, most); why != "" {
		return why
	}
	return unfit("a key", a.Key, maxKey)
}

// unfit returns what is wrong with a text; empty when it can be stored.
func unfit(what, s string, most int) string {
	switch {
	case s == "":
		return "with " + what + " that is empty"
	case len(s) > most:
		return fmt.Sprintf("with %s of %d bytes, at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		return "with " + what + " that is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "with " + what + " that contains a control character"
	}
	return ""
}

// unfitOption is unfit for a text that may be empty.
func unfitOption(what, s string, most int) string {
	if s == "" {
		return ""
	}
	return unfit(what, s, most)
}

// unfitStart returns what is wrong with the parts of a start. A batch job acts with rights that its
// sender may not have, so no sender may start one.
func unfitStart(m *model.Message) string {
	switch {
	case m.To.Type == model.BatchType:
		return "of a batch job"
	case m.To.IsEntity():
		return "of an entity or a service"
	case m.Reuse > model.ReuseAlways:
		return fmt.Sprintf("with policy %d for keys that were used before", m.Reuse)
	case m.Policy > model.AbandonChild:
		return fmt.Sprintf("with policy %d for the end of its parent", m.Policy)
	}
	if why := unfitLabels(m.Labels); why != "" {
		return why
	}
	if why := unfitTask(m); why != "" {
		return why
	}
	if why := unfitTerms(m); why != "" {
		return why
	}
	return unfitSignals(m.With)
}

// unfitLabels returns what is wrong with the labels of a start.
func unfitLabels(labels []model.Label) string {
	if len(labels) > model.MaxLabels {
		return fmt.Sprintf("with %d labels, at most %d are allowed", len(labels), model.MaxLabels)
	}
	for i := range labels {
		l := &labels[i]
		if err := model.CheckLabel(l.Name, l.Value); err != nil {
			return "with a label that is not valid: " + err.Error()
		}
		if l.Value == "" {
			return fmt.Sprintf("with label %s, which has no value", l.Name)
		}
		if i > 0 && labels[i-1].Name >= l.Name {
			return fmt.Sprintf("with label %s twice, or not in order", l.Name)
		}
	}
	return ""
}

// unfitTask returns what is wrong with the task of a start. Code that computes with the numbers of
// a task relies on this check.
func unfitTask(m *model.Message) string {
	t := m.Task
	kind, named := strings.CutPrefix(m.To.Type, model.TaskPrefix)
	switch {
	case t == nil && named:
		return "of a task, but without the task"
	case t == nil:
		return ""
	case !named || kind != t.Kind:
		return fmt.Sprintf("with a task of activity %.80q, which has another address", t.Kind)
	case t.Queue == "":
		return "with a task without a queue"
	case len(m.With) > 0:
		return "of a task with signals"
	}
	if err := t.Bounds(); err != nil {
		return "with a task that is not valid: " + err.Error()
	}

	if why := unfitSpec(t); why != "" {
		return why
	}
	return unfitTexts("a final failure", t.Retry.Final, maxKey)
}

// unfitSpec returns what is wrong with the names in the spec of a task. Rows of tasks and settings
// contain these names.
func unfitSpec(t *model.TaskSpec) string {
	for _, text := range [...]struct{ what, value string }{
		{"a kind", t.Kind}, {"a queue", t.Queue}, {"a breaker", t.Breaker}, {"a fairness key", t.Fair}, {"a trace context of the task", t.Trace},
	} {
		if why := unfitOption(text.what, text.value, maxName); why != "" {
			return why
		}
	}
	return unfitTexts("a limit", t.Limits, maxName)
}

// unfitTerms returns what is wrong with the terms of a start.
func unfitTerms(m *model.Message) string {
	t := m.Terms
	if t == nil {
		return ""
	}
	if m.Task != nil {
		return "of a task with the terms of an execution"
	}
	if err := t.Check(); err != nil {
		return "with terms that are not valid: " + err.Error()
	}
	if t.Retry != nil {
		return unfitTexts("a final failure", t.Retry.Final, maxKey)
	}
	return ""
}

// unfitCommand returns what is wrong with the timer or the task that a command asks for; empty when
// it can be stored. The ids of other requests are only in histories, which take any bytes.
func unfitCommand(c *model.Command) string {
	switch c.Kind {
	case model.CommandStopTimer, model.CommandWithdraw:
		return unfitTimer(c.Event.ID)
	case model.CommandStartTimer:
		if why := unfitTimer(c.Event.ID); why != "" {
			return why
		}
		return unfitID("a timer", c.Event.ID)
	case model.CommandRetry:
		return unfitID("an attempt", c.Event.ID)
	case model.CommandSchedule:
		if why := unfitID("a task", c.Event.ID); why != "" || c.Event.Task == nil {
			return why
		}
		if why := unfitSpec(c.Event.Task); why != "" {
			return "a task " + why
		}
	default:
	}
	return ""
}

// unfitTimer returns what is wrong with the id of a timer: only the engine may start and stop a
// timer with this id. It returns an empty text when the code of a run may use the id.
func unfitTimer(id string) string {
	if OwnTimer(id) || strings.HasPrefix(id, retryPrefix) {
		return fmt.Sprintf("timer %q, which belongs to the engine", id)
	}
	return ""
}

// unfitID returns what is wrong with the id of a timer or a task. An id may contain control
// characters, because it contains keys of users. But no store keeps a NUL byte in a text.
func unfitID(what, id string) string {
	switch {
	case len(id) > maxID:
		return fmt.Sprintf("%s with an id of %d bytes, at most %d are allowed", what, len(id), maxID)
	case !utf8.ValidString(id):
		return what + " with an id that is not valid UTF-8"
	case strings.IndexByte(id, 0) >= 0:
		return what + " with an id that contains a NUL byte"
	}
	return ""
}

// unfitTexts returns what is wrong with the first text that cannot be stored.
func unfitTexts(what string, texts []string, most int) string {
	for _, s := range texts {
		if why := unfit(what, s, most); why != "" {
			return why
		}
	}
	return ""
}

// unfitSignals returns what is wrong with the signals that come with a start. The stored form of a
// message does not have the kinds of these events, because only signals can come with a start.
func unfitSignals(with []model.Event) string {
	for i := range with {
		e := with[i]
		if e.Kind != 0 && e.Kind != model.EventSignalReceived {
			return fmt.Sprintf("with a %s", e.Kind)
		}
		if why := unfit("a signal name", e.Name, maxName); why != "" {
			return why
		}
		e.Kind, e.Name, e.Input = 0, "", model.Payload{}
		if !reflect.ValueOf(&e).Elem().IsZero() {
			return "with a signal that has more than a name and a value"
		}
	}
	return ""
}
