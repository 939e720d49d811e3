package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
)

func line(text string) model.TaskItem { return model.TaskItem{Kind: model.ItemLog, Text: text} }

func token(text string) model.TaskItem {
	return model.TaskItem{Kind: model.ItemToken, Value: model.Payload{Data: []byte(text)}}
}

func set(name, value string) model.TaskItem {
	return model.TaskItem{Kind: model.ItemSet, Name: name, Value: model.Payload{Data: []byte(value)}}
}

// texts returns what the engine has from a claim.
func (e *engine) texts(r model.ClaimRef) (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, it := range e.written[r] {
		out = append(out, it.Text+it.Name+string(it.Value.Data))
	}
	return out
}

// calls returns how often the pool wrote.
func (e *engine) calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writes
}

// refuseWith sets the answer to writes.
func (e *engine) refuseWith(f func(model.TaskWrite) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = f
}

func (e *engine) task(r model.ClaimRef) *pool.Task {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.jobs[r].t
}

func TestNotesAreToldSoonAndTogether(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		task := e.task(r)
		task.Log(line("a"))
		task.Log(line("b"))
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if e.calls() != 0 {
			t.Fatalf("lines are told one by one: %d calls", e.calls())
		}

		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := fmt.Sprint(e.texts(r)); got != "[a b]" || e.calls() != 1 {
			t.Fatalf("%s is told after a second, in %d calls", got, e.calls())
		}
		if err := task.Stream(t.Context(), token("c")); err != nil {
			t.Fatal(err)
		}

		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := fmt.Sprint(e.texts(r)); got != "[a b c]" {
			t.Fatalf("%s is told after a tenth of a second", got)
		}
		task.Log(line("d"))
		// Set writes immediately, after everything that was written before
		if err := task.Set(t.Context(), set("n", "1")); err != nil {
			t.Fatal(err)
		}

		task.Log(line("e"))
		e.finish(r, succeed) // the pool writes the last notes before the report
		if got := fmt.Sprint(e.texts(r)); got != "[a b c d n1 e]" || e.reportOf(r) == nil {
			t.Fatalf("%s is told at the end", got)
		}
		task.Log(line("late"))
		if err := task.Set(t.Context(), set("n", "2")); !errors.Is(err, pool.ErrLost) {
			t.Errorf("a task that has ended writes: %v", err)
		}
	})
}

// A task that writes nothing makes no call.
func TestNothingIsToldOfATaskThatWritesNothing(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		e.finish(e.claim("polite", model.TaskSpec{}), succeed)
		if e.calls() != 0 {
			t.Errorf("%d calls", e.calls())
		}
	})
}

// While the engine is away, a task continues, and a caller of Set waits. When the engine is back,
// it gets every item once.
func TestNotesWhileTheEngineIsAway(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		task := e.task(r)
		lose := 3

		e.refuseWith(func(model.TaskWrite) error { // the write happens, but its answer is lost
			if lose--; lose >= 0 {
				return fault.New(fault.Unavailable, "away")
			}
			return nil
		})

		task.Log(line("a"))
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := task.Set(brief, set("n", "0")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the engine did not take it, but it is set: %v", err)
		}
		if err := task.Set(t.Context(), set("n", "1")); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(e.texts(r)); got != "[a n1]" {
			t.Errorf("written is %s", got)
		}
		v, ok, err := task.State(t.Context(), "n")
		if string(v.Data) != "1" || !ok || err != nil {
			t.Errorf("the state is %q, %v, %v", v.Data, ok, err)
		}
		e.finish(r, succeed)
	})
}

// A state is written, the answer is lost, and its caller stops waiting before the pool repeats the
// write. The state keeps its number. Otherwise the next write would have the same number, and the
// engine would skip it as a repetition.
func TestNotesOfThoseWhoDoNotWait(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		task := e.task(r)
		lose := 1

		e.refuseWith(func(model.TaskWrite) error {
			if lose--; lose >= 0 {
				return fault.New(fault.Unavailable, "away")
			}
			return nil
		})

		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := task.Set(brief, set("n", "0")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the engine did not answer, but it is set: %v", err)
		}
		if err := task.Set(t.Context(), set("n", "1")); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(e.texts(r)); got != "[n0 n1]" {
			t.Errorf("written is %s", got)
		}
		e.finish(r, succeed)
	})
}

// If the code that seals values panics, only that write fails.
func TestPanicInSealingNotes(t *testing.T) {
	cfg := pool.Config{Seal: func(_ context.Context, _ string, p model.Payload) (model.Payload, error) {
		if string(p.Data) == "bad" {
			panic("no key")
		}
		return p, nil
	}}

	bubble(t, cfg, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		task := e.task(r)
		if err := task.Set(t.Context(), set("n", "bad")); err == nil || !strings.Contains(err.Error(), "no key") {
			t.Errorf("it is set: %v", err)
		}
		for _, text := range []string{"a", "bad", "b"} {
			if err := task.Stream(t.Context(), token(text)); err != nil {
				t.Error(err)
			}
		}
		e.finish(r, succeed)
		if got := fmt.Sprint(e.texts(r)); got != "[a b]" {
			t.Errorf("written is %s", got)
		}
	})
}

// Lines beyond the limit are dropped; Stream blocks until there is room.
func TestNotesAreBounded(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		task := e.task(r)
		stuck := make(chan struct{})

		e.refuseWith(func(model.TaskWrite) error {
			e.mu.Unlock()
			<-stuck
			e.mu.Lock()
			return nil
		})

		for i := range 3000 {
			task.Log(line(fmt.Sprint(i)))
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := task.Stream(brief, token("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("there is room: %v", err)
		}
		close(stuck)
		if err := task.Stream(t.Context(), token("y")); err != nil {
			t.Error(err)
		}
		e.finish(r, succeed)
		got := e.texts(r)
		if len(got) < 1000 || len(got) > 1200 || got[0] != "0" || got[len(got)-1] != "y" {
			t.Errorf("%d items are written, from %q to %q", len(got), got[0], got[len(got)-1])
		}
	})
}

// The pool drops the item that the engine refuses, and writes the other items of the queue. A
// caller that waits for the item gets the error. After the engine has refused a log line with an
// error of kind Exhausted, the pool also drops all later lines of the task, and logs their number.
func TestRefusedNotes(t *testing.T) {
	var log bytes.Buffer
	bubble(t, pool.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		task := e.task(r)
		e.refuseWith(func(w model.TaskWrite) error {
			for _, it := range w.Items {
				if it.Text == "bad" || it.Name == "bad" {
					return fault.New(fault.Exhausted, "too much")
				}
			}
			return nil
		})

		for _, text := range []string{"a", "bad", "b"} {
			task.Log(line(text))
		}
		if err := task.Set(t.Context(), set("bad", "1")); !fault.Is(err, fault.Exhausted) {
			t.Errorf("it is set: %v", err)
		}
		if err := task.Stream(t.Context(), token("c")); err != nil {
			t.Error(err)
		}
		task.Log(line("mute"))
		e.finish(r, fail)
		if got := fmt.Sprint(e.texts(r)); got != "[a b c]" {
			t.Errorf("written is %s", got)
		}
	})
	if !strings.Contains(log.String(), "lines=1 reason=") {
		t.Errorf("the log does not say that a line was dropped:\n%s", &log)
	}
}

// A task that another worker has by now cannot write, and gets an error.
func TestNotesOfALostTask(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.claim("deaf", model.TaskSpec{})
		task := e.task(r)
		task.Log(line("a"))
		e.mu.Lock()
		delete(e.claims, r) // the engine does not tell the pool
		e.lost[r] = true
		e.mu.Unlock()
		if err := task.Set(t.Context(), set("n", "1")); !errors.Is(err, pool.ErrLost) {
			t.Errorf("it is set: %v", err)
		}
		if _, _, err := task.State(t.Context(), "n"); !errors.Is(err, pool.ErrLost) {
			t.Errorf("it is read: %v", err)
		}
		e.p.Stop(r, model.StopLost)
		e.finish(r, succeed)
		if got := e.texts(r); got != nil {
			t.Errorf("written is %q", got)
		}
	})
}

// Whatever the engine does with calls, in the end it has everything that the task wrote, in order
// and once.
func TestNotesArriveOnceInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		luck := rapid.SliceOfN(rapid.IntRange(0, 3), 0, 20).Draw(rt, "luck")
		steps := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(pool.Config{})
			r := e.claim("polite", model.TaskSpec{})
			task := e.task(r)

			e.refuseWith(func(model.TaskWrite) error {
				if len(luck) == 0 {
					return nil
				}
				n := luck[0]
				luck = luck[1:]
				if n == 0 {
					return fault.New(fault.Unavailable, "written, and the answer is lost")
				}
				return nil
			})

			var want []string
			for i, s := range steps {
				text := fmt.Sprint(i)
				want = append(want, text)
				switch s {
				case 0:
					task.Log(line(text))
				case 1:
					if err := task.Stream(t.Context(), token(text)); err != nil {
						rt.Error(err)
					}
				case 2:
					if err := task.Set(t.Context(), set(text, "")); err != nil {
						rt.Error(err)
					}
				default:
					task.Log(line(text))
					time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				}
			}

			e.finish(r, succeed)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := e.texts(r); fmt.Sprint(got) != fmt.Sprint(want) {
				rt.Errorf("written is %v, want %v", got, want)
			}
			if err := errors.Join(e.close(time.Minute), e.err()); err != nil {
				rt.Error(err)
			}
		})
	})
}
