package authz

import (
	"maps"
	"slices"
)

// routes are the requests of the HTTP contract of the Flovyn protocol, with the action of each. The
// two dialects of the protocol, in which a tenant is called an organization or a tenant, share
// these routes. All actions here also exist in the table.
var routes = map[string]Action{
	"POST orgs":                                                      "tenant:write",
	"orgs/{slug}/agent-executions":                                   "execution:read",
	"GET orgs/{slug}":                                                "server:describe",
	"POST orgs/{slug}/worker-tokens":                                 "token:create",
	"GET orgs/{slug}/workers":                                        "worker:read",
	"GET orgs/{slug}/workers/{id}":                                   "worker:read",
	"GET orgs/{slug}/workflow-definitions":                           "worker:read",
	"GET orgs/{slug}/workflow-definitions/{kind}":                    "worker:read",
	"GET orgs/{slug}/task-definitions":                               "worker:read",
	"GET orgs/{slug}/task-definitions/{kind}":                        "worker:read",
	"GET orgs/{slug}/workflow-executions":                            "execution:read",
	"POST orgs/{slug}/workflow-executions":                           "execution:start",
	"POST orgs/{slug}/workflows/{kind}/trigger":                      "execution:start",
	"POST orgs/{slug}/workflow-executions/signal-with-start":         "execution:start",
	"GET orgs/{slug}/workflow-executions/{id}":                       "execution:read",
	"GET orgs/{slug}/workflow-executions/{id}/events":                "execution:read",
	"GET orgs/{slug}/workflow-executions/{id}/state":                 "execution:read",
	"GET orgs/{slug}/workflow-executions/{id}/tasks":                 "execution:read",
	"GET orgs/{slug}/workflow-executions/{id}/children":              "execution:read",
	"GET orgs/{slug}/workflow-executions/{id}/stream":                "execution:read",
	"GET orgs/{slug}/workflow-executions/{id}/stream/consolidated":   "execution:read",
	"POST orgs/{slug}/workflow-executions/{id}/signal":               "execution:signal",
	"POST orgs/{slug}/workflow-executions/{id}/cancel":               "execution:cancel",
	"POST orgs/{slug}/workflow-executions/{id}/retry":                "execution:fork",
	"GET orgs/{slug}/workflow-executions/{id}/tasks/{task}/logs":     "task:read",
	"GET orgs/{slug}/workflow-executions/{id}/tasks/{task}/attempts": "task:read",
	"POST orgs/{slug}/promises/{id}/resolve":                         "promise:settle",
	"POST orgs/{slug}/promises/{id}/reject":                          "promise:settle",
	"GET orgs/{slug}/task-executions":                                "execution:read",
	"POST orgs/{slug}/task-executions":                               "execution:start",
	"GET orgs/{slug}/task-executions/{task}":                         "execution:read",
	"DELETE orgs/{slug}/task-executions/{task}":                      "execution:cancel",
	"GET orgs/{slug}/task-executions/{task}/logs":                    "task:read",
	"GET orgs/{slug}/task-executions/{task}/attempts":                "task:read",
	"GET orgs/{slug}/task-executions/{task}/stream":                  "task:read",
}

// ByRoute returns the row of a request of the Flovyn contract, or nil if there is none.
func ByRoute(name string) *Rule { return rows.actions[routes[name]] }

// Routes lists the requests of the Flovyn contract that have a row, in order.
func Routes() []string { return slices.Sorted(maps.Keys(routes)) }
