package remote

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

const (
	// Pauses between attempts of a call that did not reach a server, before jitter.
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
	// If an attempt reached a server and lasted this long, the client assumes that the server
	// served the attempt. If such an attempt breaks, a new outage starts.
	lived = 10 * time.Second
	// grace is how long a call waits for the server after the caller's deadline. Within 200 ms
	// after that deadline, the server answers with an error that says what the call was waiting
	// for.
	grace = 400 * time.Millisecond
)

// requestID returns the id that the caller gave, or a new id. A request with an id may be sent
// again, because it takes effect once.
func requestID(given string) string {
	if given != "" {
		return given
	}
	return rand.Text()
}

// callFunc is a method of the generated client.
type callFunc[M, R any] = func(context.Context, *M, ...grpc.CallOption) (*R, error)

// doneFunc is a method that returns only an error.
type doneFunc[M any] = callFunc[M, pb.Done]

// verb is a method of the server with one request and one reply.
type verb[M, R, Out any] struct {
	call callFunc[M, R]
	read func(tenant string, r *R) (Out, error)
	once bool // do not repeat a call that may have reached the server
}

// ask returns a verb that may be repeated: the call only reads, or its request has an id.
func ask[M, R, Out any](call callFunc[M, R], read func(string, *R) (Out, error)) verb[M, R, Out] {
	return verb[M, R, Out]{call: call, read: read}
}

// askOnce returns a verb that must not be repeated if the call may have reached the server.
func askOnce[M, R, Out any](call callFunc[M, R], read func(string, *R) (Out, error)) verb[M, R, Out] {
	return verb[M, R, Out]{call, read, true}
}

// do makes a call.
func (v verb[M, R, Out]) do(ctx context.Context, b *Backend, m *M) (out Out, err error) {
	var reply *R
	err = b.attempt(ctx, v.once, func(ctx context.Context, opts ...grpc.CallOption) (err error) {
		reply, err = v.call(ctx, m, opts...)
		return unsendable(m, err)
	})
	if err != nil {
		return out, err
	}
	return readReply(b, reply, v.read)
}

// done reads the reply of a verb that returns only an error.
func done(string, *pb.Done) (struct{}, error) { return struct{}{}, nil }

// tell makes a call that returns only an error and that may be repeated.
func tell[M any](ctx context.Context, b *Backend, call doneFunc[M], m *M) error {
	_, err := ask(call, done).do(ctx, b, m)
	return err
}

// tellOnce is tell for calls that must not be repeated if they may have reached the server.
func tellOnce[M any](ctx context.Context, b *Backend, call doneFunc[M], m *M) error {
	_, err := askOnce(call, done).do(ctx, b, m)
	return err
}

// readReply translates a reply. If the reply cannot be read, the server is faulty or newer than
// this build.
func readReply[R, Out any](b *Backend, r *R, read func(string, *R) (Out, error)) (Out, error) {
	out, err := read(b.tenant, r)
	if err != nil {
		return out, fault.New(fault.Internal, "read the reply of the server: %s", err.Error())
	}
	return out, nil
}

// unsendable returns a better error if protobuf could not encode a request. Protobuf accepts only
// texts in UTF-8, so the error names the texts that are not.
func unsendable(m any, err error) error {
	if status.Code(err) != codes.Internal {
		return err
	}
	message, ok := m.(proto.Message)
	if !ok {
		return err
	}
	if _, bad := proto.Marshal(message); bad != nil {
		if problems := notUTF8(message.ProtoReflect()); len(problems) > 0 {
			bad = errors.Join(problems...)
		}
		return fault.New(fault.Invalid, "the request cannot be sent: %w", bad)
	}
	return err
}

// attempt makes a call, and repeats it while no server answers. It gives up when ctx ends, or when
// no server has answered for the time of Config.Patience, even if the deadline of ctx is later.
func (b *Backend) attempt(ctx context.Context, once bool, call func(context.Context, ...grpc.CallOption) error) error {
	if err := ctx.Err(); err != nil {
		return fault.New(fault.KindOf(err), "%w", context.Cause(ctx))
	}
	var outage time.Time // since when no server has answered
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		begin := time.Now()
		sent, err := b.try(ctx, call)
		if err == nil {
			return nil
		}

		switch now := time.Now(); {
		case !unreachable(err) || once && sent:
			return explain(ctx, err)
		case sent && now.Sub(begin) > lived:
			outage, pause = now, firstPause // a server served the attempt until it broke
		case outage.IsZero():
			outage, pause = begin, firstPause
		case now.Sub(outage) > b.patience:
			return explain(ctx, err)
		}

		select {
		case <-time.After(jitter(pause)):
		case <-ctx.Done():
			return explain(ctx, err)
		}
	}
}

// try makes one attempt. If the attempt failed, sent says whether it may have reached the server.
func (b *Backend) try(ctx context.Context, call func(context.Context, ...grpc.CallOption) error) (sent bool, err error) {
	inner, cancel := outgoing(ctx)
	defer cancel()
	var server peer.Peer // gRPC sets it when the call got a stream
	err = call(inner, grpc.Peer(&server))
	return err != nil && server.Addr != nil, err
}

// outgoing returns the context of an attempt, with the headers of the attempt. Its deadline is a
// little later than the deadline of the caller.
func outgoing(ctx context.Context) (context.Context, context.CancelFunc) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		for k, v := range header {
			ctx = metadata.AppendToOutgoingContext(ctx, k, v)
		}
	}

	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}

	left := max(time.Until(deadline), 0)
	later, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(grace))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel() // the caller gave up, and does not wait for an explanation
		}
	})
	return metadata.AppendToOutgoingContext(later, wire.TimeoutHeader, strconv.FormatInt(int64(left), 10)), func() { stop(); cancel() }
}

// unreachable reports whether an error says that no server has answered. An error that a server
// returns always has a detail, regardless of its code.
func unreachable(err error) bool {
	return status.Code(err) == codes.Unavailable && !isAnswer(err)
}

// isAnswer reports whether a server of Perdure has returned an error.
func isAnswer(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if _, answered := d.(*pb.ErrorDetail); answered {
			return true
		}
	}
	return false
}

// errDisconnected is the error of calls that are under way when the program closes the connection.
var errDisconnected = fault.New(fault.Unavailable, "the connection to the server is closed")

// explain turns the error of a call into the error that the engine would return in process.
func explain(ctx context.Context, err error) error {
	if _, own := errors.AsType[*fault.Error](err); own {
		return err
	}
	ended, cause := endOf(ctx)
	switch {
	case !unanswered(err):
		return withCause(wire.ReadStatus(err), ended)
	case ended == nil && status.Code(err) == codes.Canceled:
		return errDisconnected
	case ended == nil:
		return wire.ReadStatus(err)
	case unreachable(err):
		return fault.New(fault.KindOf(ended), "%w: no server could be reached: %s", cause, status.Convert(err).Message())
	}
	return fault.New(fault.KindOf(ended), "the server has not answered: %w", cause)
}

// endOf returns the error and the cause of a context that has ended, or nil if it has not ended. A
// context whose deadline has passed has ended, even if its timer is late.
func endOf(ctx context.Context) (ended, cause error) {
	if err := ctx.Err(); err != nil {
		return err, context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded, context.DeadlineExceeded
	}
	return nil, nil
}

// unanswered reports whether an error comes from this side of the connection.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return len(status.Convert(err).Details()) == 0
	default:
		return false
	}
}

// withCause handles an error that the server returned because the context of the caller ended. It
// makes the error of that context the cause, as in process.
func withCause(err, ended error) error {
	var e *fault.Error
	if ended == nil || !errors.As(err, &e) || e.Cause != nil || e.Kind != fault.KindOf(ended) {
		return err
	}
	return &fault.Error{Kind: e.Kind, Text: e.Text, Hint: e.Hint, Cause: told{ended}}
}

// told is a cause whose text is already part of the text of the error.
type told struct{ error }

// Error returns nothing, so that the text does not repeat the cause.
func (told) Error() string { return "" }

// Unwrap returns the cause.
func (t told) Unwrap() error { return t.error }

// jitter returns a random time around a pause, so that many clients do not come back at the same
// moment.
func jitter(pause time.Duration) time.Duration {
	return pause/2 + time.Duration(mathrand.Int64N(int64(pause)))
}
