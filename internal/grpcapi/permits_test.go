package grpcapi

import (
	"slices"
	"testing"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// gate notes the attempts that it gets, and calls during while it gets one.
type gate struct {
	during func()
	calls  []string
}

func (g *gate) Pass(ref model.TaskRef, _ *model.TaskSpec, _ *model.Payload, begin func()) {
	g.during()
	g.calls = append(g.calls, "pass "+ref.ID)
	begin()
}

func (g *gate) EndPass(ref model.TaskRef, _ *model.TaskSpec, _ model.Passage, _ time.Duration) {
	g.calls = append(g.calls, "end "+ref.ID)
}

func (g *gate) HeldBackBy(model.TaskRef) (model.Reason, bool) { return model.Reason{}, false }

// A session may end while it asks for the permits of an attempt. In that case the permits are given
// back exactly once, after they were granted.
func TestPermitThatIsGrantedWhenTheSessionEnds(t *testing.T) {
	t.Parallel()
	run := model.RunID{1}
	g := &gate{during: func() {}}
	r := &workflowRole{
		s:    &session{tenant: "default", link: link.New[*pb.WorkerItem, *pb.ServerItem](link.Config{})},
		gate: g, held: map[model.RunID]uint64{run: 1}, passing: map[model.TaskRef]*passing{},
	}
	pass := func(id string) {
		t.Helper()
		ref := model.TaskRef{Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: run, ID: id}
		if err := r.pass(&pb.Pass{Ref: wire.TaskRef(ref), Spec: wire.TaskSpec(&model.TaskSpec{Kind: "act", Queue: model.InlineQueue})}); err != nil {
			t.Fatal(err)
		}
	}

	pass("before")
	g.during = r.letGo
	pass("during")
	pass("after")
	if want := []string{"pass before", "end before", "pass during", "end during"}; !slices.Equal(g.calls, want) {
		t.Errorf("the gate is told %q, want %q", g.calls, want)
	}
}
