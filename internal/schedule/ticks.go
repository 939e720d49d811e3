package schedule

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/cadence"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// MaxTicks bounds the ticks of one answer.
const MaxTicks = 1000

// Outcomes of a tick.
const (
	TickDue     = "due"     // the schedule has not decided about the tick yet
	TickPaused  = "paused"  // like TickDue, and the schedule is paused
	TickWaiting = "waiting" // the execution of the tick waits for its turn
	TickStarted = "started" // the execution of the tick was started
	// TickNone: no execution of the tick exists, and the schedule remembers none. The tick was
	// skipped or missed, or its execution was removed long ago.
	TickNone = "none"
	// TickUnknown: like TickNone, but the tick is before the creation of the schedule, or before
	// its last change. So the schedule may not have had this tick at all.
	TickUnknown = "unknown"
)

// Tick is a time at which a schedule starts its job.
type Tick struct {
	At time.Time
	// Outcome is one of the constants above.
	Outcome string
	// Workflow and Key name the execution that the tick starts. Status is the status of this
	// execution, if it exists.
	Workflow, Key string
	Status        model.Status
}

// TickRange selects the times from From (included) to To (not included), at most Limit.
type TickRange struct {
	From, To time.Time
	Limit    int
}

// Ticks returns the times of a schedule in a range, with their outcomes. more says that the range
// has further times. Ticks computes past times from the present definition, because ticks of
// earlier definitions are not known.
func (s Schedules) Ticks(ctx context.Context, name string, r TickRange) (ticks []Tick, more bool, err error) {
	for field, t := range map[string]time.Time{"from": r.From, "to": r.To} {
		if err := cadence.CheckInstant(field, t); err != nil {
			return nil, false, fault.New(fault.Invalid, "ticks of schedule %s: %w", name, err)
		}
	}
	if !r.From.Before(r.To) || r.Limit < 1 || r.Limit > MaxTicks {
		return nil, false, fault.New(fault.Invalid, "ticks of schedule %s: from must be before to, and the limit between 1 and %d", name, MaxTicks)
	}
	seen, err := s.Look(ctx, name)
	if err != nil {
		return nil, false, err
	}
	d := decider{name: name, spec: &seen.Spec}
	if err := d.load(); err != nil {
		return nil, false, err
	}

	times, more := d.between(r.From.UTC().Add(-time.Nanosecond), r.To.UTC().Add(-time.Nanosecond), r.Limit)
	for _, at := range times {
		t := Tick{At: at, Workflow: seen.Spec.Job.Type(), Key: d.key(&Fire{Kind: ByTick, Tick: at})}
		if err := s.judge(ctx, &seen, &t); err != nil {
			return nil, false, err
		}
		ticks = append(ticks, t)
	}
	return ticks, more, nil
}

// judge finds out the outcome of a tick.
func (s Schedules) judge(ctx context.Context, seen *Seen, t *Tick) error {
	same := func(f Fire) bool { return f.Key == t.Key }
	switch w := seen.Status.Waiting; {
	case w != nil && same(*w):
		t.Outcome = TickWaiting
		return nil
	case t.At.After(seen.Status.Decided) && seen.Status.Paused:
		t.Outcome = TickPaused
		return nil
	case t.At.After(seen.Status.Decided):
		t.Outcome = TickDue
		return nil
	}

	d, err := s.client.Describe(ctx, api.Target{Address: model.Address{Tenant: s.tenant, Type: t.Workflow, Key: t.Key}})
	switch {
	case err == nil:
		t.Outcome, t.Status = TickStarted, d.Outcome.Status
	case !fault.Is(err, fault.NotFound):
		return err
	case slices.ContainsFunc(seen.Status.Open, same) || slices.ContainsFunc(seen.Status.Recent, same):
		// The execution does not exist yet, or was removed, but the schedule remembers its start.
		t.Outcome = TickStarted
	case t.At.Before(seen.Status.Created) || t.At.Before(seen.Status.Changed):
		t.Outcome = TickUnknown
	default:
		t.Outcome = TickNone
	}
	return nil
}
