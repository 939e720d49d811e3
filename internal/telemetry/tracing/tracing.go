// Package tracing makes the spans of OpenTelemetry, and carries their context over processes,
// restarts and years: as a W3C traceparent that is stored with the start of a run.
//
// A run has no span while it lives: it may live for a year, in many processes, and a span belongs
// to one. What everything that a run does hangs on is the span of whoever started it, whose context
// the start carries; the run itself is a span that is made when it has ended. A Tracer that is nil
// makes nothing and costs nothing.
//
// There is no payload, no key and no text of an error in a span: a failure is the kind that
// docs/observability.md lists.
package tracing

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure/internal/model"
)

// scope names whose spans these are.
const scope = "github.com/perdure/perdure"

// Attributes.
const (
	attrWorkflow = attribute.Key("perdure.workflow")
	attrRun      = attribute.Key("perdure.run_id")
	attrActivity = attribute.Key("perdure.activity")
	attrAttempt  = attribute.Key("perdure.attempt")
	attrQueue    = attribute.Key("perdure.queue")
	attrWait     = attribute.Key("perdure.queue_wait_ms")
	attrStatus   = attribute.Key("perdure.status")
	attrFailure  = attribute.Key("perdure.failure")
	attrMessage  = attribute.Key("perdure.message")
	attrCount    = attribute.Key("perdure.count")
	attrEntity   = attribute.Key("perdure.entity")
	attrService  = attribute.Key("perdure.service")
	attrMailbox  = attribute.Key("perdure.mailbox_wait_ms")
)

// Tracer makes spans; a nil one makes none.
type Tracer struct{ t trace.Tracer }

// New makes a tracer of a provider; nil when there is none.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(scope)}
}

// Span is one that has begun; a nil one is none.
type Span struct{ s trace.Span }

// End ends a span. A failure is told by its kind.
func (s *Span) End(failure string) {
	if s == nil {
		return
	}
	if failure != "" {
		s.s.SetStatus(codes.Error, failure)
		s.s.SetAttributes(attrFailure.String(failure))
	}
	s.s.End()
}

// Send begins the span of somebody who sends a message, and has the message carry it. One that
// carries a trace already has been kept for a while, and goes on in it.
func (t *Tracer) Send(ctx context.Context, m *model.Message) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	kind := trace.SpanKindProducer
	if m.Kind == model.MessageUpdate || m.Kind == model.MessageQuery || m.Kind == model.MessageCall && !m.OneWay {
		kind = trace.SpanKindClient // waits for the answer of the code
	}
	ctx, s := t.t.Start(remote(ctx, m.Trace), m.Kind.String()+" "+subject(m), trace.WithSpanKind(kind), trace.WithAttributes(named(m.To)))
	if !ours(m.To) {
		m.Trace = textOf(s.SpanContext())
	}
	return ctx, &Span{s}
}

// SendAll is Send of many starts: they share a span.
func (t *Tracer) SendAll(ctx context.Context, ms []*model.Message) (context.Context, *Span) {
	if t == nil || len(ms) == 0 {
		return ctx, nil
	}
	ctx, s := t.t.Start(ctx, ms[0].Kind.String()+" "+subject(ms[0]), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(named(ms[0].To), attrCount.Int(len(ms))))
	of := textOf(s.SpanContext())
	for _, m := range ms {
		m.Trace = of
	}
	return ctx, &Span{s}
}

// ours reports whether an execution is one that we run ourselves, such as a schedule. It lives for
// ever, so nothing of it hangs on a span: what it begins has a trace of its own.
func ours(a model.Address) bool { return strings.HasPrefix(a.Type, model.ReservedPrefix) }

// Run begins the span of somebody who starts an execution and waits for its end.
func (t *Tracer) Run(ctx context.Context, m *model.Message) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, s := t.t.Start(ctx, "run "+nameOf(m.To), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(named(m.To)))
	m.Trace = textOf(s.SpanContext())
	return ctx, &Span{s}
}

// Begun is the trace of an execution that nobody who is traced has started, such as one of a
// schedule: that of a span of its own, without a parent.
func (t *Tracer) Begun(a model.Address) string {
	if t == nil || ours(a) {
		return ""
	}
	_, s := t.t.Start(context.Background(), "start "+nameOf(a), trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(named(a)))
	s.End()
	return textOf(s.SpanContext())
}

// Carried is the trace that a context has, for messages that leave in another way than by Send.
func (t *Tracer) Carried(ctx context.Context) string {
	if t == nil {
		return ""
	}
	return textOf(trace.SpanContextFromContext(ctx))
}

// Closed makes the span of a run of a workflow that has ended.
func (t *Tracer) Closed(a model.Address, run model.RunID, of string, began, until time.Time, status model.Status, failure string) {
	if t == nil || ours(a) {
		return
	}
	_, s := t.t.Start(within(of), "workflow "+a.Type, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(named(a), attrRun.String(run.String()), attrStatus.String(status.String())))
	ended(s, until, failure)
}

// Received makes the span of a signal, promise or update that an execution has received: a child of
// whoever sent it, linked to the trace of the run.
func (t *Tracer) Received(kind model.MessageKind, name, from string, a model.Address, run model.RunID, of string, at time.Time) {
	if t == nil || from == "" {
		return
	}
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(named(a), attrRun.String(run.String()), attrMessage.String(name)),
	}
	if link := parse(of); link.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	_, s := t.t.Start(within(from), "received "+strings.TrimSpace(kind.String()+" "+name), opts...)
	s.End(trace.WithTimestamp(at))
}

// Operation is a call of an entity or a service that has been made.
type Operation struct {
	Entity model.Address
	Name   string
	Trace  string // of whoever called
	// Came is when the call came to its owner, Handed when a worker got it, Ended when that had
	// reported.
	Came, Handed, Ended time.Time
	Failure             string
}

// Operated makes the span of a call that has been made, while a worker had it: a child of whoever
// called. One that nobody who is traced has made has none.
func (t *Tracer) Operated(o *Operation) {
	if t == nil || o.Trace == "" {
		return
	}
	_, s := t.t.Start(within(o.Trace), "operation "+o.Name, trace.WithTimestamp(o.Handed), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(named(o.Entity), attrMessage.String(o.Name), attrMailbox.Int64(max(o.Handed.Sub(o.Came), 0).Milliseconds())))
	ended(s, o.Ended, o.Failure)
}

// ended ends a span that is made afterwards.
func ended(s trace.Span, at time.Time, failure string) {
	if failure != "" {
		s.SetStatus(codes.Error, failure)
		s.SetAttributes(attrFailure.String(failure))
	}
	s.End(trace.WithTimestamp(at))
}

// Activity begins the span of an attempt of an activity that runs beside its workflow. What the
// code does with the context is within it.
func (t *Tracer) Activity(ctx context.Context, of string, a model.Address, run model.RunID, activity string, attempt int) (context.Context, *Span) {
	if t == nil || ours(a) {
		return ctx, nil
	}
	ctx, s := t.t.Start(remote(ctx, of), "activity "+activity, trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(attrActivity.String(activity), attrAttempt.Int(attempt), named(a), attrRun.String(run.String())))
	return ctx, &Span{s}
}

// Task begins the span of an attempt of a task.
func (t *Tracer) Task(ctx context.Context, c *model.Claim) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, s := t.t.Start(remote(ctx, c.Trace), "task "+c.Spec.Kind, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attrActivity.String(c.Spec.Kind), attrQueue.String(c.Spec.Queue), attrAttempt.Int(c.Attempt), attrRun.String(c.Ref.Run.String()),
		attrWait.Int64(max(c.Claimed.Sub(c.Visible), 0).Milliseconds()), named(c.Ref.Address),
	))
	return ctx, &Span{s}
}

// named is the workflow, the activity of a task that stands alone, or the entity or service.
func named(a model.Address) attribute.KeyValue {
	if kind, ok := strings.CutPrefix(a.Type, model.TaskPrefix); ok {
		return attrActivity.String(kind)
	}
	if name, ok := strings.CutPrefix(a.Type, model.EntityPrefix); ok {
		return attrEntity.String(name)
	}
	if name, ok := strings.CutPrefix(a.Type, model.ServicePrefix); ok {
		return attrService.String(name)
	}
	return attrWorkflow.String(a.Type)
}

// nameOf is what an address is called in the name of a span.
func nameOf(a model.Address) string {
	if kind, ok := strings.CutPrefix(a.Type, model.TaskPrefix); ok {
		return "task " + kind
	}
	return a.Type
}

// subject is what a message is about.
func subject(m *model.Message) string {
	if m.Name != "" {
		return m.Name
	}
	return nameOf(m.To)
}

// within is a context whose spans belong to a stored trace.
func within(of string) context.Context { return remote(context.Background(), of) }

func remote(ctx context.Context, of string) context.Context {
	c := parse(of)
	if !c.IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, c)
}

// textOf is a context as a traceparent; empty when there is none.
func textOf(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	id, span := c.TraceID(), c.SpanID()
	text := make([]byte, 0, traceparentLen)
	text = append(text, "00-"...)
	text = hex.AppendEncode(text, id[:])
	text = append(text, '-')
	text = hex.AppendEncode(text, span[:])
	text = append(text, '-')
	return string(hex.AppendEncode(text, []byte{byte(c.TraceFlags())}))
}

// traceparentLen is the length of a traceparent of version 00: version, trace, span and flags.
const traceparentLen = 2 + 1 + 32 + 1 + 16 + 1 + 2

// parse reads a traceparent. What cannot be read is none: a trace is no reason to stop anything.
func parse(text string) trace.SpanContext {
	if len(text) < traceparentLen || text[2] != '-' || text[35] != '-' || text[52] != '-' || text[:2] == "ff" {
		return trace.SpanContext{}
	}
	id, err := trace.TraceIDFromHex(text[3:35])
	if err != nil {
		return trace.SpanContext{}
	}

	span, err := trace.SpanIDFromHex(text[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	flags, err := hex.DecodeString(text[53:55])
	if err != nil {
		return trace.SpanContext{}
	}

	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]), Remote: true})
}
