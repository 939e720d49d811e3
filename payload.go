package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/payload"
)

// encode encodes a value in the format of the app. seal turns the result into the stored form.
func encode[T any](h *host, kind, name string, v T) (p model.Payload, err error) {
	if h.plain {
		p.Data, err = payload.JSON.Marshal(v)
	} else {
		p, err = h.codec.Marshal(v)
	}
	if err != nil {
		return model.Payload{}, fault.New(fault.Invalid, "%s %s cannot be encoded: %w", kind, name, err)
	}
	return p, nil
}

// encodeFor encodes a value that workflow code stores. Unlike encode, it refuses a value that is
// too large.
func encodeFor[T any](h *host, kind, name string, v T) (model.Payload, error) {
	p, err := encode(h, kind, name, v)
	if err != nil {
		return p, Permanent(err)
	}
	if err := h.limit(kind, name, p); err != nil {
		return p, Permanent(err)
	}
	return p, nil
}

// result returns the outcome of a step's body in its stored form.
func result[T any](ctx context.Context, h *host, kind, name string, v T) (model.Payload, error) {
	p, err := encodeFor(h, kind, name, v)
	if err != nil || h.plain {
		return p, err
	}
	// The body has run, and must not run again only because a blob store cannot be reached. So wait
	// for the blob store.
	if p, err = h.seal(ctx, patient, kind, name, p); err != nil && !fault.Is(err, fault.Unavailable) {
		err = Permanent(err)
	}
	return p, err
}

// reader opens stored values.
type reader interface {
	host() *host
	open(kind, name string, p model.Payload) (model.Payload, error)
}

// decode reads a stored value. It ignores fields that the type of this build does not have, so that
// later builds may add and remove fields.
func decode[T any, R reader](r R, kind, name string, p model.Payload) (v T, err error) {
	if p.Encoding != model.JSON {
		if p, err = r.open(kind, name, p); err != nil {
			return v, err
		}
	}
	return unmarshal[T](r.host(), kind, name, p)
}

// unmarshal reads an encoded value.
func unmarshal[T any](h *host, kind, name string, p model.Payload) (v T, err error) {
	switch {
	case p.Encoding != model.JSON:
		v, err = readEncoded[T](h, p)
	case len(p.Data) > 0:
		var ok bool
		if v, ok = readPlain[T](p.Data); !ok {
			v, err = readJSON[T](p.Data)
		}
	}
	if err != nil {
		return v, misfit[T](kind, name, err)
	}
	return v, nil
}

// readEncoded reads a value in the encoding that its payload names. In readEncoded and readJSON,
// the value escapes to the heap. These two are separate functions so that the value stays on the
// stack in their callers.
func readEncoded[T any](h *host, p model.Payload) (v T, err error) {
	err = h.codec.Unmarshal(p, &v)
	return v, err
}

// readJSON reads a value of any type.
func readJSON[T any](data []byte) (v T, err error) {
	err = payload.JSON.Unmarshal(data, &v)
	return v, err
}

// readPlain reads an integer, a boolean or a simple text, without the cost of reflection. It
// returns false for all other values, which readJSON reads.
func readPlain[T any](data []byte) (v T, ok bool) {
	switch any(v).(type) {
	case int:
		if n, ok := plainInteger(data); ok && int64(int(n)) == n {
			return any(int(n)).(T), true
		}
	case int64:
		if n, ok := plainInteger(data); ok {
			return any(n).(T), true
		}
	case bool:
		if text := string(data); text == "true" || text == "false" {
			return any(text == "true").(T), true
		}
	case string:
		if len(data) <= shortText && isPlainText(data) {
			return any(string(data[1 : len(data)-1])).(T), true
		}
	}
	return v, false
}

// shortText is the longest text that readPlain reads. For longer texts, the decoder of the format
// is faster.
const shortText = 128

// plainInteger reads an integer of at most 18 digits in the syntax of JSON.
func plainInteger(data []byte) (n int64, ok bool) {
	digits := data
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(data) > 1 {
		return 0, false
	}

	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(digits) < len(data) {
		n = -n
	}
	return n, true
}

// isPlainText reports whether data is a text of printable ASCII characters without escapes.
func isPlainText(data []byte) bool {
	last := len(data) - 1
	if last < 1 || data[0] != '"' || data[last] != '"' {
		return false
	}
	for _, c := range data[1:last] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// misfit returns the error for a value that does not fit the type T. If the app does not know the
// format of the value, misfit returns an error that does not mention the type.
func misfit[T any](kind, name string, err error) error {
	if fault.Is(err, fault.Blocked) {
		return nameError(err, kind, name)
	}
	return fault.New(fault.WrongType, "%s %s cannot be decoded as %s: %w", kind, name, reflect.TypeFor[T](), err)
}

// decodeRecorded decodes the recorded outcome of a step. If the value does not fit the type of this
// build, the code does not fit the history. In that case decodeRecorded blocks the execution, as
// after any other mismatch, until a build whose type fits continues the execution.
func decodeRecorded[T any](ctx WorkflowCtx, kind, name string, p model.Payload) T {
	v, err := decode[T](ctx, kind, name, p)
	if err != nil {
		ctx.x.Block(err.Error())
	}
	return v
}

// decodeSent decodes a value that a client sent to the run, at a place where the code cannot get an
// error. A value of the wrong type fails the run. The value was wrong when it arrived, so another
// build would not help.
func decodeSent[T any](ctx WorkflowCtx, kind, name string, p model.Payload) T {
	v, err := decode[T](ctx, kind, name, p)
	switch {
	case err == nil:
	case fault.Is(err, fault.WrongType):
		ctx.x.FailType(err)
	default:
		ctx.x.Block(err.Error())
	}
	return v
}

// normalize decodes a recorded value into the type of this build and encodes it again. A replay
// compares inputs in this form, so that it still recognises a step or child after the input type
// got a new optional field.
func normalize[T any](of any, p model.Payload) ([]byte, error) {
	h := of.(*host)
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	v, err := decode[T](callReader{h, ctx}, "input", "", p)
	if err != nil {
		return nil, err
	}
	p, err = encode(h, "input", "", v)
	if err != nil {
		return nil, err
	}
	return h.codec.Identity(p), nil
}

// callReader reads values for ordinary code. The code gets an error for a value that cannot be
// read.
type callReader struct {
	h   *host
	ctx context.Context //nolint:containedctx // a reader belongs to one call
}

func (r callReader) host() *host { return r.h }

func (r callReader) open(kind, name string, p model.Payload) (model.Payload, error) {
	return r.h.open(r.ctx, brief, kind, name, p)
}

// inputType describes the type of the input of a workflow or an activity.
type inputType struct {
	typ   reflect.Type
	check func(*host, model.Payload) error // says why an encoded value does not fit
}

// inputOf returns the type I as the input type of a workflow or an activity.
func inputOf[I any](kind, name string) inputType {
	return inputType{reflect.TypeFor[I](), func(h *host, p model.Payload) error {
		_, err := unmarshal[I](h, kind, name, p)
		return err
	}}
}

// checkInput refuses an input that the code cannot read. It checks only if this process has the
// code, and if the input type of the start differs from the input type of the code.
func (h *host) checkInput(typ string, given reflect.Type, in model.Payload) error {
	if want, known := h.inputs[typ]; known && given != nil && want.typ != given {
		return want.check(h, in)
	}
	return nil
}

// show returns a payload for people. The first result is the payload as JSON, if the app can decode
// it. The second result says how the payload is stored.
func (h *host) show(ctx context.Context, p model.Payload) (text []byte, is string) {
	p = p.Bare()
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

// plainInput returns a recorded input as text for people, or nil if the app cannot read it.
func (h *host) plainInput(p model.Payload) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	out, err := h.open(ctx, 1, "input", "", p)
	if err != nil {
		return nil
	}
	return out.Data
}
