package remote

import (
	"context"
	"sync"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// entityRole is the session of a worker that has the code of entities and services, over the wire.
type entityRole struct {
	*membership

	worker api.EntityWorker

	mu   sync.Mutex
	last uint64 // number that was given to the worker
	// held are the hand-overs that the worker has not reported: its number, and that of the server,
	// which a restarted server may use again.
	held map[uint64]uint64
}

func (r *entityRole) member() *membership { return r.membership }
func (r *entityRole) rejoined()           {}

// lost has the reports of what the worker is still doing go nowhere: others make those calls.
func (r *entityRole) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
}

func (r *entityRole) operate(m *pb.Operations) error {
	if r == nil {
		return errNoRole
	}
	o := wire.ReadOperations(r.w.tenantOf(), m)
	r.mu.Lock()
	r.last++
	r.held[r.last] = o.Generation
	o.Generation = r.last
	r.mu.Unlock()
	r.worker.Operate(o)
	return nil
}

// FinishCalls reports the results of operations.
func (r *entityRole) FinishCalls(ctx context.Context, o model.Operated) error {
	r.mu.Lock()
	server, held := r.held[o.Generation]
	delete(r.held, o.Generation)
	r.mu.Unlock()
	if !held {
		return errLost
	}

	o.Generation = server
	item := &pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: wire.Operated(&o)}}
	if err := r.w.tooLarge(item); err != nil { // nothing of the calls has happened
		f := &model.Failure{Kind: model.FailureInvalid, Message: "results of the calls: " + err.Error(), Permanent: true}
		failed := model.Operated{Entity: o.Entity, Generation: server, Results: make([]model.OperationResult, len(o.Results))}
		for i := range failed.Results {
			failed.Results[i].Failure = f
		}
		item = &pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: wire.Operated(&failed)}}
	}

	return r.w.send(ctx, item)
}

// Leave ends the role once the running calls have been reported.
func (r *entityRole) Leave(ctx context.Context) error { return r.leave(ctx) }
