package perduretest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
)

// jammed is a workflow that waits for something that the engine does not know.
var jammed = perdure.NewWorkflow("jammed", func(_ perdure.WorkflowCtx, _ int) (int, error) {
	//perdure:allow channel the tests are about it
	return <-make(chan int), nil
})

// wantStuck checks that a test has failed with the name of the execution, the place in its code,
// and what to do.
func wantStuck(t *testing.T, r *recorder) {
	t.Helper()
	for _, want := range []string{
		"execution jammed/k: code blocks outside durable calls at perduretest/stuck_test.go:", "wait with ctx.Sleep, a signal, a promise or a future",
		"chan receive",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%s\nhas no %q", r, want)
		}
	}
	if !r.Failed() {
		t.Error("the test has not failed")
	}
}

// TestCodeThatBlocksForever runs tests of code that blocks forever. Whatever the test waits for, it
// ends after seconds of virtual time, and not after 20 years of it, which would take hours.
func TestCodeThatBlocksForever(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(t *testing.T, env *Env){
		"for the result": func(t *testing.T, env *Env) {
			began := time.Now()
			if _, err := jammed.Run(env.With(), 1, perdure.RawKey("k")); err == nil || !strings.Contains(err.Error(), "stuck_test.go:") {
				t.Errorf("the error is %v", err)
			}
			if passed := time.Since(began); passed > time.Minute {
				t.Errorf("the call ended after %s", passed)
			}
		},
		"for the clock": func(t *testing.T, env *Env) {
			start(t, env)
			began := time.Now()
			env.fatal = func(err error) { panic(aborted{err}) }
			defer func() {
				a, _ := recover().(aborted)
				if a.err == nil || !strings.Contains(a.err.Error(), "stuck_test.go:") {
					t.Errorf("Advance ends the test with %v", a.err)
				}
				if passed := time.Since(began); passed > time.Minute {
					t.Errorf("Advance ended after %s", passed)
				}
			}()
			env.Advance(year)
		},
		"for time to pass": func(t *testing.T, env *Env) {
			start(t, env)
			time.Sleep(year)
		},
		"for a channel": func(t *testing.T, env *Env) {
			start(t, env)
			<-make(chan int)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}

			failing(r, func() {
				synctest.Test(t, func(t *testing.T) {
					Config{Patience: 20 * year}.run(t, r, jammed, wait)
				})
			})

			wantStuck(t, r)
		})
	}
}

// failing runs a test that leaves goroutines behind.
func failing(r *recorder, test func()) {
	defer leftBehind(r)
	test()
}

func start(t *testing.T, env *Env) {
	t.Helper()
	if _, err := jammed.Start(env.With(), 1, perdure.RawKey("k")); err != nil {
		t.Error(err)
	}
}

const year = 365 * 24 * time.Hour

// TestSlowCodeIsNotStuck runs code that is slow, but correct: the clock of the test stands still
// while it works. The body of a step takes long too, in virtual time, and this time does not count
// as time in which the code is stuck.
//
//perdure:allow clock the test is about it
func TestSlowCodeIsNotStuck(t *testing.T) {
	t.Parallel()
	busy := perdure.NewWorkflow("busy", func(ctx perdure.WorkflowCtx, n int) (sum int, err error) {
		for i := range n {
			sum += i % 7
		}
		_, err = perdure.Do(ctx, "long", func(context.Context) (int, error) {
			time.Sleep(time.Hour)
			return 0, nil
		})
		time.Sleep(time.Second) // such as a blob store that takes a second
		return sum, err
	})

	for _, once := range []bool{false, true} {
		Config{Once: once}.Run(t, busy, func(t *testing.T, env *Env) {
			if _, err := busy.Run(env.With(), 20_000_000); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExploreReportsCodeThatBlocks explores a program whose code blocks for a while.
//
//perdure:allow clock the test is about it
func TestExploreReportsCodeThatBlocks(t *testing.T) {
	t.Parallel()
	naps := perdure.NewWorkflow("naps", func(perdure.WorkflowCtx, int) (int, error) {
		time.Sleep(time.Hour)
		return 0, nil
	})
	r := runOnce(t, func() Scenario[int] {
		return Scenario[int]{Definitions: perdure.Group{naps}, Drive: func(env *Env) (int, error) { return naps.Run(env.With(), 1, perdure.RawKey("k")) }}
	}, point{})
	if all := strings.Join(r.problems, "\n"); !strings.Contains(all, "execution naps/k: code blocks outside durable calls at perduretest/stuck_test.go:") {
		t.Errorf("problems: %s", all)
	}
}

// TestStepThatNeverEnds runs a step whose body never returns. The test ends when its patience is
// over, and says in which step the execution is. Until then 20 years of virtual time pass, in which
// nothing looks at the execution again and again: that would take hours.
//
//perdure:allow channel,goroutine the test is about it
func TestStepThatNeverEnds(t *testing.T) {
	t.Parallel()
	endless := perdure.NewActivity("endless", func(context.Context, int) (int, error) { return <-make(chan int), nil })
	for name, code := range map[string]func(ctx perdure.WorkflowCtx) (int, error){
		"on the goroutine of the code": func(ctx perdure.WorkflowCtx) (int, error) { return endless.Run(ctx, 1) },
		"on its own goroutine":         func(ctx perdure.WorkflowCtx) (int, error) { return endless.Go(ctx, 1).Get(ctx) },
	} {
		for _, once := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return code(ctx) })
				r := &recorder{TB: t}

				failing(r, func() {
					synctest.Test(t, func(t *testing.T) {
						Config{Patience: 20 * year, Once: once}.run(t, r, perdure.Group{flow, endless}, func(_ *testing.T, env *Env) {
							_, _ = flow.Run(env.With(), 1, perdure.RawKey("k"))
						})
					})
				})

				for _, want := range []string{"175200h0m0s of virtual time have passed", "flow/k runs step endless"} {
					if !strings.Contains(r.String(), want) {
						t.Errorf("%s\nhas no %q", r, want)
					}
				}
			})
		}
	}
}

// TestReplayOfCodeThatBlocks replays a history with code that blocks forever. The replay says so
// after seconds of virtual time.
func TestReplayOfCodeThatBlocks(t *testing.T) {
	t.Parallel()
	before := perdure.NewWorkflow("jammed", func(_ perdure.WorkflowCtx, n int) (int, error) { return n, nil })
	history := exported(t, Config{}, before, func(env *Env) (perdure.Ref, error) {
		_, err := before.Run(env.With(), 1, perdure.RawKey("k"))
		return perdure.Ref{Workflow: "jammed", Key: "k"}, err
	})
	r := &recorder{TB: t}

	failing(r, func() {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			Config{}.replay(t, r, history, jammed)
			if passed := time.Since(began); passed > time.Minute {
				t.Errorf("the replay took %s", passed)
			}
		})
	})

	for _, want := range []string{"stuck", "stuck_test.go:", "chan receive"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%s\nhas no %q", r, want)
		}
	}
}

// exported returns the history of an execution.
func exported(t *testing.T, c Config, def perdure.Definition, run func(*Env) (perdure.Ref, error)) []byte {
	t.Helper()
	var file bytes.Buffer
	c.Run(t, def, func(t *testing.T, env *Env) {
		ref, err := run(env)
		if err != nil {
			t.Fatal(err)
		}
		if err := env.App().Histories().Export(env.Context(), ref, &file); err != nil {
			t.Fatal(err)
		}
	})
	return file.Bytes()
}

// clocked is a transform that notes in which year it reads payloads.
type clocked struct{ year *atomic.Int64 }

// Name implements payload.Transform.
func (clocked) Name() string { return "clocked" }

// Seal implements payload.Transform.
func (clocked) Seal(_ context.Context, _ payload.Meta, data []byte) ([]byte, bool, error) {
	return data, true, nil
}

// Open implements payload.Transform.
func (c clocked) Open(_ context.Context, _ payload.Meta, sealed []byte) ([]byte, error) {
	c.year.Store(int64(time.Now().Year()))
	return sealed, nil
}

// Digester implements payload.Transform.
func (clocked) Digester(context.Context) (func([]byte) []byte, error) { return nil, nil }

// TestReplayOfSlowCode replays code that computes. The clock of the replay stands still in the
// meantime, so the code is not stuck however slow the machine is. Payloads are read in real time.
//
//perdure:allow clock the test is about it
func TestReplayOfSlowCode(t *testing.T) {
	t.Parallel()
	busy := perdure.NewWorkflow("busy", func(_ perdure.WorkflowCtx, n int) (sum int, err error) {
		began := time.Now()
		for i := range n {
			sum += i % 7
		}
		if passed := time.Since(began); passed != 0 {
			return sum, fmt.Errorf("%s have passed", passed)
		}
		return sum, nil
	})
	read := clocked{new(atomic.Int64)}
	cfg := Config{Payloads: payload.Codec{Chain: []payload.Transform{read}}}
	history := exported(t, cfg, busy, func(env *Env) (perdure.Ref, error) {
		_, err := busy.Run(env.With(), 1_000_000, perdure.RawKey("k"))
		return perdure.Ref{Workflow: "busy", Key: "k"}, err
	})

	cfg.Replay(t, fstest.MapFS{"busy.jsonl": {Data: history}}, "*.jsonl", busy)
	if got := read.year.Load(); got < 2020 {
		t.Errorf("payloads were read in the year %d", got)
	}
}
