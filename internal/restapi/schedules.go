package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/schedule"
)

const schedulesTag = "Schedules"

// nextTicks is how many of the next times of a schedule a reply has.
const nextTicks = 5

// addSchedules adds the operations that read and control schedules.
func (s *Server) addSchedules() {
	s.addSetSchedule()
	add(s, operation{id: "list-schedules", method: http.MethodGet, path: "/schedules", tag: schedulesTag, summary: "List schedules"}, s.listSchedules)
	add(s, operation{id: "get-schedule", method: http.MethodGet, path: "/schedules/{name}", tag: schedulesTag, summary: "Read a schedule"}, s.schedule)
	add(s, operation{id: "list-ticks", method: http.MethodGet, path: "/schedules/{name}/ticks", tag: schedulesTag, summary: "List the times of a schedule in a range, with their outcomes"}, s.ticks)
	add(s, operation{id: "change-schedules", method: http.MethodPost, path: "/schedule-changes", tag: schedulesTag, summary: "Pause or resume many schedules"}, s.changeSchedules)
	add(s, operation{id: "change-schedule", method: http.MethodPost, path: "/schedules/{name}/{verb}", tag: schedulesTag, summary: "Pause, resume, trigger, backfill or delete a schedule"}, s.changeSchedule)
}

// scheduleBody is a schedule.
type scheduleBody struct {
	Name     string      `json:"name"`
	Cron     string      `json:"cron,omitempty"`
	Zone     string      `json:"zone,omitempty"`
	Every    string      `json:"every,omitempty"`
	Kind     string      `json:"kind" enum:"workflow,task"`
	Starts   string      `json:"starts" doc:"The workflow or the activity"`
	Overlap  string      `json:"overlap"`
	Paused   bool        `json:"paused"`
	Reason   string      `json:"reason,omitempty" doc:"Why it is paused"`
	Next     []time.Time `json:"next"`
	Open     []fire      `json:"open"`
	Recent   []fire      `json:"recent" doc:"The last executions, the newest first"`
	Missed   int64       `json:"missed"`
	Failed   int64       `json:"failed"`
	LastFail string      `json:"last_error,omitempty"`
}

// fire is an execution that a schedule has started.
type fire struct {
	Kind     string    `json:"kind" enum:"tick,trigger,backfill"`
	Tick     time.Time `json:"tick"`
	Workflow string    `json:"workflow"`
	Key      string    `json:"key"`
}

func fireOf(f *schedule.Fire) fire { return fire{f.Kind, f.Tick.UTC(), f.Workflow, f.Key} }

func scheduleOf(n *schedule.Seen) scheduleBody {
	return scheduleBody{
		Name: n.Name, Cron: n.Spec.Cron, Zone: n.Spec.Zone, Every: writeDuration(time.Duration(n.Spec.Every)), Kind: n.Spec.Job.Kind, Starts: n.Spec.Job.Name,
		Overlap: string(n.Spec.Overlap), Paused: n.Status.Paused, Reason: n.Status.Why, Next: append([]time.Time{}, n.Next(nextTicks)...),
		Open: each(n.Status.Open, fireOf), Recent: each(n.Status.Recent, fireOf), Missed: n.Status.Counts.Missed, Failed: n.Status.Counts.Failed, LastFail: n.Status.LastError,
	}
}

type schedulesInput struct {
	App string `query:"app" doc:"Only schedules that this app has applied"`
}

// scheduleList is the schedules of a tenant, and the reasons why other schedules could not be read.
type scheduleList struct {
	Items  []scheduleBody `json:"items"`
	Errors []string       `json:"errors"`
}

func (s *Server) listSchedules(ctx context.Context, who *authn.Identity, in *schedulesInput) (*reply[scheduleList], error) {
	list := scheduleList{[]scheduleBody{}, []string{}}
	for seen, err := range schedule.In(s.config.Backend, who.Tenant).List(ctx, in.App) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			list.Errors = append(list.Errors, err.Error())
			continue
		}
		list.Items = append(list.Items, scheduleOf(&seen))
	}
	return ok(list)
}

func (s *Server) schedule(ctx context.Context, who *authn.Identity, in *NamePath) (*reply[scheduleBody], error) {
	seen, err := schedule.In(s.config.Backend, who.Tenant).Look(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return ok(scheduleOf(&seen))
}

type ticksInput struct {
	NamePath

	From  time.Time `query:"from" doc:"The beginning of the range; 24 hours ago by default"`
	To    time.Time `query:"to" doc:"The end of the range, which is not included; 24 hours from now by default"`
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// tick is a time of a schedule.
type tick struct {
	At       time.Time `json:"at"`
	Outcome  string    `json:"outcome" enum:"due,paused,waiting,started,none,unknown" doc:"none: it has no execution; unknown: it is before the last change of the schedule"`
	Workflow string    `json:"workflow" doc:"The workflow of the execution that it starts"`
	Key      string    `json:"key"`
	Status   string    `json:"status,omitempty" doc:"The status of that execution"`
}

// tickList is the times of a range.
type tickList struct {
	Items []tick `json:"items" doc:"The times, the oldest first"`
	More  bool   `json:"more" doc:"Whether there are more; ask again from a time after the last one"`
}

func (s *Server) ticks(ctx context.Context, who *authn.Identity, in *ticksInput) (*reply[tickList], error) {
	now := time.Now()
	if in.From.IsZero() {
		in.From = now.Add(-24 * time.Hour)
	}
	if in.To.IsZero() {
		in.To = now.Add(24 * time.Hour)
	}
	found, more, err := schedule.In(s.config.Backend, who.Tenant).Ticks(ctx, in.Name, schedule.TickRange{From: in.From, To: in.To, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	return ok(tickList{each(found, func(t *schedule.Tick) tick {
		o := tick{At: t.At.UTC(), Outcome: t.Outcome, Workflow: t.Workflow, Key: t.Key}
		if t.Status != 0 {
			o.Status = t.Status.String()
		}
		return o
	}), more})
}

type scheduleInput struct {
	NamePath

	Verb string        `path:"verb" enum:"pause,resume,trigger,backfill,delete" example:"pause"`
	Body *scheduleVerb `required:"false"`
}

// scheduleVerb has the parameters that some of the verbs need.
type scheduleVerb struct {
	Reason string    `json:"reason,omitempty" doc:"The reason of a pause"`
	From   time.Time `json:"from,omitzero" doc:"The beginning of a backfill"`
	To     time.Time `json:"to,omitzero" doc:"The end of a backfill"`
}

// scheduleAnswer is what a schedule has done.
type scheduleAnswer struct {
	Key   string `json:"key,omitempty" doc:"The key of the execution that a trigger started; absent if the execution waits for its turn"`
	Ticks int    `json:"ticks,omitempty" doc:"How many times a backfill covers"`
}

func (s *Server) changeSchedule(ctx context.Context, who *authn.Identity, in *scheduleInput) (*reply[scheduleAnswer], error) {
	c := schedule.Command{Verb: in.Verb}
	if in.Body != nil {
		c.Why, c.From, c.To = in.Body.Reason, in.Body.From, in.Body.To
	}
	a, err := schedule.In(s.config.Backend, who.Tenant).Ask(ctx, in.Name, &c)
	if err != nil {
		return nil, err
	}
	return ok(scheduleAnswer{a.Key, a.Ticks})
}

type schedulesChangeInput struct {
	Body struct {
		Verb   string   `json:"verb" enum:"pause,resume" example:"pause"`
		Names  []string `json:"names,omitempty" maxItems:"1000" example:"[\"nightly\"]" doc:"These schedules"`
		App    string   `json:"app,omitempty" doc:"The schedules that this app has applied"`
		All    bool     `json:"all,omitempty" doc:"All schedules of the tenant"`
		Reason string   `json:"reason,omitempty" doc:"The reason of a pause"`
	}
}

// scheduleChanges says which schedules were changed, and which ones refused the change.
type scheduleChanges struct {
	Items  []scheduleChange `json:"items" doc:"The schedules, ordered by name"`
	Failed int              `json:"failed" doc:"How many schedules have refused or could not be reached"`
}

type scheduleChange struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty" doc:"Why the schedule was not changed"`
}

func (s *Server) changeSchedules(ctx context.Context, who *authn.Identity, in *schedulesChangeInput) (*reply[scheduleChanges], error) {
	b := &in.Body
	got, err := schedule.In(s.config.Backend, who.Tenant).AskMany(ctx, schedule.Selection{Names: b.Names, App: b.App, All: b.All}, &schedule.Command{Verb: b.Verb, Why: b.Reason})
	if err != nil {
		return nil, err
	}
	out := scheduleChanges{Items: []scheduleChange{}}
	for _, r := range got {
		one := scheduleChange{Name: r.Name}
		if r.Err != nil {
			one.Error = r.Err.Error()
			out.Failed++
		}
		out.Items = append(out.Items, one)
	}
	return ok(out)
}
