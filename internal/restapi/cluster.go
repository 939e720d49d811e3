package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// addServer adds the operations that describe the server and the caller.
func (s *Server) addServer() {
	add(s, operation{id: "get-server", method: http.MethodGet, path: "/server", tag: "Server", summary: "Say what the server is"}, s.about)
	add(s, operation{id: "get-me", method: http.MethodGet, path: "/me", tag: "Server", summary: "Say who the caller is and what it may do"}, s.me)
}

// about describes the server.
type about struct {
	Version    string    `json:"version"`
	Time       time.Time `json:"time" doc:"The clock of the server"`
	MaxPayload int       `json:"max_payload" doc:"Bytes of the largest value"`
}

func (s *Server) about(context.Context, *authn.Identity, *nothing) (*reply[about], error) {
	return ok(about{s.config.Version, time.Now().UTC(), s.config.MaxPayload})
}

// me describes the caller.
type me struct {
	Name    string     `json:"name"`
	Tenant  string     `json:"tenant"`
	Admin   bool       `json:"admin"`
	Roles   []string   `json:"roles"`
	Actions []string   `json:"actions" doc:"What the caller may do"`
	Tenants []string   `json:"tenants" doc:"The tenants that the caller may act in, at most 1,000"`
	Session string     `json:"session,omitempty" doc:"The id of the session; absent for a caller with a key or a token"`
	Expires *time.Time `json:"expires,omitempty" doc:"When the key, the token or the session ends"`
}

// mostTenants bounds the tenants that a reply shows to a caller.
const mostTenants = 1000

func (s *Server) me(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[me], error) {
	m := me{Name: who.Name, Tenant: who.Tenant, Admin: who.Admin, Roles: authz.RolesOf(who), Actions: []string{}, Tenants: []string{who.Tenant}, Expires: at(who.Credential.Expires)}
	if len(who.Tenants) > 0 {
		m.Tenants = who.Tenants
	}
	if who.Credential.Kind == authn.BySession {
		m.Session = who.Credential.ID
	}
	if who.Admin && s.config.Admin != nil && authz.Quiet(s.config.Authorizer).Authorize(who, "tenant:read") == nil {
		all, err := s.config.Admin.Tenants(ctx)
		if err != nil {
			return nil, err
		}
		m.Tenants = each(all[:min(len(all), mostTenants)], func(t *api.TenantInfo) string { return t.Name })
	}

	for _, action := range authz.Allowed(s.config.Authorizer, who) {
		m.Actions = append(m.Actions, string(action))
	}
	return ok(m)
}

// addCluster adds the operations on nodes and connected workers.
func (s *Server) addCluster() {
	add(s, operation{id: "list-nodes", method: http.MethodGet, path: "/nodes", tag: adminTag, summary: "List the nodes of the cluster"}, s.listNodes)
	add(s, operation{id: "drain-node", method: http.MethodPost, path: "/nodes/{node}/drain", tag: adminTag, summary: "Ask a node to hand its shards over and to take no others", status: http.StatusAccepted}, s.drainNode)
	add(s, operation{id: "undrain-node", method: http.MethodPost, path: "/nodes/{node}/undrain", tag: adminTag, summary: "Let a node take shards again", status: http.StatusAccepted}, s.undrainNode)
	add(s, operation{id: "list-shards", method: http.MethodGet, path: "/shards", tag: adminTag, summary: "List the shards, their owners, and where they should be"}, s.listShards)
	add(s, operation{id: "rebalance-shards", method: http.MethodPost, path: "/shards/rebalance", tag: adminTag, summary: "Make all nodes check immediately whether shards should move", status: http.StatusAccepted}, s.rebalance)
	add(s, operation{id: "get-health", method: http.MethodGet, path: "/health", tag: adminTag, summary: "Say whether the server can serve, and why not"}, s.health)
	add(s, operation{id: "list-worker-sessions", method: http.MethodGet, path: "/worker-sessions", tag: adminTag, summary: "List the workers that are connected to this server"}, s.listSessions)
	add(s, operation{id: "drain-worker", method: http.MethodPost, path: "/worker-sessions/{session}/drain", tag: adminTag, summary: "Ask a worker to finish and to connect again", status: http.StatusAccepted}, s.drainWorker)
}

// nodeBody is a node.
type nodeBody struct {
	Node     string     `json:"node"`
	Host     string     `json:"host"`
	Version  string     `json:"version,omitempty"`
	Live     bool       `json:"live"`
	Draining bool       `json:"draining"`
	Drained  bool       `json:"drained" doc:"Whether an operator has asked it to hand its shards over"`
	Weight   int        `json:"weight" doc:"Its share of the shards, relative to the other nodes; 0 for a node of an older version"`
	Groups   []string   `json:"groups,omitempty" doc:"The shard groups whose shards it can own"`
	Shards   int        `json:"shards" doc:"The number of shards that it owns"`
	Since    *time.Time `json:"since,omitempty"`
	Expires  *time.Time `json:"expires,omitempty" doc:"The end of its lease"`
	Address  string     `json:"address,omitempty" doc:"The address where it listens; only for the server that answers"`
	Self     bool       `json:"self,omitempty" doc:"Whether it is the server that answers"`
}

func (s *Server) listNodes(ctx context.Context, _ *authn.Identity, _ *nothing) (*reply[page[nodeBody]], error) {
	got, err := s.config.Admin.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return ok(page[nodeBody]{Items: each(got, func(n *api.NodeInfo) nodeBody {
		return nodeBody{n.ID.String(), n.Host, n.Version, n.Live, n.Draining, n.Drained, n.Weight, n.Groups, n.Shards, at(n.Since), at(n.Expires), n.Address, n.Self}
	})})
}

type nodeInput struct {
	Node string `path:"node"`
}

func (s *Server) drainNode(ctx context.Context, _ *authn.Identity, in *nodeInput) (*none, error) {
	return s.setDrained(ctx, in.Node, false)
}

func (s *Server) undrainNode(ctx context.Context, _ *authn.Identity, in *nodeInput) (*none, error) {
	return s.setDrained(ctx, in.Node, true)
}

func (s *Server) setDrained(ctx context.Context, node string, undo bool) (*none, error) {
	id, err := model.ParseNodeID(node)
	if err != nil {
		return nil, fault.New(fault.Invalid, "node: %w", err)
	}
	return done(s.config.Admin.DrainNode(ctx, api.NodeDrain{Node: id, Undo: undo}))
}

// shardBody is a shard.
type shardBody struct {
	Shard    int    `json:"shard"`
	Group    string `json:"group" doc:"The shard group that it belongs to"`
	Database string `json:"database,omitempty" doc:"The database that holds it; absent for the first database of the store"`
	Owner    string `json:"owner,omitempty" doc:"The node that owns it"`
	Target   string `json:"target,omitempty" doc:"The node that should own it"`
	Moves    bool   `json:"moves,omitempty" doc:"Whether it should have another owner"`
}

func (s *Server) listShards(ctx context.Context, _ *authn.Identity, _ *nothing) (*reply[page[shardBody]], error) {
	got, err := s.config.Admin.Shards(ctx)
	if err != nil {
		return nil, err
	}
	return ok(page[shardBody]{Items: each(got, func(sh *api.ShardInfo) shardBody {
		b := shardBody{Shard: int(sh.Shard), Group: sh.Group, Database: sh.Database, Moves: sh.Owner != sh.Target}
		if !sh.Owner.IsZero() {
			b.Owner = sh.Owner.String()
		}
		if !sh.Target.IsZero() {
			b.Target = sh.Target.String()
		}
		return b
	})})
}

func (s *Server) rebalance(ctx context.Context, _ *authn.Identity, _ *nothing) (*none, error) {
	return done(s.config.Admin.Rebalance(ctx))
}

// health is the state of the server.
type health struct {
	Ready   bool       `json:"ready"`
	Reasons []string   `json:"reasons" doc:"Why it is not ready"`
	Version string     `json:"version,omitempty"`
	Node    string     `json:"node"`
	Since   *time.Time `json:"since,omitempty"`
	Workers int        `json:"workers" doc:"The number of workers that are connected to the server"`

	Warnings []string `json:"warnings" doc:"Problems that operators should repair although the server can serve"`
}

func (s *Server) health(ctx context.Context, _ *authn.Identity, _ *nothing) (*reply[health], error) {
	h, err := s.config.Admin.Health(ctx)
	if err != nil {
		return nil, err
	}
	return ok(health{h.Ready, append([]string{}, h.Reasons...), h.Version, h.Node.String(), at(h.Since), h.Workers, append([]string{}, h.Warnings...)})
}

// session is a worker that is connected to the server.
type session struct {
	Session    string     `json:"session"`
	Tenant     string     `json:"tenant"`
	Agent      string     `json:"agent,omitempty"`
	Caller     string     `json:"caller"`
	Name       string     `json:"name,omitempty"`
	Connected  bool       `json:"connected"`
	Draining   bool       `json:"draining"`
	Workflows  []string   `json:"workflows,omitempty"`
	Entities   []string   `json:"entities,omitempty"`
	Queues     []string   `json:"queues,omitempty"`
	Activities []string   `json:"activities,omitempty"`
	Slots      int        `json:"slots,omitempty"`
	Since      *time.Time `json:"since"`
	Heard      *time.Time `json:"heard"`
	Runs       int        `json:"runs"`
	Calls      int        `json:"calls"`
	Tasks      int        `json:"tasks"`
}

type sessionsInput struct {
	Tenant string `query:"tenant" doc:"Only workers of this tenant"`
}

func (s *Server) listSessions(ctx context.Context, _ *authn.Identity, in *sessionsInput) (*reply[page[session]], error) {
	got, err := s.config.Admin.WorkerSessions(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[session]{Items: each(got, func(w *api.WorkerSession) session {
		return session{
			w.ID, w.Tenant, w.Agent, w.Caller, w.Name, w.Connected, w.Draining, w.Workflows, each(w.Entities, func(t *string) string { return entityWord(*t) }),
			w.Queues, w.Activities, w.Slots, at(w.Since), at(w.Heard), w.Runs, w.Calls, w.Tasks,
		}
	})})
}

type drainInput struct {
	Session string `path:"session" example:"session_K7X2M9"`
	Body    *struct {
		Patience string `json:"patience,omitempty" example:"5m" doc:"How long the worker may take"`
	} `required:"false"`
}

func (s *Server) drainWorker(ctx context.Context, _ *authn.Identity, in *drainInput) (*none, error) {
	patience, err := time.Duration(0), error(nil)
	if in.Body != nil {
		patience, err = readDuration("patience", in.Body.Patience)
	}
	if err != nil {
		return nil, err
	}
	return done(s.config.Admin.DrainWorker(ctx, api.DrainRequest{Session: in.Session, Patience: patience}))
}
