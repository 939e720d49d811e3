// Package crash runs a program of the SDK in a simulated process that can die. The process is the
// real engine and worker. They use a store that outlives them, through a wrapper that injects
// faults. When the process dies, the wrapper refuses every further call, so the remaining
// goroutines cannot write. After that, a new process can open the same store. Inside
// testing/synctest all of this takes virtual time.
//
// The packages crashwalk and perduretest use it.
package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// ErrDied is the cause with which the context of a process ends if the process dies.
var ErrDied = errors.New("the process died")

var errClosed = errors.New("the process has ended")

// Config describes a process.
type Config struct {
	// Store is the store, which outlives the process.
	Store store.Store
	// Plan injects faults into the calls of the process. Nil means no faults.
	Plan faultstore.Plan
	// Orphans has the late commits of all processes of the store: commits that arrive after their
	// process has given up on them. It may be nil.
	Orphans *faultstore.Orphans
	// Trace records the calls of the process under its Number. It may be nil.
	Trace  *Trace
	Number int
	// Shared tells the engine that there may be other processes.
	Shared bool
	// Engine configures the engine. Open sets its Store.
	Engine engine.Config
	// Attach configures the worker. Open sets its Backend, its OnClose, and the default
	// tenant unless it has one.
	Attach attach.Config
	// Patience bounds how long Open waits until the process serves.
	Patience time.Duration
}

// Process is a simulated process: one life of the program.
type Process struct {
	// App is nil if the process could not be opened.
	App    *perdure.App
	Number int

	fs     *faultstore.Store
	ctx    context.Context //nolint:containedctx // ends when the process dies
	die    context.CancelCauseFunc
	stop   context.CancelFunc
	done   chan struct{} // closed when the engine has ended
	err    error         // why the engine has ended
	closed bool          // an orderly end was tried
}

// Open opens a process, as embedded.Open does, and waits until it serves. It returns a process even
// if it returns an error. The caller must call Bury in that case too.
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
	cfg.Attach.Tenant = cmp.Or(cfg.Attach.Tenant, model.DefaultTenant)
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

// Context returns a context that ends with the process. Its cause is ErrDied unless the end was
// orderly.
func (p *Process) Context() context.Context { return p.ctx }

// Dead reports whether the process has ended.
func (p *Process) Dead() bool { return p.ctx.Err() != nil }

// Faults returns how many faults the plan has injected.
func (p *Process) Faults() int64 {
	c := p.fs.Counts()
	return c.TotalFaults()
}

// Close ends a process cleanly. It returns orderly = false if the process died before the end.
func (p *Process) Close() (orderly bool, err error) {
	p.closed = true
	err = p.App.Close()
	if p.Dead() {
		return false, nil
	}
	p.die(errClosed)
	return true, err
}

// Kill ends a process immediately. Nothing that it does after that affects the store.
func (p *Process) Kill() {
	p.die(ErrDied)
	p.fs.Kill()
}

// Bury kills the process, if it still lives, and ends its remaining goroutines.
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
