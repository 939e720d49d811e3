package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// hostile is a flood of input to one address, and the memory limit of the process.
type hostile struct {
	input int // bytes
	cfg   embedded.Config
	most  int // resident bytes of the process
}

// small is the case of the fast suite. It has the same shape as the full case, which needs the
// build tag long.
var small = hostile{
	input: 128 << 20, most: 224 << 20,
	cfg: embedded.Config{MaxHistory: 12 << 20, MaxUnread: 4 << 20, MaxLoadedBytes: 16 << 20},
}

const (
	heapCase = "PERDURE_HEAP_CASE"
	chunk    = 2<<20 - 1<<10
)

var heapCases = map[string]func(t *testing.T, h hostile, dir string){
	"signals": heapSignals, "updates": heapUpdates, "calls": heapCalls, "outputs": heapOutputs,
	"stranded": heapStranded, "messages": heapMessages,
}

// The engine refuses requests of a client that floods one address before the memory of the process
// grows.
func TestHeapUnderHostileInput(t *testing.T) {
	t.Parallel()
	if os.Getenv(heapCase) != "" {
		t.Skip("this is the process that is measured")
	}
	for name := range heapCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			measure(t, "small", name, small.most)
		})
	}
}

// measure runs a case in its own process and checks the peak of its memory.
func measure(t *testing.T, size, name string, most int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHeapProcess$", "-test.timeout=10m")
	// These variables override the settings of the suite. The soft limit makes the garbage
	// collector run more often when the process comes near the bound. So the peak shows how much
	// memory the process keeps, and not how much garbage piles up on a busy machine. A process that
	// keeps too much still exceeds the bound.
	soft := strconv.Itoa(most * 3 / 4)
	cmd.Env = append(os.Environ(), heapCase+"="+size+"/"+name, "GOGC=100", "GOMEMLIMIT="+soft)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	_, text, ok := strings.Cut(string(out), "peak=")
	if !ok {
		t.Skipf("the system does not report the peak: %s", out)
	}
	peak, err := strconv.Atoi(strings.Fields(text)[0])
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%s: %d MiB", name, peak>>20)
	if peak > most {
		t.Errorf("%s: the process has had %d MiB, at most %d are allowed\n%s", name, peak>>20, most>>20, out)
	}
}

// TestHeapProcess is the measured process.
func TestHeapProcess(t *testing.T) {
	size, name, ok := strings.Cut(os.Getenv(heapCase), "/")
	if !ok {
		t.Skip("only as a child of TestHeapUnderHostileInput")
	}
	heapCases[name](t, hostileSizes[size], t.TempDir())
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}

	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.Fields(kib)[0])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("peak=%d\n", n<<10)
		}
	}
}

var hostileSizes = map[string]hostile{"small": small}

func (h *hostile) open(t *testing.T, dir string, defs ...perdure.Definition) *perdure.App {
	t.Helper()
	app, err := h.cfg.Open(t.Context(), "file:"+filepath.Join(dir, "perdure.db"), defs...)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// flood sends all the input, with at most the given number of chunks in flight, and returns how
// many bytes the engine refused. An accepted request may never get a reply, so it keeps its slot.
// There are more slots than requests that the engine accepts.
func (h *hostile) flood(t *testing.T, at int, send func(ctx context.Context, text string) error) (refused int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var no atomic.Int64
	var wg sync.WaitGroup

	slots := make(chan struct{}, at)
	for sent := 0; sent < h.input; sent += chunk {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := send(ctx, strings.Repeat("x", chunk))
			if errors.Is(err, perdure.ErrExhausted) {
				no.Add(1)
			} else if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}

	cancel()
	wg.Wait()
	return no.Load()
}

func heapSignals(t *testing.T, h hostile, dir string) {
	text := perdure.NewSignal[string]("text")
	sleeper := perdure.NewWorkflow("sleeper", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return 0, ctx.Sleep(time.Hour) })
	app := h.open(t, dir, sleeper)
	x, err := sleeper.Start(app.With(t.Context()), 1, perdure.RawKey("one"))
	if err != nil {
		t.Fatal(err)
	}

	if h.flood(t, 4, func(ctx context.Context, s string) error { return text.Send(app.With(ctx), x, s) }) == 0 {
		t.Error("no signal was refused")
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	app = h.open(t, dir, sleeper)
	if err := text.Send(app.With(t.Context()), x, "x"); err != nil && !errors.Is(err, perdure.ErrExhausted) {
		t.Error(err)
	}
	_ = app.Close()
}

// heapMessages lets executions of all shards send messages to one address. The store carries each
// message. The lane of the address refuses a message if it has no room when the message arrives.
func heapMessages(t *testing.T, h hostile, dir string) {
	text := perdure.NewSignal[string]("text")
	sleeper := perdure.NewWorkflow("sleeper", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return 0, ctx.Sleep(time.Hour) })
	to := perdure.Ref{Workflow: "sleeper", Key: "one"}

	sender := perdure.NewWorkflow("sender", func(ctx perdure.WorkflowCtx, _ int) (refused bool, err error) {
		err = text.Send(ctx, to, strings.Repeat("x", chunk))
		if errors.Is(err, perdure.ErrExhausted) {
			return true, nil
		}
		return false, err
	})

	app := h.open(t, dir, sleeper, sender)
	if _, err := sleeper.Start(app.With(t.Context()), 1, perdure.RawKey("one")); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	var wg sync.WaitGroup

	slots := make(chan struct{}, 8)
	for i := range h.input / chunk {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			no, err := sender.Run(app.With(t.Context()), i, perdure.RawKey(strconv.Itoa(i)))
			if err != nil {
				t.Error(err)
			}
			if no {
				refused.Add(1)
			}
		})
	}

	wg.Wait()
	if refused.Load() == 0 {
		t.Error("no message was refused")
	}
	_ = app.Close()
}

func heapUpdates(t *testing.T, h hostile, dir string) {
	put := perdure.NewUpdate[string, int]("put")
	sleeper := perdure.NewWorkflow("sleeper", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		put.Handle(ctx, func(ctx perdure.WorkflowCtx, _ string) (int, error) { return 0, ctx.Sleep(time.Hour) })
		return 0, ctx.Sleep(time.Hour)
	})
	app := h.open(t, dir, sleeper)
	x, err := sleeper.Start(app.With(t.Context()), 1, perdure.RawKey("one"))
	if err != nil {
		t.Fatal(err)
	}
	if h.flood(t, 12, func(ctx context.Context, s string) error { _, err := put.Call(app.With(ctx), x, s); return err }) == 0 {
		t.Error("no update was refused")
	}
	_ = app.Close()
}

func heapCalls(t *testing.T, h hostile, dir string) {
	over := make(chan struct{})
	count := perdure.NewEntity[int]("count", perdure.OperationTimeout(time.Hour))
	add := perdure.NewOperation(count, "add", func(_ perdure.EntityCtx, n *int, s string) (int, error) {
		<-over
		*n += len(s)
		return *n, nil
	})
	app := h.open(t, dir, count)
	if h.flood(t, 12, func(ctx context.Context, s string) error { _, err := add.Call(app.With(ctx), "one", s); return err }) == 0 {
		t.Error("no call was refused")
	}
	close(over)
	_ = app.Close()
}

func heapOutputs(t *testing.T, h hostile, dir string) {
	task := perdure.NewActivity("task", func(context.Context, int) (string, error) { return strings.Repeat("x", chunk), nil }, perdure.OnQueue("outputs"))
	many := perdure.NewWorkflow("many", func(ctx perdure.WorkflowCtx, n int) (failed int, err error) {
		futures := make([]*perdure.Future[string], n)
		for i := range futures {
			futures[i] = task.Go(ctx, i, perdure.StepKey(strconv.Itoa(i)))
		}
		for _, f := range futures {
			if _, err := f.Get(ctx); errors.Is(err, perdure.ErrExhausted) {
				failed++
			} else if err != nil {
				return 0, err
			}
		}
		return failed, nil
	})

	h.cfg.Tasks.Slots = 8
	app := h.open(t, dir, many, task)
	failed, err := many.Run(app.With(t.Context()), h.input/chunk, perdure.RawKey("one"))
	if err != nil || failed == 0 {
		t.Errorf("%d outputs were refused: %v", failed, err)
	}
	_ = app.Close()
}

// heapStranded starts executions for which no process has code. These executions are not in memory.
// When a process has the code, it loads only as many executions as it has room for.
func heapStranded(t *testing.T, h hostile, dir string) {
	const size = 100 << 10
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, in string) (int, error) {
		return perdure.Do(ctx, "measure", func(context.Context) (int, error) { return len(in), nil })
	})
	app := h.open(t, dir)
	n := h.input / size

	each := func(do func(key perdure.Key) error) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for i := range n {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := do(perdure.RawKey(strconv.Itoa(i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}

	each(func(key perdure.Key) error {
		_, err := flow.Start(app.With(t.Context()), strings.Repeat("x", size), key)
		return err
	})

	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	app = h.open(t, dir, flow)

	each(func(key perdure.Key) error {
		got, err := flow.Execution(key).Result(app.With(t.Context()))
		if err == nil && got != size {
			err = fmt.Errorf("measured %d", got)
		}
		return err
	})

	_ = app.Close()
}
