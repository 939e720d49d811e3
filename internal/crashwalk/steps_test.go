package crashwalk_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

var (
	linear  = perdure.DeclareWorkflow[string, string]("linear")
	flaky   = perdure.DeclareActivity[int, string]("flaky")
	hopeful = perdure.DeclareWorkflow[int, string]("hopeful")
	failing = perdure.DeclareWorkflow[int, string]("failing")
	changed = perdure.DeclareWorkflow[string, string]("changed")
	aside   = perdure.DeclareActivity[string, string]("aside")
)

// stepScenarios returns the scenarios of steps and their attempts.
func stepScenarios() []*scenario {
	return []*scenario{
		{
			name:     "three steps",
			selfless: true,
			bodies:   map[string]int{"a": 1, "b": 1, "c": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{linear.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
					for _, name := range []string{"a", "b", "c"} {
						got, err := w.step(ctx, name)
						if err != nil {
							return "", err
						}
						in += got
					}
					return in, nil
				})}
			}, ending(linear, ">", "k", ">abc")),
		},
		{
			// The activity aside starts before step a, and may still run at the version check. The
			// engine may commit the outcome of aside before the version. If the process then dies,
			// the history has the outcome, but no version. The outcome does not prove that the run
			// passed the version check with old code, so the run must follow the new version.
			name:     "version of a change",
			selfless: true,
			bodies:   map[string]int{"aside": 1, "a": 1, "new": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					aside.Bind(func(context.Context, string) (string, error) { w.recordBody("aside"); return "s", nil }),
					changed.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
						beside := aside.Go(ctx, in)
						a, err := w.step(ctx, "a")
						if err != nil {
							return "", err
						}
						branch := "old"
						if ctx.Version("change", 0, 1) == 1 {
							branch = "new"
						}
						b, err := w.step(ctx, branch)
						if err != nil {
							return "", err
						}
						c, err := beside.Get(ctx)
						return a + b + c, err
					}),
				}
			}, ending(changed, "", "k", "anews")),
		},
		{
			name:     "attempts",
			selfless: true,
			bodies:   map[string]int{"flaky 1": 1, "flaky 2": 1, "flaky 3": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					flaky.Bind(func(ctx context.Context, n int) (string, error) {
						attempt := perdure.Attempt(ctx)
						w.recordBody(fmt.Sprintf("flaky %d", attempt))
						if attempt <= n {
							return "", fmt.Errorf("attempt %d fails", attempt)
						}
						return fmt.Sprintf("attempt %d", attempt), nil
					}),
					hopeful.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) {
						return flaky.Run(ctx, n, perdure.Constant(5, time.Second))
					}),
				}
			}, ending(hopeful, 2, "k", "attempt 3")),
		},
		{
			name:     "errors that the code sees",
			selfless: true,
			bodies:   map[string]int{"hopeless": 2, "broken": 1, "repair": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{failing.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					_, first := perdure.Do(ctx, "hopeless", func(context.Context) (int, error) {
						w.recordBody("hopeless")
						return 0, errors.New("no luck")
					}, perdure.Constant(2, time.Second))
					_, second := perdure.Do(ctx, "broken", func(context.Context) (int, error) {
						w.recordBody("broken")
						return 0, perdure.Permanent(errors.New("no way"))
					})
					if first == nil || second == nil {
						return "", errors.New("a step succeeded that must fail")
					}
					got, err := w.step(ctx, "repair")
					return fmt.Sprintf("%v, %v, %s", first, second, got), err
				})}
			}, ending(failing, 0, "k", "no luck, no way, repair")),
		},
	}
}
