// Package tracing creates OpenTelemetry spans. It carries their context across processes and
// restarts, as a W3C traceparent that is stored with the start of a run.
//
// A run has no span while it is open. A run may be open for a year, in many processes, and a span
// belongs to one process. The start of a run contains the span of its starter, and that span is the
// parent of everything that the run does. The run itself becomes a span when it has ended. A nil
// Tracer creates no spans.
//
// A span contains no payload, no key and no text of an error. Instead of the text, it has the kind
// of the failure; docs/observability.md lists the kinds.
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

// scope is the instrumentation scope of the spans.
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

// Tracer creates spans. A nil Tracer creates none, and passes on the trace of a caller in another
// process.
type Tracer struct{ t trace.Tracer }

// New returns a tracer that uses a provider, or nil if there is no provider.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(scope)}
}

// Span is a started span. The methods of a nil Span do nothing.
type Span struct{ s trace.Span }

// End ends a span. failure is the kind of failure, or empty if nothing has failed.
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

// Send starts the span of a sender, and puts its context into the message. A message that already
// has a trace was stored before it was sent. In that case the new span continues that trace.
func (t *Tracer) Send(ctx context.Context, m *model.Message) (context.Context, *Span) {
	if t == nil {
		passOn(ctx, m)
		return ctx, nil
	}
	kind := trace.SpanKindProducer
	if m.Kind == model.MessageUpdate || m.Kind == model.MessageQuery || m.Kind == model.MessageCall && !m.OneWay {
		kind = trace.SpanKindClient // the sender waits for the answer of the code
	}
	ctx, s := t.t.Start(remote(ctx, m.Trace), m.Kind.String()+" "+subject(m), trace.WithSpanKind(kind), trace.WithAttributes(attributeOf(m.To)))
	if !isInternal(m.To) {
		m.Trace = textOf(s.SpanContext())
	}
	return ctx, &Span{s}
}

// SendAll is like Send, for many starts that share one span.
func (t *Tracer) SendAll(ctx context.Context, ms []*model.Message) (context.Context, *Span) {
	if t == nil || len(ms) == 0 {
		for _, m := range ms {
			passOn(ctx, m)
		}
		return ctx, nil
	}
	ctx, s := t.t.Start(ctx, ms[0].Kind.String()+" "+subject(ms[0]), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributeOf(ms[0].To), attrCount.Int(len(ms))))
	of := textOf(s.SpanContext())
	for _, m := range ms {
		m.Trace = of
	}
	return ctx, &Span{s}
}

// passOn gives a message the trace of a caller in another process.
func passOn(ctx context.Context, m *model.Message) {
	if c := trace.SpanContextFromContext(ctx); c.IsRemote() && m.Trace == "" && !isInternal(m.To) {
		m.Trace = textOf(c)
	}
}

// isInternal reports whether an execution belongs to Perdure itself, such as a schedule. Such an
// execution may never end, so it has no span. Each execution that such an execution starts has its
// own trace.
func isInternal(a model.Address) bool { return model.IsBuiltIn(a.Type) }

// Run starts the span of a caller that starts an execution and waits for its end.
func (t *Tracer) Run(ctx context.Context, m *model.Message) (context.Context, *Span) {
	if t == nil {
		passOn(ctx, m)
		return ctx, nil
	}
	ctx, s := t.t.Start(ctx, "run "+nameOf(m.To), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributeOf(m.To)))
	m.Trace = textOf(s.SpanContext())
	return ctx, &Span{s}
}

// StartTrace creates a trace for an execution whose starter sent none, such as an execution of a
// schedule. It creates a span without a parent and returns the trace of that span.
func (t *Tracer) StartTrace(a model.Address) string {
	if t == nil || isInternal(a) {
		return ""
	}
	_, s := t.t.Start(context.Background(), "start "+nameOf(a), trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributeOf(a)))
	s.End()
	return textOf(s.SpanContext())
}

// TraceOf returns the trace of a context, for messages that do not go through Send.
func (t *Tracer) TraceOf(ctx context.Context) string {
	if t == nil {
		return ""
	}
	return textOf(trace.SpanContextFromContext(ctx))
}

// Ended is a run of a workflow that has ended.
type Ended struct {
	Address      model.Address
	Run          model.RunID
	Trace        string // the trace of its start
	Began, Until time.Time
	Status       model.Status
	Failure      string // the kind of its failure; empty if it did not fail
}

// RecordRun creates the span of a run that has ended.
func (t *Tracer) RecordRun(e *Ended) {
	if t == nil || isInternal(e.Address) {
		return
	}
	_, s := t.t.Start(within(e.Trace), "workflow "+e.Address.Type, trace.WithTimestamp(e.Began), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributeOf(e.Address), attrRun.String(e.Run.String()), attrStatus.String(e.Status.String())))
	endAt(s, e.Until, e.Failure)
}

// Receipt is a signal, promise or update that an execution has received.
type Receipt struct {
	Kind     model.MessageKind
	Name     string
	From     string // the trace of its sender
	Address  model.Address
	Run      model.RunID
	RunTrace string
	At       time.Time
}

// RecordReceipt creates the span of a received message: a child of the sender's span, linked to the
// trace of the run. A message without a trace gets no span.
func (t *Tracer) RecordReceipt(r *Receipt) {
	if t == nil || r.From == "" {
		return
	}
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(r.At), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributeOf(r.Address), attrRun.String(r.Run.String()), attrMessage.String(r.Name)),
	}
	if link := parse(r.RunTrace); link.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	_, s := t.t.Start(within(r.From), "received "+strings.TrimSpace(r.Kind.String()+" "+r.Name), opts...)
	s.End(trace.WithTimestamp(r.At))
}

// Operation is a call of an entity or a service that has ended.
type Operation struct {
	Entity model.Address
	Name   string
	Trace  string // the trace of the caller
	// Came is when the call reached its owner, Handed when a worker got it, Ended when the worker
	// reported.
	Came, Handed, Ended time.Time
	Failure             string
}

// RecordOperation creates the span of a call: a child of the caller's span, for the time that a
// worker had the call. A call without a trace gets no span.
func (t *Tracer) RecordOperation(o *Operation) {
	if t == nil || o.Trace == "" {
		return
	}
	_, s := t.t.Start(within(o.Trace), "operation "+o.Name, trace.WithTimestamp(o.Handed), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributeOf(o.Entity), attrMessage.String(o.Name), attrMailbox.Int64(max(o.Handed.Sub(o.Came), 0).Milliseconds())))
	endAt(s, o.Ended, o.Failure)
}

// endAt ends, at a time in the past, a span that was created after the fact.
func endAt(s trace.Span, at time.Time, failure string) {
	if failure != "" {
		s.SetStatus(codes.Error, failure)
		s.SetAttributes(attrFailure.String(failure))
	}
	s.End(trace.WithTimestamp(at))
}

// Attempt is an attempt of an activity that runs in the process of its workflow.
type Attempt struct {
	Trace    string // the trace of the run
	Address  model.Address
	Run      model.RunID
	Activity string
	Number   int
}

// Activity starts the span of an attempt. Spans that the code starts with the returned context are
// children of the span of the attempt.
func (t *Tracer) Activity(ctx context.Context, a *Attempt) (context.Context, *Span) {
	if t == nil || isInternal(a.Address) {
		return ctx, nil
	}
	ctx, s := t.t.Start(remote(ctx, a.Trace), "activity "+a.Activity, trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(attrActivity.String(a.Activity), attrAttempt.Int(a.Number), attributeOf(a.Address), attrRun.String(a.Run.String())))
	return ctx, &Span{s}
}

// Task starts the span of an attempt of a task.
func (t *Tracer) Task(ctx context.Context, c *model.Claim) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, s := t.t.Start(remote(ctx, c.Trace), "task "+c.Spec.Kind, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attrActivity.String(c.Spec.Kind), attrQueue.String(c.Spec.Queue), attrAttempt.Int(c.Attempt), attrRun.String(c.Ref.Run.String()),
		attrWait.Int64(max(c.Claimed.Sub(c.Visible), 0).Milliseconds()), attributeOf(c.Ref.Address),
	))
	return ctx, &Span{s}
}

// attributeOf returns the attribute for an address: the workflow, the activity of a standalone
// task, the entity or the service.
func attributeOf(a model.Address) attribute.KeyValue {
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

// nameOf returns the name of an address, for use in the name of a span.
func nameOf(a model.Address) string {
	if kind, ok := strings.CutPrefix(a.Type, model.TaskPrefix); ok {
		return "task " + kind
	}
	return a.Type
}

// subject returns what a message is about, for use in the name of a span.
func subject(m *model.Message) string {
	if m.Name != "" {
		return m.Name
	}
	return nameOf(m.To)
}

// within returns a context whose spans belong to a stored trace.
func within(of string) context.Context { return remote(context.Background(), of) }

func remote(ctx context.Context, of string) context.Context {
	c := parse(of)
	if !c.IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, c)
}

// textOf returns a span context as a traceparent. It returns an empty text if the span context is
// not valid.
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

// parse reads a traceparent. It returns an invalid span context for an unreadable text, because a
// bad trace must not stop anything.
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
