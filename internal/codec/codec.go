// Package codec turns values into payloads and back, by the settings of an app (package payload).
//
// A payload is the bytes that the format makes, changed by every transform of the chain that
// applies, and the names of all of them. What is read goes by those names. Errors never contain
// what is encoded.
//
// An error of kind fault.Blocked says that somebody has to change something (a key, a setting)
// before the payload can be read or written; one of kind fault.Unavailable, that trying again may
// help.
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

// Codec is the settings of an app, checked.
type Codec struct {
	format     payload.Format
	chain      []payload.Transform
	formats    map[string]payload.Format
	transforms map[string]payload.Transform
	digest     func([]byte) []byte // keyed; nil when nothing is hidden
	blobs      payload.Store       // nil without
	cluster    string
	maxPlain   int
}

// Config is what a Codec is made of.
type Config struct {
	Settings   payload.Codec
	Cluster    string // id of the store
	MaxPayload int    // the largest payload that is stored
}

// maxOffloaded is the default limit of values that may be offloaded.
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
				add(errors.New("an offload is not the last of the chain: its references could not be found by clean-up"))
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

// know remembers a format for reading.
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

// learn remembers a transform for reading.
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

// Plain reports whether payloads are stored as JSON and nothing else, so that callers may spare
// themselves everything here.
func (c *Codec) Plain() bool { return len(c.chain) == 0 && c.format == payload.JSON }

// MaxPlain is the largest value in bytes.
func (c *Codec) MaxPlain() int { return c.maxPlain }

// Blobs is where large payloads go; nil when they go nowhere.
func (c *Codec) Blobs() payload.Store { return c.blobs }

// CheckType says why values of a type would not come back as they were; nil when they would.
func (c *Codec) CheckType(t reflect.Type) error {
	if tc, ok := c.format.(payload.TypeChecker); ok {
		return tc.CheckType(t)
	}
	return nil
}

// overhead is by how much a payload may be larger in the store than its value is.
const overhead = 1 << 10

// MaxStored is the largest payload in the store, when values may have most bytes; 0 is the default
// limit, which is 2 MiB.
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
		return model.Payload{}, c.discreet(err, v)
	}
	return model.Payload{Data: data, Encoding: encoding(c.format.Name())}, nil
}

// Unmarshal decodes a value that has been opened.
func (c *Codec) Unmarshal(plain model.Payload, v any) error {
	name := plain.Encoding
	if name == model.JSON {
		name = payload.JSON.Name()
	}
	f := c.formats[name]
	if f == nil {
		return unknown(plain.Encoding)
	}
	if err := f.Unmarshal(plain.Data, v); err != nil {
		return c.discreet(err, v)
	}
	return nil
}

// discreet takes out of an error what it may quote of a value that is to be hidden: errors are
// logged and stored.
func (c *Codec) discreet(err error, v any) error {
	if c.digest == nil {
		return err
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q does not fit type %s", mistyped.Field, mistyped.Type)
	}
	return fmt.Errorf("%T: the %s does not fit the type (its error may quote the content, which is hidden)", v, c.format.Name())
}

// encoding is the recorded name of an encoding.
func encoding(name string) string {
	if name == payload.JSON.Name() {
		return model.JSON
	}
	return name
}

func unknown(encoding string) error {
	return fault.New(fault.Blocked, "it is encoded as %q, which this app does not know: add it to the payload settings, or open the execution with a build that has it", encoding)
}

// Seal transforms an encoded value for the store.
func (c *Codec) Seal(ctx context.Context, plain model.Payload) (model.Payload, error) {
	name := c.format.Name()
	data := plain.Data
	for _, t := range c.chain {
		out, applied, err := t.Seal(ctx, payload.Meta{Encoding: name, Cluster: c.cluster}, data)
		if err != nil {
			return model.Payload{}, classified("payload cannot be written: "+t.Name(), err)
		}
		if applied {
			data, name = out, name+"+"+t.Name()
		}
	}
	return model.Payload{Data: data, Encoding: encoding(name)}, nil
}

// SealStart is Seal for the input of an execution, with what a repeated start is compared by. The
// digest of a hidden input is of use for its execution alone: equal inputs of two executions cannot
// be recognised as such.
func (c *Codec) SealStart(ctx context.Context, a model.Address, plain model.Payload) (model.Payload, error) {
	return c.sealSummed(ctx, "start", a, plain)
}

// SealRequest is Seal for what is sent under a request id, with what a repetition is compared by.
// The digest of a hidden value is of use for its target alone.
func (c *Codec) SealRequest(ctx context.Context, a model.Address, plain model.Payload) (model.Payload, error) {
	return c.sealSummed(ctx, "request", a, plain)
}

// sealSummed is Seal with a sum of the plain value, where the sealed bytes do not tell whether it
// equals another.
func (c *Codec) sealSummed(ctx context.Context, what string, a model.Address, plain model.Payload) (model.Payload, error) {
	p, err := c.Seal(ctx, plain)
	if err != nil || p.Encoding == plain.Encoding {
		return p, err
	}
	if c.digest != nil {
		return p.WithSum(c.digest(framed(what, a.Tenant, a.Type, a.Key, plain.Encoding, string(plain.Data)))), nil
	}
	return p.WithSum(plain.Digest()), nil
}

// Identity is what steps of this input are recognised by.
func (c *Codec) Identity(plain model.Payload) []byte {
	if c.digest == nil {
		return plain.Data
	}
	return c.digest(framed("step", string(plain.Data)))
}

// framed is several texts as one, from which they could be told apart again.
func framed(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// Open undoes Seal.
func (c *Codec) Open(ctx context.Context, p model.Payload) (model.Payload, error) {
	form := p.Form()
	names := strings.Split(form, "+")
	data := p.Data
	for len(names) > 1 {
		last := len(names) - 1
		t := c.transforms[names[last]]
		if t == nil {
			return model.Payload{}, unknown(form)
		}
		names = names[:last]
		var err error
		if data, err = t.Open(ctx, payload.Meta{Encoding: strings.Join(names, "+")}, data); err != nil {
			return model.Payload{}, classified(fmt.Sprintf("payload (%s) cannot be read", form), err)
		}
	}

	if names[0] != model.JSON && c.formats[names[0]] == nil {
		return model.Payload{}, unknown(form)
	}
	return model.Payload{Data: data, Encoding: encoding(names[0])}, nil
}

// classified tells what trying again does not help against from what it does.
func classified(what string, err error) error {
	kind := fault.Unavailable
	for _, permanent := range []error{payload.ErrNoKey, payload.ErrDamaged, payload.ErrNotFound} {
		if errors.Is(err, permanent) {
			kind = fault.Blocked
		}
	}
	return fault.New(kind, "%s: %w", what, err)
}
