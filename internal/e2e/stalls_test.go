package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

// stall is one way in which an execution does not continue, and what every interface must say about
// it.
type stall struct {
	name string
	ref  perdure.Ref
	// want are texts that the main reason must contain. because are texts that its cause must
	// contain.
	want, because []string
	code          model.ReasonCode
	// memory means that only the memory of the owner has the reason, so a process that has only the
	// file cannot know it.
	memory bool
}

// stalls is a set of executions that do not continue.
type stalls struct {
	t    *testing.T
	s    *site
	all  []stall
	free chan struct{} // closing it ends the blocked bodies

	squeeze *perdure.Operation[int, int]      // blocks its entity
	fill    *perdure.Activity[string, string] // blocks a slot
	deaf    *perdure.Workflow[string, string] // blocks in plain Go code, not in a durable call
	fills   int                               // tasks of fill
}

// The definitions of the stalls. The owner has no code of the declared activities.
var (
	stallWord   = perdure.NewSignal[string]("word")
	stallVow    = perdure.NewPromise[string]("vow")
	stallChange = perdure.NewUpdate[string, string]("change")
	stallBox    = perdure.NewEntity[int]("box")
	stallPut    = perdure.NewOperation(stallBox, "put", func(_ perdure.EntityCtx, n *int, by int) (int, error) { *n += by; return *n, nil })
	stallGhost  = perdure.DeclareOperation[int, int]("ghost", "haunt")

	stallUnserved = perdure.DeclareActivity[string, string]("unserved", perdure.OnQueue("nobody"))
	stallPaused   = perdure.NewActivity("paused", echo, perdure.OnQueue("closed"))
	stallBroken   = perdure.NewActivity("broken", echo, perdure.OnQueue("open"), perdure.Breaker("bank"))
	stallFails    = perdure.NewActivity("fails", func(context.Context, string) (string, error) { return "", errors.New("no luck") },
		perdure.OnQueue("open"), perdure.RetryPolicy{Initial: time.Hour, Max: time.Hour})
	stallInline = perdure.NewActivity("inline", func(context.Context, string) (string, error) { return "", errors.New("no luck either") },
		perdure.RetryPolicy{Initial: time.Hour, Max: time.Hour})
	stallMissing = perdure.DeclareActivity[string, string]("missing")
)

func echo(_ context.Context, s string) (string, error) { return s, nil }

// heldActivity is an activity that runs until the test ends, and takes the only permit of limit
// one.
func (w *stalls) heldActivity() *perdure.Activity[string, string] {
	return perdure.NewActivity("held", func(ctx context.Context, s string) (string, error) {
		select {
		case <-w.free:
		case <-ctx.Done():
		}
		return s, ctx.Err()
	}, perdure.OnQueue("open"), perdure.Limit("one"))
}

// flow is a workflow that does what its input says.
func (w *stalls) flow(held *perdure.Activity[string, string]) *perdure.Workflow[string, string] {
	flow := perdure.DeclareWorkflow[string, string]("flow")
	target := func(key string) perdure.Target { return flow.Execution(perdure.RawKey(key)).Ref }
	return perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, what string) (string, error) {
		verb, arg, _ := strings.Cut(what, " ")
		switch verb {
		case "signal":
			return stallWord.Receive(ctx)
		case "promise":
			return stallVow.Await(ctx)
		case "sleep":
			return "", ctx.Sleep(time.Hour)
		case "child":
			return flow.Run(ctx, arg, perdure.RawKey(ctx.Self().Key+"-child"))
		case "lock":
			return "", ctx.Lock(perdure.LockSet{stallBox.Ref(arg)}, func(ctx perdure.WorkflowCtx) error {
				_, err := stallWord.Receive(ctx)
				return err
			})
		case "put":
			_, err := stallPut.Call(ctx, arg, 1)
			return "", err
		case "remind":
			x := perdure.DeclareWorkflow[string, string](arg).Execution(perdure.RawKey("k"))
			return "", stallWord.Send(ctx, x, "go on")
		case "squeeze":
			_, err := w.squeeze.Call(ctx, arg, 1)
			return "", err
		case "fill":
			return w.fill.Run(ctx, "x")
		case "stow":
			_, err := stow.Call(ctx, arg, 1)
			return "", err
		case "haunt":
			_, err := stallGhost.Call(ctx, arg, 1)
			return "", err
		case "pair":
			if _, err := stallWord.Receive(ctx); err != nil {
				return "", err
			}
			return stallChange.Call(ctx, target(arg), "x")
		case "update":
			return stallChange.Call(ctx, target(arg), "x")
		case "unserved":
			return stallUnserved.Run(ctx, "x")
		case "paused":
			return stallPaused.Run(ctx, "x")
		case "broken":
			return stallBroken.Run(ctx, "x")
		case "held":
			return held.Run(ctx, "x")
		case "inline":
			return stallInline.Run(ctx, "x")
		case "missing":
			return stallMissing.Run(ctx, "x")
		}

		return "", perdure.Permanent(errors.New("does not know how to " + verb))
	})
}

// old returns the workflow whose code the next deploy changes.
func old(step string) *perdure.Workflow[string, string] {
	return perdure.NewWorkflow("changed", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := perdure.Do(ctx, step, func(context.Context) (bool, error) { return true, nil }); err != nil {
			return "", err
		}
		return stallWord.Receive(ctx)
	})
}

// large is a workflow that reaches the limit of its history.
var large = perdure.NewWorkflow("large", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
	for i := range 64 {
		if _, err := perdure.Do(ctx, fmt.Sprint("page ", i), func(context.Context) (string, error) { return strings.Repeat("x", 64<<10), nil }); err != nil {
			return "", err
		}
	}
	return "", nil
})

func waitsForWord(ctx perdure.WorkflowCtx, _ string) (string, error) { return stallWord.Receive(ctx) }

// add records a stall.
func (w *stalls) add(x stall) { w.all = append(w.all, x) }

// keyOf returns the key of a stall.
func keyOf(name string) string { return strings.ReplaceAll(name, " ", "-") }

// past starts executions that the next deploy cannot continue.
func (w *stalls) past() {
	t, s := w.t, w.s
	gone, pinned := perdure.DeclareWorkflow[string, string]("gone"), perdure.NewWorkflow("pinned", waitsForWord, perdure.Pinned())
	s.cfg.Version = "v1"
	app := s.open(gone.Bind(waitsForWord), pinned, old("a"), damaged, stallBox, perdure.NewWorkflow("newer", waitsForWordAfterStep))
	c := caller(t, app)
	for _, d := range []*perdure.Workflow[string, string]{gone, pinned, old("a"), damaged, perdure.NewWorkflow("newer", waitsForWordAfterStep)} {
		reason(t, app, mustStart(t, c, d, "x", perdure.RawKey("k")), "signal word")
	}
	_, err := stallPut.Call(c, "damaged", 1)
	if err := errors.Join(err, app.Close()); err != nil {
		t.Fatal(err)
	}

	w.add(stall{name: "code gone", ref: perdure.Ref{Workflow: "gone", Key: "k"}, code: model.WaitWorker, want: []string{"offers workflow gone", "no live process has its code"}})
	w.add(stall{name: "version gone", ref: perdure.Ref{Workflow: "pinned", Key: "k"}, code: model.WaitWorker, want: []string{"version v1 of workflow pinned", "no live process"}})
	w.add(stall{name: "changed code", ref: perdure.Ref{Workflow: "changed", Key: "k"}, code: model.WaitMismatch, want: []string{"replay mismatch"}})
	w.add(stall{name: "damaged history", ref: perdure.Ref{Workflow: "damaged", Key: "k"}, code: model.WaitCorrupt, want: []string{"cannot be read"}, memory: true})
	if s.kind == "postgres" { // SQLite has a checksum of the row
		w.add(stall{name: "newer history", ref: perdure.Ref{Workflow: "newer", Key: "k"}, code: model.WaitNewer, want: []string{"newer"}})
	}
}

func waitsForWordAfterStep(ctx perdure.WorkflowCtx, _ string) (string, error) {
	if _, err := perdure.Do(ctx, "step", func(context.Context) (bool, error) { return true, nil }); err != nil {
		return "", err
	}
	return stallWord.Receive(ctx)
}

// present starts everything that stalls while the owner runs.
func (w *stalls) present(owner *perdure.App, held *perdure.Activity[string, string], flow *perdure.Workflow[string, string]) {
	t := w.t
	c := caller(t, owner)
	for _, err := range []error{
		owner.Queues().Pause(t.Context(), "closed", "inventory"),
		owner.Breakers().Pause(t.Context(), "bank", time.Now().Add(time.Hour), "the bank is away"),
		owner.Limits().Set(t.Context(), perdure.LimitRule{Name: "one", Concurrency: 1}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(name, in string, code model.ReasonCode, want, because string) perdure.Ref {
		t.Helper()
		ref := mustStart(t, c, flow, in, perdure.RawKey(keyOf(name))).Ref
		x := stall{name: name, ref: ref, code: code, want: []string{want}}
		if because != "" {
			x.because = strings.Split(because, "|")
		}
		w.add(x)
		return ref
	}
	in := keyOf
	inMemory := func() { w.all[len(w.all)-1].memory = true }

	run("signal", "signal", model.WaitSignal, "signal word", "")
	run("promise", "promise", model.WaitPromise, "promise vow", "")
	run("timer", "sleep", model.WaitTimer, "timer until", "")
	run("child", "child signal", model.WaitChild, "child flow/"+in("child")+"-child", "flow/"+in("child")+"-child waits for signal word")
	holder := run("holder", "lock b", model.WaitSignal, "signal word", "")
	reason(t, owner, holder, "signal word") // it has the lock
	run("lock", "lock b", model.WaitLock, "lock of box/b, held by flow/"+holder.Key, holder.Key+" waits for signal word")
	run("child that waits for a lock", "child lock b", model.WaitChild, "waits for child", "waits for the lock of box/b, held by flow/"+holder.Key+"|flow/"+holder.Key+" waits for signal word")
	run("call of a locked entity", "put b", model.WaitAnswer, "answer of box/b to", "box/b waits for the lock of box/b, held by flow/"+holder.Key+"|"+holder.Key+" waits for signal word")
	run("call of an entity without code", "haunt g", model.WaitAnswer, "answer of ghost/g", "ghost/g waits for a worker that offers entity ghost")
	run("update without a handler", "update "+in("signal"), model.WaitAnswer, "answer of flow/"+in("signal"), "flow/"+in("signal")+" waits for signal word")
	one, two := in("one of two"), in("two of two")
	run("one of two", "pair "+two, model.WaitAnswer, "answer of flow/"+two, "they wait for each other")
	run("two of two", "pair "+one, model.WaitAnswer, "answer of flow/"+one, "they wait for each other")
	for _, key := range []string{one, two} {
		if err := stallWord.Send(c, flow.Execution(perdure.RawKey(key)), "begin"); err != nil {
			t.Fatal(err)
		}
	}
	run("inline activity that fails", "inline", model.WaitRetry, "after: no luck either", "")
	run("inline activity without code", "missing", model.WaitWorker, "offers activity missing", "")
	inMemory()

	first := run("holder of a limit", "held", model.WaitStep, "runs step held", "")
	reason(t, owner, first, "runs step held")
	run("task that waits for a limit", "held", model.WaitPermit, "waits for limit one: all 1 are held", "")
	inMemory()
	run("task on a queue without workers", "unserved", model.WaitWorker, "queue nobody, activity unserved: no live process serves it", "")
	run("task on a paused queue", "paused", model.WaitPaused, "queue closed, which is paused: inventory", "")
	run("task behind a breaker", "broken", model.WaitBreaker, "circuit breaker bank", "")
	paused := run("paused execution", "signal", model.WaitPaused, "is paused: audit", "")
	if err := owner.Executions().Pause(t.Context(), paused, "audit"); err != nil {
		t.Fatal(err)
	}

	submit := func(name string, a *perdure.Activity[string, string], code model.ReasonCode, want string, opts ...perdure.StartOption) {
		t.Helper()
		task, err := a.Submit(c, "x", append(opts, perdure.RawKey(keyOf(name)))...)
		if err != nil {
			t.Fatal(err)
		}
		w.add(stall{name: name, ref: task.Ref, code: code, want: []string{want}})
	}
	submit("lone task without workers", stallUnserved, model.WaitWorker, "queue nobody, activity unserved: no live process serves it")
	submit("lone task on a paused queue", stallPaused, model.WaitPaused, "queue closed, which is paused: inventory")
	submit("lone task behind a breaker", stallBroken, model.WaitBreaker, "circuit breaker bank")
	submit("lone task that waits for a limit", held, model.WaitPermit, "waits for limit one: all 1 are held")
	inMemory()
	submit("delayed task", stallPaused, model.WaitTimer, "timer until", perdure.Delay(time.Hour))
	submit("task that fails", stallFails, model.WaitRetry, "after: no luck")

	ghost := perdure.DeclareWorkflow[string, string]("ghost-flow")
	w.add(stall{
		name: "fresh without code", ref: mustStart(t, c, ghost, "x", perdure.RawKey("k")).Ref, code: model.WaitWorker,
		want: []string{"offers workflow ghost-flow: no live process has its code"},
	})
	w.add(stall{name: "large history", ref: mustStart(t, c, large, "x", perdure.RawKey("k")).Ref, code: model.WaitLimit, want: []string{"limit of its history"}})
	if err := stallWord.Send(c, perdure.Ref{Workflow: "changed", Key: "k"}, "go on"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"damaged", "newer"} {
		if name == "newer" && w.s.kind == "sqlite" {
			continue
		}
		// The signal makes the owner read the damaged row now. A process that does not own the
		// execution gets no answer before the row is repaired.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := stallWord.Send(owner.With(ctx), perdure.Ref{Workflow: name, Key: "k"}, "go on")
		cancel()
		if err == nil {
			t.Errorf("%s takes a signal", name)
		}
	}
}
