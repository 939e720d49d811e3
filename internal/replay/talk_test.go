package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

func (e *engine) update(name, value string) {
	e.inject(model.Event{Kind: model.EventUpdateReceived, Name: name, Input: payload(value), RequestID: value})
}

// replies returns the answers to updates in the history, in order.
func (e *engine) replies() string {
	var s []string
	for _, ev := range e.events {
		if ev.Kind == model.EventUpdateAnswered {
			text := string(e.events[ev.Ref-1].Input.Data) + ": " + string(ev.Output.Data)
			if ev.Failure != nil {
				text += ev.Failure.Message
			}
			s = append(s, text)
		}
	}
	return strings.Join(s, ", ")
}

func (e *engine) wantReplies(t *testing.T, want string) {
	t.Helper()
	if got := e.replies(); got != want {
		t.Errorf("answers %q, want %q\n%s", got, want, dump(e.events))
	}
}

// checkReplay crashes the worker. It checks that the next worker sends no new requests during the
// replay and continues where the first one stopped.
func (e *engine) checkReplay(t *testing.T) {
	t.Helper()
	before := len(e.events)
	e.crash()
	e.activate(-1)
	e.settle()
	if len(e.events) != before {
		t.Errorf("the replay has added events:\n%s", dump(e.events[before:]))
	}
}

func echo(x replay.Ctx, in model.Payload) (model.Payload, error) {
	return payload("got " + string(in.Data)), nil
}

// Updates that arrive before their handler is registered wait for the handler. The handler serves
// them in the order in which they arrived.
func TestUpdatesWaitForTheirHandler(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if _, err := receive(x, "go"); err != nil {
			return "", err
		}
		x.HandleUpdate("u", replay.UpdateHandler{Serve: echo})
		_, err := receive(x, "end")
		return "done", err
	}, func(e *engine) {
		e.update("u", "1")
		e.update("other", "9")
		e.update("u", "2")
		e.settle()
		e.wantReplies(t, "")
		if !slices.ContainsFunc(e.waits, func(r model.Reason) bool { return r.Code == model.WaitHandler }) {
			t.Errorf("it waits for %v", e.waits)
		}
		e.signal("go", "")
		e.settle()
		e.update("u", "3")
		e.settle()
		e.wantReplies(t, "1: got 1, 2: got 2, 3: got 3")
		e.checkReplay(t)
		e.signal("end", "")
		e.settle()
		e.wantClosed(t, model.Completed, "done")
		if len(e.end.Begun) != 0 {
			t.Errorf("begun %v", e.end.Begun)
		}
	})
}

// If a validator refuses an update, or if a handler fails or panics, the error is the answer, and
// the run continues.
func TestUpdatesThatFail(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		x.HandleUpdate("u", replay.UpdateHandler{
			Serve: func(_ replay.Ctx, in model.Payload) (model.Payload, error) {
				switch string(in.Data) {
				case "invalid":
					return model.Payload{}, errors.New("refused")
				case "bad validator":
					panic("of the validator")
				case "panics":
					panic("oh")
				case "nobody":
					return model.Payload{}, (*nobodysError)(nil)
				}
				return payload("lost"), errors.New("failed")
			},
		})

		_, err := receive(x, "end")
		return "done", err
	}, func(e *engine) {
		for _, v := range []string{"invalid", "fails", "panics", "bad validator", "nobody"} {
			e.update("u", v)
		}
		e.settle()

		var got []string
		for _, ev := range e.events {
			if ev.Kind == model.EventUpdateAnswered {
				got = append(got, fmt.Sprintf("%s %q %v", ev.Output.Data, ev.Failure.Message, ev.Failure.Kind == model.FailurePanic))
			}
		}

		want := []string{` "refused" false`, ` "failed" false`}
		if len(got) != 5 || !slices.Equal(got[:2], want) || slices.ContainsFunc(got[2:], func(a string) bool { return !strings.HasSuffix(a, "true") }) {
			t.Errorf("answers %q", got)
		}
		e.checkReplay(t)
		e.signal("end", "")
		e.settle()
		e.wantClosed(t, model.Completed, "done")
	})
}

// Handlers sleep and run steps in parallel, each in a coroutine of its own that is named after the
// update. A crash in between does not repeat steps.
func TestHandlersSleepAndRunSteps(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		sum := 0
		x.HandleUpdate("u", replay.UpdateHandler{Serve: func(y replay.Ctx, in model.Payload) (model.Payload, error) {
			if _, err := e.step(y, "book"); err != nil {
				return model.Payload{}, err
			}
			if err := y.Sleep(time.Minute); err != nil {
				return model.Payload{}, err
			}
			sum++
			return payload(fmt.Sprint(sum)), nil
		}})

		if _, err := receive(x, "end"); err != nil {
			return "", err
		}
		err := x.WaitUpdates()
		return fmt.Sprint(sum), err
	}, func(e *engine) {
		e.update("u", "a")
		e.update("u", "b")
		e.settle()
		e.checkReplay(t)
		e.signal("end", "")
		e.settle()
		if e.end != nil {
			t.Fatal("it did not wait for its updates")
		}

		e.update("u", "late") // arrives while the code waits
		e.settle()
		e.fireAll()
		if n := strings.Count(e.kinds(), "update_answered"); n != 3 {
			t.Errorf("%d answers, want 3: %s", n, e.replies())
		}
		e.wantClosed(t, model.Completed, "3")

		for id, n := range e.ran {
			if n != 1 {
				t.Errorf("step %s ran %d times", id, n)
			}
		}

		if len(e.ran) != 3 {
			t.Errorf("%d steps ran, want 3", len(e.ran))
		}
	})
}

// When a run ends or continues as new, the worker tells the engine which updates have begun and are
// not answered. Updates that wait for a handler are not among them.
func TestUpdatesAtTheEnd(t *testing.T) {
	for _, cleanup := range []bool{false, true} {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			x.HandleUpdate("u", replay.UpdateHandler{Serve: func(y replay.Ctx, in model.Payload) (model.Payload, error) {
				_, err := receive(y, "never")
				return in, err
			}})
			if cleanup { // the clean-up does not wait for handlers, because they are gone
				x.Cleanup(false, func(y replay.Ctx) error { return y.WaitUpdates() })
			}
			if _, err := receive(x, "end"); err != nil {
				return "", err
			}
			return "", &replay.Continue{Workflow: "wf", Input: payload("next")}
		}, func(e *engine) {
			e.update("u", "begun")
			e.update("other", "waits")
			e.update("u", "begun too")
			e.settle()
			e.signal("end", "")
			e.settle()
			e.wantClosed(t, model.Continued, "")
			if want := []int64{1, 3}; !slices.Equal(e.end.Begun, want) {
				t.Errorf("begun %v, want %v", e.end.Begun, want)
			}
		})
	}
}

// The code has the updates and the state of the run before from its first line on.
func TestCarriedUpdatesAndState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			had, ok := x.State("v")
			x.HandleUpdate("u", replay.UpdateHandler{Serve: echo})
			if err := x.SetState("v", payload(string(had.Data)+"+"), nil); err != nil {
				return had, err
			}
			now, _ := x.State("v")
			_, err := receive(x, "end")
			return payload(fmt.Sprint(string(had.Data), ok, string(now.Data))), err
		})

		e.start.Carried = []model.Event{
			{Seq: 1, At: e.start.At, Kind: model.EventStateSet, Name: "v", Output: payload("old")},
			{Seq: 2, At: e.start.At, Kind: model.EventUpdateReceived, Name: "u", Input: payload("carried")},
		}

		e.events = slices.Clone(e.start.Carried)
		e.activate(-1)
		e.settle()
		e.wantReplies(t, "carried: got carried")
		e.checkReplay(t)
		e.signal("end", "")
		e.settle()
		e.wantClosed(t, model.Completed, "oldtrueold+")
		if n := strings.Count(e.kinds(), "state_set v"); n != 2 {
			t.Errorf("%d states are in the history, want the carried one and its own: %s", n, e.kinds())
		}
		e.stop()
		if err := e.err(); err != nil {
			t.Error(err)
		}
	})
}

// State is bounded. The worker refuses a state that exceeds a bound, and nothing changes.
func TestStateLimits(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		for i := range 256 {
			if err := x.SetState(fmt.Sprint(i), payload("x"), nil); err != nil {
				return "", err
			}
		}
		many := x.SetState("one more", payload("x"), nil)
		again := x.SetState("0", payload("y"), nil)
		if err := x.SetState("1", model.Payload{}, nil); err != nil {
			return "", err
		}
		room := x.SetState("one more", payload("x"), nil)
		big := x.SetState("2", payload(strings.Repeat("x", 1<<20)), nil)
		_, is := x.State("2")
		_, gone := x.State("1")
		return say(many != nil, again, room, big != nil, is, gone), nil
	}, func(e *engine) {
		e.settle()
		e.wantClosed(t, model.Completed, "true <nil> <nil> true true false")
		if n := strings.Count(e.kinds(), "state_set"); n != 259 {
			t.Errorf("%d states were set, want 259", n)
		}
	})
}

// Interrupts run in parallel with the code that is cancelled, and are not cancelled themselves. The
// run does not end before they have ended.
func TestInterrupts(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var heard []string
		x.OnInterrupt(func(y replay.Ctx, why string) error {
			heard = append(heard, "first "+why)
			if err := y.Sleep(time.Minute); err != nil {
				return err
			}
			_, err := e.step(y, "tell")
			heard = append(heard, say("told", err))
			y.OnInterrupt(func(z replay.Ctx, why string) error { // runs immediately
				if err := z.Sleep(time.Minute); err != nil {
					return err
				}
				heard = append(heard, "last "+why)
				return nil
			})
			return nil
		})

		x.OnInterrupt(func(replay.Ctx, string) error {
			heard = append(heard, "second")
			return errors.New("second failed")
		})

		x.Cleanup(false, func(replay.Ctx) error {
			heard = append(heard, "clean-up")
			return errors.New(strings.Join(heard, ", "))
		})

		_, err := receive(x, "never")
		heard = append(heard, "code")
		return "", err
	}, func(e *engine) {
		e.settle()
		e.inject(model.Event{Kind: model.EventCancelRequest, Failure: &model.Failure{Message: "why"}})
		e.settle()
		e.checkReplay(t)
		if e.end != nil {
			t.Fatal("it ended before its interrupts")
		}

		e.fireAll()
		e.fireAll()
		if e.end == nil || e.end.Status != model.Canceled {
			t.Fatalf("it ended as %+v, waits %v", e.end, e.waits)
		}

		for _, want := range []string{"first why, second", "told <nil>", "last why, clean-up", "second failed"} {
			if !strings.Contains(e.end.Failure.Message, want) {
				t.Errorf("it ended with %q, want %q in it", e.end.Failure.Message, want)
			}
		}
	})
}

// A cancel request that arrives after the code has returned starts no interrupt.
func TestLateCancelBeginsNoInterrupt(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		x.OnInterrupt(func(y replay.Ctx, _ string) error {
			_, err := e.step(y, "interrupt")
			return err
		})
		x.Cleanup(false, func(y replay.Ctx) error { return y.Sleep(time.Minute) })
		return "done", nil
	}, func(e *engine) {
		e.settle()
		e.inject(model.Event{Kind: model.EventCancelRequest})
		e.settle()
		e.fireAll()
		e.wantClosed(t, model.Completed, "done")
		if len(e.ran) != 0 {
			t.Errorf("%v ran", e.ran)
		}
	})
}

// ---- queries

func (e *engine) query(id uint64, name, in string) {
	e.w.Query(e.start.Run, e.gen, model.Query{ID: id, Name: name, Input: payload(in)})
	synctest.Wait()
}

// The worker answers a query when the code has seen everything that was delivered and has not run
// ahead of a commit.
func TestQueries(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var got []string
		x.HandleQuery("got", func(in model.Payload) (model.Payload, error) {
			switch string(in.Data) {
			case "fail":
				return model.Payload{}, errors.New("failed")
			case "panic":
				panic("oh")
			case "wait":
				return payload("waited"), x.Sleep(time.Hour)
			case "step":
				out, err := e.step(x, "of a query")
				return payload(out), err
			}
			return payload(strings.Join(got, " ")), nil
		})

		for {
			v, err := receive(x, "s")
			if err != nil || string(v.Data) == "end" {
				return "done", err
			}
			out, err := e.step(x, "keep", input(string(v.Data)))
			if err != nil {
				return "", err
			}
			got = append(got, string(v.Data)+"="+out)
		}
	}, func(e *engine) {
		want := func(id uint64, text, failure string) {
			t.Helper()
			a, ok := e.answers[id]
			if !ok {
				t.Errorf("query %d is not answered", id)
				return
			}
			msg := ""
			if a.failure != nil {
				msg = a.failure.Message
			}
			if string(a.out.Data) != text || !strings.Contains(msg, failure) || (failure == "") != (msg == "") {
				t.Errorf("query %d is answered with %q, %q; want %q, %q", id, a.out.Data, msg, text, failure)
			}
		}

		e.settle()
		e.query(1, "got", "")
		want(1, "", "")
		e.signal("s", "a")
		e.deliver(1)
		e.applyAll()
		e.query(2, "got", "") // the step of the code runs
		if a, ok := e.answers[2]; ok && string(a.out.Data) != "" {
			t.Errorf("a query is answered with %q before the step is recorded", a.out.Data)
		}
		e.letGo(0)
		e.query(3, "got", "") // the code has run ahead, or waits for the event of the outcome
		if a, ok := e.answers[3]; ok && string(a.out.Data) != "" {
			t.Errorf("a query is answered with %q before the step is recorded", a.out.Data)
		}
		e.settle()
		e.query(10, "got", "")
		want(10, "a=out-keep", "")
		e.query(4, "got", "fail")
		want(4, "", "failed")
		e.query(5, "got", "panic")
		want(5, "", "oh")
		e.query(6, "unknown", "")
		want(6, "", "got")
		before := len(e.events)
		e.query(7, "got", "wait")
		e.query(8, "got", "step")
		e.settle()

		for _, id := range []uint64{7, 8} {
			if a, ok := e.answers[id]; !ok || a.failure == nil {
				t.Errorf("a durable call in query %d: %+v", id, a)
			}
		}

		if len(e.events) != before || len(e.timers) != 0 || len(e.ran) != 1 {
			t.Errorf("a query has changed something: %v %v\n%s", e.timers, e.ran, dump(e.events))
		}
		e.crash()
		e.activate(-1)
		e.query(9, "got", "")
		want(9, "a=out-keep", "")
		e.signal("s", "end")
		e.settle()
		e.wantClosed(t, model.Completed, "done")
	})
}

// The worker has asked the engine to take a run back. Until the engine does, the run still answers
// queries, but reports no turns.
func TestQueryOfReleasedRun(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		x.HandleQuery("q", func(in model.Payload) (model.Payload, error) { return in, nil })
		_, err := receive(x, "end")
		return "done", err
	}, func(e *engine) {
		e.settle()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !e.isReleased() {
			t.Fatal("the run was not released")
		}
		e.query(1, "q", "42")
		if a, ok := e.answers[1]; !ok || string(a.out.Data) != "42" || len(e.reports) != 0 {
			t.Errorf("answered %v with %+v, and %d reports", ok, a, len(e.reports))
		}
		e.signal("end", "")
		e.settle()
		e.wantClosed(t, model.Completed, "done")
	})
}

// Thousands of queries run in parallel with steps. The worker answers each query once, and not
// before the outcomes that the answer depends on are recorded. Queries do not delay the steps.
func TestManyQueries(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		n := 0
		x.HandleQuery("n", func(model.Payload) (model.Payload, error) { return payload(fmt.Sprint(n)), nil })
		for range 50 {
			if _, err := x.Step(&replay.Step{Name: "s", Body: func(context.Context) (model.Payload, error) { return payload("x"), nil }}); err != nil {
				return "", err
			}
			n++
			if n%10 == 0 {
				if err := x.Sleep(time.Minute); err != nil {
					return "", err
				}
			}
		}
		return "done", nil
	}, func(e *engine) {
		id := uint64(0)
		for e.end == nil {
			for range 80 {
				id++
				e.w.Query(e.start.Run, e.gen, model.Query{ID: id, Name: "n"})
			}

			synctest.Wait()
			recorded := strings.Count(e.kinds(), "step_completed")
			for i := id - 79; i <= id; i++ {
				if a, ok := e.answers[i]; ok && e.end == nil {
					var n int
					if _, err := fmt.Sscan(string(a.out.Data), &n); err != nil || n > recorded {
						t.Fatalf("query %d is told %q, and %d steps are recorded", i, a.out.Data, recorded)
					}
				}
			}

			switch {
			case len(e.reports) > 0:
				e.apply()
			case int(e.last()) > e.told && e.held:
				e.deliver(1)
			default:
				if len(e.answers) != int(id) {
					t.Fatalf("%d of %d queries are answered at rest", len(e.answers), id)
				}
				e.fireAll()
			}
		}

		e.wantClosed(t, model.Completed, "done")
		if id < 2000 {
			t.Errorf("only %d queries were asked", id)
		}
	})
}

// ---- pins

// A run is pinned to the version of a worker once, even if many workers of this version hold the
// run one after the other.
func TestPinIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *engine
		e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			out, err := e.step(x, "a")
			if err == nil {
				_, err = receive(x, "end")
			}
			return payload(out), err
		})

		e.cfg.Version, e.cfg.Pinned = "v1", map[string]bool{"wf": true}
		e.activate(-1)
		e.settle()
		e.checkReplay(t)
		e.signal("end", "")
		e.settle()
		e.wantClosed(t, model.Completed, "out-a")
		if n := strings.Count(e.kinds(), "pinned v1"); n != 1 {
			t.Errorf("pinned %d times: %s", n, e.kinds())
		}
		e.stop()
		if err := e.err(); err != nil {
			t.Error(err)
		}
	})
}

// receive waits for the next signal of a name.
func receive(x replay.Ctx, name string) (model.Payload, error) {
	f := x.Next(name)
	err := x.Get(f)
	return f.Payload(), err
}
