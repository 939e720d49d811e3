package embedded_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// benchStores are the stores that benchmarks run on.
var benchStores = []struct {
	name string
	url  func(b *testing.B) string
}{
	{"memory", func(*testing.B) string { return "memory:" }},
	{"sqlite", func(b *testing.B) string { return "file:" + filepath.Join(b.TempDir(), "perdure.db") }},
	{"postgres", func(b *testing.B) string { return pgtest.Start(b, pgtest.Options{Fsync: true}).NewDatabase(b) }},
}

// BenchmarkThreeSteps runs workflows of three steps that do nothing, for 32 clients per processor
// that wait for the result. It reports the processor time of this process and the bytes that it
// writes. It leaves out the time of PostgreSQL, which bench/ measures.
func BenchmarkThreeSteps(b *testing.B) {
	three := perdure.NewWorkflow("three", func(ctx perdure.WorkflowCtx, in int) (out int, err error) {
		for _, name := range [...]string{"first", "second", "third"} {
			if out, err = perdure.Do(ctx, name, func(context.Context) (int, error) { return in, nil }); err != nil {
				return 0, err
			}
		}
		return out, nil
	})
	for _, s := range benchStores {
		b.Run(s.name, func(b *testing.B) {
			app, err := embedded.Open(b.Context(), s.url(b), three)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = app.Close() }()
			ctx := app.With(b.Context())
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(32)
			b.ResetTimer()
			before, written := processorTime(b), writtenBytes()

			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := three.Run(ctx, 7, perdure.RawKey(strconv.FormatInt(n.Add(1), 10))); err != nil {
						b.Error(err)
						return
					}
				}
			})

			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(writtenBytes()-written)/float64(b.N), "written-B/op")
		})
	}
}

// BenchmarkLargeValues runs workflows of three steps with an input and results of 64 KiB.
func BenchmarkLargeValues(b *testing.B) {
	large := strings.Repeat("x", 64<<10)
	three := perdure.NewWorkflow("large", func(ctx perdure.WorkflowCtx, in string) (out string, err error) {
		for _, name := range [...]string{"first", "second", "third"} {
			if out, err = perdure.Do(ctx, name, func(context.Context) (string, error) { return in, nil }); err != nil {
				return "", err
			}
		}
		return out, nil
	})
	for _, s := range benchStores {
		b.Run(s.name, func(b *testing.B) {
			app, err := embedded.Open(b.Context(), s.url(b), three)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = app.Close() }()
			ctx := app.With(b.Context())
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(32)
			b.ResetTimer()
			before, written := processorTime(b), writtenBytes()

			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := three.Run(ctx, large, perdure.RawKey(strconv.FormatInt(n.Add(1), 10))); err != nil {
						b.Error(err)
						return
					}
				}
			})

			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(writtenBytes()-written)/float64(b.N), "written-B/op")
		})
	}
}

// BenchmarkTasks submits no-op tasks, 1,000 at a time, and waits until the last one has ended.
func BenchmarkTasks(b *testing.B) {
	noop := perdure.NewActivity("noop", func(context.Context, int) (perdure.Void, error) { return perdure.Void{}, nil }, perdure.OnQueue("bench"))
	for _, s := range benchStores {
		b.Run(s.name, func(b *testing.B) {
			app, err := embedded.Config{Tasks: perdure.TaskConfig{Slots: 64}}.Open(b.Context(), s.url(b), noop)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = app.Close() }()
			ctx := app.With(b.Context())
			ins := make([]int, 1000)
			var last perdure.Execution[perdure.Void]
			b.ReportAllocs()
			b.ResetTimer()
			before := processorTime(b)

			for left := b.N; left > 0; left -= len(ins) {
				xs, err := noop.SubmitMany(ctx, ins[:min(left, len(ins))])
				if err != nil {
					b.Fatal(err)
				}
				last = xs[len(xs)-1]
			}

			// Tasks start in the order of their submission, so almost all have ended by then.
			if _, err := last.Result(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkTasksOfOneWorkflow runs a workflow that waits for very many tasks at the same time. The
// time per task should not depend on the number of tasks.
func BenchmarkTasksOfOneWorkflow(b *testing.B) {
	noop := perdure.NewActivity("noop", func(_ context.Context, i int) (int, error) { return i, nil }, perdure.OnQueue("bench"))
	many := perdure.NewWorkflow("many", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		futures := make([]*perdure.Future[int], n)
		for i := range futures {
			futures[i] = noop.Go(ctx, i, perdure.StepKey(strconv.Itoa(i)))
		}
		sum := 0
		for _, f := range futures {
			i, err := f.Get(ctx)
			if err != nil {
				return 0, err
			}
			sum += i
		}
		return sum, nil
	})

	for _, n := range []int{500, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			app, err := embedded.Config{Tasks: perdure.TaskConfig{Slots: 64}}.Open(b.Context(), "memory:", many, noop)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = app.Close() }()
			before, i := processorTime(b), 0
			for b.Loop() {
				i++
				if got, err := many.Run(app.With(b.Context()), n, perdure.RawKey(strconv.Itoa(i))); err != nil || got != n*(n-1)/2 {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N*n), "cpu-µs/task")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writtenBytes returns how many bytes this process has written to files and sockets. It returns 0
// if the system does not count them.
func writtenBytes() (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "wchar: "); found {
			n, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64) // digits
		}
	}
	return n
}
