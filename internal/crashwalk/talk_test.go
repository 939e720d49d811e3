package crashwalk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	counter  = perdure.DeclareWorkflow[int, int]("counter")
	add      = perdure.NewUpdate[int, int]("add")
	seen     = perdure.NewQuery[int, string]("seen")
	enough   = perdure.NewSignal[string]("enough")
	adder    = perdure.DeclareWorkflow[int, string]("adder")
	chained  = perdure.DeclareWorkflow[int, string]("chained")
	answer   = perdure.NewUpdate[int, string]("answer")
	closing  = perdure.DeclareWorkflow[int, int]("closing")
	showing  = perdure.DeclareWorkflow[int, string]("showing")
	stand    = perdure.NewState[string]("stand")
	runCount = perdure.NewState[int]("run-count")
	echo     = perdure.DeclareWorkflow[int, string]("echo")
)

// talkScenarios are about requests to executions and their answers.
func talkScenarios() []*scenario {
	return []*scenario{
		{
			name:   "updates with steps",
			bodies: map[string]int{"add 1": 1, "add 10": 1, "add 100": 1},
			stages: alone(counterGroup, func(d *driver) error {
				x, err := start(d, counter, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return call(d, 0, x.Ref, 1, "u1", 1) },
					func() error { return call(d, 0, x.Ref, 10, "u2", 11) },
					// The client repeats the request after it was answered.
					func() error { return call(d, 0, x.Ref, 1, "u1", 1) },
					func() error { return refusedCall(d, x.Ref, -1, "u3") },
					func() error {
						same := func() error { return call(d, 0, x.Ref, 100, "u4", 111) }
						return together(same, same, same)
					},
					func() error { return send(d, enough, x.Ref, "", "s1") },
					func() error { return result(d, x, 111) },
					func() error { return call(d, 0, x.Ref, 10, "u2", 11) }, // the client repeats the request after the end
				)
			}),
			check: func(_ *world, h *histories) error { return answersOf(h, counter.Execution(perdure.RawKey("k")).Ref, 4) },
		},
		{
			name: "update over continue as new",
			stages: alone(func(*world) perdure.Group {
				return perdure.Group{chained.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) {
					if n == 2 {
						answer.Handle(ctx, func(ctx perdure.WorkflowCtx, v int) (string, error) {
							if err := ctx.Sleep(500 * time.Millisecond); err != nil {
								return "", err
							}
							return fmt.Sprintf("%d in run %d", v, n), nil
						})
					}
					if _, err := enough.Receive(ctx); err != nil {
						return "", err
					}
					if n == 2 {
						return "end", ctx.WaitUpdates()
					}
					return "", chained.ContinueAsNew(n + 1)
				})}
			}, func(d *driver) error {
				x, err := start(d, chained, 1, "k")
				if err != nil {
					return err
				}

				ask := func(v int, id string) func() error {
					return func() error {
						return d.patiently(func() error {
							return checkAnswer(d, updateCall{0, x.Ref, id}, fmt.Sprintf("%d in run 2", v), func(c perdure.Client) (string, error) {
								return answer.Call(c, x.Ref, v, perdure.RequestID(id))
							})
						})
					}
				}

				err = together(ask(1, "u1"), ask(1, "u1"), ask(2, "u2"), func() error {
					return inOrder(
						func() error { return d.awaitEvent(x.Ref, model.EventUpdateReceived, "answer") },
						func() error { // the other callers still wait after one was refused
							return d.patiently(func() error { return send(d, enough, x.Ref, "", "s1") })
						},
					)
				})
				if err != nil {
					return err
				}

				return inOrder(
					func() error { return send(d, enough, x.Ref, "", "s2") },
					func() error { return result(d, x, "end") },
					ask(2, "u2"),
				)
			}),
			loose: true, // which run an update reaches depends on the time
			check: func(_ *world, h *histories) error { return answersOf(h, chained.Execution(perdure.RawKey("k")).Ref, 2) },
		},
		{
			name:   "updates between workflows",
			lanes:  2,
			bodies: map[string]int{"add 1": 1, "add 2": 1, "add 3": 1},
			ignore: []model.EventKind{model.EventWatched}, // the execution may end before the watch
			stages: alone(func(w *world) perdure.Group {
				return append(counterGroup(w), adder.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) {
					to := counter.Execution(perdure.RawKey("k"))
					sum := 0
					for i := range n {
						var err error
						if sum, err = add.Call(ctx, to, i+1, perdure.StepKey(fmt.Sprint(i))); err != nil {
							return "", err
						}
					}

					_, refused := add.Call(ctx, to, -1)
					_, missing := add.Call(ctx, counter.Execution(perdure.RawKey("nobody")), 1)
					if err := enough.Send(ctx, to, ""); err != nil {
						return "", err
					}
					if _, err := to.Result(ctx); err != nil {
						return "", err
					}

					_, late := add.Call(ctx, to, 5)
					return fmt.Sprint(sum, refused, errors.Is(missing, perdure.ErrNotFound), errors.Is(late, perdure.ErrConflict)), nil
				}))
			}, func(d *driver) error {
				if _, err := start(d, counter, 0, "k"); err != nil {
					return err
				}
				x, err := start(d, adder, 3, "a")
				if err != nil {
					return err
				}
				return result(d, x, "6 -1 is not for adding true true")
			}),
			check: func(_ *world, h *histories) error { return answersOf(h, counter.Execution(perdure.RawKey("k")).Ref, 4) },
		},
		{
			// Clients send signals until the engine reports that the execution is closed. The
			// workflow received each acknowledged signal once.
			name:  "signals around the end",
			loose: true, // how many signals arrive in time is random
			stages: alone(func(*world) perdure.Group {
				return perdure.Group{closing.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) {
					if err := ctx.Sleep(300 * time.Millisecond); err != nil {
						return 0, err
					}
					n += len(numbers.Drain(ctx))
					if n < 4 {
						return 0, closing.ContinueAsNew(n)
					}
					return n, nil
				})}
			}, func(d *driver) error {
				x, err := start(d, closing, 0, "k")
				if err != nil {
					return err
				}

				client := func(who string) func() error {
					return func() error {
						for i := range 3 {
							id := fmt.Sprintf("%s %d", who, i)
							err := send(d, numbers, x.Ref, i, id)
							switch {
							case errors.Is(err, perdure.ErrConflict):
								return nil
							case err != nil:
								return err
							}
							if err := d.sleep(200 * time.Millisecond); err != nil {
								return err
							}
						}
						return nil
					}
				}
				if err := together(client("a"), client("b")); err != nil {
					return err
				}

				_, err = x.Result(d.client())
				return d.cause(0, err)
			}),
			check: func(_ *world, h *histories) error {
				runs := h.of(closing.Execution(perdure.RawKey("k")).Ref)
				taken := 0
				for _, r := range runs {
					taken += r.count(model.EventSignalTaken, "")
				}
				if got := string(runs[len(runs)-1].row.Outcome.Output.Data); got != fmt.Sprint(taken) {
					return wrong("%s signals are counted, %d were taken", got, taken)
				}
				return nil
			},
		},
		{
			name:     "state over continue as new",
			selfless: true,
			bodies:   map[string]int{"look": 3},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{showing.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) {
					had, _ := runCount.Get(ctx)
					if err := runCount.Set(ctx, had+1); err != nil {
						return "", err
					}
					if err := stand.Set(ctx, fmt.Sprintf("begun %d", n)); err != nil {
						return "", err
					}

					if _, err := w.step(ctx, "look"); err != nil {
						return "", err
					}
					if err := stand.Set(ctx, fmt.Sprintf("done %d", n)); err != nil {
						return "", err
					}
					if err := ctx.Sleep(time.Second); err != nil {
						return "", err
					}

					if n < 3 {
						return "", showing.ContinueAsNew(n + 1)
					}
					was, _ := stand.Get(ctx)
					return fmt.Sprint(was, ", ", had+1), stand.Clear(ctx)
				})}
			}, func(d *driver) error {
				x, err := start(d, showing, 1, "k")
				if err != nil {
					return err
				}
				if err := result(d, x, "done 3, 3"); err != nil {
					return err
				}

				n, ok, err := runCount.Read(d.client(), x.Ref)
				if err != nil || !ok || n != 3 {
					return d.cause(0, errors.Join(err, fmt.Errorf("after the end the count of runs is %d, %v: %w", n, ok, perdure.ErrUnavailable)))
				}
				_, ok, err = stand.Read(d.client(), x.Ref)
				if err == nil && ok {
					return wrong("state that was cleared is there")
				}

				return d.cause(0, err)
			}),
			check: func(w *world, h *histories) error {
				// All runs have the same step, and bodies counts its executions in all of them.
				runs := h.of(showing.Execution(perdure.RawKey("k")).Ref)
				for i, r := range runs {
					want := []string{fmt.Sprint(i + 1), fmt.Sprintf("%q", fmt.Sprintf("begun %d", i+1)), fmt.Sprintf("%q", fmt.Sprintf("done %d", i+1))}
					if i == len(runs)-1 {
						want = append(want, "")
					}
					var got []string
					for _, e := range r.events[len(r.row.Start.Carried):] {
						if e.Kind == model.EventStateSet {
							got = append(got, string(e.Output.Data))
						}
					}
					if !slices.Equal(got, want) {
						return wrong("run %d has set %q, want %q", i+1, got, want)
					}
				}

				return nil
			},
		},
		{
			// Queries never go backwards: a later query, in any process, sees at least the history
			// that an earlier query saw.
			name:      "queries beside crashes",
			idleAfter: 300 * time.Millisecond,
			maybe:     []string{"keep one", "keep two", "keep three"},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{listener.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) {
					var got []string
					seen.Handle(ctx, func(int) (string, error) { return strings.Join(got, " "), nil })
					for range n {
						v, err := words.Receive(ctx)
						if err != nil {
							return "", err
						}
						if _, err := w.step(ctx, "keep "+v); err != nil {
							return "", err
						}
						got = append(got, v)
					}
					return strings.Join(got, " "), nil
				})}
			}, func(d *driver) error {
				x, err := start(d, listener, 3, "k")
				if err != nil {
					return err
				}

				for i, v := range []string{"one", "two", "three"} {
					if err := send(d, words, x.Ref, v, "s "+v); err != nil {
						return err
					}
					for range 2 {
						if err := look(d, 0, x.Ref); err != nil {
							return err
						}
					}
					if i == 0 {
						// The engine unloads the execution during this time.
						if err := d.sleep(time.Second); err != nil {
							return err
						}
					}
				}

				return result(d, x, "one two three")
			}),
			check: func(w *world, h *histories) error { return checkLooks(w, "one two three") },
		},
		{
			// Each client uses an execution that the other process may own, while shards move.
			name:   "talk between processes",
			bodies: map[string]int{"add 1": 2, "add 10": 2},
			stages: []stage{{
				processes: 2,
				define:    counterGroup,
				drive: func(d *driver) error {
					var clients []func() error
					for i := range 2 {
						here, there := i, 1-i
						clients = append(clients, func() error {
							x, err := startAt(d, here, counter, 0, fmt.Sprintf("k%d", i))
							if err != nil {
								return err
							}
							return inOrder(
								func() error { return call(d, there, x.Ref, 1, "u1", 1) },
								func() error { return look(d, there, x.Ref) },
								func() error { return call(d, here, x.Ref, 1, "u1", 1) },
								func() error { return call(d, here, x.Ref, 10, "u2", 11) },
								func() error { return look(d, here, x.Ref) },
								func() error { return sendAt(d, there, enough, x.Ref, "", "s1") },
								func() error { return resultAt(d, there, x, 11) },
								func() error { return call(d, there, x.Ref, 10, "u2", 11) },
							)
						})
					}

					return together(clients...)
				},
			}},
			check: func(_ *world, h *histories) error {
				return errors.Join(answersOf(h, counter.Execution(perdure.RawKey("k0")).Ref, 2), answersOf(h, counter.Execution(perdure.RawKey("k1")).Ref, 2))
			},
		},
		{
			// A workflow sends a message under a request id that it or a client has used before.
			// The message is delivered once. The repeated send succeeds and has no effect.
			name:  "request ids of workflows",
			lanes: 2,
			stages: alone(func(*world) perdure.Group {
				return perdure.Group{
					listener.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) { return listen(ctx, n) }),
					echo.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						to := listener.Execution(perdure.RawKey("hears"))
						for i, v := range []string{"client", "mine", "mine", "last"} {
							if err := words.Send(ctx, to, v, perdure.StepKey(fmt.Sprint(i)), perdure.RequestID(v)); err != nil {
								return "", err
							}
						}
						return "sent", nil
					}),
				}
			}, func(d *driver) error {
				hears, err := start(d, listener, 3, "hears")
				if err != nil {
					return err
				}
				if err := send(d, words, hears.Ref, "client", "client"); err != nil {
					return err
				}
				x, err := start(d, echo, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return result(d, x, "sent") },
					func() error { return result(d, hears, "client mine last") },
				)
			}),
		},
	}
}

// counterGroup is a counter. Each update adds its value in a step, until a signal ends it.
func counterGroup(w *world) perdure.Group {
	return perdure.Group{counter.Bind(func(ctx perdure.WorkflowCtx, sum int) (int, error) {
		seen.Handle(ctx, func(int) (string, error) { return fmt.Sprint(sum), nil })
		add.Handle(ctx, func(ctx perdure.WorkflowCtx, v int) (int, error) {
			if _, err := w.step(ctx, fmt.Sprintf("add %d", v)); err != nil {
				return 0, err
			}
			sum += v
			return sum, nil
		}, func(v int) error {
			if v < 0 {
				return fmt.Errorf("%d is not for adding", v)
			}
			return nil
		})
		_, err := enough.Receive(ctx)
		return sum, err
	})}
}

// call adds to a counter under a request id, and records the reply.
//
//arch:parameters mirrors Update.Call
func call(d *driver, i int, to perdure.Ref, v int, id string, want int) error {
	return checkAnswer(d, updateCall{i, to, id}, want, func(c perdure.Client) (int, error) {
		return add.Call(c, to, v, perdure.RequestID(id))
	})
}

// updateCall identifies a call of an update: the process that makes the call, the execution, and
// the request id.
type updateCall struct {
	process int
	to      perdure.Ref
	id      string
}

// refusedCall checks that a counter refuses to add.
func refusedCall(d *driver, to perdure.Ref, v int, id string) error {
	_, err := add.Call(d.client(), to, v, perdure.RequestID(id))
	var remote *perdure.RemoteError
	if errors.As(err, &remote) && strings.Contains(remote.Message, "is not for adding") {
		return nil
	}
	if err == nil {
		return wrong("update %s of %s was not refused", id, to)
	}
	return d.cause(0, fmt.Errorf("update %s of %s: %w", id, to, err))
}

// checkAnswer makes an update call and compares its reply. It records the acknowledgement: at the
// end the history must have the same answer.
func checkAnswer[O comparable](d *driver, u updateCall, want O, do func(c perdure.Client) (O, error)) error {
	to, id := u.to, u.id
	got, err := do(d.at(u.process))
	if err != nil {
		return d.cause(u.process, fmt.Errorf("update %s of %s: %w", id, to, err))
	}
	if got != want {
		return wrong("update %s of %s was answered with %v, want %v", id, to, got, want)
	}

	d.acknowledge("the answer to "+id, func(h *histories) error {
		for _, r := range h.of(to) {
			for _, e := range r.events {
				if e.Kind == model.EventUpdateAnswered && strings.HasSuffix(r.events[e.Ref-1].RequestID, " "+id) {
					return nil
				}
			}
		}
		return wrong("update %s of %s was answered, but the history has no such answer", id, to)
	})

	return nil
}

// answersOf checks the number of answers to updates in an execution, and that no request was
// answered twice in any run.
func answersOf(h *histories, r perdure.Ref, want int) error {
	answered, n := once{}, 0
	for _, run := range h.of(r) {
		for _, e := range run.events {
			if e.Kind != model.EventUpdateAnswered {
				continue
			}
			n++
			if id := run.events[e.Ref-1].RequestID; id != "" {
				if err := answered.see(e.Seq, "the answer to update %s", id); err != nil {
					return err
				}
			}
		}
	}

	if n != want {
		return wrong("%s has answered %d updates, want %d", r, n, want)
	}
	return nil
}

// look queries what an execution has received. The answer must include everything that earlier
// queries returned.
func look(d *driver, i int, to perdure.Ref) error {
	key := "seen of " + to.String()
	d.w.mu.Lock()
	before := d.w.facts[key]
	d.w.mu.Unlock()
	got, err := seen.Ask(d.at(i), to, 0)

	switch {
	case errors.Is(err, perdure.ErrConflict):
		return nil // an earlier drive has ended it
	case err != nil:
		return d.cause(i, fmt.Errorf("query of %s: %w", to, err))
	case len(got) < len(before):
		return wrong("%s has shown %q, and now %q", to, before, got)
	}

	d.w.mu.Lock()
	d.w.facts[key] = got
	d.w.mu.Unlock()
	return nil
}

// checkLooks checks that every query result is a prefix of the final value.
func checkLooks(w *world, end string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, got := range w.facts {
		if strings.HasPrefix(key, "seen of ") && !strings.HasPrefix(end, got) {
			return wrong("%s: a query saw %q, but it ended with %q", key, got, end)
		}
	}
	return nil
}
