package corpus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
)

// drawn has values that must be equal on replay. It is the input of an activity, and so part of the
// identity of the step.
type drawn struct {
	Now    int64
	UUID   string
	Number int
}

func draw(ctx perdure.WorkflowCtx) drawn {
	return drawn{ctx.Now().UnixMicro(), ctx.UUID(), ctx.Rand().IntN(1_000_000)}
}

var (
	record = perdure.NewActivity("record", func(_ context.Context, d drawn) (string, error) { return "recorded " + d.UUID, nil })
	double = perdure.NewActivity("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

	word   = perdure.NewSignal[string]("word")
	choice = perdure.NewPromise[string]("choice")
	second = perdure.NewPromise[string]("second")
)

func do(ctx perdure.WorkflowCtx, name string, opts ...perdure.CallOption) (string, error) {
	return perdure.Do(ctx, name, func(context.Context) (string, error) { return name, nil }, opts...)
}

// steps runs inline steps with all possible outcomes, in sequence, in a loop and in parallel.
var steps = perdure.NewWorkflow("steps", func(ctx perdure.WorkflowCtx, n int) (string, error) {
	first, err := record.Run(ctx, draw(ctx))
	if err != nil {
		return "", err
	}

	for i := range n {
		if _, err := do(ctx, "loop", perdure.StepKey(fmt.Sprint(i))); err != nil {
			return "", err
		}
	}

	_, err = perdure.Do(ctx, "shaky", func(c context.Context) (int, error) {
		if perdure.Attempt(c) < 3 {
			return 0, errors.New("not yet")
		}
		return 3, nil
	}, perdure.Constant(5, time.Millisecond))
	if err != nil {
		return "", err
	}

	_, hopeless := perdure.Do(ctx, "hopeless", func(context.Context) (int, error) { return 0, perdure.Permanent(errors.New("never")) })
	twos, err := perdure.All(ctx, double.Go(ctx, 1), double.Go(ctx, 2), double.Go(ctx, 1))
	if err != nil {
		return "", err
	}

	branch := func(name string) *perdure.Future[string] {
		return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (string, error) {
			if _, err := do(ctx, "same"); err != nil {
				return "", err
			}
			return record.Run(ctx, draw(ctx))
		})
	}

	a, b := branch("a"), branch("b")
	if err := perdure.Wait(ctx, a, b); err != nil {
		return "", err
	}
	last, err := record.Run(ctx, draw(ctx))

	return fmt.Sprint(first, hopeless, twos, last), err
})

// timers has sleeps, deadlines and withdrawn timers.
var timers = perdure.NewWorkflow("timers", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
	if err := ctx.Sleep(2 * time.Millisecond); err != nil {
		return "", err
	}
	_, late := word.Receive(ctx.WithTimeout(2 * time.Millisecond))
	slow := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (string, error) { return "slow", ctx.Sleep(time.Hour) })
	fast := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (string, error) { return "fast", ctx.Sleep(time.Millisecond) })
	winner, err := perdure.Race(ctx, slow, fast)
	if err != nil {
		return "", err
	}

	alarm := ctx.Timer(time.Hour)
	soon := ctx.Timer(time.Millisecond)
	first, err := perdure.Select(ctx, alarm, soon)
	if err != nil || first != soon {
		return "", fmt.Errorf("the wrong timer: %w", err)
	}
	alarm.Cancel(ctx)
	done, err := record.Run(ctx, draw(ctx))

	return fmt.Sprint(late, winner, done), err
})

// messages receives signals in every possible way, and waits for promises.
var messages = perdure.NewWorkflow("messages", func(ctx perdure.WorkflowCtx, n int) (string, error) {
	var got []string
	for range n {
		w, err := word.Receive(ctx)
		if err != nil {
			return "", err
		}
		got = append(got, w)
	}

	next := word.Next(ctx)
	if _, err := perdure.Select(ctx, next, ctx.Timer(time.Hour)); err != nil {
		return "", err
	}
	w, err := next.Get(ctx)
	if err != nil {
		return "", err
	}

	got = append(got, w)
	chosen, err := choice.Await(ctx)
	if err != nil {
		return "", err
	}
	_, refused := second.Await(ctx)
	if w, ok := word.TryReceive(ctx); ok {
		got = append(got, w)
	}

	return fmt.Sprint(strings.Join(got, " "), chosen, refused), nil
})

// family starts children of all kinds, watches other executions, and sends messages to them.
var family = perdure.NewWorkflow("family", func(ctx perdure.WorkflowCtx, key string) (string, error) {
	one, err := leaf.Run(ctx, "one")
	if err != nil {
		return "", err
	}
	keyed, err := leaf.Start(ctx, "wait", perdure.RawKey(key+"-keyed"), perdure.AbandonChild)
	if err != nil {
		return "", err
	}

	_, failed := leaf.Run(ctx, "fail")
	if err := word.Send(ctx, keyed, "from the parent"); err != nil {
		return "", err
	}
	said, err := keyed.Result(ctx)
	if err != nil {
		return "", err
	}

	watched, err := leaf.Execution(perdure.RawKey("other")).Result(ctx)
	if err != nil {
		return "", err
	}
	_, late := leaf.Run(ctx.WithTimeout(2*time.Millisecond), "wait")
	polled, err := keyed.Poll(ctx)

	return fmt.Sprint(one, failed, said, watched, late, polled.Status), err
})

// leaf returns its name, fails, or waits for a signal.
var leaf = perdure.NewWorkflow("leaf", func(ctx perdure.WorkflowCtx, name string) (string, error) {
	switch name {
	case "fail":
		return "", errors.New("a leaf fell")
	case "wait":
		return word.Receive(ctx)
	}
	return do(ctx, name)
})

// canceled waits until it is cancelled, and cleans up.
var canceled = perdure.NewWorkflow("canceled", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
		_, err := do(ctx, "undo")
		return err
	})
	if _, err := do(ctx, "act"); err != nil {
		return "", err
	}
	_, err := word.Receive(ctx)
	return "", err
})

// versions has a change of its code behind ctx.Version.
var versions = perdure.NewWorkflow("versions", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
	if ctx.Version("receipt", 0, 1) == 0 {
		return do(ctx, "old")
	}
	return do(ctx, "receipt")
})

// relay continues as new while it has signals that its code has not received.
var relay = perdure.DeclareWorkflow[int, string]("relay")

func runRelay(ctx perdure.WorkflowCtx, left int) (string, error) {
	w, err := word.Receive(ctx)
	if err != nil {
		return "", err
	}
	if left == 0 {
		return w, nil
	}
	return "", relay.ContinueAsNew(left - 1)
}

// repaired fails while fragile is set. The recorder forks a failed run with an edited result of the
// failing step. Later the recorder clears fragile, and then retries and resets the run.
var repaired = perdure.NewWorkflow("repaired", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
	before, err := record.Run(ctx, draw(ctx))
	if err != nil {
		return "", err
	}
	child, err := leaf.Run(ctx, "one")
	if err != nil {
		return "", err
	}

	fixed, err := perdure.Do(ctx, "fragile", func(context.Context) (string, error) {
		if fragile.Load() {
			return "", errors.New("broken")
		}
		return "whole", nil
	}, perdure.Constant(2, time.Millisecond))
	if err != nil {
		return "", err
	}

	after, err := record.Run(ctx, draw(ctx))
	return fmt.Sprint(before, child, fixed, after), err
})

var (
	add   = perdure.NewUpdate[int, int]("add")
	total = perdure.NewState[int]("total")
	shop  = perdure.DeclareWorkflow[int, string]("shop", perdure.Pinned())
)

// runShop serves updates over two runs, shows a total, and signals one execution that exists and
// one that does not.
func runShop(ctx perdure.WorkflowCtx, round int) (string, error) {
	sum, _ := total.Get(ctx)
	add.Handle(ctx, func(ctx perdure.WorkflowCtx, n int) (int, error) {
		got, err := double.Run(ctx, n)
		if err != nil {
			return 0, err
		}
		sum += got
		return sum, total.Set(ctx, sum)
	}, func(n int) error {
		if n < 0 {
			return errors.New("less than nothing")
		}
		return nil
	})

	ctx.OnInterrupt(func(ctx perdure.WorkflowCtx, why string) error {
		_, err := do(ctx, "interrupted by "+why)
		return err
	})

	if _, err := word.Receive(ctx); err != nil {
		return "", err
	}
	if err := ctx.WaitUpdates(); err != nil {
		return "", err
	}
	if round == 1 {
		return "", shop.ContinueAsNew(2)
	}

	heard := word.Send(ctx, leaf.Execution(perdure.RawKey("shop")), "from the shop")
	missing := word.Send(ctx, leaf.Execution(perdure.RawKey("nobody")), "hello")
	if err := errors.Join(total.Clear(ctx), ctx.SetLabel("stage", "closing"), ctx.SetLabel("stage", "")); err != nil {
		return "", err
	}

	return fmt.Sprint(sum, heard, missing != nil, len(word.Drain(ctx))), nil
}

// till is a machine that charges, waits for a signal, and gives up after a while.
type till struct{ perdure.Events }

var tills = perdure.NewMachine[int, string]("till", func(int) *till { return &till{} })

func (*till) OnStart() perdure.Actions {
	return perdure.Actions{double.Schedule("charge", 21), perdure.StartTimer("late", time.Hour)}
}

func (*till) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	n, err := double.Result(e)
	if err != nil {
		return perdure.Actions{perdure.Fail(err)}
	}
	return perdure.Actions{leaf.Child("leaf", fmt.Sprint("till ", n))}
}

func (*till) OnChildClosed(perdure.ChildClosed) perdure.Actions { return nil }

func (*till) OnSignal(e perdure.SignalReceived) perdure.Actions {
	v, _ := word.Value(e)
	return perdure.Actions{perdure.CancelAction("late"), tills.Complete(v)}
}

// posted is an activity of a queue. snoozed says whether it has asked to be tried again later.
var (
	snoozed atomic.Bool
	posted  = perdure.NewActivity("posted", func(ctx context.Context, in string) (string, error) {
		switch {
		case in == "shaky" && perdure.Attempt(ctx) < 3:
			return "", errors.New("not yet")
		case in == "snooze" && !snoozed.Swap(true):
			return "", perdure.Snooze(time.Millisecond)
		case in == "hopeless":
			return "", perdure.Permanent(errors.New("never"))
		}
		return "posted " + in, nil
	}, perdure.OnQueue("post"), perdure.Constant(5, time.Millisecond))
)

// post runs activities of a queue, with all possible outcomes. The last two wait in a queue without
// a worker.
var post = perdure.NewWorkflow("post", func(ctx perdure.WorkflowCtx, word string) (string, error) {
	first, err := posted.Run(ctx, word)
	if err != nil {
		return "", err
	}
	both, err := perdure.All(ctx, posted.Go(ctx, "shaky"), posted.Go(ctx, "snooze"))
	if err != nil {
		return "", err
	}
	_, hopeless := posted.Run(ctx, "hopeless")
	_, late := posted.Run(ctx, "late", perdure.OnQueue("nobody"), perdure.ScheduleToStart(10*time.Millisecond))
	_, given := posted.Run(ctx.WithTimeout(time.Millisecond), "given up", perdure.OnQueue("nobody"))
	return fmt.Sprint(first, both, hopeless, late, given), nil
})

type purse struct{ Cents int }

var (
	purses = perdure.NewEntity[purse]("purse")
	put    = perdure.NewOperation(purses, "put", func(_ perdure.EntityCtx, p *purse, cents int) (int, error) {
		if p.Cents+cents < 0 {
			return 0, errors.New("there is not so much")
		}
		p.Cents += cents
		return p.Cents, nil
	})
	weigh = perdure.NewView(purses, "weigh", func(p purse, _ perdure.Void) (int, error) { return p.Cents, nil })
	bells = perdure.NewService("bell")
	ring  = perdure.NewRPC(bells, "ring", func(ctx perdure.EntityCtx, word string) (string, error) { return ctx.Key() + " " + word, nil })
)

// purchase calls entities and services, with and without waiting, and locks entities. It gives up
// waiting for the last lock.
var purchase = perdure.NewWorkflow("purchase", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
	_, err := put.Call(ctx, "buyer", cents)
	if err != nil {
		return "", err
	}
	if err := put.Send(ctx, "bank", 1); err != nil {
		return "", err
	}

	_, refused := put.Call(ctx, "buyer", -2*cents)
	var left int
	err = ctx.Lock(perdure.LockSet{purses.Ref("seller"), purses.Ref("buyer")}, func(ctx perdure.WorkflowCtx) error {
		if _, err := put.Call(ctx, "buyer", -cents/2); err != nil {
			return err
		}
		if _, err := double.Run(ctx, cents); err != nil {
			return err
		}
		both, err := perdure.All(ctx, put.Go(ctx, "seller", cents/2), put.Go(ctx, "buyer", 0))
		if err == nil {
			left = both[1]
		}
		return err
	})
	if err != nil {
		return "", err
	}

	failed := ctx.Lock(perdure.LockSet{purses.Ref("seller")}, func(perdure.WorkflowCtx) error { return errors.New("changed my mind") })
	seen, err := weigh.Call(ctx, "seller", perdure.Void{})
	if err != nil {
		return "", err
	}
	state, exists, err := purses.Get(ctx, "buyer")
	if err != nil {
		return "", err
	}

	rang, err := ring.Call(ctx, "door", "sold")
	if err != nil {
		return "", err
	}
	held := ctx.WithTimeout(time.Millisecond).Lock(perdure.LockSet{purses.Ref("held")}, func(perdure.WorkflowCtx) error { return nil })

	return fmt.Sprint(refused, left, failed, seen, state, exists, rang, held), nil
})

// holder locks an entity until it receives a signal.
var holder = perdure.NewWorkflow("holder", func(ctx perdure.WorkflowCtx, key string) (string, error) {
	return "held", ctx.Lock(perdure.LockSet{purses.Ref(key)}, func(ctx perdure.WorkflowCtx) error {
		_, err := word.Receive(ctx)
		return err
	})
})

// definitions returns all definitions.
func definitions() perdure.Group {
	return perdure.Group{
		record, double, steps, timers, messages, family, leaf, canceled, versions, relay.Bind(runRelay), repaired, shop.Bind(runShop), tills, posted, post,
		purses, bells, purchase, holder,
	}
}
