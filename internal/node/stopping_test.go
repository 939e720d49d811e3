package node_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// A server stops while clients wait for the code of a remote worker: for an operation, an update
// and a query. The server has ended the session of the worker, so it gets no further answer. It
// does not wait for these calls. The clients repeat them on the next server, and no body of the
// operation or the update runs twice.
func TestStopDoesNotWaitForCode(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, listen := "file:"+filepath.Join(t.TempDir(), "server.db"), "127.0.0.1:0"
	serve := func() *node.Server {
		t.Helper()
		s, err := node.Serve(ctx, node.ServerConfig{
			Node: node.Config{URL: store}, Listen: listen, Authenticator: authn.Open{Tenant: "default"}, Tenant: "default",
		})
		must(err)
		return s
	}

	gate, begun := make(chan struct{}), make(chan string, 10)
	var bodies atomic.Int64
	wait := func(what string) { // no matter what happens to the call
		begun <- what
		<-gate
	}
	account := perdure.NewEntity[int]("account")
	deposit := perdure.NewOperation(account, "deposit", func(_ perdure.EntityCtx, balance *int, n int) (int, error) {
		bodies.Add(1)
		*balance += n
		wait("operation")
		return *balance, nil
	})
	adjust, ask, end := perdure.NewUpdate[int, int]("adjust"), perdure.NewQuery[int, int]("ask"), perdure.NewSignal[int]("end")
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		adjust.Handle(ctx, func(ctx perdure.WorkflowCtx, n int) (int, error) {
			return perdure.Do(ctx, "adjust", func(context.Context) (int, error) {
				bodies.Add(1)
				wait("update")
				return n, nil
			})
		})
		ask.Handle(ctx, func(n int) (int, error) {
			wait("query")
			return n, nil
		})
		return end.Receive(ctx)
	})

	server := serve()
	listen = server.Addr().String()
	worker, err := perdure.Dial(ctx, "grpc://"+listen, account, flow)
	must(err)
	client, err := perdure.Dial(ctx, "grpc://"+listen)
	must(err)
	c := client.With(ctx)
	updated, err := flow.Start(c, 0, perdure.RawKey("updated"))
	must(err)
	asked, err := flow.Start(c, 0, perdure.RawKey("asked"))
	must(err)

	answers := make(chan func(), 3)
	calls := map[string]func() (int, error){
		"operation": func() (int, error) { return deposit.Call(c, "k", 7) },
		"update":    func() (int, error) { return adjust.Call(c, updated, 7) },
		"query": func() (n int, err error) {
			err = perdure.ErrUnavailable
			// The query fails until the worker has joined the next server.
			for errors.Is(err, perdure.ErrUnavailable) && ctx.Err() == nil {
				n, err = ask.Ask(c, asked, 7)
			}
			return n, err
		},
	}
	for what, call := range calls {
		go func() {
			n, err := call()
			answers <- func() {
				if n != 7 || err != nil {
					t.Errorf("%s: %d, %v; want 7", what, n, err)
				}
			}
		}()
	}
	for range calls {
		<-begun
	}

	within, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	must(server.Close(within))
	if within.Err() != nil {
		t.Error("the server has waited for calls that it cannot answer, until it had to stop")
	}
	close(gate)
	server = serve()
	defer func() { must(errors.Join(worker.Close(), client.Close(), server.Close(ctx))) }()
	for range calls {
		(<-answers)()
	}
	if n := bodies.Load(); n != 2 {
		t.Errorf("%d bodies ran, want one of the operation and one of the update", n)
	}
}

// A server stops while clients wait for views and brief calls. It does not wait for a call that no
// worker can answer. The client of a view asks the next server. The caller of a brief call learns
// whether the call may have run: no worker has begun it, or the worker that ran it has left.
func TestStopDoesNotWaitForBriefCalls(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, listen := "file:"+filepath.Join(t.TempDir(), "server.db"), "127.0.0.1:0"
	serve := func() *node.Server {
		t.Helper()
		s, err := node.Serve(ctx, node.ServerConfig{
			Node: node.Config{URL: store}, Listen: listen, Authenticator: authn.Open{Tenant: "default"}, Tenant: "default",
		})
		must(err)
		return s
	}

	gate, begun := make(chan struct{}), make(chan struct{}, 10)
	body := func(what string) (string, error) {
		begun <- struct{}{}
		<-gate
		return what, nil
	}
	account, teller, ghost := perdure.NewEntity[int]("account"), perdure.NewService("teller"), perdure.NewService("ghost")
	look := perdure.NewView(account, "look", func(_ int, what string) (string, error) { return body(what) })
	advise := perdure.NewRPC(teller, "advise", func(_ perdure.EntityCtx, what string) (string, error) { return body(what) })
	haunt := perdure.NewRPC(ghost, "haunt", func(_ perdure.EntityCtx, what string) (string, error) { return what, nil })

	server := serve()
	listen = server.Addr().String()
	worker, err := perdure.Dial(ctx, "grpc://"+listen, account, teller) // it does not have the code of ghost
	must(err)
	client, err := perdure.Dial(ctx, "grpc://"+listen)
	must(err)
	c := client.With(ctx)
	type answer struct {
		text string
		err  error
	}
	ask := func(call func(perdure.Caller, string, string, ...perdure.CallOption) (string, error)) chan answer {
		got := make(chan answer, 1)
		go func() {
			text, err := call(c, "k", "done")
			got <- answer{text, err}
		}()
		return got
	}
	view, running, waiting := ask(look.Call), ask(advise.Call), ask(haunt.Call)
	<-begun
	<-begun
	for waits := false; !waits; {
		info, err := server.Node().Backend().Entity(ctx, model.Address{Tenant: "default", Type: "service:ghost", Key: "k"})
		must(err)
		waits = len(info.Reasons) > 0
	}

	within, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	must(server.Close(within))
	if within.Err() != nil {
		t.Error("the server has waited for calls that no worker can answer, until it had to stop")
	}
	for call, got := range map[string]answer{core.Interrupted: <-running, "no worker has begun the call": <-waiting} {
		if !errors.Is(got.err, perdure.ErrUnavailable) || !strings.Contains(got.err.Error(), call) {
			t.Errorf("the caller of an RPC got %q, %v; want %q", got.text, got.err, call)
		}
	}
	close(gate)
	server = serve()
	defer func() { must(errors.Join(worker.Close(), client.Close(), server.Close(ctx))) }()
	if got := <-view; got.text != "done" || got.err != nil {
		t.Errorf("the caller of the view got %q, %v", got.text, got.err)
	}
}
