package embedded_test

import (
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// purse is an entity whose state is small, so that reading and writing it costs little.
type purse struct{ Cents int }

// purses has the definitions that the benchmarks call and lock.
type purses struct {
	entity *perdure.Entity[purse]
	add    *perdure.Operation[int, int]
	show   *perdure.Operation[perdure.Void, int]
	three  *perdure.Workflow[string, int]             // makes three calls, one after the other
	move   *perdure.Workflow[[2]string, perdure.Void] // locks two purses and calls each of them
}

func newPurses() *purses {
	p := &purses{entity: perdure.NewEntity[purse]("purse")}
	p.add = perdure.NewOperation(p.entity, "add", func(_ perdure.EntityCtx, s *purse, n int) (int, error) {
		s.Cents += n
		return s.Cents, nil
	})

	p.show = perdure.NewView(p.entity, "show", func(s purse, _ perdure.Void) (int, error) { return s.Cents, nil })
	p.three = perdure.NewWorkflow("three-calls", func(ctx perdure.WorkflowCtx, key string) (out int, err error) {
		for i := range 3 {
			if out, err = p.add.Call(ctx, key, i, perdure.StepKey(strconv.Itoa(i))); err != nil {
				return 0, err
			}
		}
		return out, nil
	})

	p.move = perdure.NewWorkflow("move", func(ctx perdure.WorkflowCtx, keys [2]string) (perdure.Void, error) {
		return perdure.Void{}, ctx.Lock(perdure.LockSet{p.entity.Ref(keys[0]), p.entity.Ref(keys[1])}, func(ctx perdure.WorkflowCtx) error {
			if _, err := p.add.Call(ctx, keys[0], -1); err != nil {
				return err
			}
			_, err := p.add.Call(ctx, keys[1], 1)
			return err
		})
	})

	return p
}

func (p *purses) group() perdure.Group { return perdure.Group{p.entity, p.three, p.move} }

// Most of the cost of calls and locks is their commits, which come one after the other.
// docs/performance.md says how many commits each kind of call makes. The bounds are those of a
// machine that is so slow that no batch waits for the code.
func TestCommitsOfCallsAndLocks(t *testing.T) {
	t.Parallel()
	p, reg := newPurses(), prometheus.NewRegistry()
	c := open(t, embedded.Config{Metrics: reg}, "file:"+filepath.Join(t.TempDir(), "store"), p.group()).With(t.Context())

	const times = 50
	for _, w := range []struct {
		name string
		most float64
		do   func(key perdure.Key) error
	}{
		{"call", 1, func(perdure.Key) error { _, err := p.add.Call(c, "a", 1); return err }},
		{"three calls of a workflow", 8, func(k perdure.Key) error { _, err := p.three.Run(c, "a", k); return err }},
		{"locked transfer", 7, func(k perdure.Key) error { _, err := p.move.Run(c, [2]string{"a", "b"}, k); return err }},
	} {
		before := scrape(t, reg, "commits_total")["commits_total{ok}"]
		for i := range times {
			if err := w.do(perdure.RawKey(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		got := (scrape(t, reg, "commits_total")["commits_total{ok}"] - before) / times
		t.Logf("%s: %.1f commits", w.name, got)
		// The test allows half a commit more, for background work such as the renewal of a lease.
		if got == 0 || got > w.most+0.5 {
			t.Errorf("%s: %.1f commits, want at most %.0f", w.name, got, w.most)
		}
	}
}

// BenchmarkEntities makes every kind of call to an entity that does nothing, with 32 clients per
// processor that wait. It reports the processor time of this process and the bytes that it writes.
// For workflows it reports the time of a whole workflow; BenchmarkThreeSteps measures three steps
// that call nothing.
func BenchmarkEntities(b *testing.B) {
	p := newPurses()
	key := func(i int64) string { return strconv.FormatInt(i, 10) }
	for _, w := range []struct {
		name string
		do   func(c perdure.Client, client, i int64) error // i counts over all clients
	}{
		{"call/one", func(c perdure.Client, _, _ int64) error { _, err := p.add.Call(c, "one", 1); return err }},
		{"call/many", func(c perdure.Client, client, _ int64) error { _, err := p.add.Call(c, key(client), 1); return err }},
		{"call/fresh", func(c perdure.Client, _, i int64) error { _, err := p.add.Call(c, key(i), 1); return err }},
		{"send/many", func(c perdure.Client, client, _ int64) error { return p.add.Send(c, key(client), 1) }},
		{"view/many", func(c perdure.Client, client, _ int64) error {
			_, err := p.show.Call(c, key(client), perdure.Void{})
			return err
		}},
		{"get/many", func(c perdure.Client, client, _ int64) error { _, _, err := p.entity.Get(c, key(client)); return err }},
		{"workflow/one", func(c perdure.Client, _, i int64) error {
			_, err := p.three.Run(c, "one", perdure.RawKey(key(i)))
			return err
		}},
		{"workflow/many", func(c perdure.Client, client, i int64) error {
			_, err := p.three.Run(c, key(client), perdure.RawKey(key(i)))
			return err
		}},
		{"lock/same", func(c perdure.Client, _, i int64) error {
			_, err := p.move.Run(c, [2]string{"a", "b"}, perdure.RawKey(key(i)))
			return err
		}},
		{"lock/others", func(c perdure.Client, client, i int64) error {
			_, err := p.move.Run(c, [2]string{key(2 * client), key(2*client + 1)}, perdure.RawKey(key(i)))
			return err
		}},
	} {
		for _, s := range benchStores {
			b.Run(w.name+"/"+s.name, func(b *testing.B) {
				app, err := embedded.Open(b.Context(), s.url(b), p.group())
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = app.Close() }()
				c := app.With(b.Context())
				var clients, n atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(32)
				b.ResetTimer()
				before, written := processorTime(b), writtenBytes()

				b.RunParallel(func(pb *testing.PB) {
					client := clients.Add(1)
					for pb.Next() {
						if err := w.do(c, client, n.Add(1)); err != nil {
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
}
