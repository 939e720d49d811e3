package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/payload"
)

var cursor = perdure.NewState[int]("cursor")

// linesOf returns the log lines of a task as "LEVEL text".
func linesOf(t *testing.T, c context.Context, app *perdure.App, to perdure.Target, tail perdure.TaskTail) (out []string) {
	t.Helper()
	for l, err := range app.Tasks().Logs(c, to, tail) {
		if err != nil {
			t.Fatalf("lines of %v: %v (after %q)", to, err, out)
		}
		out = append(out, l.Level.String()+" "+l.Text)
	}
	return out
}

// streamOf returns the streamed items of a task as "position kind text share value".
func streamOf(t *testing.T, c context.Context, app *perdure.App, to perdure.Target, tail perdure.TaskTail) (out []string) {
	t.Helper()
	for it, err := range app.Tasks().Stream(c, to, tail) {
		if err != nil {
			t.Fatalf("stream of %v: %v (after %q)", to, err, out)
		}
		out = append(out, fmt.Sprintf("%d %s %s %g %s", it.Position, it.Kind, it.Text, it.Share, it.Value))
	}
	return out
}

// The state that a task saves is available to its next attempt and to readers, immediately and
// after the task has ended.
func TestTaskStateOverAttempts(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var app *perdure.App
		gone := perdure.NewState[string]("gone")
		var seen []string

		count := perdure.NewActivity("count", func(ctx context.Context, key string) (int, error) {
			n, ok, err := cursor.Load(ctx)
			if err != nil {
				return 0, err
			}
			old, there, err := gone.Load(ctx)
			seen = append(seen, fmt.Sprintln(n, ok, old, there, err))
			if err := cursor.Save(ctx, n+1); err != nil {
				return 0, err
			}

			// The save is durable.
			read, ok, err := cursor.Read(app.With(ctx), perdure.Ref{Workflow: "task:count", Key: key})
			if err != nil || !ok || read != n+1 {
				return 0, perdure.Permanent(fmt.Errorf("saved %d, read %d, %v, %w", n+1, read, ok, err))
			}

			switch n {
			case 0:
				if err := gone.Save(ctx, "here"); err != nil {
					return 0, err
				}
				return 0, errors.New("again")
			case 1:
				if err := gone.Remove(ctx); err != nil {
					return 0, err
				}
				return 0, perdure.Snooze(0)
			}

			n, _, err = cursor.Load(ctx)
			return n, err
		}, perdure.OnQueue("work"), perdure.Constant(3, 0))

		app = s.open(count)
		c := caller(t, app)
		x, err := count.Submit(c, "k", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(c)
		equal(t, "the task", got, err, 3)
		if want := []string{"0 false  false <nil>\n", "1 true here true <nil>\n", "2 true  false <nil>\n"}; !slices.Equal(seen, want) {
			t.Errorf("attempts have seen %q, want %q", seen, want)
		}
		got, ok, err := cursor.Read(c, x)
		if !ok {
			t.Error("the state went with the end of the task")
		}
		equal(t, "the state at the end", got, err, 3)
		if _, ok, err := gone.Read(c, x); ok || err != nil {
			t.Errorf("a state that was removed is there: %v, %v", ok, err)
		}
	})
}

// talkative is a log value that logs when it is resolved.
type talkative struct{ log *slog.Logger }

func (v talkative) LogValue() slog.Value {
	v.log.Info("asked")
	return slog.StringValue("me")
}

// Readers get the log lines and streamed items of all attempts, each once, in order, and before the
// outcome.
func TestTaskLogsAndStream(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		talk := perdure.NewActivity("talk", func(ctx context.Context, in string) (string, error) {
			n := perdure.Attempt(ctx)
			log := perdure.Log(ctx)
			log.Info("begins", "attempt", n)
			log.With("in", in).WithGroup("g").Warn("careful", "why", "two words")
			log.Debug("\xff" + strings.Repeat("x", 20_000)) //nolint:sloglint // invalid UTF-8 and too long

			if err := errors.Join(
				perdure.StreamToken(ctx, "hello "), perdure.StreamProgress(ctx, 0.5, "half"), perdure.StreamData(ctx, map[string]int{"n": n}),
				perdure.StreamError(ctx, errors.New("odd")),
			); err != nil {
				return "", err
			}

			if n == 1 {
				return "", errors.New("again")
			}
			log.Error("ends", "level", "gold", "time", time.Unix(0, 0).UTC(), "in", talkative{log})
			return in, nil
		}, perdure.OnQueue("work"), perdure.Constant(2, 0))
		flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, in string) (string, error) { return talk.Run(ctx, in) }, perdure.Uses(talk))
		app := s.open(talk, flow)
		c := caller(t, app)
		x, err := talk.Submit(c, "in", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(c); err != nil {
			t.Fatal(err)
		}
		long := "DEBUG \ufffd" + strings.Repeat("x", 8192-3-len(" … 20003 bytes in all")) + " … 20003 bytes in all"
		want := []string{
			"INFO begins attempt=1", `WARN careful in=in g.why="two words"`, long, "INFO begins attempt=2", `WARN careful in=in g.why="two words"`, long,
			"INFO asked", "ERROR ends level=gold time=1970-01-01T00:00:00.000Z in=me",
		}
		if got := linesOf(t, t.Context(), app, x, perdure.TaskTail{}); !slices.Equal(got, want) {
			t.Errorf("lines are %q, want %q", got, want)
		}
		items := []string{
			`1 token hello  0 "hello "`, `2 progress half 0.5 {"progress":0.5,"details":"half"}`, `3 data  0 {"n":1}`, `4 error odd 0 {"message":"odd"}`,
			`5 token hello  0 "hello "`, `6 progress half 0.5 {"progress":0.5,"details":"half"}`, `7 data  0 {"n":2}`, `8 error odd 0 {"message":"odd"}`,
		}
		for _, follow := range []bool{false, true} {
			if got := streamOf(t, t.Context(), app, x, perdure.TaskTail{Follow: follow}); !slices.Equal(got, items) {
				t.Errorf("stream is %q, want %q", got, items)
			}
			if got := streamOf(t, t.Context(), app, x, perdure.TaskTail{Follow: follow, After: 6}); !slices.Equal(got, items[6:]) {
				t.Errorf("behind item 6 it is %q", got)
			}
		}

		// The same holds for a step of a workflow. The log lines have the id of the step.
		w := mustStart(t, c, flow, "in", perdure.RawKey("w"))
		if _, err := w.Result(c); err != nil {
			t.Fatal(err)
		}
		step := ""
		for l, err := range app.Tasks().Logs(t.Context(), w, perdure.TaskTail{}) {
			if err != nil {
				t.Fatal(err)
			}
			step = l.Step
		}
		if got := linesOf(t, t.Context(), app, w, perdure.TaskTail{Step: step, Follow: true}); !slices.Equal(got, want) {
			t.Errorf("lines of the step are %q", got)
		}
		if got := streamOf(t, t.Context(), app, w, perdure.TaskTail{Step: step, Follow: true}); !slices.Equal(got, items) {
			t.Errorf("stream of the step is %q", got)
		}
		for _, err := range app.Tasks().Stream(t.Context(), w, perdure.TaskTail{}) {
			if !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("the stream of a workflow without a step: %v", err)
			}
		}
	})
}

// A follower gets items while the task runs, and then its end. A follower that reconnects continues
// after the last item that it got.
func TestFollowATask(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		speak, said := speaker()
		follow(t, s.open(speak), speak, said)
	})
}

// A process can also follow a task that it neither executes nor owns.
func TestFollowATaskOfAnotherProcess(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		speak, said := speaker()
		s.open(speak)
		follow(t, s.open(), speak, said)
	})
}

// A task keeps writing while its execution moves to another process. The store carries the writes
// to the new owner.
func TestTaskWritesToAnotherProcess(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		const n = 8
		moved, began := make(chan struct{}), make(chan struct{}, n)
		carry := perdure.NewActivity("carry", func(ctx context.Context, n int) (int, error) {
			began <- struct{}{}
			<-moved
			for i := range 3 {
				perdure.Log(ctx).Info("line", "i", i)
				if err := errors.Join(perdure.StreamData(ctx, i), cursor.Save(ctx, i)); err != nil {
					return 0, perdure.Permanent(err)
				}
			}
			at, _, err := cursor.Load(ctx)
			return at, err
		}, perdure.OnQueue("work"))

		first := s.open(carry)
		c := caller(t, first)
		var all []perdure.Execution[int]
		for i := range n {
			x, err := carry.Submit(c, i, perdure.RawKey(fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
			<-began
		}

		second := s.open() // takes half of the tasks over
		close(moved)
		for i, x := range all {
			got, err := x.Result(c)
			equal(t, fmt.Sprint("task ", i), got, err, 2)
			if got := linesOf(t, t.Context(), second, x, perdure.TaskTail{}); !slices.Equal(got, []string{"INFO line i=0", "INFO line i=1", "INFO line i=2"}) {
				t.Errorf("lines of task %d are %q", i, got)
			}
			if got := streamOf(t, t.Context(), second, x, perdure.TaskTail{Follow: true}); !slices.Equal(got, []string{"1 data  0 0", "2 data  0 1", "3 data  0 2"}) {
				t.Errorf("stream of task %d is %q", i, got)
			}
		}
	})
}

// speaker is an activity that streams what it receives, until its channel is closed.
func speaker() (*perdure.Activity[int, perdure.Void], []chan string) {
	said := make([]chan string, 4) // so that each of two processes owns some of the tasks
	for i := range said {
		said[i] = make(chan string)
	}
	return perdure.NewActivity("speak", func(ctx context.Context, n int) (perdure.Void, error) {
		for text := range said[n] {
			perdure.Log(ctx).Info("said", "text", text)
			if err := perdure.StreamToken(ctx, text); err != nil {
				return perdure.Void{}, err
			}
		}
		return perdure.Void{}, nil
	}, perdure.OnQueue("work")), said
}

func follow(t *testing.T, app *perdure.App, speak *perdure.Activity[int, perdure.Void], said []chan string) {
	c := caller(t, app)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for n := range said {
		x, err := speak.Submit(c, n, perdure.RawKey(fmt.Sprint(n)))
		if err != nil {
			t.Fatal(err)
		}
		said[n] <- "a"

		var heard []string
		for it, err := range app.Tasks().Stream(ctx, x, perdure.TaskTail{Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if heard = append(heard, fmt.Sprint(it.Position, it.Text)); it.Text == "b" {
				break
			}
			said[n] <- "b"
		}

		for it, err := range app.Tasks().Stream(ctx, x, perdure.TaskTail{Follow: true, After: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			heard = append(heard, fmt.Sprint(it.Position, it.Text))
			switch it.Text {
			case "b":
				said[n] <- "c"
			case "c":
				close(said[n])
			}
		}

		if want := []string{"1a", "2b", "2b", "3c"}; !slices.Equal(heard, want) {
			t.Errorf("task %d: got %q, want %q", n, heard, want)
		}
		if got, want := linesOf(t, ctx, app, x, perdure.TaskTail{Follow: true}), []string{"INFO said text=a", "INFO said text=b", "INFO said text=c"}; !slices.Equal(got, want) {
			t.Errorf("task %d: lines are %q", n, got)
		}
		if _, err := x.Result(c); err != nil {
			t.Error(err)
		}
	}
}

// Exceeding a bound is an error that names the bound, and changes nothing.
func TestTaskDataLimits(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var problems []string
		wants := func(what string, err, want error, text string) {
			if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), text) {
				problems = append(problems, fmt.Sprintf("%s: %v, want %v with %q", what, err, want, text))
			}
		}

		greedy := perdure.NewActivity("greedy", func(ctx context.Context, _ string) (int, error) {
			wants("a name", perdure.NewState[int]("a\x01b").Save(ctx, 1), perdure.ErrInvalid, "control character")
			wants("a long name", perdure.NewState[int](strings.Repeat("n", 201)).Save(ctx, 1), perdure.ErrInvalid, "200")
			wants("a large value", perdure.NewState[string]("s").Save(ctx, strings.Repeat("x", 3<<20)), perdure.ErrInvalid, "at most")
			wants("all values", perdure.NewState[string]("s").Save(ctx, strings.Repeat("x", 1<<20)), perdure.ErrExhausted, "1048576")
			wants("a large item", perdure.StreamToken(ctx, strings.Repeat("x", 70_000)), perdure.ErrInvalid, "65536")

			for i := range model.MaxTaskStates {
				if err := perdure.NewState[int](fmt.Sprint("state ", i)).Save(ctx, i); err != nil {
					return 0, perdure.Permanent(err)
				}
			}

			wants("one more", perdure.NewState[int]("more").Save(ctx, 1), perdure.ErrExhausted, "256 states")
			if err := perdure.NewState[int]("state 0").Remove(ctx); err != nil {
				return 0, perdure.Permanent(err)
			}
			wants("after a removal", perdure.NewState[int]("more").Save(ctx, 1), nil, "<nil>")

			for i := range model.KeptStreamItems + 10 {
				if err := perdure.StreamData(ctx, i); err != nil {
					return 0, perdure.Permanent(err)
				}
			}

			return 1, nil
		}, perdure.OnQueue("work"))

		inline := perdure.NewActivity("inline", func(ctx context.Context, _ string) (int, error) {
			_, _, err := cursor.Load(ctx)
			wants("inline load", err, perdure.ErrInvalid, "OnQueue")
			wants("inline save", cursor.Save(ctx, 1), perdure.ErrInvalid, "OnQueue")
			wants("inline remove", cursor.Remove(ctx), perdure.ErrInvalid, "OnQueue")
			wants("inline stream", perdure.StreamToken(ctx, "x"), nil, "<nil>")
			perdure.Log(ctx).Info("goes to the logger of the app")
			return 2, nil
		})

		flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, in string) (int, error) { return inline.Run(ctx, in) }, perdure.Uses(inline))
		var logged strings.Builder
		s.cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		app := s.open(greedy, flow, inline)
		c := caller(t, app)
		got, err := flow.Run(c, "", perdure.RawKey("w"))
		equal(t, "inline", got, err, 2)
		x, err := greedy.Submit(c, "", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}

		got, err = x.Result(c)
		equal(t, "the task", got, err, 1)
		for _, p := range problems {
			t.Error(p)
		}
		if perdure.Log(t.Context()).Info("nowhere"); !strings.Contains(logged.String(), `msg="goes to the logger of the app" workflow=flow key=w`) {
			t.Error("a line of an inline activity is not in the log of the app")
		}
		kept := streamOf(t, t.Context(), app, x, perdure.TaskTail{})
		if len(kept) != model.KeptStreamItems || !strings.HasPrefix(kept[0], "11 data") {
			t.Errorf("%d items are kept, the first is %q", len(kept), kept[0])
		}
	})
}

// States and streamed items are stored in encrypted form, and log lines of a task never reach the
// log of the process.
func TestTaskDataIsSealed(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var logged strings.Builder
		s.cfg.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s.cfg.Payloads = payload.Codec{Chain: []payload.Transform{payload.Encrypt(ring(t, "k1"))}}
		secret := perdure.NewState[string]("secret")

		hide := perdure.NewActivity("hide", func(ctx context.Context, in string) (string, error) {
			perdure.Log(ctx).Info("a line")
			if err := errors.Join(perdure.StreamToken(ctx, in), secret.Save(ctx, in)); err != nil {
				return "", err
			}
			got, _, err := secret.Load(ctx)
			return got, err
		}, perdure.OnQueue("work"))

		app := s.open(hide)
		c := caller(t, app)
		x, err := hide.Submit(c, "password", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(c)
		equal(t, "the task", got, err, "password")
		got, _, err = secret.Read(c, x)
		equal(t, "the state", got, err, "password")

		for it, err := range app.Tasks().Stream(t.Context(), x, perdure.TaskTail{}) {
			if err != nil || it.Text != "password" || !strings.Contains(it.ValueIs, "aes") {
				t.Errorf("streamed %+v, %v", it, err)
			}
		}

		if strings.Contains(logged.String(), "a line") || strings.Contains(logged.String(), "password") {
			t.Error("what a task writes is in the log of the process")
		}
	})
}
