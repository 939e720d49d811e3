package perdure

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach/seam"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	server "github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/replay"
)

// attachment has the settings of an App that an internal caller, such as package embedded, joins
// with an engine. It is not part of the public API: internal/attach exports it as attach.Config.
type attachment = seam.Config[Definition, TaskConfig]

func init() {
	seam.Set(seam.Constructors[*App, Definition, TaskConfig]{
		Open: func(ctx context.Context, cfg attachment, defs ...Definition) (*App, error) {
			a, err := attach(ctx, cfg, defs...)
			return a, public(err)
		},
		Dial: func(ctx context.Context, cfg attachment, url string, connect seam.Connect, defs ...Definition) (*App, error) {
			to, err := server.ParseURL(url)
			if err != nil {
				return nil, public(err)
			}
			to.Version, to.Log, to.Dial = cfg.Version, cfg.Logger, connect
			a, err := dialServer(ctx, to, cfg, defs...)
			return a, public(err)
		},
		Replay: func(ctx context.Context, cfg attachment, r io.Reader, defs ...Definition) error {
			return public(replayHistory(ctx, cfg, r, defs...))
		},
	})
}

// checkNumbers reports all wrong numbers in the settings.
func checkNumbers(cfg *attachment) error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, format, args...))
	}
	checkTimes(wrong, namedTime{"DrainTimeout", cfg.DrainTimeout}, namedTime{"IdleAfter", cfg.IdleAfter})

	for _, n := range []struct {
		name  string
		value int
	}{{"MaxLoaded", cfg.MaxLoaded}, {"MaxSteps", cfg.MaxSteps}, {"MaxCalls", cfg.MaxCalls}, {"MaxPayload", cfg.MaxPayload}} {
		if n.value < 0 {
			wrong("%s is %d, must be >= 0", n.name, n.value)
		}
	}

	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "%w", errors.Join(problems...))
}

// defaultMaxPayload is the largest input or output in bytes, unless the settings have another
// limit.
const defaultMaxPayload = 2 << 20

// attach builds an App from an engine and definitions.
func attach(ctx context.Context, cfg attachment, defs ...Definition) (*App, error) {
	if err := checkNumbers(&cfg); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, silent)
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, defaultMaxPayload)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 10*time.Second)
	if err := cfg.Tasks.check(); err != nil {
		return nil, err
	}

	settings := codec.Config{Settings: cfg.Payloads, MaxPayload: cfg.MaxPayload}
	if cfg.Backend != nil { // without a backend, attach only checks the definitions
		settings.Cluster = cfg.Backend.Cluster()
	}
	c, err := codec.New(ctx, settings)
	if err != nil {
		return nil, err
	}

	r, err := register(defs, c.CheckType, cfg.Instead...)
	if err != nil {
		return nil, err
	}

	for _, name := range sortedKeys(r.workflows) {
		if r.workflows[name].pinned && cfg.Version == "" {
			return nil, fault.New(fault.Invalid, "workflow %s is pinned: give the program a version, the field Version of embedded.Config or Dialer", name)
		}
	}

	if cfg.PruneSchedules && cfg.Name == "" {
		return nil, fault.New(fault.Invalid, "schedules can be pruned only by an app that has a name: set the field Name of embedded.Config or Dialer")
	}
	if !model.ValidTenant(cfg.Tenant) {
		return nil, fault.New(fault.Invalid, "%q is not the name of a tenant: an app needs the tenant that its backend gives it", cfg.Tenant)
	}
	a := &App{cfg: cfg, host: &host{
		backend: cfg.Backend, tenant: cfg.Tenant, activities: r.activities, logger: cfg.Logger, codec: c, plain: c.Plain(), maxStored: codec.MaxStored(cfg.Payloads, cfg.MaxPayload),
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

// serve starts the workers, applies the schedules, and starts the singletons. Entities come first
// because workflows and tasks may call them.
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
	if err := a.applySchedules(ctx, r.schedules); err != nil {
		return err
	}
	a.runSingletons(r.singletons)
	return nil
}

// join registers this app with the engine as a worker for its workflows.
func (a *App) join(ctx context.Context, r *registry) error {
	cfg := &a.cfg
	code, pinned, retain := map[string]replay.Code{}, map[string]bool{}, map[string]time.Duration{}
	repeat := map[string]replay.Repeat{}
	for name, d := range r.workflows {
		if cfg.Served && strings.HasPrefix(name, model.ReservedPrefix) {
			continue
		}
		code[name], pinned[name], retain[name] = d.code, d.pinned, d.retain
		if d.retry != nil {
			repeat[name] = replay.Repeat{Stored: d.retry.toModel(), Worth: d.retry.worth()}
		}
	}

	if len(code) == 0 {
		return nil // the app is only a client
	}

	worker := replay.NewWorker(replay.Config{
		Code: code, Version: cfg.Version, Pinned: pinned, Retain: retain, Repeat: repeat, Host: a.host, Plain: a.host.plainInput, Logger: cfg.Logger, IdleAfter: cfg.IdleAfter,
		MaxLoaded: cfg.MaxLoaded, MaxSteps: cfg.MaxSteps, Checks: cfg.Checks, Meter: cfg.Meter, Tracer: cfg.Tracer, OwnerRestarts: cfg.Served,
		DryHost: a.host.forReplay(), Load: func(ctx context.Context, at model.Address, run model.RunID) (*model.History, error) {
			return history.Load(ctx, cfg.Backend, api.Target{Address: at, Run: run}, maxReplayed)
		},
	})

	offer := api.Offer{Tenant: cfg.Tenant, Workflows: sortedKeys(code), Version: cfg.Version, Slots: worker.Capacity(), BuiltIn: !cfg.Served}
	for _, name := range offer.Workflows {
		if pinned[name] {
			offer.Pinned = append(offer.Pinned, name)
		}
	}

	session, err := cfg.Backend.Join(ctx, worker, offer)
	if err != nil {
		return err
	}

	worker.Serve(session)
	a.worker = worker
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
