package crashwalk_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	seller = perdure.DeclareWorkflow[string, string]("seller")
	owner  = perdure.DeclareWorkflow[string, string]("owner")
	// amounts is what the seller charges, by input.
	amounts = map[string]int{"first": 1, "second": 2}
)

// sell computes a price, waits for a signal, and ships. Shipping fails until the world has the fact
// that the van is repaired.
func sell(w *world) perdure.Group {
	return perdure.Group{seller.Bind(func(ctx perdure.WorkflowCtx, what string) (string, error) {
		price, err := perdure.Do(ctx, "price", func(context.Context) (int, error) {
			w.recordBody("price")
			return amounts[what], nil
		})
		if err != nil {
			return "", err
		}

		word, err := words.Receive(ctx)
		if err != nil {
			return "", err
		}

		shipped, err := perdure.Do(ctx, "ship", func(c context.Context) (string, error) {
			w.recordBody("ship")
			if word == "wreck" && !w.hasFact("repaired") {
				return "", perdure.Permanent(errors.New("the van is broken"))
			}
			return w.tell("shipped "+perdure.IdempotencyKey(c), word), nil
		})

		return fmt.Sprintf("%d %s", price, shipped), err
	})}
}

// ownerGroup runs a seller as its child.
func ownerGroup(w *world) perdure.Group {
	return append(sell(w), owner.Bind(func(ctx perdure.WorkflowCtx, what string) (string, error) {
		said, err := seller.Run(ctx, what, perdure.RawKey("kid"))
		return "kid says " + said, err
	}))
}

// done ignores a conflict. A conflict means that an earlier drive has made the request, and the
// result shows that.
func (d *driver) done(what string, err error) error {
	if err != nil && !errors.Is(err, perdure.ErrConflict) {
		return d.cause(0, fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

// failsOnce breaks something and checks that the execution fails because of it.
func failsOnce(d *driver, x perdure.Execution[string], wreck func() error) error {
	return d.once("failed", func() error {
		if err := wreck(); err != nil {
			return err
		}
		if _, err := x.Result(d.client()); err == nil || d.ctx().Err() != nil {
			return d.cause(0, fmt.Errorf("it should fail: %w", err))
		}
		return nil
	})
}

// repairAndRetry repairs the van and retries the execution.
func (d *driver) repairAndRetry(x perdure.Target) error {
	d.w.tell("repaired", "yes")
	_, err := d.ps[0].App.Executions().Retry(d.ctx(), x)
	return d.done("retry", err)
}

// historyScenarios are about retries, resets, forks and deletions.
func historyScenarios() []*scenario {
	return []*scenario{
		{
			name:   "fork with an edited result",
			bodies: map[string]int{"price": 1, "ship": 2},
			stages: alone(sell, func(d *driver) error {
				x, err := start(d, seller, "first", "source")
				if err != nil {
					return err
				}
				fork := seller.Execution(perdure.RawKey("fork"))

				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventStepCompleted, "price") },
					func() error {
						_, err := d.ps[0].App.Executions().Fork(d.ctx(), x, perdure.RawKey("fork"), perdure.SetResult("price", 7), perdure.RequestID("f"))
						return d.cause(0, err)
					},
					func() error { return send(d, words, x.Ref, "van", "s1") },
					func() error { return send(d, words, fork.Ref, "bike", "s2") },
					func() error { return result(d, x, "1 van") },
					func() error { return result(d, fork, "7 bike") },
				)
			}),
		},
		{
			name:   "retry",
			bodies: map[string]int{"price": 1, "ship": 2},
			stages: alone(sell, func(d *driver) error {
				x, err := start(d, seller, "first", "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return failsOnce(d, x, func() error { return send(d, words, x.Ref, "wreck", "s1") }) },
					func() error { return d.repairAndRetry(x) },
					func() error { return result(d, x, "1 wreck") },
				)
			}),
			check: func(w *world, h *histories) error {
				if runs := h.of(seller.Execution(perdure.RawKey("k")).Ref); len(runs) != 2 || runs[1].row.Start.Previous != runs[0].row.Start.Run {
					return wrong("%d runs, want the one that failed and its retry", len(runs))
				}
				return nil
			},
		},
		{
			name:   "reset of an open run",
			bodies: map[string]int{"price": 2, "ship": 1},
			stages: alone(sell, func(d *driver) error {
				x, err := start(d, seller, "first", "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventStepCompleted, "price") },
					func() error {
						if h, err := d.w.read(); err != nil || len(h.of(x.Ref)) > 1 {
							return err // an earlier drive has done it
						}
						_, err := d.ps[0].App.Executions().Reset(d.ctx(), x, perdure.AfterPosition(0))
						return d.cause(0, err)
					},
					func() error { return send(d, words, x.Ref, "van", "s1") },
					func() error { return result(d, x, "1 van") },
				)
			}),
		},
		{
			name:   "delete, then start",
			bodies: map[string]int{"price": 2, "ship": 2},
			stages: alone(sell, func(d *driver) error {
				key := perdure.RawKey("k")
				x := seller.Execution(key)
				first := func() error {
					if _, err := seller.Start(d.client(), "first", key); err != nil {
						return d.cause(0, err)
					}
					// An earlier drive may have deleted the run that received the signal. The store
					// still remembers the request id, so the signal is not delivered again.
					if err := words.Send(d.client(), x, "van"); err != nil && !errors.Is(err, perdure.ErrConflict) {
						return d.cause(0, err)
					}
					if got, err := x.Result(d.client()); err != nil || got != "1 van" {
						return d.cause(0, fmt.Errorf("the first ended as %q: %w", got, err))
					}
					return d.cause(0, d.ps[0].App.Executions().Delete(d.ctx(), x))
				}

				return inOrder(
					func() error { return d.once("deleted", first) },
					func() error { _, err := start(d, seller, "second", "k"); return err },
					func() error { return send(d, words, x.Ref, "bike", "s2") },
					func() error { return result(d, x, "2 bike") },
				)
			}),
			maybe: []string{"price", "ship"},
			check: func(_ *world, h *histories) error {
				if n := len(h.runs); n != 1 {
					return wrong("%d runs are left, want the second", n)
				}
				return nil
			},
		},
		{
			name:   "fork of a parent that waits for its child",
			lanes:  2,
			bodies: map[string]int{"ship": 1, "price": 1},
			stages: alone(ownerGroup, func(d *driver) error {
				x, err := start(d, owner, "first", "source")
				if err != nil {
					return err
				}
				fork, kid := owner.Execution(perdure.RawKey("fork")), seller.Execution(perdure.RawKey("kid"))
				return inOrder(
					func() error { return d.awaitEvent(kid.Ref, model.EventStepCompleted, "price") },
					func() error {
						_, err := d.ps[0].App.Executions().Fork(d.ctx(), x, perdure.RawKey("fork"), perdure.RequestID("f"))
						return d.cause(0, err)
					},
					func() error { return send(d, words, kid.Ref, "van", "s1") },
					func() error { return result(d, x, "kid says 1 van") },
					func() error { return result(d, fork, "kid says 1 van") },
				)
			}),
			// The child may end before the fork watches it.
			ignore: []model.EventKind{model.EventWatched},
		},
		{
			name:   "retry of a parent whose child failed",
			lanes:  2,
			bodies: map[string]int{"price": 2, "ship": 2},
			stages: alone(ownerGroup, func(d *driver) error {
				x, err := start(d, owner, "first", "k")
				if err != nil {
					return err
				}
				kid := seller.Execution(perdure.RawKey("kid"))

				return inOrder(
					func() error {
						return failsOnce(d, x, func() error { return d.eventually(func() error { return send(d, words, kid.Ref, "wreck", "s1") }) })
					},
					func() error { return d.repairAndRetry(x) },
					func() error {
						return d.until("the second run of the child", func() bool {
							h, err := d.w.read()
							return err == nil && len(h.of(kid.Ref)) == 2
						})
					},
					func() error {
						err := send(d, words, kid.Ref, "van", "s2")
						if errors.Is(err, perdure.ErrConflict) {
							return nil // an earlier drive sent it, and the child has ended
						}
						return err
					},
					func() error { return result(d, x, "kid says 1 van") },
				)
			}),
		},
	}
}
