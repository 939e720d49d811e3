// Package cadence computes when something that repeats is due: by a cron line in an IANA zone, or
// at a fixed interval. It is pure: a Cadence is a value, and its results depend only on its
// arguments and on the time zone database, which is linked into the program.
//
// A cron line refers to wall clock time. The package first computes the times of the line on a wall
// clock where every day has 24 hours. Then it maps each of these times to the first instant at
// which the real wall clock shows that time or a later one. So a time that does not exist, because
// the clock was put forward, is due once, right after the gap. A time that exists twice is due only
// the first time. No wall clock time is due twice.
package cadence

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/netresearch/go-cron"

	"github.com/perdure/perdure/internal/fault"
)

// Bounds of what is accepted.
const (
	MinEvery  = time.Second
	MaxEvery  = 100 * 365 * 24 * time.Hour
	maxLine   = 256 // bytes of a cron line
	maxZone   = 64  // bytes of a zone
	firstYear = 1970
	lastYear  = 9999
	// searchYears is how far apart two times of a cron line may be. The 29th of February falls on a
	// given weekday at least once in 40 years.
	searchYears = 41
)

// Cadence is a sequence of instants. The zero value has none.
type Cadence struct {
	line  *cron.SpecSchedule
	zone  *time.Location
	every time.Duration
	phase time.Duration // the time from the beginning of 1970 to the first instant
	text  string
}

// FieldError says which field of a cadence is wrong.
type FieldError struct {
	Field string // such as "minute", "zone", "interval"
	Value string
	Text  string
}

// Error returns a sentence that begins with the field.
func (e *FieldError) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Text) }

// wrong returns an Invalid error about a field. It cuts a long value.
func wrong(field, value, format string, args ...any) error {
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	return fault.New(fault.Invalid, "%w", &FieldError{Field: field, Value: value, Text: fmt.Sprintf(format, args...)})
}

// options are the options of the parser. A line has five fields, or six with seconds in front, or
// is a name such as @daily. Fields for days may use L, W and #. If both day of month and day of
// week are restricted, either may match, as in every crontab.
const options = cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.Extended | cron.DowOrDom

// fieldNames are the names of the fields of a line with six fields.
var fieldNames = [...]string{"second", "minute", "hour", "day of month", "month", "day of week"}

// Cron returns the cadence of a cron line in an IANA zone. An empty zone is UTC.
func Cron(line, zone string) (Cadence, error) {
	loc, err := loadZone(zone)
	if err != nil {
		return Cadence{}, err
	}
	line = strings.Join(strings.Fields(line), " ")

	switch {
	case line == "":
		return Cadence{}, wrong("cron line", line, "it is empty: write five fields, such as 0 2 * * *")
	case len(line) > maxLine:
		return Cadence{}, wrong("cron line", line, "it has %d bytes, at most %d are allowed", len(line), maxLine)
	case strings.HasPrefix(line, "TZ=") || strings.HasPrefix(line, "CRON_TZ="):
		return Cadence{}, wrong("cron line", line, "the zone does not belong in the line: give it separately")
	case strings.HasPrefix(strings.ToLower(line), "@every"):
		return Cadence{}, wrong("cron line", line, "an interval is not a cron line: give it as interval")
	}

	spec, err := parse(line)
	if err != nil {
		return Cadence{}, err
	}
	c := Cadence{line: spec, zone: loc, text: line + " " + loc.String()}
	if _, ok := c.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return Cadence{}, wrong("cron line", line, "it never fires: there is no such day")
	}

	return c, nil
}

// CheckZone returns an error if there is no such IANA zone. An empty zone is UTC.
func CheckZone(zone string) error {
	_, err := loadZone(zone)
	return err
}

// loadZone finds an IANA zone.
func loadZone(zone string) (*time.Location, error) {
	switch {
	case zone == "":
		return time.UTC, nil
	case zone == "Local":
		return nil, wrong("zone", zone, "its meaning depends on the machine: name an IANA zone, such as Europe/Berlin")
	case len(zone) > maxZone:
		return nil, wrong("zone", zone, "it has %d bytes, at most %d are allowed", len(zone), maxZone)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, wrong("zone", zone, "there is no such IANA zone: write one such as Europe/Berlin, or UTC")
	}
	return loc, nil
}

// parse reads a line for a wall clock without daylight saving time. Its error names the wrong
// field.
func parse(line string) (*cron.SpecSchedule, error) {
	fields := strings.Fields(line)
	if fields[0][0] != '@' && len(fields) != 5 && len(fields) != 6 {
		return nil, wrong("cron line", line, "it has %d fields: write five (minute, hour, day of month, month, day of week), or six with seconds in front", len(fields))
	}
	spec, err := parseFields(line)
	if err == nil {
		spec.Location, spec.MaxSearchYears = time.UTC, searchYears
		return spec, nil
	}

	// Find the field that is wrong: parse each alone, with * for the others.
	names := fieldNames[len(fieldNames)-min(len(fields), len(fieldNames)):]
	for i := range fields {
		if fields[0][0] == '@' {
			break
		}
		alone := make([]string, len(fields))
		for j := range alone {
			alone[j] = "*"
		}
		alone[i] = fields[i]
		if _, err := parseFields(strings.Join(alone, " ")); err != nil {
			return nil, wrong(names[i], fields[i], "%v", err)
		}
	}

	return nil, wrong("cron line", line, "%v", err)
}

func parseFields(line string) (*cron.SpecSchedule, error) {
	p, err := cron.TryNewParser(options)
	if err != nil {
		return nil, err
	}
	s, err := p.Parse(line)
	if err != nil {
		return nil, err
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("it is not a line of fields")
	}
	return spec, nil
}

// Every returns the cadence of an interval. Its instants are the multiples of the interval since
// the beginning of 1970 (UTC), moved by the phase. So the instants are the same in every process,
// at any time.
func Every(every, phase time.Duration) (Cadence, error) {
	switch {
	case every <= 0:
		return Cadence{}, wrong("interval", every.String(), "it must be positive")
	case every < MinEvery:
		return Cadence{}, wrong("interval", every.String(), "it is too short: the shortest is %s", MinEvery)
	case every > MaxEvery:
		return Cadence{}, wrong("interval", every.String(), "it is too long: the longest is %s", MaxEvery)
	case every%time.Millisecond != 0:
		return Cadence{}, wrong("interval", every.String(), "it must be a whole number of milliseconds")
	case phase < 0 || phase >= every:
		return Cadence{}, wrong("phase", phase.String(), "it must be less than the interval %s, and not negative", every)
	case phase%time.Millisecond != 0:
		return Cadence{}, wrong("phase", phase.String(), "it must be a whole number of milliseconds")
	}

	c := Cadence{every: every, phase: phase, text: "every " + every.String()}
	if phase > 0 {
		c.text += ", " + phase.String() + " after it"
	}
	return c, nil
}

// CheckInstant returns an error if a point in time is out of range.
func CheckInstant(field string, t time.Time) error {
	if y := t.UTC().Year(); y < firstYear || y > lastYear {
		return wrong(field, t.UTC().Format(time.RFC3339), "its year must be between %d and %d", firstYear, lastYear)
	}
	return nil
}

// String returns the cron line and its zone, or the interval.
func (c Cadence) String() string { return c.text }

// IsZero reports whether the cadence has no instants.
func (c Cadence) IsZero() bool { return c.line == nil && c.every == 0 }

// Next returns the first instant after a point in time. It reports false if it finds none before
// the year 10000.
func (c Cadence) Next(after time.Time) (t time.Time, ok bool) {
	if first := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC); after.Before(first) {
		after = first.Add(-1)
	}
	switch {
	case after.UTC().Year() > lastYear:
		return time.Time{}, false
	case c.line != nil:
		t, ok = c.nextOnWall(after)
	case c.every > 0:
		t, ok = c.nextMultiple(after), true
	}
	if !ok || t.Year() > lastYear {
		return time.Time{}, false
	}
	return t, true
}

// nextMultiple returns the first instant of an interval after a point in time. It counts in
// milliseconds: ten thousand years in milliseconds are far from an overflow.
func (c Cadence) nextMultiple(after time.Time) time.Time {
	every, phase := c.every.Milliseconds(), c.phase.Milliseconds()
	n := after.UnixMilli() - phase
	k := n / every
	if n%every < 0 {
		k--
	}
	return time.UnixMilli((k+1)*every + phase).UTC()
}

// nextOnWall looks for the next time that the wall clock has not shown yet.
func (c Cadence) nextOnWall(after time.Time) (time.Time, bool) {
	wall := c.lastShown(after)
	for {
		wall = c.line.Next(wall)
		if wall.IsZero() {
			return time.Time{}, false
		}
		// The first attempt succeeds, unless a zone changed twice within hours.
		if t := c.firstReached(wall); t.After(after) {
			return t, true
		}
	}
}

// lastShown returns the latest time that the wall clock has shown until an instant. The result is
// this clock time in UTC. While the clock repeats an hour, that is the end of the first pass.
func (c Cadence) lastShown(at time.Time) time.Time {
	local := at.In(c.zone)
	_, offset := local.Zone()
	wall := asUTC(at, offset)
	if start, _ := local.ZoneBounds(); !start.IsZero() {
		_, before := start.Add(-time.Nanosecond).In(c.zone).Zone()
		if first := asUTC(start, before).Add(-time.Nanosecond); first.After(wall) {
			return first
		}
	}
	return wall
}

// firstReached returns the first instant at which the wall clock shows a given time or a later one.
func (c Cadence) firstReached(wall time.Time) time.Time {
	at := wall.Add(-48 * time.Hour) // no zone is that far from UTC
	for {
		local := at.In(c.zone)
		_, offset := local.Zone()
		t := asUTC(wall, -offset)
		if t.Before(at) {
			return at.UTC() // the clock was put forward past the time
		}

		_, end := local.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			// For zones that follow a rule from some year on, Go assumes years of 365 days. So on
			// the last day of a leap year, ZoneBounds returns an end that has already passed.
			// Search such a day hour by hour.
			end = at.Add(time.Hour)
		}

		if end.IsZero() || t.Before(end) {
			return t
		}
		at = end
	}
}

func asUTC(t time.Time, offset int) time.Time {
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// Between returns the first instants after a point in time, up to and including another one. It
// returns at most as many instants as most says. more reports whether there are further ones.
func (c Cadence) Between(after, upTo time.Time, most int) (all []time.Time, more bool) {
	for at := after; ; {
		t, ok := c.Next(at)
		if !ok || t.After(upTo) {
			return all, false
		}
		if len(all) == most {
			return all, true
		}
		all = append(all, t)
		at = t
	}
}
