package cluster

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/worker"
)

// Cluster is three processes on one shared store.
type Cluster struct {
	*oracle.Oracle

	Disk     *disk.Disk
	Procs    [3]*Proc // by slot; nil while down
	pids     int
	readings []*reading // readings that are free to be used again
	Leaving  bool       // all nodes shut down
	Upgraded bool       // processes that start now are of the newer build
	Visitor  visitor

	nodeIDs map[string]model.NodeID       // of all nodes that ever existed, by name
	lives   map[model.NodeID]*incarnation // all incarnations that have begun
	hands   map[string]*hand              // all hands that ever existed, by name
	remotes []*worker.Worker              // all workers ever, if workers outlive processes
	seekers map[*worker.Worker]bool       // the remotes that look for a process
}

// New returns a cluster without processes. Its store has the settings of the scenario.
func New(o *oracle.Oracle) *Cluster {
	s := &Cluster{Oracle: o, Disk: disk.New(o), nodeIDs: map[string]model.NodeID{}, lives: map[model.NodeID]*incarnation{}, hands: map[string]*hand{}, seekers: map[*worker.Worker]bool{}}
	for i := range s.Settings {
		// fails if the setting exists already
		_, _ = s.Disk.Mem.PutSetting(context.Background(), s.Settings[i], 0)
	}
	return s
}

// DumpIf adds the state of all lanes to the trace, if there is one.
func (s *Cluster) DumpIf() {
	if s.Tracing {
		s.Dump()
	}
}
