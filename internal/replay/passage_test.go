package replay_test

import (
	"context"
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
}

func (g *gated) Pass(_ model.TaskRef, _ *model.TaskSpec, _ *model.Payload, begin func()) {
	g.begin = begin
}

func (*gated) EndPass(model.TaskRef, *model.TaskSpec, model.Passage, time.Duration) {}

func (*gated) HeldBackBy(model.TaskRef) (model.Reason, bool) { return model.Reason{}, false }

// The engine may activate a worker that has not its session yet. An attempt with a limit waits for
// the session, and then for the gate.
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
