package perdure

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
	"github.com/perdure/perdure/internal/userdb"
	"github.com/perdure/perdure/payload"
)

// App is an open node, and the worker in it that serves the definitions. It is safe for concurrent use.
type App struct {
	host   *host
	worker *replay.Worker
	tasks  *pool.Pool // nil when it executes none
	// entities is nil when it has the code of none.
	entities *entity.Worker
	cfg      Attachment

	databases  []*userdb.Database // in which transactional activities act
	relays     []*relay
	hinter     hinter
	background sync.WaitGroup
	stop       context.CancelFunc // of what runs in the background

	closing sync.Once
	closed  error
}

// Attachment is how package embedded joins an App with an engine. Programs use embedded.Open.
type Attachment struct {
	Backend api.Backend
	Logger  *slog.Logger
	// IdleAfter is how long a parked execution stays in memory; 5 s.
	IdleAfter time.Duration
	// MaxLoaded is how many executions stay in memory at once; 10,000.
	MaxLoaded int
	// MaxSteps is how many bodies of steps run at once; 1,024.
	MaxSteps int
	// MaxPayload is the largest input or output in bytes; 2 MiB.
	MaxPayload int
	// Payloads is how inputs, outputs and messages are stored.
	Payloads payload.Codec
	// Cluster is the id of the store.
	Cluster string
	// Search finds every value in the store in which a text occurs, all as of one moment, for clean-up; nil when that cannot be asked for.
	Search func(ctx context.Context, text string, found func(value []byte) error) error
	// DrainTimeout is how long Close waits for running steps; 10 s.
	DrainTimeout time.Duration
	// Tasks is how it executes tasks.
	Tasks TaskConfig
	// Version of the program, for workflows that are Pinned.
	Version string
	// Name of the app, which the schedules are known by that it applies.
	Name string
	// PruneSchedules deletes the schedules that an app of this Name has applied and that are not defined any more.
	PruneSchedules bool
	// Meter counts what the app does, and Tracer makes spans of it; nil when nobody looks.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// OnClosing tells the engine that Close was called. Workers leave next.
	OnClosing func()
	// OnClose closes the engine.
	OnClose func() error
	// Instead are definitions that take the place of those of the same name. Package perduretest uses it.
	Instead Group
	// Checks are for tests only. Package perduretest uses them.
	Checks *replay.Checks
}

// check says what is wrong with the numbers: all of it.
func (cfg *Attachment) check() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, format, args...))
	}
	checkTimes(wrong, namedTime{"DrainTimeout", cfg.DrainTimeout}, namedTime{"IdleAfter", cfg.IdleAfter})
	for _, n := range []struct {
		name  string
		value int
	}{{"MaxLoaded", cfg.MaxLoaded}, {"MaxSteps", cfg.MaxSteps}, {"MaxPayload", cfg.MaxPayload}} {
		if n.value < 0 {
			wrong("%s is %d, which is less than nothing", n.name, n.value)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return public(fault.New(fault.Invalid, "%w", errors.Join(problems...)))
}

// Attach makes an App of an engine and definitions. Programs use embedded.Open.
func Attach(ctx context.Context, cfg Attachment, defs ...Definition) (*App, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, silent)
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, 2<<20)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 10*time.Second)
	if err := cfg.Tasks.check(); err != nil {
		return nil, err
	}
	c, err := codec.New(ctx, codec.Config{Settings: cfg.Payloads, Cluster: cfg.Cluster, MaxPayload: cfg.MaxPayload})
	if err != nil {
		return nil, public(err)
	}
	r, err := register(defs, c.CheckType, cfg.Instead...)
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(r.workflows) {
		if r.workflows[name].pinned && cfg.Version == "" {
			return nil, public(fault.New(fault.Invalid, "workflow %s is pinned: give the program a version, embedded.Config{Version: …}", name))
		}
	}
	if cfg.PruneSchedules && cfg.Name == "" {
		return nil, public(fault.New(fault.Invalid, "schedules can be pruned only by an app that has a name: embedded.Config{Name: …}"))
	}
	a := &App{cfg: cfg, host: &host{
		backend: cfg.Backend, activities: r.activities, logger: cfg.Logger, codec: c, plain: c.Plain(), maxStored: codec.MaxStored(cfg.Payloads, cfg.MaxPayload),
		inputs: r.inputs(), meter: cfg.Meter, tracer: cfg.Tracer, payloads: payloadTrouble(cfg.Logger),
	}}
	if err := r.openDatabases(ctx); err != nil {
		return nil, err
	}
	if err := a.serveDatabases(r); err != nil {
		return nil, err
	}
	if err := a.serve(ctx, r); err != nil {
		a.stopBackground()
		return nil, errors.Join(err, a.closeWorkers())
	}
	return a, nil
}

// serve begins to work. Entities come first because workflows and tasks may call them.
func (a *App) serve(ctx context.Context, r *registry) error {
	if err := a.joinEntities(ctx, r); err != nil {
		return err
	}
	if err := a.joinTasks(ctx, r); err != nil {
		return err
	}
	if err := a.join(ctx, r); err != nil {
		return err
	}
	return a.applySchedules(ctx, r.schedules)
}

// join has the engine give us executions of the workflows.
func (a *App) join(ctx context.Context, r *registry) error {
	cfg := &a.cfg
	code, pinned, retain := map[string]replay.Code{}, map[string]bool{}, map[string]time.Duration{}
	repeat := map[string]replay.Repeat{}
	for name, d := range r.workflows {
		code[name], pinned[name], retain[name] = d.code, d.pinned, d.retain
		if d.retry != nil {
			repeat[name] = replay.Repeat{Stored: d.retry.stored(), Worth: d.retry.worth()}
		}
	}
	worker := replay.NewWorker(replay.Config{
		Code: code, Version: cfg.Version, Pinned: pinned, Retain: retain, Repeat: repeat, Host: a.host, Plain: a.host.plainInput, Logger: cfg.Logger, IdleAfter: cfg.IdleAfter,
		MaxLoaded: cfg.MaxLoaded, MaxSteps: cfg.MaxSteps, Checks: cfg.Checks, Meter: cfg.Meter, Tracer: cfg.Tracer,
		DryHost: a.host.forReplay(), Load: func(ctx context.Context, at model.Address, run model.RunID) (*model.History, error) {
			return history.Load(ctx, cfg.Backend, api.Target{Address: at, Run: run}, maxReplayed)
		},
	})
	offer := api.Offer{Tenant: model.DefaultTenant, Workflows: sortedKeys(code), Version: cfg.Version}
	for _, name := range offer.Workflows {
		if pinned[name] {
			offer.Pinned = append(offer.Pinned, name)
		}
	}
	session, err := cfg.Backend.Join(ctx, worker, offer)
	if err != nil {
		return public(err)
	}
	worker.Serve(session)
	a.worker = worker
	return nil
}

// With is the app in the name of ctx: the Caller of ordinary code. When ctx ends, so does the call; what it started goes on.
func (a *App) With(ctx context.Context) Client { return Client{a, ctx} }

// Wait blocks until ctx ends, then closes the app.
func (a *App) Wait(ctx context.Context) error {
	<-ctx.Done()
	return a.Close()
}

// Close takes no new work, waits for running steps and tasks, and releases everything. Executions go on when the store is opened again.
//
// Close does not wait for a store that takes nothing, for example because its disk is full. It
// makes a few more attempts within a second. Then it returns an ErrUnavailable that says what
// is not stored. Nothing acknowledged is lost: pending calls have failed with the reason, and
// steps whose outcomes are not stored run again.
func (a *App) Close() error {
	a.closing.Do(func() {
		if a.cfg.OnClosing != nil {
			a.cfg.OnClosing()
		}
		a.stopBackground()
		a.closed = a.closeWorkers()
		if a.cfg.OnClose != nil {
			a.closed = errors.Join(a.closed, a.cfg.OnClose())
		}
	})
	return a.closed
}

// closeWorkers takes no new work and waits for what runs. Entities are served until steps and tasks have ended, which may wait for them.
func (a *App) closeWorkers() error {
	var tasks sync.WaitGroup // are drained meanwhile
	var left, closed error
	tasks.Go(func() { left = a.closeTasks() })
	if a.worker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DrainTimeout)
		closed = a.worker.Close(ctx)
		cancel()
	}
	tasks.Wait()
	return errors.Join(closed, left, a.closeEntities())
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
