package perdure

import (
	"context"
	"log/slog"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// host has everything that the executions of an app share.
type host struct {
	backend    api.Backend
	tenant     string // in every address that the app uses
	activities map[string]activityDefinition
	// inputs has the input types of workflows and tasks whose code is here, by the types of their
	// addresses.
	inputs    map[string]inputType
	logger    *slog.Logger
	payloads  *episode.Log // failing reads and writes of payloads
	codec     *codec.Codec
	plain     bool // the codec stores plain JSON
	maxStored int
	dry       bool   // the host only replays a history: it stores nothing, so it seals no payloads
	scope     string // model.TenantScope of rows in databases of the user
	meter     *telemetry.Meter
	tracer    *tracing.Tracer
}

// forReplay returns a host for code that only replays a history, to check it or to answer a query.
// It has no backend, so the code can neither store nor send anything, and it has no metrics.
func (h *host) forReplay() *host {
	dry := *h
	dry.backend, dry.meter, dry.tracer, dry.dry = nil, nil, nil, true
	return &dry
}

// BatchClient returns the client that batch jobs call.
func (h *host) BatchClient() api.Client { return h.backend }

// schedules returns the schedules of the app's tenant.
func (h *host) schedules() schedule.Schedules { return schedule.In(h.backend, h.tenant) }

// CountDecisions counts the decisions of a schedule about its ticks.
func (h *host) CountDecisions(name string, was, is *schedule.Counts) {
	count := func(outcome string, was, is int64) {
		if is > was {
			h.meter.Add(telemetry.ScheduleTicks, is-was, name, outcome)
		}
	}
	count("fired", was.Fired, is.Fired)
	count("triggered", was.Triggered, is.Triggered)
	count("backfilled", was.Backfilled, is.Backfilled)
	count("skipped", was.Skipped, is.Skipped)
	count("missed", was.Missed, is.Missed)
	count("failed", was.Failed, is.Failed)
}

// limit refuses a value that is too large. Workflow code depends on the answer, so a replay must
// get the same answer. For that reason limit checks the size of the value itself and not of its
// stored form, which may change with the settings.
func (h *host) limit(kind, name string, p model.Payload) error {
	size, most := p.Size(), h.codec.MaxPlain()
	if size <= most {
		return nil
	}
	return fault.New(fault.Invalid, "%s %s has %d bytes, at most %d are allowed", kind, name, size, most)
}

// startRequest builds the start request of ordinary code.
func (h *host) startRequest(ctx context.Context, pt patience, ref Ref, in model.Payload, o *startOptions) (r api.StartRequest, err error) {
	if err = h.checkInput(ref.Workflow, o.in, in); err != nil {
		return r, err
	}
	r = api.StartRequest{Address: ref.address(h), Reuse: o.reuse, RequestID: o.requestID, Labels: o.labels, Task: o.spec, Terms: o.storedTerms()}
	if r.Input, err = h.sealStart(ctx, pt, r.Address, in); err != nil {
		return r, err
	}
	for _, w := range o.with {
		of := parcel{model.MessageSignal.String(), w.name, r.Address, o.requestID}
		if w.value, err = h.sealParcel(ctx, pt, of, w.value); err != nil {
			return r, err
		}
		r.With = append(r.With, api.Message{Name: w.name, Input: w.value})
	}
	return r, nil
}

// state returns the state of an execution.
func (h *host) state(ctx context.Context, ref Ref) (state, error) {
	t, err := ref.api(h)
	if err != nil {
		return state{}, Permanent(err)
	}

	d, err := h.backend.Describe(ctx, t)
	if err != nil {
		if k := fault.KindOf(err); k == fault.NotFound || k == fault.Invalid {
			err = Permanent(err)
		}
		return state{}, err
	}

	st := state{Status: d.Outcome.Status.String(), Failure: d.Outcome.Failure}
	st.Reason = model.Summary(d.Reasons)

	if len(d.Outcome.Output.Data) > 0 {
		// The caller may keep the result longer than the execution exists. The stored form may
		// refer to a blob that a sweep removes after the execution is gone. So open the stored form
		// here.
		out, err := h.open(ctx, brief, "output of workflow", ref.Workflow, d.Outcome.Output)
		if err != nil {
			return state{}, err
		}
		st.Output, st.Format = out.Data, out.Encoding
	}
	return st, nil
}

// stateOf reads a state value of an execution. If there is no such execution, the error is
// permanent. Like state, stateOf opens the stored form, because the caller may keep the value
// longer than the execution exists.
func (h *host) stateOf(ctx context.Context, ref Ref, name string) (model.Payload, bool, error) {
	t, err := ref.api(h)
	if err != nil {
		return model.Payload{}, false, Permanent(err)
	}
	p, ok, err := h.backend.State(ctx, t, name)
	if k := fault.KindOf(err); err != nil && (k == fault.NotFound || k == fault.Invalid) {
		err = Permanent(err)
	}
	if err != nil || !ok || p.Encoding == model.JSON {
		return p, ok, err
	}
	p, err = h.open(ctx, brief, "value of state", name, p)
	return p, err == nil, err
}

// entity reads the state of an entity. Like state, it opens the stored form, because the caller may
// keep the value longer than the entity exists.
func (h *host) entity(ctx context.Context, a model.Address) (model.Payload, bool, error) {
	info, err := h.backend.Entity(ctx, a)
	if fault.Is(err, fault.Invalid) {
		err = Permanent(err)
	}
	p, ok := info.Entity.State, info.Entity.Exists
	if err != nil || !ok || p.Bare().Encoding == model.JSON {
		return p, ok && err == nil, err
	}
	version := p.StateVersion()
	p, err = h.open(ctx, brief, stateKind, strings.TrimPrefix(a.Type, model.EntityPrefix), p)
	return p.WithStateVersion(version), err == nil, err
}
