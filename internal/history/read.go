package history

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits of a file. The limits of the past of a run are lower: see core.Limits.
const (
	MaxLine   = 16 << 20 // bytes of a line
	MaxEvents = 100_000
)

// Read reads a whole history and checks that it is valid.
func Read(from io.Reader) (*model.History, error) {
	r := reader{scan: bufio.NewScanner(from)}
	r.scan.Buffer(nil, MaxLine)
	h, err := r.read()
	if err != nil {
		return nil, fault.New(fault.Invalid, "history, line %d: %w", r.n, err)
	}
	return h, nil
}

// reader reads a file line by line.
type reader struct {
	scan *bufio.Scanner
	n    int // number of the line
}

// next returns the next line; false at the end.
func (r *reader) next() ([]byte, bool, error) {
	if !r.scan.Scan() {
		err := r.scan.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			r.n++
			err = fmt.Errorf("it has more than %d bytes", MaxLine)
		}
		return nil, false, err
	}
	r.n++
	return r.scan.Bytes(), true, nil
}

// read reads the header, the events and the outcome.
func (r *reader) read() (*model.History, error) {
	data, ok, err := r.next()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("the file is empty")
	}

	var version struct {
		Version int `json:"perdure_history"`
	}
	if err := json.Unmarshal(data, &version); err != nil || version.Version == 0 {
		return nil, errors.New("this is not the header of an exported history")
	}
	if version.Version != Version {
		return nil, fmt.Errorf("the format has version %d; this build reads version %d", version.Version, Version)
	}

	var head header
	if err := strict(data, &head); err != nil {
		return nil, err
	}
	h := &model.History{}
	if h.Start, err = head.start(); err != nil {
		return nil, err
	}

	for {
		data, ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errors.New("the outcome is missing: the file is truncated")
		}

		if bytes.HasPrefix(data, []byte(`{"outcome"`)) {
			return h, r.finish(h, &head, data)
		}
		if len(h.Events) == MaxEvents {
			return nil, fmt.Errorf("there are more than %d events", MaxEvents)
		}
		e, err := readEvent(data)
		if err != nil {
			return nil, err
		}

		if err := checkOrder(h, &e); err != nil {
			return nil, err
		}
		h.Events = append(h.Events, e)
	}
}

// finish reads the last line.
func (r *reader) finish(h *model.History, head *header, data []byte) error {
	var end footer
	if err := strict(data, &end); err != nil {
		return err
	}
	if end.Outcome == nil {
		return errors.New("the outcome is empty")
	}

	var err error
	if h.Outcome, err = end.Outcome.outcome(); err != nil {
		return err
	}
	if head.Carried < 0 || head.Carried > len(h.Events) {
		return fmt.Errorf("%d events came with the start; there are %d", head.Carried, len(h.Events))
	}

	if head.Carried > 0 {
		h.Start.Carried = h.Events[:head.Carried:head.Carried]
	}
	// A task that stands alone may have ended without a report of a worker. Its outcome says so
	// with -1, see model.Outcome.
	least, n := int64(0), int64(len(h.Events))
	if h.Start.Task != nil {
		least = -1
	}
	if h.Outcome.Seen < least || h.Outcome.Seen > n {
		return fmt.Errorf("the code has seen event %d of %d", h.Outcome.Seen, n)
	}
	more, ok, err := r.next()
	if err != nil {
		return err
	}

	if ok {
		return fmt.Errorf("%d bytes follow the outcome", len(more))
	}
	return nil
}

// strict reads one JSON value into v. It refuses unknown fields and anything after the value.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// start returns the start that the header describes.
func (h *header) start() (s model.Start, err error) {
	var r idReader
	s = model.Start{
		Address: h.Address.model(), Run: r.id("run", h.Run), At: model.Time(h.Started), RequestID: string(h.RequestID),
		Parent: r.link("parent", h.Parent), OnParentClose: model.ParentClosePolicy(h.OnParentClose), First: r.id("first", h.First),
		Previous: r.id("previous", h.Previous), Began: model.Time(h.Began), Identity: r.id("identity", h.Identity),
		Input: r.payload("input", h.Input), Task: h.Task.model(), Worker: string(h.Worker), Trace: string(h.Trace),
		Begins: model.Time(h.Begins), Expires: model.Time(h.Expires), Attempt: h.Attempt, Cause: h.Cause.model(),
	}

	if t := h.Terms; t != nil {
		s.Terms = &model.Terms{Timeout: time.Duration(t.Timeout)}
		if t.Retry != nil {
			policy := t.Retry.model()
			s.Terms.Retry = &policy
		}
	}

	for _, d := range h.Seeds {
		s.Seeds = append(s.Seeds, model.Seed{Until: d.Until, Run: r.id("seeds", d.Run)})
	}
	for _, l := range h.Labels {
		s.Labels = append(s.Labels, model.Label{Name: string(l.Name), Value: string(l.Value)})
	}
	if h.Source != nil {
		s.Source = model.Source{Address: h.Source.Address.model(), Run: r.id("source", h.Source.Run), Position: h.Source.Position}
	}
	if s.Origin, err = hex.DecodeString(h.Origin); err != nil {
		return s, fmt.Errorf("origin: %w", err)
	}

	if len(s.Origin) == 0 {
		s.Origin = nil
	}

	switch {
	case r.err != nil:
		return s, r.err
	case s.Run.IsZero():
		return s, errors.New("the run is missing")
	case s.Address.Tenant == "" || s.Address.Type == "" || s.Address.Key == "":
		return s, errors.New("the address is not complete: tenant, workflow and key")
	case s.At <= 0:
		return s, errors.New("the start time is missing")
	}

	return s, nil
}

// readEvent reads the line of an event.
func readEvent(data []byte) (e model.Event, err error) {
	var l line
	if err := strict(data, &l); err != nil {
		return e, err
	}
	var r idReader

	e = model.Event{
		Seq: l.Seq, At: model.Time(l.At), ID: string(l.ID), Name: string(l.Name), Attempt: l.Attempt, Input: r.payload("input", l.Input),
		Output: r.payload("output", l.Output), Failure: l.Failure.model(), Due: model.Time(l.Due), Ref: l.Ref, Run: r.id("run", l.Run),
		Watcher: r.link("watcher", l.Watcher).Pointer(), RequestID: string(l.RequestID), Policy: model.ParentClosePolicy(l.Policy),
		Position: string(l.Position), Detached: l.Detached, Task: l.Task.model(), Worker: string(l.Worker),
		Section: string(l.Section), Seen: l.Seen,
	}

	if l.Target != nil {
		e.Target = l.Target.model()
	}
	for _, a := range l.Locks {
		e.Locks = append(e.Locks, a.model())
	}

	for k := model.EventStarted; k <= model.LastEventKind; k++ {
		if k.Known() && k.String() == l.Kind {
			e.Kind = k
		}
	}

	if l.Status != "" {
		status, ok := model.ParseStatus(l.Status)
		if !ok {
			return e, fmt.Errorf("status %q is not known", l.Status)
		}
		e.Status = status
	}

	switch {
	case r.err != nil:
		return e, r.err
	case e.Kind == 0:
		return e, fmt.Errorf("kind %q is not known to this build", l.Kind)
	case e.Kind == model.EventTaskScheduled && e.Task == nil:
		return e, errors.New("the spec of the task is missing")
	case e.Kind == model.EventStarted || e.Kind == model.EventClosed:
		return e, fmt.Errorf("an event of kind %s: it belongs to the first or the last line", l.Kind)
	}

	return e, nil
}

// checkOrder checks that an event may come after the events before it.
func checkOrder(h *model.History, e *model.Event) error {
	n := len(h.Events)
	last := h.Start.Zero()
	if n > 0 {
		last = h.Events[n-1].At
	}

	switch {
	case e.Seq != int64(n+1):
		return fmt.Errorf("event %d stands where %d belongs", e.Seq, n+1)
	case e.At < last:
		return fmt.Errorf("event %d is older than the one before it", e.Seq)
	case e.Kind == model.EventSignalDropped && (e.Ref < 1 || e.Ref > int64(n) || h.Events[e.Ref-1].Kind != model.EventSignalReceived):
		return fmt.Errorf("event %d drops the signal of position %d, where none was received", e.Seq, e.Ref)
	case e.Kind == model.EventSignalTaken && (e.Ref < 1 || e.Ref > int64(n) || h.Events[e.Ref-1].Kind != model.EventSignalReceived):
		return fmt.Errorf("event %d takes the signal of position %d, where none was received", e.Seq, e.Ref)
	}

	return nil
}

func (o *outcome) outcome() (out model.Outcome, err error) {
	var r idReader
	out = model.Outcome{At: model.Time(o.At), Output: r.payload("output", o.Output), Failure: o.Failure.model(), Seen: o.Seen, Next: r.id("next", o.Next)}
	status, ok := model.ParseStatus(o.Status)
	if !ok {
		return out, fmt.Errorf("status %q is not known", o.Status)
	}
	out.Status = status
	return out, r.err
}

func (a address) model() model.Address {
	return model.Address{Tenant: string(a.Tenant), Type: string(a.Workflow), Key: string(a.Key)}
}

func (f *failure) model() *model.Failure {
	if f == nil {
		return nil
	}
	return &model.Failure{Kind: string(f.Kind), Type: string(f.Type), Message: string(f.Message), Stack: string(f.Stack), Permanent: f.Permanent}
}

// idReader reads fields that can be wrong, and keeps the first error.
type idReader struct{ err error }

func (r *idReader) fail(field string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", field, err)
	}
}

func (r *idReader) id(field, s string) model.RunID {
	if s == "" {
		return model.RunID{}
	}
	id, err := model.ParseRunID(s)
	if err != nil {
		r.fail(field, err)
	}
	return id
}

func (r *idReader) link(field string, l *link) model.Link {
	if l == nil {
		return model.Link{}
	}
	return model.Link{Address: l.Address.model(), Run: r.id(field, l.Run), ID: string(l.ID)}
}

func (r *idReader) payload(field string, p *payload) model.Payload {
	if p == nil {
		return model.Payload{}
	}
	out := model.Payload{Encoding: string(p.Encoding), Data: p.Base64}
	if p.JSON == nil {
		return out
	}

	if len(p.Base64) > 0 || p.Encoding != "" {
		r.fail(field, errors.New("a payload is either JSON, or base64 with its encoding"))
	}
	var b bytes.Buffer
	if err := json.Compact(&b, p.JSON); err != nil {
		r.fail(field, err)
	}
	out.Data = b.Bytes()

	return out
}
