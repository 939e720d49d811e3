package remote

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// outage is what a worker knows about its servers while roles leave. The lock of the work guards
// it.
//
// A role may leave while there is no stream. In that case the worker tries to connect at once. If a
// server answers, the role leaves in order. If no server answers this attempt, a role that has
// nothing for a server is done, and so are further such roles that leave during the same outage. A
// role that has something waits for a server until its caller gives up.
type outage struct {
	leaving int // how many roles leave at this moment
	// trying says that an attempt runs that began while a role was leaving.
	trying bool
	// alone says that no server has answered such an attempt. The next stream ends it.
	alone  bool
	missed chan struct{} // closed when another such attempt has failed
}

// beginLeave notes that a role leaves. A pause of the worker ends, unless the worker knows already
// that no server answers.
func (w *Work) beginLeave() {
	w.mu.Lock()
	w.outage.leaving++
	alone := w.outage.alone
	w.mu.Unlock()
	if alone {
		return
	}
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// endLeave notes that a role has left, or has given up.
func (w *Work) endLeave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outage.leaving--
}

// giveUp notes that the caller of a role no longer waits for an answer to its leave. If an attempt
// to connect has hung in the meantime, the roles that leave after this one do not wait for it too.
func (w *Work) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outage.alone = w.outage.alone || w.outage.trying
}

// isAlone reports whether no server answers, and returns a channel that is closed when another
// attempt has failed.
func (w *Work) isAlone() (alone bool, missed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outage.alone, w.outage.missed
}

// connect opens a stream and serves it until it ends. connected says that the server has answered.
func (w *Work) connect(ctx context.Context) (connected bool, err error) {
	w.mu.Lock()
	leaving := w.outage.leaving > 0
	w.outage.trying = leaving
	w.mu.Unlock()

	fresh := w.isFresh()
	connected, err = w.stream(ctx, w.conn)
	if leaving && !fresh && !connected && unreachable(err) {
		connected, err = w.streamAnew(ctx)
	}

	answered := isAnswer(err)
	err = wire.ReadStatus(err)
	if leaving && !connected {
		w.miss(!answered || isFinal(err))
	}
	return connected, err
}

// isFresh reports whether an attempt over the connection would try each address of the servers. In
// any other state, gRPC may return the error of an earlier attempt.
func (w *Work) isFresh() bool {
	c, ok := w.conn.(interface{ GetState() connectivity.State })
	return w.redial == nil || ok && c.GetState() == connectivity.Idle
}

// streamAnew is stream over a connection of its own, which tries each address of the servers once.
func (w *Work) streamAnew(ctx context.Context) (connected bool, err error) {
	conn, err := w.redial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	return w.stream(ctx, conn)
}

// miss notes that an attempt to connect, which began while a role was leaving, has failed. alone
// says that no server has answered, or that the server refuses the worker permanently.
func (w *Work) miss(alone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outage.trying, w.outage.alone = false, w.outage.alone || alone
	close(w.outage.missed)
	w.outage.missed = make(chan struct{})
}

// setReleased notes that the worker has given back a run, or that it continues with the run because
// there was news.
func (r *workflowRole) setReleased(run model.RunID, local uint64, released bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.held[run]; ok && h.local == local {
		h.released = released
		r.held[run] = h
	}
}

// idle reports whether the worker has given back all its runs, and keeps nothing of runs that the
// server has lost.
func (r *workflowRole) idle() bool {
	keeper, _ := r.worker.(api.Keeper)
	r.mu.Lock()
	for _, h := range r.held {
		if !h.released {
			r.mu.Unlock()
			return false
		}
	}
	left := maps.Clone(r.left)
	r.mu.Unlock()

	return !slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(run model.RunID) bool {
		return time.Since(left[run].since) <= leftFor && (keeper == nil || keeper.Keeps(run))
	})
}
