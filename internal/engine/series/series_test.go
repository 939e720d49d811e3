package series_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/model"
)

var noon = model.TimeOf(time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC))

func sum(points []uint32) (n int) {
	for _, p := range points {
		n += int(p)
	}
	return n
}

// The recorder puts a number into the point of its time. As time passes, the number moves towards
// the beginning of the series, and after an hour it is gone. Other tenants do not see it.
func TestRing(t *testing.T) {
	t.Parallel()
	r := series.New(noon)
	r.Add(noon, []series.One{{"acme", series.Started}, {"acme", series.Started}, {"acme", series.Failed}, {"beta", series.Started}})

	for _, c := range []struct {
		after time.Duration
		at    int // the place of the number; -1 when it is gone
	}{{0, series.Points - 1}, {4 * time.Second, series.Points - 1}, {5 * time.Second, series.Points - 2}, {time.Hour - series.Step, 0}, {time.Hour, -1}, {48 * time.Hour, -1}} {
		got := r.Read(noon.Add(c.after), "acme")
		if got.Since != noon || len(got.Points) != len(series.Kinds()) {
			t.Errorf("after %s: since %s, %d kinds", c.after, got.Since, len(got.Points))
		}
		want := 2
		if c.at < 0 {
			want = 0
		}
		if n := sum(got.Points[series.Started]); n != want || c.at >= 0 && got.Points[series.Started][c.at] != 2 {
			t.Errorf("after %s: %d, want %d at %d", c.after, n, want, c.at)
		}
	}
	if got := r.Read(noon, "nobody"); sum(got.Points[series.Started]) != 0 || got.Since != noon {
		t.Errorf("a tenant without numbers: %+v", got)
	}
}

// A clock that goes back loses no number.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	r := series.New(noon)
	r.Add(noon.Add(time.Minute), []series.One{{"acme", series.Started}})
	r.Add(noon, []series.One{{"acme", series.Started}})
	if got := r.Read(noon, "acme"); got.Points[series.Started][series.Points-1] != 2 {
		t.Errorf("%v", got.Points[series.Started][series.Points-5:])
	}
}

// The memory is bounded. The recorder drops the tenant that was counted least recently. If a caller
// reads the numbers of this tenant, Since says that the recorder began to count only after the
// dropped numbers.
func TestManyTenants(t *testing.T) {
	t.Parallel()
	r := series.New(noon)
	for i := range series.MaxTenants + 1 {
		r.Add(noon.Add(time.Duration(i)*series.Step), []series.One{{fmt.Sprint("tenant-", i), series.Started}})
	}
	now := noon.Add(time.Duration(series.MaxTenants) * series.Step)
	if got := r.Read(now, "tenant-0"); sum(got.Points[series.Started]) != 0 || got.Since != noon.Add(series.Step) {
		t.Errorf("the dropped tenant has %d since %s", sum(got.Points[series.Started]), got.Since)
	}
	if got := r.Read(now, "tenant-1"); sum(got.Points[series.Started]) != 1 || got.Since != noon {
		t.Errorf("a kept tenant has %d since %s", sum(got.Points[series.Started]), got.Since)
	}
}

// queueSample is a sample of a queue with waiting and running tasks.
func queueSample(tenant, name string, waiting, running uint32) series.Sample {
	return series.Sample{Subject: series.Subject{Tenant: tenant, Kind: series.Queue, Name: name}, Levels: [4]uint32{waiting, 0, running, 7}}
}

func limitSample(name string, inUse, refused uint32) series.Sample {
	return series.Sample{Subject: series.Subject{Tenant: "acme", Kind: series.Limit, Name: name}, Levels: [4]uint32{inUse, 0, 5, refused}}
}

// tail returns the last points of a level.
func tail(t *testing.T, l *series.Levels, name string, level, n int) []uint32 {
	t.Helper()
	for _, s := range l.Subjects {
		if s.Name == name {
			return s.Points[level][len(s.Points[level])-n:]
		}
	}
	t.Fatalf("no %s in %+v", name, l)
	return nil
}

func wantTail(t *testing.T, got []uint32, want ...uint32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("points %v, want %v", got, want)
	}
}

// A point shows the state at its end, and the sum of what was counted in it.
func TestLevels(t *testing.T) {
	t.Parallel()
	s := series.NewSampler()
	for i := range 24 { // two minutes
		now := noon.Add(time.Duration(i) * series.Step)
		s.Add(now, []series.Sample{queueSample("acme", "mails", uint32(i), 2), limitSample("smtp", 3, 1), queueSample("beta", "mails", 9, 9)})
	}
	now := noon.Add(2*time.Minute - series.Step)
	got := s.Read(now, "acme", time.Minute)
	if len(got.Subjects) != 2 || got.Cut {
		t.Fatalf("%+v", got)
	}
	wantTail(t, tail(t, got, "mails", series.QueueWaiting, 3), 0, 11, 23)
	wantTail(t, tail(t, got, "mails", series.QueueRunning, 3), 0, 2, 2)
	wantTail(t, tail(t, got, "mails", series.QueueOldest, 3), 0, 7, 7)
	wantTail(t, tail(t, got, "smtp", series.LimitHeld, 3), 0, 3, 3)
	wantTail(t, tail(t, got, "smtp", series.LimitRefused, 3), 0, 12, 12)
	wantTail(t, tail(t, s.Read(now, "acme", series.Step), "mails", series.QueueWaiting, 2), 22, 23)

	// The next minute has just begun. Its point has the current state, and a count of zero.
	now = now.Add(series.Step)
	wantTail(t, tail(t, s.Read(now, "acme", time.Minute), "mails", series.QueueWaiting, 2), 23, 23)
	wantTail(t, tail(t, s.Read(now, "acme", time.Minute), "smtp", series.LimitRefused, 2), 12, 0)

	// A subject that is missing in a sample has no tasks, and is forgotten after an hour.
	s.Add(now, nil)
	wantTail(t, tail(t, s.Read(now, "acme", series.Step), "mails", series.QueueWaiting, 2), 23, 0)
	s.Add(now.Add(time.Hour), nil)
	if got := s.Read(now.Add(time.Hour), "acme", time.Minute); len(got.Subjects) != 0 {
		t.Errorf("after an hour: %+v", got)
	}
}

// A late sample leaves no hole in the series. A sampler that has stopped leaves a hole. Two samples
// of one point become one.
func TestLateSamples(t *testing.T) {
	t.Parallel()
	s := series.NewSampler()
	s.Add(noon, []series.Sample{limitSample("smtp", 3, 4)})
	s.Add(noon.Add(time.Second), []series.Sample{limitSample("smtp", 2, 5)})
	s.Add(noon.Add(2*series.Step), []series.Sample{limitSample("smtp", 1, 1)})
	now := noon.Add(8 * series.Step)
	got := s.Read(now, "acme", series.Step)
	wantTail(t, tail(t, got, "smtp", series.LimitHeld, 9), 2, 2, 1, 1, 1, 1, 0, 0, 0)
	wantTail(t, tail(t, got, "smtp", series.LimitRefused, 9), 9, 0, 1, 0, 0, 0, 0, 0, 0)
}

// The memory is bounded, by tenant and in total. If the sampler has dropped a subject of a tenant,
// the levels of the tenant say so.
func TestManySubjects(t *testing.T) {
	t.Parallel()
	s := series.NewSampler()
	var all []series.Sample
	for i := range series.MaxOfTenant + 5 {
		all = append(all, queueSample("many", fmt.Sprint("queue-", i), 1, 0))
	}
	for i := range 2 * series.MaxSubjects {
		all = append(all, queueSample(fmt.Sprint("tenant-", i), "mails", 1, 0))
	}
	s.Add(noon, all[:series.MaxOfTenant+5])
	if got := s.Read(noon, "many", time.Minute); len(got.Subjects) != series.MaxOfTenant || !got.Cut {
		t.Errorf("%d subjects of one tenant, cut %v", len(got.Subjects), got.Cut)
	}
	s.Add(noon, all[series.MaxOfTenant+5:])

	total := 0
	for _, tenant := range append([]string{"many"}, tenants(2*series.MaxSubjects)...) {
		total += len(s.Read(noon, tenant, time.Minute).Subjects)
	}
	if total > series.MaxSubjects {
		t.Errorf("%d subjects, at most %d are allowed", total, series.MaxSubjects)
	}
}

func tenants(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("tenant-", i))
	}
	return all
}
