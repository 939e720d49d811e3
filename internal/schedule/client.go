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

// startInput is the input of every run of a schedule: what it is about, it is told by updates.
var startInput = model.Payload{Data: []byte("{}")}

// Address is where a schedule lives.
func Address(name string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: Type, Key: name}
}

// Request is a command as the update that a schedule serves.
func Request(name string, c *Command) (api.UpdateRequest, error) {
	data, err := json.Marshal(c)
	if err != nil { // a year beyond 9999
		return api.UpdateRequest{}, fault.New(fault.Invalid, "%s of schedule %s: %w", c.Verb, name, err)
	}
	return api.UpdateRequest{Target: api.Target{Address: Address(name)}, Name: c.Verb, Input: model.Payload{Data: data}}, nil
}

// ReadAnswer reads what a command was answered.
func ReadAnswer(p model.Payload) (a Answer, err error) {
	if err = json.Unmarshal(p.Data, &a); err != nil {
		err = fault.New(fault.Corrupt, "the answer of a schedule: %w", err)
	}
	return a, err
}

// Ask sends a command and waits for the answer.
func Ask(ctx context.Context, b api.Client, name string, c *Command) (Answer, error) {
	if err := CheckName(name); err != nil {
		return Answer{}, err
	}
	r, err := Request(name, c)
	if err != nil {
		return Answer{}, err
	}
	p, err := b.Update(ctx, r)
	if err != nil {
		return Answer{}, Explain(ctx, b, name, err)
	}
	return ReadAnswer(p)
}

// Explain speaks of schedules, and not of the executions that they are. A conflict is what the
// schedule says itself, of a trigger that it does not follow, as long as there is one; or that its
// execution has ended, and then there is none.
func Explain(ctx context.Context, b api.Client, name string, err error) error {
	if f, ok := errors.AsType[*model.Failure](err); ok {
		return fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
	}
	gone := fault.Is(err, fault.NotFound)
	if fault.Is(err, fault.Conflict) {
		d, bad := b.Describe(ctx, api.Target{Address: Address(name)})
		gone = fault.Is(bad, fault.NotFound) || bad == nil && d.Outcome.Status.Closed()
	}
	if gone {
		return fault.New(fault.NotFound, "there is no schedule %s", name)
	}
	return err
}

// Apply makes a definition the one that counts: it creates the schedule, or changes it where it is,
// or leaves it alone when it has that definition. dry tells only what would be done.
func Apply(ctx context.Context, b api.Client, name string, c Command, dry bool) (change string, err error) {
	spec := *c.Spec
	if err := spec.Complete(name); err != nil {
		return "", err
	}
	c.Verb, c.Spec = VerbApply, &spec

	for range 3 {
		now, err := Look(ctx, b, name)
		switch {
		case err == nil && now.Spec.same(&spec):
			return Unchanged, nil
		case err == nil && dry:
			return Changed, nil
		case fault.Is(err, fault.NotFound) && dry:
			return Created, nil
		case fault.Is(err, fault.NotFound):
			if _, err := b.Start(ctx, api.StartRequest{Address: Address(name), Input: startInput, Reuse: model.ReuseAlways}); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		}

		a, err := Ask(ctx, b, name, &c)
		if fault.Is(err, fault.NotFound) {
			continue // it was deleted in between
		}
		return a.Change, err
	}

	return "", fault.New(fault.Conflict, "schedule %s is being deleted by somebody else", name)
}

// Seen is a schedule as it stands.
type Seen struct {
	Name    string
	Spec    Spec
	Status  Status
	Started time.Time
	// Trouble is why it does not go on, when that is not a matter of time; empty else.
	Trouble string
}

// Look reads a schedule; NotFound when there is none. It needs nobody who serves it.
func Look(ctx context.Context, b api.Client, name string) (Seen, error) {
	if err := CheckName(name); err != nil {
		return Seen{}, err
	}
	d, err := b.Describe(ctx, api.Target{Address: Address(name)})
	if err != nil {
		return Seen{}, Explain(ctx, b, name, err)
	}
	if d.Outcome.Status.Closed() {
		return Seen{}, fault.New(fault.NotFound, "there is no schedule %s: it was deleted", name)
	}
	return look(ctx, b, &d)
}

func look(ctx context.Context, b api.Client, d *api.Description) (Seen, error) {
	s := Seen{Name: d.Start.Address.Key, Started: d.Start.At.Std()}
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

// List reads all schedules, or those of an app. One that cannot be read is an error of its own; the
// others follow.
func List(ctx context.Context, b api.Client, app string) iter.Seq2[Seen, error] {
	return func(yield func(Seen, error) bool) {
		req := api.ListRequest{Tenant: model.DefaultTenant, Workflows: []string{Type}, Statuses: []model.Status{model.Running}, Limit: 200, Explain: true}
		if app != "" {
			req.Labels = []model.LabelCondition{{Name: LabelApp, Values: []string{app}}}
		}

		for {
			page, err := b.List(ctx, req)
			if err != nil {
				yield(Seen{}, err)
				return
			}

			for i := range page.Executions {
				s, err := look(ctx, b, &page.Executions[i])
				if fault.Is(err, fault.NotFound) {
					continue // it is being created, or has just been deleted
				}
				if !yield(s, err) {
					return
				}
			}

			if req.Cursor = page.Cursor; req.Cursor == "" {
				return
			}
		}
	}
}

// Next are the times that follow a point in time, within the bounds of the definition.
func (s *Spec) Next(after time.Time, n int) ([]time.Time, error) {
	d := decider{spec: s}
	if err := d.load(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fault.New(fault.Invalid, "the next %d times: that is less than none", n)
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

// Serve runs the code of schedules on a backend whose process serves nothing else, until stop.
func Serve(ctx context.Context, b api.Backend, log *slog.Logger) (stop func(), err error) {
	w := replay.NewWorker(replay.Config{Code: map[string]replay.Code{Type: Code}, Logger: log})
	session, err := b.Join(ctx, w, api.Offer{Tenant: model.DefaultTenant, Workflows: []string{Type}})
	if err != nil {
		return nil, err
	}
	w.Serve(session)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.Close(ctx) // what it holds is taken up by the next process
	}, nil
}

// Next are the next times; none while it is paused.
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
