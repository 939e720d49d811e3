package node_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// plant is a program whose steps and activities have bodies that run until the test opens the gate.
type plant struct {
	gate   atomic.Pointer[chan struct{}]
	bodies atomic.Int64
	make   *perdure.Workflow[string, string]
	wait   *perdure.Workflow[string, string]
	pack   *perdure.Activity[string, string]
	start  *perdure.Signal[string]
}

func newPlant() *plant {
	p := &plant{start: perdure.NewSignal[string]("go")}
	p.shut()
	body := func(ctx context.Context, what string) (string, error) {
		p.bodies.Add(1)
		select {
		case <-*p.gate.Load():
			return what, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}

	p.make = perdure.NewWorkflow("make", func(ctx perdure.WorkflowCtx, what string) (string, error) {
		return perdure.Do(ctx, "body", func(ctx context.Context) (string, error) { return body(ctx, what) })
	})
	p.wait = perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return p.start.Receive(ctx) })
	p.pack = perdure.NewActivity("pack", body, perdure.OnQueue("packing"))

	return p
}

// shut closes the gate: bodies that start from now on wait.
func (p *plant) shut() {
	gate := make(chan struct{})
	p.gate.Store(&gate)
}

// open lets the bodies end.
func (p *plant) open() { close(*p.gate.Load()) }

// until waits until a condition holds.
func (o *office) until(what string, fact func() bool) {
	o.t.Helper()
	for !fact() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-o.ctx.Done():
			o.t.Fatalf("%s did not happen", what)
		}
	}
}

// session returns the only connected worker; empty while there is none.
func (o *office) session() api.WorkerSession {
	o.t.Helper()
	all, err := o.admin.WorkerSessions(o.ctx, "default")
	o.must(err)
	for _, s := range all {
		if s.Connected && len(s.Workflows) > 0 && len(s.Queues) > 0 {
			return s
		}
	}
	return api.WorkerSession{}
}

// A worker that is asked to drain finishes the bodies that it runs, and gives the runs that only
// wait back immediately. It gets nothing new. Afterwards the worker connects again and continues.
// No body runs twice.
func TestDrain(t *testing.T) {
	t.Parallel()
	o, p := newOffice(t), newPlant()
	app, err := perdure.Dialer{Token: key, IdleAfter: time.Hour}.Dial(o.ctx, "grpc://"+o.listen, p.make, p.wait, p.pack)
	o.must(err)
	defer app.Close()
	c := app.With(o.ctx)
	made, err := p.make.Start(c, "lamp", perdure.RawKey("a"))
	o.must(err)
	packed, err := p.pack.Submit(c, "box")
	o.must(err)
	waits, err := p.wait.Start(c, "", perdure.RawKey("w"))
	o.must(err)
	o.until("both bodies run, and the worker holds both executions", func() bool {
		s := o.session()
		return p.bodies.Load() == 2 && s.Runs == 2 && s.Tasks == 1
	})

	first := o.session()
	o.must(o.admin.DrainWorker(o.ctx, api.DrainRequest{Session: first.ID, Patience: time.Hour}))
	// a second request changes nothing
	o.must(o.admin.DrainWorker(o.ctx, api.DrainRequest{Session: first.ID}))
	o.until("the execution that only waits is given back", func() bool { return o.session().Runs == 1 })
	later, err := p.make.Start(c, "chair", perdure.RawKey("b"))
	o.must(err)
	if s := o.session(); s.ID != first.ID || !s.Draining || s.Runs != 1 || p.bodies.Load() != 2 {
		t.Errorf("the worker that drains has %+v, and %d bodies have begun", s, p.bodies.Load())
	}

	p.open()
	result := func(what string, want string, get func() (string, error)) {
		t.Helper()
		if got, err := get(); got != want || err != nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	result("the running step", "lamp", func() (string, error) { return made.Result(c) })
	result("the running task", "box", func() (string, error) { return packed.Result(c) })
	result("what was started meanwhile", "chair", func() (string, error) { return later.Result(c) })
	if n := p.bodies.Load(); n != 3 {
		t.Errorf("%d bodies have run, want 3", n)
	}
	if now := o.session(); now.ID == first.ID {
		t.Error("the worker has not connected again")
	}
	o.refused("the drained session", o.admin.DrainWorker(o.ctx, api.DrainRequest{Session: first.ID}), fault.NotFound)

	// A server that stops does not wait for bodies: the worker continues its body when the server
	// is back.
	p.shut()
	last, err := p.make.Start(c, "table", perdure.RawKey("c"))
	o.must(err)
	o.until("the body runs", func() bool { return p.bodies.Load() == 4 })
	o.close()
	o.open()
	p.open()
	result("the step that ran while the server stopped", "table", func() (string, error) { return last.Result(c) })
	o.must(p.start.Send(c, waits, "on"))
	result("the execution that waited", "on", func() (string, error) { return waits.Result(c) })
	if n := p.bodies.Load(); n != 4 {
		t.Errorf("%d bodies have run, want 4", n)
	}
}

// A worker that knows two servers and is asked to drain connects to the other one.
func TestDrainMoves(t *testing.T) {
	t.Parallel()
	here, there := newOffice(t), newOffice(t)
	_, port, err := net.SplitHostPort(there.listen)
	here.must(err)
	b, err := remote.Dial(here.ctx, remote.Config{Addresses: []string{here.listen, "localhost:" + port}, PlainText: true, Token: key})
	here.must(err)
	defer b.Close()
	_, err = b.JoinTasks(here.ctx, idle{}, model.TaskOffer{Name: "w", Queues: []string{"q"}, Kinds: []string{"mail"}, Slots: 2})
	here.must(err)

	at := func(o *office) string {
		all, err := o.admin.WorkerSessions(o.ctx, "default")
		o.must(err)
		for _, s := range all {
			if s.Connected && s.Name == "w" {
				return s.ID
			}
		}
		return ""
	}
	if at(here) == "" {
		here, there = there, here
	}
	for range 3 { // back and forth
		here.must(here.admin.DrainWorker(here.ctx, api.DrainRequest{Session: at(here)}))
		here.until("the worker connects to the other server", func() bool { return at(there) != "" })
		here, there = there, here
	}
}
