package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// These benchmarks measure the cost of a commit on a server with fsync: time, and CPU of both
// sides. CPU is the CPU of this process and of the backend of the lane. It changes by tens of
// percent with the load of the machine, so compare runs that follow each other.
//
//	go test -run '^$' -bench Commit -benchtime 3000x ./internal/store/postgres

// load makes the batches of three-step workflows. Each run takes four batches: the start, two
// steps, and the third step with the close. That is 1.25 rows per run and batch.
type load struct {
	f     *storetest.Fixture
	lane  *storetest.Lane
	runs  []storetest.Subject
	phase []int
	next  int
	steps int64
}

// writeMixed fills a batch with about n rows, of one run after the other.
func (l *load) writeMixed(b *store.Batch, n int) {
	for range max(1, n*4/5) {
		i := l.next
		l.next = (l.next + 1) % len(l.runs)
		switch s := &l.runs[i]; l.phase[i] {
		case 0:
			*s = l.f.Subject()
			b.Starts = append(b.Starts, s.StartIfAbsent())
		case 3:
			b.Closes = append(b.Closes, s.Close(model.Completed))
			fallthrough
		default:
			b.Events = append(b.Events, store.EventRow{RunKey: s.RunKey, Event: l.step(int64(l.phase[i]))})
		}
		l.phase[i] = (l.phase[i] + 1) % 4
	}
}

// inline fills a batch with n inline steps.
func (l *load) inline(b *store.Batch, n int) {
	for range n {
		i := l.next
		l.next = (l.next + 1) % len(l.runs)
		l.phase[i]++
		b.Events = append(b.Events, store.EventRow{RunKey: l.runs[i].RunKey, Event: l.step(int64(l.phase[i]))})
	}
}

func (l *load) step(seq int64) model.Event {
	l.steps++
	return model.Event{
		Seq: seq, At: storetest.Noon + model.Time(l.steps), Kind: model.EventStepCompleted, ID: "0/charge#1", Name: "charge",
		Input: model.Payload{Data: []byte(`{"order":"4711","amount":12}`)}, Output: model.Payload{Data: []byte(`{"receipt":"r-4711"}`)},
		Position: "checkout.go:42",
	}
}

func newLoad(b testing.TB, s store.Store, runs int) *load {
	f := storetest.New(b, s)
	l := &load{f: f, lane: f.Join(1).Lanes[0], runs: make([]storetest.Subject, runs), phase: make([]int, runs)}
	for i := range l.runs {
		l.runs[i] = f.Subject()
	}
	return l
}

func benchmarkURL(b *testing.B) string {
	if url := os.Getenv("PERDURE_BENCH_POSTGRES"); url != "" {
		return url
	}
	return pgtest.Start(b, pgtest.Options{Fsync: true, Settings: map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB"}}).NewDatabase(b)
}

func BenchmarkCommit(b *testing.B) {
	url := benchmarkURL(b)
	for _, prepare := range []bool{true, false} {
		for _, kind := range []string{"step", "mix"} {
			for _, n := range []int{1, 16, 30, 64, 200} {
				name := fmt.Sprintf("%s/rows=%d", kind, n)
				if !prepare {
					if n != 30 {
						continue
					}
					name = "unprepared/" + name
				}
				b.Run(name, func(b *testing.B) { benchmarkCommit(b, url, prepare, kind, n) })
			}
		}
	}
}

// BenchmarkLoadRun measures how long it takes to load a run that is not in memory: with LoadRun in
// one round trip, and with LoadRunByParts.
func BenchmarkLoadRun(b *testing.B) {
	s, err := postgres.Open(b.Context(), postgres.Config{URL: benchmarkURL(b), Shards: 64, AllowUnsafe: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := newLoad(b, s, 1000)
	for range 3 {
		l.lane.Write(func(w *store.Batch) { l.inline(w, len(l.runs)) })
	}

	l.lane.Write(func(w *store.Batch) {
		for i := range l.runs {
			w.Starts = append(w.Starts, l.runs[i].StartRow())
			w.Timers = append(w.Timers, l.runs[i].Timer("t", storetest.Noon))
		}
	})

	i := 0
	run := func(load func(a *storetest.Subject) (store.Run, error)) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				i++
				if r, err := load(&l.runs[i%len(l.runs)]); err != nil || len(r.Events) != 3 || len(r.Timers) != 1 {
					b.Fatal(r, err)
				}
			}
		}
	}

	b.Run("at once", run(func(a *storetest.Subject) (store.Run, error) {
		return s.LoadRun(b.Context(), a.Shard, a.Start.Address, a.Run, 2000, 1<<20)
	}))
	b.Run("at once, by address", run(func(a *storetest.Subject) (store.Run, error) {
		return s.LoadRun(b.Context(), a.Shard, a.Start.Address, model.RunID{}, 2000, 1<<20)
	}))
	b.Run("by parts", run(func(a *storetest.Subject) (store.Run, error) {
		return store.LoadRunByParts(b.Context(), s, a.Shard, a.Start.Address, a.Run, 2000, 1<<20)
	}))
}

func benchmarkCommit(b *testing.B, url string, prepare bool, kind string, n int) {
	c := postgres.Config{URL: url, Shards: 64, Schema: fmt.Sprintf("bench_%d", time.Now().UnixNano()%1e9), NoPrepare: !prepare, AllowUnsafe: true}
	s, err := postgres.Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := newLoad(b, s, max(64, 2*n))
	fill := l.inline
	if kind == "mix" {
		fill = l.writeMixed
	}
	batch := store.Batch{Lane: l.lane.Ref}

	commit := func() (rows int) {
		batch = store.Batch{
			Lane: l.lane.Ref, Number: batch.Number + 1,
			Starts: batch.Starts[:0], Closes: batch.Closes[:0], Events: batch.Events[:0],
		}
		fill(&batch, n)
		if _, err := s.Commit(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		return batch.Rows()
	}
	for range 200 {
		commit()
	}
	pid := backend(b, url)
	rows := 0
	var took []time.Duration
	server, client := cpuOf(b, pid), ownCPU(b)

	for b.Loop() {
		start := time.Now()
		rows += commit()
		took = append(took, time.Since(start))
	}

	server, client = cpuOf(b, pid)-server, ownCPU(b)-client
	slices.Sort(took)
	per := func(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(n) }
	b.ReportMetric(per(took[len(took)/2], 1), "µs-p50")
	b.ReportMetric(per(took[len(took)*99/100], 1), "µs-p99")
	b.ReportMetric(per(server, rows), "server-µs/row")
	b.ReportMetric(per(client, rows), "client-µs/row")
	b.ReportMetric(per(server+client, rows), "µs/row")
}

// backend returns the id of the server process of the lane that connected last.
func backend(t testing.TB, url string) int {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var pid int
	err = c.QueryRow(t.Context(), `select pid from pg_stat_activity where application_name like '% lane %' and datname = current_database()
order by backend_start desc limit 1`).Scan(&pid)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// cpuOf returns the CPU time of a process.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ns int64
	if _, err := fmt.Sscan(strings.Fields(string(text))[0], &ns); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
