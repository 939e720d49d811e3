package cadence

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
)

func mustCron(t testing.TB, line, zone string) Cadence {
	t.Helper()
	c, err := Cron(line, zone)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestDaylightSaving covers the days on which clocks change, in zones that do it in different ways.
func TestDaylightSaving(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ name, line, zone, after, want string }{
		{"Berlin, spring: 02:30 does not exist", "30 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Berlin, spring: 02:00 is the moment after the gap", "0 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:00:00Z"},
		{"Berlin, spring: all of the gap is due once, together with 03:00", "*/15 * * * *", "Europe/Berlin", "2026-03-29T00:40:00Z", "2026-03-29T00:45:00Z 2026-03-29T01:00:00Z 2026-03-29T01:15:00Z"},
		{"Berlin, autumn: 02:30 exists twice", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"Berlin, autumn: asked in the second 02:xx", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"},
		{"Berlin, autumn: 03:00 comes after both", "0 3 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"},
		{"Berlin, autumn: every half hour of the wall", "*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z 2026-10-25T02:00:00Z 2026-10-25T02:30:00Z"},
		{"New York, spring", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z 2026-03-09T06:30:00Z"},
		{"New York, autumn", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T05:30:00Z 2026-11-02T06:30:00Z"},
		{"Lord Howe, autumn: half an hour is repeated", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z"},
		{"Lord Howe, spring: half an hour is left out", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", "2026-10-03T15:30:00Z 2026-10-04T15:15:00Z"},
		{"Sao Paulo: midnight did not exist", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z"},
		{"Apia: a whole day did not exist", "0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-30T10:00:00Z 2011-12-30T22:00:00Z"},
		{"leap day", "0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"no leap day in 2100", "0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"seconds", "30 59 23 31 12 *", "", "2026-01-01T00:00:00Z", "2026-12-31T23:59:30Z"},
		{"a name", "@hourly", "", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"},
		{"either day, as in a crontab", "0 0 13 * 5", "", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z 2026-11-13T00:00:00Z 2026-11-20T00:00:00Z"},
		{"last day of the month", "0 0 L * *", "", "2026-01-31T12:00:00Z", "2026-02-28T00:00:00Z 2026-03-31T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cadence, at := mustCron(t, c.line, c.zone), instant(t, c.after)
			for want := range strings.FieldsSeq(c.want) {
				got, ok := cadence.Next(at)
				if !ok || !got.Equal(instant(t, want)) {
					t.Fatalf("after %s comes %s, want %s", at.Format(time.RFC3339), got.Format(time.RFC3339), want)
				}
				at = got
			}
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	cron := func(line, zone string) func() (Cadence, error) {
		return func() (Cadence, error) { return Cron(line, zone) }
	}

	every := func(d, phase time.Duration) func() (Cadence, error) {
		return func() (Cadence, error) { return Every(d, phase) }
	}
	for _, c := range []struct {
		name  string
		make  func() (Cadence, error)
		field string
		text  string
	}{
		{"nothing", cron("", ""), "cron line", "empty"},
		{"blanks", cron(" \t", ""), "cron line", "empty"},
		{"too few fields", cron("* * *", ""), "cron line", "3 fields"},
		{"too many fields", cron("* * * * * * 2026", ""), "cron line", "7 fields"},
		{"minute", cron("60 * * * *", ""), "minute", "60"},
		{"negative", cron("-1 * * * *", ""), "minute", ""},
		{"huge", cron("99999999999999999999 * * * *", ""), "minute", ""},
		{"second", cron("61 * * * * *", ""), "second", "61"},
		{"hour", cron("0 24 * * *", ""), "hour", "24"},
		{"day of month", cron("0 0 32 * *", ""), "day of month", "32"},
		{"day zero", cron("0 0 0 * *", ""), "day of month", ""},
		{"month", cron("0 0 1 13 *", ""), "month", "13"},
		{"day of week", cron("0 0 * * mox", ""), "day of week", "mox"},
		{"step of zero", cron("*/0 * * * *", ""), "minute", ""},
		{"30 February", cron("0 0 30 2 *", ""), "cron line", "never"},
		{"31 April", cron("0 0 31 4,6,9,11 *", ""), "cron line", "never"},
		{"a zone in the line", cron("TZ=UTC 0 0 * * *", ""), "cron line", "zone"},
		{"an interval as line", cron("@every 1h", ""), "cron line", "interval"},
		{"an unknown name", cron("@sometimes", ""), "cron line", ""},
		{"too long", cron(strings.Repeat("1,", 500)+"1 * * * *", ""), "cron line", "bytes"},
		{"no such zone", cron("0 0 * * *", "Europe/Bonn"), "zone", "no such"},
		{"the zone of the machine", cron("0 0 * * *", "Local"), "zone", "depends"},
		{"a path", cron("0 0 * * *", "../../etc/passwd"), "zone", "no such"},
		{"a long zone", cron("0 0 * * *", strings.Repeat("x", 100)), "zone", "bytes"},
		{"no interval", every(0, 0), "interval", "positive"},
		{"negative interval", every(-time.Hour, 0), "interval", "positive"},
		{"too short", every(time.Millisecond, 0), "interval", "too short"},
		{"too long an interval", every(1<<63-1, 0), "interval", "too long"},
		{"microseconds", every(time.Second+time.Microsecond, 0), "interval", "milliseconds"},
		{"negative phase", every(time.Hour, -1), "phase", "negative"},
		{"phase as long as the interval", every(time.Hour, time.Hour), "phase", "less than"},
		{"microseconds of phase", every(time.Hour, time.Microsecond), "phase", "milliseconds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.make()
			var field *FieldError
			switch {
			case err == nil:
				t.Fatalf("accepted as %s", got)
			case !errors.As(err, &field) || fault.KindOf(err) != fault.Invalid:
				t.Fatalf("not a FieldError that is Invalid: %v", err)
			case field.Field != c.field || !strings.Contains(err.Error(), c.text):
				t.Errorf("%v: names %q, want %q and %q", err, field.Field, c.field, c.text)
			}
		})
	}

	for _, at := range []time.Time{{}, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if err := CheckInstant("start", at); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "start") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	hourly, err := Every(time.Hour, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}

	for after, want := range map[string]string{
		"2026-11-15T00:00:00Z":     "2026-11-15T00:10:00Z",
		"2026-11-15T00:10:00Z":     "2026-11-15T01:10:00Z",
		"2026-11-15T00:09:59.999Z": "2026-11-15T00:10:00Z",
		"1960-01-01T00:00:00Z":     "1970-01-01T00:10:00Z",
	} {
		if got, ok := hourly.Next(instant(t, after)); !ok || !got.Equal(instant(t, want)) {
			t.Errorf("after %s comes %s, want %s", after, got, want)
		}
	}

	if got, ok := hourly.Next(time.Date(9999, 12, 31, 23, 30, 0, 0, time.UTC)); ok {
		t.Errorf("after the last year comes %s", got)
	}
	if got, more := hourly.Between(instant(t, "2026-11-15T00:10:00Z"), instant(t, "2026-11-15T02:10:00Z"), 2); len(got) != 2 || more {
		t.Errorf("between: %v, %v", got, more)
	}
	if got, more := hourly.Between(instant(t, "2026-11-15T00:10:00Z"), instant(t, "2026-11-15T03:10:00Z"), 2); len(got) != 2 || !more {
		t.Errorf("between, bounded: %v, %v", got, more)
	}
	if got, ok := (Cadence{}).Next(time.Now()); ok || !(Cadence{}).IsZero() {
		t.Errorf("a cadence of nothing: %s", got)
	}
}

var zones = []string{
	"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "Antarctica/Troll",
}

// drawn is a random cron line, together with the field values that it allows. The test computes the
// times of the line itself from these values.
type drawn struct {
	line                           string
	minutes, hours, months, monday []int
}

func draw(t *rapid.T) drawn {
	field := func(name string, low, high int) (string, []int) {
		switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
		case 0:
			return "*", span(low, high, 1)
		case 1:
			step := rapid.IntRange(1, high-low).Draw(t, name+" step")
			return "*/" + strconv.Itoa(step), span(low, high, step)
		case 2:
			from := rapid.IntRange(low, high).Draw(t, name+" from")
			to := rapid.IntRange(from, high).Draw(t, name+" to")
			return strconv.Itoa(from) + "-" + strconv.Itoa(to), span(from, to, 1)
		default:
			v := rapid.IntRange(low, high).Draw(t, name)
			return strconv.Itoa(v), []int{v}
		}
	}

	var d drawn
	var minute, hour, month, weekday string
	minute, d.minutes = field("minute", 0, 59)
	hour, d.hours = field("hour", 0, 23)
	month, d.months = field("month", 1, 12)
	weekday, d.monday = field("weekday", 0, 6)
	d.line = strings.Join([]string{minute, hour, "*", month, weekday}, " ")

	return d
}

// TestNextIsTheFirst compares Next with a walk along the wall clock, minute by minute.
func TestNextIsTheFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		c, err := Cron(d.line, zone)
		if err != nil {
			t.Fatal(err)
		}

		// Start mostly near changes of the clock.
		base := rapid.SampledFrom([]string{"2026-03-28T00:00:00Z", "2026-10-24T00:00:00Z", "2026-03-07T00:00:00Z", "2026-10-31T00:00:00Z", "2026-04-04T00:00:00Z", "2011-12-29T00:00:00Z", "2024-02-28T00:00:00Z"}).Draw(t, "base")
		from, err := time.Parse(time.RFC3339, base)
		if err != nil {
			t.Fatal(err)
		}
		from = from.Add(time.Duration(rapid.IntRange(0, 48*3600).Draw(t, "second")) * time.Second)
		want := d.naive(from, from.Add(40*time.Hour), c.zone)
		got, _ := c.Between(from, from.Add(40*time.Hour), 10_000)
		if len(got) != len(want) {
			t.Fatalf("%s in %s after %s: %d instants %v, want %d %v", d.line, zone, from, len(got), got, len(want), want)
		}

		for i := range got {
			if !got[i].Equal(want[i]) {
				t.Fatalf("%s in %s after %s: instant %d is %s, want %s", d.line, zone, from, i, got[i], want[i])
			}
		}
	})
}

// naive walks through every minute of real time. It notes when the wall clock first shows a time
// that is due, or has jumped past it.
func (d *drawn) naive(after, upTo time.Time, zone *time.Location) (all []time.Time) {
	start := after.Add(-72 * time.Hour).Truncate(time.Minute)
	last := wallOf(start, zone) // the latest time that the wall clock has shown
	for t := start; !t.After(upTo); t = t.Add(time.Minute) {
		wall, due := wallOf(t, zone), false
		for w := last.Add(time.Minute); !w.After(wall); w = w.Add(time.Minute) {
			due = due || d.matches(w)
		}
		if wall.After(last) {
			last = wall
		}
		if due && t.After(after) {
			all = append(all, t)
		}
	}
	return all
}

func wallOf(t time.Time, zone *time.Location) time.Time {
	l := t.In(zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
}

func (d *drawn) matches(w time.Time) bool {
	return slices.Contains(d.minutes, w.Minute()) && slices.Contains(d.hours, w.Hour()) && slices.Contains(d.months, int(w.Month())) && slices.Contains(d.monday, int(w.Weekday()))
}

// Every line has its instants around the end of leap years, also in zones that follow a rule.
func TestEndOfLeapYears(t *testing.T) {
	t.Parallel()
	for _, zone := range append([]string{"Asia/Gaza", "Europe/Dublin", "Pacific/Chatham", "America/Santiago"}, zones...) {
		for _, line := range []string{"*/15 * * * *", "0 * * * *", "30 3 * * *", "0 0 1 * *", "59 23 31 12 *"} {
			c, err := Cron(line, zone)
			if err != nil {
				t.Fatal(err)
			}

			for _, year := range []int{2028, 2040, 2041, 2064, 2088, 2096, 2400} {
				at, until := time.Date(year, 12, 28, 0, 0, 0, 0, time.UTC), time.Date(year+1, 1, 3, 0, 0, 0, 0, time.UTC)
				wall := time.Time{}
				for n := 0; at.Before(until); n++ {
					next, ok := c.Next(at)
					if !ok || !next.After(at) || !wallOf(next, c.zone).After(wall) {
						t.Fatalf("%s: after %s comes %s, %v", c, at, next, ok)
					}
					if line == "0 * * * *" && n > 0 && next.Sub(at) != time.Hour {
						t.Fatalf("%s: after %s comes %s", c, at, next)
					}
					at, wall = next, wallOf(next, c.zone)
				}
			}
		}
	}
}

// TestNoWallTimeTwice checks that instants increase and that no wall clock time occurs twice, in
// every zone, over years.
func TestNoWallTimeTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c, err := Cron(d.line, rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(0, 4_000_000_000).Draw(t, "from"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))

		seen := map[time.Time]bool{}
		for range 200 {
			next, ok := c.Next(at)
			if !ok {
				t.Fatalf("%s ends after %s", c, at)
			}
			wall := wallOf(next, c.zone)
			if !next.After(at) || seen[wall] || next.Second() != 0 || next.Nanosecond() != 0 {
				t.Fatalf("%s: after %s comes %s (%s on the wall)", c, at, next, wall)
			}
			seen[wall] = true
			at = next
		}
	})
}

func FuzzCron(f *testing.F) {
	for _, line := range []string{"0 2 * * *", "*/5 1-3,7 * jan-mar mon", "@daily", "0 0 L * *", "0 0 15W * *", "0 0 * * 5#3", "1 2 3 4 5 6", "60 * * * *", "0 22-2 * * *", "? ? ? ? ?"} {
		f.Add(line, "Europe/Berlin")
	}

	f.Fuzz(func(t *testing.T, line, zone string) {
		c, err := Cron(line, zone)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid || err.Error() == "" {
				t.Fatalf("%q in %q: %v", line, zone, err)
			}
			return
		}

		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 10 {
			next, ok := c.Next(at)
			if !ok {
				return
			}
			if !next.After(at) {
				t.Fatalf("%q in %q: after %s comes %s", line, zone, at, next)
			}
			at = next
		}
	})
}

func span(from, to, step int) (all []int) {
	for v := from; v <= to; v += step {
		all = append(all, v)
	}
	return all
}
