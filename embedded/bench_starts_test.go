package embedded_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// BenchmarkStarts compares starts by one caller, one after the other, with calls of StartMany of
// several sizes. The workflows wait for a signal, so that the benchmark measures only their starts.
// It also reports the processor time of this process.
func BenchmarkStarts(b *testing.B) {
	wake := perdure.NewSignal[int]("wake")
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, n int) (int, error) { return wake.Receive(ctx) })
	open := func(b *testing.B, url string) perdure.Client {
		b.Helper()
		app, err := embedded.Open(b.Context(), url, w)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = app.Close() })
		return app.With(b.Context())
	}

	measure := func(b *testing.B, begin time.Duration) {
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
		b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
	}

	b.Run("single", func(b *testing.B) {
		c := open(b, "file:"+filepath.Join(b.TempDir(), "starts.db"))
		b.ResetTimer()
		begin := processorTime(b)
		for i := range b.N {
			if _, err := w.Start(c, i); err != nil {
				b.Fatal(err)
			}
		}
		measure(b, begin)
	})

	for _, s := range benchStores[:2] {
		for _, size := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprint("many-", size, "/", s.name), func(b *testing.B) {
				c := open(b, s.url(b))
				b.ReportAllocs()
				b.ResetTimer()
				begin := processorTime(b)

				for from := 0; from < b.N; from += size {
					ins := make([]int, min(size, b.N-from))
					for i := range ins {
						ins[i] = from + i
					}
					started, err := w.StartMany(c, ins)
					if err != nil {
						b.Fatal(err)
					}
					for i := range started {
						if started[i].Err != nil {
							b.Fatal(started[i].Err)
						}
					}
				}

				measure(b, begin)
			})
		}
	}
}
