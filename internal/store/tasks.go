package store

import (
	"cmp"
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Tasks reads what the store keeps about tasks outside the history of their run: dead tasks, the
// data that tasks report, and their log lines. The tasks themselves are in the history.
//
// A dead task is a task that has failed permanently. Dead tasks outlive their run, because an
// operator may still have to look at them. For that reason each dead task has a copy of its input.
// A dead task stays until an operator, or the retention of dead tasks, deletes it by its key. Data
// and log lines are deleted with their run. Sweeps delete log lines earlier if they are older than
// SweepRequest.LogsBefore. The data of a task survives its retries. After the end of the task, its
// data stays until the run is deleted. Callers can still read the states and the streamed items,
// and an earlier removal would cost one write per task.
type Tasks interface {
	// LoadDead returns a dead task, or nil if there is none. If its body cannot be decoded,
	// LoadDead returns the values of its columns, as ListDead does, and an error of kind
	// fault.Corrupt.
	LoadDead(ctx context.Context, key DeadKey) (*DeadRow, error)
	// ListDead returns dead tasks, the latest failure first. If the body of a dead task cannot be
	// decoded, ListDead returns the task with the error of the decoder as its failure.
	ListDead(ctx context.Context, q DeadQuery) (DeadPage, error)
	// CountDead counts the matching dead tasks. It ignores the paging fields of q.
	CountDead(ctx context.Context, q DeadQuery) (int64, error)
	// GroupDead groups the matching dead tasks by kind and fingerprint. It returns the largest
	// groups first, at most limit. It ignores the paging fields of q.
	GroupDead(ctx context.Context, q DeadQuery, limit int) ([]DeadGroup, error)
	// LoadDeadBefore returns the dead tasks that failed before the given time, in the given shards.
	// The result is ordered by (shard, time, run, task), starts after the given place, and has at
	// most limit rows. A dead task whose body cannot be decoded is returned as in ListDead.
	LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after DeadPlace, limit int) ([]DeadRow, error)

	// LoadTaskData returns data of a task, or of all tasks of the run, ordered by task and name.
	LoadTaskData(ctx context.Context, key RunKey, r DataRange) ([]TaskDatum, error)
	// LoadLogs returns log lines of a task, or of all tasks of the run if task is empty. The result
	// is ordered by LogPlace, starts after the given place, and has at most limit lines. To find
	// the lines of one task, the store reads the lines of all tasks of the run.
	LoadLogs(ctx context.Context, key RunKey, task string, after LogPlace, limit int) ([]LogRow, error)
}

// DeadKey names a dead task by its shard, its run and its task id.
type DeadKey struct {
	RunKey
	Task string
}

// Compare orders keys by shard, run and task.
func (k DeadKey) Compare(o DeadKey) int {
	return cmp.Or(k.RunKey.Compare(o.RunKey), cmp.Compare(k.Task, o.Task))
}

// DeadRow is a dead task. The tenant, kind, queue, time and fingerprint of its body are also
// columns. These columns never change.
type DeadRow struct {
	DeadKey
	// Requeued is how often the task was requeued.
	Requeued int64
	Body     model.DeadTask
}

// Place returns the position of the row in lists.
func (r *DeadRow) Place() DeadPlace {
	return DeadPlace{Shard: r.Shard, At: r.Body.At, Run: r.Run, Task: r.Task}
}

// Unreadable sets the body of a dead task whose stored body cannot be decoded. The new body has
// only the values of the columns, and why as the failure.
func (r *DeadRow) Unreadable(columns DeadColumns, why error) {
	r.Body = model.DeadTask{
		Address: model.Address{Tenant: columns.Tenant}, Spec: model.TaskSpec{Kind: columns.Kind, Queue: columns.Queue},
		At: columns.At, Fingerprint: columns.Fingerprint, Failure: &model.Failure{Kind: fault.Corrupt.String(), Message: why.Error()},
	}
}

// DeadColumns are the columns by which dead tasks are found.
type DeadColumns struct {
	Tenant, Kind, Queue, Fingerprint string
	At                               model.Time
}

// ColumnsOf returns the columns of a dead task.
func ColumnsOf(d *model.DeadTask) DeadColumns {
	return DeadColumns{Tenant: d.Address.Tenant, Kind: d.Spec.Kind, Queue: d.Spec.Queue, Fingerprint: d.Fingerprint, At: d.At}
}

// DeadMark replaces the body of a dead task and changes its count of requeues from Prev to Next.
type DeadMark struct {
	DeadKey
	Prev, Next int64
	Body       model.DeadTask
}

// DeadPlace is a position in lists of dead tasks. ListDead ignores the field Shard.
type DeadPlace struct {
	Shard model.ShardID
	At    model.Time
	Run   model.RunID
	Task  string
}

// Compare orders places by time, run and task. It ignores the shard. ListDead uses the reverse
// order.
func (p DeadPlace) Compare(o DeadPlace) int {
	return cmp.Or(cmp.Compare(p.At, o.At), p.Run.Compare(o.Run), cmp.Compare(p.Task, o.Task))
}

// DeadQuery selects dead tasks.
type DeadQuery struct {
	Tenant      string
	Kinds       []string // any of these; empty for all
	Queues      []string // any of these; empty for all
	Fingerprint string   // empty for all
	// From and To select tasks that failed at or after From, and before To. A zero From or To is no
	// bound.
	From, To model.Time
	// Requeued selects tasks that were requeued (true) or were not (false). Nil means all.
	Requeued *bool
	Limit    int
	// After is the place of the last row of the previous page. Zero selects the first page.
	After DeadPlace
}

// DeadPage is one page of dead tasks.
type DeadPage struct {
	Rows []DeadRow
	// More is set if there are further rows.
	More bool
}

// DeadGroup is the dead tasks of one kind that failed in the same way.
type DeadGroup struct {
	Kind, Fingerprint string
	Count             int64
	First, Last       model.Time
	// Message is the message of the latest failure.
	Message string
}

// CompareGroups orders groups by size, the largest first. Groups of the same size are ordered by
// the time of their latest failure, the most recent first.
func CompareGroups(a, b DeadGroup) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Fingerprint, b.Fingerprint))
}

// TaskDatum is the last value that a task reported under a name. See taskdata.go for the meaning of
// names.
type TaskDatum struct {
	RunKey
	Task, Name string
	Value      model.Payload
	// Deleted makes a commit remove the value. It has no effect if there is no value. It is never
	// set on rows that the store returns.
	Deleted bool
}

// LogRow is a line that a task logged.
type LogRow struct {
	RunKey
	Task string
	At   model.Time
	// Epoch and Batch identify the commit that wrote the line. The store sets them. N is the
	// position among the lines of the batch. Together, Epoch, Batch and N distinguish lines with
	// the same time, even if different owners wrote them.
	Epoch, Batch int64
	N            int32
	Level        int16 // a level of log/slog
	Text         string
}

// Place returns the position of the line among the lines of its run.
func (r *LogRow) Place() LogPlace { return LogPlace{r.At, r.Epoch, r.Batch, r.N} }

// LogPlace is a position among the lines of a run. Lines are ordered by time, and lines of the same
// time by commit.
type LogPlace struct {
	At           model.Time
	Epoch, Batch int64
	N            int32
}

// Compare orders places.
func (p LogPlace) Compare(o LogPlace) int {
	return cmp.Or(cmp.Compare(p.At, o.At), cmp.Compare(p.Epoch, o.Epoch), cmp.Compare(p.Batch, o.Batch), cmp.Compare(p.N, o.N))
}
