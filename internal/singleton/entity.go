package singleton

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Code is the code of the registers. It stores plain JSON regardless of the payload settings of the
// process, so that every process can serve the registers. Only positions are stored in the form
// that the payload settings of their app require.
func Code() entity.Type {
	asIs := func(_ context.Context, p model.Payload) (model.Payload, error) { return p, nil }
	return entity.Type{
		State: &entity.State{
			New:  func() any { return new(State) },
			Open: asIs, Seal: asIs,
			Decode: func(p model.Payload) (any, error) {
				s := new(State)
				return s, readJSON(p, s)
			},
			Encode: func(state any) (model.Payload, error) { return writeJSON(state) },
		},
		Calls: map[string]entity.Handler{Operation: {Run: apply}},
	}
}

// Offer describes the entity of the registers to the engine.
func Offer() model.EntityType { return model.EntityType{Type: Type, Concurrency: 1} }

// apply applies one command to a register.
func apply(c *entity.Call, state any) (model.Payload, error) {
	var cmd Command
	if err := readJSON(c.Input, &cmd); err != nil {
		return model.Payload{}, err
	}
	s := state.(*State)
	a := Decide(*s, &cmd)
	*s = a.State
	return writeJSON(a)
}

// Host is an engine in this process, which gives calls of every tenant to workers that run code of
// Perdure itself.
type Host interface {
	// JoinBuiltInEntities adds a worker that runs the entities for every tenant.
	JoinBuiltInEntities(ctx context.Context, w api.EntityWorker, types ...model.EntityType) (api.EntitySession, error)
}

// ServeAll serves the registers of every tenant until the caller calls stop. A server calls it, so
// that the programs that are connected to the server need not have the code of the registers.
func ServeAll(ctx context.Context, h Host, log *slog.Logger) (stop func(), err error) {
	w := entity.New(entity.Config{Types: map[string]entity.Type{Type: Code()}, Logger: log})
	session, err := h.JoinBuiltInEntities(ctx, w, Offer())
	if err != nil {
		return nil, err
	}
	w.Serve(session)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.Close(ctx) // another process makes the calls that are left
	}, nil
}

// Remote is the register of one singleton behind an engine.
type Remote struct {
	Backend api.Client
	Address model.Address
}

// At returns the register of a singleton of a tenant.
func At(b api.Client, tenant, name string) Remote {
	return Remote{b, model.Address{Tenant: tenant, Type: Type, Key: name}}
}

// Load reads the register from the store. It sends nothing to the owner of the entity.
func (r Remote) Load(ctx context.Context) (s State, err error) {
	page, err := r.Backend.ListEntities(ctx, api.EntityListRequest{Tenant: r.Address.Tenant, Type: Type, KeyPrefix: r.Address.Key, Limit: 1})
	if err != nil || len(page.Entities) == 0 {
		return s, err
	}
	e := &page.Entities[0] // keys are sorted, so the exact key comes before longer ones
	if e.Address.Key != r.Address.Key || !e.Exists {
		return s, nil
	}
	return s, readJSON(e.State, &s)
}

// Apply sends a command to the owner of the register.
func (r Remote) Apply(ctx context.Context, c *Command) (a Answer, err error) {
	in, err := writeJSON(c)
	if err != nil {
		return a, err
	}
	out, err := r.Backend.Call(ctx, api.CallRequest{Address: r.Address, Name: Operation, Input: in})
	if err != nil {
		return a, err
	}
	return a, readJSON(out, &a)
}

func readJSON(p model.Payload, into any) error {
	if p.Encoding != model.JSON {
		return fault.New(fault.Blocked, "the register of a singleton is encoded as %s: it must be plain JSON", p.Form())
	}
	if len(p.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(p.Data, into); err != nil {
		return fault.New(fault.Blocked, "the register of a singleton: %w", err)
	}
	return nil
}

func writeJSON(v any) (model.Payload, error) {
	data, err := json.Marshal(v)
	return model.Payload{Data: data}, err
}
