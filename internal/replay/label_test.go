package replay_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// scriptProgram runs steps (lower case) and sets labels, written as name=value, one after the
// other, and sleeps.
func scriptProgram(words ...string) program {
	return func(e *engine, x replay.Ctx) error {
		for _, w := range words {
			if name, value, ok := strings.Cut(w, "="); ok {
				if err := x.SetLabel(name, value); err != nil {
					return err
				}
			} else if _, err := e.step(x, w); err != nil {
				return err
			}
		}
		return x.Sleep(time.Hour)
	}
}

// A label that is in the history is not set again, even if today's code asks for it in another
// place or not at all.
func TestLabelsOverDeploys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		old, new program
		want     []string // what the new code adds to the history
	}{
		{name: "the same code", old: scriptProgram("l=1", "a", "l=2", "m=1"), new: scriptProgram("l=1", "a", "l=2", "m=1")},
		{name: "a label less", old: scriptProgram("l=1", "a", "m=1", "b"), new: scriptProgram("a", "b")},
		{name: "a label more at the end", old: scriptProgram("a"), new: scriptProgram("a", "l=1"), want: []string{"l=1"}},
		{name: "a label more on the way", old: scriptProgram("a", "b"), new: scriptProgram("a", "l=1", "b"), want: []string{"l=1"}},
		{name: "a label that is set later", old: scriptProgram("l=1", "a", "b"), new: scriptProgram("a", "l=1", "b")},
		{name: "a label that is set earlier", old: scriptProgram("a", "b", "l=1"), new: scriptProgram("l=1", "a", "b")},
		{name: "another value", old: scriptProgram("l=1", "a"), new: scriptProgram("l=2", "a")},
		{name: "a label that is removed", old: scriptProgram("l=1", "a"), new: scriptProgram("l=1", "a", "l="), want: []string{"l="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				history := record(t, c.old)
				e := newEngine(nil)
				e.auto = true
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload("new"), c.new(e, x) }
				e.events = slices.Clone(history)
				e.activate(-1)
				e.settle()
				e.stop()
				if err := e.err(); err != nil {
					t.Error(err)
				}
				if e.blocked != nil {
					t.Errorf("blocked: %s", e.blocked)
				}

				var got []string
				for _, o := range e.events[len(history):] {
					if o.Kind == model.EventLabeled {
						got = append(got, o.Name+"="+string(o.Output.Data))
					} else {
						t.Errorf("added %s %s", o.Kind, o.Name)
					}
				}

				if !slices.Equal(got, c.want) {
					t.Errorf("added %q, want %q\n%s", got, c.want, dump(e.events))
				}
			})
		})
	}
}

// The limit includes the labels that the run was started with. A refused label changes nothing.
func TestLabelLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.auto = true
		for i := range model.MaxLabels - 1 {
			e.start.Labels = model.SetLabel(e.start.Labels, "s"+string(rune('A'+i)), "x")
		}
		var errs []error

		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			errs = append(errs, x.SetLabel("one", "x"), x.SetLabel("two", "x"), x.SetLabel("sA", ""), x.SetLabel("two", "x"), x.SetLabel("a b", "x"))
			return payload(""), nil
		}

		e.activate(-1)
		e.settle()
		e.stop()

		for i, kind := range []fault.Kind{0, fault.Exhausted, 0, 0, fault.Invalid} {
			if (errs[i] == nil) != (kind == 0) || kind != 0 && !fault.Is(errs[i], kind) {
				t.Errorf("call %d: %v, want %s", i, errs[i], kind)
			}
		}

		var got []string
		for _, o := range e.events {
			got = append(got, o.Name+"="+string(o.Output.Data))
		}
		if want := []string{"one=x", "sA=", "two=x"}; !slices.Equal(got, want) {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}
