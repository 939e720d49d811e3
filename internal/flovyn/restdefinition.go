package flovyn

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/perdure/perdure/internal/fault"
)

// definition is a workflow or a task that workers of an organization have registered.
type definition struct {
	capability

	workers []string // ids
}

// definitions returns what the workers of a tenant have registered at this server, by kind. If
// several workers have registered a kind, it uses the description of the last one.
func (w *workers) definitions(tenant string, of func(*workerInfo) []capability) []definition {
	all := w.list(tenant)
	slices.SortFunc(all, func(a, b workerInfo) int { return cmp.Or(a.registered.Compare(b.registered), cmp.Compare(a.id, b.id)) })
	byKind := map[string]*definition{}
	for i := range all {
		for _, c := range of(&all[i]) {
			d := byKind[c.kind]
			if d == nil {
				d = &definition{}
				byKind[c.kind] = d
			}
			d.capability = c
			d.workers = append(d.workers, all[i].id)
		}
	}

	list := make([]definition, 0, len(byKind))
	for _, d := range byKind {
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b definition) int { return cmp.Compare(a.kind, b.kind) })
	return list
}

func flowsOf(w *workerInfo) []capability { return w.workflows }
func tasksOf(w *workerInfo) []capability { return w.tasks }

func (d *definition) json() map[string]any {
	m := map[string]any{"kind": d.kind, "name": d.name, "description": d.about, "workerIds": slices.Compact(d.workers), "timeoutSeconds": nil}
	if d.version != "" {
		m["version"] = d.version
	}
	if d.timeout > 0 {
		m["timeoutSeconds"] = int64(d.timeout.Seconds())
	}
	return m
}

func listFlowDefinitions(c *call) (int, any, error) { return c.listDefinitions("workflows", flowsOf) }
func listTaskDefinitions(c *call) (int, any, error) { return c.listDefinitions("tasks", tasksOf) }
func getFlowDefinition(c *call) (int, any, error)   { return c.getDefinition("workflow", flowsOf) }
func getTaskDefinition(c *call) (int, any, error)   { return c.getDefinition("task", tasksOf) }

func (c *call) listDefinitions(name string, of func(*workerInfo) []capability) (int, any, error) {
	list := []any{}
	for _, d := range c.d.workers.definitions(c.org.Tenant, of) {
		list = append(list, d.json())
	}
	return http.StatusOK, map[string]any{name: list, "definitions": list, "total": len(list)}, nil
}

func (c *call) getDefinition(what string, of func(*workerInfo) []capability) (int, any, error) {
	for _, d := range c.d.workers.definitions(c.org.Tenant, of) {
		if d.kind == c.r.PathValue("kind") {
			return http.StatusOK, d.json(), nil
		}
	}
	return 0, nil, fault.New(fault.NotFound, "no worker has registered the %s %.80q", what, c.r.PathValue("kind"))
}
