package perdure

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// patience says how long to try when a blob store or a key service cannot be reached.
type patience int

const (
	brief   patience = 5 // number of attempts; few, because a caller waits
	patient patience = 0 // no limit: try until the context ends
)

// Pauses between attempts.
const (
	firstPause  = 100 * time.Millisecond
	maxPause    = 15 * time.Second
	openTimeout = 30 * time.Second // for reads that have no context of a caller
)

// payloadTrouble logs payloads that cannot be read or written.
func payloadTrouble(log *slog.Logger) *episode.Log {
	return episode.New(log, "payloads cannot be read or written now; the app tries again", "payloads can be read and written again")
}

// insist calls f until f succeeds or fails permanently, until insist has made p attempts, or until
// ctx ends. If p is patient, the number of attempts has no limit.
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
			defer trouble.Leave() // when the last failing call has left, the episode ends
		}

		trouble.Fail(err)
		select {
		case <-ctx.Done():
			return model.Payload{}, err
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		}
	}
}

// seal returns the stored form of an encoded value.
func (h *host) seal(ctx context.Context, pt patience, kind, name string, p model.Payload) (model.Payload, error) {
	return h.sealWith(ctx, pt, parcel{word: kind, name: name}, p, h.codec.Seal)
}

// parcel describes a value that is to be sealed. For a value that is sent, parcel also has the
// address of the receiver, and the request id if there is one.
type parcel struct {
	word, name string // for error texts: signal paid
	to         model.Address
	requestID  string
}

// sealParcel returns the stored form of a value that is sent. If there is a request id, the stored
// form includes what the engine needs to recognise a repetition of the request.
func (h *host) sealParcel(ctx context.Context, pt patience, of parcel, p model.Payload) (model.Payload, error) {
	if of.requestID == "" {
		return h.seal(ctx, pt, of.word, of.name, p)
	}
	return h.sealWith(ctx, pt, of, p, func(ctx context.Context, p model.Payload) (model.Payload, error) {
		return h.codec.SealRequest(ctx, of.to, p)
	})
}

// sealer returns a function that seals payloads before workflow code records them. It is nil if
// the app stores payloads unchanged.
func (h *host) sealer(kind, name string) replay.Seal {
	if h.plain || h.dry {
		return nil
	}
	return func(ctx context.Context, _ model.Address, p model.Payload) (model.Payload, error) {
		return h.seal(ctx, patient, kind, name, p)
	}
}

// sealerOf returns a function that seals the payloads of a message of workflow code. It is nil if
// the app stores payloads unchanged.
func (h *host) sealerOf(m *model.Message) replay.Seal {
	if h.plain || h.dry {
		return nil
	}
	of := parcel{m.Kind.String(), m.Name, m.To, m.RequestID}
	return func(ctx context.Context, _ model.Address, p model.Payload) (model.Payload, error) {
		return h.sealParcel(ctx, patient, of, p)
	}
}

// sealStart returns the stored form of the input of an execution.
func (h *host) sealStart(ctx context.Context, pt patience, a model.Address, p model.Payload) (model.Payload, error) {
	if a.Type == delayed.Type {
		return h.sealLater(ctx, pt, p)
	}
	return h.sealWith(ctx, pt, parcel{word: "input of workflow", name: a.Type}, p, func(ctx context.Context, p model.Payload) (model.Payload, error) {
		return h.codec.SealStart(ctx, a, p)
	})
}

// sealRequest replaces the value in a request with its stored form.
func (h *host) sealRequest(ctx context.Context, pt patience, r api.Request) (err error) {
	switch r := r.(type) {
	case *api.SignalRequest:
		of := parcel{model.MessageSignal.String(), r.Name, r.Target.Address, r.RequestID}
		r.Input, err = h.sealParcel(ctx, pt, of, r.Input)
	case *api.SettleRequest:
		if r.Failure == nil {
			of := parcel{model.MessageSettle.String(), r.Name, r.Target.Address, r.RequestID}
			r.Value, err = h.sealParcel(ctx, pt, of, r.Value)
		}
	case *api.CallRequest:
		of := parcel{model.MessageCall.String(), r.Name, r.Address, r.RequestID}
		r.Input, err = h.sealParcel(ctx, pt, of, r.Input)
	}
	return err
}

// sealRequeued returns the stored form of the input with which a dead task is requeued. It includes
// what the engine needs to recognise a second requeue with the same input.
func (h *host) sealRequeued(ctx context.Context, of api.DeadID, p model.Payload) (model.Payload, error) {
	to := model.Address{Tenant: of.Tenant, Type: "dead task", Key: of.String()} // no sum fits another task
	return h.sealWith(ctx, brief, parcel{word: "input of", name: "a dead task"}, p, func(ctx context.Context, p model.Payload) (model.Payload, error) {
		return h.codec.SealRequest(ctx, to, p)
	})
}

// sealWith calls the function seal, which makes the stored form of a value, and returns the result.
// sealWith checks the size before and after that call, because sealing can make a value shorter
// (compression) or longer (encryption).
func (h *host) sealWith(
	ctx context.Context, pt patience, of parcel, p model.Payload, seal func(context.Context, model.Payload) (model.Payload, error),
) (model.Payload, error) {
	if h.plain || h.dry {
		return p, nil
	}
	if err := h.limit(of.word, of.name, p); err != nil {
		return p, err
	}

	out, err := h.insist(ctx, pt, of.word+" "+of.name, func() (model.Payload, error) { return seal(ctx, p) })
	if err != nil {
		return p, nameError(err, of.word, of.name)
	}
	if most := h.maxStored; out.Size() > most {
		return p, fault.New(fault.Invalid, "%s %s has %d bytes as it would be stored (%s), at most %d are allowed", of.word, of.name, out.Size(), out.Form(), most)
	}
	return out, nil
}

// storeInput replaces the input of a step with its stored form, before the body of the step runs.
func (h *host) storeInput(ctx context.Context, s *replay.Step) error {
	if h.plain || s.Input.Stored.Load() != nil {
		return nil
	}
	p, err := h.seal(ctx, patient, "input of activity", s.Name, s.Input.Payload)
	if err != nil {
		return err
	}
	s.Input.Stored.Store(&p)
	return nil
}

// open turns the stored form of a value back into the encoded value.
func (h *host) open(ctx context.Context, pt patience, kind, name string, p model.Payload) (model.Payload, error) {
	out, err := h.insist(ctx, pt, kind+" "+name, func() (model.Payload, error) { return h.codec.Open(ctx, p) })
	if err != nil {
		return out, nameError(err, kind, name)
	}
	return out, nil
}

// nameError adds the name of the payload, such as "signal paid", to an error.
func nameError(err error, kind, name string) error {
	return fault.New(fault.KindOf(err), "%s %s: %w", kind, name, err)
}
