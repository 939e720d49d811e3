package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

// Every channel between two shards has a message that cannot be read. Later messages still arrive,
// and operators find the messages that were set aside.
func TestUnreadableMessagesHoldBackNoOthers(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		child := perdure.NewWorkflow("child", func(_ perdure.WorkflowCtx, n int) (int, error) { return n + 1, nil })
		parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			return child.Run(ctx, n, perdure.RawKey(fmt.Sprint("child-", n)))
		})
		app := s.open(parent, child)
		if _, err := parent.Run(caller(t, app), 1, perdure.RawKey("first")); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		shards := map[string]int{"sqlite": 16, "postgres": 64}[s.kind]
		from := model.Address{Tenant: model.DefaultTenant, Type: "parent", Key: "second"}.Shard(shards)
		to := model.Address{Tenant: model.DefaultTenant, Type: "child", Key: "child-2"}.Shard(shards)
		prefix, body := "perdure.", `'\xff'`
		if s.kind == "sqlite" {
			prefix, body = "perdure_", "x'ff'"
		}
		for _, pair := range [][2]model.ShardID{{to, from}, {from, to}} {
			s.sql(fmt.Sprintf(`insert into %smessages (to_shard, from_shard, seq, body) values (%d, %d, 1, %s)`, prefix, pair[0], pair[1], body))
		}

		app = s.open(parent, child)
		got, err := parent.Run(caller(t, app), 2, perdure.RawKey("second"))
		equal(t, "the result of the child behind them", got, err, 3)
		eventually(t, "both are dead letters", func() bool {
			n := 0
			for l, err := range app.DeadLetters(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if l.Kind != "unreadable" || !strings.Contains(l.Reason, "shard") {
					t.Fatalf("dead letter %+v", l)
				}
				n++
			}
			return n == 2
		})
	})
}

// A process does not continue a run whose history has an event of a newer version. It reports why.
// Other runs continue, and this run continues when a process can read the event.
func TestEventsOfANewerVersion(t *testing.T) {
	t.Parallel()
	word := perdure.NewSignal[string]("word")
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		a := newAlive()
		app := s.open(damaged, a.w)
		client := caller(t, app)
		a.start(t, app, client)
		exec := mustStart(t, client, damaged, "in", perdure.RawKey("k"))
		reason(t, app, exec, "waits for signal word")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		kind := func(from, to int) {
			s.sql(fmt.Sprintf(`update perdure.history h set kind = %d from perdure.executions e where e.run = h.run and e.workflow = 'damaged' and h.seq = 2 and h.kind = %d`, to, from))
		}
		kind(int(model.EventStepCompleted), 200)
		app = s.open(damaged, a.w)
		client = caller(t, app)
		if err := word.Send(client, exec, "hello"); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("a signal to it: %v, want an error that names the newer version", err)
		}
		reason(t, app, exec, "newer")
		a.say(t, client, "b")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		kind(200, int(model.EventStepCompleted))
		app = s.open(damaged, a.w)
		client = caller(t, app)
		if err := word.Send(client, exec, "again"); err != nil {
			t.Fatal(err)
		}
		got, err := exec.Result(client)
		equal(t, "the result with a version that can read it", got, err, "again")
		a.checkEnd(t, client, "ab")
	})
}

// A timer and a run with invalid ids do not hold back other timers and runs. Only SQLite accepts
// such ids.
func TestRowsWithoutIDsHoldBackNoOthers(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"sqlite"}, func(t *testing.T, s *site) {
		a := newAlive()
		app := s.open(a.w)
		a.start(t, app, caller(t, app))
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		shard := model.Address{Tenant: model.DefaultTenant, Type: "alive", Key: a.exec.Ref.Key}.Shard(16)
		s.sql(fmt.Sprintf(`insert into perdure_timers (run, shard, id, due, tenant, workflow, key) values (x'00', %d, 'bad', 1, 'default', 'alive', 'k')`, shard))
		s.sql(fmt.Sprintf(`insert into perdure_executions (run, shard, state, current, started, closed, tenant, workflow, key) values (x'01', %d, 0, 0, 1, 0, 'default', 'alive', 'k')`, shard))
		s.sql(fmt.Sprintf(`insert into perdure_inbox (shard, id, not_before, body) values (%d, x'02', 0, x'00')`, shard))
		sleeper := perdure.NewWorkflow("sleeper", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			return "woke", ctx.Sleep(1)
		})
		app = s.open(a.w, sleeper)
		c := caller(t, app)
		a.say(t, c, "b")
		a.checkEnd(t, c, "ab")

		for i := range 20 {
			got, err := sleeper.Run(c, "in", perdure.RawKey(fmt.Sprint(i)))
			equal(t, "a sleeper", got, err, "woke")
		}
	})
}
