package perdure

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/singleton"
)

// joinTasks registers this process as a worker for tasks of all activities whose code it has. That
// includes activities without a queue, because a call or a submission may name a queue.
func (a *App) joinTasks(ctx context.Context, r *registry) error {
	cfg := &a.cfg.Tasks
	handlers := map[string]pool.Handler{}
	queues := slices.Clone(cfg.Queues)
	var limits, breakers []string
	for name, d := range r.activities {
		limits = append(limits, d.limits...)
		if d.breaker != "" {
			breakers = append(breakers, d.breaker)
		}
		if d.handler == nil {
			continue
		}
		handlers[name] = a.watch(d.handler(a.host))
		if d.queue != "" {
			queues = append(queues, d.queue)
		}
	}

	if len(handlers) == 0 || cfg.Slots < 0 {
		return nil
	}
	queues = append(queues, DefaultQueue)
	slices.Sort(queues)
	pc := pool.Config{
		Handlers: handlers, Slots: cfg.Slots, Prefetch: cfg.Prefetch, HighLoad: cfg.HighLoad, LowLoad: cfg.LowLoad,
		HighMemory: cfg.HighMemory, LowMemory: cfg.LowMemory, Logger: a.cfg.Logger, Meter: a.cfg.Meter, Tracer: a.cfg.Tracer,
	}

	if c := a.cfg.Checks; c != nil {
		pc.Base = c.Base
	}
	if h := a.host; !h.plain {
		pc.Seal = func(ctx context.Context, kind string, p model.Payload) (model.Payload, error) {
			return h.seal(ctx, brief, "progress of activity", kind, p)
		}
	}

	p := pool.New(pc)
	session, err := a.cfg.Backend.JoinTasks(ctx, p, model.TaskOffer{
		Name: workerName(), Tenants: []string{a.host.tenant}, Queues: slices.Compact(queues), Kinds: sortedKeys(handlers), Slots: p.Capacity(), Version: a.cfg.Version, TellsEnd: true,
		Limits: slices.Compact(slices.Sorted(slices.Values(limits))), Breakers: slices.Compact(slices.Sorted(slices.Values(breakers))),
	})
	if err != nil {
		return fmt.Errorf("serve queues %s: %w", strings.Join(slices.Compact(queues), ", "), err)
	}

	p.Serve(session)
	a.tasks = p
	return nil
}

// watch returns a handler that does what h does and calls Checks.Ran after every attempt. Only
// tests set Checks.Ran. Without it, watch returns h unchanged.
func (a *App) watch(h pool.Handler) pool.Handler {
	c := a.cfg.Checks
	if c == nil || c.Ran == nil {
		return h
	}
	run := h.Run

	h.Run = func(ctx context.Context, t *pool.Task) (out model.Payload, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = replay.PanicFailure(v)
			}
			claim := t.Claim()
			c.Ran(replay.Attempt{
				Address: claim.Ref.Address, Step: claim.Spec.Kind, IdempotencyKey: IdempotencyKey(ctx), Number: claim.Attempt, Output: out.Data, Err: err,
			})
		}()
		return run(ctx, t)
	}

	return h
}

// closeTasks accepts no new tasks and waits for running tasks. When the drain timeout has passed,
// it gives back the tasks that still run.
func (a *App) closeTasks() error {
	if a.tasks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(a.cfg.Tasks.DrainTimeout, a.cfg.DrainTimeout))
	defer cancel()
	return a.tasks.Close(ctx)
}

// joinEntities registers this process as a worker for calls of the entities and services whose code
// it has.
func (a *App) joinEntities(ctx context.Context, r *registry) error {
	offer := model.EntityOffer{Name: workerName(), Tenant: a.host.tenant, Version: a.cfg.Version}

	cfg := entity.Config{Types: map[string]entity.Type{}, Slots: a.cfg.MaxCalls, Logger: a.cfg.Logger, Outlet: a.host.backend}
	if !a.cfg.Served {
		offer.Types = append(offer.Types, singleton.Offer())
		cfg.Types[singleton.Type] = singleton.Code()
	}
	for _, typ := range sortedKeys(r.entities) {
		d := r.entities[typ]
		offer.Types = append(offer.Types, d.offer())
		cfg.Types[typ] = d.code(a.host)
	}
	if len(offer.Types) == 0 {
		return nil
	}

	if c := a.cfg.Checks; c != nil {
		cfg.Base = c.Base
	}
	w := entity.New(cfg)
	offer.Slots = w.Capacity()
	session, err := a.cfg.Backend.JoinEntities(ctx, w, offer)
	if err != nil {
		return fmt.Errorf("serve %s: %w", strings.Join(sortedKeys(r.entities), ", "), err)
	}

	w.Serve(session)
	a.entities = w
	return nil
}

// closeEntities accepts no new calls and waits for running calls.
func (a *App) closeEntities() error {
	if a.entities == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DrainTimeout)
	defer cancel()
	return a.entities.Close(ctx)
}

// workerName returns a unique name of this process. Operators see the name, and histories record
// it.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // the rest of the name is unique
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
}
