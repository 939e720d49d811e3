package crashwalk_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	delayed   = perdure.DeclareWorkflow[int, string]("delayed")
	again     = perdure.DeclareWorkflow[int, string]("again")
	lingering = perdure.DeclareWorkflow[int, string]("lingering")
)

// termScenarios are about start times, time-outs of executions and attempts of workflows.
func termScenarios() []*scenario {
	return []*scenario{
		{
			name:   "start delay",
			bodies: map[string]int{"begun": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{delayed.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					first, err := hurry.Receive(ctx)
					if err != nil {
						return "", err
					}
					begun, err := w.step(ctx, "begun")
					return first + " " + begun, err
				})}
			}, func(d *driver) error {
				x, err := start(d, delayed, 0, "k", perdure.StartDelay(3*time.Second))
				if err != nil {
					return err
				}
				if err := send(d, hurry, x.Ref, "early", "s1"); err != nil {
					return err
				}
				return result(d, x, "early begun")
			}),
			check: func(_ *world, h *histories) error {
				x := delayed.Execution(perdure.RawKey("k")).Ref
				run := h.last(x)
				if len(h.of(x)) != 1 || run.row.Start.Begins != run.row.Start.At.Add(3*time.Second) {
					return wrong("%d runs, the last one begins at %s", len(h.of(x)), run.row.Start.Begins)
				}
				for _, e := range run.events {
					if e.Kind == model.EventStepCompleted && e.At < run.row.Start.Begins {
						return wrong("a step was made at %s, before the start time %s", e.At, run.row.Start.Begins)
					}
				}
				return nil
			},
		},
		{
			name:   "attempts of a workflow, and a child that takes too long",
			bodies: map[string]int{"try": 2},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					again.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						if _, err := w.step(ctx, "try"); err != nil {
							return "", err
						}
						if ctx.Attempt() == 1 {
							return "", errors.New("once more")
						}
						_, err := lingering.Run(ctx, 0, perdure.RawKey("c"), perdure.ExecutionTimeout(5*time.Second))
						if !errors.Is(err, perdure.ErrTimeout) {
							return "", fmt.Errorf("the child ended with %w", err)
						}
						return fmt.Sprintf("attempt %d", ctx.Attempt()), nil
					}),
					lingering.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						return hurry.Receive(ctx) // this signal never comes
					}),
				}
			}, ending(again, 0, "k", "attempt 2", perdure.Constant(3, 2*time.Second))),
			check: func(_ *world, h *histories) error {
				runs := h.of(again.Execution(perdure.RawKey("k")).Ref)
				if len(runs) != 2 || runs[0].row.Outcome.Status != model.Continued || runs[0].row.Outcome.Failure == nil || runs[1].row.Start.Attempt != 2 {
					return wrong("%d runs, want two attempts", len(runs))
				}
				if first, next := &runs[0].row, &runs[1].row; next.Start.Begins != first.Outcome.At.Add(2*time.Second) {
					return wrong("the second attempt begins at %s, the first one ended at %s", next.Start.Begins, first.Outcome.At)
				}
				child := h.last(lingering.Execution(perdure.RawKey("c")).Ref)
				if !child.row.Outcome.TimedOut() || child.row.Outcome.At < child.row.Start.Expires {
					return wrong("the child ended at %s: %+v", child.row.Outcome.At, child.row.Outcome)
				}
				return nil
			},
		},
	}
}
