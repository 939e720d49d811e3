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

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/singleton"
)

// ServerConfig configures a server. A zero field has the default that its comment names.
type ServerConfig struct {
	// Node is the node behind the server.
	Node Config
	// Listen is the address that clients and workers connect to, host:port.
	Listen string
	// Authenticator says who is calling. It must be set. A keyring accepts the keys in the store.
	Authenticator grpcapi.Authenticator
	// Authorizer says what callers may do; nil for a server that only admins may use.
	Authorizer authz.Authorizer
	// Tenant exists without a record: that of callers that choose none.
	Tenant string
	// TLS of connections; nil for plain text.
	TLS *tls.Config
	// Web returns the REST API; nil for none. The caller passes it in, so that programs with an
	// embedded store do not link it.
	Web func(Parts) (Web, error)
	// Metrics answers GET /metrics; nil for none.
	Metrics http.Handler
	// Grace is how long the server keeps what a worker holds whose connection has broken; 30 s.
	Grace time.Duration
	// Reunion is how long the node keeps, after it has taken over work, the work that remote
	// workers may still be doing; 10 s. They come back within this time and go on with it. It
	// begins anew with each worker that joins, up to six times as long in all.
	Reunion time.Duration
}

// Parts are what the REST API of a server is made of.
type Parts struct {
	Backend       api.Backend
	Admin         api.Admin
	Authenticator grpcapi.Authenticator
	Authorizer    authz.Authorizer
	Log           *slog.Logger
	Version       string
	MaxPayload    int
}

// Web is the REST API of a server.
type Web interface {
	http.Handler
	// Shutdown ends requests that only wait.
	Shutdown()
}

// Server is a node that others reach over the network: by gRPC, and by HTTP for the REST API, for
// health and for metrics.
type Server struct {
	node  *Node
	log   *slog.Logger
	split *splitter
	grpc  *grpcapi.Server
	http  *http.Server
	web   Web // nil without a REST API
	// stopBuiltIns ends the workers that run the schedules, the delayed calls and the registers of
	// singletons of all tenants.
	stopBuiltIns []func()
	// stopUses ends the record of which keys are used; nil without a keyring.
	stopUses func()

	ended  sync.WaitGroup
	failed chan error
	once   sync.Once
	closes atomic.Bool // the server is not ready any longer
	err    error
}

// Serve opens a node and serves it until Close.
func Serve(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if cfg.Node.Log == nil {
		cfg.Node.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Node.Lane.Reunion = cmp.Or(cfg.Reunion, 10*time.Second)
	// Listen first: an address that is taken fails before the node takes over any work.
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "listen: %w", err)
	}
	n, err := Open(ctx, cfg.Node)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}

	s := &Server{node: n, log: cfg.Node.Log, failed: make(chan error, 2)}
	if ring, ok := cfg.Authenticator.(*authn.Keyring); ok {
		if err := n.followKeys(ctx, ring, cfg.Node.Log); err != nil {
			return nil, errors.Join(err, l.Close(), n.Close())
		}
		s.stopUses = n.recordKeyUses(ring, cfg.Node.Log)
	}
	mailer, _ := n.Backend().(api.Mailer)
	s.grpc = grpcapi.New(grpcapi.Config{
		Backend: n.Backend(), Mailer: mailer, Authenticator: cfg.Authenticator, Authorizer: cfg.Authorizer, Log: cfg.Node.Log, Version: cfg.Node.Version,
		MaxPayload: cfg.Node.MaxPayload, Grace: cfg.Grace, Restarts: true, Admin: n.Admin(cfg.Tenant), Address: l.Addr().String(),
	})
	if err := s.grpc.Check(); err != nil {
		return nil, errors.Join(err, l.Close(), n.Close())
	}
	if cfg.Web != nil {
		if s.web, err = cfg.Web(Parts{
			Backend: n.Backend(), Admin: s.grpc.Admin(), Authenticator: cfg.Authenticator, Authorizer: cfg.Authorizer, Log: cfg.Node.Log, Version: cfg.Node.Version,
			MaxPayload: cfg.Node.MaxPayload,
		}); err != nil {
			return nil, errors.Join(err, l.Close(), n.Close())
		}
	}
	s.http = &http.Server{
		Handler: s.routes(cfg.Metrics), ReadHeaderTimeout: sniffTime, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Node.Log.Handler(), slog.LevelDebug),
	}
	if err := s.serveBuiltIns(ctx, n, cfg.Node.Log); err != nil {
		return nil, errors.Join(err, l.Close(), n.Close())
	}
	s.split = newSplitter(l, cfg.TLS)
	s.serve("gRPC", func() error { return s.grpc.Serve(s.split.grpc) })
	s.serve("HTTP", func() error {
		if err := s.http.Serve(s.split.http); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return s, nil
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
	return nil
}

func (s *Server) endBuiltIns() {
	for _, stop := range s.stopBuiltIns {
		stop()
	}
}

// serve runs one of the servers beside the others.
func (s *Server) serve(what string, run func() error) {
	s.ended.Go(func() {
		if err := run(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.failed <- fault.New(fault.Unavailable, "serve %s: %w", what, err)
		}
	})
}

// routes are what is served over HTTP/1.1.
func (s *Server) routes(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := s.node.Serving()
		if s.closes.Load() {
			err = fault.New(fault.Unavailable, "the server shuts down")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})

	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	if s.web != nil {
		mux.Handle("/v1/", s.web)
	}
	return mux
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.split.listener.Addr() }

// Node is the node behind the server.
func (s *Server) Node() *Node { return s.node }

// Failed delivers the error of a server that ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Close takes no new work, lets calls that are under way finish until ctx ends, has workers connect
// elsewhere, and closes the node.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.closes.Store(true)
		s.node.Stopping()
		if s.web != nil {
			s.web.Shutdown()
		}
		s.grpc.Shutdown(ctx)
		err := s.http.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.http.Close()
		}
		_ = s.split.Close() // its listener may be closed already
		s.ended.Wait()
		if s.stopUses != nil {
			s.stopUses()
		}
		s.endBuiltIns()
		s.err = errors.Join(err, s.node.Close())
	})
	return s.err
}
