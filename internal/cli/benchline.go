package cli

import (
	"time"

	"github.com/perdure/perdure/internal/bench"
)

// benchLine is a report of measurements in JSON.
type benchLine struct {
	Time     time.Time    `json:"time"`
	Machine  string       `json:"machine"`
	Clients  int          `json:"clients"`
	Sleepers int          `json:"sleepers"`
	Tasks    int          `json:"tasks"`
	Duration string       `json:"duration"`
	Rounds   int          `json:"rounds"`
	Stores   []benchStore `json:"stores"`
}

type benchStore struct {
	Kind        string        `json:"kind"`
	Description string        `json:"description"`
	Sync        benchLimit    `json:"sync"`
	Single      benchLimit    `json:"single"`
	Fenced      benchLimit    `json:"fenced"`
	Batched     benchLimit    `json:"batched"`
	Results     []benchResult `json:"results"`
	Errors      []string      `json:"errors,omitempty"`
}

type benchLimit struct {
	Commits float64 `json:"commits_per_second"`
	Rows    int     `json:"rows"`
	P50     string  `json:"p50"`
	P99     string  `json:"p99"`
}

type benchResult struct {
	Round      int          `json:"round"`
	System     string       `json:"system"`
	Workload   string       `json:"workload"`
	Operations int          `json:"operations"`
	Elapsed    string       `json:"elapsed"`
	P50        string       `json:"p50"`
	P99        string       `json:"p99"`
	Usage      benchUsage   `json:"usage"`
	Steps      string       `json:"steps"`
	Bare       string       `json:"bare"`
	FirstStep  string       `json:"first_step"`
	Repeated   int          `json:"repeated"`
	Points     []benchPoint `json:"points,omitempty"`
	Sleeper    int64        `json:"sleeper_bytes"`
	StartRate  float64      `json:"starts_per_second"`
	Goroutines int          `json:"goroutines"`
	FromCall50 string       `json:"from_call_p50"`
	FromCall99 string       `json:"from_call_p99"`
}

type benchUsage struct {
	Process  string  `json:"process"`
	Database string  `json:"database"`
	Written  int64   `json:"written_bytes"`
	Flushes  float64 `json:"flushes"`
	Rows     float64 `json:"rows"`
	Allocs   int64   `json:"allocations"`
	Bytes    int64   `json:"allocated_bytes"`
	RSS      int64   `json:"rss_bytes"`
	Others   float64 `json:"others"`
}

type benchPoint struct {
	Size int    `json:"size"`
	Step string `json:"step"`
	Bare string `json:"bare"`
}

func benchLineOf(r *bench.Report) benchLine {
	l := benchLine{
		Time: r.Time, Machine: r.Machine, Clients: r.Clients, Sleepers: r.Sleepers, Tasks: r.Tasks,
		Duration: r.Duration.String(), Rounds: r.Rounds, Stores: []benchStore{},
	}
	for _, s := range r.Stores {
		line := benchStore{
			Kind: string(s.Kind), Description: s.Description, Sync: benchLimitOf(s.Sync), Single: benchLimitOf(s.Limits.Single),
			Fenced: benchLimitOf(s.Limits.Fenced), Batched: benchLimitOf(s.Limits.Batched), Results: []benchResult{}, Errors: s.Errors,
		}
		for i := range s.Results {
			line.Results = append(line.Results, benchResultOf(&s.Results[i]))
		}
		l.Stores = append(l.Stores, line)
	}
	return l
}

func benchLimitOf(l bench.Limit) benchLimit {
	return benchLimit{l.Commits, l.Rows, l.P50.String(), l.P99.String()}
}

func benchResultOf(r *bench.Round) benchResult {
	u := &r.Usage
	l := benchResult{
		Round: r.Round, System: r.System, Workload: string(r.Workload), Operations: r.Operations, Elapsed: r.Elapsed.String(),
		P50: r.P50.String(), P99: r.P99.String(), Steps: r.Steps.String(), Bare: r.Bare.String(), FirstStep: r.FirstStep.String(),
		Repeated: r.Repeated, Sleeper: r.Sleeper, StartRate: r.StartRate, Goroutines: r.Goroutines,
		FromCall50: r.FromCall50.String(), FromCall99: r.FromCall99.String(),
		Usage: benchUsage{u.Process.String(), u.Database.String(), u.Written, u.Flushes, u.Rows, u.Allocs, u.Bytes, u.RSS, u.Others},
	}
	for _, p := range r.Points {
		l.Points = append(l.Points, benchPoint{p.Size, p.Step.String(), p.Bare.String()})
	}
	return l
}
