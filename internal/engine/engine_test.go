package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// stepper is a worker whose workflows record a number of steps, one after the other, and complete.
type stepper struct {
	steps   int
	retain  time.Duration // the runs set their own retention
	session *engine.Session

	mu  sync.Mutex
	ran map[string]int
}

func (w *stepper) Activate(a *model.Activation) {
	go w.step(a.Start.Run, a.Generation, int64(len(a.Events)))
}

func (w *stepper) Deliver(run model.RunID, gen uint64, events []model.Event) {
	go w.step(run, gen, events[len(events)-1].Seq)
}

func (w *stepper) Retry(model.RunID, uint64, string) {}

func (*stepper) Query(model.RunID, uint64, model.Query)                 {}
func (*stepper) Recall(model.Address, model.RunID, uint64, model.Query) {}
func (*stepper) Taken(model.RunID, uint64)                              {}

func (w *stepper) Evict(model.RunID, uint64, string) {}

func (w *stepper) step(run model.RunID, gen uint64, seen int64) {
	t := model.Turn{Run: run, Generation: gen, Seen: seen}
	id := fmt.Sprintf("|step|%d", seen+1)
	w.mu.Lock()
	w.ran[run.String()+id]++
	w.mu.Unlock()
	t.Commands = []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: id, Name: "step"}}}
	if int(seen)+1 == w.steps {
		t.Ahead = 1
		t.Close = &model.Close{Status: model.Completed, Output: model.Payload{Data: []byte(`"done"`)}, Retain: w.retain}
	}
	_ = w.session.Report(context.Background(), t)
}

func open(t testing.TB, st store.Store) (*engine.Engine, func()) {
	t.Helper()
	return openWith(t, engine.Config{Store: st})
}

func openWith(t testing.TB, cfg engine.Config) (*engine.Engine, func()) {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	e := engine.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	wait, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := e.Ready(wait); err != nil {
		t.Fatal(err)
	}

	return e, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func join(e *engine.Engine, steps int) *stepper {
	w := &stepper{steps: steps, ran: map[string]int{}}
	w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	return w
}

func start(key string) *model.Message {
	return &model.Message{Kind: model.MessageStart, To: model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: key}, Input: model.Payload{Data: []byte("1")}}
}

func TestThreeSteps(t *testing.T) {
	t.Parallel()
	e, stop := open(t, memory.New(memory.Options{}))
	defer stop()
	w := join(e, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := start("a")
	a, err := e.Send(ctx, m)
	if err != nil {
		t.Fatal(err)
	}

	r, err := e.Await(ctx, m.To, model.RunID{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Run != a.Run || r.Outcome.Status != model.Completed || string(r.Outcome.Output.Data) != `"done"` {
		t.Errorf("result = %+v", r)
	}
	again, err := e.Send(ctx, start("a"))
	if err != nil || !again.Existing || again.Run != a.Run {
		t.Errorf("second start = %+v, %v; want the existing run", again, err)
	}
	other := start("a")
	other.Input.Data = []byte("2")
	if _, err := e.Send(ctx, other); !fault.Is(err, fault.Conflict) {
		t.Errorf("start with another input: %v, want a conflict", err)
	}

	for id, n := range w.ran {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// stores are the stores that only one process may open.
var stores = map[string]func(testing.TB) store.Store{
	"memory": func(testing.TB) store.Store { return memory.New(memory.Options{}) },
	"sqlite": func(t testing.TB) store.Store {
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "x.db")})
		if err != nil {
			t.Fatal(err)
		}
		return st
	},
}

// BenchmarkThreeSteps measures a workflow of three steps from start to result, with 32 callers per
// processor. cpu-µs is the processor time of this process.
func BenchmarkThreeSteps(b *testing.B) {
	for name, openStore := range stores {
		b.Run(name, func(b *testing.B) {
			st := openStore(b)
			e, stop := open(b, st)
			defer func() {
				stop()
				if err := st.Close(); err != nil {
					b.Error(err)
				}
			}()

			join(e, 3)
			ctx := context.Background()
			b.SetParallelism(32)
			var key atomic.Int64
			before := cpu()
			b.ResetTimer()

			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m := start(strconv.FormatInt(key.Add(1), 10))
					if _, err := e.Send(ctx, m); err != nil {
						b.Error(err)
						return
					}
					if _, err := e.Await(ctx, m.To, model.RunID{}); err != nil {
						b.Error(err)
						return
					}
				}
			})

			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
