package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// stepLine is a step in JSON: something that the code of a run asked for.
type stepLine struct {
	Seq     int64  `json:"seq"`
	Kind    string `json:"kind"`
	Name    string `json:"name,omitempty"`
	ID      string `json:"id"`
	State   string `json:"state"`
	Attempt int    `json:"attempt,omitempty"`
	Started string `json:"started,omitempty"`
	Ended   string `json:"ended,omitempty"`
	Took    string `json:"took,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Target  string `json:"target,omitempty"`
	Due     string `json:"due,omitempty"`
	Error   string `json:"error,omitempty"`

	began model.Time
}

// Kinds and states of steps.
const (
	kindStep, kindTask, kindChild, kindTimer, kindCall         = "step", "task", "child", "timer", "call"
	stateRunning, stateWaiting, stateCompleted, stateFailed    = "running", "waiting", "completed", "failed"
	stateFired, stateWithdrawn, stateAnswered, stateUnfinished = "fired", "withdrawn", "answered", "unfinished"
)

func newWorkflowSteps(o *options) *cobra.Command {
	cmd := o.one("steps", "List the steps, tasks, children, timers and calls of a run", "  perdure workflow steps order/42\n  perdure workflow steps order/42 --fields name,state,took -o jsonl",
		func(ctx context.Context, b api.Backend, t api.Target) error {
			d, err := b.Describe(ctx, t)
			if err != nil {
				return err
			}
			t.Run = d.Start.Run
			events, err := wholeHistory(ctx, b, t)
			if err != nil {
				return err
			}
			return o.printSteps(stepsOf(events, d.Timers))
		})
	cmd.Long = `List the steps, tasks, children, timers and calls that the code of a run has asked for, in the order of its history, with their state, attempt and duration.

If the code runs a step itself, the history records only the end of the step. Of a timer it records only when the timer fires. So these steps and timers have no duration. Signals, updates, states and locks are not in the list: perdure workflow
show prints every event.`
	return cmd
}

// steps collects the steps of a history.
type steps struct {
	all []*stepLine
	by  map[string]*stepLine
}

// stepsOf returns the steps of a history, and the timers that are still open.
func stepsOf(events []model.Event, timers []api.Timer) []stepLine {
	s := steps{by: map[string]*stepLine{}}
	closed := false
	for i := range events {
		s.add(&events[i])
		closed = closed || events[i].Kind == model.EventClosed
	}
	for _, t := range timers {
		l := s.by[t.ID]
		if l == nil {
			l = s.step(&model.Event{ID: t.ID, Seq: int64(len(events))}, kindTimer)
			l.State = stateWaiting
		}
		if l.Due == "" {
			l.Due = when(t.Due)
		}
	}

	lines := make([]stepLine, len(s.all))
	for i, l := range s.all {
		if closed && (l.State == stateRunning || l.State == stateWaiting) {
			l.State, l.Due = stateUnfinished, ""
		}
		lines[i] = *l
	}
	return lines
}

// step returns the step of an event. If this is the first event of the step, it adds the step.
func (s *steps) step(e *model.Event, kind string) *stepLine {
	if l := s.by[e.ID]; l != nil {
		return l
	}
	l := &stepLine{Seq: e.Seq, Kind: kind, Name: e.Name, ID: e.ID}
	if !e.Target.IsZero() {
		l.Target = nameOf(e.Target)
	}
	s.by[e.ID], s.all = l, append(s.all, l)
	return l
}

// add records what an event says about its step.
func (s *steps) add(e *model.Event) {
	switch e.Kind {
	case model.EventTaskScheduled, model.EventChildStarted, model.EventSent:
		s.ask(e)
	case model.EventTaskClaimed:
		l := s.step(e, kindTask)
		l.State, l.Attempt, l.Worker, l.Due = stateRunning, e.Attempt, e.Worker, ""
	case model.EventTaskReturned:
		l := s.step(e, kindTask)
		l.State, l.Worker, l.Due = stateWaiting, "", when(e.Due)
	case model.EventAttemptFailed, model.EventTaskTimedOut:
		s.fail(e)

	case model.EventStepCompleted:
		s.step(e, kindStep).end(e, stateCompleted)
	case model.EventStepFailed:
		s.step(e, kindStep).end(e, stateFailed)
	case model.EventTimerFired:
		l := s.step(e, kindTimer)
		l.end(e, stateFired)
		l.Due = when(e.Due)
	case model.EventChildClosed:
		s.step(e, kindChild).end(e, e.Status.String())
	case model.EventAnswered:
		l := s.step(e, kindCall)
		l.end(e, stateAnswered)
		if e.Failure != nil {
			l.State = stateFailed
		}
	case model.EventWithdrawn:
		s.step(e, kindStep).end(e, stateWithdrawn)
	default: // other events do not belong to a step
	}
}

// ask records the start of a step that takes time: a task, a child or a call.
func (s *steps) ask(e *model.Event) {
	kind, state := kindCall, stateWaiting
	if e.Kind == model.EventTaskScheduled {
		kind = kindTask
	}
	if e.Kind == model.EventChildStarted {
		kind, state = kindChild, stateRunning
	}
	l := s.step(e, kind)
	l.State, l.began, l.Started = state, e.At, when(e.At)
	if e.Worker != "" { // the worker of the run executes the task itself
		l.State, l.Worker, l.Attempt = stateRunning, e.Worker, max(e.Attempt, 1)
	}
}

// fail records an attempt that failed. The step ends if the attempt is not repeated.
func (s *steps) fail(e *model.Event) {
	l := s.step(e, kindStep)
	if e.TimedOutForGood() {
		l.end(e, stateFailed)
		return
	}
	l.State, l.Worker, l.Due = stateWaiting, "", when(e.Due)
	l.Attempt = cmp.Or(e.Attempt, l.Attempt)
	if e.Failure != nil {
		l.Error = e.Failure.Message
	}
}

// end records the end of a step.
func (l *stepLine) end(e *model.Event, state string) {
	failedBefore := l.State == stateWaiting && l.Kind == kindStep
	l.State, l.Ended, l.Due, l.Error = state, when(e.At), "", ""
	if e.Failure != nil {
		l.Error = e.Failure.Message
	}
	switch {
	case e.Attempt > 0:
		l.Attempt = e.Attempt
	case failedBefore && state != stateWithdrawn:
		// The successful attempt comes after the last failed one.
		l.Attempt++
	}
	if !l.began.IsZero() {
		l.Took = e.At.Sub(l.began).Round(time.Microsecond).String()
	}
}

// printSteps prints the steps of a run.
func (o *options) printSteps(lines []stepLine) error {
	if o.structured() {
		return o.json(lines)
	}
	rows := make([][]string, len(lines))
	for i := range lines {
		l := &lines[i]
		rows[i] = []string{strconv.FormatInt(l.Seq, 10), l.Kind, cmp.Or(l.Name, l.ID), l.State, number(l.Attempt), dash(l.Took), l.detail()}
	}
	return o.table("#\tKIND\tNAME\tSTATE\tATTEMPT\tTOOK\tDETAIL", rows)
}

// detail says on one line what else is known about a step.
func (l *stepLine) detail() string {
	switch {
	case l.Error != "" && l.Due != "":
		return "again at " + l.Due + ": " + l.Error
	case l.Error != "":
		return l.Error
	case l.Target != "":
		return l.Target
	case l.Worker != "" && l.Ended == "":
		return "on " + l.Worker
	case l.Due != "" && l.Ended == "":
		return "at " + l.Due
	}
	return ""
}
