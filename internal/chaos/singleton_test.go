package chaos_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// envSingleton makes a victim define a singleton, and do nothing else until SIGTERM.
const envSingleton = "PERDURE_CHAOS_SINGLETON"

const singletonLease = 2 * time.Second

// stints counts the runs of the singleton in this process.
var stints atomic.Int64

// stepper is a singleton whose position is a count. It records every saved count in the ledger,
// with its epoch.
func stepper(l ledger) *perdure.Singleton[int] {
	return perdure.NewSingleton("stepper", func(ctx context.Context, at *perdure.Position[int]) error {
		n, err := at.Last()
		if err != nil {
			return err
		}
		fmt.Printf("stint %d: epoch %d\n", stints.Add(1), at.Epoch())
		for ctx.Err() == nil {
			// The save ignores the end of ctx, so that its result is always known.
			if err := at.Save(context.WithoutCancel(ctx), n+1); err != nil {
				break
			}
			n++
			if err := l.writeLine(fmt.Sprintf("%d %d", n, at.Epoch())); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}

		<-ctx.Done() // a refused save ends ctx too
		fmt.Printf("told %d: %v\n", at.Epoch(), context.Cause(ctx))
		return nil
	}, perdure.SingletonLease(singletonLease))
}

// writeLine appends a line to the ledger.
func (l ledger) writeLine(line string) error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		return err
	}
	return f.Close()
}

// awaitStint waits until the process runs the singleton for the nth time, and returns the epoch. A
// process whose request was answered too late asks again, so epochs can have gaps.
func (p *process) awaitStint(n int, within time.Duration) (epoch int) {
	p.t.Helper()
	if _, err := fmt.Sscanf(p.awaitLine(fmt.Sprintf("stint %d:", n), within), "epoch %d", &epoch); err != nil {
		p.t.Fatal(err)
	}
	return epoch
}

// A singleton moves to another process when its process is killed, stopped past its lease, or
// closed. The saved counts come from one process after the other, without a gap.
func TestSingletonMovesBetweenProcesses(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Minute
	url := pgtest.URL(t)
	l := newLedger(t)
	start := func() *process { return spawn(t, url, duty{l, 0, singletonLease}, envSingleton+"=1") }

	first := start()
	first.awaitStint(1, limit)
	second := start()
	second.awaitLine("up", limit)
	first.kill()
	epoch := second.awaitStint(1, limit)

	third := start()
	third.awaitLine("up", limit)
	second.signal(syscall.SIGSTOP)
	next := third.awaitStint(1, limit)
	second.signal(syscall.SIGCONT)
	if told := second.awaitLine(fmt.Sprintf("told %d:", epoch), limit); !strings.Contains(told, "no longer runs the singleton") {
		t.Errorf("the process that was stopped is told %q", told)
	}

	third.retire(limit)
	if told := third.awaitLine(fmt.Sprintf("told %d:", next), limit); told != "the app closes" {
		t.Errorf("the process that closes is told %q", told)
	}
	epoch = second.awaitStint(2, limit)
	second.retire(limit)

	text, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	epochs := map[int]int{} // the epoch in which each count was saved
	top := 0
	for line := range strings.Lines(string(text)) {
		var n, epoch int
		if _, err := fmt.Sscan(line, &n, &epoch); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if other, twice := epochs[n]; twice {
			t.Errorf("%d is saved in epochs %d and %d", n, other, epoch)
		}
		epochs[n], top = epoch, max(top, n)
	}

	// A process that is killed may have saved one count that it did not record.
	missing := 0
	for n, last := 1, 0; n <= top; n++ {
		epoch, ok := epochs[n]
		switch {
		case !ok:
			missing++
		case epoch < last:
			t.Errorf("%d is saved in epoch %d after epoch %d", n, epoch, last)
		default:
			last = epoch
		}
	}
	if missing > 1 || top < 4 {
		t.Errorf("%d counts are missing of %d", missing, top)
	}

	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	info, err := stepper(l).Describe(app.With(t.Context()))
	if err != nil || info.Holder != "" || info.Epoch < int64(epoch) || info.Position != top {
		t.Errorf("the singleton is %+v, %v; want epoch %d or later, at %d", info, err, epoch, top)
	}
}
