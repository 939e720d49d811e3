//go:build unix

package sqlite_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// processCPU returns the processor time of this process, including the kernel.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchLane returns a lane of a new store on a real disk.
func benchLane(b *testing.B) (store.Store, *store.Batch) {
	b.Helper()
	s := openAt(b, filepath.Join(b.TempDir(), "bench.db"))
	lane := storetest.New(b, s).Join(1).Lanes[0]
	return s, &store.Batch{Lane: lane.Ref}
}

// benchRun returns a run with an id as the engine creates it: a UUIDv7.
func benchRun(shards int) (store.RunKey, model.Start) {
	run := model.RunID(uuid.Must(uuid.NewV7()))
	a := model.Address{Tenant: model.DefaultTenant, Type: "checkout", Key: run.String()}
	return store.RunKey{Shard: a.Shard(shards), Run: run}, model.Start{
		Address: a, Run: run, At: model.TimeOf(time.Now()), Input: storetest.Text(`{"order":"order-4711","amount":1999}`), RequestID: run.String(),
	}
}

// benchEvent returns an inline step with small arguments.
func benchEvent(key store.RunKey, seq int64) store.EventRow {
	return store.EventRow{RunKey: key, Event: model.Event{
		Seq: seq, At: model.TimeOf(time.Now()), Kind: model.EventStepCompleted, ID: "0/charge/1", Name: "charge",
		Input: model.Payload{Data: []byte(`{"order":"order-4711","amount":1999}`)}, Output: model.Payload{Data: []byte(`{"receipt":"r-4711"}`)},
		Position: "checkout/workflow.go:42",
	}}
}

// BenchmarkCommitEvents commits batches of inline steps. Each step of a batch belongs to another
// run, and each run has four steps.
func BenchmarkCommitEvents(b *testing.B) {
	for _, rows := range []int{1, 16, 64, 200} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			s, batch := benchLane(b)
			batch.Events = make([]store.EventRow, rows)
			cpu := processCPU(b)

			for b.Loop() {
				batch.Number++
				for i := range batch.Events {
					key, seq := batch.Events[i].RunKey, batch.Events[i].Event.Seq%4+1
					if seq == 1 {
						key, _ = benchRun(s.Info().Shards)
					}
					batch.Events[i] = benchEvent(key, seq)
				}
				if _, err := s.Commit(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}

			cpu = processCPU(b) - cpu
			total := float64(b.N) * float64(rows)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/total, "ns/row")
			b.ReportMetric(float64(cpu.Nanoseconds())/1e3/total, "cpu-µs/row")
			b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "cpu-µs/commit")
		})
	}
}

// BenchmarkWorkflows does what the engine does for 64 clients that run a workflow of three steps:
// start; step; step; step and close. Each batch has one of these four parts for every client.
func BenchmarkWorkflows(b *testing.B) {
	const clients, stages = 64, 4
	s, batch := benchLane(b)
	var runs [clients]store.RunKey
	stage := func(i int) int64 { return (batch.Number + int64(i)) % stages }
	started := [clients]bool{}

	cpu, workflows, rows := processCPU(b), 0, 0
	for b.Loop() {
		batch.Number++
		batch.Starts, batch.Events, batch.Closes = batch.Starts[:0], batch.Events[:0], batch.Closes[:0]
		for i := range clients {
			at := stage(i)
			switch {
			case at == 0:
				key, start := benchRun(s.Info().Shards)
				runs[i], started[i] = key, true
				batch.Starts = append(batch.Starts, store.StartRow{Shard: key.Shard, Start: start, IfAbsent: true})
				continue
			case !started[i]:
				continue
			}

			batch.Events = append(batch.Events, benchEvent(runs[i], at))
			if at == stages-1 {
				workflows++
				batch.Closes = append(batch.Closes, store.CloseRow{RunKey: runs[i], Outcome: model.Outcome{
					Status: model.Completed, At: model.TimeOf(time.Now()), Output: storetest.Text(`{"receipt":"r-4711"}`), Seen: 3,
				}})
			}
		}

		rows += batch.Rows()
		if _, err := s.Commit(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}

	cpu = processCPU(b) - cpu
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(workflows), "cpu-µs/workflow")
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(rows), "cpu-µs/row")
	b.ReportMetric(float64(workflows)/b.Elapsed().Seconds(), "workflows/s")
}

// BenchmarkTimersOfOneMoment reads pages of timers that are all due at the same moment.
func BenchmarkTimersOfOneMoment(b *testing.B) {
	s, batch := benchLane(b)
	const timers, page = 100_000, 1000
	for i := range timers {
		key, start := benchRun(s.Info().Shards)
		batch.Timers = append(batch.Timers, store.Timer{Shard: key.Shard, Run: key.Run, ID: "t", Due: 1000, Address: start.Address})
		if len(batch.Timers) == 5000 || i == timers-1 {
			batch.Number++
			if _, err := s.Commit(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			batch.Timers = batch.Timers[:0]
		}
	}

	shards := make([]model.ShardID, s.Info().Shards)
	for i := range shards {
		shards[i] = model.ShardID(i)
	}
	b.ReportAllocs()

	var mark store.TimerMark
	for b.Loop() {
		found, err := s.LoadTimers(b.Context(), shards, mark, 1000, page)
		if err != nil {
			b.Fatal(err)
		}
		if mark = (store.TimerMark{}); len(found) == page {
			last := found[page-1]
			mark = store.TimerMark{Due: last.Due, Run: last.Run, ID: last.ID}
		}
	}
}
