package perduretest

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

// bank is a service that moves money. It recognises repeated requests if they have keys.
type bank struct {
	mu      sync.Mutex
	seen    map[string]string
	balance int
}

func (b *bank) pay(ctx context.Context, cents int, key string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if receipt, ok := b.seen[key]; ok && key != "" {
		return receipt, nil
	}
	Effect(ctx, fmt.Sprintf("pay %d", cents))
	b.balance -= cents
	receipt := fmt.Sprintf("r%d", len(b.seen))
	if b.seen == nil {
		b.seen = map[string]string{}
	}
	b.seen[key] = receipt
	return receipt, nil
}

var (
	pay   = perdure.DeclareActivity[int, string]("pay")
	shut  = perdure.NewSignal[string]("shut")
	payer = perdure.NewWorkflow("payer", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
		first, err := pay.Run(ctx, cents)
		if err != nil {
			return "", err
		}
		if err := ctx.Sleep(time.Hour); err != nil {
			return "", err
		}
		second, err := pay.Run(ctx, 2*cents)
		if err != nil {
			return "", err
		}
		by, err := shut.Receive(ctx)
		return first + second + by, err
	})
)

// payment is a scenario with a bank. If keys is true, the program passes idempotency keys to the
// bank.
func payment(keys bool) func() Scenario[string] {
	return func() Scenario[string] {
		b := &bank{}
		return Scenario[string]{
			Definitions: perdure.Group{payer, pay.Bind(func(ctx context.Context, cents int) (string, error) {
				key := ""
				if keys {
					key = perdure.IdempotencyKey(ctx)
				}
				return b.pay(ctx, cents, key)
			})},
			Drive: func(env *Env) (string, error) {
				x, err := payer.Start(env.With(), 5, perdure.RawKey("p1"))
				if err != nil {
					return "", err
				}
				env.Advance(2 * time.Hour)
				if err := shut.Send(env.With(), x, "me", perdure.RequestID("s1")); err != nil && !errors.Is(err, perdure.ErrConflict) {
					return "", err
				}
				return x.Result(env.With())
			},
			Check: func() error {
				if b.balance != -15 {
					return fmt.Errorf("the balance is %d", b.balance)
				}
				return nil
			},
		}
	}
}

// TestExploreFindsNothing explores a correct program.
func TestExploreFindsNothing(t *testing.T) {
	t.Parallel()
	Explore(t, payment(true))
}

// exploreProblems collects the problems that Explore would report.
func exploreProblems[R any](t *testing.T, setup func() Scenario[R]) (problems []string, hits int) {
	t.Helper()
	x := explorer[R]{setup: setup, plain: runOnce(t, setup, point{}), again: map[string]int{}}
	if x.plain.hasFailed() {
		t.Fatal(x.plain.problems)
	}

	points, _ := x.points()
	for _, p := range points {
		r := runOnce(t, setup, p)
		if r.hit {
			hits++
		}
		r.compare(x.plain)
		for _, text := range r.problems {
			problems = append(problems, fmt.Sprintf("%s (%s): %s", p, r.commit, text))
		}
	}

	return problems, hits
}

// TestExploreFindsStepsThatAreNotIdempotent explores a program that passes no idempotency keys.
func TestExploreFindsStepsThatAreNotIdempotent(t *testing.T) {
	t.Parallel()
	problems, hits := exploreProblems(t, payment(false))
	text := strings.Join(problems, "\n")
	for _, want := range []string{
		`crash before commit 2 (step completed pay, a timer begins): step pay is not idempotent: effect "pay 5" happened twice; without a crash it happens once`,
		`effect "pay 10" happened twice`, "check: the balance is -20", "check: the balance is -25",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nhas no %q", text, want)
		}
	}
	if hits < 12 {
		t.Errorf("only %d crashes", hits)
	}
}

// TestExploreFindsOtherResults explores a workflow that reads outside state without a step, and a
// Drive function that is not repeatable.
func TestExploreFindsOtherResults(t *testing.T) {
	t.Parallel()
	problems, _ := exploreProblems(t, func() Scenario[int] {
		n := 0 // a variable that no step records
		count := perdure.NewWorkflow("count", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
			n++
			_, err := perdure.Do(ctx, "one", func(context.Context) (int, error) { return 1, nil })
			return n, err
		})
		return Scenario[int]{Definitions: perdure.Group{count}, Drive: func(env *Env) (int, error) {
			return count.Run(env.With(), 0, perdure.RawKey("c"))
		}}
	})
	if text := strings.Join(problems, "\n"); !strings.Contains(text, "the result is 2; without a crash it is 1") {
		t.Errorf("found %q", text)
	}

	problems, _ = exploreProblems(t, func() Scenario[int] {
		news := perdure.NewSignal[int]("news")
		sum := perdure.NewWorkflow("sum", func(ctx perdure.WorkflowCtx, _ int) (total int, err error) {
			for total < 10 {
				v, err := news.Receive(ctx)
				if err != nil {
					return 0, err
				}
				total += v
			}
			return total, nil
		})

		return Scenario[int]{Definitions: perdure.Group{sum}, Drive: func(env *Env) (int, error) {
			x, err := sum.Start(env.With(), 0, perdure.RawKey("s"))
			if err != nil {
				return 0, err
			}
			for _, v := range []int{4, 9} {
				if err := news.Send(env.With(), x, v); err != nil && !errors.Is(err, perdure.ErrConflict) {
					return 0, err
				}
			}
			return x.Result(env.With())
		}}
	})
	if text := strings.Join(problems, "\n"); !strings.Contains(text, "the result is") {
		t.Errorf("found %q", text)
	}
}

// TestExploreFindsWhatIsLeftOpen explores a Drive function that does not wait for an execution that
// it started.
func TestExploreFindsWhatIsLeftOpen(t *testing.T) {
	t.Parallel()
	problems, _ := exploreProblems(t, func() Scenario[int] {
		wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, n int) (int, error) { return n, ctx.Sleep(time.Hour) })
		lives := 0
		return Scenario[int]{Definitions: perdure.Group{wait}, Drive: func(env *Env) (int, error) {
			lives++
			_, err := wait.Start(env.With(), 1, perdure.RawKey("w"))
			if err != nil {
				return 0, err
			}
			if lives == 1 {
				env.Advance(2 * time.Hour)
			}
			return 1, nil
		}}
	})
	if text := strings.Join(problems, "\n"); !strings.Contains(text, "execution wait/w is left open: it waits for a timer until 2000-01-01T01:00:00") {
		t.Errorf("found %q", text)
	}
}

// TestPointsAreSpread checks MaxPoints.
func TestPointsAreSpread(t *testing.T) {
	t.Parallel()
	x := explorer[int]{plain: &trial[int]{commits: 50, maxPoints: 30}}
	points, left := x.points()
	if len(points) != 25 || left != 75 || points[0] != (point{1, false}) || points[24].commit < 45 {
		t.Errorf("%d points, %d left, %v", len(points), left, points)
	}
	if got := pattern("TestX/crash_after_commit_7"); got != "^TestX$/^crash_after_commit_7$" {
		t.Error(got)
	}
}
