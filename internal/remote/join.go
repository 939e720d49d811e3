package remote

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// Join adds a worker that runs workflows.
func (w *Work) Join(ctx context.Context, worker api.Worker, offer api.Offer) (api.Session, error) {
	r := newWorkflowRole(newMembership(w, wire.WorkflowJoin(&offer)), worker)
	w.mu.Lock()
	taken := w.workflows != nil
	if !taken {
		w.workflows = r
	}
	w.mu.Unlock()
	if taken {
		return nil, fault.New(fault.Conflict, "a worker of workflows has joined over this connection already")
	}
	return r, r.join(ctx)
}

// JoinTasks adds a worker that executes tasks.
func (w *Work) JoinTasks(ctx context.Context, worker api.TaskWorker, offer model.TaskOffer) (api.TaskSession, error) {
	r := &taskRole{membership: newMembership(w, wire.TaskJoin(&offer)), worker: worker, held: map[model.ClaimRef]*pb.WorkerItem{}, slots: offer.Slots}
	r.patient = true
	w.mu.Lock()
	taken := w.tasks != nil
	if !taken {
		w.tasks = r
	}
	w.mu.Unlock()
	if taken {
		return nil, fault.New(fault.Conflict, "a worker of tasks has joined over this connection already")
	}
	return r, r.join(ctx)
}

// JoinEntities adds a worker that has the code of entities and services.
func (w *Work) JoinEntities(ctx context.Context, worker api.EntityWorker, offer model.EntityOffer) (api.EntitySession, error) {
	r := newEntityRole(newMembership(w, wire.EntityJoin(&offer)), worker)
	w.mu.Lock()
	taken := w.entities != nil
	if !taken {
		w.entities = r
	}
	w.mu.Unlock()
	if taken {
		return nil, fault.New(fault.Conflict, "a worker of entities has joined over this connection already")
	}
	return r, r.join(ctx)
}

// membership is how a role of the worker (workflows, tasks or entities) joins and leaves.
type membership struct {
	w       *Work
	offered *pb.Join
	joins   chan error // the answer to the first join
	leaves  chan error // the answer to a leave
	// patient says that the role keeps its runs or claims when it loses its session. Such a role
	// joins again before it leaves, and sends nothing else before the server has taken it back.
	// After any other role has lost its session, no server waits for it, so it need not leave.
	patient bool

	// Guarded by the lock of the work.
	in      *session      // the session in which the role was offered last; nil before the first
	on      *session      // the session that gets the items of the role; nil before the first offer
	moved   chan struct{} // closed when on changes
	joining bool          // a caller of join waits for the answer
	refused bool          // the server has refused to take the role back in this session
	gone    bool          // the role has been left
}

func newMembership(w *Work, j *pb.Join) *membership {
	return &membership{w: w, offered: j, joins: make(chan error, 1), leaves: make(chan error, 1), moved: make(chan struct{})}
}

// current returns the session that gets the items of the role, and a channel that is closed when
// that changes. A role sends everything to this session. So all its items come after its join, and
// no item goes to a session that does not know the runs or claims of the role. If the server has
// refused to take the role back, current returns a session that has ended.
func (m *membership) current() (*session, <-chan struct{}) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.on, m.moved
}

// moveTo changes the session that gets the items of the role. The caller holds the lock of the
// work.
func (m *membership) moveTo(l *session) {
	m.on = l
	close(m.moved)
	m.moved = make(chan struct{})
}

// send sends an item of the role. It blocks while the server does not take what was sent before.
func (m *membership) send(ctx context.Context, item *pb.WorkerItem) error {
	on, _ := m.current()
	return on.Send(ctx, item, size(item))
}

// post is like send, but does not block. If the server takes nothing, the item waits in a
// goroutine. There are few such goroutines, because the number of such items is bounded by the runs
// that the worker holds.
func (m *membership) post(item *pb.WorkerItem) {
	on, _ := m.current()
	postTo(on, item)
}

func postTo(l *session, item *pb.WorkerItem) {
	if err := l.Post(item, size(item)); fault.Is(err, fault.Exhausted) {
		go func() { _ = l.Send(context.Background(), item, size(item)) }() // ends with the session
	}
}

// offer sends the offer of the role to the server of a session, once. The caller holds the lock of
// the work. If the session has no room for the offer, because the server does not take what other
// roles have sent, the offer waits in a goroutine. The parameter held names what the worker holds
// from another session; it may be empty.
func (m *membership) offer(l *session, held *pb.Join) {
	if m.in == l || m.gone {
		return
	}
	join := proto.CloneOf(m.offered)
	proto.Merge(join, held)
	postTo(l, &pb.WorkerItem{Item: &pb.WorkerItem_Join{Join: join}})

	m.in, m.refused = l, false
	if m.on == nil || !m.patient {
		m.moveTo(l)
	}
}

// join offers the role and waits for the server's answer.
func (m *membership) join(ctx context.Context) error {
	if err := m.w.start(); err != nil {
		return err
	}
	m.w.mu.Lock()
	m.joining = true
	m.offer(m.w.link, &pb.Join{})
	m.w.mu.Unlock()
	var err error

	select {
	case err = <-m.joins:
	case <-ctx.Done():
		err = fault.New(fault.KindOf(ctx.Err()), "join the server as a worker: %w", context.Cause(ctx))
	}

	if err != nil {
		m.setGone()
	}
	return err
}

// answerJoin gives an answer to the caller of join, and reports whether that caller waits. The
// caller holds the lock of the work.
func (m *membership) answerJoin(err error) bool {
	if !m.joining {
		return false
	}
	m.joining = false
	m.joins <- err // has room, because join runs once
	return true
}

// takeJoined notes the answer of the server to a join. again says that the role had joined before,
// in a session that the server has lost.
func (m *membership) takeJoined(err error) (again bool) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if err == nil && m.on != m.in {
		m.moveTo(m.in)
	}
	if m.answerJoin(err) || m.gone {
		return false
	}

	if err != nil {
		ended := link.New[*pb.ServerItem, *pb.WorkerItem](m.w.cfg.Link)
		ended.End(errLost)
		m.refused = true
		m.moveTo(ended)
	}
	return true
}

// leave gives the role up and waits until the server has taken back all runs or claims of the role.
// If no server answers, and idle reports that the role has nothing that a server would ask for,
// leave does not wait.
func (m *membership) leave(ctx context.Context, idle func() bool) error {
	defer m.setGone()
	if !m.patient {
		m.setGone()
	}
	m.w.beginLeave()
	defer m.w.endLeave()

	for {
		m.w.mu.Lock()
		on, moved, changed, refused := m.on, m.moved, m.w.changed, m.refused
		m.gone = m.gone || refused
		m.w.mu.Unlock()
		if refused {
			return nil // the role no longer holds anything
		}
		item := m.leaveItem(ctx)
		if alone, _ := m.w.isAlone(); alone && idle() {
			_ = on.Post(item, size(item)) // a server may answer after all while other roles wait
			return nil
		}
		err := on.Send(ctx, item, size(item))
		lost := errors.Is(err, errLost)
		switch {
		case lost && !m.patient:
			return nil // the role no longer holds anything
		case err != nil && !lost:
			return err
		case m.patient: // wait until the server has taken the role back, or refused it
			changed = moved
		}

		again, err := m.awaitLeft(ctx, changed, idle)
		if !again {
			return err
		}
	}
}

// awaitLeft waits for the answer to a leave, or until changed is closed. again says that the role
// must leave once more, in another session.
func (m *membership) awaitLeft(ctx context.Context, changed <-chan struct{}, idle func() bool) (again bool, err error) {
	for {
		alone, missed := m.w.isAlone()
		if alone && idle() {
			m.w.cfg.Log.Debug("no server answers, and the worker has nothing for it; the worker leaves", "role", m.offered.GetRole().String())
			return false, nil
		}
		select {
		case err := <-m.leaves:
			return false, err
		case <-changed:
			return m.patient, nil // any other role no longer holds anything
		case <-missed: // the role may hold nothing by now
		case <-ctx.Done():
			m.w.giveUp()
			return false, fault.New(fault.KindOf(ctx.Err()), "leave the server: %w", context.Cause(ctx))
		}
	}
}

// leaveItem tells the server that the role leaves, and how long the worker waits for the answer.
func (m *membership) leaveItem(ctx context.Context) *pb.WorkerItem {
	patience := maxPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(0, time.Until(deadline))
	}
	return &pb.WorkerItem{Item: &pb.WorkerItem_Leave{Leave: &pb.Leave{Role: m.offered.GetRole(), Patience: int64(patience)}}}
}

func (m *membership) isGone() bool {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.gone
}

// setGone notes that the role must not be offered again.
func (m *membership) setGone() {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.gone = true
}

// maxPatience is how long a worker without a deadline may take to leave.
const maxPatience = time.Hour

// takeJoined notes the answer of the server to a join. No caller waits for the answer when the
// worker joins again after a lost session. If the server then refuses the worker in a role, the
// worker loses what it holds in that role. It offers the role again in its next session.
func (w *Work) takeJoined(m *pb.Joined) {
	r := w.role(m.GetRole())
	if r == nil {
		return
	}
	err := wire.ReadError(m.GetError())
	switch again := r.member().takeJoined(err); {
	case !again:
	case err == nil:
		r.resume()
	default:
		w.cfg.Log.Error("the server does not take the worker back", "role", m.GetRole().String(), "error", err)
		r.refuse(err)
	}
}

func (w *Work) left(m *pb.Left) {
	if r := w.role(m.GetRole()); r != nil {
		select {
		case r.member().leaves <- wire.ReadError(m.GetError()):
		default:
		}
	}
}

// role returns a role, or nil if the worker has not joined in it.
func (w *Work) role(name pb.Role) role {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case name == pb.Role_ROLE_WORKFLOWS && w.workflows != nil:
		return w.workflows
	case name == pb.Role_ROLE_TASKS && w.tasks != nil:
		return w.tasks
	case name == pb.Role_ROLE_ENTITIES && w.entities != nil:
		return w.entities
	}
	return nil
}

func size(m proto.Message) int { return proto.Size(m) }
