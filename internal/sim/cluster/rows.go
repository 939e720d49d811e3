package cluster

import (
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// unreadable returns the error of a read, if the process cannot decode the row of the run or
// entity, or does not know an event of the run. Otherwise it returns nil.
func (p *Proc) unreadable(ld *lane.Load) error {
	if (ld.Kind == lane.LoadRun || ld.Kind == lane.LoadEntity) && p.Cluster.Disk.Corrupt[ld.Address] {
		p.Cluster.Hurt(scenario.FaultLoadCorrupt)
		return fault.New(fault.Corrupt, "row of %s cannot be understood", ld.Address)
	}
	if p.Newer || ld.Kind != lane.LoadRun || !p.Cluster.NewEvents[ld.Address] {
		return nil
	}
	p.Cluster.Hurt(scenario.FaultNewEvent)
	return fault.New(fault.Corrupt, "event 1 of %s: %w", ld.Address, model.ErrNewer)
}

// spoil damages the rows of a result that the build of the process cannot read.
func (p *Proc) spoil(ld *lane.Load, r *lane.LoadResult) {
	s := p.Cluster
	if !s.Has(scenario.BadRows) || r.Err != nil {
		return
	}

	switch ld.Kind { //nolint:exhaustive // other kinds are about one run
	case lane.LoadRunnable, lane.LoadTimers, lane.LoadExpired, lane.LoadMailboxes:
		if s.Plan.BadPages {
			s.Hurt(scenario.FaultSkipped)
			var skipped store.Skipped
			skipped.Note(fault.New(fault.Corrupt, "an id is no id"))
			r.Err = skipped.Err("load")
		}
	case lane.LoadMail:
		for i := range r.Messages {
			r.Messages[i].Damaged = p.newKindOf(&r.Messages[i].Message)
		}
		for i := range r.Inbox {
			row := &r.Inbox[i]
			if row.Damaged = p.newKindOf(&row.Message); row.Damaged == nil && s.IsDamaged(row) {
				row.Damaged = &model.Damaged{Raw: []byte("?"), Why: "the body is no message"}
				row.Message = model.Message{}
			}
		}
	}
}

// newKindOf returns how a process sees a message whose kind it does not know. It returns nil if the
// process knows the kind.
func (p *Proc) newKindOf(m *model.Message) *model.Damaged {
	if p.Newer || !p.Cluster.IsNew(m) {
		return nil
	}
	p.Cluster.Hurt(scenario.FaultNewMessage)
	return &model.Damaged{Raw: model.AppendMessage(nil, m), Why: "a newer build has written it", Newer: true}
}
