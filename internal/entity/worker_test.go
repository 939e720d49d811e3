package entity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session receives reports.
type session struct {
	mu      sync.Mutex
	reports []model.Operated
	left    bool
	arrived chan struct{} // one for each report
}

func newSession() *session { return &session{arrived: make(chan struct{}, 1000)} }

func (s *session) FinishCalls(_ context.Context, r model.Operated) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, r)
	s.arrived <- struct{}{}
	return nil
}

func (s *session) Leave(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
	return nil
}

// Lose implements api.EntitySession.
func (s *session) Lose(func() []uint64) {}

func (s *session) results() []model.Operated {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports
}

// count is the state of the entities in this test.
type count struct {
	N      int
	Passed map[string]bool `json:",omitempty"`
}

// mute is an error whose Error method panics.
type mute struct{ text *string }

func (m mute) Error() string { return *m.text }

// counters returns entities whose operations do what their names say. Each operation first changes
// the state and sends a message, so that there is something to undo if it fails.
func counters(more map[string]entity.Handler) entity.Type {
	op := func(then func(c *entity.Call, s *count) error) entity.Handler {
		return entity.Handler{Run: func(c *entity.Call, state any) (model.Payload, error) {
			s := state.(*count)
			s.N++
			if s.Passed == nil {
				s.Passed = map[string]bool{}
			}
			s.Passed[c.Name] = true
			if err := c.Send(model.Message{Kind: model.MessageSignal, Name: fmt.Sprint(s.N)}); err != nil {
				return model.Payload{}, err
			}
			if err := then(c, s); err != nil {
				return model.Payload{}, err
			}
			return model.Payload{Data: fmt.Append(nil, s.N)}, nil
		}}
	}

	t := entity.Type{
		Calls: map[string]entity.Handler{
			"add":   op(func(*entity.Call, *count) error { return nil }),
			"fail":  op(func(*entity.Call, *count) error { return errors.New("no") }),
			"panic": op(func(*entity.Call, *count) error { panic("oh") }),
			"exit":  op(func(*entity.Call, *count) error { runtime.Goexit(); return nil }),
			"mute":  op(func(*entity.Call, *count) error { return mute{} }),
			"bad":   op(func(_ *entity.Call, s *count) error { s.N = -1; return nil }),
			"delete": op(func(c *entity.Call, _ *count) error {
				c.Delete()
				return nil
			}),
			"exists": {Run: func(c *entity.Call, _ any) (model.Payload, error) {
				return model.Payload{Data: fmt.Append(nil, c.Exists)}, nil
			}},
			"look": {View: true, Run: func(_ *entity.Call, state any) (model.Payload, error) {
				s := state.(*count)
				n := s.N
				s.N, s.Passed["look"] = 1000, true
				return model.Payload{Data: fmt.Append(nil, n)}, nil
			}},
		},
		State: &entity.State{
			New: func() any { return new(count) },
			Open: func(_ context.Context, p model.Payload) (model.Payload, error) {
				text, ok := strings.CutPrefix(string(p.Data), "sealed ")
				if !ok {
					return p, errors.New("not sealed")
				}
				return model.Payload{Data: []byte(text)}, nil
			},
			Decode: func(p model.Payload) (any, error) {
				var s count
				err := json.Unmarshal(p.Data, &s)
				return &s, err
			},
			Encode: func(state any) (model.Payload, error) {
				s := state.(*count)
				if s.N < 0 {
					return model.Payload{}, fault.New(fault.Invalid, "state cannot be encoded")
				}
				data, err := json.Marshal(s)
				return model.Payload{Data: data}, err
			},
			Seal: func(_ context.Context, p model.Payload) (model.Payload, error) {
				return model.Payload{Data: append([]byte("sealed "), p.Data...)}, nil
			},
		},
	}

	maps.Copy(t.Calls, more)
	return t
}

var one = model.Address{Tenant: "t", Type: model.EntityPrefix + "counter", Key: "one"}

func operations(state string, names ...string) model.Operations {
	o := model.Operations{Entity: one, Generation: 7, Exists: state != "", State: model.Payload{Data: []byte(state)}}
	for _, n := range names {
		o.Calls = append(o.Calls, model.OperationCall{Name: n, Trace: "trace of " + n})
	}
	return o
}

// operate hands calls over to a new worker and returns the report of the worker. It runs in virtual
// time, and the calls take no time.
func operate(t *testing.T, code entity.Type, o model.Operations) (r model.Operated) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { r = report(t, code, o) })
	return r
}

func report(t *testing.T, code entity.Type, o model.Operations) model.Operated {
	t.Helper()
	w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: code}}), newSession()
	w.Serve(s)
	w.Operate(o)
	<-s.arrived
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	if !s.left {
		t.Error("the session was not left")
	}
	if n := len(s.results()); n != 1 {
		t.Fatalf("%d reports", n)
	}
	r := s.results()[0]
	if r.Entity != o.Entity || r.Generation != o.Generation {
		t.Errorf("the report is of %s, %d", r.Entity, r.Generation)
	}

	return r
}

// text describes a report: the result of each call, and the state.
func text(r *model.Operated) (lines []string) {
	for _, res := range r.Results {
		line := string(res.Output.Data)
		if f := res.Failure; f != nil {
			line = strings.TrimSpace(f.Kind + " " + f.Message)
		}
		for _, m := range res.Messages {
			line += " +" + m.Name
		}
		lines = append(lines, line)
	}
	if r.Changed {
		lines = append(lines, fmt.Sprintf("state %v %s", r.Exists, r.State.Data))
	}
	return lines
}

func TestCallsAreTransactions(t *testing.T) {
	t.Parallel()

	const two = `sealed {"N":2}`
	for name, c := range map[string]struct {
		state string
		calls []string
		want  []string
	}{
		"one after the other": {two, []string{"add", "add"}, []string{"3 +3", "4 +4", `state true sealed {"N":4,"Passed":{"add":true}}`}},
		"the first":           {"", []string{"exists", "exists"}, []string{"false", "true", `state true sealed {"N":0}`}},
		"nothing changes":     {two, []string{"exists"}, []string{"true"}},
		"a failure":           {two, []string{"add", "fail", "add"}, []string{"3 +3", "no", "4 +4", `state true sealed {"N":4,"Passed":{"add":true}}`}},
		"a failure alone":     {two, []string{"fail"}, []string{"no"}},
		"a failure first":     {"", []string{"fail", "exists"}, []string{"no", "false", `state true sealed {"N":0}`}},
		"a failure, nothing":  {"", []string{"fail"}, []string{"no"}},
		"a panic":             {two, []string{"panic", "add"}, []string{"panic panic: oh", "3 +3", `state true sealed {"N":3,"Passed":{"add":true}}`}},
		"a mute error":        {two, []string{"mute", "add"}, []string{"panic panic: runtime error: invalid memory address or nil pointer dereference", "3 +3", `state true sealed {"N":3,"Passed":{"add":true}}`}},
		"an unstorable state": {two, []string{"bad", "add"}, []string{"invalid state cannot be encoded", "3 +3", `state true sealed {"N":3,"Passed":{"add":true}}`}},
		"deleted":             {two, []string{"delete"}, []string{"3 +3", "state false "}},
		"deleted and again":   {two, []string{"delete", "exists", "add"}, []string{"3 +3", "false", "1 +1", `state true sealed {"N":1,"Passed":{"add":true}}`}},
		"deleted, never was":  {"", []string{"delete"}, []string{"1 +1"}},
		"views":               {`sealed {"N":2,"Passed":{"x":true}}`, []string{"look", "look"}, []string{"2", "2"}},
		"end of goroutine": {two, []string{"add", "exit", "add"}, []string{
			"3 +3", "panic exit of counter ended its goroutine (runtime.Goexit) instead of returning", `state true sealed {"N":3,"Passed":{"add":true}}`,
		}},
		"unknown operation": {two, []string{"multiply", "add"}, []string{
			`not_found counter has no "multiply" in this build: it has add, bad, delete, exists, exit, fail, look, mute, panic`, "3 +3", `state true sealed {"N":3,"Passed":{"add":true}}`,
		}},
		"unreadable state": {`sealed "`, []string{"add", "look"}, []string{
			"corrupt the state of counter/one cannot be read by this build, so it is not changed: unexpected end of JSON input",
			"corrupt the state of counter/one cannot be read by this build, so it is not changed: unexpected end of JSON input",
		}},
		"unopenable state": {"open", []string{"add"}, []string{"corrupt the state of counter/one cannot be read by this build, so it is not changed: not sealed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := operate(t, counters(nil), operations(c.state, c.calls...))
			if diff := cmp.Diff(c.want, text(&r)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUnknownTypeIsAnswered(t *testing.T) {
	t.Parallel()
	o := operations("", "add", "add")
	o.Entity.Type = model.ServicePrefix + "other"
	r := operate(t, counters(nil), o)
	want := "not_found there is no code for other in this build: it has counter"
	if diff := cmp.Diff([]string{want, want}, text(&r)); diff != "" {
		t.Error(diff)
	}
}

func TestPanicHasItsStack(t *testing.T) {
	t.Parallel()
	r := operate(t, counters(nil), operations("", "panic"))
	if s := r.Results[0].Failure.Stack; !strings.Contains(s, "worker_test.go") {
		t.Errorf("the stack is %q", s)
	}
}

func TestServicesHaveNoState(t *testing.T) {
	t.Parallel()
	service := entity.Type{Calls: map[string]entity.Handler{"echo": {Run: func(c *entity.Call, state any) (model.Payload, error) {
		if state != nil {
			t.Error("it has a state")
		}
		return c.Input, nil
	}}}}
	o := operations("", "echo")
	o.Calls[0].Input = model.Payload{Data: []byte("hello")}
	r := operate(t, service, o)
	if diff := cmp.Diff([]string{"hello"}, text(&r)); diff != "" {
		t.Error(diff)
	}
}

// If a state cannot be converted to its stored form, all calls that led to it fail.
func TestUnsealableState(t *testing.T) {
	t.Parallel()
	code := counters(nil)
	code.State.Seal = func(context.Context, model.Payload) (model.Payload, error) {
		return model.Payload{}, fault.New(fault.Invalid, "too large")
	}
	r := operate(t, code, operations("", "add", "fail", "exists"))
	if diff := cmp.Diff([]string{"invalid too large", "no", "invalid too large"}, text(&r)); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesCarryTheTrace(t *testing.T) {
	t.Parallel()
	r := operate(t, counters(nil), operations("", "add"))
	if got := r.Results[0].Messages[0].Trace; got != "trace of add" {
		t.Errorf("the trace is %q", got)
	}
}

// A call that has returned can no longer send or delete.
func TestCallIsOver(t *testing.T) {
	t.Parallel()
	var kept *entity.Call
	r := operate(t, counters(map[string]entity.Handler{"keep": {Run: func(c *entity.Call, _ any) (model.Payload, error) {
		kept = c
		return model.Payload{}, nil
	}}}), operations("", "keep"))
	kept.Delete()
	if err := kept.Send(model.Message{Kind: model.MessageSignal}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "has returned") {
		t.Errorf("the error is %v", err)
	}
	if !r.Exists || len(r.Results[0].Messages) > 0 {
		t.Errorf("the report is %+v", r)
	}
}

func TestCallSendsNotForEver(t *testing.T) {
	t.Parallel()
	r := operate(t, counters(map[string]entity.Handler{"flood": {Run: func(c *entity.Call, _ any) (model.Payload, error) {
		for range entity.MaxMessages + 1 {
			if err := c.Send(model.Message{Kind: model.MessageSignal}); err != nil {
				return model.Payload{}, err
			}
		}
		return model.Payload{}, nil
	}}}), operations("", "flood"))
	if f := r.Results[0].Failure; f == nil || f.Kind != fault.Exhausted.String() || len(r.Results[0].Messages) > 0 {
		t.Errorf("the failure is %v", f)
	}
}

// Quick calls share a commit. A call that takes long ends the hand-over, so that its caller does
// not wait for later calls.
func TestSlowCallsShareNoCommit(t *testing.T) {
	t.Parallel()
	slow := entity.Handler{Run: func(*entity.Call, any) (model.Payload, error) {
		time.Sleep(time.Second)
		return model.Payload{}, nil
	}}
	code := counters(map[string]entity.Handler{"slow": slow})
	for want, names := range map[int][]string{
		4: {"add", "add", "add", "slow"},
		2: {"add", "slow", "slow", "add"},
		1: {"slow", "slow", "slow"},
	} {
		if r := operate(t, code, operations("", names...)); len(r.Results) != want || !r.Changed {
			t.Errorf("%v: %d results, want %d", names, len(r.Results), want)
		}
	}
}

// gate returns an operation that does not return until the test closes the channel open.
func gate() (h entity.Handler, begun chan string, open chan struct{}) {
	begun, open = make(chan string, 100), make(chan struct{})
	return entity.Handler{Run: func(c *entity.Call, _ any) (model.Payload, error) {
		begun <- c.Entity.Key
		<-open
		return model.Payload{}, nil
	}}, begun, open
}

func TestHandOversWaitInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, begun, open := gate()
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: counters(map[string]entity.Handler{"gate": h})}, Slots: 2}), newSession()
		w.Serve(s)

		for i := range 5 {
			o := operations("", "gate")
			o.Entity.Key = fmt.Sprint(i)
			w.Operate(o)
		}

		synctest.Wait()
		if len(begun) != 2 {
			t.Fatalf("%d run at once", len(begun))
		}
		open <- struct{}{}
		synctest.Wait()
		if len(begun) != 3 || len(s.results()) != 1 {
			t.Fatalf("%d have begun, %d have ended", len(begun), len(s.results()))
		}

		close(open)
		synctest.Wait()
		for len(s.results()) != 5 {
			t.Fatalf("%d have ended", len(s.results()))
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A closing worker does not run calls that it has not started. It reports the hand-over of these
// calls without results.
func TestCloseGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, begun, open := gate()
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: counters(map[string]entity.Handler{"gate": h})}, Slots: 1}), newSession()
		w.Serve(s)
		w.Operate(operations("", "gate", "add"))
		w.Operate(operations(`sealed {"N":2}`, "add"))
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- w.Close(t.Context()) }()
		synctest.Wait()

		select {
		case <-closed:
			t.Error("it did not wait for the call that runs")
		default:
		}

		if r := s.results(); len(r) != 1 || len(r[0].Results) != 0 || r[0].Changed {
			t.Errorf("what waited in line is reported as %+v", r)
		}
		<-begun
		close(open)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if r := s.results()[1]; len(r.Results) != 1 || !r.Changed || !r.Exists {
			t.Errorf("what ran is reported as %+v", r)
		}
	})
}

// Close does not wait forever for code that does not return.
func TestCloseGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, open := gate()
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: counters(map[string]entity.Handler{"gate": h})}}), newSession()
		w.Serve(s)
		w.Operate(operations("", "gate"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Close(ctx); !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "calls of 1 entities have not returned") {
			t.Errorf("the error is %v", err)
		}
		close(open)
	})
}

// Calls that arrive before Serve has given the worker a session run immediately. The worker reports
// them when it has the session.
func TestCallsBeforeServe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := entity.New(entity.Config{Types: map[string]entity.Type{one.Type: counters(nil)}}), newSession()
		w.Operate(operations("", "add"))
		synctest.Wait()
		w.Serve(s)
		synctest.Wait()
		if n := len(s.results()); n != 1 {
			t.Errorf("%d reports", n)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
