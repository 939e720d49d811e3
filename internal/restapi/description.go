package restapi

import (
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// description is everything that the API returns about an execution.
type description struct {
	Execution

	Shard     int        `json:"shard"`
	Owner     string     `json:"owner,omitempty" doc:"The node that owns the shard"`
	Current   bool       `json:"current" doc:"Whether it is the current run of its key"`
	Events    int64      `json:"events"`
	Input     any        `json:"input,omitempty"`
	Output    any        `json:"output,omitempty"`
	Failure   *failure   `json:"failure,omitempty"`
	Parent    string     `json:"parent,omitempty" doc:"The execution that started it, as workflow/key"`
	Waits     []reason   `json:"waits,omitempty" doc:"Why it makes no progress, the main reason first"`
	BeganWith *past      `json:"began_with,omitempty" doc:"Where the first events of a fork, retry, reset or import come from"`
	Timers    []timer    `json:"timers,omitempty"`
	Tasks     []openTask `json:"tasks,omitempty"`
}

// past is where the first events of a run come from.
type past struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Events   int64  `json:"events"`
}

type timer struct {
	ID  string     `json:"id"`
	Due *time.Time `json:"due"`
}

// openTask is an open task of a run.
type openTask struct {
	Step      string     `json:"step"`
	Activity  string     `json:"activity"`
	Queue     string     `json:"queue"`
	Attempt   int        `json:"attempt"`
	Worker    string     `json:"worker,omitempty" doc:"The worker that executes it"`
	Since     *time.Time `json:"since,omitempty" doc:"When the worker took it"`
	Next      *time.Time `json:"next,omitempty" doc:"When the next attempt may start"`
	Failures  int        `json:"failures,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Progress  any        `json:"progress,omitempty"`
}

func descriptionOf(d *api.Description) description {
	o := description{
		Execution: executionOf(d), Shard: int(d.Shard), Current: d.Current, Events: d.Events, Input: value(d.Start.Input), Output: value(d.Outcome.Output),
		Failure: failureOf(d.Outcome.Failure), Parent: nameOf(d.Start.Parent.Address), Waits: each(d.Reasons, reasonOf), Tasks: each(d.Tasks, openTaskOf),
	}
	if !d.Owner.IsZero() {
		o.Owner = d.Owner.String()
	}
	o.BeganWith = pastOf(d)
	for _, t := range d.Timers {
		o.Timers = append(o.Timers, timer{t.ID, at(t.Due)})
	}
	return o
}

func openTaskOf(t *api.Task) openTask {
	o := openTask{Step: t.ID, Activity: t.Activity, Queue: t.Queue, Attempt: t.Attempt, Worker: t.Worker, Failures: t.Failures, Progress: value(t.Progress)}
	if t.Worker != "" {
		o.Since = at(t.Since)
	} else {
		o.Next = at(t.Next)
	}
	if t.Last != nil {
		o.LastError = t.Last.Message
	}
	return o
}

// explanation says why an execution makes no progress.
type explanation struct {
	Status  string   `json:"status"`
	Error   string   `json:"error,omitempty" doc:"What it failed with"`
	Reasons []reason `json:"reasons" doc:"Why it makes no progress, the main reason first; empty if it is closed"`
	Because []link   `json:"because" doc:"The chain from the main reason to its cause"`
	Alive   []string `json:"alive" doc:"Which code the live processes have, if code is missing"`
}

// link is one link of a chain of reasons.
type link struct {
	Subject string `json:"subject" doc:"An execution or an entity, as workflow/key or entity/key"`
	Reason  reason `json:"reason"`
}

func explanationOf(d *api.Description) explanation {
	e := explanation{Status: d.Outcome.Status.String(), Reasons: each(d.Reasons, reasonOf), Alive: append([]string{}, d.Alive...)}
	if f := d.Outcome.Failure; f != nil {
		e.Error = f.Message
	}
	e.Because = each(d.Chain, func(l *api.Link) link { return link{l.Subject, reasonOf(&l.Reason)} })
	return e
}

// Event is an event of a history.
type Event struct {
	Seq     int64      `json:"seq" doc:"The position in the history"`
	At      *time.Time `json:"at"`
	Kind    string     `json:"kind"`
	Name    string     `json:"name,omitempty"`
	ID      string     `json:"id,omitempty" doc:"The id of the step"`
	Attempt int        `json:"attempt,omitempty"`
	Input   any        `json:"input,omitempty"`
	Output  any        `json:"output,omitempty"`
	Size    int        `json:"size,omitempty" doc:"The bytes of input and output, if they are left out"`
	Failure *failure   `json:"failure,omitempty"`
	Due     *time.Time `json:"due,omitempty" doc:"When a timer fires, or when the next attempt may start"`
	Target  string     `json:"target,omitempty" doc:"workflow/key or entity/key"`
	Locks   []string   `json:"locks,omitempty" doc:"Entities that a section asks for"`
	Section string     `json:"section,omitempty"`
	Status  string     `json:"status,omitempty" doc:"How the run ended"`
}

// eventOf returns an event, with its payloads or with their size.
func eventOf(e *model.Event, payloads bool) Event {
	o := Event{
		Seq: e.Seq, At: at(e.At), Kind: e.Kind.String(), Name: e.Name, ID: e.ID, Attempt: e.Attempt, Failure: failureOf(e.Failure), Due: at(e.Due),
		Target: nameOf(e.Target), Section: e.Section,
	}

	if payloads {
		o.Input, o.Output = value(e.Input), value(e.Output)
	} else {
		o.Size = len(e.Input.Data) + len(e.Output.Data)
	}

	for _, a := range e.Locks {
		o.Locks = append(o.Locks, nameOf(a))
	}
	if e.Kind == model.EventClosed {
		o.Status = e.Status.String()
	}

	return o
}
