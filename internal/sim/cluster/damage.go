package cluster

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// damage replaces rows of a result by rows that no build can read.
func (p *Proc) damage(ld *lane.Load, r *lane.LoadResult) {
	if r.Err != nil {
		return
	}
	switch s := p.Cluster; {
	case ld.Kind == lane.LoadMail:
		for i := range r.Messages {
			s.DamageMessage(&r.Messages[i])
		}
	case ld.Kind == lane.LoadReply && r.Reply != nil:
		s.DamageReply(r.Reply)
	case ld.Kind == lane.LoadDeadTask && r.DeadTask != nil && s.IsDeadDamaged(r.DeadTask.DeadKey):
		r.DeadTask, r.Err = nil, fault.New(fault.Corrupt, "dead task %q of run %s: the body is no dead task", ld.Task, ld.Run)
	}
}

// damageSettings replaces settings by settings that no build can read. An operator notices the
// damage, and restores the settings after a while.
func (s *Cluster) damageSettings(list []store.Setting) {
	for i := range list {
		x := &list[i]
		bad, fresh := s.IsSettingDamaged(x)
		if fresh {
			was := *x
			s.After(s.Between(20, 800)*kernel.Millisecond, nil, func() { s.restoreSetting(was) })
			if s.Tracing {
				s.Logf("store    setting %s version %d is damaged", x.SettingKey, x.Version)
			}
		}
		if bad {
			x.Damaged, x.Body = &model.Damaged{Raw: x.Body, Why: "the body is no setting"}, []byte{}
		}
	}
}

// restoreSetting writes a damaged setting again, unless a user or a node has already replaced it.
func (s *Cluster) restoreSetting(x store.Setting) {
	list, err := s.Disk.Mem.ListSettings(context.Background(), x.Tenant, x.Kind)
	if err != nil {
		s.Fail("settings: %v", err)
	}
	for i := range list {
		if list[i].SettingKey != x.SettingKey || list[i].Version != x.Version {
			continue
		}
		if _, err := s.putSetting(x, x.Version); err != nil {
			s.Fail("setting %s cannot be restored: %v", x.SettingKey, err)
		}
		s.Did(scenario.OpRestored)
	}
}

// expects reports whether a line of the log is allowed, because it says that a setting cannot be
// read.
func (c complaints) expects(text string) bool {
	return c.p.Cluster.Has(scenario.Damage) && (strings.HasPrefix(text, "a rule for tasks cannot be used") ||
		strings.HasPrefix(text, "the state of a circuit breaker cannot be read") || strings.HasPrefix(text, "the limits of tasks cannot be read"))
}
