package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// addDeadTasks adds the operations on dead tasks.
func (s *Server) addDeadTasks() {
	const one = "/dead-tasks/{id}"
	add(s, operation{id: "list-dead-tasks", method: http.MethodGet, path: "/dead-tasks", tag: tasksTag, summary: "List dead tasks, the latest death first"}, s.listDead)
	add(s, operation{id: "count-dead-tasks", method: http.MethodGet, path: "/dead-task-count", tag: tasksTag, summary: "Count dead tasks"}, s.countDead)
	add(s, operation{id: "group-dead-tasks", method: http.MethodGet, path: "/dead-task-groups", tag: tasksTag, summary: "Count dead tasks by the way in which they failed"}, s.groupDead)
	add(s, operation{id: "get-dead-task", method: http.MethodGet, path: one, tag: tasksTag, summary: "Read a dead task with its failed attempts"}, s.showDead)
	add(s, operation{id: "requeue-dead-task", method: http.MethodPost, path: one + "/requeue", tag: tasksTag, summary: "Schedule a dead task again"}, s.requeue)
	add(s, operation{id: "undo-requeue", method: http.MethodPost, path: one + "/undo-requeue", tag: tasksTag, summary: "Undo a requeue", status: http.StatusNoContent}, s.undoRequeue)
	add(s, operation{id: "purge-dead-task", method: http.MethodDelete, path: one, tag: tasksTag, summary: "Remove a dead task", status: http.StatusNoContent}, s.purgeDead)
}

// DeadQuery selects dead tasks.
type DeadQuery struct {
	Activity    string    `query:"activity" doc:"Names, separated by commas"`
	Queue       string    `query:"queue" doc:"Names, separated by commas"`
	Fingerprint string    `query:"fingerprint"`
	From        time.Time `query:"from" doc:"Died at this time or later"`
	To          time.Time `query:"to" doc:"Died before this time"`
	Requeued    string    `query:"requeued" enum:"true,false" doc:"true: only dead tasks that were requeued; false: only dead tasks that were not"`
}

func (q *DeadQuery) request(tenant string) (api.DeadRequest, error) {
	r := api.DeadRequest{Tenant: tenant, Fingerprint: q.Fingerprint}
	if q.Activity != "" {
		r.Activities = strings.Split(q.Activity, ",")
	}
	if q.Queue != "" {
		r.Queues = strings.Split(q.Queue, ",")
	}
	if !q.From.IsZero() {
		r.From = model.TimeOf(q.From)
	}
	if !q.To.IsZero() {
		r.To = model.TimeOf(q.To)
	}

	switch q.Requeued {
	case "":
	case "true", "false":
		requeued := q.Requeued == "true"
		r.Requeued = &requeued
	default:
		return r, fault.New(fault.Invalid, "requeued is %.20q, must be true or false", q.Requeued)
	}

	return r, nil
}

// deadTask is a task that failed permanently.
type deadTask struct {
	ID          string     `json:"id"`
	Activity    string     `json:"activity"`
	Queue       string     `json:"queue"`
	Execution   string     `json:"execution" doc:"The execution that the task belonged to"`
	Run         string     `json:"run"`
	Step        string     `json:"step,omitempty"`
	Scheduled   *time.Time `json:"scheduled"`
	Died        *time.Time `json:"died"`
	Attempts    int        `json:"attempts"`
	Error       string     `json:"error"`
	Fingerprint string     `json:"fingerprint"`
	Requeued    int64      `json:"requeued" doc:"How often it was requeued"`
	Input       any        `json:"input,omitempty"`
	Failed      []attempt  `json:"failed,omitempty" doc:"The failed attempts, oldest first"`
	LeftOut     int        `json:"left_out,omitempty" doc:"How many attempts in the middle are not kept"`
}

type attempt struct {
	Attempt int        `json:"attempt"`
	At      *time.Time `json:"at"`
	Worker  string     `json:"worker,omitempty"`
	Failure *failure   `json:"failure"`
}

func deadTaskOf(d *api.DeadTask) deadTask {
	b := &d.Body
	o := deadTask{
		ID: d.ID.String(), Activity: b.Spec.Kind, Queue: b.Spec.Queue, Execution: nameOf(b.Address), Run: d.ID.Run.String(), Scheduled: at(b.Scheduled), Died: at(b.At),
		Attempts: b.Attempts, Fingerprint: b.Fingerprint, Requeued: d.Requeued, Input: value(b.Input), LeftOut: b.LeftOut,
	}

	if d.ID.Task != model.TaskStep {
		o.Step = d.ID.Task
	}
	if b.Failure != nil {
		o.Error = b.Failure.Message
	}

	for i := range b.Failed {
		f := &b.Failed[i]
		o.Failed = append(o.Failed, attempt{f.Attempt, at(f.At), f.Worker, failureOf(&f.Failure)})
	}

	return o
}

type listDeadInput struct {
	DeadQuery
	PageQuery
}

func (s *Server) listDead(ctx context.Context, who *authn.Identity, in *listDeadInput) (*reply[page[deadTask]], error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	r.Limit, r.Cursor = in.Limit, in.Cursor
	got, err := s.config.Backend.ListDead(ctx, r)
	if err != nil {
		return nil, err
	}
	return ok(page[deadTask]{each(got.Tasks, deadTaskOf), got.Cursor})
}

func (s *Server) countDead(ctx context.Context, who *authn.Identity, in *DeadQuery) (*reply[Counted], error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	n, err := s.config.Backend.CountDead(ctx, r)
	if err != nil {
		return nil, err
	}
	return ok(Counted{Count: n})
}

// deadGroup counts dead tasks of one activity that failed in the same way.
type deadGroup struct {
	Activity    string     `json:"activity"`
	Fingerprint string     `json:"fingerprint"`
	Count       int64      `json:"count"`
	First       *time.Time `json:"first"`
	Last        *time.Time `json:"last"`
	Message     string     `json:"message"`
}

type groupDeadInput struct {
	DeadQuery

	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

func (s *Server) groupDead(ctx context.Context, who *authn.Identity, in *groupDeadInput) (*reply[page[deadGroup]], error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	r.Limit = in.Limit
	got, err := s.config.Backend.GroupDead(ctx, r)
	if err != nil {
		return nil, err
	}
	shape := func(g *api.DeadGroup) deadGroup {
		return deadGroup{g.Activity, g.Fingerprint, g.Count, at(g.First), at(g.Last), g.Message}
	}
	return ok(page[deadGroup]{Items: each(got, shape)})
}

// DeadPath names a dead task.
type DeadPath struct {
	ID string `path:"id" example:"dead_7_06g5v0zkv0s00000000000000c" doc:"The id of the dead task"`
}

func (s *Server) showDead(ctx context.Context, who *authn.Identity, in *DeadPath) (*reply[deadTask], error) {
	id, err := api.ParseDeadID(who.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.ShowDead(ctx, id)
	if err != nil {
		return nil, err
	}
	return ok(deadTaskOf(&got))
}

type requeueInput struct {
	DeadPath
	RequestHeader

	Body *requeueBody `required:"false"`
}

// requeueBody says how to schedule a dead task again.
type requeueBody struct {
	Input  *json.RawMessage `json:"input,omitempty" doc:"Another input; by default the input of the dead task"`
	Again  bool             `json:"again,omitempty" doc:"Requeue the task even if it was requeued before"`
	DryRun bool             `json:"dry_run,omitempty"`
}

// requeued names the new task.
type requeued struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run,omitempty" doc:"Absent after a dry run"`
	Existing bool   `json:"existing" doc:"Whether an earlier call had already requeued it"`
}

func (s *Server) requeue(ctx context.Context, who *authn.Identity, in *requeueInput) (*reply[requeued], error) {
	id, err := api.ParseDeadID(who.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	r := api.RequeueRequest{ID: id, RequestID: in.RequestID}
	if b := in.Body; b != nil {
		r.Again, r.DryRun = b.Again, b.DryRun
		if b.Input != nil {
			p := payload(*b.Input)
			r.Input = &p
		}
	}

	got, err := s.config.Backend.Requeue(ctx, r)
	if err != nil {
		return nil, err
	}
	out := requeued{Workflow: got.Address.Type, Key: got.Address.Key, Existing: got.Existing}
	if !r.DryRun {
		out.Run = got.Run.String()
	}
	return ok(out)
}

type undoInput struct {
	DeadPath
	RequestHeader
}

func (s *Server) undoRequeue(ctx context.Context, who *authn.Identity, in *undoInput) (*none, error) {
	id, err := api.ParseDeadID(who.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return done(s.config.Backend.UndoRequeue(ctx, api.UndoRequest{ID: id, RequestID: in.RequestID}))
}

func (s *Server) purgeDead(ctx context.Context, who *authn.Identity, in *DeadPath) (*none, error) {
	id, err := api.ParseDeadID(who.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return done(s.config.Backend.PurgeDead(ctx, id))
}
