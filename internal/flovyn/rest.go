package flovyn

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// call is one HTTP request about an organization.
type call struct {
	context.Context //nolint:containedctx // the context of the request, which all calls take

	d    *Door
	r    *http.Request
	w    http.ResponseWriter
	who  authn.Identity
	org  Org
	body []byte
}

// handler answers a request. A nil body sends no content. A handler that has already written the
// reply returns the status 0.
type handler func(*call) (status int, body any, err error)

// callerKey is the context key of the caller of an HTTP request.
type callerKey struct{}

// caller returns the identity of the caller, over gRPC or over HTTP.
func (d *Door) caller(ctx context.Context) (authn.Identity, bool) {
	if who, ok := ctx.Value(callerKey{}).(authn.Identity); ok {
		return who, true
	}
	if d.cfg.Caller == nil {
		return authn.Identity{}, false
	}
	return d.cfg.Caller(ctx)
}

// Routes adds the HTTP contract of the protocol. Organizations are called tenants in the older
// dialect.
func (d *Door) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /_/health", d.health)
	mux.HandleFunc("GET "+DocumentPath, serveOpenAPI)
	docs := d.cfg.Docs
	if docs == nil {
		docs = http.HandlerFunc(serveDocs)
	}
	mux.Handle("GET "+DocsPath, docs)
	mux.Handle("GET "+DocsPath+"/", docs)
	mux.Handle("GET /swagger-ui/", http.RedirectHandler(DocsPath, http.StatusFound))
	for _, root := range []string{"/api/orgs", "/api/tenants"} {
		add := func(pattern, name string, answer handler) {
			mux.HandleFunc(pattern, d.count(name, d.serve(root == "/api/tenants", name, answer)))
		}
		add("POST "+root, createRoute, createOrg)
		for pattern, answer := range routes {
			method, path, _ := strings.Cut(pattern, " ")
			add(method+" "+root+"/{slug}"+path, routeName(pattern), answer)
		}
		for _, path := range []string{"/agent-executions", "/agent-executions/{rest...}"} {
			add(root+"/{slug}"+path, agentsRoute, refuseAgents)
		}
	}
}

// Names of routes that are not about one organization, or that have no corresponding method of
// gRPC.
const (
	createRoute = "POST orgs"
	agentsRoute = "orgs/{slug}/agent-executions"
)

// routeName is the name of a route, in the table of actions and for the journal.
func routeName(pattern string) string {
	method, path, _ := strings.Cut(pattern, " ")
	return method + " orgs/{slug}" + path
}

// RouteNames lists the requests that need a caller, by their names in the table of actions.
func RouteNames() []string {
	names := []string{createRoute, agentsRoute}
	for pattern := range routes {
		names = append(names, routeName(pattern))
	}
	return names
}

// routes are the requests about one organization.
var routes = map[string]handler{
	"GET ":                                                getOrg,
	"POST /worker-tokens":                                 createToken,
	"GET /workers":                                        listWorkers,
	"GET /workers/{id}":                                   getWorker,
	"GET /workflow-definitions":                           listFlowDefinitions,
	"GET /workflow-definitions/{kind}":                    getFlowDefinition,
	"GET /task-definitions":                               listTaskDefinitions,
	"GET /task-definitions/{kind}":                        getTaskDefinition,
	"GET /workflow-executions":                            listFlows,
	"POST /workflow-executions":                           startFlow,
	"POST /workflows/{kind}/trigger":                      startFlow,
	"POST /workflow-executions/signal-with-start":         signalWithStart,
	"GET /workflow-executions/{id}":                       getFlow,
	"GET /workflow-executions/{id}/events":                getEvents,
	"GET /workflow-executions/{id}/state":                 getFlowState,
	"GET /workflow-executions/{id}/tasks":                 listFlowTasks,
	"GET /workflow-executions/{id}/children":              listChildren,
	"GET /workflow-executions/{id}/stream":                streamFlow,
	"GET /workflow-executions/{id}/stream/consolidated":   streamAll,
	"POST /workflow-executions/{id}/signal":               signalFlow,
	"POST /workflow-executions/{id}/cancel":               cancelFlow,
	"POST /workflow-executions/{id}/retry":                retryFlow,
	"GET /workflow-executions/{id}/tasks/{task}/logs":     getTaskLogs,
	"GET /workflow-executions/{id}/tasks/{task}/attempts": getTaskAttempts,
	"POST /promises/{id}/resolve":                         resolvePromise,
	"POST /promises/{id}/reject":                          rejectPromise,
	"GET /task-executions":                                listTasks,
	"POST /task-executions":                               createTask,
	"GET /task-executions/{task}":                         getTask,
	"DELETE /task-executions/{task}":                      deleteTask,
	"GET /task-executions/{task}/logs":                    getTaskLogs,
	"GET /task-executions/{task}/attempts":                getTaskAttempts,
	"GET /task-executions/{task}/stream":                  streamTask,
}

// refuseAgents answers requests about agents.
func refuseAgents(*call) (status int, body any, err error) {
	return http.StatusNotImplemented, map[string]any{"error": noAgents}, nil
}

// health reports whether the server can serve. It needs no key.
func (d *Door) health(w http.ResponseWriter, _ *http.Request) {
	if d.cfg.Ready != nil {
		if err := d.cfg.Ready(); err != nil {
			writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "DOWN", "error": err.Error()})
			return
		}
	}
	body := map[string]any{"status": "UP"}
	if len(d.cfg.Warnings) > 0 {
		body["warnings"] = d.cfg.Warnings
	}
	writeJSON(w, http.StatusOK, body)
}

// maxBody bounds the body of a request, in bytes. A body has at most one payload and one signal.
func (d *Door) maxBody() int64 { return int64(2*d.cfg.MaxPayload + 64<<10) }

// serve authenticates a request, finds its organization, checks whether the caller may do this, and
// writes the answer of the handler. It refuses a route that the table of actions does not have.
func (d *Door) serve(older bool, name string, answer handler) http.HandlerFunc {
	rule := authz.ByRoute(name)
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{d: d, r: r, w: w}
		err := c.identify(older)
		switch {
		case err != nil:
		case rule == nil:
			err = fault.New(fault.Denied, "%s has no action", name)
		default:
			err = d.cfg.Authorizer.Authorize(&c.who, rule.Action)
		}
		if err == nil && r.Body != nil {
			c.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, d.maxBody()))
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				err = fault.New(fault.Invalid, "the request has more than %d bytes", tooLarge.Limit)
			}
		}
		if err != nil {
			writeError(w, err)
			return
		}

		status, body, err := answer(c)
		switch {
		case err != nil:
			writeError(w, err)
		case status == 0:
		case body == nil:
			w.WriteHeader(status)
		default:
			writeJSON(w, status, body)
		}
	}
}

// count passes a request on and counts it in the journal, under the name of its route.
func (d *Door) count(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		visit, seen := d.cfg.Journal.Begin(access.Flovyn, method), &seenStatus{ResponseWriter: w, status: http.StatusInternalServerError}
		defer func() { visit.End(r.Context(), access.OfHTTP(seen.status)) }()
		next(seen, r)
		if !seen.wrote {
			seen.status = http.StatusOK // net/http sends 200 if the handler sets no status
		}
	}
}

// seenStatus remembers the status of a reply.
type seenStatus struct {
	http.ResponseWriter

	status int
	wrote  bool
}

// WriteHeader sends the status.
func (s *seenStatus) WriteHeader(status int) {
	if !s.wrote {
		s.status, s.wrote = status, true
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (s *seenStatus) Write(b []byte) (int, error) {
	if !s.wrote {
		s.status, s.wrote = http.StatusOK, true
	}
	return s.ResponseWriter.Write(b)
}

// Flush sends what was written so far.
func (s *seenStatus) Flush() {
	if f, ok := s.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap returns the writer that it wraps, for http.ResponseController.
func (s *seenStatus) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// identify finds the caller and the organization of a request. Unless the caller is an admin, the
// credential must belong to that organization.
func (c *call) identify(older bool) error {
	header := map[string][]string{}
	for name, values := range c.r.Header {
		header[strings.ToLower(name)] = values
	}
	who, err := c.d.cfg.Authenticator.Authenticate(c.r.Context(), header)
	if err != nil {
		return err
	}
	who.Older = who.Older || older
	ctx := authn.WithCall(c.r.Context(), authn.Call{Identity: who, Door: authn.DoorFlovyn, From: c.r.RemoteAddr})
	c.who, c.Context = who, context.WithValue(ctx, callerKey{}, who)

	slug := c.r.PathValue("slug")
	if slug == "" {
		return nil // the request creates an organization
	}
	tenant := c.d.cfg.Orgs.slugTenant(slug)
	if tenant != who.Tenant && !who.Admin {
		return fault.New(fault.Denied, "the key does not belong to organization %.80q", slug)
	}
	if !model.ValidTenant(tenant) {
		return fault.New(fault.NotFound, "there is no organization %.80q", slug)
	}
	c.org = c.d.org(c, tenant)
	return nil
}

// read reads the body of a request. An empty body is an empty object.
func (c *call) read(into any) error {
	if len(c.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.body, into); err != nil {
		return fault.New(fault.Invalid, "the body of the request: %w", err)
	}
	return nil
}

// number returns a number of the query.
func (c *call) number(name string, otherwise, most int) (int, error) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fault.New(fault.Invalid, "%s is %.80q, must be a number from 0 to %d", name, text, most)
	}
	return n, nil
}

// httpStatus is the one table of error kinds and HTTP statuses of this protocol. A kind that is not
// in the table has the status 500.
var httpStatus = map[fault.Kind]int{
	fault.NotFound: http.StatusNotFound, fault.AlreadyExists: http.StatusConflict, fault.Invalid: http.StatusBadRequest, fault.Conflict: http.StatusConflict,
	fault.Denied: http.StatusForbidden, fault.Unauthenticated: http.StatusUnauthorized, fault.Exhausted: http.StatusTooManyRequests,
	fault.Unavailable: http.StatusServiceUnavailable, fault.Timeout: http.StatusGatewayTimeout, fault.Blocked: http.StatusConflict,
	fault.WrongType: http.StatusBadRequest, fault.NotOwned: http.StatusConflict,
}

func writeError(w http.ResponseWriter, err error) {
	status, known := httpStatus[fault.KindOf(err)]
	if !known {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // the client is gone if this fails
}

// stamp returns a time in the form that clients read, or nil if there is none.
func stamp(t model.Time) any {
	if t == 0 {
		return nil
	}
	return t.Std().UTC().Format(time.RFC3339Nano)
}

// raw returns a payload as JSON, or nil if there is none.
func raw(data []byte) any {
	if len(data) == 0 {
		return nil
	}
	return json.RawMessage(asJSON(data))
}
