package telemetry_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
)

// gather returns all values of a meter as text.
func gather(m *telemetry.Meter) map[string]string {
	all := map[string]string{}
	m.Gather(func(s telemetry.Sample) {
		f := telemetry.Families()[s.ID]
		text := fmt.Sprint(s.Value)
		if f.Kind == telemetry.Histogram {
			text = fmt.Sprintf("%d values, sum %g", s.Count, s.Sum)
			for _, bound := range f.Bounds {
				if n := s.Buckets[bound]; n > 0 {
					text += fmt.Sprintf(", %d up to %g", n, bound)
				}
			}
		}
		all[f.Name+" "+strings.Join(s.Labels, ",")] = text
	})
	return all
}

func TestMeter(t *testing.T) {
	t.Parallel()
	m := telemetry.New()
	m.Add(telemetry.RunsStarted, 1, "order")
	m.Add(telemetry.RunsStarted, 2, "order")
	m.Add(telemetry.RunsStarted, 0, "never")
	m.Took(telemetry.CommitSeconds, 2*time.Second)
	m.Took(telemetry.CommitSeconds, 5*time.Second)
	m.Took(telemetry.CommitSeconds, time.Hour)
	m.Took(telemetry.CommitSeconds, -time.Second) // a clock that went back
	stop := m.Watch(func(g *telemetry.States) { g.Set(telemetry.Tasks, 3, "mails", "waiting") })
	m.Watch(func(g *telemetry.States) { g.Set(telemetry.Tasks, 4, "mails", "waiting") })

	want := map[string]string{
		"perdure_workflow_runs_started_total order": "3",
		"perdure_commit_seconds ":                   "4 values, sum 3607, 1 up to 0.0005, 1 up to 0.001, 1 up to 0.0025, 1 up to 0.005, 1 up to 0.01, 1 up to 0.025, 1 up to 0.05, 1 up to 0.1, 1 up to 0.25, 1 up to 0.5, 1 up to 1, 2 up to 2.5, 3 up to 5, 3 up to 10",
		"perdure_tasks mails,waiting":               "7",
	}
	if diff := cmp.Diff(want, gather(m)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	stop()
	if got := gather(m)["perdure_tasks mails,waiting"]; got != "4" {
		t.Errorf("%s tasks wait after one of two does not tell any more, want 4", got)
	}
}

func TestMeterIsBounded(t *testing.T) {
	t.Parallel()
	m := telemetry.New()
	for i := range 5000 {
		m.Add(telemetry.RunsClosed, 1, fmt.Sprint("workflow ", i), "completed")
		m.Add(telemetry.RunsClosed, 1, fmt.Sprint("workflow ", i), "failed")
	}
	got := gather(m)
	if n := len(got); n != 1002 {
		t.Errorf("%d series", n)
	}
	if n := got["perdure_workflow_runs_closed_total "+telemetry.Other+",failed"]; n != "4500" {
		t.Errorf("%s others have failed", n)
	}
}

func TestMeterTogether(t *testing.T) {
	t.Parallel()
	m := telemetry.New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				m.Add(telemetry.TasksClaimed, 1, "send", fmt.Sprint(i%10))
				m.Observe(telemetry.CommitRows, 1)
				if i%100 == 0 {
					gather(m)
				}
			}
		})
	}

	wg.Wait()
	got := gather(m)
	if got["perdure_task_claims_total send,3"] != "800" || !strings.HasPrefix(got["perdure_commit_rows "], "8000 values, sum 8000, 8000 up to 1,") {
		t.Errorf("%v", got)
	}
}

// Code calls the meter without a check for nil, so a nil meter must cost nothing.
func TestNobodyPays(t *testing.T) {
	var nobody *telemetry.Meter
	somebody := telemetry.New()
	for name, m := range map[string]*telemetry.Meter{"without a meter": nobody, "with one": somebody} {
		count := func() {
			m.Add(telemetry.TaskAttempts, 1, "send", "mails", "completed")
			m.Took(telemetry.TaskSeconds, time.Second, "send", "mails")
			m.Observe(telemetry.CommitRows, 3)
		}
		count()
		if n := testing.AllocsPerRun(100, count); n != 0 {
			t.Errorf("%s: counting allocates %g times", name, n)
		}
	}
}

func TestFailureWord(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*model.Failure{
		"":            nil,
		"error":       {Type: "*errors.errorString", Message: "secret"},
		"permanent":   {Permanent: true},
		"panic":       {Kind: model.FailurePanic},
		"timeout":     {Kind: model.FailureTimeout, Type: model.TimeoutToClose},
		"unavailable": {Kind: "unavailable"},
		"worker_lost": {Kind: "unavailable", Type: model.FailureLost},
		"terminated":  {Kind: model.FailureTerminated},
	} {
		if got := telemetry.FailureWord(f); got != want {
			t.Errorf("%+v is %q, want %q", f, got, want)
		}
	}

	if got := telemetry.FailureWord(&model.Failure{Kind: "anything that somebody made up"}); got != "error" {
		t.Errorf("a word that is not on the list: %q", got)
	}
}

// row is a line of the table of metrics: | `name` | type | labels | …
var row = regexp.MustCompile("(?m)^\\| `(perdure_[a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\|")

// The table in the guide has every metric, with its type and labels, and no other.
func TestGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}

	documented, registered := map[string]string{}, map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s is in the table twice", m[1])
		}
		documented[m[1]] = m[2] + " " + strings.NewReplacer("`", "", ",", "").Replace(m[3])
	}

	for _, f := range telemetry.Families() {
		if f.Help == "" || f.Name == "" {
			t.Errorf("%+v has no name or no help", f)
		}
		registered[f.Name] = f.Kind.String() + " " + strings.Join(f.Labels, " ")
	}

	if diff := cmp.Diff(registered, documented); diff != "" {
		t.Errorf("docs/observability.md and the table of families differ (-registered +documented):\n%s", diff)
	}
}

// A meter leaves the tenant out, unless it counts by tenant. A meter that counts by tenant keeps
// every combination of labels apart, for counters and for gauges.
func TestByTenant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meter *telemetry.Meter
		want  map[string]float64
	}{
		"together":  {telemetry.New(), map[string]float64{"started order": 3, "tasks mails waiting": 7}},
		"by tenant": {telemetry.NewByTenant(), map[string]float64{"started order acme": 1, "started order beta": 2, "tasks mails waiting acme": 3, "tasks mails waiting beta": 4}},
	} {
		c.meter.Add(telemetry.RunsStarted, 1, "order", "acme")
		c.meter.Add(telemetry.RunsStarted, 2, "order", "beta")
		c.meter.Add(telemetry.Commits, 5, "ok")
		c.meter.Watch(func(g *telemetry.States) {
			g.Set(telemetry.Tasks, 3, "mails", "waiting", "acme")
			g.Set(telemetry.Tasks, 4, "mails", "waiting", "beta")
		})

		got := map[string]float64{}
		c.meter.Gather(func(s telemetry.Sample) {
			if names := c.meter.Families()[s.ID].Labels; len(names) != len(s.Labels) || slices.Contains(names, "tenant") != (name == "by tenant" && telemetry.HasTenant(s.ID)) {
				t.Errorf("%s: family %d has labels %v with values %v", name, s.ID, names, s.Labels)
			}
			switch s.ID {
			case telemetry.RunsStarted:
				got["started "+strings.Join(s.Labels, " ")] = s.Value
			case telemetry.Tasks:
				got["tasks "+strings.Join(s.Labels, " ")] = s.Value
			default:
			}
		})
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
