package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// startInput is the input of every run of a schedule. A schedule gets its definition by updates.
var startInput = model.Payload{Data: []byte("{}")}

// Schedules are the schedules of one tenant.
type Schedules struct {
	client api.Client
	tenant string
}

// In returns the schedules of a tenant. Its methods use client to read and operate them.
func In(client api.Client, tenant string) Schedules { return Schedules{client, tenant} }

// Address returns the address of a schedule.
func (s Schedules) Address(name string) model.Address {
	return model.Address{Tenant: s.tenant, Type: Type, Key: name}
}

// Request returns a command as the update that a schedule serves.
func (s Schedules) Request(name string, c *Command) (api.UpdateRequest, error) {
	data, err := json.Marshal(c)
	if err != nil { // such as a year beyond 9999
		return api.UpdateRequest{}, fault.New(fault.Invalid, "%s of schedule %s: %w", c.Verb, name, err)
	}
	return api.UpdateRequest{Target: api.Target{Address: s.Address(name)}, Name: c.Verb, Input: model.Payload{Data: data}}, nil
}

// ReadAnswer reads the answer to a command.
func ReadAnswer(p model.Payload) (a Answer, err error) {
	if err = json.Unmarshal(p.Data, &a); err != nil {
		err = fault.New(fault.Corrupt, "the answer of a schedule: %w", err)
	}
	return a, err
}

// Ask sends a command and waits for the answer.
func (s Schedules) Ask(ctx context.Context, name string, c *Command) (Answer, error) {
	if err := CheckName(name); err != nil {
		return Answer{}, err
	}
	r, err := s.Request(name, c)
	if err != nil {
		return Answer{}, err
	}
	p, err := s.client.Update(ctx, r)
	if err != nil {
		return Answer{}, s.Explain(ctx, name, err)
	}
	return ReadAnswer(p)
}

// Explain turns an error about the execution of a schedule into an error about the schedule. A
// conflict has one of two meanings. The schedule itself may have refused the request, for example a
// trigger. Or the execution has ended, which means that there is no schedule.
func (s Schedules) Explain(ctx context.Context, name string, err error) error {
	if f, ok := errors.AsType[*model.Failure](err); ok {
		return fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
	}
	gone := fault.Is(err, fault.NotFound)
	if fault.Is(err, fault.Conflict) {
		d, bad := s.client.Describe(ctx, api.Target{Address: s.Address(name)})
		gone = fault.Is(bad, fault.NotFound) || bad == nil && d.Outcome.Status.Closed()
	}
	if gone {
		return fault.New(fault.NotFound, "there is no schedule %s", name)
	}
	return err
}

// Apply makes the definition current: it creates the schedule, changes it, or does nothing if the
// schedule already has that definition. If dry is true, it only returns what it would do.
func (s Schedules) Apply(ctx context.Context, name string, c Command, dry bool) (change string, err error) {
	spec := *c.Spec
	if err := spec.Define(name); err != nil {
		return "", err
	}
	c.Verb, c.Spec = VerbApply, &spec

	for range 3 {
		now, err := s.Look(ctx, name)
		switch {
		case err == nil && now.Spec.same(&spec):
			return Unchanged, nil
		case err == nil && dry:
			return Changed, nil
		case fault.Is(err, fault.NotFound) && dry:
			return Created, nil
		case fault.Is(err, fault.NotFound):
			if _, err := s.client.Start(ctx, api.StartRequest{Address: s.Address(name), Input: startInput, Reuse: model.ReuseAlways}); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		}

		a, err := s.Ask(ctx, name, &c)
		if fault.Is(err, fault.NotFound) {
			continue // another caller has deleted the schedule in between
		}
		return a.Change, err
	}

	return "", fault.New(fault.Conflict, "schedule %s is being deleted by another client", name)
}

// Seen is the current state of a schedule.
type Seen struct {
	Tenant  string
	Name    string
	Spec    Spec
	Status  Status
	Started time.Time
	// Trouble is why the schedule makes no progress although its ticks are due; empty if it makes
	// progress.
	Trouble string
}

// Look reads a schedule. It fails with NotFound if the schedule does not exist. It works even if no
// process serves the schedule.
func (s Schedules) Look(ctx context.Context, name string) (Seen, error) {
	if err := CheckName(name); err != nil {
		return Seen{}, err
	}
	d, err := s.client.Describe(ctx, api.Target{Address: s.Address(name)})
	if err != nil {
		return Seen{}, s.Explain(ctx, name, err)
	}
	if d.Outcome.Status.Closed() {
		return Seen{}, fault.New(fault.NotFound, "there is no schedule %s: it was deleted", name)
	}
	return look(ctx, s.client, &d)
}

// look reads the definition and the status of a schedule.
func look(ctx context.Context, b api.Client, d *api.Description) (Seen, error) {
	s := Seen{Tenant: d.Start.Address.Tenant, Name: d.Start.Address.Key, Started: d.Start.At.Std()}
	for state, into := range map[string]any{stateSpec: &s.Spec, stateStatus: &s.Status} {
		p, ok, err := b.State(ctx, api.Target{Address: d.Start.Address}, state)
		if err != nil {
			return s, err
		}
		if !ok {
			return s, fault.New(fault.NotFound, "schedule %s has not been applied yet", s.Name)
		}
		if err := json.Unmarshal(p.Data, into); err != nil {
			return s, fault.New(fault.Corrupt, "schedule %s: its %s cannot be read: %w", s.Name, state, err)
		}
	}
	return s, s.trouble(ctx, b, d)
}

// List reads all schedules, or the schedules that the given app has applied. For a schedule that
// cannot be read it yields an error, and continues with the next one.
func (s Schedules) List(ctx context.Context, app string) iter.Seq2[Seen, error] {
	return func(yield func(Seen, error) bool) {
		req := api.ListRequest{Tenant: s.tenant, Workflows: []string{Type}, Statuses: []model.Status{model.Running}, Limit: 200, Explain: true}
		if app != "" {
			req.Labels = []model.LabelCondition{{Name: LabelApp, Values: []string{app}}}
		}

		for {
			page, err := s.client.List(ctx, req)
			if err != nil {
				yield(Seen{}, err)
				return
			}

			for i := range page.Executions {
				seen, err := look(ctx, s.client, &page.Executions[i])
				if fault.Is(err, fault.NotFound) {
					continue // the schedule is being created, or was just deleted
				}
				if !yield(seen, err) {
					return
				}
			}

			if req.Cursor = page.Cursor; req.Cursor == "" {
				return
			}
		}
	}
}

// Next returns the first n times after a point in time, within the bounds of the definition.
func (s *Spec) Next(after time.Time, n int) ([]time.Time, error) {
	d := decider{spec: s}
	if err := d.load(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fault.New(fault.Invalid, "the next %d times: the number must be >= 0", n)
	}

	all := make([]time.Time, 0, min(n, maxScan))
	for range min(n, maxScan) {
		t, ok := d.next(after)
		if !ok {
			break
		}
		all = append(all, t)
		after = t
	}

	return all, nil
}

// Serve runs the schedules of a tenant until the caller calls stop, in a process that runs no other
// code.
func Serve(ctx context.Context, b api.Backend, tenant string, log *slog.Logger) (stop func(), err error) {
	return serve(log, func(w *replay.Worker) (api.Session, error) {
		return b.Join(ctx, w, api.Offer{Tenant: tenant, Workflows: []string{Type}})
	})
}

// Host is an engine in this process, which gives work of every tenant to workers that run code of
// Perdure itself.
type Host interface {
	// JoinBuiltIn adds a worker that runs the workflows for every tenant.
	JoinBuiltIn(ctx context.Context, w api.Worker, workflows ...string) (api.Session, error)
}

// ServeAll runs the schedules of every tenant until the caller calls stop. A server uses it, so
// that schedules continue even if no app of their tenant is connected. A job that was started waits
// for workers of its tenant.
func ServeAll(ctx context.Context, h Host, log *slog.Logger) (stop func(), err error) {
	return serve(log, func(w *replay.Worker) (api.Session, error) { return h.JoinBuiltIn(ctx, w, Type) })
}

func serve(log *slog.Logger, join func(*replay.Worker) (api.Session, error)) (stop func(), err error) {
	w := replay.NewWorker(replay.Config{Code: map[string]replay.Code{Type: Code}, Logger: log})
	session, err := join(w)
	if err != nil {
		return nil, err
	}
	w.Serve(session)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.Close(ctx) // another process continues its schedules
	}, nil
}

// Next returns the next n times. It returns none while the schedule is paused.
func (s *Seen) Next(n int) []time.Time {
	if s.Status.Paused || s.Status.Tick.IsZero() {
		return nil
	}
	all, err := s.Spec.Next(s.Status.Tick.Add(-time.Nanosecond), n)
	if err != nil {
		return []time.Time{s.Status.Tick}
	}
	return all
}
