package store

import (
	"cmp"
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Tasks reads what is kept of tasks beside the history of their run, which is where they are: those
// that failed for good, the data that they report, and what they log.
//
// Dead letters outlive their run: they carry its input, and somebody still has to look at them.
// They go when they are deleted by name. Data and log lines go with their run. Data survives the
// retries of its task and is of no use after its end, but it is kept until the run goes, because to
// remove it earlier would cost a write per task.
type Tasks interface {
	// LoadDead returns a dead letter, nil when there is none.
	LoadDead(ctx context.Context, key DeadKey) (*DeadRow, error)
	// ListDead returns dead letters, those that died last first. One whose body cannot be
	// understood is listed with the reason in place of its failure.
	ListDead(ctx context.Context, q DeadQuery) (DeadPage, error)
	// CountDead counts dead letters that match; the paging fields of q are ignored.
	CountDead(ctx context.Context, q DeadQuery) (int64, error)
	// GroupDead returns what the dead letters that match have in common: by kind and fingerprint,
	// the largest groups first, at most limit. The paging fields of q are ignored.
	GroupDead(ctx context.Context, q DeadQuery, limit int) ([]DeadGroup, error)
	// LoadDeadBefore returns dead letters of the shards that died before a time, in order of
	// (shard, time, run, task) behind the given place, at most limit. One whose body cannot be
	// understood comes as in a list.
	LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after DeadPlace, limit int) ([]DeadRow, error)

	// LoadTaskData returns data of a task, or of all tasks of the run, ordered by task and name.
	LoadTaskData(ctx context.Context, key RunKey, r DataRange) ([]TaskDatum, error)
	// LoadLogs returns log lines of a task, or of all tasks of the run when task is empty, in order
	// behind the given place, at most limit. Lines of other tasks of the run are read on the way.
	LoadLogs(ctx context.Context, key RunKey, task string, after LogPlace, limit int) ([]LogRow, error)
}

// DeadKey names a dead letter: the task of a run.
type DeadKey struct {
	RunKey
	Task string
}

// Compare orders keys by shard, run and task.
func (k DeadKey) Compare(o DeadKey) int {
	return cmp.Or(k.RunKey.Compare(o.RunKey), cmp.Compare(k.Task, o.Task))
}

// DeadRow is a dead letter. Tenant, kind, queue, time and fingerprint are columns too, as its body
// has them; they never change.
type DeadRow struct {
	DeadKey
	// Requeued is how often it was given another chance.
	Requeued int64
	Body     model.DeadTask
}

// Place is where the row stands in lists.
func (r *DeadRow) Place() DeadPlace {
	return DeadPlace{Shard: r.Shard, At: r.Body.At, Run: r.Run, Task: r.Task}
}

// Unreadable is the row of a dead letter whose body cannot be understood, as far as its columns
// tell.
func (r *DeadRow) Unreadable(columns DeadColumns, why error) {
	r.Body = model.DeadTask{
		Address: model.Address{Tenant: columns.Tenant}, Spec: model.TaskSpec{Kind: columns.Kind, Queue: columns.Queue},
		At: columns.At, Fingerprint: columns.Fingerprint, Failure: &model.Failure{Kind: fault.Corrupt.String(), Message: why.Error()},
	}
}

// DeadColumns is what a dead letter is found by.
type DeadColumns struct {
	Tenant, Kind, Queue, Fingerprint string
	At                               model.Time
}

// ColumnsOf are the columns of a dead letter.
func ColumnsOf(d *model.DeadTask) DeadColumns {
	return DeadColumns{Tenant: d.Address.Tenant, Kind: d.Spec.Kind, Queue: d.Spec.Queue, Fingerprint: d.Fingerprint, At: d.At}
}

// DeadMark changes how often a dead letter was requeued, and its body with it.
type DeadMark struct {
	DeadKey
	Prev, Next int64
	Body       model.DeadTask
}

// DeadPlace is a position in lists of dead letters. Those by time, newest first, ignore the shard.
type DeadPlace struct {
	Shard model.ShardID
	At    model.Time
	Run   model.RunID
	Task  string
}

// Compare orders places by time, run and task, as lists do from their end.
func (p DeadPlace) Compare(o DeadPlace) int {
	return cmp.Or(cmp.Compare(p.At, o.At), p.Run.Compare(o.Run), cmp.Compare(p.Task, o.Task))
}

// DeadQuery selects dead letters.
type DeadQuery struct {
	Tenant      string
	Kinds       []string // any of these; empty for all
	Queues      []string // any of these; empty for all
	Fingerprint string   // empty for all
	// From and To is the half-open interval of the times of death; zero bounds are open.
	From, To model.Time
	// Requeued selects those that were given another chance, or those that were not; nil for all.
	Requeued *bool
	Limit    int
	// After continues behind the last row of the page before.
	After DeadPlace
}

// DeadPage is one page of dead letters.
type DeadPage struct {
	Rows []DeadRow
	// More is set when there are further rows behind the last one.
	More bool
}

// DeadGroup is dead letters of one kind that failed in the same way.
type DeadGroup struct {
	Kind, Fingerprint string
	Count             int64
	First, Last       model.Time
	// Message is that of the last one.
	Message string
}

// CompareGroups orders groups by their size, the largest first, then by their last death.
func CompareGroups(a, b DeadGroup) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Fingerprint, b.Fingerprint))
}

// TaskDatum is the last value that a task reported under a name. What names mean is in taskdata.go.
type TaskDatum struct {
	RunKey
	Task, Name string
	Value      model.Payload
	// Deleted removes the value (however often: one that is not there is removed already). Never
	// set on what is read.
	Deleted bool
}

// LogRow is a line that a task logged.
type LogRow struct {
	RunKey
	Task string
	At   model.Time
	// Epoch and Batch are those of the commit that wrote it, set by the store; N is the position
	// among the lines of the batch. Together they keep lines apart that have the same time, whoever
	// wrote them.
	Epoch, Batch int64
	N            int32
	Level        int16 // as log/slog has them
	Text         string
}

// Place is where the line stands among those of its run.
func (r *LogRow) Place() LogPlace { return LogPlace{r.At, r.Epoch, r.Batch, r.N} }

// LogPlace is a position among the lines of a run: in the order of time, and of commits where that
// is the same.
type LogPlace struct {
	At           model.Time
	Epoch, Batch int64
	N            int32
}

// Compare orders places.
func (p LogPlace) Compare(o LogPlace) int {
	return cmp.Or(cmp.Compare(p.At, o.At), cmp.Compare(p.Epoch, o.Epoch), cmp.Compare(p.Batch, o.Batch), cmp.Compare(p.N, o.N))
}
