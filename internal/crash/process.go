// Package crash runs a program of the SDK in a process that can die: the real engine and worker on
// a store that outlives them, seen through a wrapper of its own. When the process dies, the wrapper
// refuses every further call, so that nothing that is left of it can write; a new process then
// opens the same store. Inside testing/synctest all of that takes virtual time.
//
// It is what crashwalk and perduretest share.
package crash

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// ErrDied is the cause with which the context of a process ends when it dies.
var ErrDied = errors.New("the process died")

var errClosed = errors.New("the process has ended")

// Config is what a process is made of.
type Config struct {
	// Store outlives the process.
	Store store.Store
	// Plan is what goes wrong with its calls; nothing when nil.
	Plan faultstore.Plan
	// Orphans are the late commits of all processes of the store; may be nil.
	Orphans *faultstore.Orphans
	// Trace notes the calls of the process under its Number; may be nil.
	Trace  *Trace
	Number int
	// Shared tells the engine that there may be other processes.
	Shared bool
	// Engine configures the engine; its Store is set here.
	Engine engine.Config
	// Attach configures the worker. Open sets its Backend and OnClose.
	Attach attach.Config
	// Patience bounds how long the process may take to serve.
	Patience time.Duration
}

// Process is one life of the program.
type Process struct {
	// App is nil when the process could not be opened.
	App    *perdure.App
	Number int

	fs     *faultstore.Store
	ctx    context.Context //nolint:containedctx // ends when the process dies
	die    context.CancelCauseFunc
	stop   context.CancelFunc
	done   chan struct{} // closed when the engine has ended
	err    error         // of the engine
	closed bool          // was ended in good order, or was to be
}

// Open opens a process, as embedded.Open does, and waits until it serves. The process is there even
// if there is an error, and must be buried.
func Open(cfg Config, defs ...perdure.Definition) (*Process, error) {
	p := &Process{Number: cfg.Number, done: make(chan struct{})}
	p.ctx, p.die = context.WithCancelCause(context.Background())
	p.fs = faultstore.Wrap(cfg.Store, faultstore.Config{
		Plan: cfg.Plan, OnCrash: func() { p.die(ErrDied) }, Orphans: cfg.Orphans, KeepInner: true,
	})
	cfg.Engine.Store = &port{Store: p.fs, trace: cfg.Trace, process: p.Number, shared: cfg.Shared}
	eng := engine.New(cfg.Engine)
	run, stop := context.WithCancel(context.Background())
	p.stop = stop

	go func() {
		defer close(p.done)
		p.err = eng.Run(run)
	}()

	ready, cancel := context.WithTimeout(p.ctx, cfg.Patience)
	defer cancel()
	if err := eng.Ready(ready); err != nil {
		return p, err
	}
	cfg.Attach.Backend = service.New(eng, cfg.Engine.Store, service.Limits{Payload: cfg.Attach.MaxPayload})

	cfg.Attach.OnClose = func() error {
		stop()
		<-p.done
		return p.err
	}

	app, err := attach.Open(p.ctx, cfg.Attach, defs...)
	p.App = app
	return p, err
}

// Context ends when the process does. Its cause is ErrDied when that was no orderly end.
func (p *Process) Context() context.Context { return p.ctx }

// Dead reports whether the process has ended.
func (p *Process) Dead() bool { return p.ctx.Err() != nil }

// Faults is how many faults its plan has injected.
func (p *Process) Faults() int64 {
	c := p.fs.Counts()
	return c.Injected()
}

// Close ends a process in good order; it reports whether the process lived to its end.
func (p *Process) Close() (orderly bool, err error) {
	p.closed = true
	err = p.App.Close()
	if p.Dead() {
		return false, nil
	}
	p.die(errClosed)
	return true, err
}

// Kill ends a process at once: nothing that it does from now on has an effect on the store.
func (p *Process) Kill() {
	p.die(ErrDied)
	p.fs.Kill()
}

// Bury ends what is left of a process that has died, or is given up.
func (p *Process) Bury() error {
	p.Kill()
	p.stop()
	<-p.done
	if p.App == nil {
		return nil
	}
	if err := p.App.Close(); err != nil && !errors.Is(err, faultstore.ErrCrashed) && !p.closed {
		return fmt.Errorf("the remains of process %d: %w", p.Number, err)
	}
	return nil
}
