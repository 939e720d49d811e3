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

// doorOf returns the door and the method of a call for metrics: "ClientService/Start" for
// "/perdure.v1.ClientService/Start". Methods that no service has are one method.
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

// counted registers services so that requests that cannot be read are counted too. gRPC reads the
// request of a unary call before it calls the interceptor, and refuses it without one.
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

// handler reads the request of a call as before, and counts one that cannot be read.
func (c counted) handler(full string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		return handle(srv, ctx, func(m any) error {
			err := read(m)
			if err != nil {
				door, name := doorOf(full)
				o := outcomeOf(ctx, err)
				// gRPC calls a message that is not valid an internal error. It is the client's.
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
