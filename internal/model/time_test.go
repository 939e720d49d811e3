package model_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

func TestTimeAddSaturates(t *testing.T) {
	t.Parallel()

	const s = model.Time(1_000_000)
	for _, v := range []struct {
		t    model.Time
		d    time.Duration
		want model.Time
	}{
		{100 * s, 0, 100 * s},
		{100 * s, time.Second, 101 * s},
		{100 * s, -time.Second, 99 * s},
		{100 * s, time.Microsecond, 100*s + 1},
		{100 * s, 999 * time.Nanosecond, 100 * s}, // below the resolution
		{0, time.Second, s},
		{1, -time.Microsecond, 1}, // zero means no time, so Add never returns it
		{100 * s, -100 * time.Second, 1},
		{100 * s, math.MinInt64, 1},
		{100 * s, math.MaxInt64, 100*s + math.MaxInt64/1000},
		{model.MaxTime, 0, model.MaxTime},
		{model.MaxTime, time.Microsecond, model.MaxTime},
		{model.MaxTime, math.MaxInt64, model.MaxTime},
		{model.MaxTime, -time.Microsecond, model.MaxTime - 1},
		{model.MaxTime - 1, time.Microsecond, model.MaxTime},
		{model.MaxTime + 1, 0, model.MaxTime},
		{math.MaxInt64, time.Hour, model.MaxTime},
		{math.MaxInt64, math.MaxInt64, model.MaxTime},
		{math.MaxInt64, -time.Microsecond, model.MaxTime},
		{-5 * s, time.Second, 1},
		{math.MinInt64, -time.Hour, 1},
		{math.MinInt64, math.MinInt64, 1},
		{math.MinInt64, math.MaxInt64, 1},
	} {
		if got := v.t.Add(v.d); got != v.want {
			t.Errorf("Time(%d).Add(%d) = %d, want %d", v.t, v.d, got, v.want)
		}
	}
}

func TestTimeAddIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := genTime.Draw(t, "at")
		d := time.Duration(genInt.Draw(t, "d"))
		e := time.Duration(genInt.Draw(t, "e"))
		a, b := at.Add(min(d, e)), at.Add(max(d, e))
		if a > b || a < 1 || b > model.MaxTime {
			t.Fatalf("Time(%d): Add(%d) = %d, Add(%d) = %d", at, min(d, e), a, max(d, e), b)
		}
	})
}

func TestTimeSubSaturates(t *testing.T) {
	t.Parallel()
	const most = time.Duration(math.MaxInt64 / 1000 * 1000)
	for _, v := range []struct {
		t, earlier model.Time
		want       time.Duration
	}{
		{5_000_000, 3_000_000, 2 * time.Second},
		{3_000_000, 5_000_000, -2 * time.Second},
		{7, 7, 0},
		{7, 0, 7 * time.Microsecond},
		{model.MaxTime, 1, most},
		{1, model.MaxTime, -most},
		{math.MaxInt64, 0, most},
		{0, math.MaxInt64, -most},
		{math.MaxInt64, math.MinInt64, most},
		{math.MinInt64, math.MaxInt64, -most},
		{math.MinInt64, 1, -most},
		{1, math.MinInt64, most},
	} {
		if got := v.t.Sub(v.earlier); got != v.want {
			t.Errorf("Time(%d).Sub(%d) = %d, want %d", v.t, v.earlier, got, v.want)
		}
	}
}

func TestTimeSubUndoesAdd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := model.Time(rapid.Int64Range(1, int64(model.MaxTime)).Draw(t, "at"))
		d := rapid.Int64Range(0, int64(model.MaxTime-at)).Draw(t, "µs")
		d = min(d, math.MaxInt64/1000)
		if got := at.Add(time.Duration(d) * time.Microsecond).Sub(at); got != time.Duration(d)*time.Microsecond {
			t.Fatalf("Time(%d) plus %d µs minus itself = %s", at, d, got)
		}
	})
}

func TestTimeText(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		t    model.Time
		want string
	}{
		{0, "never"},
		{1, "1970-01-01T00:00:00.000001Z"},
		{1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"},
		{model.MaxTime, "9999-12-31T23:59:59.000000Z"},
		{-1, "1969-12-31T23:59:59.999999Z"},
	} {
		if got := v.t.String(); got != v.want {
			t.Errorf("Time(%d) = %q, want %q", v.t, got, v.want)
		}
	}
}

func TestTimeOfStandardTime(t *testing.T) {
	t.Parallel()
	if got := model.TimeOf(time.Time{}); got != 0 || !got.IsZero() || !got.Std().IsZero() {
		t.Errorf("the zero time became %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		at := model.Time(rapid.Int64Range(1, int64(model.MaxTime)).Draw(t, "at"))
		if got := model.TimeOf(at.Std()); got != at {
			t.Fatalf("Time(%d) came back as %d", at, got)
		}
		zone := time.FixedZone("x", rapid.IntRange(-50_000, 50_000).Draw(t, "offset"))
		if got := model.TimeOf(at.Std().In(zone)); got != at {
			t.Fatalf("Time(%d) came back as %d through another zone", at, got)
		}
	})
}
