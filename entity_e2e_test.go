package perdure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/perduretest"
)

// onStores runs a test on the memory store, in a synctest bubble, and on a file.
func onStores(t *testing.T, defs perdure.Group, test func(t *testing.T, c perdure.Client, app *perdure.App)) {
	t.Helper()
	inMemory(t, defs, test)
	inFile(t, defs, test)
}

func inMemory(t *testing.T, defs perdure.Group, test func(t *testing.T, c perdure.Client, app *perdure.App)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		with(t, test, defs)
	})
}

func inFile(t *testing.T, defs perdure.Group, test func(t *testing.T, c perdure.Client, app *perdure.App)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		app, err := embedded.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "e.db"), defs)
		if err != nil {
			t.Fatal(err)
		}
		test(t, app.With(t.Context()), app)
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ---- the bank

type (
	account struct {
		Cents int
		Notes []string `json:",omitempty"`
	}
	cents    struct{ Cents int }
	transfer struct {
		From, To string
		Cents    int
	}
)

// bank is a program with accounts. Its operations also show what can go wrong.
type bank struct {
	accounts                *perdure.Entity[account]
	deposit, withdraw       *perdure.Operation[cents, int]
	shut, exists            *perdure.Operation[perdure.Void, bool]
	tell                    *perdure.Operation[transfer, int]
	balance                 *perdure.Operation[perdure.Void, int]
	fails, panics, oversize *perdure.Operation[cents, int]
	review                  *perdure.Workflow[string, string]
	move                    *perdure.Workflow[transfer, int]
	reviewed                *perdure.Signal[string]
}

var errPoor = errors.New("insufficient funds")

func newBank() *bank {
	b := &bank{accounts: perdure.NewEntity[account]("account"), reviewed: perdure.NewSignal[string]("reviewed")}
	b.review = perdure.NewWorkflow("review", func(ctx perdure.WorkflowCtx, key string) (string, error) {
		word, err := b.reviewed.Receive(ctx)
		return key + " " + word, err
	})

	b.deposit = perdure.NewOperation(b.accounts, "deposit", func(ctx perdure.EntityCtx, s *account, in cents) (int, error) {
		s.Cents += in.Cents
		if s.Cents > 1000_00 {
			if _, err := b.review.Start(ctx, ctx.Key(), perdure.RawKey(ctx.Key())); err != nil {
				return 0, err
			}
			return s.Cents, b.reviewed.Send(ctx, b.review.Execution(perdure.RawKey(ctx.Key())), "fine")
		}
		return s.Cents, nil
	})
	b.withdraw = perdure.NewOperation(b.accounts, "withdraw", func(_ perdure.EntityCtx, s *account, in cents) (int, error) {
		if s.Cents < in.Cents {
			return s.Cents, perdure.Permanent(errPoor)
		}
		s.Cents -= in.Cents
		return s.Cents, nil
	})

	b.shut = perdure.NewOperation(b.accounts, "close", func(ctx perdure.EntityCtx, _ *account, _ perdure.Void) (bool, error) {
		ctx.Delete()
		return ctx.Exists(), nil
	})
	b.exists = perdure.NewOperation(b.accounts, "exists", func(ctx perdure.EntityCtx, _ *account, _ perdure.Void) (bool, error) {
		return ctx.Exists(), nil
	})
	b.tell = perdure.NewOperation(b.accounts, "tell", func(ctx perdure.EntityCtx, s *account, t transfer) (int, error) {
		s.Cents -= t.Cents
		return s.Cents, b.deposit.Send(ctx, t.To, cents{t.Cents})
	})
	b.balance = perdure.NewView(b.accounts, "balance", func(s account, _ perdure.Void) (int, error) { return s.Cents, nil })
	spoil := func(name string, then func() (int, error)) *perdure.Operation[cents, int] {
		return perdure.NewOperation(b.accounts, name, func(ctx perdure.EntityCtx, s *account, in cents) (int, error) {
			s.Cents, s.Notes = -1, append(s.Notes, strings.Repeat("x", in.Cents))
			if _, err := b.review.Start(ctx, "spoilt", perdure.RawKey("spoilt")); err != nil {
				return 0, err
			}
			return then()
		})
	}
	b.fails = spoil("fails", func() (int, error) { return 7, errPoor })
	b.panics = spoil("panics", func() (int, error) { panic("oh") })
	b.oversize = spoil("oversize", func() (int, error) { return 7, nil })
	b.move = perdure.NewWorkflow("move", func(ctx perdure.WorkflowCtx, t transfer) (int, error) {
		if _, err := b.withdraw.Call(ctx, t.From, cents{t.Cents}); err != nil {
			return 0, err
		}
		return b.deposit.Go(ctx, t.To, cents{t.Cents}).Get(ctx)
	})
	return b
}

func (b *bank) group() perdure.Group { return perdure.Group{b.accounts, b.move, b.review} }

func TestBank(t *testing.T) {
	t.Parallel()
	b := newBank()
	onStores(t, b.group(), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := b.deposit.Call(c, "a", cents{100})
		want(t, got, err, 100)
		got, err = b.deposit.Call(c, "a", cents{50})
		want(t, got, err, 150)
		_, err = b.withdraw.Call(c, "a", cents{1000})
		if re := (*perdure.RemoteError)(nil); !errors.As(err, &re) || re.Message != "insufficient funds" {
			t.Errorf("the error is %#v", err)
		}
		got, err = b.move.Run(c, transfer{"a", "b", 30}, perdure.RawKey("m"))
		want(t, got, err, 30)
		got, err = b.balance.Call(c, "a", perdure.Void{})
		want(t, got, err, 120)
		got, err = b.balance.Call(c, "nobody", perdure.Void{})
		want(t, got, err, 0)
		s, ok, err := b.accounts.Get(c, "b")
		want(t, fmt.Sprint(s, ok), err, "{30 []} true")
		_, ok, err = b.accounts.Get(c, "nobody")
		want(t, ok, err, false)
	})
}

// The starts and signals that an operation sends take effect when the operation commits.
func TestOperationStartsAndSignals(t *testing.T) {
	t.Parallel()
	b := newBank()
	onStores(t, b.group(), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := b.deposit.Call(c, "rich", cents{2000_00})
		want(t, got, err, 2000_00)
		// The start message may not have arrived yet. In that case this Start starts the execution,
		// otherwise it attaches.
		run, err := b.review.Start(c, "rich", perdure.RawKey("rich"))
		if err != nil {
			t.Fatal(err)
		}
		word, err := run.Result(c)
		want(t, word, err, "rich fine")
	})
}

// Each one-way call runs once, and the calls of one sender run in the order in which it sent them.
// The same is true for calls that an entity sends.
func TestOneWayCalls(t *testing.T) {
	t.Parallel()
	b := newBank()
	onStores(t, b.group(), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		for range 20 {
			if err := b.deposit.Send(c, "a", cents{1}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := b.withdraw.Call(c, "a", cents{20}) // runs after the calls above
		want(t, got, err, 0)

		for range 3 { // the same request is one call
			if err := b.deposit.Send(c, "a", cents{2000_00}, perdure.RequestID("much")); err != nil {
				t.Fatal(err)
			}
		}
		run, err := b.review.Start(c, "b", perdure.RawKey("b")) // ends when b has the money
		if err != nil {
			t.Fatal(err)
		}
		got, err = b.tell.Call(c, "a", transfer{To: "b", Cents: 1500_00})
		want(t, got, err, 500_00)
		word, err := run.Result(c)
		want(t, word, err, "b fine")

		s, _, err := b.accounts.Get(c, "b")
		want(t, s.Cents, err, 1500_00)
	})
}

// A call that fails in any way does not change the state and sends nothing.
func TestFailedOperationChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBank()
	onStores(t, b.group(), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		if _, err := b.deposit.Call(c, "a", cents{9}); err != nil {
			t.Fatal(err)
		}
		unknown := perdure.DeclareOperation[cents, int]("account", "frobnicate")
		other := perdure.DeclareOperation[string, int]("account", "deposit")

		for name, c := range map[string]struct {
			call func() (int, error)
			want string
			is   error
		}{
			"an error":          {func() (int, error) { return b.fails.Call(c, "a", cents{1}) }, "insufficient funds", nil},
			"a panic":           {func() (int, error) { return b.panics.Call(c, "a", cents{1}) }, "panic: oh", nil},
			"too large a state": {func() (int, error) { return b.oversize.Call(c, "a", cents{3 << 20}) }, "state of entity account has", perdure.ErrInvalid},
			"unknown operation": {func() (int, error) { return unknown.Call(c, "a", cents{1}) }, `account has no "frobnicate" in this build: it has balance, close, deposit`, perdure.ErrNotFound},
			"another input":     {func() (int, error) { return other.Call(c, "a", "one") }, "input of operation deposit cannot be decoded", perdure.ErrInvalid},
		} {
			_, err := c.call()
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
		got, err := b.balance.Call(c, "a", perdure.Void{})
		want(t, got, err, 9)
		if _, err := b.review.Execution(perdure.RawKey("spoilt")).Poll(c); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("a failed operation has started a workflow: %v", err)
		}
		if _, err := b.fails.Call(c, "new", cents{1}); err == nil {
			t.Error("it did not fail")
		}
		_, ok, err := b.accounts.Get(c, "new")
		want(t, ok, err, false)
	})
}

func TestPanicOfAnOperation(t *testing.T) {
	t.Parallel()
	b := newBank()
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		_, err := b.panics.Call(c, "a", cents{1})
		if re := (*perdure.RemoteError)(nil); !errors.As(err, &re) || re.Kind != "panic" {
			t.Errorf("the error is %#v", err)
		}
	}, b.group())
}

func TestDeletedEntity(t *testing.T) {
	t.Parallel()
	b := newBank()
	onStores(t, b.group(), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		was, err := b.exists.Call(c, "a", perdure.Void{})
		want(t, was, err, false)
		was, err = b.exists.Call(c, "a", perdure.Void{}) // the first successful operation created the entity
		want(t, was, err, true)
		if _, err := b.deposit.Call(c, "a", cents{9}); err != nil {
			t.Fatal(err)
		}
		was, err = b.shut.Call(c, "a", perdure.Void{})
		want(t, was, err, true)
		_, ok, err := b.accounts.Get(c, "a")
		want(t, ok, err, false)
		was, err = b.shut.Call(c, "a", perdure.Void{})
		want(t, was, err, false)
		got, err := b.deposit.Call(c, "a", cents{1})
		want(t, got, err, 1)
	})
}

// Two calls with the same request id are one call, even when the first was answered long ago.
func TestRepeatedCall(t *testing.T) {
	t.Parallel()
	b := newBank()
	onStores(t, b.group(), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		for range 3 {
			got, err := b.deposit.Call(c, "a", cents{5}, perdure.RequestID("r"))
			want(t, got, err, 5)
		}
		for range 2 {
			if _, err := b.withdraw.Call(c, "a", cents{6}, perdure.RequestID("poor")); err == nil {
				t.Error("it did not fail")
			}
		}
		got, err := b.deposit.Call(c, "a", cents{5}, perdure.RequestID("another"))
		want(t, got, err, 10)
	})
}

// State survives the process.
func TestEntityOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	b, url := newBank(), "file:"+filepath.Join(t.TempDir(), "e.db")
	for life := 1; life <= 3; life++ {
		app, err := embedded.Open(t.Context(), url, b.group())
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.deposit.Call(app.With(t.Context()), "a", cents{1})
		want(t, got, err, life)
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls of one key run one at a time, and none is lost.
func TestOperationsOfOneKeyRunAlone(t *testing.T) {
	t.Parallel()
	var inside, most atomic.Int32
	counters := perdure.NewEntity[int]("counter")
	add := perdure.NewOperation(counters, "add", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
		if inside.Add(1) > 1 {
			most.Store(2)
		}
		runtime.Gosched()
		inside.Add(-1)
		*n += by
		return *n, nil
	})
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 20 {
					if _, err := add.Call(c, "one", 1); err != nil {
						t.Error(err)
					}
				}
			})
		}

		wg.Wait()
		n, _, err := counters.Get(c, "one")
		want(t, n, err, 200)
		if most.Load() > 1 {
			t.Error("two operations overlapped")
		}
	}, counters)
}

// Views and reads do not wait for a running operation.
func TestViewsBesideABusyEntity(t *testing.T) {
	t.Parallel()
	begun, open := make(chan struct{}), make(chan struct{})
	boxes := perdure.NewEntity[string]("box", perdure.OperationTimeout(time.Hour))
	put := perdure.NewOperation(boxes, "put", func(_ perdure.EntityCtx, s *string, v string) (string, error) {
		*s = v
		if v == "slow" {
			close(begun)
			<-open
		}
		return v, nil
	})

	look := perdure.NewView(boxes, "look", func(s, _ string) (string, error) { return s, nil })
	app, err := embedded.Open(t.Context(), "memory:", boxes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}()

	c := app.With(t.Context())
	if _, err := put.Call(c, "b", "first"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := put.Call(c, "b", "slow")
		done <- err
	}()
	<-begun
	got, err := look.Call(c, "b", "")
	want(t, got, err, "first")
	got, ok, err := boxes.Get(c, "b")
	want(t, fmt.Sprint(got, " ", ok), err, "first true")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := put.Call(app.With(ctx), "b", "never"); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, perdure.ErrTimeout) {
		t.Errorf("a call behind a busy one returned %v", err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A call waits while no process has the code of the entity. It runs when a process has the code.
func TestCallWaitsForTheCode(t *testing.T) {
	t.Parallel()
	b, url := newBank(), "file:"+filepath.Join(t.TempDir(), "e.db")
	app, err := embedded.Open(t.Context(), url, b.move)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.deposit.Send(app.With(t.Context()), "a", cents{5}); err != nil {
		t.Fatal(err)
	}

	if _, err := b.move.Start(app.With(t.Context()), transfer{"a", "b", 3}, perdure.RawKey("m")); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	if app, err = embedded.Open(t.Context(), url, b.group()); err != nil {
		t.Fatal(err)
	}

	got, err := b.move.Execution(perdure.RawKey("m")).Result(app.With(t.Context()))
	want(t, got, err, 3)
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
}

// A call of an entity whose state this build cannot read gets an error, and the state does not
// change.
func TestUnreadableState(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "e.db")
	texts, numbers := perdure.NewEntity[string]("thing"), perdure.NewEntity[int]("thing")
	set := perdure.NewOperation(texts, "set", func(_ perdure.EntityCtx, s *string, v string) (string, error) {
		*s = v
		return v, nil
	})

	add := perdure.NewOperation(numbers, "add", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
		*n += by
		return *n, nil
	})
	open := func(def perdure.Definition, use func(c perdure.Client)) {
		app, err := embedded.Open(t.Context(), url, def)
		if err != nil {
			t.Fatal(err)
		}
		use(app.With(t.Context()))
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}

	open(texts, func(c perdure.Client) {
		if _, err := set.Call(c, "x", "text"); err != nil {
			t.Fatal(err)
		}
	})
	open(numbers, func(c perdure.Client) {
		if _, err := add.Call(c, "x", 1); err == nil || !strings.Contains(err.Error(), "the state of thing/x cannot be read by this build") {
			t.Errorf("the error is %v", err)
		}
	})
	open(texts, func(c perdure.Client) {
		s, ok, err := texts.Get(c, "x")
		want(t, fmt.Sprint(s, " ", ok), err, "text true")
	})
}

// ---- from workflows

// A workflow that moves money moves it once, no matter where a crash interrupts it.
func TestMovesSurviveCrashes(t *testing.T) {
	t.Parallel()
	perduretest.Explore(t, func() perduretest.Scenario[string] {
		b := newBank()
		return perduretest.Scenario[string]{
			Definitions: b.group(),
			Drive: func(env *perduretest.Env) (string, error) {
				c := env.With()
				if _, err := b.deposit.Call(c, "a", cents{100}, perdure.RequestID("first")); err != nil {
					return "", err
				}
				if err := b.tell.Send(c, "a", transfer{To: "c", Cents: 10}, perdure.RequestID("told")); err != nil {
					return "", err
				}
				got, err := b.move.Run(c, transfer{"a", "b", 30}, perdure.RawKey("m"))
				if err != nil {
					return "", err
				}
				env.Settle()
				var all []string

				for _, key := range []string{"a", "b", "c"} {
					s, _, err := b.accounts.Get(env.With(), key)
					if err != nil {
						return "", err
					}
					all = append(all, fmt.Sprint(s.Cents))
				}
				return fmt.Sprint(got, all), nil
			},
		}
	})
}

// The journal records what a workflow reads from an entity, so a replay reads the same value.
func TestWorkflowReadsOnce(t *testing.T) {
	t.Parallel()
	b, goOn := newBank(), perdure.NewSignal[string]("go")
	look := perdure.NewWorkflow("look", func(ctx perdure.WorkflowCtx, key string) (string, error) {
		s, ok, err := b.accounts.Get(ctx, key)
		if err != nil {
			return "", err
		}
		n, err := b.balance.Call(ctx, key, perdure.Void{})
		if err != nil {
			return "", err
		}

		if _, err := goOn.Receive(ctx); err != nil {
			return "", err
		}
		again, _, err := b.accounts.Get(ctx, key)
		if err != nil {
			return "", err
		}

		return fmt.Sprint(s.Cents, ok, n, again.Cents), b.deposit.Send(ctx, key, cents{1})
	})
	perduretest.Run(t, append(b.group(), look), func(t *testing.T, env *perduretest.Env) {
		if _, err := b.deposit.Call(env.With(), "a", cents{7}); err != nil {
			t.Fatal(err)
		}
		run, err := look.Start(env.With(), "a", perdure.RawKey("l"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if _, err := b.deposit.Call(env.With(), "a", cents{1}); err != nil {
			t.Fatal(err)
		}
		env.Restart()
		if err := goOn.Send(env.With(), run, ""); err != nil {
			t.Fatal(err)
		}

		got, err := run.Result(env.With())
		want(t, got, err, "7 true 7 8")
		env.Settle()
		s, _, err := b.accounts.Get(env.With(), "a")
		want(t, s.Cents, err, 9)
	})
}

// A workflow needs no RequestID for a call, and can handle the error of an operation.
func TestWorkflowCalls(t *testing.T) {
	t.Parallel()
	b := newBank()
	calls := perdure.NewWorkflow("calls", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		_, err := b.deposit.Call(ctx, "a", cents{1}, perdure.RequestID("r"))
		if !errors.Is(err, perdure.ErrInvalid) {
			return "a RequestID is accepted", err
		}
		if _, err := b.deposit.Go(ctx, "a", cents{1}, perdure.RequestID("r")).Get(ctx); !errors.Is(err, perdure.ErrInvalid) {
			return "a RequestID is accepted", err
		}
		if err := b.deposit.Send(ctx, "a", cents{1}, perdure.RequestID("r")); !errors.Is(err, perdure.ErrInvalid) {
			return "a RequestID is accepted", err
		}
		if _, err := b.deposit.Call(ctx, "", cents{1}); !errors.Is(err, perdure.ErrInvalid) {
			return "an empty key is accepted", err
		}
		_, err = b.withdraw.Call(ctx, "a", cents{1})
		if re := (*perdure.RemoteError)(nil); !errors.As(err, &re) || re.Message != errPoor.Error() {
			return "no failure", err
		}

		fs := []*perdure.Future[int]{b.deposit.Go(ctx, "a", cents{1}), b.deposit.Go(ctx, "a", cents{1}), b.deposit.Go(ctx, "b", cents{1})}
		got, err := perdure.All(ctx, fs...)
		return fmt.Sprint(got), err
	})
	onStores(t, append(b.group(), calls), func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := calls.Run(c, "x", perdure.RawKey("k"))
		want(t, got, err, "[1 2 1]")
	})
}

// ---- services

type users struct {
	mu    sync.Mutex
	names map[string]string

	renamed chan struct{}
}

func (u *users) profile(ctx perdure.EntityCtx, _ perdure.Void) (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.names[ctx.Key()], nil
}

func (u *users) rename(ctx perdure.EntityCtx, name string) (perdure.Void, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names[ctx.Key()] += name
	u.renamed <- struct{}{}
	return perdure.Void{}, nil
}

type health struct {
	Ping *perdure.RPC[perdure.Void, string]
}

func addHealth(s *perdure.Service) health {
	return health{Ping: perdure.NewRPC(s, "ping", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) { return "ok " + ctx.Key(), nil })}
}

func TestGateway(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory:", "file:" + filepath.Join(t.TempDir(), "g.db")} {
		u := &users{names: map[string]string{}, renamed: make(chan struct{}, 10)}
		gateway := perdure.NewService("UserGateway", perdure.Concurrency(4), perdure.MaxIdle(2*time.Minute))
		profile := perdure.NewRPC(gateway, "get_profile", u.profile)
		rename := perdure.NewRPC(gateway, "update_profile", u.rename, perdure.Persisted())
		orders := perdure.NewService("OrderGateway")
		userHealth, orderHealth := addHealth(gateway), addHealth(orders)
		greet := perdure.NewWorkflow("greet", func(ctx perdure.WorkflowCtx, key string) (string, error) {
			if err := rename.Send(ctx, key, "!"); err != nil {
				return "", err
			}
			return profile.Call(ctx, key, perdure.Void{})
		})

		app, err := embedded.Open(t.Context(), store, gateway, orders, greet)
		if err != nil {
			t.Fatal(err)
		}
		c := app.With(t.Context())

		for range 2 {
			if _, err := rename.Call(c, "u-1", "eve", perdure.RequestID("once")); err != nil {
				t.Fatal(err)
			}
		}
		got, err := profile.Call(c, "u-1", perdure.Void{})
		want(t, got, err, "eve")
		got, err = userHealth.Ping.Call(c, "u-1", perdure.Void{})
		want(t, got, err, "ok u-1")
		got, err = orderHealth.Ping.Call(c, "o-1", perdure.Void{})
		want(t, got, err, "ok o-1")
		if err := rename.Send(c, "u-2", "bob"); err != nil {
			t.Fatal(err)
		}
		if err := userHealth.Ping.Send(c, "u-2", perdure.Void{}); err != nil {
			t.Fatal(err)
		}
		<-u.renamed // u-1
		<-u.renamed // u-2
		got, err = profile.Call(c, "u-2", perdure.Void{})
		want(t, got, err, "bob")
		got, err = greet.Run(c, "u-1", perdure.RawKey("g"))
		if err != nil || got != "eve" && got != "eve!" { // calls of a service may overlap
			t.Errorf("%q, %v", got, err)
		}
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Calls of one key of a service overlap up to its Concurrency.
func TestConcurrencyOfAService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int32
		s := perdure.NewService("slow", perdure.Concurrency(3))
		nap := perdure.NewRPC(s, "nap", func(perdure.EntityCtx, perdure.Void) (perdure.Void, error) {
			for n := inside.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Second) //perdure:allow clock the calls have to overlap
			inside.Add(-1)
			return perdure.Void{}, nil
		})

		app, err := embedded.Open(t.Context(), "memory:", s)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var wg sync.WaitGroup

		for range 12 {
			wg.Go(func() {
				if _, err := nap.Call(app.With(t.Context()), "k", perdure.Void{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 3 || time.Since(began) > 5*time.Second {
			t.Errorf("%d overlapped, in %s", most.Load(), time.Since(began))
		}
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ---- operations that refer to each other

type pings struct{ N int }

var (
	pingers = perdure.NewEntity[pings]("pinger")
	ping    = perdure.DeclareOperation[int, int]("pinger", "ping")
	pong    = perdure.DeclareOperation[int, int]("pinger", "pong")
	counted = perdure.NewSignal[int]("counted")
	witness = perdure.NewWorkflow("witness", func(ctx perdure.WorkflowCtx, _ string) (int, error) { return counted.Receive(ctx) })
)

func pingOperation(other *perdure.Operation[int, int]) func(perdure.EntityCtx, *pings, int) (int, error) {
	return func(ctx perdure.EntityCtx, s *pings, n int) (int, error) {
		if s.N++; n == 0 {
			return s.N, counted.Send(ctx, witness.Execution(perdure.RawKey(ctx.Key())), s.N)
		}
		return s.N, other.Send(ctx, ctx.Key(), n-1)
	}
}

func TestOperationsThatReferToEachOther(t *testing.T) {
	t.Parallel()
	defs := perdure.Group{witness, perdure.BindOperation(pingers, ping, pingOperation(pong)), perdure.BindOperation(pingers, pong, pingOperation(ping))}
	onStores(t, defs, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		run, err := witness.Start(c, "", perdure.RawKey("p"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ping.Call(c, "p", 9)
		want(t, got, err, 1)
		got, err = run.Result(c)
		want(t, got, err, 10)
	})
}

// Payload settings apply to states, calls and replies of every sender.
func TestEncryptedStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, err := payload.NewKeys("k", map[string][]byte{"k": bytes.Repeat([]byte{1}, 32)}, bytes.Repeat([]byte{2}, 32))
		if err != nil {
			t.Fatal(err)
		}
		b := newBank()
		app, err := embedded.Config{Payloads: payload.Codec{Format: payload.Msgpack, Chain: []payload.Transform{payload.Encrypt(keys)}}}.Open(t.Context(), "memory:", b.group())
		if err != nil {
			t.Fatal(err)
		}
		c := app.With(t.Context())
		got, err := b.deposit.Call(c, "a", cents{100})
		want(t, got, err, 100)
		if err := b.tell.Send(c, "a", transfer{To: "b", Cents: 10}); err != nil {
			t.Fatal(err)
		}

		got, err = b.move.Run(c, transfer{"a", "c", 30}, perdure.RawKey("m"))
		want(t, got, err, 30)
		synctest.Wait()

		for key, cents := range map[string]int{"a": 60, "b": 10, "c": 30} {
			s, _, err := b.accounts.Get(c, key)
			want(t, s.Cents, err, cents)
			got, err := b.balance.Call(c, key, perdure.Void{})
			want(t, got, err, cents)
		}
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
}
