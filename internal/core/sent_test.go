package core_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

var senders = map[core.Sender][]model.MessageKind{
	core.SenderRun: {
		model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageCall, model.MessageUpdate,
		model.MessageTerminate, model.MessagePause, model.MessageResume,
	},
	core.SenderEntity: {model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageCall},
	core.SenderClient: {model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageCall},
}

// mayCarry says which field of a message a sender may set.
func mayCarry(field string, by core.Sender, kind model.MessageKind) bool {
	start, call := kind == model.MessageStart, kind == model.MessageCall
	switch field {
	case "Kind", "To", "Name", "Input", "Failure", "Trace":
		return true
	case "Reuse", "With", "Labels", "Task", "Terms":
		return start
	case "Policy":
		return start && by == core.SenderRun
	case "ToRun":
		return !start && !call
	case "OneWay":
		return call
	case "Brief":
		return call && by == core.SenderClient
	case "RequestID":
		return by != core.SenderRun || !call && kind != model.MessageUpdate
	case "Keep":
		return by != core.SenderRun
	case "From", "Section": // the engine replaces them in the messages of a run
		return by == core.SenderRun
	}
	return false // only the engine may set it
}

// fill sets a field to a value that is valid in itself.
func fill(m *model.Message, field string) {
	switch field {
	case "Labels":
		m.Labels = []model.Label{{Name: "a", Value: "1"}}
	case "With":
		m.With = []model.Event{{Name: "x"}}
	case "Task":
		m.To.Type, m.Task = model.TaskPrefix+"work", &model.TaskSpec{Kind: "work", Queue: "q"}
	case "From":
		m.From.ID = "s"
	case "Input":
		m.Input = value("1")
	default:
		v := reflect.ValueOf(m).Elem().FieldByName(field)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint8:
			v.SetUint(1)
		case reflect.Array:
			v.Index(0).SetUint(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		default: // the test fails, because the field stays zero
		}
	}
}

// A worker and a client may set only the fields of a message that the test names, in each kind of
// message that they send. Everything else belongs to the engine, also a field of a later build.
func TestEveryFieldOfASentMessage(t *testing.T) {
	t.Parallel()
	fields := reflect.TypeFor[model.Message]()
	for by, kinds := range senders {
		for _, kind := range kinds {
			for i := range fields.NumField() {
				field := fields.Field(i).Name
				m := model.Message{Kind: kind, To: address("x")}
				if field != "Kind" && field != "To" {
					fill(&m, field)
					if reflect.ValueOf(&m).Elem().Field(i).IsZero() {
						t.Fatalf("the test does not know how to set %s", field)
					}
				}
				if with := core.Overreach(&m, by); (with == "") != mayCarry(field, by, kind) {
					t.Errorf("sender %d, a %s with %s: %q, want it allowed: %v", by, kind, field, with, mayCarry(field, by, kind))
				}
			}
		}
	}
}

// longTask makes a message the start of a task whose activity has a name of n bytes.
func longTask(m *model.Message, n int) {
	fill(m, "Task")
	m.Task.Kind = strings.Repeat("x", n)
	m.To.Type = model.TaskPrefix + m.Task.Kind
}

// The core refuses a message with a value that cannot be stored, or that the code of the engine
// does not expect. This is the same for every kind of sender.
func TestValuesOfSentMessages(t *testing.T) {
	t.Parallel()
	task := func(change func(*model.TaskSpec)) func(*model.Message) {
		return func(m *model.Message) {
			fill(m, "Task")
			change(m.Task)
		}
	}
	terms := func(terms model.Terms) func(*model.Message) { return func(m *model.Message) { m.Terms = &terms } }
	with := func(e model.Event) func(*model.Message) { return func(m *model.Message) { m.With = []model.Event{e} } }
	labels := func(labels ...model.Label) func(*model.Message) {
		return func(m *model.Message) { m.Labels = labels }
	}
	many := make([]model.Label, model.MaxLabels+1)
	for i := range many {
		many[i] = model.Label{Name: "a" + string(rune('A'+i)), Value: "1"}
	}

	for what, c := range map[string]struct {
		change func(*model.Message)
		want   string
	}{
		"a type that is empty":      {func(m *model.Message) { m.To.Type = "" }, "a type that is empty"},
		"a key that is empty":       {func(m *model.Message) { m.To.Key = "" }, "a key that is empty"},
		"a long type":               {func(m *model.Message) { m.To.Type = strings.Repeat("x", 201) }, "a type of 201 bytes"},
		"the task of a long name":   {func(m *model.Message) { longTask(m, 200) }, ""},
		"the task of a longer name": {func(m *model.Message) { longTask(m, 201) }, "a type of 206 bytes"},
		"a long key":                {func(m *model.Message) { m.To.Key = strings.Repeat("x", 513) }, "a key of 513 bytes"},
		"a key with a NUL":          {func(m *model.Message) { m.To.Key = "a\x00" }, "a control character"},
		"a key that is not UTF-8":   {func(m *model.Message) { m.To.Key = "\xff" }, "not valid UTF-8"},
		"a long name":               {func(m *model.Message) { m.Name = strings.Repeat("x", 201) }, "a name of 201 bytes"},
		"a name with a NUL":         {func(m *model.Message) { m.Name = "\x00" }, "a control character"},
		"a long request id":         {func(m *model.Message) { m.RequestID = strings.Repeat("x", 201) }, "a request id of 201 bytes"},
		"a request id of a call":    {func(m *model.Message) { m.RequestID = model.CallIDs + "x" }, "a control character"},
		"a request id of an update": {func(m *model.Message) { m.RequestID = model.UpdateIDs + "x" }, "a control character"},
		"a long trace":              {func(m *model.Message) { m.Trace = strings.Repeat("0", 201) }, "a trace context of 201 bytes"},
		"too many bytes":            {func(m *model.Message) { m.Input.Data = make([]byte, 51<<20) }, "at most 52428800 are allowed"},
		"a batch job":               {func(m *model.Message) { m.To.Type = model.BatchType }, "of a batch job"},
		"an entity":                 {func(m *model.Message) { m.To = entityAddress("a") }, "of an entity"},
		"a reuse policy":            {func(m *model.Message) { m.Reuse = 77 }, "policy 77"},
		"too many labels":           {labels(many...), "with 33 labels"},
		"a label with a NUL":        {labels(model.Label{Name: "a", Value: "\x00"}), "a NUL byte"},
		"a label without a value":   {labels(model.Label{Name: "a"}), "no value"},
		"a label with a long name":  {labels(model.Label{Name: strings.Repeat("x", 65), Value: "1"}), "65 bytes"},
		"labels out of order":       {labels(model.Label{Name: "b", Value: "1"}, model.Label{Name: "a", Value: "1"}), "not in order"},
		"a label twice":             {labels(model.Label{Name: "a", Value: "1"}, model.Label{Name: "a", Value: "2"}), "label a twice"},
		"a negative delay":          {terms(model.Terms{Delay: -1}), "start delay"},
		"an endless time-out":       {terms(model.Terms{Timeout: 200 * 365 * 24 * time.Hour}), "execution timeout"},
		"a policy that shrinks":     {terms(model.Terms{Retry: &model.Retry{Coefficient: 500}}), "coefficient"},
		"a failure with a NUL":      {terms(model.Terms{Retry: &model.Retry{Final: []string{"\x00"}}}), "a final failure that contains"},
		"a task and terms":          {func(m *model.Message) { fill(m, "Task"); m.Terms = &model.Terms{} }, "the terms of an execution"},
		"a task and signals":        {func(m *model.Message) { fill(m, "Task"); fill(m, "With") }, "with signals"},
		"a task elsewhere":          {func(m *model.Message) { m.Task = &model.TaskSpec{Kind: "work", Queue: "q"} }, "another address"},
		"the address of a task":     {func(m *model.Message) { m.To.Type = model.TaskPrefix + "work" }, "without the task"},
		"a task of another kind":    {task(func(s *model.TaskSpec) { s.Kind = "other" }), "another address"},
		"a task without a queue":    {task(func(s *model.TaskSpec) { s.Queue = "" }), "without a queue"},
		"a priority":                {task(func(s *model.TaskSpec) { s.Priority = model.MaxPriority + 1 }), "priority"},
		"a weight":                  {task(func(s *model.TaskSpec) { s.Weight = -1 }), "weight"},
		"a delay":                   {task(func(s *model.TaskSpec) { s.Delay = -1 }), "delay"},
		"a long queue":              {task(func(s *model.TaskSpec) { s.Queue = strings.Repeat("x", 201) }), "a queue of 201 bytes"},
		"a breaker with a NUL":      {task(func(s *model.TaskSpec) { s.Breaker = "\x00" }), "a breaker that contains"},
		"a long fairness key":       {task(func(s *model.TaskSpec) { s.Fair = strings.Repeat("x", 201) }), "a fairness key of 201 bytes"},
		"a limit without a name":    {task(func(s *model.TaskSpec) { s.Limits = []string{""} }), "a limit that is empty"},
		"a signal without a name":   {with(model.Event{}), "a signal name that is empty"},
		"a signal with a long name": {with(model.Event{Name: strings.Repeat("x", 201)}), "a signal name of 201 bytes"},
		"another event":             {with(model.Event{Name: "x", Kind: model.EventStepCompleted}), "with a step_completed"},
		"a signal with an id":       {with(model.Event{Name: "x", ID: "s"}), "more than a name and a value"},
		"a signal with a watcher":   {with(model.Event{Name: "x", Watcher: &model.Link{ID: "s"}}), "more than a name and a value"},
		"a signal with a request":   {with(model.Event{Name: "x", RequestID: "r"}), "more than a name and a value"},
	} {
		m := model.Message{Kind: model.MessageStart, To: address("x")}
		c.change(&m)
		for by := range senders {
			if with := core.Overreach(&m, by); !strings.Contains(with, c.want) {
				t.Errorf("%s: %q, want %q", what, with, c.want)
			}
		}
	}

	call := model.Message{Kind: model.MessageCall, To: entityAddress("a"), OneWay: true, RequestID: model.CallIDs + "x"}
	if with := core.Overreach(&call, core.SenderEntity); with != "" {
		t.Errorf("a call with the request id that the service composes: %s", with)
	}
}

// A turn that sends or starts what workers may not send is refused with an error of kind Invalid,
// and leaves the run as it was.
func TestTurnsThatOverreach(t *testing.T) {
	t.Parallel()
	send := func(m model.Message) model.Command {
		return model.Command{Kind: model.CommandSend, Event: model.Event{ID: "x"}, Message: &m}
	}
	child := func(change func(*model.Command)) model.Command {
		c := model.Command{Kind: model.CommandStartChild, Event: model.Event{ID: "x", Target: address("child")}}
		change(&c)
		return c
	}

	timer := func(kind model.CommandKind, id string) model.Command {
		return model.Command{Kind: kind, Event: model.Event{ID: id}, Delay: time.Hour}
	}
	task := func(id string, spec model.TaskSpec) model.Command {
		return model.Command{Kind: model.CommandSchedule, Event: model.Event{Kind: model.EventTaskScheduled, ID: id, Task: &spec}}
	}

	bad := address("a\x00")
	for what, c := range map[string]model.Command{
		"a start, which no answer ends": send(model.Message{Kind: model.MessageStart, To: address("x")}),
		"a signal with a run id":        send(model.Message{Kind: model.MessageSignal, To: address("x"), Name: "n", Fresh: runID(9)}),
		"a signal to a bad key":         send(model.Message{Kind: model.MessageSignal, To: bad, Name: "n"}),
		"an update with a request id":   send(model.Message{Kind: model.MessageUpdate, To: address("x"), Name: "n", RequestID: model.UpdateIDs + "x"}),
		"a call with deaths":            send(model.Message{Kind: model.MessageCall, To: entityAddress("a"), Name: "n", Deaths: 9}),
		"a signal that is kept":         send(model.Message{Kind: model.MessageSignal, To: address("x"), Name: "n", Keep: true}),
		"a child with a bad label":      child(func(c *model.Command) { c.Labels = []model.Label{{Name: "a", Value: "\x00"}} }),
		"a child with labels in disorder": child(func(c *model.Command) {
			c.Labels = []model.Label{{Name: "b", Value: "1"}, {Name: "a", Value: "1"}}
		}),
		"a child with too many labels": child(func(c *model.Command) { c.Labels = make([]model.Label, model.MaxLabels+1) }),
		"a child with a bad key":       child(func(c *model.Command) { c.Event.Target = bad }),
		"a child with a policy":        child(func(c *model.Command) { c.Event.Policy = 9 }),
		"a wait for a bad key":         {Kind: model.CommandWatch, Event: model.Event{ID: "x", Target: bad}},
		"a timer with a NUL":           timer(model.CommandStartTimer, "a\x00"),
		"a timer that is not UTF-8":    timer(model.CommandStartTimer, "\xff"),
		"a timer with a long id":       timer(model.CommandStartTimer, strings.Repeat("x", 1001)),
		"a timer of the engine":        timer(model.CommandStartTimer, "begin\x1f"),
		"a back-off of the engine":     timer(model.CommandStartTimer, "retry\x1f1\x1fa"),
		"the end of a time-out":        timer(model.CommandStopTimer, "expire\x1f"),
		"no time-out any longer":       timer(model.CommandWithdraw, "expire\x1f"),
		"a pause of a step with a NUL": timer(model.CommandRetry, "a\x00"),
		"a task with a NUL":            task("a\x00", model.TaskSpec{Kind: "work", Queue: "q"}),
		"a task that is not UTF-8":     task("\xff", model.TaskSpec{Kind: "work", Queue: "q"}),
		"a task of a bad kind":         task("x", model.TaskSpec{Kind: "\xff", Queue: "q"}),
		"a task of a bad queue":        task("x", model.TaskSpec{Kind: "work", Queue: "\x00"}),
		"a task with a bad limit":      task("x", model.TaskSpec{Kind: "work", Queue: "q", Limits: []string{"\x00"}}),
		"a lock of a bad key":          {Kind: model.CommandLock, Event: model.Event{ID: "x", Locks: []model.Address{entityAddress("a\x00")}}},
	} {
		p := newLockPlay(t.Fatalf, 1, 0)
		p.start(p.runs[0])
		before := p.seat(p.runs[0]).x.Next
		if err := p.do(p.runs[0], model.Turn{Commands: []model.Command{c}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
		if after := p.seat(p.runs[0]).x.Next; after != before {
			t.Errorf("%s: the refused turn wrote %d events", what, after-before)
		}
	}
}
