package grpcapi

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/authz"
)

// doorOf returns the door (the protocol) and the method of a call for metrics:
// "ClientService/Start" for "/perdure.v1.ClientService/Start". All methods that no service has
// share one name.
func doorOf(full string) (door, method string) {
	door = access.GRPC
	if strings.HasPrefix(full, "/flovyn.") {
		door = access.Flovyn
	}
	if authz.ByMethod(full) == nil && !open[full] {
		return door, access.Unknown
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return door, service[strings.LastIndexByte(service, '.')+1:] + "/" + name
}

// isFault reports whether a code says that the server failed.
func isFault(code codes.Code) bool {
	return code == codes.Internal || code == codes.DataLoss || code == codes.Unknown
}

// outcomeOf describes the end of a call for the journal.
func outcomeOf(ctx context.Context, err error) access.Outcome {
	code := status.Code(err)
	caller, _ := CallerOf(ctx)
	o := access.Outcome{Code: code.String(), Failed: code != codes.OK, Fault: isFault(code), Tenant: caller.Tenant, Caller: caller.Name}
	switch code {
	case codes.Unauthenticated:
		o.Refused = access.Unauthenticated
	case codes.PermissionDenied:
		o.Refused = access.Denied
	case codes.ResourceExhausted:
		o.Refused = access.Exhausted
	case codes.InvalidArgument, codes.Unimplemented:
		o.Refused = access.Invalid
	default:
	}
	return o
}

// counted registers services in a way that also counts requests that cannot be decoded. gRPC
// decodes the request of a unary call before it calls the interceptor. If gRPC cannot decode the
// request, it refuses the call, and the interceptor never runs.
type counted struct {
	to     grpc.ServiceRegistrar
	server *Server
}

// RegisterService registers a service.
func (c counted) RegisterService(desc *grpc.ServiceDesc, impl any) {
	copied := *desc
	copied.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		copied.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: c.handler("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)}
	}
	c.to.RegisterService(&copied, impl)
}

// handler decodes the request of a call with the generated code, and counts a request that cannot
// be decoded.
func (c counted) handler(full string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		return handle(srv, ctx, func(m any) error {
			err := read(m)
			if err != nil {
				door, name := doorOf(full)
				o := outcomeOf(ctx, err)
				// gRPC returns the code Internal for an invalid message, but the mistake is the
				// client's.
				o.Fault = false
				if o.Refused == "" {
					o.Refused = access.Invalid
				}
				c.server.config.Journal.Refuse(ctx, door, name, o)
			}
			return err
		}, intercept)
	}
}
