package perdure

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/replay"
)

// WorkflowCtx is what workflow code may do. It is not a context.Context, so that code cannot pass
// it to functions that have effects.
type WorkflowCtx struct{ x replay.Ctx }

func (ctx WorkflowCtx) sender() outlet { return ctx }

func (ctx WorkflowCtx) caller() inlet { return ctx }

// Self is the address of this execution.
func (ctx WorkflowCtx) Self() Ref {
	a, run := ctx.x.Self()
	return Ref{Workflow: a.Type, Key: a.Key, Run: run.String()}
}

// Sleep waits until d has passed or the scope ends. The timer is durable: it goes on while no
// process runs.
func (ctx WorkflowCtx) Sleep(d time.Duration) error { return remote(ctx.x.Sleep(d)) }

// Timer is a durable timer as a future.
func (ctx WorkflowCtx) Timer(d time.Duration) *Future[time.Time] {
	f := &Future[time.Time]{f: ctx.x.Timer(d)}
	f.value = func(_ WorkflowCtx, f *replay.Future) (time.Time, error) { return f.At().Std(), nil }
	return f
}

// Attempt counts runs with the same input that follow each other because the run before failed
// (RetryPolicy), from 1.
func (ctx WorkflowCtx) Attempt() int { return ctx.x.Attempt() }

// Now is the time of the last event that the code has seen. It is equal on replay.
func (ctx WorkflowCtx) Now() time.Time { return ctx.x.Now() }

// Rand is seeded by the execution and equal on replay.
func (ctx WorkflowCtx) Rand() *rand.Rand { return ctx.x.Rand() }

// UUID is equal on replay.
func (ctx WorkflowCtx) UUID() string { return ctx.x.UUID() }

// Log is silent on replay.
func (ctx WorkflowCtx) Log() *slog.Logger {
	if !ctx.x.Live() {
		return silent
	}
	a, run := ctx.x.Self()
	return ctx.host().logger.With("workflow", a.Type, "key", a.Key, "run_id", run.String())
}

var silent = slog.New(slog.DiscardHandler)

// WithTimeout returns a scope in which every wait ends with ErrTimeout once d has passed. Scopes
// nest; the earliest deadline counts.
func (ctx WorkflowCtx) WithTimeout(d time.Duration) WorkflowCtx {
	return WorkflowCtx{ctx.x.WithTimeout(d)}
}

// Detached returns a scope that the cancellation of the execution and outer deadlines do not end,
// for clean-up.
func (ctx WorkflowCtx) Detached() WorkflowCtx { return WorkflowCtx{ctx.x.Detached()} }

// Err is ErrCanceled or ErrTimeout once the scope has ended.
func (ctx WorkflowCtx) Err() error { return ctx.x.Err() }

// OnInterrupt runs fn when the execution is cancelled, with the reason, beside the code that the
// cancellation ends. Use it to notify a person, or to stop something outside. The steps of fn are
// durable and not cancelled, and the execution ends only after fn.
func (ctx WorkflowCtx) OnInterrupt(fn func(ctx WorkflowCtx, reason string) error) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the function that OnInterrupt is given is nil"))
	}
	ctx.x.OnInterrupt(func(x replay.Ctx, reason string) error { return fn(WorkflowCtx{x}, reason) })
}

// WaitUpdates waits until every update that has begun is answered, later arrivals included.
// Call it in the workflow function before it returns or continues as new, which refuses
// updates whose handler still runs. Handlers must not call it: two of them would wait for each
// other.
func (ctx WorkflowCtx) WaitUpdates() error { return remote(ctx.x.WaitUpdates()) }

// OnFailure adds a compensation. When the workflow fails or is cancelled, its compensations run in
// reverse order. Their steps are durable.
func (ctx WorkflowCtx) OnFailure(undo func(WorkflowCtx) error) {
	ctx.x.Cleanup(true, func(x replay.Ctx) error { return undo(WorkflowCtx{x}) })
}

// Defer runs fn when the execution ends, in reverse order. Its steps are durable. A plain defer
// also runs whenever the execution is unloaded from memory, so use plain defers for nothing that
// has an effect.
func (ctx WorkflowCtx) Defer(fn func(WorkflowCtx) error) {
	ctx.x.Cleanup(false, func(x replay.Ctx) error { return fn(WorkflowCtx{x}) })
}

// Version returns which version of a change to the code this execution follows. An execution that
// has passed this point keeps its version. One that was past this point before the change was made
// gets min. All others get max, which is recorded.
//
// Branch on the version. When no execution follows an older version, raise min and remove the
// branch. An execution that still follows an older version is then blocked with a reason.
func (ctx WorkflowCtx) Version(change string, min, max int) int {
	return ctx.x.Version(change, min, max)
}

// HistoryLength is how many events the history of this run has so far, its start included. It is
// equal on replay.
func (ctx WorkflowCtx) HistoryLength() int64 { return ctx.x.HistoryLength() }

// HistoryBytes is roughly how many bytes the history of this run takes so far. It is equal on
// replay by the same build. Another build may count differently, so branch on ShouldContinueAsNew
// instead.
func (ctx WorkflowCtx) HistoryBytes() int { return ctx.x.HistoryBytes() }

// ShouldContinueAsNew reports whether the history has reached half of its limit of events or bytes
// (embedded.Config.MaxHistory). A run that reaches a limit cannot go on, and its callers get
// ErrExhausted. So a workflow that lives long asks between two pieces of work, and returns
// [Workflow.ContinueAsNew] when the answer is true. It is equal on replay, whatever the limits are
// then.
func (ctx WorkflowCtx) ShouldContinueAsNew() bool { return ctx.x.ShouldContinue() }

// SetLabel sets a label by which List finds this execution, or removes it when value is empty; see
// Labels. The change is part of the same commit as the calls around it.
func (ctx WorkflowCtx) SetLabel(name, value string) error { return public(ctx.x.SetLabel(name, value)) }
