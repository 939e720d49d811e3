package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/flovyn"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/singleton"
)

// ServerConfig configures a server. If the zero value of a field has a meaning, the comment of the
// field says so.
type ServerConfig struct {
	// Node configures the node of the server.
	Node Config
	// Listen is the address that clients and workers connect to, host:port.
	Listen string
	// Authenticator says who is calling. It must be set. A keyring accepts the keys in the store.
	Authenticator grpcapi.Authenticator
	// Authorizer says what callers may do; nil for a server that only admins may use.
	Authorizer authz.Authorizer
	// Tenant is the tenant of callers that choose none. It exists without a record.
	Tenant string
	// TLS configures TLS for connections; nil for plain text.
	TLS *tls.Config
	// AlsoListen are further addresses at which the server serves the same as at Listen.
	AlsoListen []string
	// Services adds further gRPC services; nil for none. For tests.
	Services func(grpc.ServiceRegistrar)
	// Orgs are the organizations of the Flovyn protocol; nil for a server that has none.
	Orgs *flovyn.Orgs
	// Warnings are shown to operators on the health page of the Flovyn protocol.
	Warnings []string
	// Problems returns problems that operators should repair although the server can serve. The
	// health page of the server shows them. Nil means that there are none.
	Problems func() []string
	// Web returns the REST API; nil for none. The caller passes it in, so that programs with an
	// embedded store do not link it.
	Web func(Parts) (Web, error)
	// Operations are the ids of the operations that Web serves. Serve looks them up in the table of
	// actions before it opens the store.
	Operations []string
	// AccessLog n logs one of n successful requests, and all failed requests. 0 logs only requests
	// that failed because of the server.
	AccessLog int
	// AdminListen is the address of Profiles, host:port; empty for none.
	AdminListen string
	// Profiles answers requests of admins on AdminListen. The caller passes it in, so that only
	// programs that need profiles link their package (net/http/pprof). That package adds itself to
	// every HTTP server that uses the default routes.
	Profiles http.Handler
	// Metrics answers GET /metrics; nil for none.
	Metrics http.Handler
	// Docs shows the OpenAPI document of the Flovyn protocol; nil for a plain list.
	Docs http.Handler
	// MaxConnections is how many connections the server may have, over all its addresses. The
	// server closes further ones before it reads from them. The default is DefaultConnections; a
	// negative number means no limit.
	MaxConnections int
	// CallRate is how many calls each caller may make per second; 0 for no limit. The server
	// refuses further calls before it reads their requests.
	CallRate int
	// Grace is how long the server keeps the session of a worker whose connection has broken. The
	// default is 30 s.
	Grace time.Duration
	// Reunion is how long a node that has taken over shards waits for remote workers that may still
	// be doing the work there. The default is 10 s. Workers that join within this time continue
	// their work. Each worker that joins starts the time again, but the node waits at most six
	// times as long in all.
	Reunion time.Duration
}

// Parts are the parts of a server that its REST API uses.
type Parts struct {
	Backend       api.Backend
	Admin         api.Admin
	Authenticator grpcapi.Authenticator
	Authorizer    authz.Authorizer
	Log           *slog.Logger
	Version       string
	MaxPayload    int
	Journal       *access.Journal
}

// Web is the REST API of a server.
type Web interface {
	http.Handler
	// Shutdown ends requests that only wait.
	Shutdown()
}

// Server is a node that programs reach over the network: by gRPC, and by HTTP for the REST API,
// health and metrics.
type Server struct {
	node   *Node
	log    *slog.Logger
	splits []*splitter
	// journal counts and logs the requests of all doors.
	journal *access.Journal
	admin   *http.Server // nil without AdminListen
	adminAt net.Addr
	grpc    *grpcapi.Server
	http    *http.Server
	web     Web // nil without a REST API
	door    *flovyn.Door
	// stopBuiltIns ends the workers that run the schedules, the batch jobs, the delayed calls and
	// the registers of singletons of all tenants.
	stopBuiltIns []func()
	// stopUses stops recording the uses of keys; nil without a keyring.
	stopUses func()
	stopTidy func()

	ended  sync.WaitGroup
	failed chan error
	once   sync.Once
	closes atomic.Bool // the server is no longer ready
	err    error
}

// services returns the further gRPC services.
func (cfg *ServerConfig) services() []func(grpc.ServiceRegistrar) {
	if cfg.Services == nil {
		return nil
	}
	return []func(grpc.ServiceRegistrar){cfg.Services}
}

// checkActions returns an error for methods and operations that have no row in the table of
// actions. Serve calls it first, so that a build with such an error neither upgrades the schema of
// the store nor takes over work that another node could do. The gRPC and REST servers check
// themselves again when they are created.
func (cfg *ServerConfig) checkActions() error {
	others := append([]func(grpc.ServiceRegistrar){new(flovyn.Door).Register}, cfg.services()...)
	return authz.Check(authz.Served{Methods: grpcapi.Methods(others...), Operations: cfg.Operations, Routes: flovyn.RouteNames()})
}

// Serve opens a node and serves it until Close.
func Serve(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if cfg.Node.Log == nil {
		cfg.Node.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Authorizer == nil {
		cfg.Authorizer = authz.Admins{}
	}
	if cfg.Node.RetainAudit == 0 {
		cfg.Node.RetainAudit = DefaultRetainAudit
	}
	if err := cfg.checkActions(); err != nil {
		return nil, err
	}
	cfg.Node.Serves, cfg.Node.Series = true, true
	cfg.Node.Lane.Reunion = cmp.Or(cfg.Reunion, 10*time.Second)
	// Listen first: an address that is taken fails before the node takes over any work.
	addresses := append([]string{cfg.Listen}, cfg.AlsoListen...)
	if cfg.AdminListen != "" {
		addresses = append(addresses, cfg.AdminListen)
	}
	all, err := listenAll(ctx, addresses)
	if err != nil {
		return nil, err
	}
	l := all[0]
	n, err := Open(ctx, cfg.Node)
	if err != nil {
		return nil, errors.Join(err, closeAll(all))
	}

	if err := recordOrgs(ctx, n, &cfg); err != nil {
		return nil, errors.Join(err, closeAll(all), n.Close())
	}

	s := &Server{node: n, log: cfg.Node.Log, failed: make(chan error, len(all)*2)}
	s.journal = access.New(access.Config{Meter: cfg.Node.Meter, Log: cfg.Node.Log, Every: cfg.AccessLog})
	if ring, ok := cfg.Authenticator.(*authn.Keyring); ok {
		if err := n.followKeys(ctx, ring, cfg.Node.Log); err != nil {
			return nil, errors.Join(err, closeAll(all), s.abandon(ctx))
		}
		s.stopUses = n.recordKeyUses(ring, cfg.Node.Log)
	}
	decide := func(door string) authz.Authorizer { return n.audit.Authorizer(cfg.Authorizer, door) }
	if cfg.CallRate > 0 {
		rate, recorded := authz.NewRate(cfg.CallRate), decide
		decide = func(door string) authz.Authorizer { return rate.Authorizer(recorded(door)) }
	}
	_, anyone := cfg.Authenticator.(authn.Open)
	n.service.Authorize(cfg.Authorizer)
	backend := n.audit.Backend(n.service)
	connections := flovyn.NewConnections()
	s.door = flovyn.New(flovyn.Config{
		AnyOrg: anyone, Connections: connections,
		Backend: backend, Caller: grpcapi.CallerOf, Orgs: cfg.Orgs, Log: cfg.Node.Log, MaxPayload: cfg.Node.MaxPayload,
		Authenticator: cfg.Authenticator, Authorizer: decide(authn.DoorFlovyn), Admin: n.audit.Admin(n.Admin(cfg.Tenant)), Warnings: cfg.Warnings, Ready: s.ready, Docs: cfg.Docs,
		Journal: s.journal,
	})
	s.grpc = grpcapi.New(grpcapi.Config{
		Backend: backend, Authenticator: cfg.Authenticator, Authorizer: decide(authn.DoorGRPC), Log: cfg.Node.Log, Version: cfg.Node.Version,
		MaxPayload: cfg.Node.MaxPayload, Grace: cfg.Grace, Restarts: true, Admin: n.Admin(cfg.Tenant), Audit: n.audit.Admin, Warnings: cfg.Problems, Address: l.Addr().String(),
		Others: append([]func(grpc.ServiceRegistrar){s.door.Register}, cfg.services()...), NoReflection: cfg.Node.Production, Unknown: flovyn.Unserved, Journal: s.journal,
	})
	if err := s.grpc.Check(); err != nil {
		return nil, errors.Join(err, closeAll(all), s.abandon(ctx))
	}
	if cfg.Web != nil {
		if s.web, err = cfg.Web(Parts{
			Backend: backend, Admin: s.grpc.Admin(), Authenticator: cfg.Authenticator, Authorizer: decide(authn.DoorREST), Log: cfg.Node.Log, Version: cfg.Node.Version,
			MaxPayload: cfg.Node.MaxPayload, Journal: s.journal,
		}); err != nil {
			return nil, errors.Join(err, closeAll(all), s.abandon(ctx))
		}
	}
	s.http = &http.Server{
		Handler: s.routes(cfg.Metrics), ReadHeaderTimeout: sniffTime, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Node.Log.Handler(), slog.LevelDebug),
	}
	if err := s.serveBuiltIns(ctx, n, cfg.Node.Log); err != nil {
		return nil, errors.Join(err, closeAll(all), s.abandon(ctx))
	}
	if cfg.AdminListen != "" {
		s.serveAdmin(all[len(all)-1], &cfg)
		all = all[:len(all)-1]
	}
	counts := cfg.countConnections()
	for _, l := range all {
		split := newSplitter(l, cfg.TLS, counts)
		s.splits = append(s.splits, split)
		s.serve("gRPC", func() error { return s.grpc.Serve(connections.Watch(split.grpc)) })
		s.serve("HTTP", func() error {
			if err := s.http.Serve(split.http); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	life, stop := context.WithCancel(context.Background())
	s.stopTidy = stop
	s.ended.Go(func() { tidy(life) })
	return s, nil
}

// abandon ends everything that a server has started, because it cannot serve.
func (s *Server) abandon(ctx context.Context) error {
	if s.door != nil {
		s.door.Close(ctx)
	}
	if s.stopUses != nil {
		s.stopUses()
	}
	return s.node.Close()
}

// serveBuiltIns runs the code of Perdure itself for all tenants.
func (s *Server) serveBuiltIns(ctx context.Context, n *Node, log *slog.Logger) error {
	schedules, err := schedule.ServeAll(ctx, n.service, log)
	if err != nil {
		return err
	}
	s.stopBuiltIns = append(s.stopBuiltIns, schedules)
	calls, err := delayed.ServeAll(ctx, n.service, log)
	if err != nil {
		s.endBuiltIns()
		return err
	}
	s.stopBuiltIns = append(s.stopBuiltIns, calls)
	registers, err := singleton.ServeAll(ctx, n.service, log)
	if err != nil {
		s.endBuiltIns()
		return err
	}
	s.stopBuiltIns = append(s.stopBuiltIns, registers)

	batches, err := n.ServeBatches(ctx, log)
	if err != nil {
		s.endBuiltIns()
		return err
	}
	s.stopBuiltIns = append(s.stopBuiltIns, batches)
	return nil
}

func (s *Server) endBuiltIns() {
	for _, stop := range s.stopBuiltIns {
		stop()
	}
}

// serve runs one of the servers in the background.
func (s *Server) serve(what string, run func() error) {
	s.ended.Go(func() {
		if err := run(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.failed <- fault.New(fault.Unavailable, "serve %s: %w", what, err)
		}
	})
}

// routes returns the handler of all requests over HTTP/1.1.
func (s *Server) routes(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})

	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
		mux.Handle("GET /_/metrics", metrics)
	}
	s.door.Routes(mux)
	if s.web != nil {
		mux.Handle("/v1/", s.web)
	}
	return mux
}

// ready returns why the server cannot serve, or nil if it can.
func (s *Server) ready() error {
	if s.closes.Load() {
		return fault.New(fault.Unavailable, "the server shuts down")
	}
	return s.node.Serving()
}

// listenAll listens on all addresses or on none.
func listenAll(ctx context.Context, addresses []string) (all []net.Listener, err error) {
	for _, address := range addresses {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, errors.Join(fault.New(fault.Unavailable, "listen: %w", err), closeAll(all))
		}
		all = append(all, l)
	}
	return all, nil
}

func closeAll(all []net.Listener) error {
	var errs []error
	for _, l := range all {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.splits[0].listener.Addr() }

// Node returns the node of the server.
func (s *Server) Node() *Node { return s.node }

// SetAccessLog changes which requests the server logs: see ServerConfig.AccessLog.
func (s *Server) SetAccessLog(every int) { s.journal.SetEvery(every) }

// Failed delivers the error of a server that ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Close accepts no new work and lets calls that are under way finish until ctx ends. It tells
// workers to connect to another server, and closes the node.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.closes.Store(true)
		s.node.Stopping()
		s.door.Drain()
		if s.web != nil {
			s.web.Shutdown()
		}
		s.grpc.Shutdown(ctx)
		err := s.http.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.http.Close()
		}
		if s.admin != nil {
			err = errors.Join(err, s.admin.Close()) // an incomplete profile is useless
		}
		s.door.Close(ctx)
		for _, split := range s.splits {
			_ = split.Close() // its listener may be closed already
		}
		s.stopTidy()
		s.ended.Wait()
		if s.stopUses != nil {
			s.stopUses()
		}
		s.endBuiltIns()
		s.journal.Close()
		s.err = errors.Join(err, s.node.Close())
	})

	return s.err
}
