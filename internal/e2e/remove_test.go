package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// An execution whose rows cannot be read cannot be ended. The error says how to remove the
// execution. A forced delete exports its rows, frees its lock and its key, and reports the deletion
// to its parent.
func TestForceDelete(t *testing.T) {
	t.Parallel()
	account := perdure.NewEntity[int]("account")
	word := perdure.NewSignal[string]("word")
	for _, c := range []struct {
		name   string
		harm   func(s *site)
		repair func(s *site)
		row    bool // its own row can be read
	}{
		{"an event", func(s *site) { s.damage("history", "body", "seq = 1") }, nil, true},
		{"the start", func(s *site) { s.damage("executions", "start", "true") }, nil, false},
		{"what it waits for", func(s *site) { s.damage("executions", "waits", "true") }, nil, false},
		{"commits that the store refuses", (*site).refuse, (*site).accept, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, durable, func(t *testing.T, s *site) {
				holder := perdure.NewWorkflow("damaged", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
					text := ""
					err := ctx.Lock(perdure.LockSet{account.Ref("a")}, func(ctx perdure.WorkflowCtx) error {
						var err error
						text, err = word.Receive(ctx)
						return err
					})
					return text, err
				})
				parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
					return holder.Run(ctx, "in", perdure.RawKey("k"))
				})
				app := s.open(holder, parent)
				client := caller(t, app)
				exec := mustStart(t, client, parent, "in", perdure.RawKey("p"))
				child := holder.Execution(perdure.RawKey("k"))
				reason(t, app, child, "waits for signal word")
				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
				c.harm(s)

				app = s.open(holder, parent)
				client = caller(t, app)
				if err := word.Send(client, child, "unheard"); err == nil {
					t.Error("a signal was taken")
				}
				for what, end := range map[string]func() error{
					"terminate": func() error { return app.Executions().Terminate(t.Context(), child, "stuck") },
					"cancel":    func() error { return child.Cancel(client, "stuck") },
					"delete":    func() error { return app.Executions().Delete(t.Context(), child) },
					"reset": func() error {
						_, err := app.Executions().Reset(t.Context(), child, perdure.AfterPosition(0))
						return err
					},
					"retry": func() error {
						_, err := app.Executions().Retry(t.Context(), child)
						return err
					},
				} {
					if err := end(); err == nil || !strings.Contains(err.Error(), "perdure workflow delete --force") {
						t.Errorf("%s: %v, want a refusal that names the command to remove it", what, err)
					}
				}
				var export bytes.Buffer
				if err := app.Executions().ForceDelete(t.Context(), child, &export); err != nil {
					t.Fatal(err)
				}
				tables := countExported(t, export.String())
				if tables["executions"] != 1 || tables["history"] == 0 {
					t.Errorf("exported %v", tables)
				}
				if c.row { // the store knows its parent only from this row
					if _, err := exec.Result(client); err == nil || !strings.Contains(err.Error(), "operator") {
						t.Errorf("the parent: %v", err)
					}
				}
				if c.repair != nil {
					if err := app.Close(); err != nil {
						t.Fatal(err)
					}
					c.repair(s)
					app = s.open(holder, parent)
					client = caller(t, app)
				}
				again := mustStart(t, client, holder, "in", perdure.RawKey("k"))
				reason(t, app, again, "waits for signal word") // so it has the lock
				if err := word.Send(client, again, "done"); err != nil {
					t.Fatal(err)
				}
				got, err := again.Result(client)
				equal(t, "the next run of the key", got, err, "done")
			})
		})
	}
}

// countExported counts the rows of an export by table.
func countExported(t *testing.T, lines string) map[string]int {
	t.Helper()
	tables := map[string]int{}
	for line := range strings.Lines(lines) {
		var row struct {
			Table string         `json:"table"`
			Row   map[string]any `json:"row"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		tables[row.Table]++
	}
	return tables
}

// refuse makes the database refuse every write about executions of workflow damaged, until accept
// is called.
func (s *site) refuse() {
	if s.kind == "sqlite" {
		s.sql(`create trigger no_event before insert on perdure_history when exists (select 1 from perdure_executions e where e.run = new.run and e.workflow = 'damaged')
begin select raise(abort, 'not this one'); end;
create trigger no_change before update on perdure_executions when old.workflow = 'damaged' begin select raise(abort, 'not this one'); end;`)
		return
	}
	s.sql(`create function perdure.no() returns trigger language plpgsql as $$ begin
  if exists (select from perdure.executions e where e.shard = new.shard and e.run = new.run and e.workflow = 'damaged') then raise exception 'not this one'; end if;
  return new;
end $$`)
	s.sql(`create trigger no before insert on perdure.history for each row execute function perdure.no()`)
	s.sql(`create trigger no before update on perdure.executions for each row execute function perdure.no()`)
}

func (s *site) accept() {
	if s.kind == "sqlite" {
		s.sql("drop trigger no_event; drop trigger no_change;")
		return
	}
	s.sql("drop function perdure.no() cascade")
}

// A forced delete removes a task whose row cannot be read, and frees its key.
func TestForceDeleteOfATask(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		idle := perdure.NewActivity("idle", func(context.Context, string) (string, error) { return "done", nil }, perdure.OnQueue("nobody"))
		app := s.open()
		task, err := idle.Submit(caller(t, app), "in", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		s.change("executions", "start", "workflow = 'task:idle'")

		app = s.open(idle)
		client := caller(t, app)
		for what, end := range map[string]func() error{
			"terminate": func() error { return app.Executions().Terminate(t.Context(), task, "stuck") },
			"cancel":    func() error { return task.Cancel(client, "stuck") },
			"delete":    func() error { return app.Executions().Delete(t.Context(), task) },
			"retry": func() error {
				_, err := app.Executions().Retry(t.Context(), task)
				return err
			},
		} {
			if err := end(); err == nil || !strings.Contains(err.Error(), "perdure workflow delete --force") {
				t.Errorf("%s: %v, want a refusal that names the command to remove it", what, err)
			}
		}
		var export bytes.Buffer
		if err := app.Executions().ForceDelete(t.Context(), task, &export); err != nil {
			t.Fatal(err)
		}
		if tables := countExported(t, export.String()); tables["executions"] != 1 {
			t.Errorf("exported %v", tables)
		}
		again, err := idle.Submit(client, "in", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := again.Result(client)
		equal(t, "the next task of the key", got, err, "done")
	})
}

// An entity whose row cannot be read refuses calls, and its error says how to remove it. A forced
// delete exports its rows. The section that waits for the lock gets an error. The engine refuses
// the calls of the section that holds the lock. The next holder gets a larger token.
func TestForceDeleteOfAnEntity(t *testing.T) {
	t.Parallel()
	account := perdure.NewEntity[int]("account")
	add := perdure.NewOperation(account, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	word := perdure.NewSignal[string]("word")
	holder := perdure.NewWorkflow("holder", func(ctx perdure.WorkflowCtx, _ string) (sum int, err error) {
		err = ctx.Lock(perdure.LockSet{account.Ref("a")}, func(ctx perdure.WorkflowCtx) error {
			if _, err := word.Receive(ctx); err != nil {
				return err
			}
			sum, err = add.Call(ctx, "a", 1)
			return err
		})
		return sum, err
	})
	onStores(t, durable, func(t *testing.T, s *site) {
		app := s.open(account, holder)
		client := caller(t, app)
		sum, err := add.Call(client, "a", 100)
		equal(t, "the first call", sum, err, 100)
		has := mustStart(t, client, holder, "in", perdure.RawKey("has"))
		reason(t, app, has, "waits for signal word")
		wants := mustStart(t, client, holder, "in", perdure.RawKey("wants"))
		reason(t, app, wants, "waits for the lock")
		if err := add.Send(client, "a", 7); err != nil {
			t.Fatal(err)
		}
		info, err := app.Entities().Describe(t.Context(), account.Ref("a"))
		if err != nil || info.Epoch == 0 {
			t.Fatal(info, err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		s.change("entities", "body", "key = 'a'")

		app = s.open(account, holder)
		client = caller(t, app)
		_, err = add.Call(client, "a", 1)
		wantError(t, "a call", err, perdure.ErrBlocked, "cannot be read")
		_, described := app.Entities().Describe(t.Context(), account.Ref("a"))
		for what, err := range map[string]error{"unlock": app.Locks().Unlock(t.Context(), account.Ref("a"), info.Epoch), "a look": described} {
			if err == nil || !strings.Contains(err.Error(), "perdure entity delete --force") {
				t.Errorf("%s: %v, want an error that names the command to remove it", what, err)
			}
		}
		var export bytes.Buffer
		if err := app.Entities().ForceDelete(t.Context(), account.Ref("a"), &export); err != nil {
			t.Fatal(err)
		}
		if tables := countExported(t, export.String()); tables["entities"] != 1 || tables["mailbox"] != 2 {
			t.Errorf("exported %v", tables)
		}
		_, err = wants.Result(client)
		wantError(t, "the section that waited for the lock", err, perdure.ErrNotFound, "operator")
		if err := word.Send(client, has, "go on"); err != nil {
			t.Fatal(err)
		}
		_, err = has.Result(client)
		wantError(t, "the section that held the lock", err, perdure.ErrConflict, "lock")
		letters := 0
		for _, err := range app.DeadLetters(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			letters++
		}
		equal(t, "dead letters", letters, nil, 1)

		next := mustStart(t, client, holder, "in", perdure.RawKey("next"))
		reason(t, app, next, "waits for signal word")
		if now, err := app.Entities().Describe(t.Context(), account.Ref("a")); err != nil || now.Epoch <= info.Epoch {
			t.Errorf("the next token is %d, %v; want one above %d", now.Epoch, err, info.Epoch)
		}
		if err := word.Send(client, next, "go on"); err != nil {
			t.Fatal(err)
		}
		sum, err = next.Result(client)
		equal(t, "a call of the entity that starts again", sum, err, 1)
		err = app.Entities().ForceDelete(t.Context(), account.Ref("nobody"), &export)
		wantError(t, "one that does not exist", err, perdure.ErrNotFound, "nobody")
	})
}

// lossy is a writer that buffers lines and fails when it flushes them.
type lossy struct {
	bytes.Buffer
	err error
}

func (l *lossy) Flush() error { return l.err }

// A forced delete removes nothing before the whole export has left the buffer of the writer.
func TestForceDeleteFlushesTheExport(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"memory"}, func(t *testing.T, s *site) {
		word := perdure.NewSignal[string]("word")
		waits := perdure.NewWorkflow("waits", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return word.Receive(ctx) })
		app := s.open(waits)
		client := caller(t, app)
		exec := mustStart(t, client, waits, "in", perdure.RawKey("k"))
		full := &lossy{err: errors.New("the disk is full")}
		if err := app.Executions().ForceDelete(t.Context(), exec, full); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("removal with an export that is lost: %v", err)
		}
		if err := word.Send(client, exec, "done"); err != nil {
			t.Errorf("the execution is gone, and its rows are not saved: %v", err)
		}
		if err := app.Executions().ForceDelete(t.Context(), exec, &lossy{}); err != nil {
			t.Error(err)
		}
	})
}
