// Package codec turns values into payloads and back, according to the settings of an app (package
// payload).
//
// A payload has bytes and names. The format encodes the value as bytes, and each transform of the
// chain may change the bytes. The names are the name of the format and the names of the transforms
// that have changed the bytes. A reader uses the names to decode the payload. If a transform hides
// data, errors of encoding and decoding do not quote the value.
//
// An error of kind fault.Blocked says that an operator must change something (a key, a setting)
// before the payload can be read or written. An error of kind fault.Unavailable says that another
// attempt may succeed.
package codec

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/payload"
)

// Codec is the checked settings of an app.
type Codec struct {
	format     payload.Format
	chain      []payload.Transform
	formats    map[string]payload.Format
	transforms map[string]payload.Transform
	digest     func([]byte) []byte // keyed; nil if no transform hides data
	blobs      payload.Store       // nil without an offload
	cluster    string
	maxPlain   int
}

// Config is what New needs.
type Config struct {
	Settings   payload.Codec
	Cluster    string // id of the store
	MaxPayload int    // the largest payload that is stored, in bytes
}

// maxOffloaded is the default limit for values that may be offloaded.
const maxOffloaded = 64 << 20

// New checks the settings. The error names everything that is wrong.
func New(ctx context.Context, cfg Config) (*Codec, error) {
	s := cfg.Settings
	c := &Codec{
		format: s.Format, chain: s.Chain, cluster: cfg.Cluster, maxPlain: s.MaxPlain,
		formats: map[string]payload.Format{}, transforms: map[string]payload.Transform{},
	}
	if c.format == nil {
		c.format = payload.JSON
	}
	var problems []error

	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	for _, f := range append([]payload.Format{c.format}, s.OldFormats...) {
		add(c.know(f))
	}

	for _, f := range []payload.Format{payload.JSON, payload.Msgpack} {
		if c.formats[f.Name()] == nil {
			c.formats[f.Name()] = f
		}
	}

	for i, t := range s.Chain {
		add(c.learn(t, "chain"))
		if b, ok := payload.Blobs(t); ok {
			if c.blobs = b; i != len(s.Chain)-1 {
				add(errors.New("an offload must be the last of the chain: otherwise clean-up could not find the references to its blobs"))
			}
			continue
		}

		if t == nil {
			continue
		}

		d, err := t.Digester(ctx)
		if err != nil {
			add(fmt.Errorf("transform %s: %w", t.Name(), err))
		} else if d != nil && c.digest == nil {
			c.digest = d
		}
	}

	for _, t := range s.OldChain {
		add(c.learn(t, "old chain"))
	}

	if c.maxPlain == 0 {
		c.maxPlain = cfg.MaxPayload
		if c.blobs != nil {
			c.maxPlain = max(c.maxPlain, maxOffloaded)
		}
	}

	if len(problems) > 0 {
		return nil, fault.New(fault.Invalid, "payload settings: %w", errors.Join(problems...))
	}
	return c, nil
}

// know registers a format for reading.
func (c *Codec) know(f payload.Format) error {
	switch {
	case f == nil:
		return errors.New("a format is nil")
	case !validName(f.Name()):
		return fmt.Errorf("format %q: its name must consist of lower-case letters, digits and hyphens", f.Name())
	case c.formats[f.Name()] != nil && c.formats[f.Name()] != f:
		return fmt.Errorf("two formats are called %q", f.Name())
	}
	c.formats[f.Name()] = f
	return nil
}

// learn registers a transform for reading.
func (c *Codec) learn(t payload.Transform, where string) error {
	switch {
	case t == nil:
		return fmt.Errorf("a transform of the %s is nil", where)
	case !validName(t.Name()):
		return fmt.Errorf("transform %q: its name must consist of lower-case letters, digits and hyphens", t.Name())
	case c.transforms[t.Name()] != nil:
		return fmt.Errorf("two transforms are called %q: only one of them could read what is stored", t.Name())
	}
	c.transforms[t.Name()] = t
	return nil
}

func validName(name string) bool {
	ok := name != ""
	for _, r := range name {
		ok = ok && ('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-')
	}
	return ok
}

// Plain reports whether payloads are stored as JSON without transforms. In that case callers can
// encode values without this package.
func (c *Codec) Plain() bool { return len(c.chain) == 0 && c.format == payload.JSON }

// MaxPlain returns the size of the largest allowed value, in bytes.
func (c *Codec) MaxPlain() int { return c.maxPlain }

// Blobs returns the store of large payloads; nil without an offload.
func (c *Codec) Blobs() payload.Store { return c.blobs }

// CheckType says why values of a type could not be read back unchanged. It returns nil if they can
// be read back, or if the format cannot tell.
func (c *Codec) CheckType(t reflect.Type) error {
	if tc, ok := c.format.(payload.TypeChecker); ok {
		return tc.CheckType(t)
	}
	return nil
}

// overhead is by how many bytes a stored payload may be larger than its value.
const overhead = 1 << 10

// MaxStored returns the size of the largest payload in the store, if values may have up to most
// bytes. A most of 0 means the default limit of 2 MiB. If values are stored as plain JSON,
// MaxStored returns most unchanged.
func MaxStored(s payload.Codec, most int) int {
	if len(s.Chain) == 0 && (s.Format == nil || s.Format == payload.JSON) {
		return most
	}
	return cmp.Or(most, 2<<20) + overhead
}

// Marshal encodes a value, without transforms.
func (c *Codec) Marshal(v any) (model.Payload, error) {
	data, err := c.format.Marshal(v)
	if err != nil {
		return model.Payload{}, c.redact(err, v)
	}
	return model.Payload{Data: data, Encoding: encodingName(c.format.Name())}, nil
}

// Unmarshal decodes a value that Open has returned.
func (c *Codec) Unmarshal(plain model.Payload, v any) error {
	name := plain.Encoding
	if name == model.JSON {
		name = payload.JSON.Name()
	}
	f := c.formats[name]
	if f == nil {
		return unknownEncoding(plain.Encoding)
	}
	if err := f.Unmarshal(plain.Data, v); err != nil {
		return c.redact(err, v)
	}
	return nil
}

// redact removes quotations of a hidden value from an error, because errors are logged and stored.
func (c *Codec) redact(err error, v any) error {
	if c.digest == nil {
		return err
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q does not fit type %s", mistyped.Field, mistyped.Type)
	}
	return fmt.Errorf("%T: the %s does not fit the type (the error of the decoder is left out, because it may quote the hidden content)", v, c.format.Name())
}

// encodingName returns the name that a payload has for an encoding: model.JSON, which is empty, for
// plain JSON, and the name itself for everything else.
func encodingName(name string) string {
	if name == payload.JSON.Name() {
		return model.JSON
	}
	return name
}

// unknownEncoding returns the error for an encoding that the settings do not have.
func unknownEncoding(encoding string) error {
	return fault.New(fault.Blocked, "it is encoded as %q, which this app does not know: add it to the payload settings, or open the execution with a build that has it", encoding)
}

// unknownTransform returns the error for an encoding whose last transform the settings do not have.
func unknownTransform(encoding, name string) error {
	if name == payload.Offload(nil, 0).Name() {
		return fault.New(fault.Blocked, "its content is in a blob store (it is encoded as %q), and the payload settings of this app have no payload.Offload: "+
			"open the app with payload.Offload and that blob store again, as the last transform of Chain or in OldChain", encoding)
	}
	return fault.New(fault.Blocked, "it is encoded as %q, and the payload settings of this app have no transform %q: "+
		"add it to OldChain, or open the execution with a build that has it", encoding, name)
}

// Seal transforms an encoded value for the store.
func (c *Codec) Seal(ctx context.Context, plain model.Payload) (model.Payload, error) {
	name := c.format.Name()
	data := plain.Data
	for _, t := range c.chain {
		out, applied, err := t.Seal(ctx, payload.Meta{Encoding: name, Cluster: c.cluster}, data)
		if err != nil {
			return model.Payload{}, classify("payload cannot be written: "+t.Name(), err)
		}
		if applied {
			data, name = out, name+"+"+t.Name()
		}
	}
	return model.Payload{Data: data, Encoding: encodingName(name)}, nil
}

// SealStart is Seal for the input of an execution. It adds a checksum, with which the engine
// compares the input of a repeated start. If a transform hides the input, for example by
// encryption, the sum depends on the execution, so that equal inputs of two executions have
// different sums.
func (c *Codec) SealStart(ctx context.Context, a model.Address, plain model.Payload) (model.Payload, error) {
	return c.sealSummed(ctx, "start", a, plain)
}

// SealRequest is Seal for the content of a request with an id. It adds a checksum, with which the
// engine compares a repeated request. If a transform hides the value, the sum depends on the target
// of the request.
func (c *Codec) SealRequest(ctx context.Context, a model.Address, plain model.Payload) (model.Payload, error) {
	return c.sealSummed(ctx, "request", a, plain)
}

// sealSummed is Seal with a sum of the plain value. It adds no sum if no transform has changed the
// value, because the engine can compare the bytes themselves.
func (c *Codec) sealSummed(ctx context.Context, what string, a model.Address, plain model.Payload) (model.Payload, error) {
	p, err := c.Seal(ctx, plain)
	if err != nil || p.Encoding == plain.Encoding {
		return p, err
	}
	if c.digest != nil {
		return p.WithSum(c.digest(frame(what, a.Tenant, a.Type, a.Key, plain.Encoding, string(plain.Data)))), nil
	}
	return p.WithSum(plain.Digest()), nil
}

// Identity returns the bytes that identify steps with this input.
func (c *Codec) Identity(plain model.Payload) []byte {
	if c.digest == nil {
		return plain.Data
	}
	return c.digest(frame("step", string(plain.Data)))
}

// frame joins texts together with their lengths, so that different lists of parts never give the
// same result.
func frame(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// Open reverses Seal.
func (c *Codec) Open(ctx context.Context, p model.Payload) (model.Payload, error) {
	form := p.Form()
	names := strings.Split(form, "+")
	data := p.Data
	for len(names) > 1 {
		last := len(names) - 1
		t := c.transforms[names[last]]
		if t == nil {
			return model.Payload{}, unknownTransform(form, names[last])
		}
		names = names[:last]
		var err error
		if data, err = t.Open(ctx, payload.Meta{Encoding: strings.Join(names, "+")}, data); err != nil {
			return model.Payload{}, classify(fmt.Sprintf("payload (%s) cannot be read", form), err)
		}
	}

	if names[0] != model.JSON && c.formats[names[0]] == nil {
		return model.Payload{}, unknownEncoding(form)
	}
	return model.Payload{Data: data, Encoding: encodingName(names[0])}, nil
}

// classify separates errors that another attempt can solve from other errors.
func classify(what string, err error) error {
	kind := fault.Unavailable
	for _, permanent := range []error{payload.ErrNoKey, payload.ErrDamaged, payload.ErrNotFound} {
		if errors.Is(err, permanent) {
			kind = fault.Blocked
		}
	}
	return fault.New(kind, "%s: %w", what, err)
}
