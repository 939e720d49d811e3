package grpcapi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// endBackend is a backend whose sessions of entity workers only note how they end.
type endBackend struct {
	api.Backend

	joining func()
	losing  func() // called before the engine asks what the lost worker cannot have seen
	ends    []string
}

func (b *endBackend) JoinEntities(context.Context, api.EntityWorker, model.EntityOffer) (api.EntitySession, error) {
	b.joining()
	return endSession{backend: b}, nil
}

type endSession struct {
	api.EntitySession

	backend *endBackend
}

func (s endSession) Lose(unseen func() []uint64) {
	s.backend.losing()
	s.backend.ends = append(s.backend.ends, fmt.Sprint("lost ", slices.Sorted(slices.Values(unseen()))))
}

func (s endSession) Leave(context.Context) error {
	s.backend.ends = append(s.backend.ends, "left")
	return nil
}

// Why a session ends says whether its worker has disappeared with its calls. A call that the server
// posts while the session has no stream has reached the worker only if the worker opens another
// stream. A call that the engine hands over while the session ends has not reached it.
func TestEndsOfEntityWorkers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why  error
		open bool // the worker still has a stream
		want string
	}{
		"the server stops":                     {errDraining, false, "left"},
		"the worker has begun another session": {errRenewed, false, "left"},
		"an operator drains the worker":        {errDrained, false, "left"},
		"the worker says goodbye":              {errGoodbye, false, "left"},
		"the worker does not come back":        {errGone, false, "lost [4 5]"},
		"the worker takes nothing":             {fault.New(fault.Exhausted, "full"), false, "lost [4 5]"},
		"the worker breaks the protocol":       {fault.New(fault.Invalid, "wrong"), true, "lost [5]"},
	} {
		b := &endBackend{joining: func() {}, losing: func() {}}
		s := newSession(NewWork(WorkConfig{Backend: b}), "session", "default", "worker")
		_, first := s.attach(t.Context())
		if err := s.join(&pb.Join{Role: pb.Role_ROLE_ENTITIES}); err != nil {
			t.Fatal(err)
		}
		post := func(generation uint64) { s.entities.Operate(model.Operations{Generation: generation}) }
		post(1)
		first()
		post(2) // the next stream brings it
		_, second := s.attach(t.Context())
		post(3)
		second()
		post(4)
		if c.open {
			_, third := s.attach(t.Context())
			defer third()
		}
		b.losing = func() {
			post(5)
			_, late := s.attach(t.Context()) // the worker comes back too late
			late()
		}
		s.end(c.why)
		<-s.ended
		if len(b.ends) != 1 || b.ends[0] != c.want {
			t.Errorf("%s: the calls are %q, want %q", name, b.ends, c.want)
		}

		// The session ends while the worker joins.
		b = &endBackend{joining: func() { s.end(c.why) }, losing: func() {}}
		s = newSession(NewWork(WorkConfig{Backend: b}), "session", "default", "worker")
		if err := s.join(&pb.Join{Role: pb.Role_ROLE_ENTITIES}); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		if want := map[bool]string{true: "left", false: "lost []"}[c.want == "left"]; len(b.ends) != 1 || b.ends[0] != want {
			t.Errorf("%s, late join: the calls are %q, want %q", name, b.ends, want)
		}
	}
}
