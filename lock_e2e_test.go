package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// branch is a bank whose transfers lock both accounts.
type branch struct {
	*bank
	transfers *perdure.Workflow[transfer, int]
	hold      *perdure.Workflow[string, string]
	release   *perdure.Signal[string]
	tokens    chan heldUnder
	token     *perdure.Activity[string, int64]
}

func newBranch() *branch {
	b := &branch{bank: newBank(), release: perdure.NewSignal[string]("release")}
	b.transfers = perdure.NewWorkflow("transfer", func(ctx perdure.WorkflowCtx, t transfer) (left int, err error) {
		err = ctx.Lock(perdure.LockSet{b.accounts.Ref(t.From), b.accounts.Ref(t.To)}, func(ctx perdure.WorkflowCtx) error {
			if left, err = b.withdraw.Call(ctx, t.From, cents{t.Cents}); err != nil {
				return err
			}
			_, err := b.deposit.Call(ctx, t.To, cents{t.Cents})
			return err
		})
		return left, err
	})

	b.token = perdure.NewActivity("token", func(ctx context.Context, key string) (int64, error) {
		token, ok := perdure.Fence(ctx, b.accounts.Ref(key))
		if _, other := perdure.Fence(ctx, b.accounts.Ref("other")); !ok || other {
			return 0, perdure.Permanent(fmt.Errorf("locked: %v, other: %v", ok, other))
		}
		return token, nil
	})

	b.hold = perdure.NewWorkflow("hold", func(ctx perdure.WorkflowCtx, key string) (string, error) {
		var word string
		return word, ctx.Lock(perdure.LockSet{b.accounts.Ref(key)}, func(ctx perdure.WorkflowCtx) (err error) {
			token, err := b.token.Run(ctx, key)
			if err != nil {
				return err
			}
			b.tokens <- heldUnder{ctx.Self().Key, token} //perdure:allow channel the test looks at what the activity was given
			if word, err = b.release.Receive(ctx); word == "fail" {
				return errors.New("as told")
			}
			return err
		})
	})

	return b
}

// onBranches runs a test with a branch in each store. more returns definitions that refer to the
// branch.
func onBranches(t *testing.T, more func(*branch) perdure.Group, test func(t *testing.T, b *branch, c perdure.Client, app *perdure.App)) {
	t.Helper()
	for _, run := range []func(*testing.T, perdure.Group, func(*testing.T, perdure.Client, *perdure.App)){inMemory, inFile} {
		b := newBranch()
		defs := perdure.Group{b.bank.group(), b.transfers, b.hold, b.token}
		if more != nil {
			defs = append(defs, more(b)...)
		}
		run(t, defs, func(t *testing.T, c perdure.Client, app *perdure.App) {
			b.tokens = make(chan heldUnder, 16) // made here, inside the synctest bubble
			test(t, b, c, app)
		})
	}
}

// heldUnder is the token under which a run of hold has its lock.
type heldUnder struct {
	run   string
	token int64
}

// tokenOf waits until a run has its lock. The engine may replay an earlier run, whose code reports
// its token once more. tokenOf ignores that second report.
func (b *branch) tokenOf(run string) int64 {
	for {
		if h := <-b.tokens; h.run == run {
			return h.token
		}
	}
}

// wantFree demands that no account is locked. The message that frees an account may not have
// arrived yet. So wantFree first calls the account, and the call waits for that message.
func (b *branch) wantFree(t *testing.T, c perdure.Client, app *perdure.App, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := b.deposit.Call(c, key, cents{1}); err != nil {
			t.Fatal(err)
		}
	}
	for info, err := range app.Locks().List(t.Context(), "account") {
		t.Errorf("locked in the end: %+v, %v", info, err)
	}
}

// Concurrent transfers in all directions end and lose nothing (L26, L40).
func TestTransfersUnderLocks(t *testing.T) {
	t.Parallel()
	onBranches(t, nil, func(t *testing.T, b *branch, c perdure.Client, _ *perdure.App) {
		const accounts, rounds = 4, 20
		key := func(i int) string { return fmt.Sprint("acc-", i%accounts) }
		for i := range accounts {
			if _, err := b.deposit.Call(c, key(i), cents{100}); err != nil {
				t.Fatal(err)
			}
		}

		var all sync.WaitGroup
		for i := range rounds {
			all.Go(func() {
				_, err := b.transfers.Run(c, transfer{key(i), key(i*i + 1), 1 + i%7}, perdure.RawKey(fmt.Sprint(i)))
				if err != nil && !strings.Contains(err.Error(), "insufficient") {
					t.Error(err)
				}
			})
		}

		all.Wait()
		sum := 0
		for i := range accounts {
			s, _, err := b.accounts.Get(c, key(i))
			if err != nil {
				t.Fatal(err)
			}
			sum += s.Cents
		}

		if sum != 100*accounts {
			t.Errorf("the accounts hold %d, want %d", sum, 100*accounts)
		}
	})
}

// No matter how the run that holds a lock ends, the next execution gets the lock, with a larger
// token (L28, L37).
func TestLockEndsWithItsRun(t *testing.T) {
	t.Parallel()
	onBranches(t, nil, func(t *testing.T, b *branch, c perdure.Client, app *perdure.App) {
		type ending struct {
			name string
			end  func(perdure.Ref) error
		}

		last := int64(0)
		for _, e := range []ending{
			{"completed", func(r perdure.Ref) error { return b.release.Send(c, r, "go") }},
			{"failed", func(r perdure.Ref) error { return b.release.Send(c, r, "fail") }},
			{"canceled", func(r perdure.Ref) error { return r.Cancel(c, "enough") }},
			{"terminated", func(r perdure.Ref) error { return app.Executions().Terminate(t.Context(), r, "enough") }},
			{"last", func(r perdure.Ref) error { return b.release.Send(c, r, "go") }},
		} {
			run, err := b.hold.Start(c, "a", perdure.RawKey(e.name))
			if err != nil {
				t.Fatal(err)
			}
			token := b.tokenOf(e.name)
			if token <= last {
				t.Errorf("%s has token %d, and the one before had %d", e.name, token, last)
			}
			last = token
			later := make(chan error, 1)

			go func() { // waits until the lock is free
				_, err := b.deposit.Call(c, "a", cents{1})
				later <- err
			}()

			next, err := b.transfers.Start(c, transfer{"a", "b", 0}, perdure.RawKey("after "+e.name))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.end(run.Ref); err != nil {
				t.Fatal(e.name, err)
			}

			if err := <-later; err != nil {
				t.Error(e.name, err)
			}
			if _, err := next.Result(c); err != nil {
				t.Error(e.name, err)
			}
		}

		b.wantFree(t, c, app, "a", "b")
	})
}

// A wait for a lock that exceeds its deadline ends and leaves nothing locked (L32, L39).
func TestLockTimesOut(t *testing.T) {
	t.Parallel()
	var patient *perdure.Workflow[string, string]
	waits := func(b *branch) perdure.Group {
		patient = perdure.NewWorkflow("patient", func(ctx perdure.WorkflowCtx, key string) (string, error) {
			err := ctx.WithTimeout(10*time.Millisecond).Lock(perdure.LockSet{b.accounts.Ref("free"), b.accounts.Ref(key)}, func(perdure.WorkflowCtx) error {
				return errors.New("it has the lock")
			})
			if !errors.Is(err, perdure.ErrTimeout) {
				return "", fmt.Errorf("the error is %w", err)
			}
			// The account "free" was locked first. After the time-out it is no longer locked.
			left, err := b.deposit.Call(ctx, "free", cents{1})
			return fmt.Sprint(left), err
		})
		return perdure.Group{patient}
	}

	onBranches(t, waits, func(t *testing.T, b *branch, c perdure.Client, app *perdure.App) {
		run, err := b.hold.Start(c, "held", perdure.RawKey("h"))
		if err != nil {
			t.Fatal(err)
		}
		b.tokenOf("h")
		got, err := patient.Run(c, "held")
		want(t, got, err, "1")
		if err := b.release.Send(c, run, "go"); err != nil {
			t.Fatal(err)
		}
		word, err := run.Result(c)
		want(t, word, err, "go")
		b.wantFree(t, c, app, "free", "held")
	})
}

// For a wrong lock set, Lock returns ErrInvalid, and the execution may continue.
func TestLockIsInvalid(t *testing.T) {
	t.Parallel()
	var wrong *perdure.Workflow[perdure.Void, string]
	mistakes := func(b *branch) perdure.Group {
		wrong = perdure.NewWorkflow("wrong", func(ctx perdure.WorkflowCtx, _ perdure.Void) (string, error) {
			nothing := func(perdure.WorkflowCtx) error { return nil }
			errs := []error{
				ctx.Lock(nil, nothing),
				ctx.Lock(perdure.LockSet{{Type: "a/b", Key: "k"}}, nothing),
				ctx.Lock(perdure.LockSet{{Type: "account"}}, nothing),
				ctx.Lock(perdure.LockSet{b.accounts.Ref("a")}, nil),
			}

			err := ctx.Lock(perdure.LockSet{b.accounts.Ref("a")}, func(in perdure.WorkflowCtx) error {
				_, outside := b.deposit.Call(in, "b", cents{1})
				_, itself := b.deposit.Call(ctx, "a", cents{1}) //perdure:allow outerctx the test makes this mistake on purpose
				_, child := b.move.Run(in, transfer{})
				errs = append(errs, in.Lock(perdure.LockSet{b.accounts.Ref("c")}, nothing), outside, itself, child, b.deposit.Send(in, "a", cents{1}))
				return nil
			})

			for i, e := range errs {
				if !errors.Is(e, perdure.ErrInvalid) {
					return "", fmt.Errorf("error %d is %w", i, e)
				}
			}

			return "done", err
		})

		return perdure.Group{wrong}
	}

	onBranches(t, mistakes, func(t *testing.T, _ *branch, c perdure.Client, _ *perdure.App) {
		got, err := wrong.Run(c, perdure.Void{})
		want(t, got, err, "done")
	})
}

func TestFenceOutsideOfSteps(t *testing.T) {
	t.Parallel()
	if token, ok := perdure.Fence(t.Context(), perdure.EntityRef{Type: "account", Key: "a"}); ok || token != 0 {
		t.Errorf("token %d, %v", token, ok)
	}
}

// Inside Lock, an update of another execution is refused: the code of that execution may need an
// entity that is locked here, and both executions would wait for each other.
func TestUpdateInsideOfLock(t *testing.T) {
	t.Parallel()
	spend := perdure.NewUpdate[int, int]("spend")
	stop := perdure.NewSignal[string]("stop")

	onBranches(t, func(b *branch) perdure.Group {
		keeper := perdure.NewWorkflow("keeper", func(ctx perdure.WorkflowCtx, key string) (string, error) {
			spend.Handle(ctx, func(ctx perdure.WorkflowCtx, n int) (left int, err error) {
				err = ctx.Lock(perdure.LockSet{b.accounts.Ref(key)}, func(ctx perdure.WorkflowCtx) error {
					left, err = b.deposit.Call(ctx, key, cents{n})
					return err
				})
				return left, err
			})
			return stop.Receive(ctx)
		})

		asker := perdure.NewWorkflow("asker", func(ctx perdure.WorkflowCtx, key string) (string, error) {
			to := perdure.Ref{Workflow: "keeper", Key: key}
			err := ctx.Lock(perdure.LockSet{b.accounts.Ref(key)}, func(ctx perdure.WorkflowCtx) error {
				_, err := spend.Call(ctx, to, 5)
				return err
			})
			if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "inside Lock") {
				return "", perdure.Permanent(fmt.Errorf("the update inside of the lock: %w", err))
			}
			left, err := spend.Call(ctx, to, 5) // outside Lock, the update works
			return fmt.Sprint("refused, then ", left), err
		})

		return perdure.Group{keeper, asker}
	}, func(t *testing.T, _ *branch, c perdure.Client, _ *perdure.App) {
		keeper := perdure.DeclareWorkflow[string, string]("keeper")
		asker := perdure.DeclareWorkflow[string, string]("asker")
		exec, err := keeper.Start(c, "k", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := asker.Run(c, "k", perdure.RawKey("a")); err != nil || got != "refused, then 5" {
			t.Errorf("%q, %v", got, err)
		}
		if err := stop.Send(c, exec, "done"); err != nil {
			t.Error(err)
		}
		if _, err := exec.Result(c); err != nil {
			t.Error(err)
		}
	})
}
