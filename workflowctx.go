package perdure

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/replay"
)

// WorkflowCtx is what workflow code may do. It is deliberately not a context.Context, so that nobody hands it to something that has effects.
type WorkflowCtx struct{ x replay.Ctx }

func (ctx WorkflowCtx) sender() outlet { return ctx }

func (ctx WorkflowCtx) caller() inlet { return ctx }

// Self is the address of this execution.
func (ctx WorkflowCtx) Self() Ref {
	a, run := ctx.x.Self()
	return Ref{Workflow: a.Type, Key: a.Key, Run: run.String()}
}

// Sleep parks until d has passed or the scope ends.
func (ctx WorkflowCtx) Sleep(d time.Duration) error { return remote(ctx.x.Sleep(d)) }

// Timer is a durable timer as future.
func (ctx WorkflowCtx) Timer(d time.Duration) *Future[time.Time] {
	f := &Future[time.Time]{f: ctx.x.Timer(d)}
	f.value = func(_ WorkflowCtx, f *replay.Future) (time.Time, error) { return f.At().Std(), nil }
	return f
}

// Attempt counts runs with the same input, one after another because the one before failed (RetryPolicy), from 1.
func (ctx WorkflowCtx) Attempt() int { return ctx.x.Attempt() }

// Now is the time of the history position, equal on replay.
func (ctx WorkflowCtx) Now() time.Time { return ctx.x.Now() }

// Rand is seeded by the execution, equal on replay.
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

// WithTimeout limits every wait under the returned scope: they end with ErrTimeout once d has passed.
func (ctx WorkflowCtx) WithTimeout(d time.Duration) WorkflowCtx {
	return WorkflowCtx{ctx.x.WithTimeout(d)}
}

// Detached survives cancellation of the execution and deadlines around it, for clean-up.
func (ctx WorkflowCtx) Detached() WorkflowCtx { return WorkflowCtx{ctx.x.Detached()} }

// Err is ErrCanceled or ErrTimeout once the scope has ended.
func (ctx WorkflowCtx) Err() error { return ctx.x.Err() }

// OnInterrupt has fn run when the execution is cancelled, with the reason, beside the code that the cancellation ends: to tell somebody, or
// to stop something that goes on outside. Its steps are durable and are not cancelled, and the execution does not end before fn has.
func (ctx WorkflowCtx) OnInterrupt(fn func(ctx WorkflowCtx, reason string) error) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the function that OnInterrupt is given is nil"))
	}
	ctx.x.OnInterrupt(func(x replay.Ctx, reason string) error { return fn(WorkflowCtx{x}, reason) })
}

// WaitUpdates waits until every update that has begun is answered, those that come meanwhile included. When the workflow function returns or
// continues as new, an update whose handler still runs is refused. It is for the workflow function: two handlers that call it wait for each other
// for ever.
func (ctx WorkflowCtx) WaitUpdates() error { return remote(ctx.x.WaitUpdates()) }

// OnFailure adds a compensation; compensations run in reverse when the workflow fails or is cancelled. Their steps are durable.
func (ctx WorkflowCtx) OnFailure(undo func(WorkflowCtx) error) {
	ctx.x.Cleanup(true, func(x replay.Ctx) error { return undo(WorkflowCtx{x}) })
}

// Defer runs fn when the execution really ends, in reverse order, never when it is merely unloaded. Its steps are durable. Plain defers run
// on every unload: use them for nothing that has an effect.
func (ctx WorkflowCtx) Defer(fn func(WorkflowCtx) error) {
	ctx.x.Cleanup(false, func(x replay.Ctx) error { return fn(WorkflowCtx{x}) })
}

// Version is the version of a change to the code that this execution follows: the one that it has followed from this point on, if it has
// passed it; min if it was past it before the change was made; else max, which is recorded. Branch on it, and raise min (then remove the
// branch) when no execution follows an older version any more; an execution that does is blocked with a reason, not broken.
func (ctx WorkflowCtx) Version(change string, min, max int) int {
	return ctx.x.Version(change, min, max)
}

// HistoryLength is how many events the history of this run has up to this point, with its start. It is equal on replay.
func (ctx WorkflowCtx) HistoryLength() int64 { return ctx.x.HistoryLength() }

// HistoryBytes is roughly how many bytes the history of this run takes up to this point. It is equal on replay by the same build; another
// one may count differently, so branch on ShouldContinueAsNew.
func (ctx WorkflowCtx) HistoryBytes() int { return ctx.x.HistoryBytes() }

// ShouldContinueAsNew reports whether the history has come half the way to its limit of events or of bytes (embedded.Config.MaxHistory). A run
// that reaches a limit cannot go on: whoever waits for it gets an ErrExhausted. So a workflow that lives long asks between two pieces of its work,
// and returns [Workflow.ContinueAsNew] when it is told so. It is equal on replay, whatever the limits are then.
func (ctx WorkflowCtx) ShouldContinueAsNew() bool { return ctx.x.ShouldContinue() }

// SetLabel sets a label that this execution can be found by, or removes it when the value is empty; see Labels. The change is part of the commit
// that the calls around it belong to.
func (ctx WorkflowCtx) SetLabel(name, value string) error { return public(ctx.x.SetLabel(name, value)) }
