package remote_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/remote"
)

// A program that runs nothing closes its app without waiting for a server that is gone.
func TestIdleAppClosesWithoutItsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greet := perdure.NewWorkflow("greet", func(_ perdure.WorkflowCtx, name string) (string, error) { return name, nil })
	send := perdure.NewActivity("send", func(context.Context, int) (int, error) { return 0, nil }, perdure.OnQueue("slow"))
	account := perdure.NewEntity[int]("account")
	perdure.NewOperation(account, "add", func(_ perdure.EntityCtx, sum *int, n int) (int, error) { *sum += n; return *sum, nil })
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.far, Tenant: tenant, Served: true, DrainTimeout: 24 * time.Hour, OnClose: w.far.Close}, greet, send, account)
	w.must(err)
	w.stopNow()

	closed := make(chan error, 1)
	go func() { closed <- app.Close() }()
	select {
	case err := <-closed:
		w.must(err)
	case <-w.ctx.Done():
		t.Fatal("the app waits for a server")
	}
}

// stopNow stops the server without waiting for its calls.
func (w *world) stopNow() {
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	w.pipe.stop(ended)
}

// doors dials the server of a world, except at the addresses that the test has closed.
type doors struct {
	w *world

	mu      sync.Mutex
	closed  map[string]bool
	refused map[string]int // attempts to connect to a closed address
}

// dial connects to the server, unless the address is closed.
func (f *doors) dial(ctx context.Context, address string) (net.Conn, error) {
	f.mu.Lock()
	closed := f.closed[address]
	if closed {
		f.refused[address]++
	}
	f.mu.Unlock()
	if closed {
		return nil, errors.New("connection refused")
	}
	return f.w.pipe.dial(ctx, address)
}

// A worker that leaves while it has no connection tries each of its addresses anew. So it leaves in
// order if one of them answers again, even if gRPC pauses after failed attempts.
func TestLeaveTriesEachAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const one, two = "localhost:7801", "localhost:7802"
	f, lines := &doors{w: w, closed: map[string]bool{}, refused: map[string]int{}}, &callLog{}
	b, err := remote.Dial(w.ctx, remote.Config{Token: key, Addresses: []string{one, two}, PlainText: true, Dial: f.dial, Log: slog.New(lines)})
	w.must(err)
	defer func() { w.must(b.Close()) }()
	session, err := b.Join(w.ctx, fakeWorker{}, api.Offer{Name: "w", Tenant: tenant, Workflows: []string{"flow"}})
	w.must(err)

	f.mu.Lock()
	f.closed[one], f.closed[two] = true, true
	f.mu.Unlock()
	w.pipe.cut()
	// The pauses of gRPC grow, so the next attempt over the old connection is far away.
	w.until("the pauses have grown", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		grown := f.refused[one] > 5 && f.refused[two] > 5
		if grown {
			delete(f.closed, two)
		}
		return grown
	})

	w.must(session.Leave(context.WithoutCancel(w.ctx)))
	if log := lines.text(); strings.Contains(log, "no server answers") {
		t.Errorf("the worker has not left in order:\n%s", log)
	}
}
