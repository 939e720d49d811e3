package entity_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// limitedType returns counters with slow operations. One of them notices the end of its context.
// Another returns only when the test releases it, and then does everything that it must not do.
func limitedType(release <-chan struct{}, over chan<- error) entity.Type {
	const limit = time.Minute
	slow := func(run func(c *entity.Call, s *count) (model.Payload, error)) entity.Handler {
		return entity.Handler{Limit: limit, Run: func(c *entity.Call, state any) (model.Payload, error) {
			s := state.(*count)
			s.N += 100
			_ = c.Send(model.Message{Kind: model.MessageSignal, Name: "slow"})
			return run(c, s)
		}}
	}

	t := counters(map[string]entity.Handler{
		"polite": slow(func(c *entity.Call, _ *count) (model.Payload, error) {
			<-c.Context().Done()
			return model.Payload{}, c.Context().Err()
		}),
		"tardy": slow(func(c *entity.Call, s *count) (model.Payload, error) {
			<-c.Context().Done() // succeeds a moment after its context has ended
			s.N -= 99
			return model.Payload{Data: []byte("tardy")}, nil
		}),
		"hung": slow(func(c *entity.Call, s *count) (model.Payload, error) {
			<-release
			s.N, s.Passed = 666, map[string]bool{"hung": true}
			c.Delete()
			over <- c.Send(model.Message{Kind: model.MessageSignal, Name: "too late"})
			return model.Payload{Data: []byte("hung")}, nil
		}),
	})

	add := t.Calls["add"]
	add.Limit = limit
	t.Calls["add"] = add
	return t
}

// A call that exceeds its limit fails with its own kind and changes nothing. Earlier calls keep
// their results, and the next hand-over runs the later calls.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  string
		after time.Duration
		want  []string
	}{
		"its context ends":                {"polite", time.Minute, []string{"2 sends 2", "fails: timeout", `{"N":2,"Passed":{"add":true}}`}},
		"it succeeds a moment later":      {"tardy", time.Minute, []string{"2 sends 2", "tardy sends slow", `{"N":3,"Passed":{"add":true}}`}},
		"it ignores the end, and is left": {"hung", time.Minute + time.Second, []string{"2 sends 2", "fails: timeout", `{"N":2,"Passed":{"add":true}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release, over := make(chan struct{}), make(chan error, 1)
				w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: limitedType(release, over)}, Slots: 1}), newSession()
				w.Serve(s)
				begun := time.Now()
				w.Operate(operations(`sealed {"N":1}`, "add", c.call, "add"))
				<-s.arrived
				if took := time.Since(begun); took != c.after {
					t.Errorf("the report comes after %s, want %s", took, c.after)
				}
				r := s.results()[0]
				var got []string
				for _, res := range r.Results {
					line := string(res.Output.Data)
					if f := res.Failure; f != nil {
						line = "fails: " + f.Kind
						if !strings.Contains(f.Message, "time limit of 1m0s") || !strings.Contains(f.Message, "counter/one") {
							t.Errorf("the failure says %q", f.Message)
						}
					}
					for _, m := range res.Messages {
						line += " sends " + m.Name
					}
					got = append(got, line)
				}
				got = append(got, strings.TrimPrefix(string(r.State.Data), "sealed "))
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}

				// The slot is free, and what the abandoned code does later has no effect.
				w.Operate(operations(`sealed {"N":2}`, "add"))
				<-s.arrived
				if got := string(s.results()[1].State.Data); got != `sealed {"N":3,"Passed":{"add":true}}` {
					t.Errorf("the next call leaves %s", got)
				}
				close(release)
				if c.call == "hung" {
					if err := <-over; !fault.Is(err, fault.Invalid) {
						t.Errorf("a message that is sent too late: %v", err)
					}
				}
				synctest.Wait()
				if err := w.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if n := len(s.results()); n != 2 {
					t.Errorf("%d reports, want 2", n)
				}
			})
		})
	}
}

// Code that does not return loses its slot. But only as many calls as there are slots may run
// without a slot. Further code that does not return keeps its slot.
func TestRunawaysAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, over := make(chan struct{}), make(chan error, 10)
		const slots = 2
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: limitedType(release, over)}, Slots: slots}), newSession()
		w.Serve(s)
		for range 3 * slots {
			w.Operate(operations("", "hung"))
		}
		w.Operate(operations("", "add"))
		time.Sleep(time.Hour)
		if n := len(s.results()); n != 2*slots {
			t.Errorf("%d hand-overs were reported, want %d: the others have no slot", n, 2*slots)
		}
		close(release)
		synctest.Wait()
		if n := len(s.results()); n != 3*slots+1 {
			t.Errorf("%d hand-overs were reported when the code has returned, want %d", n, 3*slots+1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// The engine does not know what the code of a service has done, so the error does not claim that
// nothing has changed.
func TestTimeLimitOfAService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pay := model.Address{Tenant: "default", Type: model.ServicePrefix + "pay"}
		wait := func(c *entity.Call, _ any) (model.Payload, error) {
			<-c.Context().Done()
			return model.Payload{}, c.Context().Err()
		}
		code := entity.Type{Calls: map[string]entity.Handler{"charge": {Limit: time.Minute, Run: wait}}}
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{pay.Type: code}, Slots: 1}), newSession()
		w.Serve(s)
		w.Operate(model.Operations{Entity: pay, Generation: 1, Calls: []model.OperationCall{{Name: "charge"}}})
		<-s.arrived
		f := s.results()[0].Results[0].Failure
		if f == nil || !strings.Contains(f.Message, "time limit of 1m0s") || strings.Contains(f.Message, "changed nothing") {
			t.Errorf("the failure says %v", f)
		}
	})
}
