package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// host is what the code of all executions of an app shares.
type host struct {
	backend    api.Backend
	activities map[string]activityDefinition
	inputs     map[string]inputType // of workflows and tasks whose code is here, by the types of their addresses
	logger     *slog.Logger
	payloads   *episode.Log // those that cannot be read or written now
	codec      *codec.Codec
	plain      bool // the codec has nothing to do but JSON
	maxStored  int
	dry        bool   // a history is replayed: nothing is stored, so nothing needs its stored form
	cluster    string // of the engine's store; empty when it does not tell
	meter      *telemetry.Meter
	tracer     *tracing.Tracer
}

// forReplay is the host for code that only replays a history, to check it or to answer a query: it has no backend, so
// that nothing can be stored or sent, and counts nothing.
func (h *host) forReplay() *host {
	dry := *h
	dry.backend, dry.meter, dry.tracer, dry.dry = nil, nil, nil, true
	return &dry
}

// Decided counts what a schedule has decided about its ticks.
func (h *host) Decided(name string, was, is *schedule.Counts) {
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

// limit refuses a value that is too large, where it is made. Workflow code depends on it, so it goes by the value and not by what
// becomes of it in the store.
func (h *host) limit(kind, name string, p model.Payload) error {
	size, most := p.Size(), h.codec.MaxPlain()
	if size <= most {
		return nil
	}
	return fault.New(fault.Invalid, "%s %s has %d bytes, at most %d are allowed", kind, name, size, most)
}

// patience says how long to try when a store of blobs or a key service is away.
type patience int

const (
	brief   patience = 5 // attempts; somebody waits for an answer
	patient patience = 0 // as long as the context lives
)

// Pauses between attempts.
const (
	firstPause  = 100 * time.Millisecond
	maxPause    = 15 * time.Second
	openTimeout = 30 * time.Second // for reading where nobody gives a context
)

// payloadTrouble logs payloads that cannot be read or written.
func payloadTrouble(log *slog.Logger) *episode.Log {
	return episode.New(log, "payloads cannot be read or written now; the app tries again", "payloads can be read and written again")
}

// insist calls f until it succeeds, fails for good, or patience or the context end.
func (h *host) insist(ctx context.Context, p patience, what string, f func() (model.Payload, error)) (model.Payload, error) {
	var trouble *episode.Source
	pause := firstPause
	for n := patience(1); ; n++ {
		out, err := f()
		if err == nil || !fault.Is(err, fault.Unavailable) || n == p {
			if trouble != nil && err == nil {
				trouble.OK()
			}
			return out, err
		}
		if trouble == nil {
			trouble = h.payloads.Source("of", what)
			defer trouble.Leave() // the last of those that fail ends the episode
		}
		trouble.Failed(err)
		select {
		case <-ctx.Done():
			return model.Payload{}, err
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		}
	}
}

// seal gives an encoded value its stored form.
func (h *host) seal(ctx context.Context, pt patience, kind, name string, p model.Payload) (model.Payload, error) {
	return h.sealed(ctx, pt, kind, name, p, h.codec.Seal)
}

// sealSent is seal for what is sent to an address. Under a request id it gets what a repetition is compared by.
func (h *host) sealSent(ctx context.Context, pt patience, m *model.Message, requestID string) (model.Payload, error) {
	if requestID == "" {
		return h.seal(ctx, pt, m.Kind.String(), m.Name, m.Input)
	}
	return h.sealed(ctx, pt, m.Kind.String(), m.Name, m.Input, func(ctx context.Context, p model.Payload) (model.Payload, error) {
		return h.codec.SealRequest(ctx, m.To, p)
	})
}

// sealer is seal for what workflow code records; nil when there is nothing to do.
func (h *host) sealer(kind, name string) replay.Seal {
	if h.plain || h.dry {
		return nil
	}
	return func(ctx context.Context, _ model.Address, p model.Payload) (model.Payload, error) {
		return h.seal(ctx, patient, kind, name, p)
	}
}

// sealerOf is sealSent for a message of workflow code; nil when there is nothing to do.
func (h *host) sealerOf(m *model.Message) replay.Seal {
	if h.plain || h.dry {
		return nil
	}
	sent := model.Message{Kind: m.Kind, To: m.To, Name: m.Name}
	request := m.RequestID
	return func(ctx context.Context, _ model.Address, p model.Payload) (model.Payload, error) {
		sent.Input = p
		return h.sealSent(ctx, patient, &sent, request)
	}
}

// sealStart is seal for the input of an execution.
func (h *host) sealStart(ctx context.Context, pt patience, a model.Address, p model.Payload) (model.Payload, error) {
	return h.sealed(ctx, pt, "input of workflow", a.Type, p, func(ctx context.Context, p model.Payload) (model.Payload, error) {
		return h.codec.SealStart(ctx, a, p)
	})
}

// startRequest is a start of ordinary code.
func (h *host) startRequest(ctx context.Context, pt patience, ref Ref, in model.Payload, o *startOptions) (r api.StartRequest, err error) {
	if err = h.accepts(ref.Workflow, o.in, in); err != nil {
		return r, err
	}
	r = api.StartRequest{Address: ref.address(), Reuse: o.reuse, RequestID: o.requestID, Labels: o.labels, Task: o.spec, Terms: o.agreed()}
	if r.Input, err = h.sealStart(ctx, pt, r.Address, in); err != nil {
		return r, err
	}
	for _, w := range o.with {
		signal := model.Message{Kind: model.MessageSignal, To: r.Address, Name: w.name, Input: w.value}
		if w.value, err = h.sealSent(ctx, pt, &signal, o.requestID); err != nil {
			return r, err
		}
		r.With = append(r.With, api.Message{Name: w.name, Input: w.value})
	}
	return r, nil
}

// inputType is how the code of a workflow or an activity reads its input.
type inputType struct {
	typ   reflect.Type
	check func(*host, model.Payload) error // says why an encoded value does not fit
}

// inputOf is the type I as the input of something.
func inputOf[I any](kind, name string) inputType {
	return inputType{reflect.TypeFor[I](), func(h *host, p model.Payload) error {
		_, err := unmarshal[I](h, kind, name, p)
		return err
	}}
}

// accepts refuses an input that the code cannot read, when that code is in this process under another type than the start has.
func (h *host) accepts(typ string, given reflect.Type, in model.Payload) error {
	if want, known := h.inputs[typ]; known && given != nil && want.typ != given {
		return want.check(h, in)
	}
	return nil
}

// sealMessage gives what a message carries its stored form.
func (h *host) sealMessage(ctx context.Context, pt patience, m *model.Message, o *stepOptions) (err error) {
	if m.Failure == nil {
		m.Input, err = h.sealSent(ctx, pt, m, o.requestID)
	}
	return err
}

func (h *host) sealed(
	ctx context.Context, pt patience, kind, name string, p model.Payload, seal func(context.Context, model.Payload) (model.Payload, error),
) (model.Payload, error) {
	if h.plain || h.dry {
		return p, nil
	}
	if err := h.limit(kind, name, p); err != nil {
		return p, err
	}
	out, err := h.insist(ctx, pt, kind+" "+name, func() (model.Payload, error) { return seal(ctx, p) })
	if err != nil {
		return p, named(err, kind, name)
	}
	if most := h.maxStored; out.Size() > most {
		return p, fault.New(fault.Invalid, "%s %s has %d bytes as it would be stored (%s), at most %d are allowed", kind, name, out.Size(), out.Form(), most)
	}
	return out, nil
}

// named says whose payload an error is about.
func named(err error, kind, name string) error {
	return fault.New(fault.KindOf(err), "%s %s: %w", kind, name, err)
}

// storeInput gives the input of a step the form in which it is recorded, before the step does anything.
func (h *host) storeInput(ctx context.Context, s *replay.Step) error {
	if h.plain || s.Stored.Load() != nil {
		return nil
	}
	p, err := h.seal(ctx, patient, "input of activity", s.Name, s.Input)
	if err != nil {
		return public(err)
	}
	s.Stored.Store(&p)
	return nil
}

// open undoes sealing.
func (h *host) open(ctx context.Context, pt patience, kind, name string, p model.Payload) (model.Payload, error) {
	out, err := h.insist(ctx, pt, kind+" "+name, func() (model.Payload, error) { return h.codec.Open(ctx, p) })
	if err != nil {
		return out, named(err, kind, name)
	}
	return out, nil
}

// plainInput is a recorded input for a message to people; nil when it cannot be told.
func (h *host) plainInput(p model.Payload) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	out, err := h.open(ctx, 1, "input", "", p)
	if err != nil {
		return nil
	}
	return out.Data
}

// show is a payload for people: as JSON when that can be had, and how it is stored.
func (h *host) show(ctx context.Context, p model.Payload) (text []byte, is string) {
	switch {
	case p.Encoding == model.JSON && len(p.Data) == 0:
		return nil, ""
	case p.Encoding == model.JSON:
		return p.Data, fmt.Sprintf("%d bytes of json", len(p.Data))
	}
	is = fmt.Sprintf("%d bytes of %s", len(p.Data), p.Form())
	plain, err := h.open(ctx, 1, "payload", "", p)
	if err != nil {
		return nil, is
	}
	if plain.Encoding == model.JSON {
		return plain.Data, is
	}
	var v any
	if err := h.codec.Unmarshal(plain, &v); err != nil {
		return nil, is
	}
	if text, err = json.Marshal(v); err != nil {
		return nil, is
	}
	return text, is
}

// state asks how an execution stands.
func (h *host) state(ctx context.Context, ref Ref) (state, error) {
	t, err := ref.api()
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
	if len(d.Reasons) > 0 {
		st.Reason = d.Reasons[0].String()
	}
	if len(d.Outcome.Output.Data) > 0 {
		// Whoever looks keeps the value: what is stored may refer to a blob that goes with the execution.
		out, err := h.open(ctx, brief, "output of workflow", ref.Workflow, d.Outcome.Output)
		if err != nil {
			return state{}, err
		}
		st.Output, st.Format = out.Data, out.Encoding
	}
	return st, nil
}

// stateOf reads state that an execution has set. That there is no such execution does not change by asking again. Whoever looks keeps the value, as
// in state.
func (h *host) stateOf(ctx context.Context, ref Ref, name string) (model.Payload, bool, error) {
	t, err := ref.api()
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

// entity reads the state of an entity. Whoever looks keeps the value, as in state.
func (h *host) entity(ctx context.Context, a model.Address) (model.Payload, bool, error) {
	info, err := h.backend.Entity(ctx, a)
	if fault.Is(err, fault.Invalid) {
		err = Permanent(err)
	}
	p, ok := info.Entity.State, info.Entity.Exists
	if err != nil || !ok || p.Encoding == model.JSON {
		return p, ok && err == nil, err
	}
	p, err = h.open(ctx, brief, "state of entity", strings.TrimPrefix(a.Type, model.EntityPrefix), p)
	return p, err == nil, err
}

// ---- reading in the name of somebody

// reader opens what is stored.
type reader interface {
	host() *host
	open(kind, name string, p model.Payload) (model.Payload, error)
}

// callReader reads for ordinary code, which gets the error of what cannot be read.
type callReader struct {
	h   *host
	ctx context.Context //nolint:containedctx // a reader is one call's
}

func (r callReader) host() *host { return r.h }

func (r callReader) open(kind, name string, p model.Payload) (model.Payload, error) {
	return r.h.open(r.ctx, brief, kind, name, p)
}

func (c Client) host() *host { return c.app.host }

func (c Client) open(kind, name string, p model.Payload) (model.Payload, error) {
	return callReader{c.host(), c.ctx}.open(kind, name, p)
}

func (ctx WorkflowCtx) host() *host { return ctx.x.Host().(*host) }

// open reads for workflow code. What cannot be read blocks the execution, so that it goes on where it was once it can.
func (ctx WorkflowCtx) open(kind, name string, p model.Payload) (model.Payload, error) {
	out, err := ctx.host().open(ctx.x.Context(), patient, kind, name, p)
	if err != nil {
		ctx.x.Block(err.Error())
	}
	return out, nil
}

// sealed gives what the code ends with its stored form.
func (ctx WorkflowCtx) sealed(kind, name string, p model.Payload) model.Payload {
	out, err := ctx.host().seal(ctx.x.Context(), patient, kind, name, p)
	if err != nil {
		ctx.x.Block(err.Error())
	}
	return out
}
