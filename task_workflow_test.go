package perdure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/payload"
)

// stage is a backend with one run. The test reads the turns of the run and writes its events.
type stage struct {
	*desk
	worker api.Worker
	turns  chan model.Turn
	seq    int64
}

func (s *stage) Join(_ context.Context, w api.Worker, _ api.Offer) (api.Session, error) {
	s.worker = w
	return stageSession{s}, nil
}

type stageSession struct{ s *stage }

func (s stageSession) Report(_ context.Context, t model.Turn) error {
	s.s.turns <- t
	return nil
}
func (stageSession) Release(model.RunID, uint64, int64, []model.Reason) {}
func (stageSession) Leave(context.Context) error                        { return nil }

// Answer ignores the answers of queries.
//
//arch:parameters api.Session gives the signature
func (stageSession) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}

func (s *stage) activation(name string) model.Activation {
	return model.Activation{Generation: 1, Start: &model.Start{
		Address: model.Address{Tenant: "default", Type: name, Key: "k"}, Run: model.RunID{9}, At: 1, Input: model.Payload{Data: []byte("1")},
	}}
}

func (s *stage) deliver(events ...model.Event) {
	for i := range events {
		s.seq++
		events[i].Seq, events[i].At = s.seq, model.Time(s.seq)
	}
	s.worker.Deliver(model.RunID{9}, 1, events)
}

// act runs a workflow until its first turn.
func act(t *testing.T, name string, defs ...perdure.Definition) (*stage, model.Turn) {
	t.Helper()
	return actWith(t, attach.Config{}, name, defs...)
}

func actWith(t *testing.T, cfg attach.Config, name string, defs ...perdure.Definition) (*stage, model.Turn) {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:"})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{desk: &desk{Backend: n.Backend(), tasks: map[model.Address]*deskTask{}}, turns: make(chan model.Turn, 100)}
	cfg.Backend, cfg.Tenant, cfg.OnClose = s, model.DefaultTenant, n.Close
	app, err := attach.Open(t.Context(), cfg, defs...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})

	a := s.activation(name)
	s.worker.Activate(&a)
	return s, <-s.turns
}

// readClose reads turns until the run ends.
func (s *stage) readClose(t *testing.T) *model.Close {
	t.Helper()
	for turn := range s.turns {
		if turn.Blocked != nil {
			t.Fatalf("blocked: %s", turn.Blocked)
		}
		if turn.Close != nil {
			return turn.Close
		}
	}
	return nil
}

var thumbnail = perdure.DeclareActivity[picture, string]("thumbnail", perdure.OnQueue("gpu"), perdure.Exponential(3))

// TestQueuedStep runs a workflow that calls an activity whose code is not in this process.
func TestQueuedStep(t *testing.T) {
	t.Parallel()
	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		return thumbnail.Run(ctx, picture{ID: n}, perdure.OnQueue("gpu-low"), perdure.AttemptTimeout(time.Minute))
	}, perdure.Uses(thumbnail))
	s, turn := act(t, "wf", wf)
	if len(turn.Commands) != 1 || turn.Commands[0].Kind != model.CommandSchedule || len(turn.Waits) != 1 {
		t.Fatalf("turn %+v", turn)
	}

	e := turn.Commands[0].Event
	want := model.Event{
		Kind: model.EventTaskScheduled, ID: e.ID, Name: "thumbnail", Input: model.Payload{Data: []byte(`{"ID":1}`)}, Position: e.Position,
		Task: &model.TaskSpec{
			Kind: "thumbnail", Queue: "gpu-low", ToClose: time.Minute, Retry: model.Retry{MaxAttempts: 3, Initial: time.Second, Max: time.Minute, Coefficient: 2000},
		},
	}
	if diff := cmp.Diff(want, e); diff != "" || !strings.Contains(e.Position, "task_workflow_test.go:") {
		t.Errorf("event at %s (-want +got):\n%s", e.Position, diff)
	}
	if got := turn.Waits[0].String(); got != "waits for task thumbnail of queue gpu-low" {
		t.Error(got)
	}
	s.deliver(e, model.Event{Kind: model.EventTaskClaimed, ID: e.ID, Attempt: 1}, model.Event{Kind: model.EventStepCompleted, ID: e.ID, Output: model.Payload{Data: []byte(`"png"`)}})
	if end := s.readClose(t); string(end.Output.Data) != `"png"` {
		t.Errorf("end %+v", end)
	}
}

type painter struct {
	perdure.Events
	wf *perdure.Workflow[int, string]
}

func (p *painter) OnStart() perdure.Actions {
	return perdure.Actions{thumbnail.Schedule("t-1", picture{ID: 5})}
}

func (p *painter) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	out, err := thumbnail.Result(e)
	return perdure.Actions{p.wf.Complete(fmt.Sprint(e.ID, out, err))}
}

// TestQueuedStepOfAMachine does the same as TestQueuedStep for a machine.
func TestQueuedStepOfAMachine(t *testing.T) {
	t.Parallel()
	declared := perdure.DeclareWorkflow[int, string]("painter")
	wf := perdure.NewMachine[int, string]("painter", func(int) *painter { return &painter{wf: declared} })
	s, turn := act(t, "painter", wf)
	if len(turn.Commands) != 1 || turn.Commands[0].Kind != model.CommandSchedule || turn.Commands[0].Event.Task.Queue != "gpu" {
		t.Fatalf("turn %+v", turn)
	}
	e := turn.Commands[0].Event
	s.deliver(e, model.Event{Kind: model.EventStepCompleted, ID: e.ID, Output: model.Payload{Data: []byte(`"png"`)}})
	if end := s.readClose(t); string(end.Output.Data) != `"t-1png\u003cnil\u003e"` {
		t.Errorf("end %s, %v", end.Output.Data, end.Failure)
	}
}

// TestSubmitFromAWorkflow submits a task as a child.
func TestSubmitFromAWorkflow(t *testing.T) {
	t.Parallel()
	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		x, err := thumbnail.Submit(ctx, picture{ID: n}, perdure.AbandonChild)
		if err != nil {
			return "", err
		}
		y, err := thumbnail.Submit(ctx, picture{ID: n}, perdure.RawKey("mine"))
		return x.String() + " " + y.String(), err
	})

	_, turn := act(t, "wf", wf)
	if len(turn.Commands) != 2 {
		t.Fatalf("turn %+v", turn)
	}

	a, b := &turn.Commands[0], &turn.Commands[1]
	if a.Kind != model.CommandStartChild || a.Event.Target.Type != "task:thumbnail" || a.Event.Task == nil || a.Event.Task.Queue != "gpu" ||
		a.Event.Policy != model.AbandonChild || len(a.Event.Target.Key) != 32 || b.Event.Target.Key != "mine" {
		t.Errorf("commands %+v\n%+v", a, b)
	}
}

// TestWrongCallsOfTasks runs workflow code with options that make no sense.
func TestWrongCallsOfTasks(t *testing.T) {
	t.Parallel()
	inline := perdure.NewActivity("inline", func(context.Context, int) (int, error) { return 1, nil })
	var errs []error

	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		_, a := inline.Run(ctx, 1, perdure.HeartbeatTimeout(time.Minute))
		_, b := perdure.Do(ctx, "do", func(context.Context) (int, error) { return 1, nil }, perdure.OnQueue("q"))
		_, c := inline.Run(ctx, 1, perdure.OnQueue("q"), perdure.RetryPolicy{If: func(error) bool { return true }})
		_, e := inline.Run(ctx, 1, perdure.OnQueue("q"), perdure.RetryPolicy{Except: []perdure.ErrorKind{perdure.ErrorType[*perdure.RemoteError]()}})
		_, d := inline.Go(ctx, 1, perdure.OnQueue("")).Get(ctx)
		errs = []error{a, b, c, d, e}
		return 0, nil
	})

	s, turn := act(t, "wf", wf, inline)
	if turn.Close == nil {
		s.readClose(t)
	}

	for i, want := range []string{
		"activity inline: HeartbeatTimeout is for an activity that has a queue", "step do: OnQueue is for activities", "give the policy to the activity", "the name of queue is empty",
		"use ErrorNamed",
	} {
		if err := errs[i]; !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\n  lacks %q", err, want)
		}
	}
}

// TestQueuedStepIsEncrypted schedules a task in a workflow and executes it on the worker of an app
// with the same keys. Between the two, the content is encrypted.
func TestQueuedStepIsEncrypted(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{7}, 32)
	keys, err := payload.NewKeys("k1", map[string][]byte{"k1": key}, key)
	if err != nil {
		t.Fatal(err)
	}
	secret := perdure.NewActivity("secret", func(ctx context.Context, p picture) (picture, error) {
		return picture{p.ID + 1, p.Name + " seen " + perdure.IdempotencyKey(ctx)[:0]}, nil
	}, perdure.OnQueue("q"))
	var got picture

	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		var err error
		got, err = secret.Run(ctx, picture{1, "cat"})
		return 0, err
	})

	s, turn := actWith(t, attach.Config{Payloads: payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys)}}}, "wf", wf, secret)
	e := turn.Commands[0].Event
	if bytes.Contains(e.Input.Data, []byte("cat")) || e.Input.Encoding == "" {
		t.Errorf("the input is %q, %s", e.Input.Data, e.Input.Encoding)
	}
	to := model.Address{Tenant: "default", Type: "wf", Key: "k"}
	task := &deskTask{req: api.StartRequest{Task: e.Task}, done: make(chan model.Outcome, 1)}
	s.desk.mu.Lock()
	s.desk.tasks[to] = task
	s.desk.mu.Unlock()
	s.desk.worker.Execute([]model.Claim{{
		Ref: model.ClaimRef{TaskRef: model.TaskRef{Address: to, Run: model.RunID{9}, ID: e.ID}, Claim: 2}, Spec: e.Task, Input: e.Input, Attempt: 1,
	}})
	out := (<-task.done).Output
	if bytes.Contains(out.Data, []byte("cat")) {
		t.Errorf("the output is %q", out.Data)
	}
	s.deliver(e, model.Event{Kind: model.EventTaskClaimed, ID: e.ID, Attempt: 1}, model.Event{Kind: model.EventStepCompleted, ID: e.ID, Output: out})
	s.readClose(t)
	if got != (picture{2, "cat seen "}) {
		t.Errorf("got %+v", got)
	}
}
