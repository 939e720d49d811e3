package remote

import (
	"context"
	"time"

	"google.golang.org/grpc/peer"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
)

// drain makes the worker finish what it runs, because the server asks for it. The server gives the
// worker nothing new and ends the session. After that the worker connects again and continues.
func (w *Work) drain(m *pb.Drain) {
	w.cfg.Log.Info("the server asks the worker to finish what it runs and to connect again", "within", time.Duration(m.GetPatience()))
	if d := w.drainer(); d != nil {
		d.Drain()
	}
	w.mu.Lock()
	w.drained = true
	w.mu.Unlock()
}

// moveOn makes the next stream go to another server, if this one has asked the worker to drain.
func (w *Work) moveOn(stream context.Context) {
	w.mu.Lock()
	drained := w.drained
	w.mu.Unlock()
	if server, ok := peer.FromContext(stream); ok && drained {
		w.servers.leave(server.Addr)
	}
}

// resume ends drain in the next session.
func (w *Work) resume() {
	w.mu.Lock()
	drained := w.drained
	w.drained = false
	w.mu.Unlock()
	if d := w.drainer(); drained && d != nil {
		d.Resume()
	}
}

// drainer returns the worker of workflows, if it can drain. Workers of tasks and entities need not
// do anything: they finish what they have, and the server gives them nothing new.
func (w *Work) drainer() api.Drainer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.workflows == nil {
		return nil
	}
	d, _ := w.workflows.worker.(api.Drainer)
	return d
}
