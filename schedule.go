package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/schedule"
)

// Schedule starts a Job at each time of a Cadence, exactly once across all processes. It is
// durable: it fires as long as a process that serves it runs. Open applies the definition: it
// creates the schedule if it does not exist, changes the stored schedule if it differs from the
// definition, and otherwise leaves it alone.
type Schedule struct {
	name string
	job  Job
	opts scheduleOptions
	at   string
}

// NewSchedule defines a schedule. Open reports mistakes in the definition.
func NewSchedule(name string, when Cadence, job Job, opts ...ScheduleOption) *Schedule {
	s := &Schedule{name: name, job: job, at: callerPosition()}
	s.opts.spec = schedule.Spec{
		Cron: when.cron, Zone: when.zone, Every: schedule.Duration(when.every), Phase: schedule.Duration(when.offset),
		Job: schedule.Job{Kind: job.kind, Name: job.name, Labels: job.labels, Task: job.task},
	}
	for _, o := range opts {
		o.applySchedule(&s.opts)
	}
	return s
}

// Trigger fires now, even if the schedule is paused. Trigger follows Overlap: with OverlapSkip it
// returns ErrConflict while an execution of the schedule is open, and with OverlapQueue while
// another fire time already waits. When Trigger returns, the start of the execution is durable. The
// execution itself starts a moment later.
func (s *Schedule) Trigger(c Caller) error {
	_, err := s.command(c, schedule.Command{Verb: schedule.VerbTrigger})
	return err
}

// Pause stops the schedule until Resume. Open executions continue. Fire times during the pause do
// not fire later. ScheduleInfo.Missed counts them.
func (s *Schedule) Pause(c Caller, why string) error {
	_, err := s.command(c, schedule.Command{Verb: schedule.VerbPause, Why: why})
	return err
}

// Resume undoes Pause.
func (s *Schedule) Resume(c Caller) error {
	_, err := s.command(c, schedule.Command{Verb: schedule.VerbResume})
	return err
}

// Backfill starts an execution for every fire time t with from <= t < to, unless t already has an
// execution that did not fail. It returns the number of fire times in that range, and ErrInvalid if
// there are more than 1,000. The executions start one after the other or, with OverlapAllow,
// together. Fire times that are due now go before them.
func (s *Schedule) Backfill(c Caller, from, to time.Time) (int, error) {
	a, err := s.command(c, schedule.Command{Verb: schedule.VerbBackfill, From: from, To: to})
	return a.Ticks, err
}

// Delete ends the schedule. Executions that it started continue. An app that defines the schedule
// creates it again when the app opens.
func (s *Schedule) Delete(c Caller) error {
	_, err := s.command(c, schedule.Command{Verb: schedule.VerbDelete})
	return err
}

// Next returns the first n fire times of the definition after the given time. It does not read the
// store.
func (s *Schedule) Next(after time.Time, n int) ([]time.Time, error) {
	spec := s.opts.spec
	if err := spec.Define(s.name); err != nil {
		return nil, err
	}
	return spec.Next(after, n)
}

// command sends a command to the schedule and waits for the answer. Callers can return the error of
// command to users unchanged.
func (s *Schedule) command(c Caller, cmd schedule.Command) (a schedule.Answer, err error) {
	defer publish(&err)
	from := c.caller()
	r, err := from.host().schedules().Request(s.name, &cmd)
	if err == nil {
		err = schedule.CheckName(s.name)
	}
	if err != nil {
		return a, err
	}
	p, err := from.ask(&r)
	if err != nil {
		return a, err
	}
	return schedule.ReadAnswer(p)
}

// ScheduleOption configures a schedule: Overlap, CatchUp, Jitter, StartAt, EndAt or PausedAtFirst.
type ScheduleOption interface{ applySchedule(*scheduleOptions) }

type scheduleOptions struct {
	spec   schedule.Spec
	paused bool
	why    string
	err    error
}

type scheduleOption func(*scheduleOptions)

func (f scheduleOption) applySchedule(o *scheduleOptions) { f(o) }

// Overlap says what a schedule does at a fire time while an earlier execution of it is open. The
// default is OverlapSkip.
type Overlap int

// Policies of Overlap.
const (
	OverlapSkip   Overlap = iota // starts nothing; the default
	OverlapQueue                 // lets one fire time wait, and skips further fire times
	OverlapAllow                 // starts the next execution anyway
	OverlapCancel                // cancels the open execution, then fires the newest time
)

var overlaps = map[Overlap]schedule.Overlap{
	OverlapSkip: schedule.Skip, OverlapQueue: schedule.Queue, OverlapAllow: schedule.Allow, OverlapCancel: schedule.Cancel,
}

// String returns the name of the policy.
func (p Overlap) String() string { return string(overlaps[p]) }

func (p Overlap) applySchedule(o *scheduleOptions) {
	if o.spec.Overlap = overlaps[p]; o.spec.Overlap == "" {
		o.err = fault.New(fault.Invalid, "there is no Overlap %d", int(p))
	}
}

// CatchUp sets how late a fire time may still fire, for example because no process was running. The
// default is 24 h. A fire time that is later than that does not fire, and ScheduleInfo.Missed
// counts it. If several fire times are late, only the newest fire: as many as Overlap allows, and
// at most 100.
func CatchUp(d time.Duration) ScheduleOption {
	return scheduleOption(func(o *scheduleOptions) {
		if o.spec.CatchUp = schedule.Duration(d); d == 0 {
			o.spec.CatchUp = -1 // 0 would mean the default
		}
	})
}

// Jitter delays each fire time by up to d, so that many schedules do not start at the same moment.
// A given fire time always has the same delay. The default is 0.
func Jitter(d time.Duration) ScheduleOption {
	return scheduleOption(func(o *scheduleOptions) { o.spec.Jitter = schedule.Duration(d) })
}

// EndAt skips all fire times at or after t.
func EndAt(t time.Time) ScheduleOption {
	return scheduleOption(func(o *scheduleOptions) { o.spec.EndAt = t })
}

// PausedAtFirst creates the schedule paused. It does not change a schedule that exists.
func PausedAtFirst(why string) ScheduleOption {
	return scheduleOption(func(o *scheduleOptions) { o.paused, o.why = true, why })
}

// ScheduledFor returns the fire time for which a Schedule started this execution. The fire time may
// be long ago if the execution is late or was backfilled. ok is false if no schedule started the
// execution.
func (ctx WorkflowCtx) ScheduledFor() (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, ctx.x.StartLabel(schedule.LabelTick))
	return t, err == nil
}

func (s *Schedule) define(r *registry) { r.schedule(s) }

// schedule adds a schedule, and records everything that is wrong with it.
func (r *registry) schedule(s *Schedule) {
	for _, other := range r.schedules {
		if other.name == s.name {
			r.wrong("two definitions of schedule %s (%s, %s): pass one of them, or give it another name", s.name, other.at, s.at)
			return
		}
	}
	spec := s.opts.spec
	for _, err := range []error{s.job.err, s.opts.err, spec.Define(s.name)} {
		if err != nil {
			r.wrong("schedule %s: %w (%s)", s.name, err, s.at)
		}
	}
	r.schedules = append(r.schedules, s)
}
