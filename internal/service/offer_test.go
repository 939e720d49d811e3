package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
)

// A worker that names no tenant serves the default one, as lists do.
func TestOffersWithoutATenant(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	w := &hands{claims: make(chan model.Claim, 1), settled: make(chan error, 1)}
	tasks, err := s.JoinTasks(ctx, w, model.TaskOffer{Name: "w", Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}

	r := api.StartRequest{Address: model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "k", Key: "1"}, Task: &model.TaskSpec{Kind: "k", Queue: "q"}}
	if _, err := s.Start(ctx, r); err != nil {
		t.Fatal(err)
	}

	select {
	case c := <-w.claims:
		if err := tasks.Report(ctx, model.TaskReport{Ref: c.Ref}); c.Ref.Address != r.Address || err != nil {
			t.Errorf("got %+v, %v", c, err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the task waits for a worker")
	}

	code := &closer{session: make(chan api.Session, 1)}
	session, err := s.Join(ctx, code, api.Offer{Workflows: []string{"order"}})
	if err != nil {
		t.Fatal(err)
	}
	code.session <- session
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if end, err := s.Run(ctx, api.StartRequest{Address: order("1")}); err != nil || end.Outcome.Status != model.Completed {
		t.Errorf("the run of a workflow: %+v, %v", end, err)
	}
}
