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

// DeadTasks has the calls for tasks that failed permanently. The engine keeps a dead task until an
// operator purges it or it is too old, no matter what happens to its run.
type DeadTasks interface {
	// ListDead returns dead tasks, the newest death first. It leaves out inputs and failed
	// attempts.
	ListDead(ctx context.Context, r DeadRequest) (DeadPage, error)
	// CountDead counts the dead tasks that match a request.
	CountDead(ctx context.Context, r DeadRequest) (int64, error)
	// GroupDead counts dead tasks by activity and by fingerprint of the error. It returns at most
	// Limit groups, the largest first.
	GroupDead(ctx context.Context, r DeadRequest) ([]DeadGroup, error)
	// ShowDead returns one dead task with everything that the engine keeps about it, or NotFound.
	ShowDead(ctx context.Context, id DeadID) (DeadTask, error)
	// Requeue schedules a dead task again, as a task of its own. When it returns, the requeue is
	// durable. It waits some seconds for the new run to exist, and returns without an error even if
	// the run starts later. A repeated call creates no second task: its reply names the task of the
	// first call.
	Requeue(ctx context.Context, r RequeueRequest) (RequeueReply, error)
	// UndoRequeue cancels a requeued task that no worker has started and restores the dead task. It
	// returns Conflict if a worker has already started the requeued task.
	UndoRequeue(ctx context.Context, r UndoRequest) error
	// PurgeDead removes a dead task. It returns Conflict while its requeued run is open. It returns
	// no error if the dead task no longer exists.
	PurgeDead(ctx context.Context, id DeadID) error
}

// DeadID names a dead task.
type DeadID struct {
	// Tenant owns the dead task. The text form does not contain it, because a caller who passes the
	// text already has a tenant. A text copied from another tenant therefore names no dead task of
	// the caller.
	Tenant string

	Shard model.ShardID
	Run   model.RunID
	Task  string
}

const deadPrefix = "dead_"

// String returns the text form, which people copy from lists.
func (id DeadID) String() string {
	text := deadPrefix + strconv.Itoa(int(id.Shard)) + "_" + strings.TrimPrefix(id.Run.String(), "run_")
	if id.Task != model.TaskStep {
		text += "_" + base64.RawURLEncoding.EncodeToString([]byte(id.Task))
	}
	return text
}

// ParseDeadID parses the text form of the id of a dead task of a tenant.
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

// DeadRequest selects dead tasks. All conditions must hold; an empty field sets no condition.
type DeadRequest struct {
	Tenant      string
	Activities  []string // any of these
	Queues      []string // any of these
	Fingerprint string
	// From and To bound the half-open interval of the times of death; a zero bound sets no limit.
	From, To model.Time
	// Requeued selects the tasks that were requeued (true) or were not (false); nil selects both.
	Requeued *bool
	Limit    int
	Cursor   string // opaque, from the previous page
}

// DeadPage is one page of dead tasks.
type DeadPage struct {
	Tasks  []DeadTask
	Cursor string // empty on the last page
}

// DeadTask is a task that failed permanently.
type DeadTask struct {
	ID DeadID
	// Requeued counts how often the task was requeued.
	Requeued int64
	Body     model.DeadTask
}

// Ref names the task that died.
func (d *DeadTask) Ref() model.TaskRef {
	return model.TaskRef{Address: d.Body.Address, Run: d.ID.Run, ID: d.ID.Task}
}

// String returns the id and the task, for messages to people.
func (d *DeadTask) String() string { return fmt.Sprintf("%s (%s)", d.ID, d.Ref()) }

// DeadGroup counts dead tasks of one activity that failed in the same way.
type DeadGroup struct {
	Activity, Fingerprint string
	Count                 int64
	First, Last           model.Time
	// Message is the error of the newest death in the group.
	Message string
}

// RequeueRequest schedules a dead task again.
type RequeueRequest struct {
	ID DeadID
	// Input is the input of the new task; nil keeps the input of the dead task. A task with another
	// input gets its own idempotency key.
	Input *model.Payload
	// Again also requeues a task that was requeued before, if the earlier requeued task has ended.
	Again     bool
	RequestID string
	// DryRun only checks whether the engine would requeue the task.
	DryRun bool
}

// RequeueReply names the requeued task.
type RequeueReply struct {
	Address model.Address
	Run     model.RunID // zero after a dry run
	// Existing is true if an earlier call has requeued the task.
	Existing bool
}

// UndoRequest undoes a requeue.
type UndoRequest struct {
	ID        DeadID
	RequestID string
}
