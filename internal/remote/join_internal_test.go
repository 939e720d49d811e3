package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// unconnected returns a worker that needs no server: the test plays the server.
func unconnected(cfg WorkConfig) *Work {
	w := &Work{cfg: cfg, started: true, tenant: "default", named: "first", changed: make(chan struct{}), done: make(chan struct{})}
	w.renew()
	return w
}

// items returns the kinds of the items that the server has not taken, in order.
func (w *Work) items() (kinds []string) {
	for _, item := range w.link.Unacknowledged() {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", item.GetItem()), "*perdurev1.WorkerItem_"))
	}
	return kinds
}

// server passes an item of the server to the worker.
func (w *Work) server(t *testing.T, item *pb.ServerItem) {
	t.Helper()
	if err := w.take(item); err != nil {
		t.Fatal(err)
	}
}

func joined(role pb.Role, err error) *pb.ServerItem {
	return &pb.ServerItem{Item: &pb.ServerItem_Joined{Joined: &pb.Joined{Role: role, Error: wire.ErrorDetail(err)}}}
}

// taskWorker notes what it is told about its claims.
type taskWorker struct {
	api.TaskWorker
	told []string
}

func (w *taskWorker) Execute(claims []model.Claim) {
	w.told = append(w.told, "execute "+claims[0].Ref.ID)
}

func (w *taskWorker) Stop(ref model.ClaimRef, why model.StopReason) {
	w.told = append(w.told, fmt.Sprintf("stop %s: %d", ref.ID, why))
}

func (w *taskWorker) Settle(ref model.ClaimRef, err error) {
	w.told = append(w.told, fmt.Sprintf("settle %s: %s", ref.ID, fault.KindOf(err)))
}

// claimed joins a worker of tasks, and gives it the claims of some tasks.
func claimed(t *testing.T, w *Work, worker *taskWorker, tasks ...string) (*taskRole, []model.ClaimRef) {
	t.Helper()
	answer := make(chan error, 1)
	go func() {
		_, err := w.JoinTasks(t.Context(), worker, model.TaskOffer{Slots: 5})
		answer <- err
	}()
	synctest.Wait()
	w.server(t, joined(pb.Role_ROLE_TASKS, nil))
	if err := <-answer; err != nil {
		t.Fatal(err)
	}

	var refs []model.ClaimRef
	for i, id := range tasks {
		ref := model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: model.RunID{1}, ID: id}, Claim: int64(i + 1)}
		w.server(t, &pb.ServerItem{Item: &pb.ServerItem_Claim{Claim: wire.Claim(&model.Claim{Ref: ref, Spec: &model.TaskSpec{Kind: "act"}})}})
		refs = append(refs, ref)
	}
	worker.told = nil
	return w.tasks, refs
}

// A server that has lost the session may refuse to take a worker back. Then the worker loses its
// claims, an operator sees the error, and the worker sends nothing of this role to the server,
// because that would end the session of its other roles too. In its next session the worker offers
// the role again.
func TestServerRefusesToTakeAWorkerBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w, worker := unconnected(WorkConfig{Log: slog.New(slog.NewTextHandler(&log, nil))}), &taskWorker{}
		role, refs := claimed(t, w, worker, "reported", "running", "late")
		if err := role.Report(t.Context(), model.TaskReport{Ref: refs[0]}); err != nil {
			t.Fatal(err)
		}
		role.Slots(3)

		w.welcome(&pb.Welcome{Session: "second"})
		if items := w.items(); !slices.Equal(items, []string{"Join"}) || len(w.link.Unacknowledged()[0].GetJoin().GetHeldClaims()) != 3 {
			t.Fatalf("the worker sends %v", w.link.Unacknowledged())
		}
		beat := make(chan error, 1)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go func() {
			_, err := role.Beat(ctx, []api.Beat{{Claim: refs[1]}})
			beat <- err
		}()
		synctest.Wait()
		w.server(t, joined(pb.Role_ROLE_TASKS, fault.New(fault.Exhausted, "no room")))
		slices.Sort(worker.told)
		lost := fmt.Sprintf(": %d", model.StopLost)
		if want := []string{"settle reported: " + fault.NotOwned.String(), "stop late" + lost, "stop running" + lost}; !slices.Equal(worker.told, want) {
			t.Errorf("the worker is told %q, want %q", worker.told, want)
		}
		if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "no room") {
			t.Errorf("the log has %s", log.String())
		}

		if err := role.Report(t.Context(), model.TaskReport{Ref: refs[2]}); err != nil {
			t.Error(err)
		}
		role.Slots(2)
		synctest.Wait()
		if items := w.items(); !slices.Equal(items, []string{"Join"}) {
			t.Errorf("after the refusal the worker has sent %v", items)
		}
		end()
		<-beat

		w.welcome(&pb.Welcome{Session: "third"})
		w.server(t, joined(pb.Role_ROLE_TASKS, nil))
		if items := w.items(); !slices.Equal(items, []string{"Join", "Slots"}) || len(w.link.Unacknowledged()[0].GetJoin().GetHeldClaims()) != 0 {
			t.Errorf("in the next session the worker sends %v", w.link.Unacknowledged())
		}
		w.link.End(errClosed)
	})
}

// A worker that no server takes back has nothing to hand back when it leaves, also if it leaves
// before it knows that.
func TestRefusedWorkerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, before := range []bool{true, false} {
			w := unconnected(WorkConfig{Log: slog.New(slog.DiscardHandler)})
			role, _ := claimed(t, w, &taskWorker{}, "task")
			w.welcome(&pb.Welcome{Session: "second"})
			refuse := func() { w.server(t, joined(pb.Role_ROLE_TASKS, fault.New(fault.Exhausted, "no room"))) }
			if !before {
				refuse()
			}
			left := make(chan error, 1)
			go func() { left <- role.Leave(t.Context()) }()
			synctest.Wait()
			if before {
				refuse()
			}

			synctest.Wait()
			select {
			case err := <-left:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Error("the worker waits for an answer")
				w.link.End(errClosed)
			}
			w.welcome(&pb.Welcome{Session: "third"})
			if items := w.items(); len(items) > 0 {
				t.Errorf("the worker has left and sends %v", items)
			}
		}
	})
}

// What a worker reports before the server has taken it back comes after its join, once.
func TestReportsWaitUntilTheServerTakesTheWorkerBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := unconnected(WorkConfig{Log: slog.New(slog.DiscardHandler)})
		role, refs := claimed(t, w, &taskWorker{}, "task")
		w.welcome(&pb.Welcome{Session: "second"})
		if err := role.Report(t.Context(), model.TaskReport{Ref: refs[0]}); err != nil {
			t.Fatal(err)
		}
		if items := w.items(); !slices.Equal(items, []string{"Join"}) {
			t.Errorf("the worker sends %v before the server has answered", items)
		}
		w.server(t, joined(pb.Role_ROLE_TASKS, nil))
		if items := w.items(); !slices.Equal(items, []string{"Join", "TaskReport"}) {
			t.Errorf("the worker sends %v", items)
		}
	})
}

// acknowledging is a stream whose server takes every frame.
type acknowledging struct {
	sent  chan []*pb.WorkerItem
	taken chan uint64
}

func (a acknowledging) Send(number, _ uint64, items []*pb.WorkerItem) error {
	if number > 0 {
		a.sent <- items
		a.taken <- number
	}
	return nil
}

func (a acknowledging) Receive() (number, acknowledged uint64, items []*pb.ServerItem, err error) {
	taken, open := <-a.taken
	if !open {
		return 0, 0, nil, errClosed
	}
	return 0, taken, nil, nil
}

// A role may join while the server does not take what another role has sent. The offer waits until
// there is room.
func TestOfferWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := unconnected(WorkConfig{Link: link.Config{MaxItems: 1}})
		if err := w.link.Post(&pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: &pb.Turn{}}}, 1); err != nil {
			t.Fatal(err)
		}
		m := newMembership(w, &pb.Join{Role: pb.Role_ROLE_TASKS})
		w.mu.Lock()
		m.offer(w.link, &pb.Join{})
		w.mu.Unlock()

		st := acknowledging{make(chan []*pb.WorkerItem, 2), make(chan uint64, 2)}
		ctx, end := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- w.link.Run(ctx, st, 0, w.take) }()
		defer func() {
			end()
			<-over
			w.link.End(errClosed)
			close(st.taken)
		}()
		synctest.Wait()
		if len(st.sent) != 2 {
			t.Fatalf("the server has got %d frames, want the turn and the join", len(st.sent))
		}
		<-st.sent
		if items := <-st.sent; items[0].GetJoin().GetRole() != pb.Role_ROLE_TASKS {
			t.Errorf("the server has got %v", items)
		}
	})
}

// A server may send nonsense: items of a role that the worker has not joined in, or a claim that
// says nothing about its task. That ends the session, and not the process of the worker.
func TestItemsThatCannotBe(t *testing.T) {
	t.Parallel()
	oneof := (&pb.ServerItem{}).ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	for i := range oneof.Len() {
		f := oneof.Get(i)
		item := &pb.ServerItem{}
		item.ProtoReflect().Set(f, item.ProtoReflect().NewField(f))
		w := unconnected(WorkConfig{Log: slog.New(slog.DiscardHandler)})
		switch err := w.take(item); item.GetItem().(type) {
		case *pb.ServerItem_Joined, *pb.ServerItem_Left, *pb.ServerItem_Drain: // harmless
		default:
			if !errors.Is(err, errNoRole) {
				t.Errorf("%s without a role: %v", f.Name(), err)
			}
		}
	}

	synctest.Test(t, func(t *testing.T) {
		w := unconnected(WorkConfig{Log: slog.New(slog.DiscardHandler)})
		claimed(t, w, &taskWorker{})
		if err := w.take(&pb.ServerItem{Item: &pb.ServerItem_Claim{Claim: &pb.Claim{}}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a claim without a spec: %v", err)
		}
	})
}
