package grpcapi

import (
	"context"
	"slices"
	"testing"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// lateBackend is a backend whose sessions of task workers only note how they end. It calls joining
// while a worker joins.
type lateBackend struct {
	api.Backend

	joining func()
	ends    []string
}

func (b *lateBackend) JoinTasks(context.Context, api.TaskWorker, model.TaskOffer) (api.TaskSession, error) {
	b.joining()
	return lateTasks{backend: b}, nil
}

type lateTasks struct {
	api.TaskSession

	backend *lateBackend
}

func (s lateTasks) Suspend() { s.backend.ends = append(s.backend.ends, "kept") }
func (s lateTasks) Lose()    { s.backend.ends = append(s.backend.ends, "lost") }
func (s lateTasks) Leave(context.Context) error {
	s.backend.ends = append(s.backend.ends, "given back")
	return nil
}

// A session ends while its worker joins and names the tasks that it holds. What happens to the
// tasks depends on why the session has ended, as for a worker that has joined before the end. So a
// worker that comes back while the server stops loses no attempt.
func TestSessionEndsWhileItsWorkerJoins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why      error
		restarts bool
		want     string
	}{
		"the server stops, and another one takes over": {errDraining, true, "kept"},
		"the server stops for good":                    {errDraining, false, "given back"},
		"the worker has begun another session":         {errRenewed, true, "kept"},
		"an operator drains the worker":                {errDrained, true, "given back"},
		"the worker does not come back":                {errGone, true, "lost"},
	} {
		for _, late := range []bool{false, true} {
			b := &lateBackend{joining: func() {}}
			w := NewWork(WorkConfig{Backend: b, Restarts: c.restarts})

			s := newSession(w, "session", "default", "worker")
			if late {
				b.joining = func() { s.end(c.why) }
			}
			if err := s.join(&pb.Join{Role: pb.Role_ROLE_TASKS, Name: "w", Kinds: []string{"act"}, Queues: []string{"q"}, Slots: 1}); err != nil {
				t.Fatal(err)
			}
			if !late {
				s.end(c.why)
			}

			<-s.ended
			if len(b.ends) != 1 || b.ends[0] != c.want {
				t.Errorf("%s, late join %t: the tasks are %q, want %q", name, late, b.ends, c.want)
			}
		}
	}
}

// A server takes all earlier sessions that a worker names for earlier memberships of the worker,
// and of no other worker.
func TestEarlierSessionsOfAWorker(t *testing.T) {
	t.Parallel()
	w := NewWork(WorkConfig{})
	members := func(tenant, worker string) (all []string) {
		s, _, err := w.open("caller", tenant, &pb.Hello{Worker: worker, Session: "second", Earlier: []string{"first"}})
		if err != nil {
			t.Fatal(err)
		}
		return s.remote(pb.Role_ROLE_WORKFLOWS).After
	}

	mine := members("default", "w")
	for i, id := range []string{"second", "first"} {
		if want := model.RemoteMemberName("default", "w", id, pb.Role_ROLE_WORKFLOWS.String()); i >= len(mine) || mine[i] != want {
			t.Errorf("the earlier memberships are %q, want %q at %d", mine, want, i)
		}
	}
	for _, other := range [][]string{members("default", "other"), members("acme", "w")} {
		if slices.ContainsFunc(other, func(name string) bool { return slices.Contains(mine, name) }) {
			t.Errorf("another worker names the memberships %q, and this one %q", other, mine)
		}
	}
}
