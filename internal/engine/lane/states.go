package lane

import "github.com/perdure/perdure/internal/model"

// States is a snapshot of a lane for metrics.
type States struct {
	Bytes       int                     // bytes of inputs that wait or are not committed
	Quarantined int                     // quarantined addresses
	Entities    map[string]EntityStates // by type
	// RunsInLine and EntitiesInLine wait for a free slot of a worker.
	RunsInLine, EntitiesInLine int
}

// States returns a snapshot of the lane for metrics.
func (l *Lane) States() States {
	runs, entities := l.workers.inLine()
	return States{Bytes: l.PendingBytes(), Quarantined: l.quarantined.len(), Entities: l.entityStates(), RunsInLine: runs, EntitiesInLine: entities}
}

// EntityStates counts the entities of a type that a lane has in memory.
type EntityStates struct {
	Loaded  int
	Calls   int // waiting calls that no worker has
	Locked  int
	Waiters int // sections that wait for a lock
}

// entityStates counts the entities in memory, by type.
func (l *Lane) entityStates() map[string]EntityStates {
	all := map[string]EntityStates{}
	for _, e := range l.entries {
		if !e.isEntity() || e.actor.entity == nil {
			continue
		}

		s := all[e.address.Type]
		s.Loaded++
		if e.actor.entity.Row.Locked() {
			s.Locked++
		}
		for _, it := range e.actor.entity.Mail() {
			switch {
			case it.Message.Kind == model.MessageLock:
				s.Waiters++
			case !it.HasBegun():
				s.Calls++
			}
		}
		all[e.address.Type] = s
	}
	return all
}
