package history

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/model"
)

// Version is the version of the file format that this build writes and reads.
const Version = 1

// header is the first line.
type header struct {
	Version       int      `json:"perdure_history"`
	Address       address  `json:"address"`
	Run           string   `json:"run"`
	Started       moment   `json:"started"`
	Input         *payload `json:"input,omitempty"`
	RequestID     text     `json:"request_id,omitempty"`
	Parent        *link    `json:"parent,omitempty"`
	OnParentClose uint8    `json:"on_parent_close,omitempty"`
	First         string   `json:"first,omitempty"`
	Previous      string   `json:"previous,omitempty"`
	Origin        string   `json:"origin,omitempty"`  // hexadecimal
	Carried       int      `json:"carried,omitempty"` // how many of the events came with the start
	Began         moment   `json:"began,omitzero"`
	Seeds         []seed   `json:"seeds,omitempty"`
	Identity      string   `json:"identity,omitempty"`
	Source        *source  `json:"source,omitempty"`
	Labels        []label  `json:"labels,omitempty"`
	Task          *task    `json:"task,omitempty"`
	Worker        text     `json:"worker,omitempty"`
	Trace         text     `json:"trace,omitempty"`
	Begins        moment   `json:"begins,omitzero"`
	Expires       moment   `json:"expires,omitzero"`
	Terms         *terms   `json:"terms,omitempty"`
	Attempt       int      `json:"attempt,omitempty"`
	Cause         *failure `json:"cause,omitempty"`
}

// terms are the terms with which the execution was started.
type terms struct {
	Timeout duration `json:"timeout,omitzero"`
	Retry   *retry   `json:"retry,omitempty"`
}

// label is a label of the run. It is not an entry of a JSON map, because it may have texts that are
// not UTF-8.
type label struct {
	Name  text `json:"name"`
	Value text `json:"value"`
}

// line is an event.
type line struct {
	Seq       int64    `json:"seq"`
	At        moment   `json:"at"`
	Kind      string   `json:"kind"`
	ID        text     `json:"id,omitempty"`
	Name      text     `json:"name,omitempty"`
	Attempt   int      `json:"attempt,omitempty"`
	Input     *payload `json:"input,omitempty"`
	Output    *payload `json:"output,omitempty"`
	Failure   *failure `json:"failure,omitempty"`
	Due       moment   `json:"due,omitzero"`
	Ref       int64    `json:"ref,omitempty"`
	Target    *address `json:"target,omitempty"`
	Run       string   `json:"run,omitempty"`
	Status    string   `json:"status,omitempty"`
	Watcher   *link    `json:"watcher,omitempty"`
	RequestID text     `json:"request_id,omitempty"`
	Policy    uint8    `json:"policy,omitempty"`
	Position  text     `json:"position,omitempty"`
	Detached  bool     `json:"detached,omitempty"`
	Task      *task    `json:"task,omitempty"`
	Worker    text     `json:"worker,omitempty"`

	Locks   []address `json:"locks,omitempty"`
	Section text      `json:"section,omitempty"`
	Seen    bool      `json:"seen,omitempty"`
}

// footer is the last line.
type footer struct {
	Outcome *outcome `json:"outcome"`
}

// outcome is the end of the run.
type outcome struct {
	Status  string   `json:"status"`
	At      moment   `json:"at,omitzero"`
	Output  *payload `json:"output,omitempty"`
	Failure *failure `json:"failure,omitempty"`
	Seen    int64    `json:"seen,omitempty"`
	Next    string   `json:"next,omitempty"`
}

type address struct {
	Tenant   text `json:"tenant"`
	Workflow text `json:"workflow"`
	Key      text `json:"key"`
}

type link struct {
	Address address `json:"address"`
	Run     string  `json:"run,omitempty"`
	ID      text    `json:"id,omitempty"`
}

type seed struct {
	Until int64  `json:"until"`
	Run   string `json:"run,omitempty"`
}

type source struct {
	Address  address `json:"address"`
	Run      string  `json:"run,omitempty"`
	Position int64   `json:"position,omitempty"`
}

type failure struct {
	Kind      text `json:"kind,omitempty"`
	Type      text `json:"type,omitempty"`
	Message   text `json:"message,omitempty"`
	Stack     text `json:"stack,omitempty"`
	Permanent bool `json:"permanent,omitempty"`
}

// payload is written as plain JSON if a reader gets back the same bytes, and as base64 otherwise.
type payload struct {
	Encoding text            `json:"encoding,omitempty"`
	JSON     json.RawMessage `json:"json,omitempty"`
	Base64   []byte          `json:"base64,omitempty"`
}

// text is a string, or base64 if it is not UTF-8: error texts may be any bytes.
type text string

type base64Text struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON writes a string or an object with base64.
func (t text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return json.Marshal(base64Text{[]byte(t)})
	}
	return marshal(string(t))
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (t *text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var b base64Text
		if err := strict(data, &b); err != nil {
			return err
		}
		*t = text(b.Base64)
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*t = text(s)
	return nil
}

// moment is a time in microseconds.
type moment model.Time

// MarshalJSON writes RFC 3339.
func (m moment) MarshalJSON() ([]byte, error) {
	t := model.Time(m).Std()
	if y := t.Year(); m != 0 && (y < 1 || y > 9999) {
		return nil, fmt.Errorf("the time %d cannot be written", int64(m))
	}
	if m == 0 {
		return []byte(`""`), nil
	}
	return json.Marshal(model.Time(m).String())
}

// UnmarshalJSON reads RFC 3339. It drops digits after the microseconds.
func (m *moment) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s == "" {
		*m = 0
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return fmt.Errorf("%q is not a time such as 2026-11-15T08:00:00.000000Z", s)
	}
	*m = moment(t.UnixMicro())
	return nil
}

// marshal writes JSON on one line, without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func runText(id model.RunID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

func payloadOf(p model.Payload) *payload {
	if len(p.Data) == 0 && p.Encoding == "" {
		return nil
	}
	out := &payload{Encoding: text(p.Encoding)}
	if p.Encoding == model.JSON && comesBack(p.Data) {
		out.JSON = p.Data
	} else {
		out.Base64 = p.Data
	}
	return out
}

// comesBack reports whether a reader of the JSON gets back the same bytes. JSON with spaces would
// lose the spaces.
func comesBack(data []byte) bool {
	var b bytes.Buffer
	return utf8.Valid(data) && json.Compact(&b, data) == nil && bytes.Equal(b.Bytes(), data)
}

func addressOf(a model.Address) address { return address{text(a.Tenant), text(a.Type), text(a.Key)} }

func addressesOf(as []model.Address) (out []address) {
	for _, a := range as {
		out = append(out, addressOf(a))
	}
	return out
}

func targetOf(a model.Address) *address {
	if a.IsZero() {
		return nil
	}
	out := addressOf(a)
	return &out
}

func linkOf(l model.Link) *link {
	if l == (model.Link{}) {
		return nil
	}
	return &link{addressOf(l.Address), runText(l.Run), text(l.ID)}
}

func failureOf(f *model.Failure) *failure {
	if f == nil {
		return nil
	}
	return &failure{text(f.Kind), text(f.Type), text(f.Message), text(f.Stack), f.Permanent}
}

func headerOf(s *model.Start) header {
	h := header{
		Version: Version, Address: addressOf(s.Address), Run: runText(s.Run), Started: moment(s.At), Input: payloadOf(s.Input),
		RequestID: text(s.RequestID), Parent: linkOf(s.Parent), OnParentClose: uint8(s.OnParentClose), First: runText(s.First),
		Previous: runText(s.Previous), Origin: hex.EncodeToString(s.Origin), Carried: len(s.Carried), Began: moment(s.Began), Identity: runText(s.Identity),
		Task: taskOf(s.Task), Worker: text(s.Worker), Trace: text(s.Trace),
		Begins: moment(s.Begins), Expires: moment(s.Expires), Attempt: s.Attempt, Cause: failureOf(s.Cause),
	}

	if t := s.Terms; t != nil {
		h.Terms = &terms{Timeout: duration(t.Timeout)}
		if t.Retry != nil {
			h.Terms.Retry = retryOf(t.Retry)
		}
	}

	for _, d := range s.Seeds {
		h.Seeds = append(h.Seeds, seed{d.Until, runText(d.Run)})
	}
	for _, l := range s.Labels {
		h.Labels = append(h.Labels, label{text(l.Name), text(l.Value)})
	}
	if !s.Source.IsZero() {
		h.Source = &source{addressOf(s.Source.Address), runText(s.Source.Run), s.Source.Position}
	}

	return h
}

func lineOf(e *model.Event) line {
	return line{
		Seq: e.Seq, At: moment(e.At), Kind: e.Kind.String(), ID: text(e.ID), Name: text(e.Name), Attempt: e.Attempt,
		Input: payloadOf(e.Input), Output: payloadOf(e.Output), Failure: failureOf(e.Failure), Due: moment(e.Due), Ref: e.Ref,
		Target: targetOf(e.Target), Run: runText(e.Run), Status: statusText(e.Status), Watcher: linkOf(e.Waiter()),
		RequestID: text(e.RequestID), Policy: uint8(e.Policy), Position: text(e.Position), Detached: e.Detached, Task: taskOf(e.Task), Worker: text(e.Worker),
		Locks: addressesOf(e.Locks), Section: text(e.Section), Seen: e.Seen,
	}
}

func statusText(s model.Status) string {
	if s == 0 {
		return ""
	}
	return s.String()
}

func outcomeOf(o *model.Outcome) footer {
	return footer{&outcome{
		Status: o.Status.String(), At: moment(o.At), Output: payloadOf(o.Output), Failure: failureOf(o.Failure), Seen: o.Seen, Next: runText(o.Next),
	}}
}
