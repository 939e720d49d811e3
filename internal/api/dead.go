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

// DeadTasks is what clients may do with tasks that failed permanently. The engine keeps them until
// they are purged or too old, whatever happens to their run.
type DeadTasks interface {
	// ListDead returns dead tasks, those that died last first. Inputs and failed attempts are left
	// out.
	ListDead(ctx context.Context, r DeadRequest) (DeadPage, error)
	// CountDead counts them.
	CountDead(ctx context.Context, r DeadRequest) (int64, error)
	// GroupDead counts dead tasks by activity and fingerprint of the error, the largest groups
	// first, at most Limit.
	GroupDead(ctx context.Context, r DeadRequest) ([]DeadGroup, error)
	// ShowDead returns one dead task with everything that is kept of it, or NotFound.
	ShowDead(ctx context.Context, id DeadID) (DeadTask, error)
	// Requeue schedules a dead task again, as a task of its own, and returns when the new run
	// exists. It creates one task however often it is called; a repetition gets the first reply.
	Requeue(ctx context.Context, r RequeueRequest) (RequeueReply, error)
	// UndoRequeue cancels a requeued task that no worker has begun and restores the dead task. It
	// returns Conflict when a worker has begun it.
	UndoRequeue(ctx context.Context, r UndoRequest) error
	// PurgeDead removes a dead task. It returns Conflict while its requeued run is open. A dead
	// task that is gone is no error.
	PurgeDead(ctx context.Context, id DeadID) error
}

// DeadID names a dead task.
type DeadID struct {
	// Tenant owns the dead task. It is not part of the text form: a reader of the text has a tenant
	// already, and the id of a dead task of another tenant names none of its own.
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

// ParseDeadID reads the text form of the id of a dead task of a tenant.
func ParseDeadID(tenant, text string) (id DeadID, err error) {
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
	id.Tenant, id.Shard, id.Task = tenant, model.ShardID(shard), model.TaskStep
	if len(parts) == 3 {
		task, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || len(task) == 0 {
			return id, wrong
		}
		id.Task = string(task)
	}
	return id, nil
}

// DeadRequest selects dead tasks. All conditions must hold; an empty field is no condition.
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

// DeadTask is a task that failed permanently.
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
	// Input of the new task; nil for that of the dead task. With another input, the task has an
	// idempotency key of its own.
	Input *model.Payload
	// Again also requeues a task that was requeued before, if its requeued task has ended.
	Again     bool
	RequestID string
	// DryRun only checks whether the task would be requeued.
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
