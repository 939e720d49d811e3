package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Names of the states of the execution of a schedule. A new run needs only these states.
const (
	stateSpec   = "spec"
	stateStatus = "status"
)

// maxDecisions is how many decisions one run makes. It keeps histories short.
const maxDecisions = 16

// run is one run of a schedule.
type run struct {
	x      replay.Ctx
	name   string
	spec   *Spec
	status Status

	open    map[string]*replay.Future // executions that were started, by key
	timer   *replay.Future
	due     time.Time // when the timer fires
	fired   bool      // the timer has fired
	queue   []*pending
	serving int            // updates that have started and not returned
	woken   *replay.Future // resolved when an update arrives
}

// pending is an update that waits for a decision.
type pending struct {
	command Command
	answer  Answer
	done    *replay.Future
}

// Observer is notified of decisions when they are made, not when they are replayed. It sees a
// decision twice only if the process dies before the decision is recorded. The host of the code may
// implement it.
type Observer interface {
	// CountDecisions reports the counts of a schedule before and after a decision.
	CountDecisions(schedule string, was, is *Counts)
}

// Code is the workflow of schedules. It stores plain JSON regardless of the payload settings of the
// process, so that every process can serve it.
func Code(x replay.Ctx, _ model.Payload) (model.Payload, error) {
	self, _ := x.Self()
	r := &run{x: x, name: self.Key, open: map[string]*replay.Future{}, woken: x.Local()}
	if p, ok := x.State(stateSpec); ok {
		r.spec = &Spec{}
		r.read(p, r.spec)
	}

	if p, ok := x.State(stateStatus); ok {
		r.read(p, &r.status)
	}
	for i := range r.status.Open {
		r.watch(&r.status.Open[i])
	}
	for _, verb := range []string{VerbApply, VerbPause, VerbResume, VerbTrigger, VerbBackfill, VerbDelete} {
		x.HandleUpdate(verb, replay.UpdateHandler{Serve: func(x replay.Ctx, p model.Payload) (model.Payload, error) { return r.serve(x, verb, p) }})
	}

	return model.Payload{}, r.loop()
}

// read decodes a value that this workflow has stored. If it cannot decode the value, it blocks the
// schedule until a build that can read the value takes over.
func (r *run) read(p model.Payload, into any) {
	if err := json.Unmarshal(p.Data, into); err != nil {
		r.x.Block("schedule " + r.name + ": " + err.Error())
	}
}

// loop waits until there is something to decide, decides, and acts on the decision. After
// maxDecisions it continues in a new run.
func (r *run) loop() error {
	for n := 1; ; n++ {
		for !r.news() {
			if err := r.wait(); err != nil {
				return err
			}
		}

		commands := r.queue
		r.queue, r.fired = nil, false
		d, err := r.decide(n, commands)
		if err != nil {
			return err
		}
		if err := r.do(&d, commands); err != nil {
			return err
		}

		for i, p := range commands {
			if i < len(d.Answers) {
				p.answer = d.Answers[i]
			}
			r.x.Resolve(p.done)
		}

		if d.Over || n >= maxDecisions {
			if err := r.serveAll(); err != nil {
				return err
			}
			if d.Over {
				r.refuse()
				return r.serveAll()
			}
			if len(r.queue) == 0 {
				return &replay.Continue{Workflow: Type, Input: startInput}
			}
		}
	}
}

// news reports whether there is something to decide.
func (r *run) news() bool {
	if r.fired || len(r.queue) > 0 {
		return true
	}
	for _, f := range r.open {
		if f.Done() {
			return true
		}
	}
	return false
}

// decide makes a decision as a step, so that it is recorded before the schedule acts on it.
func (r *run) decide(n int, commands []*pending) (d Decision, err error) {
	in := Situation{Name: r.name, Now: r.x.Now(), Spec: r.spec, Status: r.status, Ended: r.takeEnded()}
	for _, p := range commands {
		in.Commands = append(in.Commands, p.command)
	}

	p, err := r.x.Step(&replay.Step{
		Name: "decide", Key: strconv.Itoa(n), Keyed: true,
		Body: func(context.Context) (model.Payload, error) {
			d, err := Decide(in)
			if err != nil {
				// This process does not know the time zone, but another process may know it.
				return model.Payload{}, err
			}
			if o, ok := r.x.Host().(Observer); ok {
				o.CountDecisions(r.name, &in.Status.Counts, &d.Status.Counts)
			}
			data, err := json.Marshal(d)
			return model.Payload{Data: data}, err
		},
	})
	if err == nil {
		r.read(p, &d)
	}

	return d, err
}

// takeEnded returns the executions that are known to have ended, ordered by key.
func (r *run) takeEnded() (all []Ended) {
	for _, key := range slices.Sorted(maps.Keys(r.open)) {
		f := r.open[key]
		if !f.Done() {
			continue
		}
		e := Ended{Key: key}
		if err := f.Err(); err != nil {
			e.Error = err.Error()
			if e.Error == "" {
				e.Error = "it failed"
			}
		}
		all = append(all, e)
		delete(r.open, key)
	}

	return all
}

// do carries out a decision.
func (r *run) do(d *Decision, commands []*pending) error {
	if d.Adopt > 0 {
		spec := *commands[d.Adopt-1].command.Spec
		if err := spec.Complete(r.name); err != nil {
			return err // cannot happen: the definition was valid when it was adopted
		}
		if r.spec == nil || r.spec.App != spec.App {
			if err := r.x.SetLabel(LabelApp, spec.App); err != nil {
				return err
			}
		}
		r.spec = &spec
		if err := r.set(stateSpec, r.spec); err != nil {
			return err
		}
	}

	for i := range d.Start {
		if err := r.start(&d.Start[i]); err != nil {
			return err
		}
	}

	r.status = d.Status
	if err := r.set(stateStatus, &r.status); err != nil {
		return err
	}

	for key := range r.open { // too many to watch
		if !slices.ContainsFunc(r.status.Open, func(f Fire) bool { return f.Key == key }) {
			delete(r.open, key)
		}
	}

	for _, f := range d.Cancel {
		// Ignore the error: the execution may have ended already, and its outcome will show that.
		_, _ = r.x.Send(model.Message{
			Kind: model.MessageCancel, To: r.address(&f), Failure: &model.Failure{Kind: model.FailureCanceled, Message: "the next tick of schedule " + r.name + " has come"},
		}, strconv.FormatInt(d.Status.Counts.Fired, 10), nil)
	}

	return r.x.Err()
}

// set stores a state.
func (r *run) set(state string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.x.SetState(state, model.Payload{Data: data}, nil)
}

// address returns the address of an execution that the schedule starts.
func (r *run) address(f *Fire) model.Address {
	self, _ := r.x.Self()
	return model.Address{Tenant: self.Tenant, Type: f.Workflow, Key: f.Key}
}

// start starts an execution. The execution continues when the schedule ends.
func (r *run) start(f *Fire) error {
	job := &r.spec.Job
	labels := model.Labels(job.Labels)
	labels = model.SetLabel(labels, LabelName, r.name)
	labels = model.SetLabel(labels, LabelTick, stamp(f.Tick))
	c := replay.Child{
		Workflow: f.Workflow, Key: f.Key, Keyed: true, Input: job.Input.Payload, Policy: model.AbandonChild, Labels: labels, Task: job.Task,
	}
	if f.Kind == ByBackfill {
		c.Reuse = model.ReuseIfFailed
	}
	if _, err := r.x.StartChild(c); err != nil {
		return err
	}
	r.watch(f)
	return nil
}

// watch wakes the schedule when an execution ends.
func (r *run) watch(f *Fire) { r.open[f.Key] = r.x.Outcome(r.address(f), model.RunID{}) }

// wait waits for the next tick, the end of an execution, or an update.
func (r *run) wait() error {
	if r.timer != nil && !r.due.Equal(r.status.Wake) {
		if err := r.x.Cancel(r.timer); err != nil {
			return err
		}
		r.timer = nil
	}

	if r.timer == nil && !r.status.Wake.IsZero() {
		r.timer, r.due = r.x.Timer(r.status.Wake.Sub(r.x.Now())), r.status.Wake
	}
	var all []*replay.Future
	if r.timer != nil {
		all = append(all, r.timer)
	}
	all = append(all, r.woken)
	for _, key := range slices.Sorted(maps.Keys(r.open)) {
		all = append(all, r.open[key])
	}
	if _, err := r.x.Select(all); err != nil {
		return err
	}

	if r.timer != nil && r.timer.Done() {
		r.timer, r.fired = nil, true
	}
	if r.woken.Done() {
		r.woken = r.x.Local()
	}

	return nil
}

// serve handles one update: it waits until the loop has decided about it.
func (r *run) serve(x replay.Ctx, verb string, p model.Payload) (model.Payload, error) {
	c := Command{Verb: verb}
	if len(p.Data) > 0 {
		if p.Encoding != model.JSON {
			return model.Payload{}, fault.New(fault.Invalid, "update %s of schedule %s is encoded as %s: it must be plain JSON", verb, r.name, p.Form())
		}
		if err := json.Unmarshal(p.Data, &c); err != nil {
			return model.Payload{}, fault.New(fault.Invalid, "update %s of schedule %s: %w", verb, r.name, err)
		}
	}

	mine := &pending{command: c, done: x.Local()}
	r.queue = append(r.queue, mine)
	r.serving++
	x.Resolve(r.woken)
	err := x.Get(mine.done)
	r.serving--
	x.Resolve(r.woken)
	if err != nil {
		return model.Payload{}, err
	}

	if a := &mine.answer; a.Text != "" {
		return model.Payload{}, &model.Failure{Kind: a.Kind, Message: a.Text, Permanent: true}
	}
	data, err := json.Marshal(mine.answer)
	return model.Payload{Data: data}, err
}

// serveAll waits until all updates that the loop has decided about have returned their answers.
func (r *run) serveAll() error {
	for r.serving > len(r.queue) {
		if _, err := r.x.Select([]*replay.Future{r.woken}); err != nil {
			return err
		}
		r.woken = r.x.Local()
	}
	return nil
}

// refuse answers updates that arrived after the schedule was deleted.
func (r *run) refuse() {
	for _, p := range r.queue {
		p.answer = Answer{Kind: fault.NotFound.String(), Text: fmt.Sprintf("schedule %s has been deleted", r.name)}
		r.x.Resolve(p.done)
	}
	r.queue = nil
}
