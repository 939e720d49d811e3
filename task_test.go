package perdure_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/perduretest"
)

// desk is a backend that executes submitted tasks in the simplest way: its one worker claims each
// task immediately.
type desk struct {
	api.Backend
	worker api.TaskWorker
	offer  model.TaskOffer

	mu       sync.Mutex
	started  []api.StartRequest
	tasks    map[model.Address]*deskTask
	refuse   string        // the key of the start that desk refuses
	progress model.Payload // the progress of the last heartbeat
	canceled bool          // the replies to heartbeats say that the task is cancelled
}

type deskTask struct {
	req     api.StartRequest
	attempt int
	claim   int64
	reports []model.TaskReport
	done    chan model.Outcome
}

func (d *desk) Lose()    {}
func (d *desk) Suspend() {}

func (d *desk) CodeEnded(model.ClaimRef) {}

func (d *desk) JoinTasks(_ context.Context, w api.TaskWorker, offer model.TaskOffer) (api.TaskSession, error) {
	d.worker, d.offer = w, offer
	return d, nil
}

func (d *desk) Start(ctx context.Context, r api.StartRequest) (api.StartReply, error) {
	if r.Task == nil {
		return d.Backend.Start(ctx, r)
	}
	d.mu.Lock()

	if r.Address.Key == d.refuse {
		d.mu.Unlock()
		return api.StartReply{}, errors.New("refused")
	}

	d.started = append(d.started, r)
	t, existing := d.tasks[r.Address]
	if !existing {
		t = &deskTask{req: r, done: make(chan model.Outcome, 1)}
		d.tasks[r.Address] = t
	}

	d.mu.Unlock()
	if !existing {
		d.hand(t, model.Payload{})
	}
	return api.StartReply{Existing: existing}, nil
}

func (d *desk) StartMany(ctx context.Context, rs []api.StartRequest) ([]api.StartedReply, error) {
	out := make([]api.StartedReply, len(rs))
	for i := range rs {
		out[i].StartReply, out[i].Err = d.Start(ctx, rs[i])
	}
	return out, nil
}

// hand hands a task to the worker of the desk.
func (d *desk) hand(t *deskTask, progress model.Payload) {
	t.attempt++
	t.claim++
	d.worker.Execute([]model.Claim{{
		Ref: model.ClaimRef{TaskRef: model.TaskRef{Address: t.req.Address, Run: model.RunID{7}, ID: model.TaskStep}, Claim: t.claim}, Spec: t.req.Task, Input: t.req.Input,
		Attempt: t.attempt, Progress: progress,
	}})
}

func (d *desk) Await(_ context.Context, t api.Target) (api.Result, error) {
	d.mu.Lock()
	task := d.tasks[t.Address]
	d.mu.Unlock()
	o := <-task.done
	task.done <- o
	return api.Result{Outcome: o}, nil
}

func (d *desk) Report(_ context.Context, r model.TaskReport) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[r.Ref.Address]
	t.reports = append(t.reports, r)

	switch {
	case r.Returned:
		t.attempt--
		go d.hand(t, d.progress)
	case r.Failure == nil:
		t.done <- model.Outcome{Status: model.Completed, Output: r.Output}
	case t.req.Task.Retry.Worth(t.attempt, r.Failure):
		go d.hand(t, d.progress)
	default:
		t.done <- model.Outcome{Status: model.Failed, Failure: r.Failure}
	}

	return nil
}

func (d *desk) Write(context.Context, model.TaskWrite) error { return nil }

func (d *desk) States(context.Context, model.ClaimRef) ([]api.TaskState, error) { return nil, nil }

func (d *desk) Beat(_ context.Context, beats []api.Beat) ([]api.BeatReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	replies := make([]api.BeatReply, len(beats))
	for i, b := range beats {
		if b.Progress != nil {
			d.progress = *b.Progress
		}
		replies[i] = api.BeatReply{Held: true, Canceled: d.canceled}
	}
	return replies, nil
}

func (d *desk) Slots(int)                   {}
func (d *desk) Leave(context.Context) error { return nil }

// openDesk opens an app whose tasks a desk executes.
func openDesk(t *testing.T, cfg attach.Config, defs ...perdure.Definition) (perdure.Client, *desk) {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:"})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Backend: n.Backend(), tasks: map[model.Address]*deskTask{}}
	cfg.Backend, cfg.Tenant, cfg.OnClose = d, model.DefaultTenant, n.Close
	app, err := attach.Open(t.Context(), cfg, defs...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})

	return app.With(t.Context()), d
}

type picture struct {
	ID   int
	Name string `json:",omitempty"`
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	render := perdure.NewActivity("render", func(ctx context.Context, p picture) (string, error) {
		return fmt.Sprintf("%s %d, attempt %d, %d", p.Name, p.ID, perdure.Attempt(ctx), len(perdure.IdempotencyKey(ctx))), nil
	}, perdure.OnQueue("gpu"), perdure.HeartbeatTimeout(time.Minute), perdure.Exponential(5), perdure.AttemptTimeout(time.Hour))
	c, d := openDesk(t, attach.Config{Version: "v7"}, render)

	x, err := render.Submit(c, picture{1, "cat"}, perdure.RawKey("k"), perdure.OnQueue("gpu-low"), perdure.Priority(-3), perdure.FairKey("tenant-1", 2),
		perdure.Limit("b", "a", "b"), perdure.Breaker("cdn"), perdure.Delay(time.Second), perdure.ScheduleToStart(time.Minute), perdure.ScheduleToClose(time.Hour),
		perdure.Labels(map[string]string{"team": "x"}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := x.Result(c); got != "cat 1, attempt 1, 32" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if x.String() != "task:render/k" || render.Execution(perdure.RawKey("k")) != x {
		t.Errorf("execution %s", x)
	}
	want := &model.TaskSpec{
		Kind: "render", Queue: "gpu-low", Priority: -3, Fair: "tenant-1", Weight: 2, Limits: []string{"a", "b"}, Breaker: "cdn", Delay: time.Second,
		ToStart: time.Minute, Total: time.Hour, ToClose: time.Hour, Silence: time.Minute,
		Retry: model.Retry{MaxAttempts: 5, Initial: time.Second, Max: time.Minute, Coefficient: 2000},
	}
	if diff := cmp.Diff(want, d.started[0].Task); diff != "" || len(d.started[0].Labels) != 1 {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	offer := model.TaskOffer{Name: d.offer.Name, Tenants: []string{"default"}, Queues: []string{"default", "gpu"}, Kinds: []string{"render"}, Slots: 100, Version: "v7", TellsEnd: true}
	if diff := cmp.Diff(offer, d.offer); diff != "" || strings.Count(d.offer.Name, "-") < 2 {
		t.Errorf("offer %q (-want +got):\n%s", d.offer.Name, diff)
	}

	// Without a key, each submission is a new task. A request id or KeyedBy gives the task a key,
	// so that a repeated submission finds the same task.
	a, _ := render.Submit(c, picture{ID: 1})
	b, _ := render.Submit(c, picture{ID: 1})
	if a == b || a.Ref.Key == "" {
		t.Errorf("%s and %s", a, b)
	}
	a, _ = render.Submit(c, picture{ID: 1}, perdure.RequestID("r1"))
	keyed := render.KeyedBy(func(p picture) perdure.Key { return perdure.RawKey(fmt.Sprint("p", p.ID)) })
	b, _ = keyed.Submit(c, picture{ID: 1})
	if a.Ref.Key != "r1" || b.Ref.Key != "p1" {
		t.Errorf("%s and %s", a, b)
	}
}

func TestSubmitWithoutAQueueGoesToTheDefaultOne(t *testing.T) {
	t.Parallel()
	clean := perdure.NewActivity("clean", func(context.Context, string) (int, error) { return 3, nil })
	c, d := openDesk(t, attach.Config{Tasks: perdure.TaskConfig{Queues: []string{"other"}, Slots: 2, Prefetch: 1}}, clean)
	x, err := clean.Submit(c, "exports")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := x.Result(c); n != 3 || err != nil || d.started[0].Task.Queue != perdure.DefaultQueue {
		t.Errorf("%d, %v, %+v", n, err, d.started[0].Task)
	}
	if diff := cmp.Diff([]string{"default", "other"}, d.offer.Queues); diff != "" || d.offer.Slots != 3 {
		t.Errorf("offer %+v", d.offer)
	}
}

func TestSubmitMany(t *testing.T) {
	t.Parallel()
	square := perdure.NewActivity("square", func(_ context.Context, n int) (int, error) { return n * n, nil }, perdure.OnQueue("math"))
	c, d := openDesk(t, attach.Config{}, square)
	ins := make([]int, 1000)
	for i := range ins {
		ins[i] = i
	}
	d.refuse = "n7"
	xs, err := square.KeyedBy(func(n int) perdure.Key { return perdure.RawKey(fmt.Sprint("n", n)) }).SubmitMany(c, ins)
	if err == nil || !strings.Contains(err.Error(), "1 of 1000 tasks of activity square were refused") || !strings.Contains(err.Error(), "input 7: refused") {
		t.Errorf("error %v", err)
	}

	for i, x := range xs {
		if i == 7 {
			if x != (perdure.Execution[int]{}) {
				t.Errorf("the refused input has the execution %s, want none", x)
			}
			continue
		}
		if got, err := x.Result(c); got != i*i || err != nil {
			t.Fatalf("%d: %d, %v", i, got, err)
		}
	}

	if _, err := square.SubmitMany(c, ins, perdure.RawKey("one")); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "KeyedBy") {
		t.Errorf("one key for all: %v", err)
	}
	xs, err = square.SubmitMany(c, ins[:3], perdure.RequestID("r"))
	if err != nil || xs[0].Ref.Key != "r" || xs[2].Ref.Key != "r-2" {
		t.Errorf("%v, %v", xs, err)
	}
}

// The error of SubmitMany says which limit ended the call, as the error of Submit does.
func TestSubmitManyAfterItsContextEnded(t *testing.T) {
	t.Parallel()
	mail := perdure.NewActivity("mail", func(context.Context, int) (int, error) { return 0, nil }, perdure.OnQueue("mails"))
	app, err := embedded.Open(t.Context(), "memory:", mail)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()

	for want, ctx := range map[error]context.Context{perdure.ErrCanceled: canceled, perdure.ErrTimeout: expired} {
		c := app.With(ctx)
		if _, err := mail.Submit(c, 1); !errors.Is(err, want) {
			t.Errorf("Submit: %v, want %v", err, want)
		}
		if _, err := mail.SubmitMany(c, []int{1, 2}); !errors.Is(err, want) {
			t.Errorf("SubmitMany: %v, want %v", err, want)
		}
	}
}

// TestTaskFails checks which errors lead to another attempt and which do not.
func TestTaskFails(t *testing.T) {
	t.Parallel()
	hard := errors.New("hard")
	var mu sync.Mutex
	tries := map[string]int{}

	work := perdure.NewActivity("work", func(_ context.Context, how string) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		tries[how]++

		switch {
		case how == "snooze" && tries[how] < 3:
			return 0, perdure.Snooze(time.Hour)
		case how == "hard":
			return 0, fmt.Errorf("it is %w", hard)
		case how == "panic":
			panic("ouch")
		case how == "permanent":
			return 0, perdure.Permanent(errors.New("no"))
		case how == "twice" && tries[how] < 3:
			return 0, perdure.RetryAfter(errors.New("later"), time.Minute)
		}

		return tries[how], nil
	}, perdure.OnQueue("q"), perdure.RetryPolicy{MaxAttempts: 4, Except: []perdure.ErrorKind{perdure.ErrorIs(hard), perdure.ErrorNamed("panic"), perdure.ErrorIs(perdure.ErrTimeout)}})

	c, d := openDesk(t, attach.Config{}, work)
	for how, want := range map[string]string{
		"fine": "1 <nil>", "hard": "0 it is hard", "panic": "0 panic: ouch", "permanent": "0 no", "twice": "3 <nil>", "snooze": "3 <nil>",
	} {
		x, err := work.Submit(c, how, perdure.RawKey(how))
		if err != nil {
			t.Fatal(err)
		}
		n, err := x.Result(c)
		if got := fmt.Sprint(n, " ", err); got != want {
			t.Errorf("%s: %s, want %s", how, got, want)
		}
	}

	if tries["hard"] != 1 || tries["panic"] != 1 || tries["permanent"] != 1 {
		t.Errorf("tries %v", tries)
	}
	if diff := cmp.Diff([]string{"panic", "timeout"}, d.started[0].Task.Retry.Final); diff != "" {
		t.Errorf("final (-want +got):\n%s", diff)
	}
	byKey := func(key string) *deskTask {
		return d.tasks[model.Address{Tenant: "default", Type: "task:work", Key: key}]
	}
	if r := byKey("twice").reports[0]; r.RetryAfter != time.Minute {
		t.Errorf("retry after %s", r.RetryAfter)
	}
	if task := byKey("snooze"); task.attempt != 1 || task.reports[0].After != time.Hour || !task.reports[0].Returned {
		t.Errorf("a snooze consumes attempts: %d, %+v", task.attempt, task.reports[0])
	}
}

// TestProgress checks that an attempt gets the progress of the previous attempt, encrypted or not.
// It also checks that the code of an activity learns that its task is cancelled.
func TestProgress(t *testing.T) {
	t.Parallel()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	keys, err := payload.NewKeys("k1", map[string][]byte{"k1": key}, key)
	if err != nil {
		t.Fatal(err)
	}

	for name, settings := range map[string]payload.Codec{
		"plain": {}, "encrypted": {Chain: []payload.Transform{payload.Encrypt(keys)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d *desk
			copying := perdure.NewActivity("copy", func(ctx context.Context, file string) (string, error) {
				at, resumed := perdure.LastProgress[picture](ctx)
				if !resumed {
					for {
						if err := perdure.Heartbeat(ctx, picture{ID: 42, Name: file}); err != nil {
							return "", err
						}
						d.mu.Lock()
						heard := d.progress.Size() > 0
						d.mu.Unlock()
						if heard {
							return "", errors.New("gone")
						}
						time.Sleep(time.Millisecond)
					}
				}

				d.mu.Lock()
				d.canceled = true
				d.mu.Unlock()

				for {
					if err := perdure.Heartbeat(ctx, at); err != nil {
						return fmt.Sprint(at, errors.Is(err, perdure.ErrCanceled)), nil
					}
					time.Sleep(time.Millisecond)
				}
			}, perdure.OnQueue("q"), perdure.HeartbeatTimeout(time.Second))

			var c perdure.Client
			c, d = openDesk(t, attach.Config{Payloads: settings}, copying)
			x, err := copying.Submit(c, "film")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := x.Result(c); got != "{42 film} true" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			sealed := !strings.Contains(string(d.progress.Data)+string(d.started[0].Input.Data), "film")
			if sealed != (name == "encrypted") {
				t.Errorf("progress %q, input %q", d.progress.Data, d.started[0].Input.Data)
			}
		})
	}
}

// locked is a transform that fails to open data that contains text, as if a key were missing. It
// fails as often as left says, and then succeeds.
type locked struct {
	text string
	left atomic.Int32
}

func (*locked) Name() string { return "locked" }

func (*locked) Seal(_ context.Context, _ payload.Meta, data []byte) ([]byte, bool, error) {
	return data, true, nil
}

func (l *locked) Open(_ context.Context, _ payload.Meta, sealed []byte) ([]byte, error) {
	if strings.Contains(string(sealed), l.text) && l.left.Add(-1) >= 0 {
		return nil, payload.ErrNoKey
	}
	return sealed, nil
}

func (*locked) Digester(context.Context) (func([]byte) []byte, error) { return nil, nil }

// TestUnreadableProgressIsWaitedFor starts an attempt while the progress of the last attempt cannot
// be read. The worker does not start the work from the beginning. It returns the task to the queue.
func TestUnreadableProgressIsWaitedFor(t *testing.T) {
	t.Parallel()
	transform := &locked{text: "halfway"}
	transform.left.Store(1)

	pay := perdure.NewActivity("pay", func(ctx context.Context, _ string) (string, error) {
		if at, resumed := perdure.LastProgress[picture](ctx); resumed {
			return at.Name, nil
		}
		if perdure.Attempt(ctx) > 1 {
			return "", perdure.Permanent(errors.New("it starts again"))
		}
		if err := perdure.Heartbeat(ctx, picture{Name: "halfway"}); err != nil {
			return "", err
		}
		return "", errors.New("gone")
	}, perdure.OnQueue("q"))

	c, d := openDesk(t, attach.Config{Payloads: payload.Codec{Chain: []payload.Transform{transform}}}, pay)
	x, err := pay.Submit(c, "all")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := x.Result(c); got != "halfway" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if r := d.tasks[model.Address{Tenant: "default", Type: x.Ref.Workflow, Key: x.Ref.Key}].reports[1]; !r.Returned || r.After != 10*time.Second {
		t.Errorf("the second report is %+v, want the task returned for 10s", r)
	}
}

// TestInlineActivityHasNoTask calls functions of tasks with a context that belongs to no task. An
// activity without a queue has such a context.
func TestInlineActivityHasNoTask(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	if err := perdure.Heartbeat(ctx, 1); err != nil {
		t.Error(err)
	}
	if _, ok := perdure.LastProgress[int](ctx); ok {
		t.Error("an activity without a task has progress")
	}
	cancel()
	if err := perdure.Heartbeat(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := perdure.Snooze(time.Minute); !strings.Contains(err.Error(), "only a queued activity can") {
		t.Error(err)
	}
}

// TestTaskOptionsAreChecked defines activities, submits tasks and starts a workflow with invalid
// options. Each error says what is wrong.
func TestTaskOptionsAreChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 201)
	q := perdure.OnQueue("q")
	for _, c := range []struct {
		opts []perdure.TaskOption
		want string
	}{
		{[]perdure.TaskOption{perdure.HeartbeatTimeout(time.Minute)}, "HeartbeatTimeout is for an activity that has a queue: give it OnQueue too"},
		{[]perdure.TaskOption{perdure.Priority(1)}, "Priority is for an activity that has a queue"},
		{[]perdure.TaskOption{perdure.OnQueue("")}, "the name of queue is empty"},
		{[]perdure.TaskOption{perdure.OnQueue(long)}, "has 201 bytes, at most 200"},
		{[]perdure.TaskOption{q, perdure.HeartbeatTimeout(-1)}, "HeartbeatTimeout is -1ns, must be >= 0"},
		{[]perdure.TaskOption{q, perdure.HeartbeatTimeout(time.Millisecond)}, "must be at least 100ms"},
		{[]perdure.TaskOption{q, perdure.ScheduleToStart(-time.Second)}, "ScheduleToStart is -1s"},
		{[]perdure.TaskOption{q, perdure.ScheduleToClose(1 << 62)}, "more than a hundred years"},
		{[]perdure.TaskOption{q, perdure.Delay(time.Hour), perdure.ScheduleToClose(time.Minute)}, "time out before it may start"},
		{[]perdure.TaskOption{q, perdure.Priority(1 << 30)}, "Priority is 1073741824"},
		{[]perdure.TaskOption{q, perdure.FairKey("a", -1)}, "has weight -1"},
		{[]perdure.TaskOption{q, perdure.FairKey("a\n", 1)}, "control character"},
		{[]perdure.TaskOption{q, perdure.Breaker("")}, "the name of breaker is empty"},
		{[]perdure.TaskOption{q, perdure.Limit("")}, "the name of limit is empty"},
		{[]perdure.TaskOption{q, perdure.Limit("1", "2", "3", "4", "5", "6", "7", "8", "9")}, "at most 8"},
		{[]perdure.TaskOption{q, perdure.AttemptTimeout(-1)}, "AttemptTimeout is -1ns"},
	} {
		var as []perdure.ActivityOption
		for _, o := range c.opts {
			as = append(as, o)
		}
		a := perdure.NewActivity("act", func(context.Context, int) (int, error) { return 0, nil }, as...)
		_, err := attach.Open(t.Context(), attach.Config{}, a)
		if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "activity act") {
			t.Errorf("Open returns %v\n  want %q in it", err, c.want)
		}
	}

	act := perdure.NewActivity("act", func(context.Context, int) (int, error) { return 0, nil })
	wf := perdure.NewWorkflow("wf", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
	c, _ := openDesk(t, attach.Config{}, act, wf)
	signal := perdure.NewSignal[int]("s")

	slash := perdure.NewActivity("a/b", func(context.Context, int) (int, error) { return 0, nil })
	for what, got := range map[string]struct {
		err  error
		want string
	}{
		"heartbeat too short": {second(act.Submit(c, 1, perdure.HeartbeatTimeout(1))), "at least 100ms"},
		"queue of a workflow": {second(wf.Start(c, 1, perdure.OnQueue("q"))), "OnQueue is for activities"},
		"signal":              {second(act.Submit(c, 1, signal.With(1))), "takes no signals"},
		"slash":               {second(slash.Submit(c, 1)), "contains a slash"},
		"long key":            {second(act.Submit(c, 1, perdure.RawKey(strings.Repeat("k", 513)))), "at most 512"},
	} {
		if !errors.Is(got.err, perdure.ErrInvalid) || !strings.Contains(got.err.Error(), got.want) {
			t.Errorf("%s: %v\n  want %q in it", what, got.err, got.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestDefinitionsWithQueues checks which definitions and which settings of tasks an app accepts.
func TestDefinitionsWithQueues(t *testing.T) {
	t.Parallel()
	declared := perdure.DeclareActivity[int, int]("elsewhere", perdure.OnQueue("q"))
	inline := perdure.DeclareActivity[int, int]("here")
	body := func(perdure.WorkflowCtx, int) (int, error) { return 0, nil }
	fn := func(context.Context, int) (int, error) { return 0, nil }
	type group struct{ Elsewhere *perdure.Activity[int, int] }

	for name, c := range map[string]struct {
		defs []perdure.Definition
		want string
	}{
		"used":           {[]perdure.Definition{perdure.NewWorkflow("w", body, perdure.Uses(declared))}, ""},
		"passed":         {[]perdure.Definition{declared}, ""},
		"in a group":     {[]perdure.Definition{perdure.GroupOf(&group{declared})}, ""},
		"bound as well":  {[]perdure.Definition{declared, declared.Bind(fn), perdure.GroupOf(&group{declared})}, ""},
		"without either": {[]perdure.Definition{perdure.NewWorkflow("w", body, perdure.Uses(inline))}, "which has no code here and no queue"},
		"transactional": {
			[]perdure.Definition{perdure.NewTxActivity("tx", perdure.SQL(nil), func(context.Context, *sql.Tx, int) (int, error) { return 0, nil }, perdure.OnQueue("q"))},
			"activity tx: it is transactional and has a queue",
		},
		"task prefix":  {[]perdure.Definition{perdure.NewWorkflow("task:w", body)}, `begins with "task:", which is reserved for tasks`},
		"nil function": {[]perdure.Definition{perdure.NewActivity[int, int]("nothing", nil, perdure.OnQueue("q"))}, "the function of activity nothing is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.want == "" {
				openDesk(t, attach.Config{}, c.defs...)
				return
			}
			if _, err := attach.Open(t.Context(), attach.Config{}, c.defs...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\n  want %q in it", err, c.want)
			}
		})
	}

	for _, c := range []struct {
		cfg  perdure.TaskConfig
		want string
	}{
		{perdure.TaskConfig{Prefetch: -1}, "Prefetch is -1"},
		{perdure.TaskConfig{Slots: 1 << 30}, "Slots is 1073741824"},
		{perdure.TaskConfig{DrainTimeout: -1}, "DrainTimeout is -1ns"},
		{perdure.TaskConfig{Queues: []string{""}}, "the name of queue is empty"},
		{perdure.TaskConfig{HighLoad: 0.5, LowLoad: 0.5}, "HighLoad is 0.5 and LowLoad is 0.5"},
		{perdure.TaskConfig{HighMemory: 1.5, LowMemory: 0.5}, "HighMemory is 1.5"},
		{perdure.TaskConfig{LowLoad: 0.5}, "HighLoad is 0"},
	} {
		if _, err := attach.Open(t.Context(), attach.Config{Tasks: c.cfg}); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

// TestTestsHearOfTasks checks what perduretest relies on: the code of a task gets the context of
// the test, and the test learns of every attempt.
func TestTestsHearOfTasks(t *testing.T) {
	t.Parallel()
	type worldKey struct{}
	ran := make(chan replay.Attempt, 10)
	checks := &replay.Checks{Base: context.WithValue(context.Background(), worldKey{}, "world"), Ran: func(a replay.Attempt) { ran <- a }}

	fake := perduretest.NewFake(func(ctx context.Context, how string) (string, error) {
		if how == "panic" && perdure.Attempt(ctx) == 1 {
			panic("ouch")
		}
		return fmt.Sprint(ctx.Value(worldKey{}), " ", perdure.IdempotencyKey(ctx) != ""), nil
	})

	work := perdure.DeclareActivity[string, string]("work", perdure.OnQueue("q"))
	c, _ := openDesk(t, attach.Config{Checks: checks}, work.Bind(fake.Call))
	for _, how := range []string{"fine", "panic"} {
		x, err := work.Submit(c, how)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.Result(c); got != "world true" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}

	for _, want := range []string{"work 1 <nil>", "work 1 panic: ouch", "work 2 <nil>"} {
		if a := <-ran; fmt.Sprint(a.Step, " ", a.Number, " ", a.Err) != want || a.IdempotencyKey == "" {
			t.Errorf("%+v, want %s", a, want)
		}
	}

	if calls := fake.Calls(); len(calls) != 2 || calls[1].Attempt != 2 {
		t.Errorf("calls %+v", calls)
	}
}
