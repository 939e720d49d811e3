package series_test

import (
	"fmt"
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

// A number is in the point of its time, moves towards the beginning as time passes, and is gone
// after an hour. Other tenants do not see it.
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

// The memory is bounded: the tenant that was counted least recently is dropped, and a recorder that
// has dropped something does not claim to know it.
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
