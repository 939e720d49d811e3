package flovyn

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/model"
)

// object builds a JSON object. It copies payloads of users byte for byte, because decoding and
// encoding them would change large numbers.
type object struct{ buf []byte }

func newObject() *object { return &object{buf: append(make([]byte, 0, 128), '{')} }

func (o *object) key(name string) {
	if len(o.buf) > 1 {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(o.buf, '"')
	o.buf = append(o.buf, name...)
	o.buf = append(o.buf, '"', ':')
}

func (o *object) text(name, value string) *object {
	o.key(name)
	o.buf = append(o.buf, quoted(value)...)
	return o
}

func (o *object) number(name string, n int64) *object {
	o.key(name)
	o.buf = strconv.AppendInt(o.buf, n, 10)
	return o
}

func (o *object) bool(name string, b bool) *object {
	o.key(name)
	o.buf = strconv.AppendBool(o.buf, b)
	return o
}

// value adds a payload as JSON. An empty payload, or one that is not JSON, becomes null, as clients
// expect.
func (o *object) value(name string, raw []byte) *object {
	o.key(name)
	o.buf = append(o.buf, asJSON(raw)...)
	return o
}

func (o *object) texts(name string, pairs map[string]string) *object {
	in := newObject()
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		if len(in.buf) > 1 {
			in.buf = append(in.buf, ',')
		}
		in.buf = append(in.buf, quoted(k)...)
		in.buf = append(in.buf, ':')
		in.buf = append(in.buf, quoted(pairs[k])...)
	}
	o.key(name)
	o.buf = append(o.buf, in.end()...)
	return o
}

func (o *object) end() []byte { return append(o.buf, '}') }

// quoted returns a text as JSON. It escapes only what JSON requires.
func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text can always be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func asJSON(raw []byte) []byte {
	if len(raw) == 0 || !json.Valid(raw) {
		return []byte("null")
	}
	return raw
}

// jsonPayload returns bytes of a client as a payload. An empty one is stored as null.
func jsonPayload(raw []byte) model.Payload {
	if len(raw) == 0 {
		raw = []byte("null")
	}
	return model.Payload{Data: raw}
}

// envelope is what the door stores as the input of an execution or a task: the input of the client,
// and further facts of the protocol.
type envelope struct {
	Kind     string
	Version  string
	Priority int64 // seconds
	Metadata map[string]string
	// Name is the name that the parent has given to a child.
	Name string
	// Key is the idempotency key that the execution was started with.
	Key string
	// Input is the input of the client, byte for byte.
	Input []byte
}

// storedEnvelope is the stored form of an envelope, for reading.
type storedEnvelope struct {
	Flovyn   int               `json:"flovyn"`
	Kind     string            `json:"kind"`
	Version  string            `json:"version"`
	Priority int64             `json:"prioritySeconds"`
	Metadata map[string]string `json:"metadata"`
	Name     string            `json:"childName"`
	Key      string            `json:"idempotencyKey"`
	Input    json.RawMessage   `json:"input"`
	Bytes    *string           `json:"bytes"`
}

// payload returns the stored form of an envelope.
func (e *envelope) payload() model.Payload {
	o := newObject().number("flovyn", 1).text("kind", e.Kind)
	if e.Version != "" {
		o.text("version", e.Version)
	}
	if e.Priority != 0 {
		o.number("prioritySeconds", e.Priority)
	}
	if e.Name != "" {
		o.text("childName", e.Name)
	}
	if e.Key != "" {
		o.text("idempotencyKey", e.Key)
	}
	if len(e.Metadata) > 0 {
		o.texts("metadata", e.Metadata)
	}

	if json.Valid(e.Input) {
		o.value("input", e.Input)
	} else {
		o.text("bytes", base64.StdEncoding.EncodeToString(e.Input))
	}

	return model.Payload{Data: o.end()}
}

// taskInput returns the stored form of the input of a task. That is the input itself, unless there
// is more to store or the input looks like an envelope.
func taskInput(kind string, metadata map[string]string, input []byte) model.Payload {
	plain := jsonPayload(input)
	if len(metadata) == 0 && readEnvelope(plain).Kind == "" {
		return plain
	}
	return (&envelope{Kind: kind, Metadata: metadata, Input: input}).payload()
}

// readEnvelope reads an input. An execution that another client of the engine has started has no
// envelope: its whole input is the input of the client.
func readEnvelope(p model.Payload) envelope {
	var s storedEnvelope
	if p.Encoding != model.JSON || json.Unmarshal(p.Data, &s) != nil || s.Flovyn == 0 || s.Kind == "" {
		return envelope{Input: p.Data}
	}
	e := envelope{Kind: s.Kind, Version: s.Version, Priority: s.Priority, Metadata: s.Metadata, Name: s.Name, Key: s.Key, Input: s.Input}
	if s.Bytes != nil {
		e.Input, _ = base64.StdEncoding.DecodeString(*s.Bytes)
	}
	return e
}
