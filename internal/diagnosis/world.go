package diagnosis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// World is the live nodes, with their code and the shards that they own.
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

// Now returns the store's time of the view.
func (w *World) Now() model.Time { return w.view.Now }

// Live returns the live nodes.
func (w *World) Live() []*store.Member { return w.live }

// Owner returns the live node that owns a shard; nil if no live node does.
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

// NeedsPin reports whether the version that a run is pinned to decides which node can continue it.
// That is so if some node continues only runs of its own version of the workflow.
func (w *World) NeedsPin(a model.Address) bool {
	for _, m := range w.live {
		if slices.ContainsFunc(m.Serves, func(s store.Served) bool { return canRun(&s, a) && s.Pinned }) {
			return true
		}
	}
	return false
}

// WhyUnowned returns why no node works on a shard. ok is false if a live node owns it.
func (w *World) WhyUnowned(shard model.ShardID) (why model.Reason, ok bool) {
	if w.Owner(shard) != nil {
		return why, false
	}
	why = model.Reason{Code: model.WaitOwner, Name: strconv.Itoa(int(shard))}
	group := w.view.Layout().GroupOf(shard)
	switch i := slices.IndexFunc(w.view.Owners, func(o store.ShardOwner) bool { return o.Shard == shard && o.Node != model.NodeID{} }); {
	case len(w.live) == 0:
		why.Where = "no process is alive"
	case !slices.ContainsFunc(w.live, func(m *store.Member) bool { return m.TakesGroup(group) }):
		why.Where = "no live process serves the shard group " + group
	case i >= 0:
		why.Where = w.view.Owners[i].Node.String() + " owned it and has lost its lease"
	}
	return why, true
}

// WhyNoCode returns why no node runs the code of an execution, an entity or a service. ok is false
// if the owner of its shard has the code, or lets another node run it. ok is also false if the
// shard has no owner (see WhyUnowned). waits are the reasons that the owner gives. pin is the
// version that a run is pinned to; empty if it is not pinned.
func (w *World) WhyNoCode(shard model.ShardID, a model.Address, pin string, waits []model.Reason) (why model.Reason, ok bool) {
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
		if !has(m, a, pin) {
			continue
		}
		// A worker of that node should join the owner. If none has joined yet, the owner reports
		// that it waits for a worker.
		if !slices.ContainsFunc(waits, func(o model.Reason) bool { return o.Code == model.WaitWorker && o.Name == why.Name }) {
			return model.Reason{}, false
		}
		why.Code = model.WaitElsewhere
		why.Where = process(owner) + " owns its shard and has no code for it, " + process(m) + " has, and its workers have not joined the owner"
		return why, true
	}
	why.Where = "no live process has its code"
	return why, true
}

// WhyUnserved returns why no worker of any node executes a task. ok is false if a worker does.
func (w *World) WhyUnserved(tenant string, t *model.TaskSpec) (why model.Reason, ok bool) {
	for _, m := range w.live {
		for i := range m.Serves {
			s := &m.Serves[i]
			if s.Worker != "" && s.Tenant == tenant && slices.Contains(s.Queues, t.Queue) && model.Executes(s.Activities, t.Kind) {
				return why, false
			}
		}
	}
	return model.Reason{
		Code: model.WaitWorker, Name: t.Kind, Detail: "queue " + t.Queue + ", activity", Where: "no live process serves it",
	}, true
}

// WhyNoProcess returns why no live node would run an execution, regardless of its shard. ok is
// false if some node would, or if no node is alive. t is set for a standalone task.
func (w *World) WhyNoProcess(a model.Address, t *model.TaskSpec) (why model.Reason, ok bool) {
	if len(w.live) == 0 {
		return why, false // the store of a stopped program
	}
	if t != nil {
		return w.WhyUnserved(a.Tenant, t)
	}
	if slices.ContainsFunc(w.live, func(m *store.Member) bool { return has(m, a, "") }) {
		return why, false
	}
	return model.Reason{Code: model.WaitWorker, Name: a.Type, Where: "no live process has its code"}, true
}

// has reports whether a node has the code of an address, in the version that a run is pinned to.
func has(m *store.Member, a model.Address, pin string) bool {
	return slices.ContainsFunc(m.Serves, func(s store.Served) bool {
		return canRun(&s, a) && (!s.Pinned || pin == "" || s.Version == pin)
	})
}

func canRun(s *store.Served, a model.Address) bool {
	return s.Worker == "" && (s.Tenant == a.Tenant || s.Tenant == model.EveryTenant) && s.Workflow == a.Type
}

// process names a node for people: its host and process id, and its id.
func process(m *store.Member) string {
	return fmt.Sprintf("%s:%d (%s)", m.Host, m.PID, m.ID)
}

// Bounds of the description of live processes.
const (
	maxProcesses = 8
	maxNames     = 12
)

// Alive describes which code each live process has for a tenant, so that people see what is
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

// codeOf lists the code of a node.
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
