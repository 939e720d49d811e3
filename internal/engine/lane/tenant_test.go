package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// A worker that serves every tenant gets only runs whose tenant has no worker of its own. It gets
// such runs whether they waited for a worker or start later.
func TestWorkerOfEveryTenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	of := func(tenant, workflow string) model.Address {
		return model.Address{Tenant: tenant, Type: workflow, Key: "k"}
	}
	r.join(1) // the default tenant has a worker of its own
	early, foreign, own := of("acme", "wf"), of("acme", "other"), of("default", "wf")
	for _, a := range []model.Address{early, foreign, own} {
		r.startRun(a)
	}
	r.l.Join(r.now, 2, model.Offer{Tenant: model.EveryTenant, Workflows: []string{"wf"}}, nil)
	r.take()
	r.settle()
	late := of("globex", "wf")
	r.startRun(late)

	for a, want := range map[model.Address]int{early: 2, late: 2, own: 1, foreign: 0} {
		if got := int(r.holder(a)); got != want {
			t.Errorf("%s is held by worker %d, want %d", a, got, want)
		}
	}

	r.leave(2)
	r.settle()
	if got := r.holder(early); got != 0 {
		t.Errorf("%s is held by worker %d, which has left", early, got)
	}
}
