package grpcapi_test

import (
	"testing"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// items reads until the server has sent an item that want accepts.
func items[T any](r raw, want func(*pb.ServerItem) (T, bool)) T {
	r.t.Helper()
	for {
		m, err := r.st.Recv()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, it := range m.GetItems() {
			if v, ok := want(it); ok {
				return v
			}
		}
	}
}

// A worker that joins says that it already has a claim, which in fact belongs to another worker of
// the same tenant. An honest worker says so after it has outlived its server. Before the server
// tells it to stop, the worker reports, writes and sends heartbeats. The server ignores all of
// that.
func TestWorkersSpeakForTheirOwnClaims(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	enter := func(held ...*pb.HeldClaim) (raw, *pb.WorkerItem) {
		r := d.work(t, d.ctx)
		r.welcome("")
		j := &pb.Join{Role: pb.Role_ROLE_TASKS, Name: "w", Kinds: []string{"act"}, Queues: []string{"q"}, Slots: 1, HeldClaims: held}
		return r, &pb.WorkerItem{Item: &pb.WorkerItem_Join{Join: j}}
	}
	report := func(ref model.ClaimRef, out string) *pb.WorkerItem {
		return &pb.WorkerItem{Item: &pb.WorkerItem_TaskReport{TaskReport: wire.TaskReport(&model.TaskReport{Ref: ref, Output: model.TextPayload(out)})}}
	}

	victim, first := enter()
	victim.send(frame(1, first))
	task := model.Address{Tenant: "default", Type: model.TaskPrefix + "act", Key: "k"}
	start := wire.StartRequest(api.StartRequest{Address: task, Task: &model.TaskSpec{Kind: "act", Queue: "q", Retry: model.Retry{MaxAttempts: 1}}})
	if _, err := d.client.Start(d.ctx, start); err != nil {
		t.Fatal(err)
	}
	claim, err := wire.ReadClaim("default", items(victim, func(it *pb.ServerItem) (*pb.Claim, bool) { return it.GetClaim(), it.GetClaim() != nil }))
	if err != nil {
		t.Fatal(err)
	}

	thief, first := enter(wire.HeldClaim(claim.Ref))
	stolen := model.TextPayload("stolen")
	thief.send(frame(1, first,
		&pb.WorkerItem{Item: &pb.WorkerItem_Beats{Beats: wire.Beats(1, []api.Beat{{Claim: claim.Ref, Progress: &stolen}})}},
		&pb.WorkerItem{Item: &pb.WorkerItem_TaskWrite{TaskWrite: wire.TaskWrite(2, &model.TaskWrite{Ref: claim.Ref, First: 1, Items: []model.TaskItem{{Kind: model.ItemSet, Name: "s", Value: stolen}}})}},
		report(claim.Ref, "stolen"),
	))
	var wrote, settled error
	items(thief, func(it *pb.ServerItem) (bool, bool) {
		if w := it.GetWriteReply(); w != nil {
			wrote = wire.ReadError(w.GetError())
		}
		if s := it.GetSettled(); s != nil {
			settled = wire.ReadError(s.GetError())
		}
		return true, it.GetWriteReply() != nil && settled != nil || it.GetSettled() != nil && wrote != nil
	})
	if !fault.Is(wrote, fault.NotOwned) || !fault.Is(settled, fault.NotOwned) {
		t.Errorf("the write ends with %v, the report with %v", wrote, settled)
	}

	victim.send(frame(2, report(claim.Ref, "mine")))
	if err := items(victim, func(it *pb.ServerItem) (error, bool) {
		return wire.ReadError(it.GetSettled().GetError()), it.GetSettled() != nil
	}); err != nil {
		t.Fatal(err)
	}
	got, err := d.client.Await(d.ctx, &pb.AwaitRequest{Target: wire.Target(api.Target{Address: task})})
	if err != nil || string(got.GetOutcome().GetOutput().GetData()) != "mine" {
		t.Errorf("the task ended as %v, %v", got, err)
	}
	states, err := d.client.TaskStates(d.ctx, &pb.TaskStatesRequest{Task: &pb.TaskTarget{Target: wire.Target(api.Target{Address: task})}})
	if err != nil || len(states.GetStates()) != 0 {
		t.Errorf("states %v, %v", states, err)
	}
}
