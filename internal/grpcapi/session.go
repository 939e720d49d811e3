package grpcapi

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
)

// session is a connected worker, over all of its streams. It joins the engine in up to three roles.
// When the engine calls a role, the role sends an item to the worker. When the worker sends an
// item, the role that the item concerns passes it to the engine.
//
// The session checks every report about a run, a claim or a hand-over against what the engine gave
// to this session. So a worker can report neither for another worker nor for another tenant.
type session struct {
	work   *Work
	id     string
	tenant string
	worker string   // the id that the worker has generated for its process
	after  []string // the worker's earlier sessions, the last one first
	// agent is the program of the worker, and caller the caller that opened the session. They are
	// shown to people.
	agent, caller string
	since         model.Time
	heard         atomic.Int64 // microseconds since 1970
	link          *link.Session[*pb.WorkerItem, *pb.ServerItem]
	// ctx ends with the session. Roles pass reports to the engine under this context, not under
	// that of a stream.
	ctx    context.Context
	cancel context.CancelCauseFunc

	before <-chan struct{} // closed when the worker's previous session has ended; nil without one
	ended  chan struct{}   // closed when the engine has taken back what the worker held

	mu       sync.Mutex
	detached context.CancelCauseFunc // ends the current stream; nil without one
	streams  int                     // how many streams the session has had
	expiry   *time.Timer             // runs while there is no stream
	over     bool
	why      error // why the session is over
	draining bool
	asked    chan struct{} // closed when the worker has been asked to drain; nil before drain
	drained  chan struct{} // closed when the worker has handed back everything; nil before drain
	offers   []*pb.Join    // the joins of the worker

	workflows *workflowRole
	tasks     *taskRole
	entities  *entityRole
	left      map[pb.Role]bool // roles that the worker has given up
}

func newSession(w *Work, id, tenant, worker string) *session {
	s := &session{work: w, id: id, tenant: tenant, worker: worker, since: model.TimeOf(time.Now()), left: map[pb.Role]bool{}, ended: make(chan struct{}), link: link.New[*pb.WorkerItem, *pb.ServerItem](w.cfg.Link)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.hear()
	return s
}

func (s *session) key() workerKey { return workerKey{s.tenant, s.worker} }

// remote names the membership of the worker in a role, and its earlier memberships.
func (s *session) remote(role pb.Role) model.RemoteMember {
	m := model.RemoteMember{Name: model.RemoteMemberName(s.tenant, s.worker, s.id, role.String())}
	for _, id := range s.after {
		m.After = append(m.After, model.RemoteMemberName(s.tenant, s.worker, id, role.String()))
	}
	return m
}

// hear notes that the worker has sent something.
func (s *session) hear() { s.heard.Store(time.Now().UnixMicro()) }

// attach starts a stream and ends the previous one. When the returned context ends, the stream is
// over, and the caller must call done. After done, the worker may come back within the grace
// period.
func (s *session) attach(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		cancel(errGone)
		return ctx, func() {} // this stream brings nothing to the worker, so it does not count
	}
	if s.detached != nil {
		s.detached(errReplaced)
	}
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	s.detached = cancel
	s.streams++
	mine := s.streams

	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if mine != s.streams || s.over {
			return // another stream has taken over, or the session has ended
		}
		s.detached = nil
		s.expiry = time.AfterFunc(s.work.cfg.Grace, func() { s.expire(mine) })
	}
}

// lastStream returns the number of the last stream of the session.
func (s *session) lastStream() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

// nextStream returns the number of the first stream that can bring an item to the worker if the
// item is posted now.
func (s *session) nextStream() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.detached == nil || s.over {
		return s.streams + 1
	}
	return s.streams
}

// expire ends a session whose worker has not come back.
func (s *session) expire(stream int) {
	s.mu.Lock()
	stale := stream != s.streams || s.detached != nil
	s.mu.Unlock()
	if !stale {
		s.end(errGone)
	}
}

// detach ends the current stream.
func (s *session) detach(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.detached != nil {
		s.detached(why)
	}
}

// end ends the session. The engine takes back the runs, claims and calls that the worker holds. But
// the worker keeps its claims if another session replaces this one. With WorkConfig.Restarts, it
// also keeps them if the server shuts down.
//
// If the worker is joining in a role at the same time, that role ends itself after it has joined.
func (s *session) end(why error) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over, s.why = true, why
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if s.detached != nil {
		s.detached(why)
	}
	workflows, tasks, entities, left := s.workflows, s.tasks, s.entities, maps.Clone(s.left)
	s.mu.Unlock()

	s.work.cfg.Log.Info("worker disconnected", "session", s.id, "tenant", s.tenant, "reason", why.Error())
	s.link.End(why)
	s.cancel(why)
	s.work.running.Go(func() {
		defer s.work.remove(s)
		defer close(s.ended)
		switch {
		case workflows == nil:
		case left[pb.Role_ROLE_WORKFLOWS]:
			workflows.letGo() // free the permits of bodies that still run
		default:
			workflows.lose()
		}

		if tasks != nil && !left[pb.Role_ROLE_TASKS] {
			tasks.end(why)
		}

		if entities != nil && !left[pb.Role_ROLE_ENTITIES] {
			entities.end(why)
		}
	})
}

// post sends an item. The engine must never wait for a worker, so a worker that does not take its
// items loses its session.
func (s *session) post(item *pb.ServerItem) {
	if err := s.link.Post(item, proto.Size(item)); fault.Is(err, fault.Exhausted) {
		go s.end(err)
	}
}

// take passes an item of the worker to the role that it concerns. It blocks while the engine is
// full, which slows the worker down.
func (s *session) take(item *pb.WorkerItem) error {
	switch it := item.GetItem().(type) {
	case *pb.WorkerItem_Join:
		return s.join(it.Join)
	case *pb.WorkerItem_Leave:
		return s.leave(it.Leave)
	case *pb.WorkerItem_Turn:
		return onRole(s.workflows, "a turn", func(r *workflowRole) error { return r.report(it.Turn) })
	case *pb.WorkerItem_Release:
		return onRole(s.workflows, "a release", func(r *workflowRole) error { return r.release(it.Release) })
	case *pb.WorkerItem_QueryAnswer:
		return onRole(s.workflows, "an answer", func(r *workflowRole) error { return r.answer(it.QueryAnswer) })
	case *pb.WorkerItem_Pass:
		return onRole(s.workflows, "an attempt", func(r *workflowRole) error { return r.pass(it.Pass) })
	case *pb.WorkerItem_Passed:
		return onRole(s.workflows, "an attempt", func(r *workflowRole) error { return r.endPass(it.Passed) })
	case *pb.WorkerItem_Operated:
		return onRole(s.entities, "results of calls", func(r *entityRole) error { return r.finishCalls(it.Operated) })
	case *pb.WorkerItem_TaskReport:
		return onRole(s.tasks, "a report", func(r *taskRole) error { return r.report(it.TaskReport) })
	case *pb.WorkerItem_CodeEnded:
		return onRole(s.tasks, "the end of a claim", func(r *taskRole) error { return r.codeEnded(it.CodeEnded) })
	case *pb.WorkerItem_Beats:
		return onRole(s.tasks, "a heartbeat", func(r *taskRole) error { return r.beat(it.Beats) })
	case *pb.WorkerItem_TaskWrite:
		return onRole(s.tasks, "a write", func(r *taskRole) error { return r.write(it.TaskWrite) })
	case *pb.WorkerItem_ReadStates:
		return onRole(s.tasks, "a question", func(r *taskRole) error { return r.states(it.ReadStates) })
	case *pb.WorkerItem_Slots:
		return onRole(s.tasks, "slots", func(r *taskRole) error { return r.slots(it.Slots) })
	case *pb.WorkerItem_Goodbye:
		go s.end(errGoodbye)
		return nil
	}

	return fault.New(fault.Invalid, "an item of a kind that this server does not know")
}

// onRole calls do if the worker has joined in the role that an item concerns.
func onRole[R any](r *R, what string, do func(*R) error) error {
	if r == nil {
		return fault.New(fault.Invalid, "the worker sent %s before it joined in that role", what)
	}
	return do(r)
}

// join adds the worker to the engine in a role. A second join in the same role breaks the protocol.
// If the offer itself is wrong, the worker gets the error as its answer.
func (s *session) join(j *pb.Join) error {
	if s.before != nil {
		<-s.before
	}
	var err error
	switch held := len(j.GetHeldRuns()) + len(j.GetHeldClaims()) + len(j.GetHeldEntities()); {
	case held > maxHeld:
		return fault.New(fault.Invalid, "the worker holds %d runs, claims and entities: at most %d", held, maxHeld)
	case j.GetRole() == pb.Role_ROLE_WORKFLOWS && s.workflows == nil:
		err = s.joinWorkflows(j)
	case j.GetRole() == pb.Role_ROLE_TASKS && s.tasks == nil:
		err = s.joinTasks(j)
	case j.GetRole() == pb.Role_ROLE_ENTITIES && s.entities == nil:
		err = s.joinEntities(j)
	default:
		return fault.New(fault.Invalid, "the worker joins twice as %s, or in a role that this server does not know", j.GetRole())
	}

	if err == nil {
		s.mu.Lock()
		j.HeldRuns, j.HeldClaims = nil, nil // only the join needs them
		s.offers = append(s.offers, j)
		s.mu.Unlock()
	}

	s.post(&pb.ServerItem{Item: &pb.ServerItem_Joined{Joined: &pb.Joined{Role: j.GetRole(), Error: errorDetail(err)}}})
	return nil
}

// maxHeld bounds the runs, claims and entities that a worker may bring along from a session that
// the server has lost.
const maxHeld = 200_000

// maxPatience bounds how long a worker may take to leave.
const maxPatience = time.Hour

// leave ends a role. It answers when the worker has handed everything back. Until then the worker
// continues to send items.
func (s *session) leave(l *pb.Leave) error {
	ctx, cancel := context.WithTimeout(s.ctx, min(max(time.Duration(l.GetPatience()), 0), maxPatience))
	var leave func(context.Context) error
	switch {
	case l.GetRole() == pb.Role_ROLE_WORKFLOWS && s.workflows != nil:
		leave = s.workflows.session.Leave
	case l.GetRole() == pb.Role_ROLE_TASKS && s.tasks != nil:
		leave = s.tasks.session.Leave
	case l.GetRole() == pb.Role_ROLE_ENTITIES && s.entities != nil:
		leave = s.entities.session.Leave
	default:
		cancel()
		return fault.New(fault.Invalid, "the worker leaves as %s, and has not joined so", l.GetRole())
	}

	s.mu.Lock()
	twice, drained := s.left[l.GetRole()], s.drained
	s.left[l.GetRole()] = true
	s.mu.Unlock()
	if twice && drained != nil { // drain has already left on behalf of the worker
		leave = func(ctx context.Context) error {
			select {
			case <-drained:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	} else if twice {
		cancel()
		return fault.New(fault.Invalid, "the worker leaves twice as %s", l.GetRole())
	}
	s.work.running.Go(func() {
		defer cancel()
		err := leave(ctx)
		s.post(&pb.ServerItem{Item: &pb.ServerItem_Left{Left: &pb.Left{Role: l.GetRole(), Error: errorDetail(err)}}})
	})
	return nil
}
