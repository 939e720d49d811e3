package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// errShutdown ends calls that wait when the server shuts down. It has no detail, like the errors of
// broken connections. So the client makes the call again on another server, or on this one after
// its restart.
var errShutdown = status.Error(codes.Unavailable, "the server shuts down")

// interceptUnary wraps every call that has one request and one reply.
func (s *Server) interceptUnary(ctx context.Context, m any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	call := func(ctx context.Context) (err error) {
		reply, err = handle(ctx, m)
		return err
	}
	if waitsForCode(m) {
		call = s.untilShutdown(call)
	}
	err = s.serve(ctx, info.FullMethod, waits[info.FullMethod], call)
	return reply, err
}

// interceptStream wraps every call that streams.
func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	// A stream of bundles does not end when its credential ends, because the server checks the
	// credential for every bundle.
	long := info.FullMethod != bundleMethod
	return s.serve(stream.Context(), info.FullMethod, long, func(ctx context.Context) error {
		return handle(srv, &contextStream{stream, ctx})
	})
}

// contextStream is a stream with another context.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has a context
}

// Context returns the context of the call.
func (s *contextStream) Context() context.Context { return s.ctx }

// serve makes one call: it identifies the caller, catches panics, translates the error and logs. A
// long call ends when the credential of its caller ends.
func (s *Server) serve(ctx context.Context, method string, long bool, call func(context.Context) error) error {
	door, name := doorOf(method)
	visit := s.config.Journal.Begin(door, name)
	known, err := s.identify(ctx, method)
	if err != nil {
		err = wire.Status(err)
		visit.End(ctx, outcomeOf(ctx, err))
		return err
	}
	ctx = known

	ctx, cancel := timed(ctx)
	defer cancel()
	if caller, _ := CallerOf(ctx); long && caller.Valid != nil {
		call = whileValid(caller.Valid, call)
	}
	err = toStatus(s.guard(traced(ctx), method, call))
	visit.End(ctx, outcomeOf(ctx, err))
	s.logFailure(ctx, method, err)
	return err
}

// whileValid ends a call when the credential of its caller ends, and returns why the credential
// ended.
func whileValid(valid context.Context, call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(valid, func() { end(context.Cause(valid)) })()
		err := call(ctx)
		if err != nil && valid.Err() != nil {
			return context.Cause(valid)
		}
		return err
	}
}

// guard calls a handler. A panic becomes an Internal error. The error does not name the cause,
// because the cause may quote a payload.
func (s *Server) guard(ctx context.Context, method string, call func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.config.Log.LogAttrs(ctx, slog.LevelError, "a call panicked",
				slog.String("method", method), slog.String("panic", panicText(p)), slog.String("stack", string(debug.Stack())))
			err = fault.New(fault.Internal, "the server failed; its log has the reason")
		}
	}()

	if waits[method] {
		call = s.untilShutdown(call)
	}
	return call(ctx)
}

// untilShutdown ends a call when the server shuts down.
func (s *Server) untilShutdown(call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(s.drained, func() { end(errShutdown) })()
		err := call(ctx)
		if err != nil && errors.Is(context.Cause(ctx), errShutdown) {
			return errShutdown
		}
		return err
	}
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

// waits are the methods that may wait for a long time. A server that shuts down ends them, because
// clients can repeat them on another server.
var waits = map[string]bool{
	"/perdure.v1.ClientService/Await":      true,
	"/perdure.v1.ClientService/Run":        true,
	"/perdure.v1.ClientService/SendItems":  true, // the worker repeats it
	"/perdure.v1.ClientService/TakeItems":  true,
	"/perdure.v1.ClientService/TaskLogs":   true,
	"/perdure.v1.ClientService/TaskStream": true,
	"/perdure.v1.ClientService/Watch":      true,
}

// waitsForCode reports whether a request waits for the answer of code, and can be repeated. A
// server that shuts down first ends the sessions of its workers, and hands its shards over last. In
// between, most code cannot answer. So the server ends the calls that wait for code, as it ends the
// calls in waits. It does not end a call without a request id, because clients cannot repeat such a
// call, unless the call is a view. The engine itself refuses brief calls that no worker can begin.
func waitsForCode(m any) bool {
	switch m := m.(type) {
	case *pb.CallRequest:
		return m.GetView() || m.GetRequestId() != ""
	case *pb.UpdateRequest:
		return m.GetRequestId() != ""
	case *pb.QueryRequest:
		return true
	}
	return false
}

// toStatus translates an error of a handler. An error of gRPC itself stays as it is.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) {
		return err
	}
	return wire.Status(err)
}

// logFailure logs why the server failed a call. The line never contains a payload.
func (s *Server) logFailure(ctx context.Context, method string, err error) {
	code := status.Code(err)
	if !isFault(code) {
		return
	}
	caller, _ := CallerOf(ctx)
	s.config.Log.LogAttrs(ctx, slog.LevelError, "the server failed a call", slog.String("method", method), slog.String("tenant", caller.Tenant),
		slog.String("caller", caller.Name), slog.String("code", code.String()), slog.String("error", err.Error()))
}

// timed gives a call the deadline of the code that called the client. The client itself waits a
// little longer, so that the server can answer with what the call was waiting for.
func timed(ctx context.Context) (context.Context, context.CancelFunc) {
	// ValueFromIncomingContext reads one header. FromIncomingContext would copy all of them.
	if values := metadata.ValueFromIncomingContext(ctx, wire.TimeoutHeader); len(values) == 1 {
		if left, err := strconv.ParseInt(values[0], 10, 64); err == nil {
			return context.WithTimeout(ctx, time.Duration(left))
		}
	}
	return ctx, func() {}
}

// traced continues the trace of the client, if the call has one.
func traced(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, "traceparent")) == 0 {
		return ctx
	}
	header, _ := metadata.FromIncomingContext(ctx)
	return propagation.TraceContext{}.Extract(ctx, carrier(header))
}

// carrier reads headers for the propagator.
type carrier metadata.MD

// Get returns the first value of a header.
func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set replaces a header.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys returns the names of all headers.
func (c carrier) Keys() (keys []string) {
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
