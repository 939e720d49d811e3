package remote

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// entityRole is the session of a worker that has the code of entities and services, over the wire.
//
// A server gives a worker a group of calls, which is a hand-over. A restarted server hands out the
// same calls again, while the worker may still be running them. In that case the role does not run
// them a second time: it answers the new hand-over with the results of the old one.
type entityRole struct {
	*membership

	worker api.EntityWorker

	mu   sync.Mutex
	last uint64 // the last number that the role gave to the worker
	// held are the hand-overs that the worker has not reported, by the worker's number.
	held map[uint64]*handOver
	// reported are the last hand-overs that the worker has reported, by the server's number. The
	// server may die before it takes a report.
	reported recent[uint64, *handOver]
	losses   int // how often the server has lost the session
	// left are the hand-overs of sessions that the server has lost, by entity.
	left map[model.Address][]*handOver
}

// keepLeft is how long the role keeps results for the next server after it has lost a session. A
// restarted server hands its calls out within that time.
const keepLeft = time.Minute

// handOver is a group of calls of one entity that the worker runs.
type handOver struct {
	server uint64 // the server's number, which a restarted server may use again
	lost   bool   // the server that handed it over is gone
	loss   int    // entityRole.losses at the time when the role began to keep it
	entity model.Address
	calls  model.CallsKey
	// result and next belong to a lost hand-over. result has its results. next is the hand-over of
	// the same calls by the next server, which gets the results.
	result *pb.Operated
	next   *handOver
}

func newEntityRole(m *membership, worker api.EntityWorker) *entityRole {
	return &entityRole{membership: m, worker: worker, held: map[uint64]*handOver{}, left: map[model.Address][]*handOver{}}
}

func (r *entityRole) member() *membership { return r.membership }
func (r *entityRole) resume()             {}
func (r *entityRole) refuse(error)        {}

// idle reports whether no call runs, and the role has no results that the next server would ask
// for.
func (r *entityRole) idle() bool {
	on, _ := r.current()
	r.mu.Lock()
	busy := len(r.held)+len(r.left) > 0
	r.mu.Unlock()
	return !busy && !slices.ContainsFunc(on.Unacknowledged(), func(item *pb.WorkerItem) bool { return item.GetOperated() != nil })
}

// lost keeps the running hand-overs, and the results that the server has not taken, for the next
// server.
func (r *entityRole) lost(unsent []*pb.WorkerItem) *pb.Join {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses++
	loss := r.losses
	for _, all := range r.left { // the loop over r.held keeps the calls that still run
		for _, h := range all {
			if h.result == nil {
				r.settle(h)
			}
		}
	}
	reported := r.reported.take()
	for _, item := range unsent {
		if m := item.GetOperated(); m != nil && reported[m.GetGeneration()] != nil {
			h := reported[m.GetGeneration()]
			h.result = m
			r.keep(h)
		}
	}

	for _, h := range r.held {
		h.lost, h.next = true, nil
		r.keep(h)
	}

	join := &pb.Join{}
	for entity := range r.left {
		join.HeldEntities = append(join.HeldEntities, wire.Address(entity))
	}
	time.AfterFunc(keepLeft, func() { r.forgetResults(loss) })
	return join
}

// keep keeps a hand-over of a lost session. The caller holds the lock.
func (r *entityRole) keep(h *handOver) {
	h.loss = r.losses
	r.left[h.entity] = append(r.left[h.entity], h)
}

// forgetResults drops the results that the role has kept since a loss of a session, and that no
// server has asked for. It runs keepLeft after the loss.
func (r *entityRole) forgetResults(loss int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.left {
		for _, h := range all {
			if h.result != nil && h.loss <= loss {
				r.settle(h)
			}
		}
	}
}

// settle forgets a hand-over of a lost session. The caller holds the lock.
func (r *entityRole) settle(h *handOver) {
	r.left[h.entity] = slices.DeleteFunc(slices.Clone(r.left[h.entity]), func(x *handOver) bool { return x == h })
	if len(r.left[h.entity]) == 0 {
		delete(r.left, h.entity)
	}
}

func (r *entityRole) operate(m *pb.Operations) error {
	if r == nil {
		return errNoRole
	}
	o := wire.ReadOperations(r.w.tenantOf(), m)
	h := &handOver{server: o.Generation, entity: o.Entity, calls: o.Key()}
	r.mu.Lock()
	i := slices.IndexFunc(r.left[o.Entity], func(old *handOver) bool { return old.next == nil && old.calls.Begins(h.calls) })
	if i < 0 {
		r.last++
		o.Generation = r.last
		r.held[r.last] = h
		r.mu.Unlock()
		r.worker.Operate(o)
		return nil
	}

	// The worker runs these calls, or has run them. If the hand-over has further calls, the server
	// will hand those out again.
	old := r.left[o.Entity][i]
	result := old.result
	if result == nil {
		old.next = h
	} else {
		r.settle(old)
		r.reported.add(h.server, h)
	}
	r.mu.Unlock()
	if result != nil {
		result.Generation = h.server
		r.post(&pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: result}})
	}
	return nil
}

// interrupter is a worker that can interrupt calls.
type interrupter interface {
	Interrupt(i model.Interruption)
}

// interrupt interrupts a call that the worker runs for this server.
func (r *entityRole) interrupt(m *pb.Interruption) error {
	if r == nil {
		return errNoRole
	}
	worker, ok := r.worker.(interrupter)
	if !ok {
		return nil
	}

	i := wire.ReadInterruption(r.w.tenantOf(), m)
	if number, ok := r.numberOf(&i); ok {
		i.Generation = number
		worker.Interrupt(i)
	}
	return nil
}

// numberOf returns the worker's number of a hand-over. The worker may have started these calls for
// a server that is gone. In that case the number is that of the old hand-over, which has the first
// calls of the new one.
func (r *entityRole) numberOf(i *model.Interruption) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for number, h := range r.held {
		if h.lost {
			if h = h.next; h == nil {
				continue
			}
		}
		if h.server == i.Generation && h.entity == i.Entity {
			return number, true
		}
	}
	return 0, false
}

// FinishCalls reports the results of operations.
func (r *entityRole) FinishCalls(ctx context.Context, o model.Operated) error {
	results := r.fit(&o)
	r.mu.Lock()
	h := r.held[o.Generation]
	delete(r.held, o.Generation)
	if h != nil && h.lost {
		next := h.next
		if next == nil { // no server waits for the results yet; the next server may ask for them
			h.result = results
			r.mu.Unlock()
			return nil
		}
		r.settle(h)
		h = next
	}
	if h != nil {
		r.reported.add(h.server, h)
	}
	r.mu.Unlock()
	if h == nil {
		return errLost
	}

	results.Generation = h.server
	return r.send(ctx, &pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: results}})
}

// fit returns the results in a form that the server accepts. If they are too large, it reports all
// calls as failed, so that they have no effect.
func (r *entityRole) fit(o *model.Operated) *pb.Operated {
	results := wire.Operated(o)
	err := r.w.tooLarge(&pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: results}})
	if err == nil {
		return results
	}
	f := &model.Failure{Kind: model.FailureInvalid, Message: "results of the calls: " + err.Error(), Permanent: true}
	failed := model.Operated{Entity: o.Entity, Results: make([]model.OperationResult, len(o.Results))}
	for i := range failed.Results {
		failed.Results[i].Failure = f
	}
	return wire.Operated(&failed)
}

// Leave ends the role once the running calls have been reported.
func (r *entityRole) Leave(ctx context.Context) error { return r.leave(ctx, r.idle) }

// Lose ends the connection of the worker, with all its roles, without handing anything back.
func (r *entityRole) Lose(func() []uint64) { r.w.Close() }
