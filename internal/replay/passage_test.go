package replay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// gated is a session whose gate lets an attempt through when the test says so.
type gated struct {
	*memory

	begin func()
	why   atomic.Pointer[model.Reason]   // what HeldBackBy says; nil if it does not know
	waits atomic.Pointer[[]model.Reason] // the last waits that the worker reported
}

func (g *gated) Report(ctx context.Context, t model.Turn) error {
	g.waits.Store(&t.Waits)
	return g.memory.Report(ctx, t)
}

func (g *gated) Pass(_ model.TaskRef, _ *model.TaskSpec, _ *model.Payload, begin func()) {
	g.begin = begin
}

func (*gated) EndPass(model.TaskRef, *model.TaskSpec, model.Passage, time.Duration) {}

func (g *gated) HeldBackBy(model.TaskRef) (model.Reason, bool) {
	if why := g.why.Load(); why != nil {
		return *why, true
	}
	return model.Reason{}, false
}

// The engine may activate a worker that does not have its session yet. An attempt with a limit
// waits for the session, and then for the gate.
func TestAttemptBeforeTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		run := model.RunID{1}
		s := &gated{memory: &memory{runs: map[model.RunID]*memoryRun{run: {closed: make(chan *model.Close, 1)}}}}
		s.w = replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return x.Step(&replay.Step{Name: "s", Pass: &model.TaskSpec{Limits: []string{"one"}}, Body: func(context.Context) (model.Payload, error) {
				ran = true
				return model.Payload{}, nil
			}})
		}}})
		s.w.Activate(&api.Activation{Start: &model.Start{Address: model.Address{Type: "wf"}, Run: run, At: 1}, Generation: 1, Now: 1})
		synctest.Wait()
		s.w.Serve(s)
		synctest.Wait()
		if ran || s.begin == nil {
			t.Fatalf("the body has run: %v; the gate was asked: %v", ran, s.begin != nil)
		}

		s.begin()
		<-s.runs[run].closed
		if !ran {
			t.Error("the body has not run")
		}
		if err := s.w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A gate may find out late what holds an attempt back. The worker reports the reason when the gate
// knows it. When the gate has let the attempt through, the worker reports that the step runs.
func TestReasonOfAWaitingAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := model.RunID{1}
		s := &gated{memory: &memory{runs: map[model.RunID]*memoryRun{run: {closed: make(chan *model.Close, 1)}}}}
		end := make(chan struct{})
		s.w = replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return x.Step(&replay.Step{Name: "s", Pass: &model.TaskSpec{Breaker: "bank"}, Body: func(context.Context) (model.Payload, error) {
				<-end
				return model.Payload{}, nil
			}})
		}}})
		s.w.Serve(s)
		s.w.Activate(&api.Activation{Start: &model.Start{Address: model.Address{Type: "wf"}, Run: run, At: 1}, Generation: 1, Now: 1})
		expect := func(when string, want model.ReasonCode) {
			t.Helper()
			time.Sleep(time.Second) // virtual time, in which the worker sends its reports
			synctest.Wait()
			if waits := s.waits.Load(); waits == nil || len(*waits) != 1 || (*waits)[0].Code != want {
				t.Errorf("%s the worker reports %v, want %s", when, waits, want)
			}
		}

		expect("before the gate knows the reason,", model.WaitStep)
		s.why.Store(&model.Reason{Code: model.WaitBreaker, Name: "bank"})
		expect("once the gate knows the reason,", model.WaitBreaker)
		s.begin()
		expect("once the body has begun,", model.WaitStep)

		close(end)
		<-s.runs[run].closed
		if err := s.w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
