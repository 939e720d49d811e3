package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fake is a perfect system that stores nothing.
type fake struct {
	body  func(int)
	three atomic.Int64
}

func (f *fake) Call(context.Context, string) error                { f.three.Add(1); return nil }
func (f *fake) CallTwo(context.Context, string, [2]string) error  { f.three.Add(1); return nil }
func (f *fake) Transfer(context.Context, string, [2]string) error { f.three.Add(1); return nil }

func (f *fake) Three(context.Context, string) error                     { f.three.Add(1); return nil }
func (f *fake) FanOut(context.Context, string, int) error               { return nil }
func (f *fake) StartSleep(context.Context, string, time.Duration) error { return nil }
func (f *fake) Close() error                                            { return nil }

func (f *fake) Carry(context.Context, string, string) error { f.three.Add(1); return nil }

func (f *fake) SleepMany(_ context.Context, until []time.Time, woken func(int)) error {
	for i := range until {
		woken(i)
	}
	return nil
}

func (f *fake) Chain(_ context.Context, _ string, n int) error {
	for i := range n {
		f.body(i)
	}
	return nil
}

func openFake(_ context.Context, _ Place, body func(int)) (System, error) {
	return &fake{body: body}, nil
}

// fakeQueue executes tasks immediately and reports them as completed on the second read.
type fakeQueue struct {
	body func(int)
	open atomic.Int64
}

func (f *fakeQueue) SubmitMany(_ context.Context, first, n int) error {
	for i := range n {
		f.body(first + i)
	}
	f.open.Add(int64(n))
	return nil
}

func (f *fakeQueue) Submit(ctx context.Context, task int) error { return f.SubmitMany(ctx, task, 1) }
func (f *fakeQueue) Open(context.Context) (int, error)          { return int(f.open.Swap(0)), nil }
func (f *fakeQueue) Close() error                               { return nil }

func openFakeQueue(_ context.Context, _ Place, o QueueOptions) (Queue, error) {
	return &fakeQueue{body: o.Body}, nil
}

var fakePeer = Peer{Workflows: openFake, Queue: openFakeQueue, Entities: true, Values: true}

func TestWorkloadsMeasureWhatTheyClaim(t *testing.T) {
	t.Parallel()
	for _, w := range slices.DeleteFunc(slices.Clone(Workloads), func(w Workload) bool { return w == Recovery || w == History }) {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			place := Place{Kind: SQLite, Path: filepath.Join(t.TempDir(), "bench.db")}
			job := Job{System: "fake", Workload: w, Place: place, Duration: 20 * time.Millisecond, Clients: 2, Sleepers: 20, Tasks: 2*bulk + 1}
			r, err := job.run(t.Context(), fakePeer)
			if err != nil {
				t.Fatal(err)
			}

			switch w {
			case Throughput, Latency, Calls, TwoCalls, Transfer, Transfers, HotTransfers, RandomTransfers, Payload:
				if r.Operations == 0 || r.Elapsed < job.Duration || r.P99 < r.P50 {
					t.Errorf("got %+v", r)
				}
			case Sequence:
				if r.Operations != longChain || r.Steps <= 0 || r.Bare <= 0 || r.Steps > r.Bare {
					t.Errorf("got %d steps in %s beside bare commits in %s, want cheaper ones: they do nothing", r.Operations, r.Steps, r.Bare)
				}
			case Open:
				if len(r.Points) != 3 || r.Points[2].Size != job.Sleepers {
					t.Errorf("got points %+v", r.Points)
				}
			case Timers: // the fake wakes them immediately
				if r.Operations != alarms || r.P99 >= 0 {
					t.Errorf("got %+v", r)
				}
			case Tasks, Limited:
				// the fake completes nothing before the second read
				if r.Operations != job.Tasks || r.Elapsed < look || r.Repeated != 0 {
					t.Errorf("got %+v", r)
				}
			case Pickup: // its tasks start before the submission returns
				if r.Operations == 0 || r.P99 != 0 || r.FromCall50 <= 0 || r.FromCall99 < r.FromCall50 {
					t.Errorf("got %+v", r)
				}
			default:
				if r.Operations == 0 {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
}

func TestRecoveryCountsFinishedStepsThatRunAgain(t *testing.T) {
	t.Parallel()
	job := Job{System: "fake", Workload: Recovery, Place: Place{Kind: SQLite}}
	r, err := job.run(t.Context(), fakePeer)
	if err != nil {
		t.Fatal(err)
	}
	if r.Repeated != crashAt { // the fake stores nothing
		t.Errorf("got %d repeated steps, want %d", r.Repeated, crashAt)
	}
}

func TestSQLiteCommitsCountsTransactions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.db")
	b, err := openBareSQLite(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close(context.WithoutCancel(t.Context())) }()
	before := sqliteCommits(path)

	for range 7 {
		if err := b.commit(t.Context(), 3, true); err != nil {
			t.Fatal(err)
		}
	}

	if got := sqliteCommits(path) - before; got != 7 {
		t.Errorf("got %d commits, want 7", got)
	}
}

func TestProcessTimesSeesThisProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Log("no /proc here: nothing to read")
		return
	}
	if own, _, parent := processTimes(os.Getpid()); own <= 0 || parent != os.Getppid() {
		t.Errorf("got %s, parent %d; want some time and parent %d", own, parent, os.Getppid())
	}
	if residentMemory() < 1<<20 {
		t.Errorf("got %d bytes of resident memory", residentMemory())
	}
}

func TestJudgeAndMarkdown(t *testing.T) {
	t.Parallel()
	result := func(system string, round, operations int) Round {
		return Round{Round: round, Result: Result{
			System: system, Kind: SQLite, Workload: Throughput, Operations: operations, Elapsed: time.Second, P50: time.Millisecond, P99: 2 * time.Millisecond,
			Usage: Usage{Process: time.Second, Allocs: 50 * int64(operations), Bytes: 8000 * int64(operations), Written: 7000 * int64(operations)},
		}}
	}

	report := &Report{Clients: 64, Peers: []string{DBOS}, Stores: []*Store{{
		Kind: SQLite, Errors: []string{"latency failed\nfor a reason"},
		Results: []Round{result(Perdure, 0, 16000), result(DBOS, 0, 1000), result(Perdure, 1, 8000), result(DBOS, 1, 500), result(Perdure, 2, 9000)},
	}}}

	tasks := func(system string, operations int) Round {
		return Round{Result: Result{System: system, Kind: SQLite, Workload: Tasks, Operations: operations, Elapsed: time.Second}}
	}
	report.Peers = append(report.Peers, River)
	report.Stores[0].Results = append(report.Stores[0].Results, tasks(Perdure, 20000), tasks(River, 5000),
		Round{Result: Result{System: Perdure, Kind: SQLite, Workload: Pickup, Operations: 20, Elapsed: time.Second, P50: 2 * time.Millisecond}})
	report.Judge([]Workload{Throughput, Latency, Recovery, Tasks, Pickup})
	var got []string
	for _, b := range report.Bars {
		got = append(got, b.String())
	}

	want := []string{
		"sqlite: CPU per three-step workflow, 64 clients, database included: 0.111 ≤ 0.100 ms",
		"sqlite: allocations per three-step workflow: 50.0 ≤ 70.0",
		"sqlite: allocated bytes per three-step workflow: 8.00 ≤ 9.00 KB",
		"sqlite: written per three-step workflow: 7.00 ≤ 12.0 KB",
		"sqlite: throughput against DBOS, 64 clients: 16.0 ≥ 28.0×",
		"sqlite: p50 of a three-step workflow, one client: not measured ≤ 0.420 ms",
		"sqlite: first new step of a 2,000-step history after kill -9: not measured ≤ 0.500 s",
		"sqlite: throughput of no-op tasks against River, 64 slots: 4.00 ≥ 3.00×",
		"sqlite: p50 from the commit of a task to its start, 20 tasks/s: 2.00 ≤ 1.00 ms",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got bars\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	report.Peers = []string{DBOS}
	report.Judge([]Workload{Tasks})
	if len(report.Bars) != 0 {
		t.Errorf("got bars %v against a peer that does not take part", report.Bars)
	}
	report.Peers = []string{DBOS, River}
	report.Judge([]Workload{Throughput, Recovery, Pickup})
	if failed := report.Failed(); len(failed) != 4 || failed[2].Measured || !failed[3].Measured {
		t.Errorf("got failed bars %v, want the one that was not measured and the three that are missed", failed)
	}
	var text bytes.Buffer
	if err := report.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}

	for _, part := range []string{"| pass |", "**FAIL**", "| perdure | 9,000 | – |", "| dbos | 750 | 16.0× |", "| river | 5,000 | 4.00× |", "    for a reason"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, text.String())
		}
	}
}

// The test checks the bars for workflows that call and lock entities, and for the comparison with
// the bare committer.
func TestJudgeEntitiesAndTheBareCommitter(t *testing.T) {
	t.Parallel()
	result := func(system string, w Workload, operations int) Round {
		return Round{Result: Result{
			System: system, Kind: Postgres, Workload: w, Operations: operations, Elapsed: time.Second, P50: time.Millisecond, P99: 150 * time.Millisecond,
			Usage: Usage{Written: 70_000 * int64(operations)},
		}}
	}
	results := []Round{
		result(Perdure, Throughput, 10_000), result(Bare, Throughput, 16_000), result(Perdure, TwoCalls, 6000), result(Perdure, Transfer, 1000),
		result(Perdure, Transfers, 3000), result(Perdure, HotTransfers, 1000), result(Perdure, RandomTransfers, 2000),
	}
	report := &Report{Clients: 64, Peers: []string{Bare}, Stores: []*Store{{Kind: Postgres, Results: results}, {Kind: SQLite, Results: results}}}

	workloads := []Workload{Throughput, TwoCalls, Transfer, Transfers, HotTransfers, RandomTransfers}
	report.Judge(workloads)
	var got []string
	for _, b := range report.Bars {
		if !strings.Contains(b.Name, "three-step") {
			got = append(got, b.String())
		}
	}
	want := []string{
		"postgres: throughput against the bare committer, 64 clients: 0.625 ≥ 0.650×",
		"postgres: workflows that call two entities, 64 clients: 6,000 ≥ 6,000/s",
		"postgres: p50 of a locked transfer, one client: 1.00 ≤ 2.00 ms",
		"postgres: locked transfers, 64 clients with two entities each: 3,000 ≥ 4,000/s",
		"postgres: locked transfers, 64 clients and the same two: 1,000 ≥ 900/s",
		"postgres: p99 of locked transfers, 64 clients and two of 100 entities: 150 ≤ 100 ms",
		"sqlite: throughput against the bare committer, 64 clients: 0.625 ≥ 0.600×",
		"sqlite: written per locked transfer, two entities for each client: 70.0 ≤ 60.0 KB",
		"sqlite: written per locked transfer, the same two for all: 70.0 ≤ 60.0 KB",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got bars\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	var text bytes.Buffer
	if err := report.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"| bare | 16,000 | 0.625× |", "| perdure | the same, 64 clients and the same two | 1,000 |"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, text.String())
		}
	}

	// Without the committer in the run there is nothing to compare with.
	report.Peers = nil
	report.Judge(workloads)
	if slices.ContainsFunc(report.Bars, func(b Bar) bool { return strings.Contains(b.Name, "bare committer") }) {
		t.Errorf("got bars %v against a committer that did not run", report.Bars)
	}
}

func TestPairsOfEntities(t *testing.T) {
	t.Parallel()
	seen := map[Workload]map[string]int{}
	for _, w := range []Workload{TwoCalls, Transfer, Transfers, HotTransfers, RandomTransfers} {
		seen[w] = map[string]int{}
		for client := range 64 {
			for i := range 50 {
				pair := w.pair(client, i)
				if pair[0] == pair[1] || pair != w.pair(client, i) {
					t.Fatalf("%s: client %d has the pair %v, and then %v", w, client, pair, w.pair(client, i))
				}
				for _, key := range pair {
					seen[w][key]++
				}
			}
		}
	}

	for w, want := range map[Workload]int{TwoCalls: 128, Transfer: 128, Transfers: 128, HotTransfers: 2, RandomTransfers: crowdOf} {
		if len(seen[w]) != want {
			t.Errorf("%s uses %d entities, want %d", w, len(seen[w]), want)
		}
	}
}

func TestKeysOfWorkflows(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{"run-12-345": keyOf("run", 12, 345), "warm-1-2345": keyOf("warm", 1, 2345)} {
		if got != want {
			t.Errorf("got the key %q, want %q", got, want)
		}
	}
}

func TestPeersTakePartInWhatTheyCan(t *testing.T) {
	t.Parallel()
	o := Options{Peers: map[string]Peer{Bare: BarePeer, DBOS: {Workflows: openFake}, River: {Queue: openFakeQueue}}}
	for w, want := range map[Workload]string{
		Throughput: Bare + " " + DBOS, Latency: Bare + " " + DBOS, Recovery: DBOS, Tasks: River, Limited: River, Pickup: River, Transfers: "",
	} {
		if got := strings.Join(o.taking(w), " "); got != want {
			t.Errorf("in %s take part: %q, want %q", w, got, want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{0: "0.00", 0.1234: "0.123", 1.5: "1.50", 12.34: "12.3", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := number(f); got != want {
			t.Errorf("number(%v) is %q, want %q", f, got, want)
		}
	}
}
