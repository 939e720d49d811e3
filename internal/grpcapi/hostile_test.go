package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/malformed"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "0123456789abcdef0123456789abcdef"

// door is a server on an empty memory store.
type door struct {
	conn   *grpc.ClientConn
	client pb.ClientServiceClient
	log    *buffer
	ctx    context.Context
}

// buffer keeps a log.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds a line.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all lines.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// open opens a door. change may change its config.
func open(t testing.TB, change func(*grpcapi.Config)) *door {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:", Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authn.NewAdminKey(key, "default")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{log: &buffer{}}
	cfg := grpcapi.Config{Backend: n.Backend(), Admin: n.Admin("default"), Authenticator: keys, Log: slog.New(slog.NewTextHandler(d.log, nil))}
	if change != nil {
		change(&cfg)
	}

	listener, server, done := bufconn.Listen(1<<20), grpcapi.New(cfg), make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	d.conn, err = grpc.NewClient("passthrough:door", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		_ = d.conn.Close()
		server.Shutdown(ctx)
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
	d.client = pb.NewClientServiceClient(d.conn)
	d.ctx = metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
	return d
}

// call calls any method with one message and returns its error.
func (d *door) call(ctx context.Context, m protoreflect.MethodDescriptor, in proto.Message) error {
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	for {
		if err := stream.RecvMsg(dynamicpb.NewMessage(m.Output())); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// No message makes a call fail with an error that blames the server, and the server keeps running.
func TestNonsense(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	run := make([]byte, 16)
	run[0] = 1

	methods := pb.File_perdure_v1_client_proto.Services().ByName("ClientService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		t.Run(string(m.Name()), func(t *testing.T) {
			t.Parallel()
			d.nonsense(t, m, run)
		})
	}

	t.Cleanup(func() {
		if strings.Contains(d.log.String(), "panicked") {
			t.Errorf("a handler panicked:\n%s", d.log)
		}
	})
}

// nonsense calls a method with invalid requests of every kind.
func (d *door) nonsense(t *testing.T, m protoreflect.MethodDescriptor, run []byte) {
	for what, scalar := range map[string]malformed.Scalar{
		"an empty message":  nil,
		"unset parts":       nil,
		"wrong lengths":     malformed.Values(99, "x", []byte{1, 2, 3}),
		"extreme numbers":   malformed.Values(math.MinInt64, "x", run),
		"largest numbers":   malformed.Values(math.MaxInt64, "x", run),
		"ones":              malformed.Values(1, "x", run),
		"long texts":        malformed.Values(0, strings.Repeat("ä", 100_000), run),
		"control character": malformed.Values(1, "\x1f\x00x", nil),
	} {
		in := dynamicpb.NewMessage(m.Input())
		if scalar != nil {
			malformed.Fill(in, 4, malformed.Last, scalar)
		}
		if what == "unset parts" {
			malformed.Fill(in, 0, malformed.Last, malformed.Values(1, "x", run))
		}

		// Some calls wait for an execution.
		ctx, cancel := context.WithTimeout(d.ctx, 100*time.Millisecond)
		err := d.call(ctx, m, in)
		cancel()
		switch code := status.Code(err); code {
		case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unavailable, codes.Unimplemented:
			if !strings.Contains(err.Error(), "the client has not saved the rows") {
				t.Errorf("%s with %s: %v", m.Name(), what, err)
			}
		case codes.OK:
			if what == "wrong lengths" && m.Input().Fields().Len() > 0 && hasID(m.Input()) {
				t.Errorf("%s with %s: no error", m.Name(), what)
			}
		default:
		}
	}
	if _, err := d.client.Server(d.ctx, &pb.ServerRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// hasID reports whether a message names an execution.
func hasID(m protoreflect.MessageDescriptor) bool {
	return m.Fields().ByName("target") != nil || m.Fields().ByName("source") != nil || m.Fields().ByName("id") != nil
}

// The server refuses a message for another tenant, no matter what the client says about itself.
func TestForeignMessage(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	m := model.Message{Kind: model.MessageStart, To: model.Address{Tenant: "acme", Type: "shop", Key: "a"}}
	_, err := d.client.Deliver(d.ctx, &pb.DeliverRequest{Message: model.AppendMessage(nil, &m)})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := d.client.Deliver(d.ctx, &pb.DeliverRequest{Message: []byte("nonsense")}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nonsense: %v", err)
	}
}

// The interceptors refuse every call without a credential, except for health.
func TestCallsWithoutCredential(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	methods := pb.File_perdure_v1_client_proto.Services().ByName("ClientService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		if err := d.call(t.Context(), m, dynamicpb.NewMessage(m.Input())); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", m.Name(), err)
		}
	}

	r, err := healthpb.NewHealthClient(d.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "perdure.v1.ClientService"})
	if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}

	for ctx, want := range map[context.Context]codes.Code{t.Context(): codes.Unauthenticated, d.ctx: codes.OK} {
		stream, err := reflectionpb.NewServerReflectionClient(d.conn).ServerReflectionInfo(ctx)
		if err == nil {
			err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if errors.Is(err, io.EOF) {
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("reflection: %v, want %s", err, want)
		}
	}
}

// broken is a backend with a bug.
type broken struct{ api.Backend }

func (broken) Count(context.Context, api.ListRequest) (int64, error) { panic("secret of a payload") }

func (broken) CountDead(context.Context, api.DeadRequest) (int64, error) {
	return 0, fault.New(fault.Corrupt, "a row")
}

func (broken) List(context.Context, api.ListRequest) (api.ListPage, error) {
	panic("secret of a payload")
}

// A panic ends one call. The client does not learn its cause. The log says where the panic
// happened, but does not contain its value, which may quote a payload.
func TestPanic(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *grpcapi.Config) { c.Backend = broken{c.Backend} })
	_, err := d.client.Count(d.ctx, &pb.ListRequest{})
	stream, err2 := d.client.List(d.ctx, &pb.ListRequest{})
	if err2 == nil {
		_, err2 = stream.Recv()
	}

	for _, err := range []error{err, err2} {
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
			t.Errorf("the client hears %v", err)
		}
	}

	if _, err := d.client.CountDead(d.ctx, &pb.ListDeadRequest{}); status.Code(err) != codes.DataLoss {
		t.Errorf("an error: %v", err)
	}
	if log := d.log.String(); strings.Count(log, "a call panicked") != 2 || strings.Contains(log, "secret") || !strings.Contains(log, "hostile_test.go") || !strings.Contains(log, "code=DataLoss") {
		t.Errorf("the log is\n%s", log)
	}
}

// The server refuses a message that is too large, before it reads the message. It also refuses
// bytes that are not a message.
func TestHugeAndBrokenMessages(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *grpcapi.Config) { c.MaxMessage = 1 << 16 })
	_, err := d.client.Start(d.ctx, &pb.StartRequest{Input: &pb.Payload{Data: make([]byte, 1<<17)}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a huge message: %v", err)
	}
	out := new(pb.StartReply)
	if err := d.conn.Invoke(d.ctx, "/perdure.v1.ClientService/Start", []byte{0xff, 0xff, 0xff}, out, grpc.ForceCodec(rawCodec{})); err == nil {
		t.Error("a broken message was accepted")
	}
	if _, err := d.client.Server(d.ctx, &pb.ServerRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }
