package grpcapi

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// Authenticator says who is calling. It must not block: the server asks it before it reads the body
// of a request. Packages that implement it do not depend on gRPC.
type Authenticator interface {
	// Authenticate returns the caller, or an error that refuses the call. Names of headers are in
	// lower case.
	Authenticate(ctx context.Context, header map[string][]string) (authn.Identity, error)
}

// Caller is the identity of the program or person that makes a call.
type Caller = authn.Identity

type callerKey struct{}

// withCaller adds the caller to the context of a call.
func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes the call of the context. It returns false outside calls.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// tenantOf returns the tenant of a call. The interceptors let no call through without a caller.
func tenantOf(ctx context.Context) string {
	c, _ := CallerOf(ctx)
	return c.Tenant
}

// open are the methods that need no credential. Orchestrators such as Kubernetes ask for the health
// of a server without a credential.
var open = map[string]bool{
	"/grpc.health.v1.Health/Check": true,
	"/grpc.health.v1.Health/List":  true,
	"/grpc.health.v1.Health/Watch": true,
}

// admit authenticates a call when its headers have arrived, before the server reads its body.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	if open[info.FullMethodName] {
		return ctx, nil
	}
	before := ctx
	ctx, err := s.authenticate(ctx, info.Header)
	if err == nil {
		before = ctx // so that the log of requests names the caller that is refused
		err = s.authorize(ctx, info.FullMethodName)
	}
	if err != nil {
		err = wire.Status(err)
		door, method := doorOf(info.FullMethodName)
		s.config.Journal.Refuse(before, door, method, outcomeOf(before, err))
		return nil, err
	}
	return ctx, nil
}

// identify adds the caller to a call that admit has not seen. A server that serves HTTP and gRPC on
// one listener does not call admit.
func (s *Server) identify(ctx context.Context, method string) (context.Context, error) {
	if _, known := CallerOf(ctx); known || open[method] {
		return ctx, nil
	}
	header, _ := metadata.FromIncomingContext(ctx)
	ctx, err := s.authenticate(ctx, header)
	if err != nil {
		return nil, err
	}
	return ctx, s.authorize(ctx, method)
}

func (s *Server) authenticate(ctx context.Context, header metadata.MD) (context.Context, error) {
	who, err := s.config.Authenticator.Authenticate(ctx, header)
	if err != nil {
		return nil, err
	}
	if who.Tenant == "" {
		return nil, fault.New(fault.Internal, "the caller %s has no tenant", who.Name)
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	return withCaller(authn.WithCall(ctx, authn.Call{Identity: who, Door: s.config.Door, From: from}), who), nil
}

// authorize refuses calls that the caller may not make, and methods that are not in the table of
// actions. (Serve does not start if a method of the server is missing in the table. Config.Unknown
// answers calls of methods that the server does not have.)
func (s *Server) authorize(ctx context.Context, method string) error {
	rule := authz.ByMethod(method)
	if rule == nil {
		if s.config.Unknown != nil {
			return nil
		}
		return fault.New(fault.Denied, "%.200q is not a method that callers may use", method)
	}
	who, _ := CallerOf(ctx)
	return s.config.Authorizer.Authorize(&who, rule.Action)
}

// mostTenants bounds the tenants that a reply shows to a caller.
const mostTenants = 1000

// describeCaller says who the caller is and what it may do.
func describeCaller(who *Caller, a authz.Authorizer) api.CallerInfo {
	info := api.CallerInfo{
		Name: who.Name, Tenant: who.Tenant, Admin: who.Admin, Roles: authz.RolesOf(who),
		Tenants: who.Tenants[:min(len(who.Tenants), mostTenants)], Expires: who.Credential.Expires,
	}
	for _, action := range authz.Allowed(a, who) {
		info.Actions = append(info.Actions, string(action))
	}
	return info
}
