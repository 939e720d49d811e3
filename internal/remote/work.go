package remote

import (
	"context"
	crand "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// WorkConfig configures the worker side of a connection. A zero field has its default.
type WorkConfig struct {
	Log *slog.Logger
	// Agent is the name and version of the program, for people.
	Agent string
	// Backoff is the first pause before another attempt to connect. The default is 50 ms. Each
	// pause is twice as long as the previous one, up to MaxBackoff, whose default is 2 s. The
	// pauses must be short, because a restarted server waits only some seconds for its workers.
	// Each pause is shortened at random by up to a half.
	Backoff, MaxBackoff time.Duration
	// If a stream ends on which the server had answered, the worker calls Broken and opens another
	// stream. Broken may be nil.
	Broken func()
	// Link bounds the items that are kept until the server has taken them.
	Link link.Config
}

// session is the worker's side of the exchange with the server.
type session = link.Session[*pb.ServerItem, *pb.WorkerItem]

// Work is a worker of a server, in up to three roles that share one stream. It connects when the
// first role joins, and again whenever the stream breaks. While the server keeps the session, a
// broken stream has no effect. If the server has lost the session, the worker joins again and says
// which runs and claims it holds.
type Work struct {
	cfg  WorkConfig
	conn grpc.ClientConnInterface
	id   string // identifies this worker over all its sessions
	// redial opens another connection to the servers; nil if another part of the program owns the
	// connection.
	redial func() (*grpc.ClientConn, error)
	hurry  chan struct{} // has a value when the worker must not pause before its next attempt

	mu      sync.Mutex
	started bool
	over    bool
	named   string   // the server's name of the session; empty before the first stream
	earlier []string // the sessions before it, the last one first
	link    *session
	tenant  string
	most    int           // bytes of the largest frame for the server; 0 before the first welcome
	changed chan struct{} // closed when the link is replaced, or the worker is closed
	drained bool          // the server has asked the worker to drain
	servers *servers      // nil if another part of the program owns the connection
	outage  outage

	workflows *workflowRole
	tasks     *taskRole
	entities  *entityRole

	stop context.CancelCauseFunc
	done chan struct{}
}

// NewWork returns the worker side of a connection. It does not connect before a role joins.
func NewWork(conn grpc.ClientConnInterface, cfg WorkConfig) *Work {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 50 * time.Millisecond
	}
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = 2 * time.Second
	}
	if cfg.Broken == nil {
		cfg.Broken = func() {}
	}
	w := &Work{
		cfg: cfg, conn: conn, id: crand.Text(), done: make(chan struct{}), changed: make(chan struct{}),
		hurry: make(chan struct{}, 1), outage: outage{missed: make(chan struct{})},
	}
	w.renew()
	return w
}

// renew starts a session that has sent nothing. The caller holds the lock, or no other goroutine
// uses w yet.
func (w *Work) renew() {
	w.link = link.New[*pb.ServerItem, *pb.WorkerItem](w.cfg.Link)
	close(w.changed)
	w.changed = make(chan struct{})
}

// farewell is how long Close waits at most until the server has ended the stream.
const farewell = time.Second

// Close ends the worker. If the worker has left all roles, Close tells the server immediately,
// unless no server answers. Otherwise the server waits for the worker as it does after a broken
// stream.
func (w *Work) Close() {
	w.mu.Lock()
	started, l, left := w.started, w.link, !w.outage.alone
	w.over = true
	for _, r := range w.roles() {
		left = left && r.member().gone
	}
	w.mu.Unlock()
	if !started {
		return
	}

	if left {
		item := &pb.WorkerItem{Item: &pb.WorkerItem_Goodbye{Goodbye: &pb.Goodbye{}}}
		_ = l.Post(item, size(item)) // without it, the server waits for the worker for a while
		select {
		case <-w.done: // the server has ended the stream
		case <-time.After(farewell):
		}
	}
	w.stop(errClosed)
	l.End(errClosed)
	<-w.done
}

// roles returns the roles in which the worker has joined. The caller holds the lock.
func (w *Work) roles() (all []role) {
	if w.entities != nil {
		all = append(all, w.entities)
	}
	if w.tasks != nil {
		all = append(all, w.tasks)
	}
	if w.workflows != nil {
		all = append(all, w.workflows)
	}
	return all
}

var (
	errClosed = fault.New(fault.Unavailable, "the connection is closed")
	errLost   = fault.New(fault.Unavailable, "the server has lost the session of this worker")
)

// start starts to connect, unless it has started before.
func (w *Work) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errClosed
	}
	if w.started {
		return nil
	}
	w.started = true
	ctx, stop := context.WithCancelCause(context.Background())
	w.stop = stop
	go w.run(ctx)
	return nil
}

// run keeps a stream open until the worker is closed.
func (w *Work) run(ctx context.Context) {
	defer close(w.done)
	pause := w.cfg.Backoff
	for ctx.Err() == nil {
		connected, err := w.connect(ctx)
		w.mu.Lock()
		over := w.over
		w.mu.Unlock()
		if over || ctx.Err() != nil {
			return
		}

		if connected {
			pause = w.cfg.Backoff
			w.cfg.Broken()
		} else if isFinal(err) {
			w.failJoins(err)
		}

		w.cfg.Log.Warn("the stream to the server has ended; the worker connects again", "error", err, "pause", pause)
		select {
		case <-time.After(pause - rand.N(pause/2+1)):
		case <-w.hurry:
		case <-ctx.Done():
			return
		}

		pause = min(2*pause, w.cfg.MaxBackoff)
	}
}

// failJoins tells callers that wait for the answer to a join why the server refuses this worker.
func (w *Work) failJoins(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.roles() {
		r.member().answerJoin(err)
	}
}

// isFinal reports whether the server refuses this worker for a reason that another attempt would
// not change.
func isFinal(err error) bool {
	k := fault.KindOf(err)
	return k == fault.Unauthenticated || k == fault.Denied || k == fault.Invalid
}

// stream opens one stream over a connection and serves it until it ends. connected says that the
// server has answered.
func (w *Work) stream(ctx context.Context, conn grpc.ClientConnInterface) (connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := pb.NewWorkerServiceClient(conn).Work(ctx)
	if err != nil {
		return false, err
	}

	if err := st.Send(&pb.WorkerFrame{Hello: w.hello()}); err != nil {
		return false, brokenBy(st, err)
	}
	first, err := st.Recv()
	if err != nil {
		return false, err
	}
	welcome := first.GetWelcome()
	if welcome == nil || len(first.GetItems()) > 0 {
		return false, fault.New(fault.Invalid, "the first frame of the server has no welcome")
	}

	w.mu.Lock()
	before := w.link
	w.outage.trying, w.outage.alone = false, false
	w.mu.Unlock()
	before.Quiet() // first finish the items of the stream before this one
	w.servers.restore()
	l, received := w.welcome(welcome)
	err = l.Run(ctx, frames{st}, received, w.take)
	w.moveOn(st.Context())
	return true, err
}

// hello returns what the worker says first on a stream.
func (w *Work) hello() *pb.Hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	session, earlier := w.named, w.earlier
	if session != "" && w.link.Over() != nil {
		// One side has broken the protocol, so the session cannot continue.
		session, earlier = "", w.sessions()
	}

	return &pb.Hello{
		Protocol: wire.Protocol, Session: session, Earlier: earlier, Received: w.link.Received(), Agent: w.cfg.Agent, Worker: w.id,
		LastEventKind: uint32(model.LastEventKind), LastMessageKind: uint32(model.LastMessageKind),
	}
}

// welcome continues the session, or starts a new one if the server has lost it.
func (w *Work) welcome(m *pb.Welcome) (l *session, received uint64) {
	w.mu.Lock()
	was := w.named
	if was != "" && was != m.GetSession() {
		w.earlier = w.sessions()
	}
	w.named, w.tenant, w.most = m.GetSession(), m.GetTenant(), int(m.GetMaxFrame())
	if m.GetResumed() {
		defer w.mu.Unlock()
		return w.link, m.GetReceived()
	}

	var unsent []*pb.WorkerItem
	if was != "" { // the server has forgotten the whole session
		w.link.End(errLost)
		unsent = w.link.Unacknowledged()
		w.renew()
	}
	l, roles := w.link, w.roles()
	w.mu.Unlock()
	if was == "" {
		return l, 0
	}

	w.cfg.Log.Warn("the server has lost the session of this worker; the worker joins again")
	for _, r := range roles {
		held := r.lost(unsent)
		w.mu.Lock()
		r.member().offer(l, held)
		w.mu.Unlock()
	}
	w.resume()
	return l, 0
}

// maxEarlier is how many earlier sessions the worker names to a server. The server of the last one
// may have stopped or died before it took the worker back. Then the store has the name of an older
// session, and only this worker knows that it is here now.
const maxEarlier = 8

// sessions returns the last sessions of the worker, the current one first. The caller holds the
// lock.
func (w *Work) sessions() []string {
	all := append([]string{w.named}, w.earlier...)
	return all[:min(len(all), maxEarlier)]
}

// role is the interface of the three roles.
type role interface {
	member() *membership
	// The worker calls lost when the server has lost the session. lost returns a join that names
	// the runs or claims that the worker can continue. unsent are the items that the server has not
	// taken.
	lost(unsent []*pb.WorkerItem) *pb.Join
	// resume sends what the offer does not contain, after the server has taken the role back.
	resume()
	// refuse takes everything from the worker, because the server does not take the role back.
	refuse(why error)
	// idle reports whether the worker has nothing in this role that a server would ask for.
	idle() bool
}

// tenantOf returns the tenant of the credential, as the server has named it.
func (w *Work) tenantOf() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tenant
}

// frameRoom is an upper bound for the bytes of a frame without its item.
const frameRoom = 1 << 10

// tooLarge returns why an item is too large for the server, or nil if it is not. A frame that is
// too large would break every stream on which it is sent.
func (w *Work) tooLarge(item *pb.WorkerItem) error {
	w.mu.Lock()
	most := w.most
	w.mu.Unlock()
	if n := size(item) + frameRoom; most > 0 && n > most {
		return fault.New(fault.Exhausted, "%d bytes at once, and the server takes at most %d", n, most)
	}
	return nil
}

// take hands an item of the server to the role that it concerns.
func (w *Work) take(item *pb.ServerItem) error {
	w.mu.Lock()
	workflows, tasks, entities := w.workflows, w.tasks, w.entities
	w.mu.Unlock()

	switch it := item.GetItem().(type) {
	case *pb.ServerItem_Joined:
		w.takeJoined(it.Joined)
	case *pb.ServerItem_Left:
		w.left(it.Left)
	case *pb.ServerItem_Drain:
		w.drain(it.Drain)
	case *pb.ServerItem_Activation:
		return workflows.activate(it.Activation)
	case *pb.ServerItem_MoreEvents:
		return workflows.more(it.MoreEvents)
	case *pb.ServerItem_Deliver:
		return workflows.deliver(it.Deliver)
	case *pb.ServerItem_RetryStep:
		return workflows.retry(it.RetryStep)
	case *pb.ServerItem_Evict:
		return workflows.evict(it.Evict)
	case *pb.ServerItem_Query:
		return workflows.query(it.Query)
	case *pb.ServerItem_Recall:
		return workflows.recall(it.Recall)
	case *pb.ServerItem_Begin:
		return workflows.begin(it.Begin)
	case *pb.ServerItem_Kept:
		return workflows.kept(it.Kept)
	case *pb.ServerItem_TurnTaken:
		return workflows.takeTaken(it.TurnTaken)
	case *pb.ServerItem_TurnRefused:
		return workflows.takeRefused(it.TurnRefused)
	case *pb.ServerItem_Operations:
		return entities.operate(it.Operations)
	case *pb.ServerItem_Interruption:
		return entities.interrupt(it.Interruption)
	case *pb.ServerItem_Claim:
		return tasks.claim(it.Claim)
	case *pb.ServerItem_StopClaim:
		return tasks.stop(it.StopClaim)
	case *pb.ServerItem_Settled:
		return tasks.takeSettled(it.Settled)
	case *pb.ServerItem_BeatReplies:
		return tasks.reply(it.BeatReplies.GetId(), item)
	case *pb.ServerItem_WriteReply:
		return tasks.reply(it.WriteReply.GetId(), item)
	case *pb.ServerItem_States:
		return tasks.reply(it.States.GetId(), item)
	default:
		return fault.New(fault.Invalid, "an item of a kind that this build does not know")
	}
	return nil
}

// brokenBy returns why a stream broke. The error of Send does not say why.
func brokenBy(st grpc.BidiStreamingClient[pb.WorkerFrame, pb.ServerFrame], err error) error {
	if _, rerr := st.Recv(); rerr != nil && !errors.Is(rerr, context.Canceled) {
		return rerr
	}
	return err
}

// frames turns a gRPC stream into a link.Stream.
type frames struct {
	st grpc.BidiStreamingClient[pb.WorkerFrame, pb.ServerFrame]
}

func (f frames) Send(number, acknowledged uint64, items []*pb.WorkerItem) error {
	return f.st.Send(&pb.WorkerFrame{Number: number, Acknowledged: acknowledged, Items: items})
}

func (f frames) Receive() (number, acknowledged uint64, items []*pb.ServerItem, err error) {
	m, err := f.st.Recv()
	if err != nil {
		return 0, 0, nil, err
	}
	if m.GetWelcome() != nil {
		return 0, 0, nil, fault.New(fault.Invalid, "a welcome in the middle of a stream")
	}
	return m.GetNumber(), m.GetAcknowledged(), m.GetItems(), nil
}
