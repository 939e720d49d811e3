package replay

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// reportStates reports the gauges of the worker.
func (w *Worker) reportStates(g *telemetry.States) {
	g.Set(telemetry.RunsLoaded, float64(w.LoadedRuns()))
	s := &w.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	g.Set(telemetry.ActivitySlots, float64(s.max))
	g.Set(telemetry.ActivitySlotsBusy, float64(s.used))
	g.Set(telemetry.ActivitiesWaiting, float64(len(s.line)))
}

// observe measures an attempt and creates its span. The body gets the span with its context.
func (w *Worker) observe(ctx context.Context, a *ask) (inner context.Context, ended func(error)) {
	start := a.fut.m.r.start
	attempt := 1
	if s := StepFrom(ctx); s != nil {
		attempt = int(s.attempt)
	}
	ctx, span := w.cfg.Tracer.Activity(ctx, &tracing.Attempt{Trace: start.Trace, Address: start.Address, Run: start.Run, Activity: a.name, Number: attempt})
	begun := time.Now()
	return ctx, func(err error) {
		w.cfg.Meter.Took(telemetry.ActivitySeconds, time.Since(begun), a.name)
		word := ""
		if err != nil {
			word = telemetry.FailureWord(w.cfg.Failure(err))
		}
		span.End(word)
	}
}
