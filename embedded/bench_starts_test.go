package embedded_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// BenchmarkStarts compares starts of one caller, one after the other, with StartMany, on a file. The workflows wait for a signal, so that only their starts are measured.
func BenchmarkStarts(b *testing.B) {
	wake := perdure.NewSignal[int]("wake")
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, n int) (int, error) { return wake.Receive(ctx) })
	open := func(b *testing.B) perdure.Client {
		app, err := embedded.Open(b.Context(), "file:"+filepath.Join(b.TempDir(), "starts.db"), w)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = app.Close() })
		return app.With(b.Context())
	}
	b.Run("single", func(b *testing.B) {
		c := open(b)
		for i := range b.N {
			if _, err := w.Start(c, i); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
	})
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprint("many-", size), func(b *testing.B) {
			c := open(b)
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
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
		})
	}
}
