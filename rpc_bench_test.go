//go:build unix

package perdure_test

import (
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// BenchmarkCalls measures the cost of each kind of call on a store in a file, with one caller and
// with 64 callers. It reports the CPU time per call in addition to the wall time.
func BenchmarkCalls(b *testing.B) {
	type sum struct{ N int }
	sums := perdure.NewEntity[sum]("sums")
	add := perdure.NewOperation(sums, "add", func(_ perdure.EntityCtx, s *sum, n int) (int, error) { s.N += n; return s.N, nil })
	echoes := perdure.NewService("echoes", perdure.Concurrency(0))
	brief := perdure.NewRPC(echoes, "brief", func(_ perdure.EntityCtx, n int) (int, error) { return n, nil })
	stored := perdure.NewRPC(echoes, "stored", func(_ perdure.EntityCtx, n int) (int, error) { return n, nil }, perdure.Persisted())
	app, err := embedded.Open(b.Context(), "file:"+filepath.Join(b.TempDir(), "calls.db"), sums, echoes)
	if err != nil {
		b.Fatal(err)
	}

	defer app.Close()
	c := app.With(b.Context())
	calls := map[string]func() error{
		"operation":     func() error { _, err := add.Call(c, "k", 1); return err },
		"brief RPC":     func() error { _, err := brief.Call(c, "k", 1); return err },
		"persisted RPC": func() error { _, err := stored.Call(c, "k", 1); return err },
	}
	for name, call := range calls {
		for _, callers := range []int{1, 64} {
			b.Run(name+map[int]string{1: "", 64: ", 64 callers"}[callers], func(b *testing.B) {
				before := cpuTime()
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						for n := i; n < b.N; n += callers {
							if err := call(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns the CPU time of this process in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
