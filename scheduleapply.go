package perdure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/schedule"
)

// applySchedules stores the schedules that the app defines. With PruneSchedules, it also removes
// schedules that an app of the same name applied earlier and that this app does not define.
func (a *App) applySchedules(ctx context.Context, all []*Schedule) error {
	defined := map[string]bool{}
	for _, s := range all {
		defined[s.name] = true
		if err := a.applySchedule(ctx, s); err != nil {
			return err
		}
	}

	if !a.cfg.PruneSchedules {
		return nil
	}

	for seen, err := range a.host.schedules().List(ctx, a.cfg.Name) {
		if err == nil && !defined[seen.Name] {
			_, err = a.host.schedules().Ask(ctx, seen.Name, &schedule.Command{Verb: schedule.VerbDelete})
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("prune schedule %s: %w", seen.Name, err)
		}
	}

	return nil
}

func (a *App) applySchedule(ctx context.Context, s *Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	spec := s.opts.spec
	spec.App = a.cfg.Name
	p, err := s.job.encode(a.host)
	if err == nil {
		err = a.host.checkInput(s.job.address(), s.job.in, p)
	}
	if err == nil {
		p, err = a.host.sealStart(ctx, brief, a.host.schedules().Address(s.name), p)
	}
	if err == nil {
		spec.Job.Input = schedule.Payload{Payload: p}
		err = a.insistOn(ctx, func() error {
			_, err := a.host.schedules().Apply(ctx, s.name, schedule.Command{Spec: &spec, Paused: s.opts.paused, Why: s.opts.why}, false)
			return err
		})
	}

	if errors.Is(err, context.DeadlineExceeded) {
		err = fault.WithHint(err, "see perdure workflow explain %s/%s", schedule.Type, s.name)
	}
	if err != nil {
		return fmt.Errorf("apply schedule %s (%s): %w", s.name, s.at, err)
	}
	return nil
}

// insistOn repeats do while the store is unavailable. So a process that starts at the same time as
// its database waits for the database.
func (a *App) insistOn(ctx context.Context, do func() error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := do()
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// applyTimeout bounds how long applying one schedule may take while an app opens.
const applyTimeout = 30 * time.Second
