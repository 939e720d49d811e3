package grpcapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// WorkConfig configures the worker service. A zero field has its default.
type WorkConfig struct {
	Backend api.Backend
	// Tenant returns the tenant of the credential of a call.
	Tenant func(ctx context.Context) string
	Log    *slog.Logger
	// Restarts says that the node comes back after the service has ended, or that another node
	// takes over. In that case workers keep their claims, and name them when they join that node.
	// Without Restarts, the service gives the claims back when it ends.
	Restarts bool
	// Grace is how long the server keeps the session of a worker whose stream has broken. The
	// default is 30 s. After that time, other workers get the work of this one.
	Grace time.Duration
	// MaxSessions is how many workers may be connected at the same time. The default is 20,000.
	MaxSessions int
	// MaxFrame is the largest frame that the server takes, in bytes. The default is 16 MiB.
	MaxFrame int
	// MaxPayload is the largest value in a turn, in bytes. The default is 2 MiB.
	MaxPayload int
	// Link bounds the items that the server keeps for each worker until the worker has taken them.
	// The default is 100,000 items and 320 MiB. The engine never waits for a worker, and may hand
	// over all histories that it has in memory (256 MiB) at the same time.
	Link link.Config
}

// Work is the worker service.
type Work struct {
	pb.UnimplementedWorkerServiceServer
	cfg WorkConfig

	mu       sync.Mutex
	sessions map[string]*session
	workers  map[workerKey]*session // the newest session of each worker
	closing  bool
	running  background // sessions that are ending, and requests of workers
}

// workerKey identifies a worker.
type workerKey struct{ tenant, id string }

// NewWork returns the worker service.
func NewWork(cfg WorkConfig) *Work {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Grace == 0 {
		cfg.Grace = 30 * time.Second
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 20_000
	}
	if cfg.MaxFrame == 0 {
		cfg.MaxFrame = 16 << 20
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if cfg.Link.MaxBytes == 0 {
		cfg.Link.MaxBytes = 320 << 20
	}
	if cfg.Link.Pace == nil {
		cfg.Link.Pace = link.NewPace()
	}

	return &Work{cfg: cfg, sessions: map[string]*session{}, workers: map[workerKey]*session{}}
}

// Work serves one stream of a worker.
func (w *Work) Work(st grpc.BidiStreamingServer[pb.WorkerFrame, pb.ServerFrame]) error {
	tenant := w.cfg.Tenant(st.Context())
	first, err := st.Recv()
	if errors.Is(err, io.EOF) {
		return wire.Status(fault.New(fault.Invalid, "the stream of a worker must begin with a hello"))
	}
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if err := checkHello(first); err != nil {
		return wire.Status(err)
	}

	caller, _ := CallerOf(st.Context())
	s, resumed, err := w.open(caller.Name, tenant, hello)
	if err != nil {
		return wire.Status(err)
	}
	if !resumed { // log outside the lock of all sessions, because the log may be slow
		w.cfg.Log.Info("worker connected", "session", s.id, "tenant", tenant, "agent", s.agent)
	}
	ctx, attached := s.attach(st.Context())
	defer attached()

	welcome := &pb.Welcome{
		Protocol: wire.Protocol, Session: s.id, Resumed: resumed, Received: s.link.Received(), LastEventKind: uint32(model.LastEventKind),
		LastMessageKind: uint32(model.LastMessageKind), Tenant: tenant, Grace: int64(w.cfg.Grace), MaxFrame: int64(w.cfg.MaxFrame),
	}
	if err := st.Send(&pb.ServerFrame{Welcome: welcome}); err != nil {
		return err
	}

	received := uint64(0)
	if resumed {
		received = hello.GetReceived()
	}
	err = s.link.Run(ctx, frames{st, s}, received, s.take)
	switch {
	case errors.Is(err, io.EOF):
		return nil // the worker has closed the stream, and may open another one
	case errors.Is(err, errReplaced), errors.Is(err, errDraining):
		return wire.Status(err)
	case fault.KindOf(err) == fault.Invalid: // the worker breaks the protocol
		w.cfg.Log.Warn("worker refused", "session", s.id, "tenant", tenant, "error", err)
		s.end(err)
		return wire.Status(err)
	}
	return err // the stream has broken, or the session has ended
}

const (
	maxWorkerID = 64 // bytes of the id that a worker generates for itself, and of names of sessions
	maxEarlier  = 16 // earlier sessions that a worker names
)

// checkHello refuses a stream whose first frame is not a valid hello.
func checkHello(f *pb.WorkerFrame) error {
	h := f.GetHello()
	switch {
	case h == nil || len(f.GetItems()) > 0 || f.GetNumber() != 0:
		return fault.New(fault.Invalid, "the first frame of a worker must have a hello and no items")
	case len(h.GetWorker()) > maxWorkerID:
		return fault.New(fault.Invalid, "the id of the worker has %d bytes: at most %d", len(h.GetWorker()), maxWorkerID)
	case len(h.GetSession()) > maxWorkerID:
		return fault.New(fault.Invalid, "the name of the session has %d bytes: at most %d", len(h.GetSession()), maxWorkerID)
	case len(h.GetEarlier()) > maxEarlier || slices.ContainsFunc(h.GetEarlier(), func(id string) bool { return len(id) > maxWorkerID }):
		return fault.New(fault.Invalid, "the worker names %d earlier sessions: at most %d, of at most %d bytes", len(h.GetEarlier()), maxEarlier, maxWorkerID)
	case h.GetProtocol() != wire.Protocol:
		return fault.WithHint(fault.New(fault.Invalid, "the worker speaks version %d of the protocol, this server speaks %d", h.GetProtocol(), wire.Protocol),
			"use a worker and a server of about the same release")
	case h.GetLastEventKind() < uint32(model.LastEventKind) || h.GetLastMessageKind() < uint32(model.LastMessageKind):
		return fault.WithHint(fault.New(fault.Invalid, "the worker knows events up to %d and messages up to %d, this server writes up to %d and %d",
			h.GetLastEventKind(), h.GetLastMessageKind(), model.LastEventKind, model.LastMessageKind), "upgrade workers before the server")
	}
	return nil
}

// open finds the session that a worker resumes, or starts a new one.
func (w *Work) open(caller, tenant string, h *pb.Hello) (s *session, resumed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return nil, false, errDraining
	}
	if s := w.sessions[h.GetSession()]; s != nil && s.tenant == tenant {
		return s, true, nil
	}
	if len(w.sessions) >= w.cfg.MaxSessions {
		return nil, false, fault.New(fault.Exhausted, "%d workers are connected, which is as many as this server takes", w.cfg.MaxSessions)
	}

	s = newSession(w, "session_"+rand.Text(), tenant, cmp.Or(h.GetWorker(), rand.Text()))
	s.agent, s.caller, s.after = model.Cut(h.GetAgent(), 200), caller, h.GetEarlier()
	if last := h.GetSession(); last != "" {
		s.after = append([]string{last}, s.after...)
	}
	w.sessions[s.id] = s
	if old := w.workers[s.key()]; old != nil {
		// The worker has forgotten its session, or was connected to another server in between. Its
		// join names the runs and claims that it holds.
		s.before = old.ended
		go old.end(errRenewed)
	}
	w.workers[s.key()] = s
	return s, false, nil
}

// remove forgets a session that is over.
func (w *Work) remove(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, s.id)
	if w.workers[s.key()] == s {
		delete(w.workers, s.key())
	}
}

// Drain ends all streams and accepts no new ones, so that workers connect to another node. The
// workers keep their runs and claims until Close ends their sessions.
func (w *Work) Drain() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	for _, s := range w.all() {
		s.detach(errDraining)
	}
}

// Close ends all sessions. It waits until the engine has taken back what the workers held, or until
// ctx ends. With WorkConfig.Restarts, workers keep their claims.
func (w *Work) Close(ctx context.Context) {
	w.Drain()
	sessions := w.all()
	for _, s := range sessions {
		s.end(errDraining)
	}

	for _, s := range sessions {
		select {
		case <-s.ended: // the session has ended, possibly by the worker itself
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-w.running.Idle():
	case <-ctx.Done():
	}
}

var (
	errDraining = fault.New(fault.Unavailable, "the server is shutting down")
	errReplaced = fault.New(fault.Canceled, "the worker has opened another stream")
	errRenewed  = fault.New(fault.Canceled, "the worker has begun another session")
	errGoodbye  = fault.New(fault.Canceled, "the worker has left")
	errGone     = fault.New(fault.Unavailable, "the worker has not come back in time")
)

// frames turns a gRPC stream into a link.Stream.
type frames struct {
	st grpc.BidiStreamingServer[pb.WorkerFrame, pb.ServerFrame]
	of *session
}

func (f frames) Send(number, acknowledged uint64, items []*pb.ServerItem) error {
	return f.st.Send(&pb.ServerFrame{Number: number, Acknowledged: acknowledged, Items: items})
}

func (f frames) Receive() (number, acknowledged uint64, items []*pb.WorkerItem, err error) {
	m, err := f.st.Recv()
	if err != nil {
		return 0, 0, nil, err
	}
	f.of.hear()
	if m.GetHello() != nil {
		return 0, 0, nil, fault.New(fault.Invalid, "a hello in the middle of a stream")
	}
	return m.GetNumber(), m.GetAcknowledged(), m.GetItems(), nil
}
