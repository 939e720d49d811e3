package tracing

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

func TestTraceparentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c trace.SpanContextConfig
		copy(c.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
		copy(c.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
		c.TraceFlags, c.Remote = trace.TraceFlags(rapid.Byte().Draw(t, "flags")), true
		want := trace.NewSpanContext(c)
		text := textOf(want)
		if !want.IsValid() {
			if text != "" {
				t.Fatalf("%q is what a context without ids is written as", text)
			}
			return
		}
		if got := parse(text); !got.Equal(want) {
			t.Fatalf("%q is read as %+v, was %+v", text, got, want)
		}
	})
}

// An unreadable trace is ignored and stops nothing.
func TestParse(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if c := parse(good); !c.IsValid() || !c.IsSampled() || !c.IsRemote() || textOf(c) != good {
		t.Errorf("%+v", c)
	}
	if c := parse("01" + good[2:] + "-of a later version"); !c.IsValid() {
		t.Error("a later version may have more at its end")
	}

	for _, bad := range []string{
		"", "00", good[:54], "ff" + good[2:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz", "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
	} {
		if c := parse(bad); c.IsValid() {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}

	rapid.Check(t, func(t *rapid.T) { parse(rapid.String().Draw(t, "text")) })
}

// Without a tracer no span is created and nothing is allocated.
func TestNobodyTraces(t *testing.T) {
	tracer := New(nil)
	if tracer != nil {
		t.Fatal("a tracer without a provider")
	}
	ctx := context.Background()
	m := &model.Message{Kind: model.MessageStart}
	ms := []*model.Message{m}
	claim := &model.Claim{Spec: &model.TaskSpec{}}
	operation := &Operation{Name: "deposit"}

	calls := func() {
		_, s := tracer.Send(ctx, m)
		s.End("error")
		_, s = tracer.SendAll(ctx, ms)
		s.End("")
		_, s = tracer.Run(ctx, m)
		s.End("")
		_, s = tracer.Activity(ctx, &Attempt{Activity: "charge", Number: 1})
		s.End("")
		_, s = tracer.Task(ctx, claim)
		s.End("")
		tracer.RecordOperation(operation)
		m.Trace += tracer.TraceOf(ctx) + tracer.StartTrace(model.Address{})
	}
	if n := testing.AllocsPerRun(100, calls); n != 0 || m.Trace != "" {
		t.Errorf("%g allocations without a tracer, trace %q", n, m.Trace)
	}
}
