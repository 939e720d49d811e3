package remote_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/wire"
)

// disguise is a connection on which the worker looks like a worker of another release.
type disguise struct {
	grpc.ClientConnInterface

	change atomic.Pointer[func(*pb.Hello)] // nil for no change
}

func (d *disguise) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	st, err := d.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return disguisedStream{st, d}, err
}

type disguisedStream struct {
	grpc.ClientStream

	d *disguise
}

func (s disguisedStream) SendMsg(m any) error {
	if f, ok := m.(*pb.WorkerFrame); ok && f.GetHello() != nil {
		if change := s.d.change.Load(); change != nil {
			(*change)(f.GetHello())
		}
	}
	return s.ClientStream.SendMsg(m)
}

// strangers are workers that a server refuses because of their release, and the reason.
var strangers = map[string]struct {
	change func(*pb.Hello)
	want   string // a part of the error
}{
	"fewer events":   {func(h *pb.Hello) { h.LastEventKind-- }, "this server writes up to"},
	"fewer messages": {func(h *pb.Hello) { h.LastMessageKind-- }, "upgrade workers before the server"},
	"a newer protocol": {
		func(h *pb.Hello) { h.Protocol++ }, "the worker speaks version 2 of the protocol, this server speaks 1",
	},
	"an older protocol": {func(h *pb.Hello) { h.Protocol-- }, "use a worker and a server of about the same release"},
}

// A server refuses a worker that cannot read what the server writes. Joining fails immediately, and
// the error says why.
func TestWorkerOfAnotherRelease(t *testing.T) {
	t.Parallel()
	if wire.Protocol != 1 {
		t.Error("change the versions in the expected text")
	}
	s := startServer(t, "memory:", grpcapi.WorkConfig{})
	for what, c := range strangers {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conn := &disguise{ClientConnInterface: s.conn}
			conn.change.Store(&c.change)
			work := remote.NewWork(conn, remote.WorkConfig{Backoff: time.Millisecond})
			defer work.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := work.Join(ctx, replay.NewWorker(replay.Config{}), api.Offer{Name: "w", Tenant: tenant})
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("joined: %v, want a refusal with %q", err, c.want)
			}
		})
	}
}

// A newer server replaces the server of a connected worker, and refuses the worker. The worker logs
// the reason and tries again.
func TestServerThatBecomesTooNew(t *testing.T) {
	t.Parallel()
	s := startServer(t, "memory:", grpcapi.WorkConfig{})
	conn, lines := &disguise{ClientConnInterface: s.conn}, &callLog{}
	work := remote.NewWork(conn, remote.WorkConfig{Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Log: slog.New(lines)})
	defer work.Close()
	w := replay.NewWorker(replay.Config{OwnerRestarts: true, Code: map[string]replay.Code{
		"echo": func(_ replay.Ctx, in model.Payload) (model.Payload, error) { return in, nil },
	}})
	session, err := work.Join(t.Context(), w, api.Offer{Name: "w", Tenant: tenant, Workflows: []string{"echo"}})
	if err != nil {
		t.Fatal(err)
	}
	w.Serve(session)
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the server does not answer a worker that it refuses
		_ = w.Close(ctx)
	}()

	change := strangers["fewer events"].change
	conn.change.Store(&change)
	s.work.Drain()
	for end := time.Now().Add(patience); !strings.Contains(lines.text(), "upgrade workers before the server"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the worker has logged:\n%s", lines.text())
		}
	}
}

// newerServer is a server whose protocol this build does not speak.
type newerServer struct {
	pb.UnimplementedClientServiceServer
}

func (newerServer) Server(context.Context, *pb.ServerRequest) (*pb.ServerReply, error) {
	return &pb.ServerReply{Protocol: wire.Protocol + 1, Version: "v9.0.0", Tenant: tenant}, nil
}

// A client does not use a server of another protocol, and says which versions both speak.
func TestServerOfAnotherProtocol(t *testing.T) {
	t.Parallel()
	l, server := bufconn.Listen(1<<16), grpc.NewServer()
	pb.RegisterClientServiceServer(server, newerServer{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	p := &pipe{t: t, refused: map[string]int{}, listen: l}

	b, err := remote.Dial(t.Context(), p.through(remote.Config{Token: key, Patience: patience}))
	if err == nil {
		_ = b.Close()
	}
	for _, want := range []string{"server v9.0.0 speaks protocol 2, this build speaks 1", "versions that fit together"} {
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("connected: %v, want a refusal with %q", err, want)
		}
	}
}

// olderServer is a server that does not say its limits.
type olderServer struct {
	pb.UnimplementedClientServiceServer
}

func (olderServer) Server(context.Context, *pb.ServerRequest) (*pb.ServerReply, error) {
	return &pb.ServerReply{Protocol: wire.Protocol, Tenant: tenant}, nil
}

// An app whose server does not say its limit of payloads keeps its own limit.
func TestServerWithoutLimits(t *testing.T) {
	t.Parallel()
	l, server := bufconn.Listen(1<<16), grpc.NewServer()
	pb.RegisterClientServiceServer(server, olderServer{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	p := &pipe{t: t, refused: map[string]int{}, listen: l}

	b, err := remote.Dial(t.Context(), p.through(remote.Config{Token: key, Patience: patience}))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if most := b.MaxPayload(); most != 0 {
		t.Errorf("the limit of the server is %d bytes, want 0: unknown", most)
	}
}
