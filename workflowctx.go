package perdure

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/replay"
)

// WorkflowCtx has the durable operations of workflow code. It is not a context.Context, so that
// code cannot pass it to functions that have effects.
type WorkflowCtx struct{ x replay.Ctx }

func (ctx WorkflowCtx) sender() outlet { return ctx }

func (ctx WorkflowCtx) caller() inlet { return ctx }

// Self returns the address of this execution.
func (ctx WorkflowCtx) Self() Ref {
	a, run := ctx.x.Self()
	return Ref{Workflow: a.Type, Key: a.Key, Run: run.String()}
}

// Sleep waits until d has passed or the scope ends. The timer is durable: the time also passes
// while no process runs.
func (ctx WorkflowCtx) Sleep(d time.Duration) error { return remote(ctx.x.Sleep(d)) }

// Timer returns a durable timer as a future.
func (ctx WorkflowCtx) Timer(d time.Duration) *Future[time.Time] {
	f := &Future[time.Time]{f: ctx.x.Timer(d)}
	f.value = func(_ WorkflowCtx, f *replay.Future) (time.Time, error) { return f.At().Std(), nil }
	return f
}

// Attempt returns 1 in a run that no RetryPolicy has started. After a run has failed, a RetryPolicy
// starts another run with the same input, and that run has the next number.
func (ctx WorkflowCtx) Attempt() int { return ctx.x.Attempt() }

// Now returns the time of the last event that the code has seen. It is the same on replay.
func (ctx WorkflowCtx) Now() time.Time { return ctx.x.Now() }

// Rand returns a random number generator whose seed belongs to the run. Its numbers are the same on
// replay.
func (ctx WorkflowCtx) Rand() *rand.Rand { return ctx.x.Rand() }

// UUID returns a new id, which is the same on replay.
func (ctx WorkflowCtx) UUID() string { return ctx.x.UUID() }

// Log returns a logger that is silent on replay.
func (ctx WorkflowCtx) Log() *slog.Logger {
	if !ctx.x.Live() {
		return silent
	}
	a, run := ctx.x.Self()
	return ctx.host().logger.With("workflow", a.Type, "key", a.Key, "run_id", run.String())
}

var silent = slog.New(slog.DiscardHandler)

// WithTimeout returns a scope in which every wait ends with ErrTimeout once d has passed. Scopes
// can be nested. The earliest deadline applies.
func (ctx WorkflowCtx) WithTimeout(d time.Duration) WorkflowCtx {
	return WorkflowCtx{ctx.x.WithTimeout(d)}
}

// Detached returns a scope for clean-up. Neither a cancellation of the execution nor an outer
// deadline ends that scope.
func (ctx WorkflowCtx) Detached() WorkflowCtx { return WorkflowCtx{ctx.x.Detached()} }

// Err returns ErrCanceled or ErrTimeout once the scope has ended.
func (ctx WorkflowCtx) Err() error { return ctx.x.Err() }

// OnInterrupt makes fn run when the execution is cancelled, with the reason of the cancellation. fn
// runs as a coroutine next to the code that the cancellation ends. Use it to notify a person, or to
// stop something outside. The cancellation does not affect fn: its steps are durable, and the
// execution ends only after fn has returned.
func (ctx WorkflowCtx) OnInterrupt(fn func(ctx WorkflowCtx, reason string) error) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the function of OnInterrupt is nil"))
	}
	ctx.x.OnInterrupt(func(x replay.Ctx, reason string) error { return fn(WorkflowCtx{x}, reason) })
}

// WaitUpdates waits until the handlers of all updates have answered, including updates that arrive
// while it waits. Call WaitUpdates in the workflow function before the function returns or
// continues as new, because at that point the engine refuses updates whose handlers still run.
// Handlers must not call WaitUpdates, because two handlers would wait for each other.
func (ctx WorkflowCtx) WaitUpdates() error { return remote(ctx.x.WaitUpdates()) }

// OnFailure adds a compensation. When the run fails or is cancelled, its compensations run in
// reverse order. Their steps are durable.
func (ctx WorkflowCtx) OnFailure(undo func(WorkflowCtx) error) {
	ctx.x.Cleanup(true, func(x replay.Ctx) error { return undo(WorkflowCtx{x}) })
}

// Defer makes fn run when the run ends: when it completes, fails, is cancelled or continues as new.
// Deferred functions run in reverse order. Their steps are durable. A Go defer statement also runs
// whenever the execution leaves memory, so do not use it for anything that has an effect.
func (ctx WorkflowCtx) Defer(fn func(WorkflowCtx) error) {
	ctx.x.Cleanup(false, func(x replay.Ctx) error { return fn(WorkflowCtx{x}) })
}

// Version returns which version of a change to the code this execution follows. An execution that
// has called Version for this change keeps its version. An execution that passed this point before
// the code had the call gets min. All other executions get max, and the history records that
// version.
//
// Branch on the version. When no execution follows an older version, raise min and remove the
// branch. After that, the engine blocks an execution that still follows an older version, with a
// reason.
func (ctx WorkflowCtx) Version(change string, min, max int) int {
	return ctx.x.Version(change, min, max)
}

// HistoryLength returns how many events the history of this run has so far, including its start. It
// is the same on replay.
func (ctx WorkflowCtx) HistoryLength() int64 { return ctx.x.HistoryLength() }

// HistoryBytes returns roughly how many bytes the history of this run takes so far. It is the same
// on replay by the same build. Another build may count differently, so branch on
// ShouldContinueAsNew instead.
func (ctx WorkflowCtx) HistoryBytes() int { return ctx.x.HistoryBytes() }

// ShouldContinueAsNew reports whether the history has reached half of its limit of events or bytes
// (embedded.Config.MaxHistory). A run that reaches a limit cannot continue, and its callers get
// ErrExhausted. So a long-lived workflow should call ShouldContinueAsNew between two pieces of
// work, and return [Workflow.ContinueAsNew] if the answer is true. The answer is the same on
// replay, even if the limits have changed.
func (ctx WorkflowCtx) ShouldContinueAsNew() bool { return ctx.x.ShouldContinue() }

// SetLabel sets a label by which List finds this execution. If value is empty, SetLabel removes the
// label. See Labels for the rules. The engine commits the change together with the calls around it.
func (ctx WorkflowCtx) SetLabel(name, value string) error { return public(ctx.x.SetLabel(name, value)) }
