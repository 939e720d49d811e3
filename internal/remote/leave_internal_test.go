package remote

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// lostServer is a connection to a server that is away until the test brings it back. While it is
// away, it refuses each attempt to connect, or does not answer it.
type lostServer struct {
	grpc.ClientConnInterface

	back, hangs atomic.Bool
	refuses     atomic.Pointer[error] // how it refuses a worker; nil for a server that is away
	attempts    atomic.Int64
	mu          sync.Mutex
	left        []pb.Role // the roles that have left in order
}

// NewStream opens a stream if the server is back.
func (s *lostServer) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s.attempts.Add(1)
	if s.back.Load() {
		return &foundStream{s: s, ctx: ctx, replies: make(chan *pb.ServerFrame, 10)}, nil
	}
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := s.refuses.Load(); err != nil {
		return nil, *err
	}
	return nil, status.Error(codes.Unavailable, "connection refused")
}

// foundStream is a stream to a server that still has the session of the worker, and that answers
// every leave.
type foundStream struct {
	grpc.ClientStream

	s       *lostServer
	ctx     context.Context //nolint:containedctx // as of any stream of gRPC
	replies chan *pb.ServerFrame
	number  uint64
}

// Context returns the context of the stream.
func (f *foundStream) Context() context.Context { return f.ctx }

// SendMsg takes a frame of the worker.
func (f *foundStream) SendMsg(m any) error {
	frame := m.(*pb.WorkerFrame)
	if hello := frame.GetHello(); hello != nil {
		f.replies <- &pb.ServerFrame{Welcome: &pb.Welcome{Session: hello.GetSession(), Tenant: "default", Resumed: true}}
	}
	for _, item := range frame.GetItems() {
		if leave := item.GetLeave(); leave != nil {
			f.s.mu.Lock()
			f.s.left = append(f.s.left, leave.GetRole())
			f.s.mu.Unlock()
			f.number++
			left := &pb.ServerItem{Item: &pb.ServerItem_Left{Left: &pb.Left{Role: leave.GetRole()}}}
			f.replies <- &pb.ServerFrame{Number: f.number, Acknowledged: frame.GetNumber(), Items: []*pb.ServerItem{left}}
		}
	}
	return nil
}

// RecvMsg waits for a frame of the server.
func (f *foundStream) RecvMsg(m any) error {
	select {
	case frame := <-f.replies:
		proto.Merge(m.(*pb.ServerFrame), frame)
		return nil
	case <-f.ctx.Done():
		return status.FromContextError(f.ctx.Err()).Err()
	}
}

// stranded is a worker in all roles whose server is away.
type stranded struct {
	*Work

	s         *lostServer
	workflows *workflowRole
	tasks     *taskRole
	entities  *entityRole
	codes     *keeper
}

// keeper is a worker of workflows that says whether it keeps bodies of lost runs.
type keeper struct {
	api.Survivor
	keeps atomic.Bool
}

func (*keeper) Activate(*model.Activation)                 {}
func (*keeper) Deliver(model.RunID, uint64, []model.Event) {}
func (*keeper) Lose(model.RunID, uint64)                   {}
func (k *keeper) Keeps(model.RunID) bool                   { return k.keeps.Load() }

// roles returns the roles of the worker.
func (s *stranded) roles() (all []interface{ Leave(context.Context) error }) {
	return append(all, s.workflows, s.tasks, s.entities)
}

// strand returns a worker that has tried to connect once, and pauses for longer than any test. It
// joins in all roles: the test answers for the server.
func strand(t *testing.T) *stranded {
	t.Helper()
	s := &stranded{s: &lostServer{}, codes: &keeper{}}
	s.Work = NewWork(s.s, WorkConfig{Backoff: 1000 * time.Hour, MaxBackoff: time.Second})
	s.named, s.tenant = "first", "default"
	t.Cleanup(func() {
		s.stop(errClosed)
		<-s.done
		s.link.End(errClosed)
	})

	joining := make(chan error, 3)
	go func() { _, err := s.Join(t.Context(), s.codes, api.Offer{}); joining <- err }()
	go func() { _, err := s.JoinTasks(t.Context(), &taskWorker{}, model.TaskOffer{}); joining <- err }()
	go func() { _, err := s.JoinEntities(t.Context(), &caller{}, model.EntityOffer{}); joining <- err }()
	synctest.Wait()
	for _, role := range []pb.Role{pb.Role_ROLE_WORKFLOWS, pb.Role_ROLE_TASKS, pb.Role_ROLE_ENTITIES} {
		s.server(t, joined(role, nil))
		if err := <-joining; err != nil {
			t.Fatal(err)
		}
	}
	s.workflows, s.tasks, s.entities = s.Work.workflows, s.Work.tasks, s.Work.entities
	if n := s.s.attempts.Load(); n != 1 {
		t.Fatalf("the worker has tried to connect %d times, want 1", n)
	}
	return s
}

// leave leaves a role, and returns the channel for the result.
func leave(ctx context.Context, r interface{ Leave(context.Context) error }) <-chan error {
	left := make(chan error, 1)
	go func() { left <- r.Leave(ctx) }()
	synctest.Wait()
	return left
}

// isDone reports whether a role has left by now, without an error.
func isDone(t *testing.T, left <-chan error) bool {
	t.Helper()
	select {
	case err := <-left:
		if err != nil {
			t.Error(err)
		}
		return true
	default:
		return false
	}
}

// A role that holds nothing does not wait for a server that is gone: the worker tries to connect
// once, at once, and no role waits after that. It makes no difference whether the roles leave one
// after the other or at the same time.
func TestIdleWorkerLeavesADeadServer(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"one after the other": false, "at the same time": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := strand(t)
				begun := time.Now()
				var all []<-chan error
				for _, r := range s.roles() {
					if all = append(all, make(chan error)); together {
						c := make(chan error, 1)
						all[len(all)-1] = c
						go func() { c <- r.Leave(t.Context()) }()
					} else {
						all[len(all)-1] = leave(t.Context(), r)
					}
				}
				synctest.Wait()

				for i, left := range all {
					if !isDone(t, left) {
						t.Errorf("role %d waits for a server", i)
					}
				}
				if n := s.s.attempts.Load(); n < 2 || !together && n > 2 {
					t.Errorf("the worker has tried to connect %d times, want 2", n)
				}
				s.Close()
				if waited := time.Since(begun); waited > 0 {
					t.Errorf("the worker has waited for %s", waited)
				}
			})
		})
	}
}

// A role that holds something waits for a server until its caller gives up, because the next server
// may need it. The role is done as soon as it holds nothing.
func TestBusyWorkerWaitsForAServer(t *testing.T) {
	t.Parallel()
	run := model.RunID{1}
	activation := wire.Activation(&model.Activation{Start: &model.Start{Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: run}, Generation: 3})
	claim := model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: run, ID: "t"}, Claim: 1}
	calls := wire.Operations(&model.Operations{Entity: model.Address{Tenant: "default", Type: "entity:a", Key: "k"}, Generation: 1, Calls: []model.OperationCall{{Name: "add", Number: 7}}})
	finish := func(t *testing.T, s *stranded) {
		o := s.entities.worker.(*caller).handed[0]
		if err := s.entities.FinishCalls(t.Context(), model.Operated{Entity: o.Entity, Generation: o.Generation, Results: make([]model.OperationResult, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	role := func(n int) func(*stranded) interface{ Leave(context.Context) error } {
		return func(s *stranded) interface{ Leave(context.Context) error } { return s.roles()[n] }
	}

	for name, c := range map[string]struct {
		role func(*stranded) interface{ Leave(context.Context) error }
		give func(*testing.T, *stranded) // gives the role something
		end  func(*testing.T, *stranded) // ends what the role has; nil if nothing but a server can
	}{
		"a run": {role(0), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Activation{Activation: activation}})
		}, func(_ *testing.T, s *stranded) { s.workflows.Release(run, 1, 0, nil) }},
		"a run that has got news after it was given back": {role(0), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Activation{Activation: activation}})
			s.workflows.Release(run, 1, 0, nil)
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Deliver{Deliver: &pb.Deliver{Run: wire.Run(run), Generation: 3}}})
		}, nil},
		"a step of a lost run": {role(0), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Activation{Activation: activation}})
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Evict{Evict: &pb.Evict{Run: wire.Run(run), Generation: 3, Lost: true}}})
			s.codes.keeps.Store(true)
		}, func(_ *testing.T, s *stranded) { s.codes.keeps.Store(false) }},
		"a claim": {role(1), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Claim{Claim: wire.Claim(&model.Claim{Ref: claim, Spec: &model.TaskSpec{Kind: "act"}})}})
		}, nil},
		"a report": {role(1), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Claim{Claim: wire.Claim(&model.Claim{Ref: claim, Spec: &model.TaskSpec{Kind: "act"}})}})
			if err := s.tasks.Report(t.Context(), model.TaskReport{Ref: claim}); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"a call": {role(2), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Operations{Operations: calls}})
		}, nil},
		"a result that no server has": {role(2), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Operations{Operations: calls}})
			finish(t, s)
		}, nil},
		"a result for the next server": {role(2), func(t *testing.T, s *stranded) {
			s.server(t, &pb.ServerItem{Item: &pb.ServerItem_Operations{Operations: calls}})
			s.entities.lost(nil)
			finish(t, s)
		}, func(*testing.T, *stranded) { time.Sleep(keepLeft) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := strand(t)
				c.give(t, s)
				r := c.role(s)
				limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				left := leave(limited, r)
				if n := s.s.attempts.Load(); n != 2 {
					t.Errorf("the worker has tried to connect %d times, want 2", n)
				}
				time.Sleep(9 * time.Second)
				if isDone(t, left) {
					t.Fatal("the role has left before its caller gave up")
				}
				time.Sleep(time.Second)
				if err := <-left; !fault.Is(err, fault.Timeout) {
					t.Errorf("the role has left: %v", err)
				}

				if c.end == nil {
					return
				}
				left = leave(t.Context(), r)
				if isDone(t, left) {
					t.Fatal("the role does not wait")
				}
				c.end(t, s)
				time.Sleep(2 * s.cfg.MaxBackoff) // the worker tries again
				synctest.Wait()
				if !isDone(t, left) {
					t.Error("the role holds nothing and waits for a server")
				}
			})
		})
	}
}

// A worker whose server comes back leaves in order, with and without something to give back. A
// leaving role does not wait for the next attempt to connect.
func TestWorkerLeavesAServerThatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := strand(t)
		s.s.back.Store(true)
		begun := time.Now()
		for _, r := range s.roles() {
			if left := leave(t.Context(), r); !isDone(t, left) {
				t.Fatal("the role waits")
			}
		}
		if want := []pb.Role{pb.Role_ROLE_WORKFLOWS, pb.Role_ROLE_TASKS, pb.Role_ROLE_ENTITIES}; !slices.Equal(s.s.left, want) || time.Since(begun) > 0 {
			t.Errorf("%v have left after %s, want %v", s.s.left, time.Since(begun), want)
		}
	})

	synctest.Test(t, func(t *testing.T) {
		s := strand(t)
		s.tasks.held[model.ClaimRef{Claim: 1}] = nil
		left := leave(t.Context(), s.tasks)
		if !isDone(t, leave(t.Context(), s.workflows)) {
			t.Error("the idle role waits for the busy one")
		}
		time.Sleep(time.Minute)
		s.s.back.Store(true)
		time.Sleep(2 * s.cfg.MaxBackoff)
		synctest.Wait()
		if want := []pb.Role{pb.Role_ROLE_TASKS, pb.Role_ROLE_WORKFLOWS}; !isDone(t, left) || !slices.Equal(s.s.left, want) {
			t.Errorf("%v have left", s.s.left)
		}
		if alone, _ := s.isAlone(); alone {
			t.Error("the worker still takes the server for gone")
		}
		if !isDone(t, leave(t.Context(), s.entities)) || !slices.Contains(s.s.left, pb.Role_ROLE_ENTITIES) {
			t.Error("the last role has not left in order, although the server is there")
		}
	})
}

// If no server answers an attempt to connect, a leaving role waits until its caller gives up. The
// roles that leave after it do not wait for the same attempt.
func TestLeaveWhileAnAttemptHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := strand(t)
		s.s.hangs.Store(true)
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		left := leave(limited, s.workflows)
		if isDone(t, left) {
			t.Fatal("the role has left before an attempt failed")
		}
		time.Sleep(10 * time.Second)
		if err := <-left; !fault.Is(err, fault.Timeout) {
			t.Errorf("the first role has left: %v", err)
		}
		if !isDone(t, leave(t.Context(), s.entities)) {
			t.Error("the second role waits for the attempt too")
		}
	})
}

// A role waits for a server that is full for a moment, and does not wait for a server that refuses
// the worker permanently.
func TestLeaveAServerThatRefuses(t *testing.T) {
	t.Parallel()
	for kind, waits := range map[fault.Kind]bool{fault.Exhausted: true, fault.Unavailable: true, fault.Denied: false, fault.Unauthenticated: false} {
		synctest.Test(t, func(t *testing.T) {
			s := strand(t)
			refusal := wire.Status(fault.New(kind, "no"))
			s.s.refuses.Store(&refusal)
			left := leave(t.Context(), s.workflows)
			if done := isDone(t, left); done == waits {
				t.Errorf("a server refuses with %s: the role has left: %t", kind, done)
			}
			s.s.refuses.Store(nil)
			time.Sleep(2 * s.cfg.MaxBackoff)
			synctest.Wait()
			if waits && !isDone(t, left) {
				t.Errorf("the server that refused with %s is gone: the role waits", kind)
			}
		})
	}
}
