package grpcapi

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// Authenticator says who is calling. It must not block: the server asks it before it reads the body
// of a request. Packages that implement it do not know gRPC.
type Authenticator interface {
	// Authenticate returns the tenant and the name of the caller, or an error that refuses the
	// call. Names of headers are in lower case.
	Authenticate(ctx context.Context, header map[string][]string) (tenant, name string, err error)
}

// Caller is who makes a call.
type Caller struct {
	Tenant string
	// Name is for logs.
	Name string
}

type callerKey struct{}

// withCaller adds the caller to the context of a call.
func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes the call of the context. It reports false outside of calls.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// tenantOf returns the tenant of a call. The interceptors let no call through without a caller.
func tenantOf(ctx context.Context) string {
	c, _ := CallerOf(ctx)
	return c.Tenant
}

// open are the methods that need no credential: orchestrators ask for health without one.
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
	ctx, err := s.authenticate(ctx, info.Header)
	if err != nil {
		return nil, wire.Status(err)
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
	return s.authenticate(ctx, header)
}

func (s *Server) authenticate(ctx context.Context, header metadata.MD) (context.Context, error) {
	tenant, name, err := s.config.Authenticator.Authenticate(ctx, header)
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		return nil, fault.New(fault.Internal, "the caller %s has no tenant", name)
	}
	return withCaller(ctx, Caller{Tenant: tenant, Name: name}), nil
}
