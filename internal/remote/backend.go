// Package remote is the engine on the other side of a connection: it implements internal/api over
// the native protocol (perdure.v1). perdure.Dial uses it.
//
// A call behaves as it does in process: the same errors, the same deadlines, the same guarantees.
// If the caller of a request that changes something gives no request id, this package draws one: it
// generates a random id. So it can repeat a call whose connection breaks, and the call takes effect
// once. There are two exceptions: it does not repeat a call that runs at most once, or a change of
// a setting, if the request may have reached the server.
package remote

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/request"
	"github.com/perdure/perdure/internal/wire"
)

// Backend is a connection to a server. Its calls, except the calls of Admin, act in the tenant of
// the credential.
type Backend struct {
	*Work

	conn   grpc.ClientConnInterface
	shared *bundler // conn, for calls that may share a stream
	tenant string
	log    *slog.Logger

	client    pb.ClientServiceClient
	close     func() error
	patience  time.Duration
	cluster   string
	remembers time.Duration
	limits    request.Limits // the limits of the server
	// maxPayload is the limit of payloads as the server says it; 0 if it does not.
	maxPayload int
	receipts   receipts
	era        atomic.Pointer[string] // see wire.EraHeader; nil before the first answer
}

// Dial connects to a server and asks it who the caller is. It fails if no server answers before ctx
// ends, or before Config.Patience has passed.
func Dial(ctx context.Context, cfg Config) (*Backend, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conn, servers, err := cfg.connect()
	if err != nil {
		return nil, err
	}
	b := newBackend(conn, cfg)
	b.close, b.servers = conn.Close, servers
	b.redial = func() (*grpc.ClientConn, error) {
		another, _, err := cfg.connect()
		return another, err
	}
	servers.left = b.shared.moveOn
	if err := b.introduce(ctx); err != nil {
		_ = b.Close() // the first error is more useful
		return nil, err
	}
	return b, nil
}

func newBackend(conn grpc.ClientConnInterface, cfg Config) *Backend {
	work := NewWork(conn, WorkConfig{Log: cfg.Log, Agent: cfg.Version, Broken: cfg.Broken})
	b := &Backend{Work: work, conn: conn, shared: newBundler(conn, &cfg), log: cfg.Log, patience: cfg.Patience}
	b.client = pb.NewClientServiceClient(b.shared)
	b.receipts.send = b.sendReceipts
	return b
}

// introduce asks the server who the caller is.
func (b *Backend) introduce(ctx context.Context) error {
	hello, err := b.server(ctx, &pb.ServerRequest{})
	if err != nil {
		return err
	}
	if hello.GetProtocol() != wire.Protocol {
		return fault.WithHint(
			fault.New(fault.Invalid, "server %s speaks protocol %d, this build speaks %d", cmp.Or(hello.GetVersion(), "of unknown version"), hello.GetProtocol(), wire.Protocol),
			"use a client and a server of versions that fit together")
	}
	if hello.GetTenant() == "" {
		return fault.New(fault.Internal, "the server does not say which tenant the caller acts in")
	}
	b.tenant, b.cluster, b.remembers = hello.GetTenant(), hello.GetCluster(), time.Duration(hello.GetRemembers())
	b.shared.setLargest(int(hello.GetMaxMessage()))
	b.maxPayload = int(hello.GetMaxPayload())
	b.limits = request.Limits{Payload: b.maxPayload}.WithDefaults()
	return nil
}

func (b *Backend) server(ctx context.Context, m *pb.ServerRequest) (*pb.ServerReply, error) {
	read := func(_ string, r *pb.ServerReply) (*pb.ServerReply, error) { return r, nil }
	return ask(b.client.Server, read).do(ctx, b, m)
}

// Me asks the server who the caller is and what it may do. A server of an older version only says
// in which tenant the caller acts.
func (b *Backend) Me(ctx context.Context) (api.CallerInfo, error) {
	hello, err := b.server(ctx, &pb.ServerRequest{Caller: true})
	if err != nil {
		return api.CallerInfo{}, err
	}
	return wire.ReadCallerInfo(hello.GetTenant(), hello.GetCaller())
}

// Tenant returns the tenant that the server acts in for this caller.
func (b *Backend) Tenant() string { return b.tenant }

// MaxPayload returns the largest payload that the server takes, in bytes, as the server said when
// Dial connected to it. It returns 0 for a server of an older version, which does not say it.
func (b *Backend) MaxPayload() int { return b.maxPayload }

// Connected reports whether the connection to a server works, as far as the client knows. gRPC may
// close a connection that no call uses. Connected reports true for such a connection.
func (b *Backend) Connected() bool {
	c, ok := b.conn.(interface{ GetState() connectivity.State })
	if !ok {
		return true
	}
	s := c.GetState()
	return s == connectivity.Ready || s == connectivity.Idle
}

// Close ends the connection. Calls that are under way fail.
func (b *Backend) Close() error {
	b.Work.Close()
	b.receipts.close()
	err := b.close()
	b.shared.close()
	return err
}

// own refuses requests for other tenants. Messages do not contain the tenant, so the server would
// apply such a request to the tenant of the credential.
func (b *Backend) own(tenants ...string) error {
	for _, t := range tenants {
		if t == "" {
			return fault.New(fault.Invalid, "the tenant is empty")
		}
		if t != b.tenant {
			return fault.New(fault.Denied, "the request is for tenant %.80q, the connection is for %q", t, b.tenant)
		}
	}
	return nil
}
