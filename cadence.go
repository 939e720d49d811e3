package perdure

import (
	"time"
)

// Cadence says when a Schedule fires: Cron or Every.
type Cadence struct {
	cron, zone string
	every      time.Duration
	offset     time.Duration
}

// Cron fires by a cron line in an IANA zone, such as Europe/Berlin; an empty zone is UTC. A line
// has five fields (minute, hour, day of month, month, day of week), or six with seconds in front,
// or is a name such as @daily. If a clock change skips times of the line, the schedule fires once
// for all of them, right after the gap. A time that a clock change repeats fires only the first
// time. Open reports mistakes in the line or the zone.
func Cron(line, zone string) Cadence { return Cadence{cron: line, zone: zone} }

// Every fires at the multiples of an interval since 1970 (UTC): Every(time.Hour) fires at the full
// hour. The shortest interval is a second.
func Every(d time.Duration) Cadence {
	if d == 0 {
		d = -1 // 0 would mean that no interval is set; Open refuses -1
	}
	return Cadence{every: d}
}

// Offset moves an interval: Every(time.Hour).Offset(5*time.Minute) fires five minutes past the
// hour.
func (c Cadence) Offset(d time.Duration) Cadence {
	c.offset = d
	return c
}
