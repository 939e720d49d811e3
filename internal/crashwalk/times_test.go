package crashwalk_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	sleeper = perdure.DeclareWorkflow[int, string]("sleeper")
	patient = perdure.DeclareWorkflow[int, string]("patient")
	hurry   = perdure.NewSignal[string]("hurry")
)

// timeScenarios are about timers and deadlines.
func timeScenarios() []*scenario {
	return []*scenario{
		{
			name:     "two sleeps",
			selfless: true,
			bodies:   map[string]int{"awake": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{sleeper.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					began := ctx.Now()
					if err := ctx.Sleep(time.Second); err != nil {
						return "", err
					}
					if err := ctx.Sleep(2 * time.Second); err != nil {
						return "", err
					}
					if slept := ctx.Now().Sub(began); slept < 3*time.Second {
						return "", fmt.Errorf("woke up after %s", slept)
					}
					return w.step(ctx, "awake")
				})}
			}, ending(sleeper, 0, "k", "awake")),
		},
		{
			name:   "deadline",
			bodies: map[string]int{"after": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{patient.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					// This signal comes in time, so no timer of the deadline is left.
					first, err := hurry.Receive(ctx.WithTimeout(time.Hour))
					if err != nil {
						return "", err
					}
					_, err = hurry.Receive(ctx.WithTimeout(2 * time.Second))
					if !errors.Is(err, perdure.ErrTimeout) {
						return "", fmt.Errorf("waited for nothing: %w", err)
					}
					after, err := w.step(ctx, "after")
					return first + " " + after, err
				})}
			}, func(d *driver) error {
				x, err := start(d, patient, 0, "k")
				if err != nil {
					return err
				}
				if err := send(d, hurry, x.Ref, "now", "s1"); err != nil {
					return err
				}
				return result(d, x, "now after")
			}),
			check: func(_ *world, h *histories) error {
				if n := h.count(patient.Execution(perdure.RawKey("k")).Ref, model.EventTimerFired, ""); n != 1 {
					return wrong("%d deadlines passed, want 1", n)
				}
				return nil
			},
		},
	}
}
