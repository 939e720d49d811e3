package embedded_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// The metrics count calls of entities and services by operation and outcome. Each call has a span,
// whose parent is the span of its caller.
func TestCallsAreObserved(t *testing.T) {
	t.Parallel()
	accounts := perdure.NewEntity[int]("account", perdure.MailboxSize(1))
	deposit := perdure.NewOperation(accounts, "deposit", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		if *s += n; *s < 0 {
			return 0, errors.New("the account of secret@example.com is empty")
		}
		return *s, nil
	})
	cents := perdure.NewView(accounts, "cents", func(s int, _ perdure.Void) (int, error) { return s, nil })
	clock := perdure.NewService("clock")
	zone := perdure.NewRPC(clock, "zone", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) { return ctx.Key(), nil })
	save := perdure.NewWorkflow("save", func(ctx perdure.WorkflowCtx, n int) (int, error) { return deposit.Call(ctx, "a", n) })
	lost := perdure.DeclareOperation[int, int]("safe", "open") // no process has its code

	reg := prometheus.NewRegistry()
	provider, spans := newTracing()
	app := open(t, embedded.Config{Metrics: reg, Tracer: provider}, "memory:", accounts, clock, save)
	ctx, top := provider.Tracer("user").Start(t.Context(), "caller")
	c := app.With(ctx)
	_, err := deposit.Call(c, "a", 3)
	if _, failed := deposit.Call(c, "a", -5); failed == nil {
		t.Error("it was not refused by its code")
	}
	_, viewed := cents.Call(c, "a", perdure.Void{})
	_, asked := zone.Call(c, "eu", perdure.Void{})
	_, saved := save.Run(c, 4)
	top.End()
	if err := errors.Join(err, viewed, asked, saved, lost.Send(app.With(t.Context()), "s", 1)); err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, reg, map[string]float64{
		"entity_calls_total{account,deposit,completed}": 2, "entity_calls_total{account,deposit,failed}": 1, "entity_calls_total{account,cents,completed}": 1,
		"entity_calls_total{service:clock,zone,completed}": 1,
		"entity_call_seconds{account,deposit}":             3, "entity_call_seconds{account,cents}": 1, "entity_call_seconds{service:clock,zone}": 1,
		"entity_handover_seconds{account}": 4, "entity_handover_seconds{service:clock}": 1,
		"entity_handover_calls{account}": 4, "entity_handover_calls{service:clock}": 1,
		"entity_calls_waiting{account}": 0, "entity_calls_waiting{service:clock}": 0, "entity_calls_waiting{safe}": 1,
		"entities_loaded{account}": 1, "entities_loaded{service:clock}": 1, "entities_loaded{safe}": 1,
		"lock_waiters{account}": 0, "lock_waiters{service:clock}": 0, "lock_waiters{safe}": 0,
	})

	want := []string{
		"call open", // the caller is not traced, so this span has no parent
		"caller",
		"caller > call cents",
		"caller > call cents > operation cents",
		"caller > call deposit",
		"caller > call deposit",
		"caller > call deposit > operation deposit",
		"caller > call deposit > operation deposit",
		"caller > call zone",
		"caller > call zone > operation zone",
		"caller > run save",
		"caller > run save > operation deposit",
		"caller > run save > workflow save",
	}
	all := waitFor(t, len(want), spans)
	if diff := cmp.Diff(want, tree(all...)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if s := find(t, all, "operation zone"); s.SpanKind != trace.SpanKindConsumer || len(s.Attributes) == 0 || s.Attributes[0].Key != "perdure.service" || s.Attributes[0].Value.AsString() != "clock" {
		t.Errorf("the span of an RPC: %+v", s)
	}
	if s := find(t, all, "call deposit"); s.SpanKind != trace.SpanKindClient || s.Attributes[0].Key != "perdure.entity" {
		t.Errorf("the span of a call: %+v", s)
	}
	failed := 0
	for _, s := range all {
		if s.Name == "operation deposit" && s.Status.Description != "" {
			failed++
			if s.Status.Description != "error" {
				t.Errorf("it failed with %q", s.Status.Description)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d spans failed", failed)
	}
}

// The metrics count when an execution gets a lock, and when the lock ends. Either the code or an
// operator ends a lock.
func TestLocksAreCounted(t *testing.T) {
	t.Parallel()
	rooms := perdure.NewEntity[int]("room")
	leave := perdure.NewSignal[bool]("leave")

	meeting := perdure.NewWorkflow("meeting", func(ctx perdure.WorkflowCtx, key string) (bool, error) {
		err := ctx.Lock(perdure.LockSet{rooms.Ref(key)}, func(ctx perdure.WorkflowCtx) error {
			_, err := leave.Receive(ctx)
			return err
		})
		return true, err
	})

	reg := prometheus.NewRegistry()
	app := open(t, embedded.Config{Metrics: reg}, "memory:", meeting)
	c := app.With(t.Context())

	var all []perdure.Execution[bool]
	for _, key := range []string{"a", "b"} {
		x, err := meeting.Start(c, key, perdure.RawKey(key))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}

	wantMetrics(t, reg, map[string]float64{"lock_wait_seconds{room}": 2, "locks_held{room}": 2, "lock_waiters{room}": 0, "lock_held_seconds{}": empty})
	b, err := app.Entities().Describe(t.Context(), rooms.Ref("b"))
	if err != nil || b.LockedBy.Key != "b" || b.LockedAt.IsZero() {
		t.Fatalf("%+v, %v", b, err)
	}
	if err := app.Locks().Unlock(t.Context(), rooms.Ref("b"), b.Epoch+1); !errors.Is(err, perdure.ErrConflict) {
		t.Errorf("another lock than the one that is meant: %v", err)
	}
	if err := app.Locks().Unlock(t.Context(), rooms.Ref("b"), b.Epoch); err != nil {
		t.Error(err)
	}

	for _, x := range all {
		if err := leave.Send(c, x, true); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(c); err != nil {
			t.Error(err)
		}
	}

	wantMetrics(t, reg, map[string]float64{
		"lock_wait_seconds{room}": 2, "locks_held{room}": 0, "lock_held_seconds{room,released}": 1, "lock_held_seconds{room,taken}": 1,
		"messages_total{lock,applied}": 2, "messages_total{grant,applied}": 2, "messages_total{release,applied}": 2, "messages_total{unlock,applied}": 1,
		"messages_total{unlock,refused}": 1, "messages_total{start,applied}": 2, "messages_total{signal,applied}": 2,
	})
}
