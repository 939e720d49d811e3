package diagnosis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// World is the nodes that are alive, with the code that they have and the shards that they own.
type World struct {
	view store.View
	live []*store.Member
}

// NewWorld returns the world that a view of the store shows.
func NewWorld(view store.View) *World {
	w := &World{view: view}
	for i := range view.Members {
		if m := &view.Members[i]; m.Expires >= view.Now {
			w.live = append(w.live, m)
		}
	}
	return w
}

// Now is the store's time of the view.
func (w *World) Now() model.Time { return w.view.Now }

// Owner is the live node that owns a shard; nil when there is none.
func (w *World) Owner(shard model.ShardID) *store.Member {
	for _, o := range w.view.Owners {
		if o.Shard != shard {
			continue
		}
		for _, m := range w.live {
			if m.ID == o.Node && m.Epoch == o.Epoch {
				return m
			}
		}
	}
	return nil
}

// NeedsPin reports whether the version that a run is pinned to decides who can continue it: some
// node continues only runs of its own version of the workflow.
func (w *World) NeedsPin(a model.Address) bool {
	for _, m := range w.live {
		if slices.ContainsFunc(m.Serves, func(s store.Served) bool { return runs(&s, a) && s.Pinned }) {
			return true
		}
	}
	return false
}

// Unowned is why nobody works on a shard; ok is false when a live node owns it.
func (w *World) Unowned(shard model.ShardID) (why model.Reason, ok bool) {
	if w.Owner(shard) != nil {
		return why, false
	}
	why = model.Reason{Code: model.WaitOwner, Name: strconv.Itoa(int(shard))}
	switch i := slices.IndexFunc(w.view.Owners, func(o store.ShardOwner) bool { return o.Shard == shard && o.Node != model.NodeID{} }); {
	case len(w.live) == 0:
		why.Where = "no process is alive"
	case i >= 0:
		why.Where = w.view.Owners[i].Node.String() + " owned it and has lost its lease"
	}
	return why, true
}

// Lacks is why nobody can run the code of an execution, an entity or a service; ok is false when
// the owner of its shard can. pin is the version that a run is pinned to; empty when it is not
// pinned.
func (w *World) Lacks(shard model.ShardID, a model.Address, pin string) (why model.Reason, ok bool) {
	owner := w.Owner(shard)
	if owner == nil || has(owner, a, pin) {
		return why, false
	}

	why = model.Reason{Code: model.WaitWorker, Name: a.Type}
	if word, name, cut := strings.Cut(a.Type, ":"); cut && a.IsEntity() {
		why.Name, why.Detail = name, word
	} else if pin != "" && slices.ContainsFunc(w.live, func(m *store.Member) bool { return has(m, a, "") }) {
		why.Detail = "version " + pin + " of workflow"
	}

	for _, m := range w.live {
		if has(m, a, pin) {
			why.Code = model.WaitElsewhere
			why.Where = process(owner) + " owns its shard and has no code for it, " + process(m) + " has"
			return why, true
		}
	}
	why.Where = "no live process has its code"
	return why, true
}

// Unserved is why no worker of any node executes a task; ok is false when one does.
func (w *World) Unserved(tenant string, t *model.TaskSpec) (why model.Reason, ok bool) {
	for _, m := range w.live {
		for i := range m.Serves {
			s := &m.Serves[i]
			if s.Worker != "" && s.Tenant == tenant && slices.Contains(s.Queues, t.Queue) && slices.Contains(s.Activities, t.Kind) {
				return why, false
			}
		}
	}
	return model.Reason{
		Code: model.WaitWorker, Name: t.Kind, Detail: "queue " + t.Queue + ", activity", Where: "no live process serves it",
	}, true
}

// Missing is why no live node would run an execution, whichever shard it is in; ok is false when
// one would. t is set for a task that stands alone.
func (w *World) Missing(a model.Address, t *model.TaskSpec) (why model.Reason, ok bool) {
	if len(w.live) == 0 {
		return why, false // the store of a program that is stopped
	}
	if t != nil {
		return w.Unserved(a.Tenant, t)
	}
	if slices.ContainsFunc(w.live, func(m *store.Member) bool { return has(m, a, "") }) {
		return why, false
	}
	return model.Reason{Code: model.WaitWorker, Name: a.Type, Where: "no live process has its code"}, true
}

// has reports whether a node has the code of an address, and the version that a run is pinned to.
func has(m *store.Member, a model.Address, pin string) bool {
	return slices.ContainsFunc(m.Serves, func(s store.Served) bool {
		return runs(&s, a) && (!s.Pinned || pin == "" || s.Version == pin)
	})
}

func runs(s *store.Served, a model.Address) bool {
	return s.Worker == "" && s.Tenant == a.Tenant && s.Workflow == a.Type
}

// process names a node for people: its host and process id, and its id.
func process(m *store.Member) string {
	return fmt.Sprintf("%s:%d (%s)", m.Host, m.PID, m.ID)
}

// Bounds of what is said about the processes that are alive.
const (
	maxProcesses = 8
	maxNames     = 12
)

// Alive says of each live process which code it has for a tenant. It helps people to see what is
// missing.
func (w *World) Alive(tenant string) []string {
	if len(w.live) == 0 {
		return []string{"no process is alive"}
	}

	var lines []string
	for i, m := range w.live {
		if i == maxProcesses {
			lines = append(lines, fmt.Sprintf("%d more processes are alive", len(w.live)-i))
			break
		}
		lines = append(lines, process(m)+" is alive and has "+codeOf(m, tenant))
	}
	return lines
}

// codeOf lists the code that a node has.
func codeOf(m *store.Member, tenant string) string {
	var workflows, entities, activities []string
	for i := range m.Serves {
		s := &m.Serves[i]
		switch {
		case s.Tenant != tenant:
		case s.Worker != "":
			for _, kind := range s.Activities {
				activities = append(activities, kind+" on queue "+strings.Join(s.Queues, ", "))
			}
		case model.Address{Type: s.Workflow}.IsEntity():
			entities = append(entities, strings.TrimPrefix(s.Workflow, model.EntityPrefix))
		default:
			workflows = append(workflows, strings.TrimSpace(s.Workflow+" "+s.Version))
		}
	}

	var parts []string
	for _, list := range []struct {
		word  string
		names []string
	}{{"workflows", workflows}, {"entities", entities}, {"activities", activities}} {
		if n := len(list.names); n > maxNames {
			list.names = append(list.names[:maxNames:maxNames], fmt.Sprintf("and %d more", n-maxNames))
		}
		if len(list.names) > 0 {
			parts = append(parts, list.word+" "+strings.Join(list.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "no code"
	}
	return strings.Join(parts, "; ")
}
