package crashwalk_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	listener = perdure.DeclareWorkflow[int, string]("listener")
	words    = perdure.NewSignal[string]("words")
	summer   = perdure.DeclareWorkflow[int, int]("summer")
	numbers  = perdure.NewSignal[int]("numbers")
	decider  = perdure.DeclareWorkflow[int, string]("decider")
	choice   = perdure.NewPromise[string]("choice")
	refusal  = perdure.NewPromise[string]("refusal")
	talker   = perdure.DeclareWorkflow[int, string]("talker")
)

// listen receives n words and returns them in order.
func listen(ctx perdure.WorkflowCtx, n int) (string, error) {
	var got []string
	for range n {
		v, err := words.Receive(ctx)
		if err != nil {
			return "", err
		}
		got = append(got, v)
	}
	return strings.Join(got, " "), nil
}

// signalScenarios are about signals and promises.
func signalScenarios() []*scenario {
	return []*scenario{
		{
			name:   "three signals",
			bodies: map[string]int{"first": 1, "second": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{listener.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					if _, err := w.step(ctx, "first"); err != nil {
						return "", err
					}

					// The first signal arrives before the workflow waits for it.
					if err := ctx.Sleep(time.Second); err != nil {
						return "", err
					}
					one, err := listen(ctx, 1)
					if err != nil {
						return "", err
					}

					if _, err := w.step(ctx, "second"); err != nil {
						return "", err
					}
					rest, err := listen(ctx, 2)
					return one + " " + rest, err
				})}
			}, func(d *driver) error {
				x, err := start(d, listener, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return send(d, words, x.Ref, "before", "s1") },
					func() error { return d.awaitBody("second") },
					func() error { return send(d, words, x.Ref, "between", "s2") },
					func() error { return d.sleep(time.Second) },
					func() error { return send(d, words, x.Ref, "after", "s3") },
					func() error { return result(d, x, "before between after") },
				)
			}),
		},
		{
			name: "signal with start",
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{summer.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) {
					sum := 0
					for range n {
						v, err := numbers.Receive(ctx)
						if err != nil {
							return 0, err
						}
						sum += v
					}
					return sum, nil
				})}
			}, func(d *driver) error {
				ref := summer.Execution(perdure.RawKey("k")).Ref
				begin := func(v int, id string) func() error {
					return func() error {
						_, err := start(d, summer, 3, "k", numbers.With(v), perdure.RequestID(id))
						if err == nil {
							d.acknowledge("start "+id, func(h *histories) error {
								if n := h.takings(ref, fmt.Sprint(v)); n != 1 {
									return wrong("number %d was taken %d times", v, n)
								}
								return nil
							})
						}
						return err
					}
				}
				if err := together(begin(1, "r1"), begin(10, "r2"), begin(100, "r3")); err != nil {
					return err
				}

				return result(d, summer.Execution(perdure.RawKey("k")), 111)
			}),
			loose: true, // which client starts the run is random
			check: func(_ *world, h *histories) error {
				ref := summer.Execution(perdure.RawKey("k")).Ref
				if n := h.count(ref, model.EventSignalReceived, "numbers"); n != 3 || len(h.of(ref)) != 1 {
					return wrong("%d signals in %d runs, want 3 in 1", n, len(h.of(ref)))
				}
				return nil
			},
		},
		{
			name: "promises",
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{decider.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					got, err := choice.Await(ctx)
					if err != nil {
						return "", err
					}
					_, err = refusal.Await(ctx)
					if err == nil {
						return "", errors.New("the refusal was no refusal")
					}
					if again, err := choice.Await(ctx); err != nil || again != got {
						return "", fmt.Errorf("the choice changed to %q: %w", again, err)
					}
					return "heads or tails, " + err.Error(), nil
				})}
			}, func(d *driver) error {
				x, err := start(d, decider, 0, "k")
				if err != nil {
					return err
				}
				var mu sync.Mutex
				winners := 0

				resolve := func(side string) func() error {
					return func() error {
						err := choice.Resolve(d.client(), x.Ref, side)
						switch {
						case errors.Is(err, perdure.ErrConflict):
							return nil // the other client or an earlier drive was first
						case err != nil:
							return d.cause(0, err)
						}
						mu.Lock()
						winners++
						mu.Unlock()
						d.acknowledge(side, func(h *histories) error { return settledAs(h, x.Ref, "choice", `"`+side+`"`) })
						return nil
					}
				}
				if err := together(resolve("heads"), resolve("tails")); err != nil {
					return err
				}

				if winners > 1 {
					return wrong("both have resolved the promise")
				}
				if err := refusal.Reject(d.client(), x.Ref, errors.New("no deal")); err != nil && !errors.Is(err, perdure.ErrConflict) {
					return d.cause(0, err)
				}

				return result(d, x, "heads or tails, no deal")
			}),
			loose: true, // either side may win
			check: func(_ *world, h *histories) error {
				ref := decider.Execution(perdure.RawKey("k")).Ref
				if n := h.count(ref, model.EventPromiseSettled, ""); n != 2 {
					return wrong("%d settlements, want 2", n)
				}
				return nil
			},
		},
		{
			name:  "signals and a cancel request between workflows",
			lanes: 2,
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					listener.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) { return listen(ctx, n) }),
					talker.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						to := listener.Execution(perdure.RawKey("hears"))
						for i, v := range []string{"one", "two", "three"} {
							if err := words.Send(ctx, to, v, perdure.StepKey(fmt.Sprint(i))); err != nil {
								return "", err
							}
						}
						if err := listener.Execution(perdure.RawKey("ends")).Cancel(ctx, "enough"); err != nil {
							return "", err
						}
						return "said", nil
					}),
				}
			}, func(d *driver) error {
				hears, err := start(d, listener, 3, "hears")
				if err != nil {
					return err
				}
				over, err := start(d, listener, 1, "ends")
				if err != nil {
					return err
				}

				says, err := start(d, talker, 0, "says")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return result(d, says, "said") },
					func() error { return result(d, hears, "one two three") },
					func() error { return ends(d, over, perdure.Canceled, "enough") },
				)
			}),
		},
	}
}

// takings counts how often runs of an execution received a signal with that value.
func (h *histories) takings(r perdure.Ref, value string) int {
	n := 0
	for _, run := range h.of(r) {
		for _, e := range run.events {
			if e.Kind == model.EventSignalTaken && string(run.events[e.Ref-1].Input.Data) == value {
				n++
			}
		}
	}
	return n
}

// settledAs checks that a promise was settled with a value.
func settledAs(h *histories, r perdure.Ref, name, value string) error {
	for _, run := range h.of(r) {
		for _, e := range run.events {
			if e.Kind == model.EventPromiseSettled && e.Name == name && string(e.Output.Data) == value {
				return nil
			}
		}
	}
	return wrong("promise %s of %s was resolved with %s, but that is not how it stands", name, r, value)
}
