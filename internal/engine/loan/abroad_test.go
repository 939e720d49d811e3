package loan_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/model"
)

var (
	maker = model.NodeID{1}
	claim = model.Claim{Ref: model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: "t", Type: "task:work", Key: "k"}, ID: model.TaskStep}, Claim: 1}}
)

func always(model.ClaimRef) bool { return true }

// A report is made while a heartbeat of the same claim is in flight to the owner. The answer to the
// heartbeat does not confirm the report. The node sends the report immediately.
func TestReportIsToldAfterAHeartbeat(t *testing.T) {
	t.Parallel()
	var a loan.Abroad
	a.Take([]model.Claim{claim}, maker)
	a.Note(claim.Ref, nil)
	room := 1 << 20
	none := maps.All(map[model.ClaimRef]*model.TaskReport{})
	holds, sent := a.List(loan.Listing{To: maker, Executes: slices.Values([]model.ClaimRef{claim.Ref}), Reports: none, Foreign: always, Owned: always, Room: &room})
	if len(holds) != 1 || !holds[0].Beat {
		t.Fatalf("%+v, want the heartbeat", holds)
	}

	a.Free(claim.Ref)
	a.Report(claim.Ref)
	a.DropSentNews(sent)
	if all := a.All(); len(all) != 1 || !all[0].News {
		t.Errorf("%+v, want a report that is news", all)
	}
	report := map[model.ClaimRef]*model.TaskReport{claim.Ref: {Ref: claim.Ref}}
	holds, sent = a.List(loan.Listing{To: maker, Executes: slices.Values([]model.ClaimRef(nil)), Reports: maps.All(report), Foreign: always, Owned: always, Room: &room})
	if len(holds) != 1 || holds[0].Report == nil {
		t.Fatalf("%+v, want the report", holds)
	}

	a.DropSentNews(sent)
	if all := a.All(); len(all) != 1 || all[0].News {
		t.Errorf("%+v, want a report that the owner has heard", all)
	}
	if a.Slots() != 0 {
		t.Errorf("%d slots are taken", a.Slots())
	}
}

// A worker has lost a claim, and the code of the claim still runs. Polls tell the node that has
// made the claim, which keeps the permits of the claim, and no other node.
func TestLostClaimIsListedForItsMaker(t *testing.T) {
	t.Parallel()
	var a loan.Abroad
	a.Take([]model.Claim{claim}, maker)
	a.Free(claim.Ref)
	none := slices.Values([]model.ClaimRef(nil))
	for to, want := range map[model.NodeID]int{maker: 1, {2}: 0} {
		room := 1 << 20
		holds, _ := a.List(loan.Listing{
			To: to, Executes: none, Lingers: slices.Values([]model.ClaimRef{claim.Ref}), Foreign: always, Owned: always, Room: &room,
			Reports: maps.All(map[model.ClaimRef]*model.TaskReport{}),
		})
		if len(holds) != want {
			t.Errorf("node %v is told %+v, want %d claims", to, holds, want)
		}
	}
}

// A claim ends before its last heartbeat was sent. The node drops the heartbeat. Otherwise the node
// would poll the owner again and again, because no poll would carry the heartbeat.
func TestNewsEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	var a loan.Abroad
	a.Take([]model.Claim{claim}, maker)
	a.Note(claim.Ref, &model.Payload{Data: []byte("half")})
	if !a.Untold(a.Last(), always) {
		t.Error("progress has been told")
	}
	if !a.Free(claim.Ref) || a.Unmake(claim.Ref) != maker {
		t.Error("the claim took no slot, or was not made")
	}
	if all := a.All(); len(all) != 0 {
		t.Errorf("%+v is left of a claim that has ended", all)
	}
}
