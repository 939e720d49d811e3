package restapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// Defaults of a Config.
const (
	// defaultMaxPayload is the default of the service.
	defaultMaxPayload = 2 << 20
	// payloadsPerBody is how many payloads of full size fit into a request, as in gRPC.
	payloadsPerBody = 8
	// maxImport bounds an imported history, as in gRPC.
	maxImport = 128 << 20
	// defaultMaxCalls is how many requests the server serves at the same time. They include
	// requests that wait for an execution, and watchers.
	defaultMaxCalls = 10_000
	// bodyTime is how long a client may take to send a body.
	bodyTime = 30 * time.Second
)

// Authenticator says who is calling, as in gRPC. It must not block.
type Authenticator interface {
	// Authenticate returns the caller, or an error that refuses the call. Names of headers are in
	// lower case.
	Authenticate(ctx context.Context, header map[string][]string) (authn.Identity, error)
}

// Config configures a server. Backend serves the requests of tenants, and Admin the requests of
// operators. Both must be set. The comment of each other field says what its zero value means.
type Config struct {
	Backend api.Backend
	Admin   api.Admin
	// Authenticator says who is calling, and Authorizer what callers may do. Both must be set.
	Authenticator Authenticator
	Authorizer    authz.Authorizer
	// Local says that the server needs no key, because only programs of this machine reach it. Such
	// a server answers only requests that name this machine as their host, so that web pages of
	// other sites cannot use it through a browser.
	Local bool
	// Log receives the messages of the server; nil for none.
	Log *slog.Logger
	// Journal counts and logs requests; nil for none.
	Journal *access.Journal
	// Version is the version of the program. Clients see it.
	Version string
	// MaxPayload is the largest payload that the service accepts, in bytes. The default is 2 MiB.
	MaxPayload int
	// MaxCalls is how many requests may be served at the same time. The default is 10,000.
	MaxCalls int
}

// Server is the REST API.
type Server struct {
	config  Config
	mux     *http.ServeMux
	api     huma.API
	calls   chan struct{}
	drained context.Context //nolint:containedctx // the life of the server, not of a call
	drain   context.CancelFunc
}

// New returns the REST API. It fails if an operation has no row in the table of actions.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, defaultMaxPayload)
	s := &Server{config: cfg, mux: http.NewServeMux(), calls: make(chan struct{}, cmp.Or(cfg.MaxCalls, defaultMaxCalls))}
	s.drained, s.drain = context.WithCancel(context.Background())
	useProblems()
	s.api = humago.New(s.mux, s.library())
	s.api.UseMiddleware(s.admit)

	s.addServer()
	s.addSessions()
	s.addExecutions()
	s.addOrders()
	s.addPasts()
	s.addEvents()
	s.addEventStream()
	s.addRelations()
	s.addBatches()
	s.addUnread()
	s.addEntities()
	s.addRaw()
	s.addTasks()
	s.addTaskStream()
	s.addSubmit()
	s.addDeadTasks()
	s.addFlow()
	s.addBreakers()
	s.addSchedules()
	s.addFeed()
	s.addSeries()
	s.addViews()
	s.addReplayReports()
	s.addTenants()
	s.addKeys()
	s.addCluster()
	s.addAudit()
	s.addDocs()
	return s, authz.Check(authz.Served{Operations: s.Operations()})
}

// library configures the library. It turns off the library's own page, which loads scripts from
// other servers, and the links in replies.
func (s *Server) library() huma.Config {
	c := huma.DefaultConfig("Perdure", cmp.Or(s.config.Version, "(devel)"))
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Formats = map[string]huma.Format{"application/json": {Marshal: writeJSON, Unmarshal: readJSON}, "json": {Marshal: writeJSON, Unmarshal: readJSON}}
	c.Info.Description = "Durable executions, entities, tasks and their settings. The tenant of a call is that of its key."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "A key of a tenant, or an admin key"}}
	c.Components.SecuritySchemes["session"] = &huma.SecurityScheme{Type: "apiKey", In: "cookie", Name: plainCookie, Description: "A session of a browser; its name begins with __Host- when the server has TLS"}
	c.Security = []map[string][]string{{"key": {}}, {"session": {}}}
	return c
}

// Operations returns the ids of all operations.
func (s *Server) Operations() (ids []string) {
	for _, path := range s.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete, path.Patch, path.Head, path.Options, path.Trace} {
			if op != nil {
				ids = append(ids, op.OperationID)
			}
		}
	}
	return ids
}

// Operations returns the ids of all operations, without a server.
func Operations() []string {
	// No request reaches the empty backend of this server. Ignore the error, which names operations
	// that have no action: the list has them too.
	s, _ := New(Config{Backend: struct{ api.Backend }{}, Admin: struct{ api.Admin }{}})
	s.Shutdown()
	return s.Operations()
}

// Shutdown ends requests that only wait.
func (s *Server) Shutdown() { s.drain() }

// operation describes an operation for the document.
type operation struct {
	id, method, path, tag, summary string
	// status is the status of success; 0 means 200.
	status int
	// also is another status of success, with the same body; 0 for none.
	also int
	// body is how many bytes the request may have; 0 means 8 times the payload limit.
	body int64
	// waits says that the call may wait for a long time. A server that shuts down can end it,
	// because a call that waits has changed nothing yet.
	waits bool
	// media is the type of the body; empty means JSON.
	media string
}

// add adds an operation.
func add[I, O any](s *Server, o operation, handle func(ctx context.Context, who *authn.Identity, in *I) (*O, error)) {
	huma.Register(s.api, s.describe(&o), func(ctx context.Context, in *I) (*O, error) {
		call := callOf(ctx)
		call.beginHandler()
		out, err := handle(ctx, &call.who, in)
		if err != nil {
			return nil, problemOf(call.outcome(ctx, err))
		}
		return out, nil
	})
	s.document(&o)
}

// describe returns an operation in the form of the library.
func (s *Server) describe(o *operation) huma.Operation {
	h := huma.Operation{
		OperationID: o.id, Method: o.method, Path: "/v1" + o.path, Tags: []string{o.tag}, Summary: o.summary, DefaultStatus: cmp.Or(o.status, http.StatusOK),
		MaxBodyBytes: cmp.Or(o.body, int64(payloadsPerBody*s.config.MaxPayload)), BodyReadTimeout: bodyTime,
		Metadata: map[string]any{"waits": o.waits, "media": cmp.Or(o.media, "application/json")},
	}
	return h
}

// document completes the description of an operation.
func (s *Server) document(o *operation) {
	path := s.api.OpenAPI().Paths["/v1"+o.path]
	for _, op := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete, path.Patch} {
		if op != nil && op.OperationID == o.id && o.also != 0 {
			same := *op.Responses[strconv.Itoa(op.DefaultStatus)]
			same.Description = http.StatusText(o.also)
			op.Responses[strconv.Itoa(o.also)] = &same
		}
	}
}

// errGone is the error for a path that does not exist.
func errGone(r *http.Request) error {
	return fault.New(fault.NotFound, "there is no %s %.200s: /v1/openapi.json lists all operations", r.Method, r.URL.Path)
}
