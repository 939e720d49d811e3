package queue

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// many returns n tasks on 10 queues with the given number of fair keys. Tasks of a kind share a
// spec, as most real ones do.
func many(n, keys int) []Item {
	specs := make([]*model.TaskSpec, max(keys, 10))
	for i := range specs {
		specs[i] = &model.TaskSpec{Kind: "x", Queue: fmt.Sprint("q", i%10), Fair: fmt.Sprint("k", i%keys)}
	}
	items := make([]Item, n)
	for i := range items {
		items[i] = plain(i, model.Time(i+1))
		items[i].Spec = specs[i%len(specs)]
	}
	return items
}

func tenQueues(slots int) model.TaskOffer {
	o := model.TaskOffer{Tenants: []string{"a"}, Kinds: []string{"x"}, Slots: slots}
	for i := range 10 {
		o.Queues = append(o.Queues, fmt.Sprint("q", i))
	}
	return o
}

// A busy node has a task that waits behind others. When a slot is free, the board matches the task,
// a worker claims it, and it is removed.
func BenchmarkWaitMatchHoldRemove(b *testing.B) {
	for _, size := range []struct{ waiting, keys int }{{100, 1}, {100_000, 1}, {100_000, 1000}, {1_000_000, 1}} {
		b.Run(fmt.Sprintf("waiting=%d/keys=%d", size.waiting, size.keys), func(b *testing.B) {
			board := New(Config{})
			items := many(size.waiting, size.keys)
			for _, it := range items {
				board.Add(1<<30, it)
			}
			for id := range 1000 {
				board.Join(1<<30, WorkerID(id+1), tenQueues(1))
			}
			claimed := board.Match(1 << 30)
			b.ReportAllocs()

			for i := 0; b.Loop(); i++ {
				ref := claimed[i%len(claimed)].Ref
				it := items[number(ref)]
				board.Remove(1<<30, ref, Succeeded)
				it.Visible = model.Time(1<<30 - 1)
				board.Add(1<<30, it)
				m := board.Match(1 << 30)[0]
				held := items[number(m.Ref)]
				board.Hold(1<<30, held, HeldClaim{Ref: claimOf(m.Ref, 1), Worker: m.Worker})
				claimed[i%len(claimed)] = m
			}
		})
	}
}

// A node has 1000 idle workers. The board reserves a worker for a task before the task is
// committed. Then the task is claimed and removed.
func BenchmarkReserveHoldRemove(b *testing.B) {
	board := New(Config{})
	for id := range 1000 {
		board.Join(1, WorkerID(id+1), tenQueues(10))
	}
	items := many(1000, 10)
	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		it := &items[i%len(items)]
		it.Visible = 1
		id, ok := board.Reserve(1, it)
		if !ok {
			b.Fatal("no worker")
		}
		board.Hold(1, *it, HeldClaim{Ref: claimOf(it.Ref, 1), Worker: id})
		board.Remove(1, it.Ref, Succeeded)
	}
}

// limitGate lets through one task at a time.
type limitGate struct{ used bool }

func (g *limitGate) Group(*Item) string { return "limit" }

func (g *limitGate) Take(model.Time, *Item) (bool, model.Reason, model.Time) {
	ok := !g.used
	g.used = true
	return ok, model.Reason{}, 0
}
func (g *limitGate) Hold(model.Time, *Item, string)  {}
func (g *limitGate) Give(model.Time, *Item, Outcome) { g.used = false }

// One limit holds back 10,000 keys, and lets the next task start when one ends.
func BenchmarkLimitOverManyKeys(b *testing.B) {
	board := New(Config{Gate: &limitGate{}})
	items := many(50_000, 10_000)
	for _, it := range items {
		board.Add(1<<30, it)
	}
	board.Join(1<<30, 1, tenQueues(10))
	m := board.Match(1 << 30)[0]
	b.ReportAllocs()

	for b.Loop() {
		ref := m.Ref
		it := items[number(ref)]
		board.Remove(1<<30, ref, Succeeded)
		it.Visible = model.Time(1<<30 - 1)
		board.Add(1<<30, it)
		m = board.Match(1 << 30)[0]
	}
}

// Many tasks wait, each with a deadline. bytes/task is the memory of the board itself, without
// specs and names. In the second case every task has its own fair key.
func BenchmarkMemory(b *testing.B) {
	for _, size := range []struct{ waiting, keys int }{{1_000_000, 1}, {100_000, 100_000}} {
		b.Run(fmt.Sprintf("waiting=%d/keys=%d", size.waiting, size.keys), func(b *testing.B) {
			items := many(size.waiting, size.keys)
			for i := range items {
				items[i].Spec.ToStart = 1 << 50
			}

			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				board := New(Config{})
				board.Join(1, 1, tenQueues(0))
				for i := range items {
					board.Add(1<<30, items[i])
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(items)), "bytes/task")
				runtime.KeepAlive(board)
			}
		})
	}
}

// number is the inverse of plain.
func number(ref model.TaskRef) int {
	return int(ref.Run[12])<<24 | int(ref.Run[13])<<16 | int(ref.Run[14])<<8 | int(ref.Run[15])
}
