package workload

import (
	"github.com/perdure/perdure/internal/sim/cluster"
)

// Workload makes everything that happens to a cluster from outside: the requests of users and
// operators, and the faults.
type Workload struct {
	*cluster.Cluster

	users  []*user
	helper *user // sends runs what they wait for, after the faults have ended
	// opening is the last action that removed permanent obstacles.
	opening *action
}

// New returns the workload of a cluster.
func New(c *cluster.Cluster) *Workload { return &Workload{Cluster: c} }

// Begin schedules the start of the processes, the requests of the users and the faults.
func (s *Workload) Begin() {
	s.Logf("plan %+v", s.Plan)
	for slot := range s.Procs {
		s.After(s.Between(0, s.Plan.Stagger), nil, func() { s.Boot(slot) })
	}
	s.drawUsers()
	if !s.Opts.Calm {
		s.scheduleChaos()
	}
}

// RunFaults runs the events until all faults end.
func (s *Workload) RunFaults() {
	s.RunUntil(s.Plan.FaultsUntil, nil)
	s.heal()
}

// Settle waits until everything has ended.
func (s *Workload) Settle() {
	s.neighboursEnd()
	deadline := s.Now + s.Plan.Patience
	s.RunUntil(deadline, s.finished)
	if !s.finished() {
		s.failStuck()
	}
	s.comeToRest()
}

// Check compares the store with the ledger, and shuts the cluster down.
func (s *Workload) Check() {
	s.CheckEnd()
	s.CheckGroups()
	s.CheckSilence()
	s.CheckFlows()
	s.AwaitOwners()
	s.CheckGone()
	s.CheckForgotten()
	s.LeaveAll()
}
