package perduretest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// Env is the environment of a test: a store, a process that serves the definitions, and the clock.
// Any goroutine may use With, App and Effects. Only the goroutine of the test may use the other
// methods.
type Env struct {
	w     *world
	fatal func(error) // ends the test; does not return
}

// App returns the app of the process that runs now. After Restart, App returns another app.
func (e *Env) App() *perdure.App {
	p, _ := e.w.process()
	return p.App
}

// With returns the Caller of the test: env.App().With(env.Context()).
func (e *Env) With() perdure.Client {
	p, ctx := e.w.process()
	return p.App.With(ctx)
}

// Context returns a context that ends when the process dies, when an execution is blocked or its
// code blocks, and when Config.Patience is over. So a test does not wait forever for something that
// cannot happen.
func (e *Env) Context() context.Context {
	_, ctx := e.w.process()
	return ctx
}

// Settle waits until all code waits for a timer, a signal or the test itself. No virtual time
// passes.
func (e *Env) Settle() { synctest.Wait() }

// Advance lets time pass. It returns when everything that is due has happened, or when the process
// has died. It ends the test when the code of an execution blocks, because this code may block
// forever.
func (e *Env) Advance(d time.Duration) {
	p, ctx := e.w.process()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, errStuck) {
			e.fatal(cause)
		}
		select { // the calls of the test have ended, and time passes for everything else
		case <-timer.C:
		case <-p.Context().Done():
		}
	}
	synctest.Wait()
}

// Reason returns why an open execution makes no progress, such as "waits for signal paid". It
// returns an empty text for a closed execution.
func (e *Env) Reason(of perdure.Target) string {
	synctest.Wait()
	info, err := e.App().Executions().Describe(context.Background(), of)
	if err != nil {
		e.fatal(err)
	}
	return info.Reason
}

// History returns the history of the current run of an execution as text, one event per line.
func (e *Env) History(of perdure.Target) string {
	synctest.Wait()
	info, err := e.App().Executions().Describe(context.Background(), of)
	if err != nil {
		e.fatal(err)
	}
	rows, err := e.w.executions()
	if err != nil {
		e.fatal(err)
	}
	for i := range rows {
		if rows[i].Start.Run.String() == info.Ref.Run {
			return e.w.historyOf(&rows[i])
		}
	}
	return ""
}

// Restart kills the process immediately and opens another process on the same store. No virtual
// time passes. Steps whose outcome was not committed run again. Everything else is replayed. Pass
// definitions to simulate a deploy: the new process serves them instead of the old definitions.
func (e *Env) Restart(defs ...perdure.Definition) {
	def := e.w.def
	if len(defs) > 0 {
		def = perdure.Group(defs)
	}
	if err := e.w.kill(); err != nil {
		e.fatal(fmt.Errorf("restart: %w", err))
	}
	if err := e.w.open(def); err != nil {
		e.fatal(fmt.Errorf("restart: %w", err))
	}
}

// Effects returns how often each effect has happened, by its name. See [Effect].
func (e *Env) Effects() map[string]int {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	return maps.Clone(e.w.effects)
}
