package store

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Workers stores the names of the remote workers of servers. A remote worker may outlive its
// server. The next owner of a shard must know whether such a worker may still hold runs or claims
// of the last owner. A server stores the name of a worker before it hands anything over to it, and
// removes the name when the worker no longer holds anything. When a server dies, the names of its
// workers stay. Each name is removed when its worker has joined another server, or has not appeared
// for too long.
type Workers interface {
	// NameWorkers adds names and then removes names, in one transaction. Adding a name that is
	// already stored has no effect, and neither has removing a name that is not stored. NameWorkers
	// refuses names that are empty or longer than MaxWorkerName.
	NameWorkers(ctx context.Context, w WorkerNames) error
	// WorkerHomes returns the homes of all stored workers, each home once, in the order of their
	// ids.
	WorkerHomes(ctx context.Context) ([]model.NodeID, error)
}

// MaxWorkerName is how many bytes the name of a remote worker may have.
const MaxWorkerName = 64

// WorkerName is the name of a remote worker and its home: the process of its server, see
// NodeInfo.Home.
type WorkerName struct {
	Name string
	Home model.NodeID
}

// WorkerNames is a change of names.
type WorkerNames struct {
	Add    []WorkerName
	Remove []string
	// Drop are homes. All names of these homes are removed.
	Drop []model.NodeID
}

// Check refuses names that cannot be stored.
func (w *WorkerNames) Check(op string) error {
	for i := range w.Add {
		if n := len(w.Add[i].Name); n == 0 || n > MaxWorkerName {
			return Errorf(Refused, op, "the name of a worker has %d bytes, the limits are 1 and %d", n, MaxWorkerName)
		}
	}
	return nil
}
