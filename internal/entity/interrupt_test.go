package entity_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
)

// An interrupted call fails with its own kind and changes nothing, whether its code notices the end
// of its context or not. Earlier calls keep their results, and the next hand-over runs the later
// calls.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  string
		index int
		after time.Duration
		want  []string
	}{
		"its context ends":           {"polite", model.AnyCall, time.Second, []string{"2", "fails: interrupted", `{"N":2,"Passed":{"add":true}}`}},
		"it is named":                {"polite", 1, time.Second, []string{"2", "fails: interrupted", `{"N":2,"Passed":{"add":true}}`}},
		"it succeeds a moment later": {"tardy", model.AnyCall, time.Second, []string{"2", "tardy", `{"N":3,"Passed":{"add":true}}`}},
		"it ignores the end":         {"hung", model.AnyCall, 2 * time.Second, []string{"2", "fails: interrupted", `{"N":2,"Passed":{"add":true}}`}},
		"another one is named":       {"polite", 2, time.Minute, []string{"2", "fails: timeout", `{"N":2,"Passed":{"add":true}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release, over := make(chan struct{}), make(chan error, 1)
				w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: limitedType(release, over)}, Slots: 1}), newSession()
				w.Serve(s)
				begun := time.Now()
				w.Operate(operations(`sealed {"N":1}`, "add", c.call, "add"))
				time.Sleep(time.Second)
				w.Interrupt(model.Interruption{Entity: one, Generation: 8, Call: model.AnyCall})
				w.Interrupt(model.Interruption{Entity: model.Address{Type: one.Type, Key: "other"}, Generation: 7, Call: model.AnyCall})
				w.Interrupt(model.Interruption{Entity: one, Generation: 7, Call: c.index})

				<-s.arrived
				if took := time.Since(begun); took != c.after {
					t.Errorf("the report comes after %s, want %s", took, c.after)
				}
				var got []string
				r := s.results()[0]
				for _, res := range r.Results {
					line := string(res.Output.Data)
					if f := res.Failure; f != nil {
						line = "fails: " + f.Kind
					}
					got = append(got, line)
				}
				got = append(got, strings.TrimPrefix(string(r.State.Data), "sealed "))
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}

				// An interruption that comes too late does not affect later calls.
				w.Interrupt(model.Interruption{Entity: one, Generation: 7, Call: model.AnyCall})
				w.Operate(operations(`sealed {"N":2}`, "add"))
				<-s.arrived
				if got := string(s.results()[1].State.Data); got != `sealed {"N":3,"Passed":{"add":true}}` {
					t.Errorf("the next call leaves %s", got)
				}
				close(release)
				synctest.Wait()
				if err := w.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An operator can also interrupt code without a time limit, and the code gets the cause.
func TestInterruptWithoutLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		code := entity.Type{Calls: map[string]entity.Handler{"wait": {Run: func(c *entity.Call, _ any) (model.Payload, error) {
			<-c.Context().Done()
			cause = context.Cause(c.Context())
			return model.Payload{}, cause
		}}}}
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: code}}), newSession()
		w.Serve(s)
		w.Operate(operations("", "wait"))
		synctest.Wait()
		w.Interrupt(model.Interruption{Entity: one, Generation: 7, Call: model.AnyCall})
		<-s.arrived
		f := s.results()[0].Results[0].Failure
		if !errors.Is(cause, entity.ErrInterrupted) || f == nil || f.Kind != model.FailureInterrupted || !strings.Contains(f.Message, "done its work or a part of it") {
			t.Errorf("cause %v, failure %+v", cause, f)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
