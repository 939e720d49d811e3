package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/postgres"
)

// groupProgram has code whose names choose the shard group gpu, and code whose names do not.
type groupProgram struct {
	plain  *perdure.Workflow[int, int]
	render *perdure.Workflow[int, int]
	more   *perdure.Signal[int]
	frames *perdure.Entity[int]
	add    *perdure.Operation[int, int]
}

func newGroupProgram() *groupProgram {
	p := &groupProgram{
		plain:  perdure.NewWorkflow("plain", func(_ perdure.WorkflowCtx, n int) (int, error) { return n + 1, nil }),
		more:   perdure.NewSignal[int]("more"),
		frames: perdure.NewEntity[int]("frames@gpu"),
	}
	p.add = perdure.NewOperation(p.frames, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	p.render = perdure.NewWorkflow("render@gpu", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		m, err := p.more.Receive(ctx)
		return n + m, err
	})
	return p
}

func (p *groupProgram) definitions() []perdure.Definition {
	return []perdure.Definition{p.plain, p.render, p.frames}
}

// outOfPlace counts shards whose live owner does not serve their group, and shards of served groups
// without an owner.
func outOfPlace(t *testing.T, url string, gpu bool) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	const count = `
select count(*) from perdure.shards s left join perdure.nodes n on n.node = s.node and n.epoch = s.epoch
where n.groups is distinct from case when s.shard < 64 then '' when $1 then 'gpu' end`
	if err := c.QueryRow(t.Context(), count, gpu).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two processes serve one shard group each. Executions and entities of a group belong to the
// process that serves it. While no process serves the group, executions say so and requests wait in
// the database. The next process of the group serves each waiting request once.
func TestShardGroups(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		if _, err := postgres.AddGroups(t.Context(), postgres.Config{URL: s.url, AllowUnsafe: true}, []model.Group{{Name: "gpu", Shards: 8}}); err != nil {
			t.Fatal(err)
		}
		p := newGroupProgram()
		front := s.open(p.definitions()...)
		back := *s
		back.cfg.Groups = []string{"gpu"}
		gpu := back.open(p.definitions()...)
		eventually(t, "every shard is where it should be", func() bool { return outOfPlace(t, s.url, true) == 0 })

		c := caller(t, front)
		n, err := p.plain.Run(c, 1)
		equal(t, "a workflow of the default group", n, err, 2)
		n, err = p.plain.Run(caller(t, gpu), 2)
		equal(t, "the same from the other process", n, err, 3)
		exec := mustStart(t, c, p.render, 40, perdure.RawKey("film"))
		n, err = p.add.Call(c, "film", 1)
		equal(t, "an entity of the group", n, err, 1)

		// No process serves the group.
		if err := gpu.Close(); err != nil {
			t.Fatal(err)
		}
		reason(t, front, exec, "no live process serves the shard group gpu")
		n, err = p.plain.Run(c, 3)
		equal(t, "a workflow of the default group in the meantime", n, err, 4)
		untilExplained(t, 200*time.Millisecond, func(limit time.Duration) string {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := exec.Result(front.With(ctx))
			if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "shard group gpu") {
				return "the result while no process serves the group: " + errorText(err)
			}
			return ""
		})

		done := make(chan error, 3)
		go func() { done <- p.more.Send(c, exec, 2) }()
		go func() {
			n, err := p.add.Call(c, "film", 10)
			if err == nil && n != 11 {
				t.Errorf("the entity has %d frames, want 11", n)
			}
			done <- err
		}()
		go func() {
			second, err := p.render.Start(c, 1, perdure.RawKey("second"))
			if err == nil {
				err = p.more.Send(c, second, 1)
			}
			done <- err
		}()
		eventually(t, "the requests wait in the database", func() bool { return waitingRequests(t, s.url) == 3 })

		// A process without the code takes the shards, and the other process lends its workers.
		idle := back
		idle.open()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		n, err = exec.Result(c)
		equal(t, "the result", n, err, 42)
		n, err = p.add.Call(c, "film", 0)
		equal(t, "the frames", n, err, 11)
		eventually(t, "every shard is where it should be again", func() bool { return outOfPlace(t, s.url, true) == 0 })
	})
}

// waitingRequests counts the requests that wait in the inboxes of the group's shards.
func waitingRequests(t *testing.T, url string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if err := c.QueryRow(t.Context(), `select count(*) from perdure.inbox where shard >= 64 and request <> ''`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// A process that wants shards of an unknown group cannot open the database.
func TestUnknownShardGroup(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		s.cfg.Groups = []string{"gpu"}
		app, err := s.cfg.Open(t.Context(), s.url)
		if err == nil {
			_ = app.Close()
		}
		wantError(t, "open", err, perdure.ErrInvalid, `shards of the group "gpu"`, "has the groups default", "perdure migrate --groups gpu=64")
	})
}

// On a store that only one process opens, a name that chooses a group works without that group.
func TestNamesOfGroupsOnOtherStores(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"memory", "sqlite"}, func(t *testing.T, s *site) {
		p := newGroupProgram()
		s.cfg.Groups = []string{"gpu"}
		c := caller(t, s.open(p.definitions()...))
		exec := mustStart(t, c, p.render, 40)
		if err := p.more.Send(c, exec, 2); err != nil {
			t.Fatal(err)
		}
		n, err := exec.Result(c)
		equal(t, "the result", n, err, 42)
		n, err = p.plain.Run(c, 1)
		equal(t, "a workflow of the default group", n, err, 2)
	})
}
