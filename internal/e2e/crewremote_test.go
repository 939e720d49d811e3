package e2e_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// A remote worker runs bodies through a server, for runs that another process owns. The test kills
// that process. The worker continues, and the next owner accepts its outcomes: no body starts a
// second time.
func TestRemoteWorkerOutlivesAnotherOwner(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	server, err := node.Serve(t.Context(), node.ServerConfig{
		Node: node.Config{URL: s.url, AllowUnsafe: true}, Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil {
			t.Log(err)
		}
	})

	a := newProgram("a")
	const each = 12
	a.begun, a.goOn = make(chan int, 2*each), make(chan struct{})
	app, err := perdure.Dial(t.Context(), "grpc://"+server.Addr().String(), a.definitions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
	kill := s.spawn()
	newProgram("b").exercise(t, app, "before", 1)

	// Which process owns which execution is random; with 12 keys each process owns some.
	var runs []perdure.Execution[int]
	for i := range each {
		runs = append(runs, mustStart(t, caller(t, app), a.flow, i, perdure.RawKey(fmt.Sprint("k", i))))
	}
	for range each {
		<-a.begun
	}
	kill()
	eventually(t, "the server owns everything", func() bool {
		return s.sql("select (select count(*) from perdure.nodes), (select count(*) from perdure.shards where node is null or node not in (select node from perdure.nodes))")[0][0] == "1" &&
			s.sql("select count(distinct node) from perdure.shards where node in (select node from perdure.nodes)")[0][0] == "1"
	})
	close(a.goOn)
	finish(t, app, a, runs)
	if n := a.bodies.Load(); n != each {
		t.Errorf("%d bodies began, want %d", n, each)
	}
}
