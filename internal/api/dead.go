package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// DeadTasks is what may be done with tasks that failed for good. They are kept until somebody purges them, or they are too old, whatever becomes of the run that
// they belonged to.
type DeadTasks interface {
	// ListDead returns dead tasks, those that died last first. Inputs and failed attempts are left out.
	ListDead(ctx context.Context, r DeadRequest) (DeadPage, error)
	// CountDead counts them.
	CountDead(ctx context.Context, r DeadRequest) (int64, error)
	// GroupDead tells what they have in common: by activity and fingerprint of the error, the largest groups first, at most Limit.
	GroupDead(ctx context.Context, r DeadRequest) ([]DeadGroup, error)
	// ShowDead returns one with everything that is kept of it. NotFound when there is none.
	ShowDead(ctx context.Context, id DeadID) (DeadTask, error)
	// Requeue schedules a dead task anew, as a task of its own. However often it is asked for, there is one: a repetition is answered with what the first one
	// began. It returns when the new run is there.
	Requeue(ctx context.Context, r RequeueRequest) (RequeueReply, error)
	// UndoRequeue takes a requeue back whose task nobody has begun: its run is cancelled, and the dead task is as it was before. A Conflict when it has begun.
	UndoRequeue(ctx context.Context, r UndoRequest) error
	// PurgeDead removes a dead task. A Conflict while the run that it was requeued as is open. One that is gone is no error.
	PurgeDead(ctx context.Context, id DeadID) error
}

// DeadID names a dead task.
type DeadID struct {
	// Tenant is whose it is; empty is the default one. It is not part of the text form: whoever reads that has a tenant already, and the id of another's dead task names none of his.
	Tenant string

	Shard model.ShardID
	Run   model.RunID
	Task  string
}

const deadPrefix = "dead_"

// String is the text form, which people copy from lists.
func (id DeadID) String() string {
	text := deadPrefix + strconv.Itoa(int(id.Shard)) + "_" + strings.TrimPrefix(id.Run.String(), "run_")
	if id.Task != model.TaskStep {
		text += "_" + base64.RawURLEncoding.EncodeToString([]byte(id.Task))
	}
	return text
}

// ParseDeadID reads the text form.
func ParseDeadID(text string) (id DeadID, err error) {
	wrong := fault.New(fault.Invalid, "%q is not the id of a dead task, such as dead_7_06g5v0zkv0s00000000000000c", text)
	rest, ok := strings.CutPrefix(text, deadPrefix)
	if !ok {
		return id, wrong
	}
	parts := strings.SplitN(rest, "_", 3)
	if len(parts) < 2 {
		return id, wrong
	}
	shard, err := strconv.ParseUint(parts[0], 10, 15)
	if err != nil {
		return id, wrong
	}
	if id.Run, err = model.ParseRunID("run_" + parts[1]); err != nil {
		return id, wrong
	}
	id.Shard, id.Task = model.ShardID(shard), model.TaskStep
	if len(parts) == 3 {
		task, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || len(task) == 0 {
			return id, wrong
		}
		id.Task = string(task)
	}
	return id, nil
}

// DeadRequest selects dead tasks: all conditions must hold, those that are empty always do.
type DeadRequest struct {
	Tenant      string
	Activities  []string // any of these
	Queues      []string // any of these
	Fingerprint string
	// From and To is the half-open interval of the times of death; zero bounds are open.
	From, To model.Time
	// Requeued selects those that were requeued, or those that were not.
	Requeued *bool
	Limit    int
	Cursor   string // opaque, of the page before
}

// DeadPage is one page of dead tasks.
type DeadPage struct {
	Tasks  []DeadTask
	Cursor string // empty on the last page
}

// DeadTask is a task that failed for good.
type DeadTask struct {
	ID DeadID
	// Requeued is how often it was requeued.
	Requeued int64
	Body     model.DeadTask
}

// Ref names the task that died.
func (d *DeadTask) Ref() model.TaskRef {
	return model.TaskRef{Address: d.Body.Address, Run: d.ID.Run, ID: d.ID.Task}
}

// String names it for people.
func (d *DeadTask) String() string { return fmt.Sprintf("%s (%s)", d.ID, d.Ref()) }

// DeadGroup is dead tasks of one activity that failed in the same way.
type DeadGroup struct {
	Activity, Fingerprint string
	Count                 int64
	First, Last           model.Time
	// Message is that of the last one.
	Message string
}

// RequeueRequest schedules a dead task anew.
type RequeueRequest struct {
	ID DeadID
	// Input of the new task; nil for the one that it had. With another one, the task has an idempotency key of its own.
	Input *model.Payload
	// Again also requeues what was requeued before, if the task of that has ended.
	Again     bool
	RequestID string
	// DryRun only tells whether it would be.
	DryRun bool
}

// RequeueReply tells which task there is now.
type RequeueReply struct {
	Address model.Address
	Run     model.RunID // zero after a dry run
	// Existing tells that it was requeued before.
	Existing bool
}

// UndoRequest takes a requeue back.
type UndoRequest struct {
	ID        DeadID
	RequestID string
}
