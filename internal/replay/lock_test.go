package replay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

func callEntity(x replay.Ctx, key, name string) (string, error) {
	out, err := x.Send(model.Message{Kind: model.MessageCall, To: account(key), Name: name}, "", nil)
	return string(out.Data), err
}

// openSection returns the only open section.
func (e *engine) openSection() string { return slices.Collect(maps.Keys(e.locks))[0] }

// serve grants every lock, answers every call and executes every task until nothing is left to do.
func (e *engine) serve() {
	for e.settle(); ; e.settle() {
		as := e.entities()
		for id := range e.tasks {
			as = append(as, e.fates(id)[0])
		}
		if len(as) == 0 {
			return
		}
		as[0]()
	}
}

// The code continues when the last entity is locked. Its calls belong to the section, and its steps
// and tasks get the fencing tokens. The end of the section is recorded.
func TestLock(t *testing.T) {
	var stepToken, taskToken string
	token := func(f func(model.Address) (int64, bool), key string) string {
		n, ok := f(account(key))
		return fmt.Sprint(key, "=", n, " ", ok)
	}

	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var in string
		err := x.Lock([]model.Address{account("b"), account("a"), account("b")}, func(y replay.Ctx) error {
			in = say(token(y.Fence, "a"), token(y.Fence, "b"), token(y.Fence, "c"), token(x.Fence, "a"))
			if _, err := y.Step(e.stepOf("s", func(s *replay.Step) {
				s.Body = func(ctx context.Context) (model.Payload, error) {
					stepToken = token(replay.StepFrom(ctx).Fence, "b")
					return payload("1"), nil
				}
			})); err != nil {
				return err
			}
			if _, err := y.Step(task("t")); err != nil {
				return err
			}
			out, err := callEntity(y, "a", "op")
			in += " " + out
			return err
		})

		return in, err
	}, func(e *engine) {
		e.settle()
		if want := "[waits for the lock of account/a]"; fmt.Sprint(e.waits) != want {
			t.Errorf("waits %v, want %s", e.waits, want)
		}
		id := e.openSection()
		e.grant(id)
		e.settle()
		if want := "[waits for the lock of account/b]"; fmt.Sprint(e.waits) != want {
			t.Errorf("waits %v, want %s", e.waits, want)
		}
		e.grant(id)
		e.settle()
		claim := &replay.ClaimContext{Context: context.Background(), Claim: &model.Claim{Spec: e.events[e.last()-1].Task}}
		taskToken = token(replay.StepFrom(claim).Fence, "b") + " " + token(replay.StepFrom(claim).Fence, "c")
		e.serve()
		e.wantClosed(t, model.Completed, "a=2 true b=3 true c=0 false a=0 false answer")
		if stepToken != "b=3 true" || taskToken != "b=3 true c=0 false" || e.tokens() != "[a=2 b=3]" {
			t.Errorf("the step has %q, the task %q, granted are %s", stepToken, taskToken, e.tokens())
		}
		if k := e.kinds(); !strings.HasPrefix(k, "lock_asked, lock_granted, lock_granted, step_completed s, task_scheduled t") || !strings.HasSuffix(k, "sent op, answered, unlocked") {
			t.Errorf("history %s", k)
		}
	})
}

// Code that breaks a rule of locks gets an error of kind Invalid, live and on replay, and nothing
// is recorded. The code may continue. This is the invariant L34 in
// internal/archtest/testdata/invariants.txt.
func TestLockRules(t *testing.T) {
	lock := func(x replay.Ctx, fn func(replay.Ctx) error, keys ...string) error {
		var set []model.Address
		for _, k := range keys {
			set = append(set, account(k))
		}
		return x.Lock(set, fn)
	}

	nothing := func(replay.Ctx) error { return nil }
	for name, c := range map[string]struct {
		code func(e *engine, x, y replay.Ctx) error // x is outside of the lock, y inside
		want string
	}{
		"nested":   {func(_ *engine, _, y replay.Ctx) error { return lock(y, nothing, "c") }, "Lock inside Lock"},
		"detached": {func(_ *engine, _, y replay.Ctx) error { return lock(y.Detached(), nothing, "c") }, "Lock inside Lock"},
		"nothing":  {func(_ *engine, x, _ replay.Ctx) error { return lock(x, nothing) }, "Lock of no entities"},
		"workflow": {func(_ *engine, x, _ replay.Ctx) error {
			return x.Lock([]model.Address{{Tenant: "default", Type: "wf", Key: "k"}}, nothing)
		}, "Lock of wf/k, which is not an entity"},
		"service": {func(_ *engine, x, _ replay.Ctx) error {
			return x.Lock([]model.Address{{Tenant: "default", Type: "service:s", Key: "k"}}, nothing)
		}, "which is not an entity"},
		"not locked": {func(_ *engine, _, y replay.Ctx) error {
			_, err := callEntity(y, "c", "op")
			return err
		}, "call of op of account/c, which is not among the locked entities"},
		"itself": {func(_ *engine, x, _ replay.Ctx) error {
			_, err := callEntity(x, "a", "op")
			return err
		}, "call of op of account/a, which this execution locks elsewhere"},
		"sent": {func(_ *engine, _, y replay.Ctx) error {
			_, err := y.Send(model.Message{Kind: model.MessageCall, To: account("a"), Name: "op", OneWay: true}, "", nil)
			return err
		}, "send of op to account/a, which is locked here"},
		"twice": {func(_ *engine, _, y replay.Ctx) error {
			y.SendFuture(model.Message{Kind: model.MessageCall, To: account("a"), Name: "first"}, "", nil)
			return y.Get(y.SendFuture(model.Message{Kind: model.MessageCall, To: account("a"), Name: "op"}, "", nil))
		}, "call of op of account/a before the previous call of this entity was answered"},
		"child": {func(_ *engine, _, y replay.Ctx) error {
			_, err := y.RunChild(replay.Child{Workflow: "kid", Key: "k", Keyed: true})
			return err
		}, "wait for execution kid/k inside Lock"},
		"outcome": {func(_ *engine, _, y replay.Ctx) error {
			// to start the child is allowed
			child, err := y.StartChild(replay.Child{Workflow: "kid", Key: "k", Keyed: true})
			if err != nil {
				return err
			}
			return y.Get(y.Outcome(child, model.RunID{}))
		}, "wait for execution kid/k inside Lock"},
		"update": {func(_ *engine, _, y replay.Ctx) error {
			_, err := y.Send(model.Message{Kind: model.MessageUpdate, To: model.Address{Tenant: "default", Type: "kid", Key: "k"}, Name: "op"}, "", nil)
			return err
		}, "update op of execution kid/k inside Lock"},
		"coroutine": {func(_ *engine, x, y replay.Ctx) error {
			return x.Get(y.Go(func(z replay.Ctx) (any, error) { return callEntity(z, "c", "op") }))
		}, "which is not among the locked entities"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []error
			code := func(e *engine, x replay.Ctx) (string, error) {
				err := lock(x, func(y replay.Ctx) error {
					err := c.code(e, x, y)
					all = append(all, err)
					_, then := callEntity(y, "b", "op")
					return then
				}, "a", "b")
				return "done", err
			}

			var history []model.Event
			bubble(t, code, func(e *engine) {
				e.serve()
				e.wantClosed(t, model.Completed, "done")
				history = e.events
			})

			bubble(t, code, func(e *engine) { // another process replays the run
				e.crash()
				e.events = history[:len(history)-1]
				e.remember()
				e.activate(-1)
				e.serve()
				e.wantClosed(t, model.Completed, "done")
			})

			if len(all) < 2 {
				t.Fatalf("the code ran %d times", len(all))
			}

			for _, err := range all {
				if err == nil || !strings.Contains(err.Error(), c.want) || fault.KindOf(err) != fault.Invalid {
					t.Errorf("error %v (%v), want %q", err, fault.KindOf(err), c.want)
				}
			}

			for i := range history {
				if e := &history[i]; e.Name == "op" && e.Target != account("b") || e.Target == account("c") || e.Kind == model.EventChildClosed {
					t.Errorf("what was wrong is recorded: %+v", e)
				}
			}
		})
	}
}

// An older build let a run send an update inside a section. The run continues with that record.
func TestUpdateInALockOfAnOlderBuild(t *testing.T) {
	code := func(inside bool) func(e *engine, x replay.Ctx) (string, error) {
		return func(_ *engine, x replay.Ctx) (string, error) {
			err := x.Lock([]model.Address{account("a")}, func(y replay.Ctx) error {
				from := x // the context of a call outside the section
				if inside {
					from = y
				}
				for range 2 {
					if _, err := from.Send(model.Message{Kind: model.MessageUpdate, To: model.Address{Tenant: "default", Type: "kid", Key: "k"}, Name: "u"}, "", nil); err != nil {
						return err
					}
				}
				return nil
			})
			return "done", err
		}
	}

	var history []model.Event
	bubble(t, code(false), func(e *engine) {
		e.serve()
		e.wantClosed(t, model.Completed, "done")
		history = e.events
	})

	bubble(t, code(true), func(e *engine) {
		e.crash()
		e.events = history[:len(history)-1]
		e.remember()
		e.activate(-1)
		e.serve()
		e.wantClosed(t, model.Completed, "done")
	})
}

// These calls are allowed in a section: calls of several entities at the same time, calls of
// services, and one-way calls of entities that are not locked. The code may call an entity again
// when the last call was answered or given up.
func TestLockAllows(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		call := func(y replay.Ctx, key string) *replay.Future {
			return y.SendFuture(model.Message{Kind: model.MessageCall, To: account(key), Name: "op"}, "", nil)
		}

		err := x.Lock([]model.Address{account("a"), account("b")}, func(y replay.Ctx) error {
			fs := []*replay.Future{call(y, "a"), call(y, "b")}
			if err := y.All(fs); err != nil {
				return err
			}
			late := y.WithTimeout(time.Minute)
			if err := late.Get(call(late, "a")); !errors.Is(err, replay.ErrTimeout) {
				return fmt.Errorf("the call without an answer: %w", err)
			}

			if err := y.Get(call(y, "a")); err != nil {
				return err
			}
			_, err := y.Send(model.Message{Kind: model.MessageCall, To: account("c"), Name: "later", OneWay: true}, "", nil)
			if err != nil {
				return err
			}

			_, err = y.Send(model.Message{Kind: model.MessageCall, To: model.Address{Tenant: "default", Type: "service:mail", Key: "m"}, Name: "post"}, "", nil)
			return err
		})

		return "done", err
	}, func(e *engine) {
		e.settle()
		e.grant(e.openSection())
		e.grant(e.openSection())
		e.settle()
		if len(e.calls) != 2 {
			t.Fatalf("calls %v", e.calls)
		}

		for range 2 {
			e.entities()[0]()
		}
		e.settle()
		e.fireAll()
		e.serve()
		e.wantClosed(t, model.Completed, "done")
		if want := "withdrawn call, sent op, answered, sent later"; !strings.Contains(e.kinds(), want) {
			t.Errorf("history %s, want %q in it", e.kinds(), want)
		}
	})
}

// When the scope ends, the code no longer waits for the lock. The worker withdraws the section. A
// grant that comes later does not give the lock to the section (L32, L39).
func TestLockIsWithdrawn(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
			err := x.WithTimeout(time.Minute).Lock([]model.Address{account("a"), account("b")}, func(replay.Ctx) error {
				return errors.New("the body runs")
			})
			again := x.Lock([]model.Address{account("b")}, func(y replay.Ctx) error {
				_, err := callEntity(y, "b", "op")
				return err
			})
			return say(err, again), nil
		}, func(e *engine) {
			e.settle()
			id := e.openSection()
			e.grant(id)
			e.settle()
			for timer := range e.timers {
				e.fire(timer)
			}
			if late {
				e.grant(id) // committed after the firing, and before the code could act
			}
			e.settle()
			e.serve()
			e.wantClosed(t, model.Completed, "timeout <nil>")
			if !strings.Contains(e.kinds(), "withdrawn") || strings.Count(e.kinds(), "unlocked") != 1 {
				t.Errorf("history %s", e.kinds())
			}
		})
	}

	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		return "", x.Lock([]model.Address{account("a")}, func(replay.Ctx) error { return nil })
	}, func(e *engine) {
		e.settle()
		e.inject(model.Event{Kind: model.EventCancelRequest})
		e.settle()
		if e.wantClosed(t, model.Canceled, ""); len(e.locks) > 0 {
			t.Errorf("it still waits for %v", e.locks)
		}
	})
}

// If a lock is refused, the call of Lock returns an error, and the code continues.
func TestLockIsRefused(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		err := x.Lock([]model.Address{account("a"), account("b")}, func(replay.Ctx) error { return errors.New("the body runs") })
		out, then := callEntity(x, "a", "op")
		return say(err, out, then), nil
	}, func(e *engine) {
		e.settle()
		e.grant(e.openSection())
		e.refuse(e.openSection())
		e.serve()
		e.wantClosed(t, model.Completed, "cannot be locked answer <nil>")
	})
}

// When the function of a section ends, in whatever way, the section ends. When the worker unloads
// the run, the section does not end.
func TestLockEndsWithItsBody(t *testing.T) {
	boom := errors.New("boom")

	for name, body := range map[string]func(*engine, replay.Ctx) error{
		"error": func(*engine, replay.Ctx) error { return boom },
		"panic": func(*engine, replay.Ctx) error { panic("boom") },
		"exit":  func(*engine, replay.Ctx) error { runtime.Goexit(); return nil },
		"step exits": func(e *engine, y replay.Ctx) error {
			_, err := y.Step(e.stepOf("s", func(s *replay.Step) {
				s.Policy = &replay.Policy{MaxAttempts: 1}
				s.Body = func(context.Context) (model.Payload, error) { runtime.Goexit(); return model.Payload{}, nil }
			}))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(e *engine, x replay.Ctx) (string, error) {
				f := x.Go(func(x replay.Ctx) (any, error) {
					return nil, x.Lock([]model.Address{account("a")}, func(y replay.Ctx) error {
						if err := y.Sleep(time.Minute); err != nil {
							return err
						}
						return body(e, y)
					})
				})
				err := x.Get(f)
				_, then := callEntity(x, "a", "op")
				return say(err != nil, then), nil
			}, func(e *engine) {
				e.serve()
				e.crash()
				e.activate(-1)
				e.settle()
				if len(e.locks) != 1 {
					t.Fatalf("the lock is gone although the body is not over: %s", e.kinds())
				}
				e.fireAll()
				e.serve()
				e.wantClosed(t, model.Completed, "true <nil>")
				if k := e.kinds(); strings.Count(k, "unlocked") != 1 || strings.Index(k, "unlocked") > strings.Index(k, "sent op") {
					t.Errorf("history %s", k)
				}
			})
		})
	}
}

// The body of a step may end the goroutine of the code. That does not end the lock around the step,
// because the worker executes the code again. If such a step comes after the lock, the lock does
// not end twice.
func TestLockOutlivesAGoroutine(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		exits := func(y replay.Ctx) error {
			_, err := y.Step(e.stepOf("s", func(s *replay.Step) {
				s.Policy = &replay.Policy{MaxAttempts: 1}
				s.Body = func(context.Context) (model.Payload, error) { runtime.Goexit(); return model.Payload{}, nil }
			}))
			return err
		}
		err := x.Lock([]model.Address{account("a")}, func(y replay.Ctx) error {
			failed := exits(y)
			_, err := callEntity(y, "a", "op")
			return errors.Join(failed, err)
		})
		return say(err, exits(x) != nil), nil
	}, func(e *engine) {
		e.serve()
		e.wantClosed(t, model.Completed, "step s ended its goroutine (runtime.Goexit) instead of returning true")
		if want := "lock_asked, lock_granted, step_failed s, sent op, answered, unlocked, step_failed s"; e.kinds() != want {
			t.Errorf("history %s, want %s", e.kinds(), want)
		}
	})
}

// When the root coroutine returns, the sections of other coroutines end before the clean-up,
// whether these sections hold their locks or wait for them. The clean-up may need the entities.
func TestLocksEndBeforeTheCleanUp(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		x.Cleanup(false, func(y replay.Ctx) error {
			return y.Lock([]model.Address{account("a")}, func(z replay.Ctx) error {
				_, err := callEntity(z, "a", "op")
				return err
			})
		})
		for _, k := range []string{"a", "b"} {
			x.Go(func(y replay.Ctx) (any, error) {
				return nil, y.Lock([]model.Address{account(k)}, func(z replay.Ctx) error { return z.Sleep(time.Hour) })
			})
		}
		return "", x.Sleep(time.Minute)
	}, func(e *engine) {
		e.settle()
		for id, s := range e.locks {
			if s.Locks[0] == account("a") {
				e.grant(id)
			}
		}

		e.settle()
		for id, due := range e.timers {
			if due == slices.Min(slices.Collect(maps.Values(e.timers))) {
				e.fire(id)
			}
		}

		e.serve()
		e.wantClosed(t, model.Completed, "")
		if k := e.kinds(); !strings.Contains(k, "withdrawn lock, unlocked, lock_asked") && !strings.Contains(k, "unlocked, withdrawn lock, lock_asked") || len(e.locks) > 0 {
			t.Errorf("history %s", k)
		}
	})
}

// The context of a section that is over can be used for everything except calls of entities.
func TestLockIsOver(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var kept replay.Ctx
		if err := x.Lock([]model.Address{account("a")}, func(y replay.Ctx) error { kept = y; return nil }); err != nil {
			return "", err
		}
		_, call := callEntity(kept, "a", "op")
		again := kept.Lock([]model.Address{account("b")}, func(replay.Ctx) error { return nil })
		_, held := kept.Fence(account("a"))
		_, step := e.step(kept, "s")
		return say(call, "|", again, "|", held, step), nil
	}, func(e *engine) {
		e.serve()
		e.wantClosed(t, model.Completed, "call of op of account/a with the context of a lock that has ended: use the context outside the lock | "+
			"Lock with the context of a lock that has ended: use the context outside the lock | false <nil>")
	})
}

// The worker blocks the run if today's code locks other entities than the history records, locks no
// entities, or releases them in another place.
func TestLockMismatch(t *testing.T) {
	locks := func(call bool, keys ...string) program {
		return func(_ *engine, x replay.Ctx) error {
			var set []model.Address
			for _, k := range keys {
				set = append(set, account(k))
			}
			err := x.Lock(set, func(y replay.Ctx) error {
				if !call {
					return nil
				}
				_, err := callEntity(y, keys[0], "op")
				return err
			})
			if err == nil && !call {
				_, err = callEntity(x, keys[0], "op")
			}
			return err
		}
	}

	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		old := locks(true, "a", "b")
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload(""), old(e, x) }
		e.activate(-1)
		e.serve()
		e.stop()

		for name, c := range map[string]struct {
			code program
			n    int // how many events of the history to replay
			want string
		}{
			"another set": {locks(true, "a", "c"), 3, "event 1 records the lock of account/a, account/b at replay/lock_test.go:"},
			"none":        {func(_ *engine, x replay.Ctx) error { return x.Sleep(time.Hour) }, 3, "event 1 records the lock of account/a, account/b"},
			"ends early":  {locks(false, "a", "b"), 5, "event 4 records message op at replay/lock_test.go:"},
			"never ends": {func(_ *engine, x replay.Ctx) error {
				return x.Lock([]model.Address{account("a"), account("b")}, func(y replay.Ctx) error {
					if _, err := callEntity(y, "a", "op"); err != nil {
						return err
					}
					return y.Sleep(time.Hour)
				})
			}, 6, "event 6 records the end of a lock"},
			"the same": {old, 6, ""},
		} {
			r := newEngine(nil)
			r.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload(""), c.code(r, x) }
			r.events = e.events[:c.n]
			r.remember()
			r.activate(-1)
			r.serve()
			r.stop()
			switch {
			case c.want == "" && r.blocked != nil || c.want != "" && r.blocked == nil:
				t.Errorf("%s: blocked %v, want %q", name, r.blocked, c.want)
			case c.want != "" && !strings.Contains(r.blocked.Detail, c.want):
				t.Errorf("%s: blocked %v, want %q", name, r.blocked, c.want)
			}
		}
	})
}

// TestAllOrdersOfLocks lets two coroutines lock the same entities, call them and run steps under a
// deadline. Grants, answers and deadlines come in every order, and the worker crashes after every
// event. After each crash, the run must end in the same way, and the code must have seen the same
// things.
func TestAllOrdersOfLocks(t *testing.T) {
	ops := []op{
		{Kind: "par", M: 2, Body: []op{{Kind: "scope", Body: []op{{Kind: "lock", N: 1, Body: []op{{Kind: "call", M: 1}, {Kind: "step"}}}}}}},
		{Kind: "lock", N: 0, Body: []op{{Kind: "call", M: 1}}},
	}

	next := func(e *engine) (as []func()) {
		as = e.entities()
		as = as[:len(as)/2] // leave out refusals
		for _, id := range slices.Sorted(maps.Keys(e.timers)) {
			as = append(as, func() { e.fire(id) })
		}
		return as
	}

	orders, pairs := 0, 0
	for choices := []int{}; choices != nil; {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(ops, nil, false)
			s.e.auto = true
			s.e.activate(-1)
			s.e.settle()

			var widths []int
			for as := next(s.e); len(as) > 0; as = next(s.e) {
				if len(widths) == len(choices) {
					choices = append(choices, 0)
				}
				choice := choices[len(widths)]
				widths = append(widths, len(as))
				as[choice]()
				s.e.settle()
			}

			s.e.stop()
			if err := errors.Join(s.checkFinished(), s.check()); err != nil {
				t.Fatalf("%v: %v\n%s", choices, err, dump(s.e.events))
			}
			pairs += len(s.e.events) + 1

			for k := range s.e.events {
				r := newSim(ops, nil, false)
				r.e.auto, r.e.events = true, slices.Clone(s.e.events[:k])
				r.e.remember()
				r.e.activate(-1)
				r.e.serve()
				r.e.stop()
				if err := r.checkFinished(); err != nil {
					t.Fatalf("%v, crash after %d: %v\n%s", choices, k, err, dump(r.e.events))
				}
			}

			for len(choices) > 0 && choices[len(choices)-1] == widths[len(choices)-1]-1 {
				choices = choices[:len(choices)-1]
			}

			if orders++; len(choices) == 0 {
				choices = nil
				return
			}

			choices[len(choices)-1]++
		})
	}

	t.Logf("%d orders, %d live/replay pairs", orders, pairs)
}
