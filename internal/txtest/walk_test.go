package txtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// quick is the workflow of the walks. It waits only briefly between attempts.
var quick = perdure.NewWorkflow("quick", func(ctx perdure.WorkflowCtx, t transfer) (string, error) {
	return settle.Run(ctx, t, perdure.Constant(0, time.Millisecond))
}).KeyedBy(func(t transfer) perdure.Key { return perdure.RawKey(t.ID) })

// onBanks runs a test on every kind of user's database.
func onBanks(t *testing.T, f func(t *testing.T, b *bank)) {
	t.Parallel()
	for _, k := range bankKinds {
		t.Run(k, func(t *testing.T) {
			t.Parallel()
			f(t, newBank(t, k))
		})
	}
}

// at plans a fault for one call of the process to the user's database.
func (f *faults) at(call int, a action) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call += f.calls
	f.plan = func(n int, _ string) action {
		if n == call {
			return a
		}
		return pass
	}
}

// TestEveryPoint makes every call to the user's database fail in every way, one at a time. After
// the death of a process, the next process has to wait for the end of a lease. To save time,
// processes die only at three points: before the outcome is claimed, before the commit and after
// the commit.
func TestEveryPoint(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		everyPoint(t, b, func(a action, call int) bool {
			return a < crashBefore || a == crashBefore && call == 2 || call == 7
		})
	})
}

func everyPoint(t *testing.T, b *bank, chosen func(a action, call int) bool) {
	e := newEngine(t)
	f := newFaults()
	l := e.live(t, f, quick, b.bind(settle, f, move))
	var done []transfer

	run := func(id string) {
		t.Helper()
		x := transfer{id, len(done) % accounts, (len(done) + 3) % accounts, 1 + len(done)}
		exec, err := quick.Start(caller(t, l.app), x)
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, x)
		finished := make(chan struct{})

		go func() {
			defer close(finished)
			_, _ = exec.Result(caller(t, l.app))
		}()

		select {
		case <-finished:
		case <-l.f.dead:
			f = newFaults()
			l = e.live(t, f, quick, b.bind(settle, f, move))
		}

		if got, err := exec.Result(caller(t, l.app)); err != nil || got != "done "+id {
			t.Fatalf("%s: %q, %v", id, got, err)
		}
		b.check(done)
	}

	before := f.calls
	run("clean")
	points := f.calls - before
	if points < 7 {
		t.Fatalf("a transfer made %d calls: %v", points, f.ops[before:])
	}

	for a := failBefore; a < pauseBefore; a++ {
		for call := 1; call <= points; call++ {
			if chosen(a, call) {
				f.at(call, a)
				run(fmt.Sprintf("%s %d", a, call))
			}
		}
	}
}

// zombie starts a transfer in a process that stops at the given call to the user's database. After
// that, zombie cuts the process off from the store of the engine. The method wake lets the process
// continue.
func zombie(t *testing.T, e *engine, b *bank, call int, a action) (*life, transfer) {
	t.Helper()
	f := newFaults()
	l := e.live(t, f, quick, b.bind(settle, f, move))
	f.at(call, a)
	x := transfer{"t1", 0, 1, 100}
	if _, err := quick.Start(caller(t, l.app), x); err != nil {
		t.Fatal(err)
	}
	select {
	case <-f.paused:
	case <-time.After(patience):
		t.Fatal("the process did not stop at the call")
	}
	l.store.Kill()
	return l, x
}

// wake lets a zombie continue, and waits until the zombie has ended.
func (l *life) wake() {
	close(l.f.resume)
	l.end()
}

// TestZombie pauses a process at each of its calls. Another process takes over. The first process
// continues when the other process has ended, or while the other process waits.
func TestZombie(t *testing.T) { zombies(t, []int{2, 7}) }

func zombies(t *testing.T, calls []int) {
	onBanks(t, func(t *testing.T, b *bank) {
		for _, call := range calls {
			for _, a := range []action{pauseBefore, pauseAfter} {
				t.Run(fmt.Sprintf("%s %d", a, call), func(t *testing.T) {
					t.Parallel()
					b := newBank(t, b.kind)
					e := newEngine(t)
					old, x := zombie(t, e, b, call, a)
					f := newFaults()
					l := e.live(t, f, quick, b.bind(settle, f, move))
					finished := make(chan error, 1)

					go func() {
						got, err := quick.Execution(perdure.RawKey(x.ID)).Result(caller(t, l.app))
						if err == nil && got != "done "+x.ID {
							err = errors.New(got)
						}
						finished <- err
					}()

					// A zombie that has started its transaction makes other processes wait.
					holds := call > 2 || call == 2 && a == pauseAfter
					if call == 7 && a == pauseAfter {
						holds = false
					}

					if !holds {
						if err := <-finished; err != nil {
							t.Fatal(err)
						}
						old.wake()
					} else {
						eventually(t, "the other one has come as far", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.calls >= 2 || b.kind == "sqlite" })
						old.wake()
						if err := <-finished; err != nil {
							t.Fatal(err)
						}
					}

					b.check([]transfer{x})
				})
			}
		}
	})
}

// TestZombieAfterFailureOrCancel wakes a zombie after another process has recorded a failure of the
// step or has cancelled the execution. The zombie finds that the outcome is claimed.
func TestZombieAfterFailureOrCancel(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		for _, how := range []string{"failed", "cancelled"} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				b := newBank(t, b.kind)
				e := newEngine(t)
				// The zombie has an open transaction and has not claimed the outcome.
				old, x := zombie(t, e, b, 2, pauseBefore)
				f := newFaults()

				l := e.live(t, f, quick, b.bind(settle, f, func(ctx context.Context, s session, in transfer) (string, error) {
					if how == "failed" {
						return "", perdure.Permanent(errors.New("no such account"))
					}
					<-ctx.Done()
					return "", ctx.Err()
				}))

				exec := quick.Execution(perdure.RawKey(x.ID))
				if how == "cancelled" {
					eventually(t, "the step runs", func() bool {
						info, err := l.app.Executions().Describe(t.Context(), exec)
						return err == nil && info.Reason == "runs step settle"
					})
					if err := exec.Cancel(caller(t, l.app), "enough"); err != nil {
						t.Fatal(err)
					}
					_, err := exec.Result(caller(t, l.app))
					checkError(t, err, perdure.ErrCanceled, "enough")
				} else {
					_, err := exec.Result(caller(t, l.app))
					checkError(t, err, nil, "no such account")
				}

				if n := b.int(`select count(*) from perdure_outcomes where outcome is not null`); n != 1 {
					t.Errorf("%d outcomes are claimed", n)
				}
				old.wake()
				b.check(nil)
			})
		}
	})
}

// TestStorm is a small version of TestLongThousandTransfers: calls to the user's database fail or
// lose their answers, processes die at random points, and two processes stop in the middle of a
// transfer and continue later.
func TestStorm(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) { storm(t, b, 100, 4, rand.New(rand.NewPCG(1, 100))) })
}

func storm(t *testing.T, b *bank, transfers, deaths int, rnd *rand.Rand) {
	e := newEngine(t)
	var mu sync.Mutex // guards rnd
	chance := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}

	stopped, crashes := 0, 0
	begin := func(fateful bool) *life {
		f := newFaults()
		l := e.live(t, f, quick, b.bind(settle, f, move))
		doom := 20 + chance(5*transfers/deaths) // calls until the process dies
		f.mu.Lock()

		f.plan = func(n int, _ string) action {
			switch {
			case fateful && n > doom:
				if chance(2) == 0 {
					return crashBefore
				}
				return crashAfter
			case chance(25) == 0:
				return failBefore + action(chance(4))
			}
			return pass
		}

		f.mu.Unlock()
		return l
	}

	// Two processes stop in the middle of a transfer, one before it has claimed the outcome and one
	// before it commits.
	var sleepers []*life
	var done []transfer
	for i, call := range []int{2, 7} {
		f := newFaults()
		l := e.live(t, f, quick, b.bind(settle, f, move))
		f.at(call, pauseBefore)
		// No other transfer needs the rows that this transfer locks.
		x := transfer{fmt.Sprintf("zombie %d", i), accounts - 1 - i, accounts - 1 - i, 7}
		if _, err := quick.Start(caller(t, l.app), x); err != nil {
			t.Fatal(err)
		}
		<-f.paused
		done = append(done, x)
		l.store.Kill()
		stopped++
		sleepers = append(sleepers, l)
	}

	wake := func() {
		for _, l := range sleepers {
			l.wake()
		}
		sleepers = nil
	}

	if b.kind == "sqlite" { // the second process holds the only lock
		sleepers[1].wake()
		sleepers = sleepers[:1]
	}

	l := begin(true)
	revive := func() *life {
		select {
		case <-l.f.dead:
			crashes++
			l = begin(crashes < deaths)
		default:
		}
		return l
	}

	results := make(chan error)
	for i := range transfers {
		x := transfer{fmt.Sprintf("t%d", i), i % (accounts - 2), (i*7 + 1) % (accounts - 2), 1 + i%50}
		done = append(done, x)
	}

	var lives sync.Mutex
	work := make(chan transfer)
	go func() {
		defer close(work)
		for _, x := range done {
			work <- x
		}
	}()

	for range 16 {
		go func() {
			for x := range work {
				results <- func() error {
					for end := time.Now().Add(4 * patience); ; {
						lives.Lock()
						l := revive()
						lives.Unlock()
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)

						go func() { // a process that dies never answers, so do not wait for it
							select {
							case <-l.f.dead:
								cancel()
							case <-ctx.Done():
							}
						}()

						got, err := quick.Run(l.app.With(ctx), x)
						cancel()
						if err == nil && got == "done "+x.ID {
							return nil
						}

						if time.Now().After(end) {
							info, _ := l.app.Executions().Describe(t.Context(), quick.Execution(perdure.RawKey(x.ID)))
							return fmt.Errorf("%s: %q, %w; it %s", x.ID, got, err, info.Reason)
						}
					}
				}()
			}
		}()
	}

	for i := range done {
		if i == len(done)/4 {
			wake()
		}
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}

	b.check(done)
	t.Logf("%d transfers, %d processes died, %d stood still", len(done), crashes, stopped)
	if crashes < deaths/2 {
		t.Errorf("only %d processes died", crashes)
	}
}
