package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// ownReport has rates of Perdure behind a server on both kinds of store, and of two systems with a
// store of their own.
func ownReport() *Report {
	result := func(system string, kind Kind, round, operations int) Round {
		u := Usage{Process: time.Second, Server: 2 * time.Second, ServerRSS: 300 << 20}
		if system == Dial {
			u.Worker, u.Database = 3*time.Second, 4*time.Second
		}
		return Round{Round: round, Result: Result{
			System: system, Kind: kind, Workload: Throughput, Operations: operations, Elapsed: time.Second, P50: time.Millisecond, P99: time.Second, Usage: u,
		}}
	}
	return &Report{
		Clients: 64, Peers: []string{Dial, Restate, Temporal},
		Stores: []*Store{
			{Kind: Postgres, Results: []Round{result(Dial, Postgres, 0, 4000), result(Dial, Postgres, 1, 2000)}},
			{Kind: SQLite, Results: []Round{result(Dial, SQLite, 0, 2000), result(Dial, SQLite, 1, 2000)}},
		},
		Own: &Store{
			Kind: Own, Description: "Files on disk", Errors: []string{"latency failed"},
			Results: []Round{
				result(Restate, Own, 0, 1000), result(Restate, Own, 1, 500),
				result(Temporal, Own, 0, 20), result(Temporal, Own, 1, 40),
			},
		},
		Servers: map[string]string{Restate: "restate-server 1.7", Temporal: "temporal 1.9"},
	}
}

// bars judges the throughput of a report, and returns the bars against systems with a store of
// their own.
func bars(r *Report) (lines []string) {
	r.Judge([]Workload{Throughput})
	for _, b := range r.Bars {
		if strings.Contains(b.Name, "over Dial against") {
			lines = append(lines, b.String())
		}
	}
	return lines
}

func TestJudgeAgainstServersWithAStoreOfTheirOwn(t *testing.T) {
	t.Parallel()
	want := []string{
		"postgres: throughput over Dial against Restate, 64 clients: 4.00 ≥ 3.00×",
		"postgres: throughput over Dial against Temporal's dev server, 64 clients: 125 ≥ 60.0×",
		"sqlite: throughput over Dial against Restate, 64 clients: 3.00 ≥ 3.00×",
		"sqlite: throughput over Dial against Temporal's dev server, 64 clients: 75.0 ≥ 60.0×",
	}
	r := ownReport()
	if got := strings.Join(bars(r), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got bars\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}

	r.Own.Results = r.Own.Results[:2] // the measurement of Temporal failed
	if got := bars(r); len(got) != 4 || !strings.Contains(got[3], "not measured") || len(r.Failed()) == 0 {
		t.Errorf("got bars %v, want those against Temporal to be missed", got)
	}
	r.Peers = []string{Dial, Restate}
	if got := bars(r); len(got) != 2 {
		t.Errorf("got bars %v, want none against a system that does not take part", got)
	}
	r.Peers = []string{Restate, Temporal}
	if got := bars(r); len(got) != 0 {
		t.Errorf("got bars %v without Perdure behind a server", got)
	}
}

func TestMarkdownOfServersWithAStoreOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := ownReport()
	r.LeaveOut("other", errors.New("no program"))
	var text bytes.Buffer
	if err := r.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}

	for _, part := range []string{
		"\nother is left out: no program.\n", "\nFiles on disk.\n", "so they were measured once per run and not once per kind of store",
		"- restate: restate-server 1.7\n", "    latency failed",
		"| perdure-dial | postgres | 3,000 | – | – | 1.00 | 1,000 | 0.375 + 0.750 + 1.12 + 1.50 | 300 |",
		"| restate | own | 750 | 4.00× | 3.00× | 1.00 | 1,000 | 1.50 + 3.00 | 300 |",
		"| temporal | own | 30.0 | 125× | 75.0× |",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, text.String())
		}
	}

	r.Own = nil
	text.Reset()
	if err := r.WriteMarkdown(&text); err != nil || strings.Contains(text.String(), "store of their own") {
		t.Errorf("without such systems: %v\n%s", err, text.String())
	}
}

func TestServersTakePartInWorkflowsOfThreeSteps(t *testing.T) {
	t.Parallel()
	p := Peer{Server: "any"}
	for _, w := range Workloads {
		if got, want := p.takes(w), w == Throughput || w == Latency; got != want {
			t.Errorf("takes(%s) is %v, want %v", w, got, want)
		}
	}
}

// A system with its own store has one result per round, however many kinds of store there are, and
// its measurements last as long as it needs.
func TestRunMeasuresOwnStoresOnce(t *testing.T) {
	t.Parallel()
	job := `echo "$PERDURE_BENCH_JOB" | grep -q '"Place":{"Kind":"own".*"Duration":7000000000' || exit 1;`
	answer := `{"System": "restate", "Kind": "own", "Workload": "latency", "Operations": 7, "Elapsed": 1000000000}`
	dir := t.TempDir()
	report, err := Run(t.Context(), Options{
		Places: []Provider{Directory(dir), Directory(dir)}, OwnDirectory: dir, Workloads: []Workload{Latency}, Rounds: 2, Duration: 20 * time.Millisecond,
		Peers: map[string]Peer{Restate: {
			Server: "a server", Least: 7 * time.Second,
			Commands: map[Kind][]string{Own: {"sh", "-c", job + "echo '" + answer + "'"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}

	if got := report.Own.of(Restate, Latency); len(got) != 2 || len(report.Own.Errors) != 0 || report.Servers[Restate] != "a server; 7s per measurement" {
		t.Errorf("got %+v, want two rounds", report.Own)
	}
	for _, s := range report.Stores {
		if len(s.Errors) != 0 || len(s.of(Perdure, Latency)) != 2 || len(s.of(Restate, Latency)) != 0 {
			t.Errorf("got %+v, want two rounds of Perdure alone", s)
		}
	}
}
