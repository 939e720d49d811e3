package e2e_test

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

// stallSlots is how many tasks each process of the stalls executes at a time.
const stallSlots = 3

// definitions returns code that blocks until the test ends.
func (w *stalls) definitions() []perdure.Definition {
	alley := perdure.NewEntity[int]("alley", perdure.OperationTimeout(time.Hour)) // longer than any test
	w.squeeze = perdure.NewOperation(alley, "squeeze", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
		<-w.free
		*n += by
		return *n, nil
	})

	w.fill = perdure.NewActivity("fill", func(ctx context.Context, s string) (string, error) {
		select {
		case <-w.free:
		case <-ctx.Done():
		}
		return s, ctx.Err()
	}, perdure.OnQueue("open"))

	w.deaf = perdure.NewWorkflow("deaf", func(perdure.WorkflowCtx, string) (string, error) {
		<-w.free //perdure:allow channel the test blocks the worker on purpose
		return "", nil
	})

	return []perdure.Definition{alley, w.fill, w.deaf, refusedFlow, mutedFlow}
}

// The store refuses all rows of the first workflow, except the row that marks the execution as
// refused. It refuses all rows of the second workflow, including this row.
var (
	refusedFlow = perdure.NewWorkflow("refused", waitsForWord)
	mutedFlow   = perdure.NewWorkflow("muted", waitsForWord)
)

// startRefused starts executions and entities whose rows the store refuses or has lost.
func (w *stalls) startRefused(owner *perdure.App, flow *perdure.Workflow[string, string]) {
	t, c := w.t, caller(w.t, owner)
	t.Helper()

	if _, err := stallPut.Call(c, "refused", 1); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*perdure.Workflow[string, string]{refusedFlow, mutedFlow} {
		x := mustStart(t, c, d, "x", perdure.RawKey("k"))
		reason(t, owner, x, "signal word")
		w.add(stall{
			name: x.Ref.Workflow + " rows", ref: x.Ref, code: model.WaitPoison, want: []string{"is quarantined", "not this one"},
			memory: d == mutedFlow,
		})
	}
	w.s.refuseRows()

	for _, d := range []*perdure.Workflow[string, string]{refusedFlow, mutedFlow} {
		x := d.Execution(perdure.RawKey("k"))
		err := stallWord.Send(c, x, "go on")
		wantError(t, "a signal to "+x.Ref.Workflow, err, perdure.ErrBlocked, "not this one")
		// The quarantine ends after a minute, and a client does not repeat a refused signal. So a
		// workflow sends a signal too: the store keeps that signal, and each delivery starts the
		// quarantine again.
		mustStart(t, c, flow, "remind "+x.Ref.Workflow, perdure.RawKey("reminds-"+x.Ref.Workflow))
	}
	call := func(name, key, because string) {
		t.Helper()
		w.add(stall{
			name: name, ref: mustStart(t, c, flow, "put "+key, perdure.RawKey(keyOf(name))).Ref, code: model.WaitAnswer,
			want: []string{"answer of box/" + key}, because: []string{"box/" + key + " " + because}, memory: true,
		})
	}
	call("call of an entity whose rows the store refuses", "refused", "is quarantined")
	call("call of an entity whose row is damaged", "damaged", "cannot be read")
}

// refuseRows makes the database refuse rows of the workflows refused and muted, and of the entity
// box/refused.
func (s *site) refuseRows() {
	s.t.Helper()
	if s.kind == "sqlite" {
		s.sql(`create trigger no_event before insert on perdure_history when exists (select 1 from perdure_executions e where e.run = new.run and e.workflow in ('refused', 'muted'))
begin select raise(abort, 'not this one'); end;
create trigger no_mark before update on perdure_executions when old.workflow = 'muted' begin select raise(abort, 'not this one'); end;
create trigger no_state before update on perdure_entities when old.key = 'refused' begin select raise(abort, 'not this one'); end;`)
		return
	}

	for _, statement := range []string{
		`create function perdure.no_event() returns trigger language plpgsql as $$ begin
  if exists (select from perdure.executions e where e.shard = new.shard and e.run = new.run and e.workflow in ('refused', 'muted')) then raise exception 'not this one'; end if;
  return new;
end $$`,
		`create function perdure.no_mark() returns trigger language plpgsql as $$ begin
  if old.workflow = 'muted' then raise exception 'not this one'; end if;
  return new;
end $$`,
		`create function perdure.no_state() returns trigger language plpgsql as $$ begin
  if old.key = 'refused' then raise exception 'not this one'; end if;
  return new;
end $$`,
		`create trigger no_event before insert on perdure.history for each row execute function perdure.no_event()`,
		`create trigger no_mark before update on perdure.executions for each row execute function perdure.no_mark()`,
		`create trigger no_state before update on perdure.entities for each row execute function perdure.no_state()`,
	} {
		s.sql(statement)
	}
}

// busy occupies every slot and an entity, so that later tasks and calls wait in line. free is the
// number of slots that are still free when busy is called.
func (w *stalls) busy(owner *perdure.App, flow *perdure.Workflow[string, string], free int) {
	t, c := w.t, caller(w.t, owner)
	t.Helper()
	add := func(name, in string, code model.ReasonCode, want, because string) perdure.Ref {
		t.Helper()
		ref := mustStart(t, c, flow, in, perdure.RawKey(keyOf(name))).Ref
		x := stall{name: name, ref: ref, code: code, want: []string{want}, memory: true}
		if because != "" {
			x.because = []string{because}
		}
		w.add(x)
		return ref
	}

	reason(t, owner, perdure.Ref{Workflow: "task:fails", Key: keyOf("task that fails")}, "after: no luck")
	for i := range free {
		reason(t, owner, add(fmt.Sprint("fills slot ", i), "fill", model.WaitStep, "runs step fill", ""), "runs step fill")
	}
	w.fills = free + 1
	add("task in line", "fill", model.WaitLine, "waits in line in queue open", "")

	first := add("call that runs", "squeeze a", model.WaitAnswer, "answer of alley/a", "")
	reason(t, owner, first, "answer of alley/a")
	add("call in line", "squeeze a", model.WaitAnswer, "answer of alley/a", "alley/a waits for alley/a: earlier calls are being made")

	x := mustStart(t, c, w.deaf, "x", perdure.RawKey("k"))
	w.add(stall{name: "code that blocks", ref: x.Ref, code: model.WaitStuck, want: []string{"blocks outside durable calls", "stallrows_test.go"}, memory: true})
}
