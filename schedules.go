package perdure

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/schedule"
)

// Schedules lists schedules. A program operates one schedule with its handle ([Schedule.Pause],
// [Schedule.Trigger]).
type Schedules struct{ app *App }

// Schedules returns the operations on the schedules of the store.
func (a *App) Schedules() Schedules { return Schedules{a} }

// List returns the schedules of the store.
func (s Schedules) List(ctx context.Context) iter.Seq2[ScheduleInfo, error] {
	return func(yield func(ScheduleInfo, error) bool) {
		for s, err := range s.app.host.schedules().List(ctx, "") {
			if !yield(scheduleInfo(&s), public(err)) {
				return
			}
		}
	}
}

// ScheduleInfo describes a schedule.
type ScheduleInfo struct {
	Name    string
	When    string // the cron line and its zone, or the interval
	Job     string // name of the workflow or activity
	Overlap string
	CatchUp time.Duration
	Jitter  time.Duration
	App     string // embedded.Config.Name of the app that applied it
	StartAt time.Time
	EndAt   time.Time

	Paused bool
	Why    string // the reason for the pause
	// Trouble says why the schedule does not work: no process serves it, or its execution is paused
	// or blocked. It is empty when the schedule works.
	Trouble string

	Next []time.Time // up to five fire times; none while it is paused
	Last []Ref       // executions that it started, newest first, up to ten
	Open []Ref       // executions that it started and that are open, up to the newest 100
	// Waiting is the fire time that waits for the end of an execution (OverlapQueue). It is zero if
	// no fire time waits.
	Waiting   time.Time
	Backfills int // calls of Backfill that have not ended

	Fired      int64 // executions that it started for any reason
	Triggered  int64 // executions that Trigger started
	Backfilled int64 // executions that Backfill started
	Skipped    int64 // fire times left out because of an open execution or a newer fire time
	// Missed counts fire times left out because the schedule was paused, because no process was
	// running, or because too many were due together: more than 10,000, or more than 100 with
	// OverlapAllow. If one pause or downtime leaves out more than 10,000, Missed counts 10,000 of
	// them.
	Missed    int64
	Failed    int64 // executions that failed while the schedule waited for their end
	LastError string
}

// Describe returns the definition and the state of the schedule. From a workflow it is a step.
func (s *Schedule) Describe(c Caller) (ScheduleInfo, error) {
	look := func(ctx context.Context) (ScheduleInfo, error) {
		seen, err := c.caller().host().schedules().Look(ctx, s.name)
		if k := fault.KindOf(err); k == fault.NotFound || k == fault.Invalid {
			err = Permanent(err)
		}
		return scheduleInfo(&seen), err
	}
	switch c := c.(type) {
	case WorkflowCtx:
		return Do(c, "describe schedule "+s.name, look)
	case Client:
		info, err := look(c.ctx)
		return info, public(err)
	}
	return ScheduleInfo{}, fault.New(fault.Internal, "%T cannot describe a schedule", c)
}

func scheduleInfo(s *schedule.Seen) ScheduleInfo {
	i := ScheduleInfo{
		Name: s.Name, Job: s.Spec.Job.Name, Overlap: string(s.Spec.Overlap), CatchUp: time.Duration(s.Spec.CatchUp), Jitter: time.Duration(s.Spec.Jitter),
		App: s.Spec.App, StartAt: s.Spec.StartAt, EndAt: s.Spec.EndAt, Paused: s.Status.Paused, Why: s.Status.Why, Trouble: s.Trouble,
		Last: refs(s.Status.Recent), Open: refs(s.Status.Open), Backfills: len(s.Status.Backfills),
		Fired: s.Status.Counts.Fired, Triggered: s.Status.Counts.Triggered, Backfilled: s.Status.Counts.Backfilled,
		Skipped: s.Status.Counts.Skipped, Missed: s.Status.Counts.Missed, Failed: s.Status.Counts.Failed, LastError: s.Status.LastError,
	}
	if s.Status.Waiting != nil {
		i.Waiting = s.Status.Waiting.Tick
	}
	if c, err := s.Spec.Cadence(); err == nil {
		i.When = c.String()
	}
	i.Next = s.Next(5)
	return i
}

func refs(fires []schedule.Fire) (all []Ref) {
	for _, f := range fires {
		all = append(all, Ref{Workflow: f.Workflow, Key: f.Key})
	}
	return all
}
