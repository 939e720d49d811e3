package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// ledger is a file with one line for each body of a step or a task that has run. A second file says
// when and in which process it ran, and a third one has one line for each reply that a client got.
type ledger struct{ path string }

// ledgerOf returns the ledger of this process, which all processes share.
func ledgerOf() ledger { return ledger{setting("LEDGER")} }

// body records that a body runs.
func (l ledger) body(key, step string) error {
	id := key + "#" + step
	where := fmt.Sprintf("%s %s in process %d of %s", id, time.Now().UTC().Format(time.RFC3339Nano), os.Getpid(), setting("NAME"))
	return errors.Join(appendLine(l.path, id), appendLine(l.path+".trace", where))
}

// ended records that a client has the result of an execution.
func (l ledger) ended(what string) error { return appendLine(l.path+".heard", "ended "+what) }

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// chainSteps is the number of steps of a chain. The first attempt of step flakyStep fails.
const (
	chainSteps = 6
	flakyStep  = 4
)

var (
	chains    = perdure.DeclareWorkflow[string, int]("chain")
	families  = perdure.DeclareWorkflow[string, int]("family")
	gates     = perdure.DeclareWorkflow[string, string]("gate")
	talks     = perdure.DeclareWorkflow[string, int]("talk")
	marathons = perdure.DeclareWorkflow[legs, []int]("marathon")
	transfers = perdure.DeclareWorkflow[transfer, perdure.Void]("transfer")

	open = perdure.NewSignal[int]("open")
	word = perdure.NewPromise[string]("word")
	leg  = perdure.NewSignal[int]("leg")
	plus = perdure.NewUpdate[int, int]("plus")
	sum  = perdure.NewQuery[perdure.Void, int]("sum")

	job = perdure.DeclareActivity[string, string]("job", perdure.OnQueue("jobs"), perdure.Constant(100, 10*time.Millisecond))
)

// visit is the input of a workflow whose task runs on the worker with this name.
type visit struct{ Key, Worker string }

// visitName is the name of the workflow of visits of a worker. All workers have the same workflow,
// unless the test wants workers with different code.
func visitName(worker string) string {
	if setting("DIFFERENT") != "" {
		return "visit-" + worker
	}
	return "visit"
}

func visitOf(worker string) *perdure.Workflow[visit, string] {
	//perdure:allow constname the test chooses whether workers have different code
	return perdure.DeclareWorkflow[visit, string](visitName(worker))
}

// queueOf is a queue that only one worker serves.
func queueOf(worker string) string { return "jobs-" + worker }

// counters are entities that count calls.
var (
	counters = perdure.NewEntity[int]("counter")
	add      = perdure.NewOperation(counters, "add", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
		*n += by
		return *n, nil
	})
	look = perdure.NewView(counters, "look", func(n int, _ perdure.Void) (int, error) { return n, nil })
)

// account is an entity with an amount and the number of its bookings. Only transfers that have
// locked an account book on it.
type account struct{ Cents, Bookings int }

var (
	accounts = perdure.NewEntity[account]("account")
	book     = perdure.NewOperation(accounts, "book", func(_ perdure.EntityCtx, a *account, cents int) (account, error) {
		a.Cents += cents
		a.Bookings++
		return *a, nil
	})
	read = perdure.NewOperation(accounts, "read", func(_ perdure.EntityCtx, a *account, _ perdure.Void) (account, error) { return *a, nil })
)

// transfer moves a cent between two accounts.
type transfer struct{ From, To string }

// legs is the input of a marathon: the signals that it has received.
type legs struct {
	Key string
	Got []int
}

// lastLeg is the signal that ends a marathon.
const lastLeg = -1

// definitions returns the code of a worker.
func definitions(l ledger, worker string) perdure.Group {
	return perdure.Group{
		counters, accounts,
		chains.Bind(func(ctx perdure.WorkflowCtx, key string) (int, error) { return runChain(ctx, l, key) }),
		families.Bind(runFamily),
		gates.Bind(runGate),
		talks.Bind(runTalk),
		marathons.Bind(func(ctx perdure.WorkflowCtx, in legs) ([]int, error) { return runMarathon(ctx, l, in) }),
		transfers.Bind(runTransfer),
		visitOf(worker).Bind(func(ctx perdure.WorkflowCtx, v visit) (string, error) { return runVisit(ctx, l, v) }),
		job.Bind(func(_ context.Context, key string) (string, error) { return worker, l.body(key, "job") }),
	}
}

// runChain runs steps with pauses.
func runChain(ctx perdure.WorkflowCtx, l ledger, key string) (total int, err error) {
	for i := range chainSteps {
		n, err := perdure.Do(ctx, "square", func(actx context.Context) (int, error) {
			if err := l.body(key, strconv.Itoa(i)); err != nil {
				return 0, err
			}
			if i == flakyStep && perdure.Attempt(actx) == 1 {
				return 0, errors.New("the first attempt fails")
			}
			return i * i, nil
		}, perdure.StepKey(strconv.Itoa(i)), perdure.Constant(10, time.Millisecond))
		if err != nil {
			return 0, err
		}

		total += n
		if err := ctx.Sleep(10 * time.Millisecond); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// runFamily runs two chains at the same time.
func runFamily(ctx perdure.WorkflowCtx, key string) (int, error) {
	a := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return chains.Run(ctx, key+"/a", perdure.RawKey(key+"/a")) })
	b, err := chains.Run(ctx, key+"/b", perdure.RawKey(key+"/b"))
	if err != nil {
		return 0, err
	}
	n, err := a.Get(ctx)
	return n + b, err
}

// runGate waits for three signals and a promise.
func runGate(ctx perdure.WorkflowCtx, _ string) (string, error) {
	total := 0
	for range 3 {
		n, err := open.Receive(ctx)
		if err != nil {
			return "", err
		}
		total += n
	}
	w, err := word.Await(ctx)
	return fmt.Sprint(w, " ", total), err
}

// runTalk adds up the values of updates until its promise is resolved.
func runTalk(ctx perdure.WorkflowCtx, _ string) (total int, err error) {
	sum.Handle(ctx, func(perdure.Void) (int, error) { return total, nil })
	plus.Handle(ctx, func(_ perdure.WorkflowCtx, n int) (int, error) {
		total += n
		return total, nil
	})
	_, err = word.Await(ctx)
	return total, err
}

// runMarathon receives signals and runs a step for each of them. It continues as new after every
// three signals.
func runMarathon(ctx perdure.WorkflowCtx, l ledger, in legs) ([]int, error) {
	for range 3 {
		n, err := leg.Receive(ctx)
		if err != nil || n == lastLeg {
			return in.Got, err
		}
		if _, err := perdure.Do(ctx, "run", func(context.Context) (int, error) { return n, l.body(in.Key, strconv.Itoa(n)) }, perdure.StepKey(strconv.Itoa(n))); err != nil {
			return nil, err
		}
		in.Got = append(slices.Clone(in.Got), n)
	}
	return nil, marathons.ContinueAsNew(in)
}

// runTransfer locks two accounts and moves a cent. It fails if another caller changes an account in
// between.
func runTransfer(ctx perdure.WorkflowCtx, t transfer) (out perdure.Void, err error) {
	return out, ctx.Lock(perdure.LockSet{accounts.Ref(t.From), accounts.Ref(t.To)}, func(ctx perdure.WorkflowCtx) error {
		for _, b := range []struct {
			account string
			cents   int
		}{{t.From, -1}, {t.To, 1}} {
			before, err := read.Call(ctx, b.account, perdure.Void{})
			if err != nil {
				return err
			}
			after, err := book.Call(ctx, b.account, b.cents)
			if err != nil {
				return err
			}
			if want := (account{before.Cents + b.cents, before.Bookings + 1}); after != want {
				return perdure.Permanent(fmt.Errorf("account %s has %+v, want %+v: another caller has changed it during the lock", b.account, after, want))
			}
		}
		return nil
	})
}

// runVisit calls an entity, pauses, and runs a task on the worker that it visits.
func runVisit(ctx perdure.WorkflowCtx, l ledger, v visit) (string, error) {
	if _, err := perdure.Do(ctx, "arrive", func(context.Context) (int, error) { return 0, l.body(v.Key, "arrive") }); err != nil {
		return "", err
	}
	if _, err := add.Call(ctx, "visits-"+v.Worker, 1); err != nil {
		return "", err
	}
	if err := ctx.Sleep(10 * time.Millisecond); err != nil {
		return "", err
	}
	//perdure:allow constname the input names the worker
	return job.Run(ctx, v.Key, perdure.OnQueue(queueOf(v.Worker)))
}
