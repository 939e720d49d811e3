package perduretest

import (
	"context"
	"fmt"
	"maps"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// Env is the surroundings of a test: a store, a process that serves the definitions, and the clock.
// It belongs to the goroutine of the test, except for With, App and Effects, which any may use.
type Env struct {
	w     *world
	fatal func(error) // ends the test; does not return
}

// App is the process that runs now. After Restart it is another one.
func (e *Env) App() *perdure.App {
	p, _ := e.w.process()
	return p.App
}

// With is the Caller of the test: env.App().With(env.Context()).
func (e *Env) With() perdure.Client {
	p, ctx := e.w.process()
	return p.App.With(ctx)
}

// Context ends when the process dies, when an execution is blocked, and when the patience of the
// test is over, so that nobody waits for what can never happen.
func (e *Env) Context() context.Context {
	_, ctx := e.w.process()
	return ctx
}

// Settle returns when nothing moves any more without time passing: everything waits, for a timer, a
// signal, the test. No time passes.
func (e *Env) Settle() { synctest.Wait() }

// Advance lets time pass, and returns when everything that is due has happened, or the process has
// died meanwhile.
func (e *Env) Advance(d time.Duration) {
	p, _ := e.w.process()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.Context().Done():
	}
	synctest.Wait()
}

// Reason says why an open execution does not move, such as "waits for signal paid"; it is empty
// when the execution is closed.
func (e *Env) Reason(of perdure.Target) string {
	synctest.Wait()
	info, err := e.App().Executions().Describe(context.Background(), of)
	if err != nil {
		e.fatal(err)
	}
	return info.Reason
}

// History is the history of the current run of an execution, one event per line, for people.
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

// Restart lets the process die, wherever it stands, and opens another one on the same store, at the
// same time. Steps whose outcome was not committed are executed again; everything else is replayed.
// With definitions it is a deploy: the new process serves these instead.
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

// Effects is how often each effect has happened, by its name. See [Effect].
func (e *Env) Effects() map[string]int {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	return maps.Clone(e.w.effects)
}
