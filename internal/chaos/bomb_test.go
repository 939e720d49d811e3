package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
	"github.com/perdure/perdure/internal/pgtest"
)

// envBomb makes the process run the calls of the entity bomb. One of the calls ends the process.
// With the value "deposits", no call ends it.
const envBomb = "PERDURE_CHAOS_BOMB"

// bombExit is the exit code of a process that a call has ended.
const bombExit = 33

var (
	explode = perdure.DeclareOperation[int, int]("bomb", "explode")
	add     = perdure.DeclareOperation[int, int]("bomb", "add")
)

type bombState struct{ N int }

// bombKeys are the keys of the called entities. One call of the first entity ends its process.
var bombKeys = []string{"a", "b", "c", "d", "e", "f"}

func bombDefinitions() perdure.Group {
	bombs := perdure.NewEntity[bombState]("bomb")
	perdure.NewOperation(bombs, "explode", func(perdure.EntityCtx, *bombState, int) (int, error) {
		os.Exit(bombExit)
		return 0, nil
	})
	perdure.NewOperation(bombs, "add", func(_ perdure.EntityCtx, s *bombState, n int) (int, error) {
		s.N += n
		return s.N, nil
	})
	return perdure.Group{bombs}
}

// settleBombs waits until all calls have run, except the call that ends its process. Then it prints
// a line.
func settleBombs(ctx context.Context, app *perdure.App) error {
	c := app.With(ctx)
	bombs := perdure.NewEntity[bombState]("bomb")
	for _, key := range bombKeys {
		for {
			s, _, err := bombs.Get(c, key)
			if err != nil {
				return err
			}
			if s.N > 2 {
				return fmt.Errorf("%s is %d: a call was made twice", key, s.N)
			}
			if s.N == 2 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}

	letters := 0
	for l, err := range app.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		fmt.Println("letter:", l)
		letters++
	}

	if letters != 1 {
		return errors.New("there is not one dead letter")
	}
	fmt.Println("settled")
	return nil
}

// deposits is how many calls each key gets in TestKilledProcessesLoseNoCall.
const deposits = 200

// settleDeposits prints "moved" when a call of each key has run since the start of the process, and
// "settled" when all calls have run.
func settleDeposits(ctx context.Context, app *perdure.App) error {
	c := app.With(ctx)
	bombs := perdure.NewEntity[bombState]("bomb")
	first := map[string]int{}
	for moved := false; ; {
		still, sum := 0, 0
		for _, key := range bombKeys {
			s, _, err := bombs.Get(c, key)
			if err != nil {
				return err
			}
			sum += s.N
			if _, ok := first[key]; !ok {
				first[key] = s.N
			}
			if s.N == first[key] && s.N < deposits {
				still++
			}
		}

		if still == 0 && !moved {
			fmt.Println("moved")
			moved = true
		}

		for l, err := range app.DeadLetters(ctx) {
			return errors.Join(fmt.Errorf("a dead letter: %v", l), err)
		}

		if sum == len(bombKeys)*deposits {
			fmt.Println("settled")
			return nil
		}

		time.Sleep(time.Millisecond)
	}
}

// The test kills processes while they run acknowledged calls that do no harm. Each process
// completes a call of each key before the test kills it. So no single call runs at the death of two
// processes, and the engine must not blame a call for these deaths. No call becomes a dead letter,
// and each call runs once.
func TestKilledProcessesLoseNoCall(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "deposits.db")
	idle := perdure.NewWorkflow("idle", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
	// without the code of the entity, so the calls wait
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, idle)
	if err != nil {
		t.Fatal(err)
	}
	var senders sync.WaitGroup
	for _, key := range bombKeys {
		for range 8 {
			senders.Go(func() {
				for range deposits / 8 {
					if err := add.Send(app.With(t.Context()), key, 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	senders.Wait()
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	l := newLedger(t)
	for range 6 {
		p := spawn(t, url, duty{l, 0, 10 * time.Second}, envBomb+"=deposits")
		p.awaitLine("moved", time.Minute)
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	last := spawn(t, url, duty{l, 0, 10 * time.Second}, envBomb+"=deposits")
	last.awaitLine("settled", time.Minute)
	last.retire(3 * time.Minute)
}

func TestCallThatEndsItsProcessSQLite(t *testing.T) {
	t.Parallel()
	callEndsItsProcess(t, "file:"+filepath.Join(t.TempDir(), "bomb.db"))
}

func TestCallThatEndsItsProcessPostgres(t *testing.T) {
	t.Parallel()
	callEndsItsProcess(t, pgtest.URL(t))
}

// A stored call kills three processes. The fourth process turns the call into a dead letter. All
// other calls run once: earlier and later calls of this key, and calls of other keys.
func callEndsItsProcess(t *testing.T, url string) {
	t.Helper()
	idle := perdure.NewWorkflow("idle", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
	// without the code of the entity, so the calls wait
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, idle)
	if err != nil {
		t.Fatal(err)
	}
	c := app.With(t.Context())
	send := func(op *perdure.Operation[int, int], key string) {
		t.Helper()
		if err := op.Send(c, key, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range bombKeys {
		send(add, key)
	}
	send(explode, bombKeys[0])
	for _, key := range bombKeys {
		send(add, key)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	l := newLedger(t)
	for i := 1; i <= 3; i++ {
		p := spawn(t, url, duty{l, 0, 10 * time.Second}, envBomb+"=1")
		select {
		case <-p.done:
		case <-time.After(3 * time.Minute):
			t.Fatalf("process %d lives:\n%s", i, p.text())
		}
		if code := p.ending().ExitStatus(); code != bombExit {
			t.Fatalf("process %d ended with %d:\n%s", i, code, p.text())
		}
	}
	fourth := spawn(t, url, duty{l, 0, 10 * time.Second}, envBomb+"=1")
	fourth.awaitLine("settled", 3*time.Minute)
	fourth.retire(3 * time.Minute)

	// The exit code means nothing here, because doctor also reports that the server of the tests
	// runs without fsync.
	var out, bad bytes.Buffer
	code := cli.Main(t.Context(), []string{"doctor", "--store", url}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &bad})
	if !strings.Contains(out.String(), "1 messages were refused") || !strings.Contains(out.String(), "processes died while explode") {
		t.Errorf("doctor: exit code %d, %s%s; want the call that was set aside", code, &out, &bad)
	}
}
