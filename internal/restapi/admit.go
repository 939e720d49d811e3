package restapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.opentelemetry.io/otel/propagation"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// call is a request that was admitted.
type call struct {
	who     authn.Identity
	request *http.Request
	writer  http.ResponseWriter
	waits   bool
	drained context.Context //nolint:containedctx // the life of the server
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// beginHandler removes the time limit for reading the body of the request. Otherwise the limit
// would cancel a call that takes longer.
func (c *call) beginHandler() {
	// Ignore the error, because not all writers have deadlines.
	_ = http.NewResponseController(c.writer).SetReadDeadline(time.Time{})
}

// outcome returns the error of a call. If the credential of the caller has ended, or the server
// shuts down, it returns an error that says so. Otherwise it returns err.
func (c *call) outcome(ctx context.Context, err error) error {
	switch {
	case c.who.Valid != nil && c.who.Valid.Err() != nil:
		return context.Cause(c.who.Valid)
	case c.waits && c.drained.Err() != nil && ctx.Err() != nil:
		return fault.New(fault.Unavailable, "the server shuts down")
	}
	return err
}

// ServeHTTP serves a request of the REST API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			s.config.Log.LogAttrs(r.Context(), slog.LevelError, "a request panicked",
				slog.String("path", r.URL.Path), slog.String("panic", panicText(p)), slog.String("stack", string(debug.Stack())))
			writeProblem(w, problemOf(fault.New(fault.Internal, "the server failed; its log has the reason")))
		}
	}()

	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	default:
		s.refuse(w, r, fault.New(fault.Exhausted, "the server serves %d requests already: try again later", cap(s.calls)))
		return
	}
	if err := s.checkOrigin(r); err != nil {
		s.refuse(w, r, err)
		return
	}

	z := compress(w, r)
	defer z.Close()
	s.mux.ServeHTTP(z, r)
}

// panicText describes a panic. Errors of the runtime have only numbers and types in their text; any
// other value may quote a payload, which must not reach the log.
func panicText(p any) string {
	var err runtime.Error
	if e, ok := p.(error); ok && errors.As(e, &err) {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", p)
}

// refuse answers a request with an error before it reaches an operation.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	s.config.Journal.Refuse(r.Context(), access.REST, access.Unknown, access.OfHTTP(p.Status))
	writeProblem(w, p)
}

// protect sets headers that make browsers treat a reply as data only.
func protect(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// crossOrigin refuses requests of web pages of other sites that change something.
var crossOrigin = http.NewCrossOriginProtection()

// checkOrigin refuses requests that a web page of another site makes through a browser.
func (s *Server) checkOrigin(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return fault.New(fault.Denied, "the request comes from a web page of another site")
	}
	if s.config.Local && !isLocal(r.Host) {
		return fault.New(fault.Denied, "the server asks for no key, so it answers only requests to this machine, and %.100q is another host", r.Host)
	}
	return nil
}

func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// admit identifies the caller of an operation and checks whether the caller may use it, before the
// library reads the body.
func (s *Server) admit(hc huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(hc)
	op := hc.Operation()
	visit, status := s.config.Journal.Begin(access.REST, op.OperationID), http.StatusInternalServerError
	who, err := s.identify(r, op.OperationID)
	defer func() {
		o := access.OfHTTP(status)
		o.Tenant, o.Caller = who.Tenant, who.Name
		visit.End(r.Context(), o)
	}()
	if err == nil {
		err = checkMedia(r, op)
	}
	if err == nil {
		err = checkConditions(r, op)
	}
	if err != nil {
		p := problemOf(err)
		status = p.Status
		writeProblem(w, p)
		return
	}

	ctx, end := context.WithCancel(authn.WithCall(r.Context(), authn.Call{Identity: who, Door: authn.DoorREST, From: r.RemoteAddr}))
	defer end()
	waits, _ := op.Metadata["waits"].(bool)
	c := &call{who: who, request: r, writer: w, waits: waits, drained: s.drained}
	if waits {
		defer context.AfterFunc(s.drained, end)()
	}
	if who.Valid != nil {
		defer context.AfterFunc(who.Valid, end)()
	}
	if r.Header.Get("Traceparent") != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	next(huma.WithContext(hc, context.WithValue(ctx, callKey{}, c)))
	status = cmp.Or(hc.Status(), http.StatusOK)
}

// identify returns the caller of an operation, or refuses it.
func (s *Server) identify(r *http.Request, operation string) (authn.Identity, error) {
	rule := authz.ByOperation(operation)
	if rule == nil {
		return authn.Identity{}, fault.New(fault.Denied, "%s is not an operation that callers may use", operation)
	}
	header := map[string][]string{}
	for _, name := range [...]string{authn.AuthorizationHeader, authn.TenantHeader} {
		if v := r.Header.Values(name); len(v) > 0 {
			header[name] = v
		}
	}

	secret := sessionOf(r)
	if secret != "" {
		header[authn.SessionHeader] = []string{secret}
	}
	who, err := s.config.Authenticator.Authenticate(r.Context(), header)
	if err == nil && who.Credential.Kind == authn.BySession {
		err = checkGuard(r, secret)
	}
	switch {
	case err != nil:
		return authn.Identity{}, err
	case who.Tenant == "":
		return authn.Identity{}, fault.New(fault.Internal, "the caller %s has no tenant", who.Name)
	}
	return who, s.config.Authorizer.Authorize(&who, rule.Action)
}

// checkConditions refuses a change under a condition that the operation does not check. Otherwise
// the change would take effect although the condition may not be met.
func checkConditions(r *http.Request, op *huma.Operation) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	for _, name := range [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		checks := func(p *huma.Param) bool { return p.In == "header" && strings.EqualFold(p.Name, name) }
		if len(r.Header.Values(name)) > 0 && !slices.ContainsFunc(op.Parameters, checks) {
			return fault.New(fault.Invalid, "%s takes no %s: it does not look at versions, so nothing was changed", op.OperationID, name)
		}
	}
	return nil
}

// checkMedia refuses a body that does not have the type that the operation reads. It also refuses a
// compressed body, because its size is not known before it is unpacked.
func checkMedia(r *http.Request, op *huma.Operation) error {
	if op.RequestBody == nil {
		return nil
	}

	unsupported := func(format string, args ...any) error {
		p := newProblem(http.StatusUnsupportedMediaType, fault.Invalid.String(), fmt.Sprintf(format, args...))
		return p
	}

	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return unsupported("the body has the encoding %.40q, must have none", e)
	}
	want, _ := op.Metadata["media"].(string)
	if r.ContentLength == 0 && !op.RequestBody.Required {
		return nil
	}

	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || got != want {
		return unsupported("the body has the type %.80q, must have %s", r.Header.Get("Content-Type"), want)
	}
	return nil
}
