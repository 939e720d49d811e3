package grpcapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pooled"
	"github.com/perdure/perdure/internal/wire"
)

// Defaults of a Config.
const (
	// DefaultMaxPayload is the largest payload in bytes. It equals the default of the service.
	DefaultMaxPayload = 2 << 20
	// payloadsPerMessage is how many payloads of full size fit into a request. The largest requests
	// are a start, with its input and its signals, and a fork with its edits. Clients split batches
	// and histories into several messages.
	payloadsPerMessage = 8
	// DefaultMaxReply has room for the largest reply. That is the description of a run that starts
	// with the past of another run: it has 16 MiB of events, the input, the output and the progress
	// of the tasks.
	DefaultMaxReply = 64 << 20
	// DefaultMaxStreams bounds the calls of one connection. A call that waits for an execution is
	// one of them, so the bound equals the number of requests that may wait for one execution.
	DefaultMaxStreams = 10_000
)

// Times of connections. Connections have no maximum age: workers keep theirs for months.
const (
	handshakeTime = 30 * time.Second
	// leastPing is the shortest time that clients must leave between two pings.
	leastPing = 10 * time.Second
	// If a connection is silent for this time, the server pings the client. It closes the
	// connection if no answer comes within patience. Otherwise the streams of dead clients would
	// stay open.
	silence  = 30 * time.Second
	patience = 15 * time.Second
)

// Config configures a server.
type Config struct {
	Backend api.Backend
	// Admin has the calls of operators; nil for a server without AdminService.
	Admin api.Admin
	// Audit wraps Admin and records what operators do; nil for a server without an audit log.
	Audit func(api.Admin) api.Admin
	// Warnings returns problems that operators should repair although the server can serve; nil for
	// none.
	Warnings func() []string
	// Door is the name of this way into the server, for the audit log. Empty means gRPC.
	Door string
	// Address is the address at which the server listens, as lists of nodes show it to people.
	Address string
	// Authenticator says who is calling. It must be set.
	Authenticator Authenticator
	// Authorizer says what callers may do; nil for a server that only callers with an admin key may
	// use.
	Authorizer authz.Authorizer
	// TLS configures TLS for connections; nil for plain text.
	TLS *tls.Config
	// Log receives the messages of the server; nil for none.
	Log *slog.Logger
	// NoReflection turns off reflection, which lists all methods and messages to callers.
	NoReflection bool
	// Journal counts and logs calls; nil for none.
	Journal *access.Journal
	// Version is the version of the program. Clients see it.
	Version string
	// MaxPayload is the largest payload that the service accepts, in bytes. Default 2 MiB.
	MaxPayload int
	// MaxMessage is the largest request in bytes. Default 8 times MaxPayload.
	MaxMessage int
	// MaxReply is the largest reply in bytes. Default 64 MiB.
	MaxReply int
	// MaxStreams bounds the calls of one connection. Default 10,000.
	MaxStreams int
	// Grace is how long the server keeps the session of a worker whose stream has broken. Default
	// 30 s.
	Grace time.Duration
	// Others add services of other protocols. Their callers are authenticated in the same way.
	Others []func(grpc.ServiceRegistrar)
	// Unknown answers calls of methods that no service has; nil for the usual error.
	Unknown func(method string) error
	// Restarts says that workers keep their claims when the server shuts down; see
	// WorkConfig.Restarts.
	Restarts bool
}

// withDefaults replaces zero fields by their defaults.
func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Authorizer == nil {
		c.Authorizer = authz.Admins{}
	}
	c.Door = cmp.Or(c.Door, authn.DoorGRPC)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.MaxMessage = cmp.Or(c.MaxMessage, payloadsPerMessage*c.MaxPayload)
	c.MaxReply = cmp.Or(c.MaxReply, DefaultMaxReply)
	c.MaxStreams = cmp.Or(c.MaxStreams, DefaultMaxStreams)
	return c
}

// Server serves the native protocol.
type Server struct {
	config Config
	grpc   *grpc.Server
	health *health.Server
	work   *Work
	admin  api.Admin // nil without AdminService

	// drained ends when the server shuts down. That ends calls that only wait.
	drained context.Context //nolint:containedctx // the life of the server, not of a call
	drain   context.CancelFunc
}

// New returns a server with all its services.
func New(cfg Config) *Server {
	s := &Server{config: cfg.withDefaults(), health: health.NewServer()}
	s.drained, s.drain = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(s.options()...)

	to := counted{s.grpc, s}
	service := &client{
		backend: s.config.Backend, authorizer: s.config.Authorizer, version: s.config.Version, maxMessage: s.config.MaxMessage, maxPayload: s.config.MaxPayload,
		receipts: newReceipts(),
	}
	service.bundles = newBundles(s, service)
	pb.RegisterClientServiceServer(to, service)
	s.work = NewWork(WorkConfig{Backend: s.config.Backend, Tenant: tenantOf, Log: s.config.Log, Grace: s.config.Grace, MaxFrame: s.config.MaxMessage, MaxPayload: s.config.MaxPayload, Restarts: s.config.Restarts})
	pb.RegisterWorkerServiceServer(to, s.work)
	names := []string{pb.ClientService_ServiceDesc.ServiceName, pb.WorkerService_ServiceDesc.ServiceName}
	if s.config.Admin != nil {
		s.admin = &serverAdmin{Admin: s.config.Admin, server: s, began: model.TimeOf(time.Now())}
		if s.config.Audit != nil {
			s.admin = s.config.Audit(s.admin)
		}
		pb.RegisterAdminServiceServer(to, &admin{to: s.admin})
		names = append(names, pb.AdminService_ServiceDesc.ServiceName)
	}
	for _, register := range s.config.Others {
		register(to)
	}
	for _, name := range names {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	if !s.config.NoReflection {
		reflection.Register(s.grpc)
	}
	return s
}

// Admin returns the calls of operators, with the facts that only this server knows; nil without
// AdminService.
func (s *Server) Admin() api.Admin { return s.admin }

func (s *Server) options() []grpc.ServerOption {
	c := &s.config
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(c.MaxMessage), grpc.MaxSendMsgSize(c.MaxReply),
		grpc.MaxConcurrentStreams(uint32(min(max(c.MaxStreams, 1), math.MaxInt32))),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.ReadBufferSize(0), // connections share buffers, or have the buffers of TLS
		grpc.StaticStreamWindowSize(wire.CallWindow), grpc.StaticConnWindowSize(wire.ConnWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silence, Timeout: patience}),
		grpc.InTapHandle(s.admit),
		grpc.UnaryInterceptor(s.interceptUnary), grpc.StreamInterceptor(s.interceptStream),
	}

	if c.Unknown != nil {
		options = append(options, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(stream)
			return c.Unknown(method)
		}))
	}

	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.TLS)))
	}
	return options
}

// Serve accepts connections until Shutdown. It returns nil after a shutdown. It fails if a method
// is missing in the table of actions.
func (s *Server) Serve(l net.Listener) error {
	if err := s.Check(); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.grpc.Serve(pooled.Listener{Listener: l})
}

// Check returns an error when the table of actions does not cover all methods.
func (s *Server) Check() error {
	var methods []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			if full := "/" + service + "/" + m.Name; !open[full] {
				methods = append(methods, full)
			}
		}
	}
	return authz.Check(authz.Served{Methods: methods})
}

// Methods lists the methods of the native protocol, and of the services that others add, without a
// server.
func Methods(others ...func(grpc.ServiceRegistrar)) []string {
	var found descriptions
	for _, desc := range []*grpc.ServiceDesc{&pb.ClientService_ServiceDesc, &pb.WorkerService_ServiceDesc, &pb.AdminService_ServiceDesc} {
		found.RegisterService(desc, nil)
	}
	for _, register := range others {
		register(&found)
	}
	return found
}

// descriptions collects the methods of services that are registered with it.
type descriptions []string

// RegisterService adds the methods of a service.
func (d *descriptions) RegisterService(desc *grpc.ServiceDesc, _ any) {
	for i := range desc.Methods {
		*d = append(*d, "/"+desc.ServiceName+"/"+desc.Methods[i].MethodName)
	}
	for i := range desc.Streams {
		*d = append(*d, "/"+desc.ServiceName+"/"+desc.Streams[i].StreamName)
	}
}

// Shutdown stops the server. It accepts no new calls, ends calls that only wait, and lets the
// others finish until ctx ends. Clients repeat the calls that were cut off, on another server.
func (s *Server) Shutdown(ctx context.Context) {
	s.health.Shutdown()
	s.drain()
	s.work.Close(ctx)

	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.grpc.GracefulStop()
	}()
	select {
	case <-finished:
	case <-ctx.Done():
		s.grpc.Stop()
		<-finished
	}
}
